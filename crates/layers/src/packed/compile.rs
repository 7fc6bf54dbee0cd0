//! Parameters for a network, and everything that a server prepares once.

use super::bootstrapped::bootstrapped;
use super::circuit::{Op, Program};
use super::cost::{Counts, LevelCost};
use super::interface::{Interface, InterfaceSpec, UploadSpec};
use super::keep::Kept;
use super::machine::run;
use super::options::{Bootstrapping, Bootstraps, Choices, PackedOptions, Packing, KEY_BYTES};
use super::plan::{plan, Choice};
use super::simulate::{Outcome, Simulator};
use super::spec::{Network, Step};
use super::steer::steered;
use super::PackedError;
use hushnet_ring::Ring;
use hushnet_rlwe::batch::TAIL;
use hushnet_rlwe::ckks::bootstrap::BootstrapDesign;
use hushnet_rlwe::ckks::{CkksError, CkksParams, CkksSpec, Insecure, Level, PrimeSpec};
use hushnet_rlwe::security::max_modulus_bits;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ring degrees that are tried, smallest first.
const DEGREES: [usize; 5] = [4096, 8192, 16384, 32768, 65536];
/// Smallest and largest scale.
const SCALE_BITS: (u32, u32) = (22, 46);
/// Widest scale of one prime when a level has several, which need no room for the scale's drift.
const WIDE_BITS: u32 = 49;
/// Most data primes of a level.
const MAX_WIDTH: usize = 3;

/// Microseconds that a rotation key counts for, one after the other until keys are small enough.
pub(super) const KEY_PRICES: [f64; 4] = [0.0, 500.0, 5000.0, 50000.0];

/// Statistical distance of a flooded result from its simulation: 2^-40.
const STATISTICAL_BITS: f64 = 40.0;

/// A compiled circuit: public structure, parameters, predictions.
#[derive(Clone)]
pub struct Circuit {
    pub(super) program: Program,
    pub(super) params: CkksParams,
    pub(super) options: PackedOptions,
    pub(super) counts: Counts,
    pub(super) rotations: Vec<(i64, Level)>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) spent: Vec<(String, usize)>,
    pub(super) words: usize,
    pub(super) design: Option<Arc<BootstrapDesign>>,
    pub(super) kept: Kept,
    choices: Choices,
    interface: Arc<Interface>,
}

/// Adds a flood to the last outcome: b bits such that moving every coefficient by its error changes the distribution of
/// all by at most 2^-40. The error is that against the circuit on the *encoded* weights and the client's encoded image,
/// encryption of zero included. Both parts of every slot's error are at most E (but with probability 2^-40 each), so the sum of the
/// N coefficients' errors is at most sqrt(2N) E, and b = 40 + log2(sqrt(2N) E). The flood itself has variance 2^(2b) / 12 a
/// coefficient.
fn flood(params: &CkksParams, last: &mut Outcome) {
    let n = params.ring_degree() as f64;
    let scale = last.scale_bits.exp2();
    let noise = params.noise();
    let public = TAIL * noise.public();
    let bits = ((2.0 * n).sqrt() * (last.hidden * scale).hypot(public)).log2() + STATISTICAL_BITS;
    let bits = bits.ceil().max(1.0);
    let flood = TAIL * bits.exp2() * noise.rounding();
    let added = (flood + public) / scale;
    last.flood_bits = Some(bits as u32);
    last.worst += added;
    last.typical += added;
    last.expected += added;
}

fn refused(security: bool, spec: &CkksSpec, key_level: usize) -> Result<CkksParams, CkksError> {
    if security {
        spec.check_with_keys_to(key_level)
    } else {
        spec.check_insecure_with_keys_to(key_level, Insecure)
    }
}

/// `total` bits in `width` parts that differ by one at most.
fn parts(total: u32, width: usize) -> impl Iterator<Item = u32> {
    let width = width as u32;
    (0..width).map(move |i| total / width + u32::from(i < total % width))
}

