//! Running a circuit on ciphertexts.

use super::circuit::{Inner, Kind};
use super::pass::{self, Pass, Report, Step, Store, Task};
use super::{Circuit, CircuitError, Cost};
use hushnet_matmul::Scratch;
use hushnet_ring::clock::Instant;
use hushnet_ring::rns::{Eval, RnsPoly};
use hushnet_rlwe::ckks::{Ciphertext, Evaluator, RelinKey};
use rayon::prelude::*;
use std::ops::ControlFlow;

/// Time of a stage, summed over threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageTime {
    /// Seconds.
    pub seconds: f64,
}

/// What a run gives back.
pub struct Run {
    /// By output: one ciphertext a feature.
    pub outputs: Vec<Vec<Ciphertext>>,
    /// What was counted on the way; equals [`Circuit::cost`].
    pub counted: Cost,
    /// By stage.
    pub times: Vec<StageTime>,
}

impl Circuit {
    /// Computes the outputs from ciphertexts of the inputs (by input, one a feature, at the planned level and scale). Runs in the current
    /// rayon pool; `progress` hears the number of the step and of all steps, and may stop the run.
    ///
    /// # Errors
    /// [`CircuitError`]: ciphertexts that do not fit, a missing key, a circuit without weights, or stopped.
    pub fn run(
        &self,
        relin: Option<&RelinKey>,
        inputs: Vec<Vec<Ciphertext>>,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Run, CircuitError> {
        let inner = &*self.0;
        let Some(tracks) = &inner.tracks else {
            let bare = |k: &Kind| matches!(k, Kind::Linear(None) | Kind::Combine(None));
            let name = inner.stages.iter().find(|s| bare(&s.kind)).map_or("", |s| s.name.as_str());
            return Err(CircuitError::NoWeights(name.to_owned()));
        };
        let mut store = self.accept(inputs)?;
        let mut counted = Cost::default();
        let mut times = vec![StageTime::default(); inner.stages.len()];
        for (number, step) in inner.steps.iter().enumerate() {
            if progress(number, inner.steps.len()).is_break() {
                return Err(CircuitError::Stopped);
            }
            match step {
                Step::Pass(p) => run_pass(inner, p, &mut store, &mut counted, &mut times)?,
                Step::Whole { stage, .. } => {
                    run_whole(inner, *stage, relin, step.free(), &mut store, &mut counted, &mut times)?;
                }
            }
            for &t in step.free() {
                store[t] = None;
            }
        }
        let mut outputs = Vec::with_capacity(inner.outputs.len());
        for &t in &inner.outputs {
            let (tensor, sd) = (&inner.tensors[t], tracks[t].sd);
            let polys = store[t].clone().ok_or_else(|| missing(t))?;
            outputs.push(
                polys
                    .into_iter()
                    .map(|p| Ok(Ciphertext::from_parts(&inner.params, p, tensor.scale, tensor.bound, sd)?))
                    .collect::<Result<Vec<_>, CircuitError>>()?,
            );
        }
        Ok(Run { outputs, counted, times })
    }

    fn accept(&self, inputs: Vec<Vec<Ciphertext>>) -> Result<Store, CircuitError> {
        let inner = &*self.0;
        let mut store: Store = vec![None; inner.tensors.len()];
        if inputs.len() != inner.inputs.len() {
            let detail = format!("{} inputs, expected {}", inputs.len(), inner.inputs.len());
            return Err(CircuitError::Input { input: 0, detail });
        }
        for (number, (&t, ciphertexts)) in inner.inputs.iter().zip(inputs).enumerate() {
            let tensor = &inner.tensors[t];
            let fail = |detail: String| CircuitError::Input { input: number, detail };
            if ciphertexts.len() != tensor.elements {
                return Err(fail(format!(
                    "{} ciphertexts for {} features",
                    ciphertexts.len(),
                    tensor.elements
                )));
            }
            for c in &ciphertexts {
                let fits = *c.params() == inner.params
                    && c.level().get() == tensor.level
                    && c.parts().len() == 2
                    && (c.scale() / tensor.scale - 1.0).abs() < 1e-15;
                if !fits {
                    return Err(fail("a ciphertext of other parameters, level, parts or scale".into()));
                }
            }
            store[t] = Some(ciphertexts.into_iter().map(Ciphertext::into_parts).collect());
        }
        Ok(store)
    }
}

fn missing(tensor: usize) -> CircuitError {
    CircuitError::Tensor { tensor, detail: "not computed".into() }
}

fn run_pass(
    inner: &Inner,
    p: &Pass,
    store: &mut Store,
    counted: &mut Cost,
    times: &mut [super::StageTime],
) -> Result<(), CircuitError> {
    let n = inner.params.ring_degree();
    // One stripe a limb where limbs occupy all threads.
    let threads = rayon::current_num_threads();
    let stripes = if threads == 1 { 1 } else { (4 * threads).next_power_of_two().min(n / p.piece).max(1) };
    let mut results: Vec<Vec<Vec<RnsPoly<Eval>>>> = Vec::with_capacity(p.stored.len());
    for &t in &p.stored {
        let tensor = &inner.tensors[t];
        let range = inner.params.data_range(inner.params.level(tensor.level)?);
        let poly = || inner.params.basis().zero::<Eval>(range.clone());
        let element = || (0..tensor.parts).map(|_| poly()).collect::<Result<Vec<_>, _>>();
        results.push((0..tensor.elements).map(|_| element()).collect::<Result<Vec<_>, _>>()?);
    }
    let mut tasks: Vec<Task<'_>> = (0..p.level * stripes)
        .map(|i| {
            let start = i % stripes * (n / stripes);
            Task {
                limb: i / stripes,
                words: start..start + n / stripes,
                out: p.stored.iter().map(|_| Vec::new()).collect(),
            }
        })
        .collect();
    for (slot, tensor) in results.iter_mut().enumerate() {
        for poly in tensor.iter_mut().flatten() {
            for (i, words) in poly.words_mut().chunks_mut(n / stripes).enumerate() {
                tasks[i].out[slot].push(words);
            }
        }
    }
    let reports: Vec<Report> = {
        let store = &*store;
        tasks
            .into_par_iter()
            .map_init(Scratch::new, |scratch, task| pass::run(inner, p, store, task, scratch))
            .collect::<Result<_, _>>()?
    };
    for report in reports {
        *counted += report.cost;
        for (s, seconds) in p.stages.iter().zip(report.seconds) {
            times[*s].seconds += seconds;
        }
    }
    for s in &p.stages {
        let stage = &inner.stages[*s];
        let elements = inner.tensors[stage.output].elements as u64;
        match &stage.kind {
            Kind::Multiply => counted.products += elements,
            Kind::Combine(_) => counted.combined += elements * stage.inputs.len() as u64,
            _ => {}
        }
    }
    for (&t, result) in p.stored.iter().zip(results) {
        store[t] = Some(result);
    }
    Ok(())
}

/// One polynomial's worth of relinearisation or rescaling at a time, each freed when it is done if nobody reads it again.
fn run_whole(
    inner: &Inner,
    stage: usize,
    relin: Option<&RelinKey>,
    free: &[usize],
    store: &mut Store,
    counted: &mut Cost,
    times: &mut [super::StageTime],
) -> Result<(), CircuitError> {
    let s = &inner.stages[stage];
    let (t, out) = (s.inputs[0], &inner.tensors[s.output]);
    let input = &inner.tensors[t];
    let evaluator = Evaluator::new(&inner.params);
    let one = |parts: Vec<RnsPoly<Eval>>| -> Result<(Vec<RnsPoly<Eval>>, Cost, f64), CircuitError> {
        let start = Instant::now();
        let mut cost = Cost::default();
        // Errors are tracked by the circuit; here only polynomials matter.
        let mut c = Ciphertext::from_parts(&inner.params, parts, input.scale, input.bound, 0.0)?;
        if matches!(s.kind, Kind::Relinearise) {
            let key = relin.ok_or(CircuitError::NoKey)?;
            cost.relinearisations += 1;
            c = if out.level < input.level {
                cost.rescalings += 1;
                evaluator.relinearise_rescale(&c, key)?
            } else {
                evaluator.relinearise(&c, key)?
            };
        }
        while c.level().get() > out.level {
            cost.rescalings += 1;
            c = evaluator.rescale(&c)?;
        }
        Ok((c.into_parts(), cost, start.elapsed().as_secs_f64()))
    };
    let done = if free.contains(&t) {
        let polys = store[t].take().ok_or_else(|| missing(t))?;
        polys.into_par_iter().map(one).collect::<Result<Vec<_>, _>>()?
    } else {
        let polys = store[t].as_ref().ok_or_else(|| missing(t))?;
        polys.par_iter().map(|p| one(p.clone())).collect::<Result<Vec<_>, _>>()?
    };
    let mut result = Vec::with_capacity(done.len());
    for (parts, cost, seconds) in done {
        result.push(parts);
        *counted += cost;
        times[stage].seconds += seconds;
    }
    store[s.output] = Some(result);
    Ok(())
}
