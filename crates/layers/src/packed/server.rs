//! The server's half: encoded weights, evaluation.

use super::circuit::{LinearOp, Op, Slope};
use super::client::EvaluationKeys;
use super::compile::Circuit;
use super::cost::Counts;
use super::encode::{encode_bias, Weights};
use super::machine::{run, Machine};
use super::simulate::{no_bootstrap, Simulator};
use super::PackedError;
use hushnet_ring::clock::Instant;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::bootstrap::{BootstrapKeys, Bootstrapper, Encapsulation};
use hushnet_rlwe::ckks::{Ciphertext, Encoder, Evaluator, GaloisKeys, PlainRows, Plaintext, RelinKey};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// One linear operation's plaintexts.
struct Prepared {
    /// Per output ciphertext, those that are kept.
    rows: Vec<PlainRows>,
    bias: Vec<Plaintext>,
    /// Scale of the input, which the weights' scale completes.
    input_scale: f64,
}

/// References to the keys that an evaluation needs.
#[derive(Clone, Copy)]
pub struct KeyRefs<'a> {
    /// For products of ciphertexts.
    pub relinearise: &'a RelinKey,
    /// For rotations.
    pub rotations: &'a GaloisKeys,
    /// For bootstraps.
    pub encapsulation: Option<&'a Encapsulation>,
}

/// Time and figures of one step.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StepTrace {
    /// Name of the step.
    pub name: String,
    /// Seconds.
    pub seconds: f64,
    /// Level of the result.
    pub level: usize,
    /// log2 of its scale.
    pub scale_bits: f64,
    /// Error bound of the result that its ciphertexts carry, in its units.
    pub error_bound: f64,
}

/// What an evaluation measured: every step, and operations in all.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Trace {
    /// Per step.
    pub steps: Vec<StepTrace>,
    /// Operations, counted.
    pub counts: Counts,
}

/// Holds the weights, encoded for a circuit.
pub struct Server {
    circuit: Arc<Circuit>,
    encoder: Encoder,
    evaluator: Evaluator,
    prepared: BTreeMap<usize, Prepared>,
    bootstrapper: Option<Bootstrapper>,
}

impl Server {
    /// Encodes the biases, and once for all images the weights that the circuit has room for.
    ///
    /// # Errors
    /// [`PackedError::Ckks`] when a weight cannot be encoded.
    pub fn new(circuit: &Arc<Circuit>) -> Result<Self, PackedError> {
        let encoder = Encoder::new(circuit.params());
        let scales = input_scales(circuit)?;
        let mut prepared = BTreeMap::new();
        for (at, op) in circuit.program().ops.iter().enumerate() {
            let Op::Linear(linear) = op else { continue };
            let input_scale = scales[at];
            let bias = encode_bias(circuit, linear, output_scale(circuit, linear, input_scale), &encoder)?;
            let rows = (0..linear.rotations.outputs.len())
                .map(|ct| {
                    let sums = circuit.kept.kept(at, ct);
                    Weights::new(circuit, linear, (ct, &sums), input_scale).encoded(0..sums.len(), &encoder)
                })
                .collect::<Result<_, _>>()?;
            prepared.insert(at, Prepared { rows, bias, input_scale });
        }
        let bootstrapper = circuit.design().map(|d| Bootstrapper::new(d.params())).transpose()?;
        let evaluator = Evaluator::new(circuit.params());
        Ok(Self { circuit: circuit.clone(), encoder, evaluator, prepared, bootstrapper })
    }

    /// Bytes of the encoded weights held.
    #[must_use]
    pub fn plaintext_bytes(&self) -> u64 {
        self.prepared.values().flat_map(|p| &p.rows).map(|r| r.bytes() as u64).sum()
    }

    /// The circuit that this server evaluates.
    #[must_use]
    pub fn circuit(&self) -> &Arc<Circuit> {
        &self.circuit
    }

    /// [`Self::evaluate_only`], then re-randomised and flooded where the circuit hides weights.
    ///
    /// # Errors
    /// As [`Self::evaluate_only`]; [`PackedError::Message`] without the public key that hiding takes.
    pub fn evaluate(
        &self,
        uploads: Vec<Ciphertext>,
        keys: &EvaluationKeys,
        prg: &mut Prg,
    ) -> Result<(Vec<Ciphertext>, Trace), PackedError> {
        let refs = KeyRefs {
            relinearise: &keys.relinearise,
            rotations: &keys.rotations,
            encapsulation: keys.encapsulation.as_ref(),
        };
        let (mut answer, trace) = self.evaluate_only(uploads, refs, &mut |_| ControlFlow::Continue(()))?;
        if self.circuit.options.hide_weights {
            answer = self.hide(&answer, keys, prg)?;
        }
        Ok((answer, trace))
    }

