//! Parameters for a network, and everything that a server prepares once.

use super::circuit::{LinearOp, Method, Op, Program};
use super::cost::{Counts, LevelCost};
use super::diagonals::visit;
use super::layout::EMPTY;
use super::machine::run;
use super::plan::{plan, Choice};
use super::simulate::{Outcome, Simulator};
use super::spec::Network;
use super::PackedError;
use hushnet_rlwe::ckks::{
    CkksError, CkksParams, CkksSpec, EncodeAt, Encoder, Insecure, Level, PlainRows, Plaintext, PrimeSpec,
};
use hushnet_rlwe::security::max_modulus_bits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a circuit is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packing {
    /// The cheapest layouts and methods.
    Auto,
    /// The published one: one channel a ciphertext.
    ChannelWise,
}

/// Options of a compilation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Packing.
    pub method: Packing,
    /// 128, or 0 for parameters that are not secure (tests).
    pub security: u32,
    /// log2 of the output's bound over its typical error (7.6 deviations).
    pub precision_bits: u32,
    /// Re-randomise and flood the result.
    pub hide_weights: bool,
    /// Ring degree, 0 for the smallest that works.
    pub ring_degree: usize,
    /// Largest evaluation keys, bytes.
    pub key_bytes: u64,
    /// Plaintexts above this many bytes are encoded again for every image.
    pub memory_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            method: Packing::Auto,
            security: 128,
            precision_bits: 10,
            hide_weights: false,
            ring_degree: 0,
            key_bytes: 150_000_000,
            memory_bytes: 6 << 30,
        }
    }
}

/// Ring degrees that are tried, smallest first.
const DEGREES: [usize; 5] = [4096, 8192, 16384, 32768, 65536];
/// Smallest and largest scale.
const SCALE_BITS: (u32, u32) = (22, 46);

/// Statistical distance of a flooded result from its simulation: 2^-40.
pub const FLOOD_BITS: u32 = 41;

/// A compiled circuit: public structure, parameters, predictions.
#[derive(Clone)]
pub struct Circuit {
    pub(super) program: Program,
    pub(super) params: CkksParams,
    pub(super) options: Options,
    pub(super) counts: Counts,
    pub(super) rotations: Vec<(i64, Level)>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) elements: usize,
    pub(super) input_bound: f64,
    spent: Vec<(String, usize)>,
    words: usize,
}

fn refused(security: bool, spec: &CkksSpec, key_level: usize) -> Result<CkksParams, CkksError> {
    if security {
        spec.check_with_keys_to(key_level)
    } else {
        spec.check_insecure_with_keys_to(key_level, Insecure)
    }
}

/// Primes for a depth: q_0 with room for the output, the others near the scale, special primes just wider than a digit.
fn primes(n: usize, depth: usize, scale_bits: u32, first_bits: u32, special: usize) -> Option<CkksSpec> {
    let mut data = vec![PrimeSpec::Near(first_bits)];
    data.resize(depth + 1, PrimeSpec::Near(scale_bits));
    let digits = data.len().div_ceil(special);
    let size = data.len().div_ceil(digits) as u32;
    let digit_bits = first_bits + (size - 1) * scale_bits;
    let bits = (digit_bits + 4).div_ceil(special as u32).min(50);
    if bits * (special as u32) < digit_bits {
        return None;
    }
    Some(CkksSpec {
        ring_degree: n,
        data_primes: data,
        special_primes: vec![PrimeSpec::Near(bits); special],
        scale_bits,
        digits,
    })
}

struct Search<'a> {
    net: &'a Network,
    options: &'a Options,
    n: usize,
}

struct Found {
    program: Program,
    params: CkksParams,
    counts: Counts,
    rotations: BTreeMap<i64, usize>,
    outcomes: Vec<Outcome>,
    words: usize,
}