/// Primes for a depth: a first level with room for the output, the others near the scale, special primes just wider than
/// a digit.
fn primes(
    n: usize,
    depth: usize,
    width: usize,
    scale_bits: u32,
    first_bits: u32,
    special: usize,
) -> Option<CkksSpec> {
    let mut bits: Vec<u32> = parts(first_bits, width).collect();
    (0..depth).for_each(|_| bits.extend(parts(scale_bits, width)));
    let digits = bits.len().div_ceil(special);
    let size = bits.len().div_ceil(digits);
    let digit_bits = bits.chunks(size).map(|c| c.iter().sum::<u32>()).max()?;
    if bits.iter().any(|b| *b > 50) {
        return None;
    }
    let data: Vec<PrimeSpec> = bits.into_iter().map(PrimeSpec::Near).collect();
    let bits = (digit_bits + 4).div_ceil(special as u32).min(50);
    if bits * (special as u32) < digit_bits {
        return None;
    }
    Some(CkksSpec {
        ring_degree: n,
        ring: Ring::Cyclotomic,
        data_primes: data,
        special_primes: vec![PrimeSpec::Near(bits); special],
        scale_bits,
        digits,
    })
}

pub(super) struct Search<'a> {
    pub(super) net: &'a Network,
    pub(super) options: &'a PackedOptions,
    pub(super) n: usize,
    pub(super) width: usize,
}

/// Levels by the steps that use them.
pub(super) type Spent = Vec<(String, usize)>;

pub(super) struct Found {
    pub(super) program: Program,
    pub(super) params: CkksParams,
    pub(super) counts: Counts,
    pub(super) rotations: BTreeMap<i64, usize>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) words: usize,
    pub(super) bootstraps: Option<(Bootstraps, Arc<BootstrapDesign>)>,
}