    /// Evaluates the network on an image's ciphertexts, with the threads of the current pool. The result is not hidden. `progress` is told the
    /// number of operations done after each.
    ///
    /// # Errors
    /// [`PackedError::Message`] for a wrong number of ciphertexts, [`PackedError::Ckks`] for foreign or unfit ones,
    /// [`PackedError::Stopped`].
    pub fn evaluate_only(
        &self,
        uploads: Vec<Ciphertext>,
        keys: KeyRefs<'_>,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(Vec<Ciphertext>, Trace), PackedError> {
        let program = self.circuit.program();
        if uploads.len() != program.uploads.len() {
            return Err(PackedError::Message {
                what: "the image",
                expected: program.uploads.len(),
                got: uploads.len(),
            });
        }
        let mut worker = Worker {
            shared: Shared { server: self, keys },
            counts: Counts { encryptions: uploads.len(), ..Counts::default() },
            steps: Vec::new(),
            since: Instant::now(),
            progress,
        };
        let answer = run(&mut worker, program, uploads)?;
        worker.counts.decryptions = answer.len();
        let trace = Trace { steps: worker.steps, counts: worker.counts };
        Ok((answer, trace))
    }

    fn hide(
        &self,
        answer: &[Ciphertext],
        keys: &EvaluationKeys,
        prg: &mut Prg,
    ) -> Result<Vec<Ciphertext>, PackedError> {
        let Some(public) = &keys.public else {
            return Err(PackedError::Message { what: "the public key", expected: 1, got: 0 });
        };
        let bits = self.circuit.flood_bits();
        answer.iter().map(|c| Ok(public.hide(c, bits, prg)?)).collect()
    }
}

/// Scale of the result of a linear operation, as its rescaling leaves it.
fn output_scale(circuit: &Circuit, op: &LinearOp, input_scale: f64) -> f64 {
    let q = circuit.step(op.level - 1);
    let plain = op.scale * q / input_scale;
    input_scale * plain / q
}

/// The scale of every linear operation's input, by simulation.
fn input_scales(circuit: &Circuit) -> Result<Vec<f64>, PackedError> {
    let program = circuit.program();
    let mut simulator = Simulator::new(circuit.params(), program.width, circuit.design());
    let mut uploads = Vec::new();
    for u in &program.uploads {
        let value = &program.values[u.value];
        uploads.push(simulator.fresh(value.level, program.scale, (value.bound, value.usual)));
    }
    simulator.watch = Some(Vec::new());
    run(&mut simulator, program, uploads)?;
    let mut scales = vec![0.0; program.ops.len()];
    for (at, scale) in simulator.watch.unwrap_or_default() {
        scales[at] = scale;
    }
    Ok(scales)
}

/// What threads share.
#[derive(Clone, Copy)]
struct Shared<'a> {
    server: &'a Server,
    keys: KeyRefs<'a>,
}

struct Worker<'a, 'p> {
    shared: Shared<'a>,
    progress: &'p mut dyn FnMut(usize) -> ControlFlow<()>,
    counts: Counts,
    steps: Vec<StepTrace>,
    since: Instant,
}