impl Search<'_> {
    /// Bits of q_0: the output at its scale, with two bits to spare.
    fn first_bits(&self, scale_bits: u32) -> u32 {
        let bound = self.net.tensors[self.net.output].bound;
        (scale_bits + 3 + bound.log2().ceil().max(0.0) as u32).min(50)
    }

    fn simulate(&self, program: &Program, params: &CkksParams) -> Result<Found, PackedError> {
        let mut simulator = Simulator::new(params);
        let mut uploads = Vec::with_capacity(program.uploads.len());
        for u in &program.uploads {
            let value = &program.values[u.value];
            uploads.push(simulator.fresh(value.level, program.scale, value.bound));
        }
        let outputs = run(&mut simulator, program, uploads)?;
        simulator.counts.decryptions = outputs.len();
        let Simulator { counts, rotations, outcomes, words, .. } = simulator;
        Ok(Found { program: program.clone(), params: params.clone(), counts, rotations, outcomes, words })
    }

    /// Whether log2 of the widest modulus is within the table.
    fn secure(&self, spec: &CkksSpec, key_level: usize) -> bool {
        if self.options.security == 0 {
            return true;
        }
        let bits = |p: &PrimeSpec| match p {
            PrimeSpec::Near(b) => *b,
            PrimeSpec::Exactly(q) => 64 - q.leading_zeros(),
        };
        let data: u32 = spec.data_primes.iter().map(bits).sum();
        let keys: u32 = spec.data_primes[..key_level].iter().chain(&spec.special_primes).map(bits).sum();
        // Primes near 2^b may be a little above it.
        data.max(keys) < max_modulus_bits(spec.ring_degree).unwrap_or(0)
    }

    /// Parameters and predictions for a program and a number of special primes: the smallest scale that is precise
    /// enough.
    fn with_special(&self, program: &Program, depth: usize, special: usize) -> Result<Found, String> {
        let bound = self.net.tensors[self.net.output].bound;
        let target = bound * (-f64::from(self.options.precision_bits)).exp2();
        let mut why = String::from("no primes");
        let mut scale_bits = SCALE_BITS.0;
        while scale_bits <= SCALE_BITS.1 {
            let mut program = program.clone();
            program.set_scale(f64::from(scale_bits).exp2());
            let key_level = program.key_level();
            let fitting = (self.first_bits(scale_bits)..=50)
                .filter_map(|first| primes(self.n, depth, scale_bits, first, special))
                .filter(|spec| self.secure(spec, key_level));
            let mut next = scale_bits + 1;
            let mut any = false;
            for spec in fitting {
                any = true;
                let params = match refused(self.options.security != 0, &spec, key_level) {
                    Ok(p) => p,
                    Err(e) => {
                        why = e.to_string();
                        continue;
                    }
                };
                match self.simulate(&program, &params) {
                    Ok(found) => {
                        let error = found.outcomes.last().map_or(0.0, |o| o.typical);
                        if error <= target {
                            return Ok(found);
                        }
                        let missing = (error / target).log2().ceil().clamp(1.0, 20.0) as u32;
                        why = format!("at scale 2^{scale_bits} the output is {missing} bits less precise than asked for");
                        next = scale_bits + missing.saturating_sub(1).max(1);
                        break;
                    }
                    Err(e) => why = e.to_string(),
                }
            }
            if !any {
                return Err(format!("{why}; larger scales are not 128-bit secure at N={}", self.n));
            }
            scale_bits = next;
        }
        Err(why)
    }

    fn choose(&self) -> Result<(Found, Vec<(String, usize)>), String> {
        let slots = self.n / 2;
        let channel_wise = self.options.method == Packing::ChannelWise;
        let mut key_price = 0.0;
        let mut why = String::from("the modulus of its depth is not 128-bit secure");
        // A plan for two special primes, then the number of them that makes it cheapest among those that fit.
        for _ in 0..6 {
            let choice = Choice { slots, special: 2, channel_wise, key_price };
            let (program, _, spent) = plan(self.net, choice, 1.0).map_err(|e| e.to_string())?;
            let depth = program.depth();
            let mut order: Vec<(f64, usize)> =
                (1..=5).map(|k| (program.predicted_cost(self.n, k), k)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut fits = None;
            for (_, special) in order {
                match self.with_special(&program, depth, special) {
                    Ok(found) => {
                        let bytes = key_bytes(&found.params, &levels(&found), false);
                        if bytes <= self.options.key_bytes {
                            return Ok((found, spent));
                        }
                        fits = Some(bytes);
                    }
                    Err(e) => why = e,
                }
            }
            match fits {
                Some(bytes) => why = format!("its keys would take {bytes} bytes"),
                None => return Err(why),
            }
            key_price = if key_price == 0.0 { 200.0 } else { key_price * 3.0 };
        }
        Err(why)
    }
}