impl Search<'_> {
    /// Bits of q_0: the output at its scale, with two bits to spare.
    fn first_bits(&self, scale_bits: u32) -> u32 {
        let bound = self.net.tensors[self.net.output].bound;
        let linear = |s: &Step| matches!(s, Step::Linear { output, .. } if *output == self.net.output);
        let scaled = self.net.steps.iter().any(linear) && self.net.consumers(self.net.output).is_empty();
        let whole = if scaled { 0 } else { bound.log2().ceil().max(0.0) as u32 };
        (scale_bits + 3 + whole).min(50 * self.width as u32)
    }

    pub(super) fn simulate(
        &self,
        program: &Program,
        params: &CkksParams,
        bootstraps: Option<(Bootstraps, Arc<BootstrapDesign>)>,
    ) -> Result<Found, PackedError> {
        let design = bootstraps.as_ref().map(|b| b.1.as_ref());
        let mut simulator = Simulator::new(params, program.width, design);
        let mut uploads = Vec::with_capacity(program.uploads.len());
        for u in &program.uploads {
            let value = &program.values[u.value];
            uploads.push(simulator.fresh(value.level, program.scale, (value.bound, value.usual)));
        }
        let outputs = run(&mut simulator, program, uploads)?;
        simulator.counts.decryptions = outputs.len();
        let Simulator { counts, rotations, mut outcomes, words, .. } = simulator;
        if self.options.hide_weights {
            if let Some(last) = outcomes.last_mut() {
                flood(params, last);
            }
        }
        let (program, params) = (program.clone(), params.clone());
        Ok(Found { program, params, counts, rotations, outcomes, words, bootstraps })
    }

    /// Whether log2 of the widest modulus is within the table.
    fn secure(&self, spec: &CkksSpec, key_level: usize) -> bool {
        if self.options.security == 0 {
            return true;
        }
        let bits = |p: &PrimeSpec| match p {
            PrimeSpec::Near(b) => f64::from(*b),
            PrimeSpec::Exactly(q) => (*q as f64).log2(),
        };
        let data: f64 = spec.data_primes.iter().map(bits).sum();
        let keys: f64 = spec.data_primes[..key_level].iter().chain(&spec.special_primes).map(bits).sum();
        // Primes near 2^b may be a little above it.
        data.max(keys) < f64::from(max_modulus_bits(spec.ring_degree).unwrap_or(0))
    }

    /// Parameters and predictions for a program and a number of special primes: the smallest scale that is precise
    /// enough.
    fn with_special(&self, program: &Program, depth: usize, special: usize) -> Result<Found, String> {
        let bound = self.net.tensors[self.net.output].bound;
        let target = bound * (-f64::from(self.options.precision_bits)).exp2();
        let mut why = String::from("no primes");
        let (mut scale_bits, widest) = match self.width {
            1 => SCALE_BITS,
            wide => (SCALE_BITS.1 * (wide as u32 - 1), WIDE_BITS * wide as u32),
        };
        while scale_bits <= widest {
            let mut program = program.clone();
            program.set_scale(f64::from(scale_bits).exp2());
            let key_level = program.key_level() * self.width;
            let fitting = [0, 4, 8, 12]
                .into_iter()
                .map(|more| self.first_bits(scale_bits) + more)
                .filter(|first| *first <= 50 * self.width as u32)
                .filter_map(|first| primes(self.n, depth, self.width, scale_bits, first, special))
                .flat_map(|spec| {
                    // The primes nearest to the scale; where they are not precise enough, those that hold it.
                    let held = steered(&program, &spec).filter(|s| self.secure(s, key_level));
                    let only = held.is_none();
                    std::iter::once((spec, only)).chain(held.map(|s| (s, true)))
                })
                .filter(|(spec, _)| self.secure(spec, key_level));
            let mut next = scale_bits + 1;
            let mut any = false;
            for (spec, last) in fitting {
                any = true;
                let params = match refused(self.options.security != 0, &spec, key_level) {
                    Ok(p) => p,
                    Err(e) => {
                        why = e.to_string();
                        continue;
                    }
                };
                match self.simulate(&program, &params, None) {
                    Ok(found) => {
                        let error = found.outcomes.last().map_or(0.0, |o| o.typical);
                        if error <= target {
                            return Ok(found);
                        }
                        let missing = (error / target).log2().ceil().clamp(1.0, 20.0) as u32;
                        why = format!("at scale 2^{scale_bits} the output is {missing} bits less precise than asked for");
                        next = scale_bits + missing.saturating_sub(1).max(1);
                        if last {
                            break;
                        }
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

    pub(super) fn choice(&self, key_price: f64) -> Choice {
        let channel_wise = self.options.method == Packing::ChannelWise;
        Choice { slots: self.n / 2, special: 2, width: self.width, channel_wise, key_price, top: None }
    }

    fn choose(&self) -> Result<(Found, Spent, f64), String> {
        let mut why = String::from("the modulus of its depth is not 128-bit secure");
        // A plan for two special primes, then the number of them that makes it cheapest among those that fit.
        for key_price in KEY_PRICES {
            let (program, _, spent) =
                plan(self.net, self.choice(key_price), 1.0).map_err(|e| e.to_string())?;
            let depth = program.depth();
            let mut order: Vec<(f64, usize)> =
                (1..=5).map(|k| (program.predicted_cost(self.n, k, None), k)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut too_large = 0;
            for (_, special) in order {
                match self.with_special(&program, depth, special) {
                    Ok(found) => {
                        let bytes = found.key_bytes(self.options.hide_weights);
                        if bytes <= self.options.key_bytes.unwrap_or(KEY_BYTES) {
                            return Ok((found, spent, key_price));
                        }
                        too_large += 1;
                        why = format!("its keys would take {bytes} bytes");
                        if too_large == 2 {
                            break;
                        }
                    }
                    Err(e) => why = e,
                }
            }
            if too_large == 0 {
                return Err(why);
            }
        }
        Err(why)
    }
}

/// The public half of what was found.
fn interface(net: &Network, found: &Found, rotations: &[(i64, Level)]) -> Result<Interface, PackedError> {
    let Found { program, params, outcomes, .. } = found;
    let uploads = program.uploads.chunk_by(|a, b| a.value == b.value);
    let output = &program.values[program.output];
    let last = program.ops.iter().rposition(|op| op.output() == program.output);
    let scale = last.and_then(|at| outcomes.get(at)).map_or(program.scale, |o| o.scale);
    let layout = &program.output_layout;
    InterfaceSpec {
        inputs: net.tensors[net.input].len(),
        input_bound: net.tensors[net.input].bound,
        scale: program.scale,
        uploads: uploads
            .map(|same| UploadSpec {
                level: program.values[same[0].value].level * program.width,
                slots: same.iter().map(|u| u.slots.clone()).collect(),
            })
            .collect(),
        rotations: rotations.iter().map(|(s, l)| (*s, l.get())).collect(),
        output_level: output.level * program.width,
        output_scale: scale,
        output_bound: output.bound,
        bootstrap: found.bootstraps.as_ref().map(|b| b.0.slots),
        answer: layout.cts.len(),
        places: layout.places.iter().map(|p| p[0]).collect(),
    }
    .check(params)
}

impl Found {
    pub(super) fn key_bytes(&self, hide: bool) -> u64 {
        let levels: Vec<Level> = self.rotations.values().filter_map(|l| self.params.level(*l).ok()).collect();
        key_bytes(&self.params, &levels, self.bootstraps.as_ref().map(|b| b.1.as_ref()), hide)
    }
}

pub(super) fn key_bytes(
    params: &CkksParams,
    rotations: &[Level],
    design: Option<&BootstrapDesign>,
    hide: bool,
) -> u64 {
    let public = if hide { params.public_key_bytes() } else { 0 };
    let (mut levels, mut pair) = (rotations.to_vec(), 0);
    if let Some(design) = design {
        levels.extend(design.params().rotations().pop().map(|(_, level)| level));
        pair = design.params().encapsulation_bytes();
    }
    (params.relin_key_bytes() + params.galois_keys_bytes(&levels) + pair + public) as u64
}

impl Program {
    /// The depth: the number of data primes less one.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.values.iter().map(|v| v.level).max().unwrap_or(1) - 1
    }

    /// All linear results at one scale; what is the output and nothing else, at a scale that leaves its bound below the others' room.
    pub(super) fn set_scale(&mut self, scale: f64) {
        self.scale = scale;
        let output = self.output;
        let alone = self.values[output].uses == 1;
        for op in &mut self.ops {
            if let Op::Linear(l) = op {
                // Before a bias is added, values may be as large as it.
                let bias = l.map.bias.iter().fold(0.0f64, |m, b| m.max(b.abs()));
                let whole =
                    if alone && l.output == output { l.bound.max(bias).log2().ceil().max(0.0) } else { 0.0 };
                l.scale = scale * (-whole).exp2();
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
            Op::Multiply { output, .. } => self.values[*output].level + 1,
            Op::Add { .. } | Op::Bootstrap { .. } => 1,
        };
        self.ops.iter().map(of).max().unwrap_or(1)
    }

    /// Microseconds by the cost model, with this many special primes.
    pub(super) fn predicted_cost(&self, n: usize, special: usize, design: Option<&BootstrapDesign>) -> f64 {
        let at = LevelCost { n, level: self.width, special, digit: special };
        let of = |op: &Op| match op {
            Op::Bootstrap { input, .. } => {
                design.map_or(0.0, |d| self.values[*input].cts as f64 * at.bootstrap(d))
            }
            _ => self.op_cost(op, self.values[op.output()].level, at),
        };
        self.ops.iter().map(of).sum()
    }

    /// Microseconds of an operation whose result has a level; bootstraps left out. `at` is the cost at one level.
    pub(super) fn op_cost(&self, op: &Op, level: usize, at: LevelCost) -> f64 {
        let at = |level: usize| LevelCost { level: level * self.width, ..at };
        match op {
            Op::Linear(l) => at(level + 1).linear(&l.rotations.work(&l.folds), 0.0),
            Op::Polynomial { input, members, coefficients, .. } => {
                let depth = super::machine::depth(coefficients);
                let each = self.values[*input].cts as f64 / *members as f64;
                let switches = super::machine::switches(coefficients);
                switches as f64 * each * at(level + depth).relinearise()
            }
            Op::Multiply { output, .. } => self.values[*output].cts as f64 * at(level + 1).relinearise(),
            Op::Add { .. } | Op::Bootstrap { .. } => 0.0,
        }
    }
}

impl Circuit {
    /// Chooses ring degree, primes, layouts and methods.
    ///
    /// # Errors
    /// [`PackedError::Depth`] naming the layers and levels when no secure parameters hold the network;
    /// [`PackedError::Spec`] for options outside of their ranges.
    pub fn compile(net: &Network, options: &PackedOptions) -> Result<Self, PackedError> {
        let every = options.hide_weights.then(|| net.with_every_weight());
        Self::search(every.as_ref().unwrap_or(net), options)
    }

    fn search(net: &Network, options: &PackedOptions) -> Result<Self, PackedError> {
        if options.security != 128 && options.security != 0 {
            return Err(PackedError::Spec(format!("security {}: 128 or 0 (insecure)", options.security)));
        }
        let degrees: Vec<usize> =
            if options.ring_degree == 0 { DEGREES.to_vec() } else { vec![options.ring_degree] };
        let mut why = String::new();
        let without = options.bootstrap != Bootstrapping::Always;
        for &n in degrees.iter().filter(|_| without) {
            if !n.is_power_of_two() || !(64..=65536).contains(&n) {
                return Err(PackedError::Spec(format!(
                    "ring degree {n} is not a power of two from 64 to 65536"
                )));
            }
            let depth = super::levels::network_depth(net);
            let widths = if options.hide_weights { 2..=MAX_WIDTH } else { 1..=1 };
            for width in widths {
                let search = Search { net, options, n, width };
                let smallest = if width == 1 { SCALE_BITS.0 } else { SCALE_BITS.1 * (width as u32 - 1) };
                let least = (depth as u32) * smallest + search.first_bits(smallest);
                if options.security != 0 && least > max_modulus_bits(n).unwrap_or(0) {
                    why = format!("{depth} levels take {least} bits at least");
                    continue;
                }
                match search.choose() {
                    Ok((found, spent, key_price)) => return Self::new(net, options, found, spent, key_price),
                    Err(e) => why = e,
                }
            }
        }
        match bootstrapped(net, options) {
            Ok((found, spent, key_price)) => return Self::new(net, options, found, spent, key_price),
            Err(Some(e)) if without => why = format!("{why}; with bootstraps: {e}"),
            Err(Some(e)) => why = e,
            Err(None) => (),
        }
        let per_step = super::levels::network_levels(net);
        let layers = per_step.iter().map(|(name, l)| format!("'{name}' {l}")).collect::<Vec<_>>().join(", ");
        Err(PackedError::Depth {
            depth: super::levels::network_depth(net),
            layers,
            largest: degrees.last().copied().unwrap_or(0),
            bits: options.precision_bits,
            why,
        })
    }

    /// The circuit that a search found before, from what it chose.
    ///
    /// # Errors
    /// [`PackedError`] when the choices do not fit the network and the parameters.
    pub fn rebuild(
        net: &Network,
        options: &PackedOptions,
        params: &CkksParams,
        choices: Choices,
    ) -> Result<Self, PackedError> {
        let finite = |v: f64, least: f64| v.is_finite() && v >= least;
        let Choices { width, key_price, scale, ref bootstraps } = choices;
        if !(1..=MAX_WIDTH).contains(&width) || !finite(key_price, 0.0) || !finite(scale, 1.0) {
            return Err(PackedError::Spec(format!("no circuit has the choices {choices:?}")));
        }
        if let Some(given) = bootstraps {
            let search = Search { net, options, n: params.ring_degree(), width };
            let (found, spent) = search.rebuilt(params, (key_price, scale), given)?;
            return Self::new(net, options, found, spent, key_price);
        }
        let every = options.hide_weights.then(|| net.with_every_weight());
        let net = every.as_ref().unwrap_or(net);
        let n = params.ring_degree();
        let search = Search { net, options, n, width };
        let (mut program, _, spent) = plan(net, search.choice(key_price), 1.0)?;
        if (program.depth() + 1) * width != params.max_level().get() {
            let (needed, got) = ((program.depth() + 1) * width, params.max_level().get());
            return Err(PackedError::Spec(format!(
                "the network takes {needed} data primes, there are {got}"
            )));
        }
        program.set_scale(scale);
        let found = search.simulate(&program, params, None)?;
        Self::new(net, options, found, spent, key_price)
    }

    fn new(
        net: &Network,
        options: &PackedOptions,
        found: Found,
        spent: Vec<(String, usize)>,
        key_price: f64,
    ) -> Result<Self, PackedError> {
        let rotations: Vec<(i64, Level)> = found
            .rotations
            .iter()
            .map(|(s, l)| Ok((*s, found.params.level(*l)?)))
            .collect::<Result<_, CkksError>>()?;
        let interface = interface(net, &found, &rotations)?;
        let Found { program, params, counts, outcomes, words, bootstraps, .. } = found;
        let (bootstraps, design) = bootstraps.unzip();
        let mut circuit = Self {
            choices: Choices { width: program.width, key_price, scale: program.scale, bootstraps },
            design,
            program,
            params,
            options: options.clone(),
            counts,
            rotations,
            outcomes,
            spent,
            words,
            kept: Kept::default(),
            interface: Arc::new(interface),
        };
        circuit.kept = Kept::choose(&circuit);
        circuit.counts.encodings = circuit.kept.again;
        Ok(circuit)
    }

    /// What a client must know.
    #[must_use]
    pub fn interface(&self) -> &Arc<Interface> {
        &self.interface
    }

    /// What gives this circuit again.
    #[must_use]
    pub fn choices(&self) -> Choices {
        self.choices.clone()
    }

    /// Options that it was compiled with.
    #[must_use]
    pub fn options(&self) -> &PackedOptions {
        &self.options
    }

    /// What is predicted of the result of every operation.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The parameters' level for one of the program's.
    pub(super) fn level(&self, level: usize) -> Result<Level, CkksError> {
        self.params.level(level * self.program.width)
    }

    /// What a rescaling to a level of the program divides by.
    pub(super) fn step(&self, level: usize) -> f64 {
        let width = self.program.width;
        (level * width..(level + 1) * width).map(|i| self.params.data_prime(i) as f64).product()
    }
}