impl Shared<'_> {
    fn output(
        &self,
        at: usize,
        op: &LinearOp,
        ct: usize,
        babies: &[&Ciphertext],
    ) -> Result<(Ciphertext, Counts), PackedError> {
        let mut counts = Counts::default();
        let evaluator = &self.server.evaluator;
        let prepared = &self.server.prepared[&at];
        let circuit = &self.server.circuit;
        let sums = &op.rotations.outputs[ct];
        counts.plain_products += sums.iter().map(|s| s.terms.len()).sum::<usize>();
        let mut terms: Vec<(usize, Ciphertext)> = Vec::with_capacity(sums.len());
        let kept = circuit.kept.kept(at, ct);
        if !kept.is_empty() {
            terms.extend(kept.into_iter().zip(evaluator.plain_sums(babies, &prepared.rows[ct])?));
        }
        let again = circuit.kept.again(at, ct);
        if !again.is_empty() {
            let weights = Weights::new(circuit, op, (ct, &again), prepared.input_scale);
            for (number, k) in again.iter().enumerate() {
                let rows = weights.encoded(number..number + 1, &self.server.encoder)?;
                counts.encodings += rows.terms();
                terms.extend(evaluator.plain_sums(babies, &rows)?.into_iter().map(|c| (*k, c)));
            }
        }
        terms.sort_by_key(|t| t.0);
        let terms: Vec<(i64, Ciphertext)> = terms.into_iter().map(|(k, c)| (sums[k].giant, c)).collect();
        counts.giant_rotations += terms.iter().filter(|t| t.0 != 0).count();
        let mut c = evaluator.rotate_sum_rescale(&terms, op.bound, self.keys.rotations)?;
        counts.rescalings += 1;
        for _ in 1..self.server.circuit.program().width {
            c = evaluator.rescale(&c)?;
            counts.rescalings += 1;
        }
        for &fold in &op.folds {
            let turned = evaluator.rotate(&c, fold, self.keys.rotations)?;
            counts.fold_rotations += 1;
            evaluator.add_assign(&mut c, &turned)?;
            c = c.with_bound(op.bound)?;
        }
        if let Some(bias) = prepared.bias.get(ct) {
            c = evaluator.add_plain(&c, bias)?;
        }
        Ok((c, counts))
    }
}

impl Worker<'_, '_> {
    fn evaluator(&self) -> &Evaluator {
        &self.shared.server.evaluator
    }

    /// The rotated inputs of a linear operation.
    fn babies(&mut self, op: &LinearOp, inputs: &[Ciphertext]) -> Result<Vec<Ciphertext>, PackedError> {
        let evaluator = self.evaluator().clone();
        let keys = self.shared.keys.rotations;
        let list = &op.rotations.inputs;
        let mut hoisted = BTreeMap::new();
        for (i, baby) in list {
            if *baby != 0 && !hoisted.contains_key(i) {
                hoisted.insert(*i, evaluator.hoist(&inputs[*i as usize])?);
                self.counts.hoists += 1;
            }
        }
        self.counts.hoisted_rotations += list.iter().filter(|x| x.1 != 0).count();
        list.par_iter()
            .map(|(i, baby)| {
                let c = &inputs[*i as usize];
                match hoisted.get(i) {
                    Some(digits) if *baby != 0 => {
                        let element = hushnet_rlwe::ckks::Galois::Rotate(*baby);
                        Ok(evaluator.apply_hoisted(c, digits, element, keys)?)
                    }
                    _ => Ok(c.clone()),
                }
            })
            .collect()
    }
}

impl Machine for Worker<'_, '_> {
    type C = Ciphertext;