fn levels(found: &Found) -> Vec<Level> {
    found.rotations.values().filter_map(|l| found.params.level(*l).ok()).collect()
}

fn key_bytes(params: &CkksParams, rotations: &[Level], hide: bool) -> u64 {
    let public = if hide { params.fresh_ciphertext_bytes(params.max_level()) } else { 0 };
    (params.relin_key_bytes() + params.galois_keys_bytes(rotations) + public) as u64
}

impl Program {
    /// Data primes less one.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.values.iter().map(|v| v.level).max().unwrap_or(1) - 1
    }

    fn set_scale(&mut self, scale: f64) {
        self.scale = scale;
        for op in &mut self.ops {
            if let Op::Linear(l) = op {
                l.scale = scale;
            }
        }
    }

    /// The highest level of a key switch.
    fn key_level(&self) -> usize {
        let of = |op: &Op| match op {
            Op::Linear(l) => {
                let rotates = l.rotations.inputs.iter().any(|x| x.1 != 0)
                    || l.rotations.outputs.iter().flatten().any(|s| s.giant != 0);
                match (rotates, l.folds.is_empty()) {
                    (true, _) => l.level,
                    (false, false) => l.level - 1,
                    _ => 1,
                }
            }
            Op::Polynomial { input, .. } => self.values[*input].level,
            Op::Add { .. } => 1,
        };
        self.ops.iter().map(of).max().unwrap_or(1)
    }

    /// Microseconds by the cost model, with this many special primes.
    fn predicted_cost(&self, n: usize, special: usize) -> f64 {
        let at = |level: usize| LevelCost { n, level, special, digit: special };
        let of = |op: &Op| match op {
            Op::Linear(l) => at(l.level).linear(&l.rotations.work(&l.folds), 0.0),
            Op::Polynomial { input, members, coefficients, .. } => {
                let v = &self.values[*input];
                let each = v.cts as f64 / *members as f64;
                super::machine::depth(coefficients) as f64 * each * at(v.level).relinearise()
            }
            Op::Add { .. } => 0.0,
        };
        self.ops.iter().map(of).sum()
    }
}

impl Circuit {
    /// Chooses ring degree, primes, layouts and methods.
    ///
    /// # Errors
    /// [`PackedError::Depth`] naming the layers and levels when no secure parameters hold the network;
    /// [`PackedError::Spec`] for options outside of their ranges.
    pub fn compile(net: &Network, options: &Options) -> Result<Self, PackedError> {
        if options.security != 128 && options.security != 0 {
            return Err(PackedError::Spec(format!("security {}: 128 or 0 (insecure)", options.security)));
        }
        let degrees: Vec<usize> = if options.ring_degree == 0 {
            DEGREES.to_vec()
        } else {
            vec![options.ring_degree]
        };
        let mut why = String::new();
        for &n in &degrees {
            if !n.is_power_of_two() || !(64..=65536).contains(&n) {
                return Err(PackedError::Spec(format!("ring degree {n} is not a power of two from 64 to 65536")));
            }
            let depth = super::plan::network_depth(net);
            let search = Search { net, options, n };
            let least = (depth as u32) * SCALE_BITS.0 + search.first_bits(SCALE_BITS.0);
            if options.security != 0 && least > max_modulus_bits(n).unwrap_or(0) {
                why = format!("{depth} levels take {least} bits at least");
                continue;
            }
            match search.choose() {
                Ok((found, spent)) => return Ok(Self::new(net, options, found, spent)),
                Err(e) => why = e,
            }
        }
        let per_step = super::plan::network_levels(net);
        let layers = per_step.iter().map(|(name, l)| format!("'{name}' {l}")).collect::<Vec<_>>().join(", ");
        Err(PackedError::Depth {
            depth: super::plan::network_depth(net),
            layers,
            largest: degrees.last().copied().unwrap_or(0),
            bits: options.precision_bits,
            why,
        })
    }

    fn new(net: &Network, options: &Options, found: Found, spent: Vec<(String, usize)>) -> Self {
        let rotations =
            found.rotations.iter().filter_map(|(s, l)| found.params.level(*l).ok().map(|l| (*s, l))).collect();
        Self {
            program: found.program,
            params: found.params,
            options: options.clone(),
            counts: found.counts,
            rotations,
            outcomes: found.outcomes,
            elements: net.tensors[net.input].len(),
            input_bound: net.tensors[net.input].bound,
            spent,
            words: found.words,
        }
    }

    /// Parameters.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.params
    }

    /// Predicted operations.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Rotations that need keys, each with the highest level at which it is used.
    #[must_use]
    pub fn rotations(&self) -> &[(i64, Level)] {
        &self.rotations
    }

    /// Bytes of the evaluation keys.
    #[must_use]
    pub fn key_bytes(&self) -> u64 {
        let levels: Vec<Level> = self.rotations.iter().map(|r| r.1).collect();
        key_bytes(&self.params, &levels, self.options.hide_weights)
    }

    /// Bytes of the client's message for one image.
    #[must_use]
    pub fn upload_bytes(&self) -> u64 {
        let one = |u: &super::circuit::Upload| {
            let level = self.program.values[u.value].level;
            self.params.level(level).map_or(0, |l| self.params.fresh_ciphertext_bytes(l)) as u64
        };
        self.program.uploads.iter().map(one).sum()
    }

    /// Bytes of the encoded weights.
    #[must_use]
    pub fn plaintext_bytes(&self) -> u64 {
        let of = |op: &Op| match op {
            Op::Linear(l) => {
                let terms = l.rotations.work(&l.folds).products as u64;
                let word = |i: usize| if self.params.data_prime(i) >> 32 == 0 { 4 } else { 8 };
                terms * (0..l.level).map(word).sum::<u64>() * self.params.ring_degree() as u64
            }
            _ => 0,
        };
        self.program.ops.iter().map(of).sum()
    }

    /// Predicted peak of the server's memory: plaintexts, keys, ciphertexts of the widest layer.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let n = self.params.ring_degree() as u64;
        let special = self.params.special_primes().len() as u64;
        let key = |l: Level| 2 * self.params.digits_at(l) as u64 * (special + l.get() as u64) * n * 8;
        let keys: u64 = self.rotations.iter().map(|r| key(r.1)).sum::<u64>() + key(self.params.key_level());
        let plain = self.plaintext_bytes().min(self.options.memory_bytes);
        plain + keys + self.words as u64 * 8 + (64 << 20)
    }

    /// Predicted error of the output: `(bound, typical)`, in units of the output. The bound holds but with probability
    /// 2^-40 for values within the declared bounds; the typical one is 7.6 standard deviations of errors taken as independent.
    #[must_use]
    pub fn predicted_error(&self) -> (f64, f64) {
        self.outcomes.last().map_or((0.0, 0.0), |o| (o.worst, o.typical))
    }

    /// Levels that every step spends.
    #[must_use]
    pub fn levels_spent(&self) -> &[(String, usize)] {
        &self.spent
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether plaintexts are kept, or encoded again for every image.
    #[must_use]
    pub fn keeps_plaintexts(&self) -> bool {
        self.plaintext_bytes() <= self.options.memory_bytes
    }
}