    fn step(&self, level: usize) -> f64 {
        self.shared.server.circuit.step(level)
    }
    fn scale(&self, c: &Ciphertext) -> f64 {
        c.scale()
    }
    fn level(&self, c: &Ciphertext) -> usize {
        c.level().get() / self.shared.server.circuit.program().width
    }
    fn is_product(&self, c: &Ciphertext) -> bool {
        c.parts().len() == 3
    }
    fn bounded(&mut self, c: Ciphertext, bound: f64, _usual: f64) -> Result<Ciphertext, PackedError> {
        Ok(c.with_bound(bound)?)
    }
    fn drop_to(&mut self, c: &Ciphertext, level: usize) -> Result<Ciphertext, PackedError> {
        if self.level(c) == level {
            return Ok(c.clone());
        }
        Ok(self.evaluator().drop_to(c, self.shared.server.circuit.level(level)?)?)
    }
    fn add_constant(&mut self, c: &Ciphertext, v: f64) -> Result<Ciphertext, PackedError> {
        let w = self.shared.server.encoder.encode_scalar(v, c.level(), c.scale())?;
        Ok(self.evaluator().add_scalar(c, &w)?)
    }
    fn mul_constant(&mut self, c: &Ciphertext, v: f64, scale: f64) -> Result<Ciphertext, PackedError> {
        self.counts.constant_products += 1;
        let w = self.shared.server.encoder.encode_scalar(v, c.level(), scale)?;
        Ok(self.evaluator().mul_scalar(c, &w)?)
    }
    fn relabel(&mut self, c: Ciphertext, v: f64) -> Result<Ciphertext, PackedError> {
        let c = if v < 0.0 { self.evaluator().neg(&c)? } else { c };
        Ok(self.evaluator().relabel(c, v.abs())?)
    }
    fn add(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, PackedError> {
        Ok(self.evaluator().add(a, b)?)
    }
    fn square(&mut self, c: &Ciphertext) -> Result<Ciphertext, PackedError> {
        self.counts.ciphertext_products += 1;
        Ok(self.evaluator().square(c)?)
    }
    fn mul(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, PackedError> {
        self.counts.ciphertext_products += 1;
        Ok(self.evaluator().mul(a, b)?)
    }
    fn rescale(&mut self, c: &Ciphertext) -> Result<Ciphertext, PackedError> {
        let more = self.shared.server.circuit.program().width - 1;
        let mut out = if self.is_product(c) {
            self.counts.relinearisations += 1;
            self.evaluator().relinearise_rescale(c, self.shared.keys.relinearise)?
        } else {
            self.counts.rescalings += 1;
            self.evaluator().rescale(c)?
        };
        for _ in 0..more {
            self.counts.rescalings += 1;
            out = self.evaluator().rescale(&out)?;
        }
        Ok(out)
    }

    fn without_error(&mut self, c: &Ciphertext) -> Result<Ciphertext, PackedError> {
        Ok(c.clone().with_noise(0.0))
    }
    fn inherit(&mut self, c: Ciphertext, from: &Ciphertext, slope: Slope) -> Result<Ciphertext, PackedError> {
        let error = c.noise() + slope.bound * from.noise() * c.scale() / from.scale();
        Ok(c.with_noise(error))
    }

    fn bootstrap(&mut self, c: &Ciphertext) -> Result<Ciphertext, PackedError> {
        self.counts.bootstraps += 1;
        let Shared { server, keys } = self.shared;
        let bootstrapper = server.bootstrapper.as_ref().ok_or_else(no_bootstrap)?;
        let missing = PackedError::Message { what: "the bootstrapping keys", expected: 1, got: 0 };
        let encapsulation = keys.encapsulation.ok_or(missing)?;
        let keys = BootstrapKeys { relin: keys.relinearise, galois: keys.rotations, encapsulation };
        Ok(bootstrapper.apply(c, keys)?)
    }

    fn linear(
        &mut self,
        at: usize,
        op: &LinearOp,
        inputs: Vec<Ciphertext>,
    ) -> Result<Vec<Ciphertext>, PackedError> {
        let mut dropped = Vec::with_capacity(inputs.len());
        for c in inputs {
            dropped.push(if self.level(&c) == op.level { c } else { self.drop_to(&c, op.level)? });
        }
        let babies = self.babies(op, &dropped)?;
        let babies: Vec<&Ciphertext> = babies.iter().collect();
        let shared = self.shared;
        let count = op.rotations.outputs.len();
        let results = if shared.server.circuit.kept.whole(at) {
            let all = (0..count).into_par_iter().map(|ct| shared.output(at, op, ct, &babies));
            all.collect::<Result<Vec<_>, PackedError>>()?
        } else {
            // Plaintexts that are made again take the memory of one sum.
            (0..count).map(|ct| shared.output(at, op, ct, &babies)).collect::<Result<_, _>>()?
        };
        let mut out = Vec::with_capacity(results.len());
        for (c, counts) in results {
            self.counts.plain_products += counts.plain_products;
            self.counts.encodings += counts.encodings;
            self.counts.giant_rotations += counts.giant_rotations;
            self.counts.fold_rotations += counts.fold_rotations;
            self.counts.rescalings += counts.rescalings;
            out.push(c);
        }
        Ok(out)
    }

    fn done(&mut self, at: usize, outputs: &[Ciphertext]) -> Result<(), PackedError> {
        let op = &self.shared.server.circuit.program().ops[at];
        self.steps.push(StepTrace {
            name: op.name().to_owned(),
            seconds: self.since.elapsed().as_secs_f64(),
            level: self.level(&outputs[0]),
            scale_bits: outputs[0].scale().log2(),
            error_bound: outputs.iter().map(Ciphertext::error_bound).fold(0.0, f64::max),
        });
        self.since = Instant::now();
        match (self.progress)(at + 1) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(PackedError::Stopped),
        }
    }
}