/// Encoded weights of one output ciphertext.
pub(super) fn encode_rows(
    circuit: &Circuit,
    op: &LinearOp,
    ct: usize,
    input_scale: f64,
    encoder: &Encoder,
) -> Result<PlainRows, PackedError> {
    let params = &circuit.params;
    let slots = circuit.program.slots;
    let sums = &op.rotations.outputs[ct];
    let level = params.level(op.level)?;
    let scale = op.scale * params.data_prime(op.level - 1) as f64 / input_scale;
    let lists = sums.iter().map(|s| s.terms.clone()).collect();
    let mut rows = PlainRows::new(params, level, scale, lists)?;
    let mut values: Vec<Vec<Vec<f64>>> =
        sums.iter().map(|s| vec![Vec::new(); s.terms.len()]).collect();
    let mut put = |sum: usize, term: usize, slot: usize, w: f64| {
        let v = &mut values[sum][term];
        if v.is_empty() {
            v.resize(slots, 0.0);
        }
        v[slot] = w;
    };
    match &op.method {
        Method::Rotate { input, form, split } => {
            let mut at = BTreeMap::new();
            for (k, s) in sums.iter().enumerate() {
                for (t, &number) in s.terms.iter().enumerate() {
                    let (i, baby) = op.rotations.inputs[number as usize];
                    at.insert((i, baby, s.giant), (k, t));
                }
            }
            let mut last = ((u32::MAX, 0), (0, 0, 0));
            visit(&op.map, input, form, ct, split.offset, |diagonal, slot, w| {
                if last.0 != diagonal {
                    let (baby, giant) = split.cut(diagonal.1);
                    let (k, t) = at[&(diagonal.0, baby, giant)];
                    last = (diagonal, (k, t, giant));
                }
                let (k, t, giant) = last.1;
                let inner = (slot as i64 + giant).rem_euclid(slots as i64) as usize;
                put(k, t, inner, w);
            });
        }
        Method::Replicated { outputs, copies, .. } => {
            let part = slots / copies;
            for (s, &f) in outputs[ct][..part].iter().enumerate() {
                if f != EMPTY {
                    op.map.row(f as usize, |tap, _, w| put(0, tap / copies, tap % copies * part + s, w));
                }
            }
        }
    }
    for (k, v) in values.into_iter().enumerate() {
        rows.set(encoder, k, &v)?;
    }
    Ok(rows)
}

/// Encoded biases, one for each output ciphertext, or none.
pub(super) fn encode_bias(
    circuit: &Circuit,
    op: &LinearOp,
    scale: f64,
    encoder: &Encoder,
) -> Result<Vec<Plaintext>, PackedError> {
    if op.map.bias.iter().all(|b| *b == 0.0) {
        return Ok(Vec::new());
    }
    let level = circuit.params.level(op.level - 1)?;
    let bound = op.map.bias.iter().fold(0.0f64, |m, b| m.max(b.abs()));
    op.output_slots()
        .iter()
        .map(|slots| {
            let values: Vec<f64> =
                slots.iter().map(|&f| if f == EMPTY { 0.0 } else { op.map.bias_of(f as usize) }).collect();
            Ok(encoder.encode(&values, EncodeAt { level, scale, bound })?)
        })
        .collect()
}

/// What a circuit is, for people and benches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Packing asked for.
    pub method: Packing,
    /// Ring degree N.
    pub ring_degree: usize,
    /// Bits of security, 0 where the parameters are not secure.
    pub security: u32,
    /// log2 of the data primes.
    pub data_prime_bits: Vec<f64>,
    /// log2 of the special primes.
    pub special_prime_bits: Vec<f64>,
    /// log2 of the widest modulus of any sample.
    pub modulus_bits: f64,
    /// log2 of the scale of linear results.
    pub scale_bits: f64,
    /// Rescalings that the parameters allow.
    pub levels: usize,
    /// Levels that every step spends.
    pub levels_spent: Vec<(String, usize)>,
    /// Evaluation keys: bytes, and number of rotations.
    pub key_bytes: u64,
    /// Rotation keys.
    pub rotation_keys: usize,
    /// Client to server, an image.
    pub upload_bytes: u64,
    /// Server to client, an image.
    pub download_bytes: u64,
    /// Encoded weights.
    pub plaintext_bytes: u64,
    /// Whether they are kept between images.
    pub keeps_plaintexts: bool,
    /// Predicted peak of the server.
    pub memory_bytes: u64,
    /// Operations for an image.
    pub counts: Counts,
    /// All rotations for an image.
    pub rotations: usize,
    /// Error that holds but with probability 2^-40, in units of the output.
    pub error_bound: f64,
    /// 7.6 deviations of errors taken as independent.
    pub error_typical: f64,
    /// A line for every operation.
    pub operations: Vec<String>,
    /// Who learns what.
    pub notes: Vec<String>,
}

impl Circuit {
    /// What it is.
    #[must_use]
    pub fn report(&self) -> Report {
        let p = &self.params;
        let bits = |q: u64| (q as f64).log2();
        let data: Vec<f64> = (0..p.max_level().get()).map(|i| bits(p.data_prime(i))).collect();
        let special: Vec<f64> = p.special_primes().iter().map(|q| bits(*q)).collect();
        let all: f64 = data.iter().sum();
        let keys: f64 = data[..p.key_level().get()].iter().chain(&special).sum();
        let (error_bound, error_typical) = self.predicted_error();
        let level = self.program.values[self.program.output].level;
        let one = p.level(level).map_or(0, |l| p.ciphertext_bytes(l)) as u64;
        let mut notes = vec!["the server learns shapes only; the client learns the output".to_owned()];
        if !self.options.hide_weights {
            notes.push("the output's ciphertext noise depends on the weights and is not hidden".to_owned());
        }
        Report {
            method: self.options.method,
            ring_degree: p.ring_degree(),
            security: if p.is_secure() { 128 } else { 0 },
            data_prime_bits: data,
            special_prime_bits: special,
            modulus_bits: all.max(keys),
            scale_bits: self.program.scale.log2(),
            levels: p.max_level().get() - 1,
            levels_spent: self.spent.clone(),
            key_bytes: self.key_bytes(),
            rotation_keys: self.rotations.len(),
            upload_bytes: self.upload_bytes(),
            download_bytes: one * self.program.output_layout.cts.len() as u64,
            plaintext_bytes: self.plaintext_bytes(),
            keeps_plaintexts: self.keeps_plaintexts(),
            memory_bytes: self.memory_bytes(),
            counts: self.counts,
            rotations: self.counts.rotations(),
            error_bound,
            error_typical,
            operations: self.describe(),
            notes,
        }
    }

    /// One line for every operation: method, layout, rotations and products.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let program = &self.program;
        let line = |op: &Op| {
            let out = &program.values[op.output()];
            let head = format!("{}: level {} -> {}, ", op.name(), program.values[op.inputs()[0]].level, out.level);
            let tail = match op {
                Op::Linear(l) => {
                    let w = l.rotations.work(&l.folds);
                    let how = match &l.method {
                        Method::Rotate { split, form, .. } => format!(
                            "baby steps to {} and giant steps over {}{}",
                            split.base,
                            form.layout().grid.map_or_else(
                                || format!("a flat layout of period {}", form.layout().period),
                                |g| format!("a {}x{} grid, gap {:?}, blocks of {}", g.rows, g.cols, g.gap, g.block)
                            ),
                            if l.folds.is_empty() { "" } else { ", folded" }
                        ),
                        Method::Replicated { copies, layout, .. } => format!(
                            "copies made by the client, {copies} a ciphertext, period {} of {}",
                            layout.period, program.slots
                        ),
                    };
                    format!(
                        "{} -> {} ciphertexts, {how}: {} + {} + {} rotations (hoisted, giant, folds), {} products, {} keys",
                        program.values[l.input].cts, out.cts, w.babies, w.giants, w.folds, w.products, w.keys
                    )
                }
                Op::Polynomial { members, coefficients, .. } => {
                    format!("degree {}, {} ciphertexts, {members} summed", coefficients.len() - 1, out.cts)
                }
                Op::Add { .. } => format!("{} ciphertexts", out.cts),
            };
            head + &tail
        };
        program.ops.iter().map(line).collect()
    }
}
