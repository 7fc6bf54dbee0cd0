//! Pointwise passes: which stages run together, and how they run on a few words at a time.

use super::circuit::{Inner, Kind, Linear, Stage};
use super::linear::{cut_products, products, starts};
use super::{CircuitError, Cost, TensorSpec};
use crate::batch::Geometry;
use hushnet_matmul::{Cut, Scratch, Starts};
use hushnet_ring::clock::Instant;
use hushnet_ring::rns::{Eval, RnsPoly};
use hushnet_ring::Isa;
use hushnet_rlwe::ckks::CkksParams;
use std::ops::Range;

/// Bytes of everything between the stages of a pass, for one piece of words: a second-level cache or two.
const PIECE_BYTES: usize = 5 << 19;
/// The same without AVX-512, where kernels work on narrower pieces and processors have smaller caches.
const NARROW_PIECE_BYTES: usize = 5 << 17;
/// Words of a piece: least (what kernels like; without AVX-512) and most.
const PIECE: ([usize; 2], usize) = ([32, 16], 512);
/// Bytes of stored inputs that are cut at once: rows of stored polynomials lie far apart, so that whole pages of them are read.
const CUT_BYTES: usize = 1 << 21;

/// What runs at once.
pub(super) enum Step {
    /// Pointwise stages.
    Pass(Pass),
    /// Relinearisation or rescaling of whole polynomials.
    Whole {
        /// The stage.
        stage: usize,
        /// Tensors that nobody reads afterwards.
        free: Vec<usize>,
    },
}

impl Step {
    pub(super) fn free(&self) -> &[usize] {
        match self {
            Self::Pass(p) => &p.free,
            Self::Whole { free, .. } => free,
        }
    }
}

/// Stages that are pointwise in the words.
pub(super) struct Pass {
    pub(super) stages: Vec<usize>,
    /// Results that later steps or the client read.
    pub(super) stored: Vec<usize>,
    pub(super) free: Vec<usize>,
    /// Highest level of a result.
    pub(super) level: usize,
    /// Words at a time.
    pub(super) piece: usize,
}

fn is_pointwise(stage: &Stage) -> bool {
    matches!(stage.kind, Kind::Linear(_) | Kind::Multiply | Kind::Combine(_))
}

/// Groups stages into steps.
pub(super) fn steps(
    params: &CkksParams,
    tensors: &[TensorSpec],
    outputs: &[usize],
    stages: &[Stage],
) -> Vec<Step> {
    let mut groups: Vec<(bool, Vec<usize>)> = Vec::new();
    for (i, stage) in stages.iter().enumerate() {
        match groups.last_mut() {
            Some((true, group)) if is_pointwise(stage) => group.push(i),
            _ => groups.push((is_pointwise(stage), vec![i])),
        }
    }
    // The step after which a tensor is not read any more.
    let mut last = vec![None; tensors.len()];
    for (number, (_, group)) in groups.iter().enumerate() {
        for t in group.iter().flat_map(|s| &stages[*s].inputs) {
            last[*t] = Some(number);
        }
    }
    let after = |t: usize, number: usize| outputs.contains(&t) || last[t].is_some_and(|l| l > number);
    let mut steps = Vec::with_capacity(groups.len());
    for (number, (pointwise, group)) in groups.iter().enumerate() {
        let mut free: Vec<usize> = (0..tensors.len())
            .filter(|t| last[*t] == Some(number) && !outputs.contains(t))
            .filter(|t| group.iter().all(|s| stages[*s].output != *t))
            .collect();
        if !pointwise {
            if !after(stages[group[0]].output, number) {
                free.push(stages[group[0]].output);
            }
            steps.push(Step::Whole { stage: group[0], free });
            continue;
        }
        let results: Vec<usize> = group.iter().map(|s| stages[*s].output).collect();
        let words: usize = results.iter().map(|t| tensors[*t].elements * tensors[*t].parts).sum();
        let narrow = params.basis().isa() < Isa::Avx512;
        let bytes = if narrow { NARROW_PIECE_BYTES } else { PIECE_BYTES };
        let piece = (bytes / 8 / words.max(1)).clamp(PIECE.0[usize::from(narrow)], PIECE.1);
        // A power of two, so that pieces fill a limb.
        let piece = (1usize << piece.ilog2()).min(params.ring_degree());
        let level = results.iter().map(|t| tensors[*t].level).max().unwrap_or(0);
        let stored = results.into_iter().filter(|t| after(*t, number)).collect();
        steps.push(Step::Pass(Pass { stages: group.clone(), stored, free, level, piece }));
    }
    steps
}

/// Bytes of the polynomials of a tensor.
fn tensor_bytes(params: &CkksParams, t: &TensorSpec) -> u64 {
    (t.elements * t.parts * t.level) as u64 * params.ring_degree() as u64 * 8
}

/// Most bytes of stored tensors at once.
pub(super) fn peak_bytes(inner: &Inner) -> u64 {
    let bytes = |t: &usize| tensor_bytes(&inner.params, &inner.tensors[*t]);
    let mut now: u64 = inner.inputs.iter().map(bytes).sum();
    let mut peak = now;
    for step in &inner.steps {
        match step {
            Step::Pass(p) => now += p.stored.iter().map(bytes).sum::<u64>(),
            Step::Whole { stage, .. } => now += bytes(&inner.stages[*stage].output),
        }
        peak = peak.max(now);
        now = now.saturating_sub(step.free().iter().map(bytes).sum());
    }
    peak
}

/// Stored tensors: by tensor, element, part.
pub(super) type Store = Vec<Option<Vec<Vec<RnsPoly<Eval>>>>>;

/// A stripe of words of one limb, with the places of the stored results.
pub(super) struct Task<'a> {
    /// Data prime.
    pub(super) limb: usize,
    /// Words.
    pub(super) words: Range<usize>,
    /// By stored tensor (as in [`Pass::stored`]), element and part.
    pub(super) out: Vec<Vec<&'a mut [u64]>>,
}

/// What a task did.
#[derive(Default)]
pub(super) struct Report {
    pub(super) cost: Cost,
    /// Seconds of every stage of the pass.
    pub(super) seconds: Vec<f64>,
}

/// Where the rows of tensors are, for one piece.
struct View<'a> {
    inner: &'a Inner,
    store: &'a Store,
    /// By stage of the pass.
    local: &'a [Vec<u64>],
    /// Stage of the pass that computes a tensor.
    place: &'a [Option<usize>],
    limb: usize,
    at: usize,
    count: usize,
}

impl<'a> View<'a> {
    fn elements(&self, t: usize) -> usize {
        self.inner.tensors[t].elements
    }

    /// All rows of a part, one behind the other, where they are.
    fn whole(&self, t: usize, part: usize) -> Option<&'a [u64]> {
        let n = self.elements(t) * self.count;
        self.place[t].map(|s| &self.local[s][part * n..(part + 1) * n])
    }

    /// Words `words` of a stored tensor.
    fn stored(
        &self,
        t: usize,
        part: usize,
        element: usize,
        words: Range<usize>,
    ) -> Result<&'a [u64], CircuitError> {
        let missing = || CircuitError::Tensor { tensor: t, detail: "not computed".into() };
        let tensor = self.store[t].as_ref().ok_or_else(missing)?;
        Ok(&tensor[element][part].limb(self.limb)[words])
    }

    fn row(&self, t: usize, part: usize, element: usize) -> Result<&'a [u64], CircuitError> {
        if let Some(whole) = self.whole(t, part) {
            return Ok(&whole[element * self.count..(element + 1) * self.count]);
        }
        self.stored(t, part, element, self.at..self.at + self.count)
    }

    /// Cuts the inputs of a linear stage: what is stored for many pieces at once, what the pass computed for this one. Returns where this
    /// piece begins in the cut.
    fn cut(
        &self,
        layer: &Linear,
        (t, part): (usize, usize),
        end: usize,
        cut: &mut Chunk,
    ) -> Result<usize, CircuitError> {
        if cut.words.contains(&self.at) && self.place[t].is_none() {
            return Ok(self.at - cut.words.start);
        }
        if self.place[t].is_some() {
            let rows = (0..self.elements(t)).map(|e| self.row(t, part, e));
            cut.words = self.at..self.at + self.count;
            layer.cut(&rows.collect::<Result<Vec<_>, _>>()?, &mut cut.groups)?;
            return Ok(0);
        }
        let most = (CUT_BYTES / 8 / self.elements(t)).clamp(self.count, PIECE.1) / self.count * self.count;
        cut.words = self.at..(self.at + most).min(end);
        let rows = (0..self.elements(t)).map(|e| self.stored(t, part, e, cut.words.clone()));
        layer.cut(&rows.collect::<Result<Vec<_>, _>>()?, &mut cut.groups)?;
        Ok(0)
    }
}

/// Cut inputs of one part, and what its outputs begin with, by group.
#[derive(Default)]
struct Chunk {
    groups: Vec<Cut>,
    words: Range<usize>,
    starts: Option<Vec<Starts>>,
}

/// Working memory of a stage.
struct Work<'a> {
    scratch: &'a mut Scratch,
    /// By part.
    chunks: &'a mut Vec<Chunk>,
    /// End of the words of the task.
    end: usize,
}

/// Biases and factors modulo one prime.
enum Residues {
    Bias(Vec<u64>),
    Factors(Vec<u64>, u64),
    None,
}

/// Runs all stages of a pass on one stripe, piece by piece.
pub(super) fn run(
    inner: &Inner,
    pass: &Pass,
    store: &Store,
    mut task: Task<'_>,
    scratch: &mut Scratch,
) -> Result<Report, CircuitError> {
    let prime = inner.params.data_range(inner.params.max_level()).start + task.limb;
    let modulus = inner.params.basis().moduli()[prime];
    let residues: Vec<Residues> = pass
        .stages
        .iter()
        .map(|s| match &inner.stages[*s].kind {
            Kind::Linear(Some(l)) => Residues::Bias(l.bias.iter().map(|b| b.residue(&modulus)).collect()),
            Kind::Combine(Some((factors, constant))) => Residues::Factors(
                factors.iter().map(|k| modulus.residue(i128::from(*k))).collect(),
                constant.residue(&modulus),
            ),
            _ => Residues::None,
        })
        .collect();
    let mut place = vec![None; inner.tensors.len()];
    for (slot, s) in pass.stages.iter().enumerate() {
        place[inner.stages[*s].output] = Some(slot);
    }
    let mut local: Vec<Vec<u64>> = pass.stages.iter().map(|_| Vec::new()).collect();
    let mut chunks: Vec<Vec<Chunk>> = pass.stages.iter().map(|_| Vec::new()).collect();
    let mut report = Report { seconds: vec![0.0; pass.stages.len()], ..Report::default() };
    for at in task.words.clone().step_by(pass.piece) {
        let count = pass.piece.min(task.words.end - at);
        for (slot, s) in pass.stages.iter().enumerate() {
            let stage = &inner.stages[*s];
            let out = &inner.tensors[stage.output];
            if task.limb >= out.level {
                continue;
            }
            let start = Instant::now();
            let mut buffer = std::mem::take(&mut local[slot]);
            buffer.resize(out.elements * out.parts * count, 0);
            let view = View { inner, store, local: &local, place: &place, limb: prime, at, count };
            let mut work = Work { scratch, chunks: &mut chunks[slot], end: task.words.end };
            report.cost += stage_piece(&view, stage, prime, &residues[slot], &mut buffer, &mut work)?;
            local[slot] = buffer;
            report.seconds[slot] += start.elapsed().as_secs_f64();
        }
        let offset = at - task.words.start;
        for (&t, rows) in pass.stored.iter().zip(&mut task.out) {
            let (Some(slot), parts, elements) = (place[t], inner.tensors[t].parts, inner.tensors[t].elements)
            else {
                continue;
            };
            for (i, row) in rows.iter_mut().enumerate() {
                let from = (i % parts * elements + i / parts) * count;
                row[offset..offset + count].copy_from_slice(&local[slot][from..from + count]);
            }
        }
    }
    Ok(report)
}

fn stage_piece(
    view: &View<'_>,
    stage: &Stage,
    prime: usize,
    residues: &Residues,
    out: &mut [u64],
    work: &mut Work<'_>,
) -> Result<Cost, CircuitError> {
    let no_weights = || CircuitError::NoWeights(stage.name.clone());
    match (&stage.kind, residues) {
        (Kind::Linear(Some(l)), Residues::Bias(bias)) => {
            let t = stage.inputs[0];
            let parts = view.inner.tensors[t].parts;
            let size = out.len() / parts;
            let mut word_products = 0;
            for (part, out) in out.chunks_mut(size).enumerate() {
                let bias = if part == 0 { bias.as_slice() } else { &[] };
                let one = view.inner.one.as_ref().map(|one| &one.limb(prime)[view.at..view.at + view.count]);
                let added = if one.is_some() { &[] } else { bias };
                word_products += linear(view, l, (t, part), added, out, work)?;
                view.inner.params.basis().residues_of_wrapped(out, l.sum_bits, prime)?;
                if let Some(one) = one {
                    add_complex(view, prime, (bias, one), out)?;
                }
            }
            Ok(Cost { word_products, ..Cost::default() })
        }
        (Kind::Multiply, _) => multiply(view, stage, prime, out).map(|()| Cost::default()),
        (Kind::Combine(Some(_)), Residues::Factors(factors, constant)) => {
            combine(view, stage, prime, (factors, *constant), out).map(|()| Cost::default())
        }
        _ => Err(no_weights()),
    }
}

/// Adds biases, as multiples of `1 + i`, by channel or by element.
fn add_complex(
    view: &View<'_>,
    prime: usize,
    (bias, one): (&[u64], &[u64]),
    out: &mut [u64],
) -> Result<(), CircuitError> {
    if bias.is_empty() {
        return Ok(());
    }
    let mut row = vec![0; view.count];
    let channel = out.len() / view.count / bias.len();
    for (e, out) in out.chunks_mut(view.count).enumerate() {
        row.copy_from_slice(out);
        view.inner.params.basis().combine_words(prime, out, &[&row, one], &[1, bias[e / channel]], 0)?;
    }
    Ok(())
}

/// Integer products of one part; counts those with rows that are there.
fn linear(
    view: &View<'_>,
    layer: &Linear,
    (t, part): (usize, usize),
    bias: &[u64],
    out: &mut [u64],
    work: &mut Work<'_>,
) -> Result<u64, CircuitError> {
    // A dense layer reads what the pass computed once, so that cutting it beforehand gains nothing.
    let once = view.place[t].is_some() && matches!(layer.geometry, Geometry::Dense(_));
    if layer.reads_cuts() && !once {
        work.chunks.resize_with(work.chunks.len().max(part + 1), Chunk::default);
        let chunk = &mut work.chunks[part];
        let from = view.cut(layer, (t, part), work.end, chunk)?;
        let starts = match &mut chunk.starts {
            Some(starts) => starts,
            none => none.insert(starts(layer, bias)?),
        };
        return cut_products(layer, (&chunk.groups, from), starts, out);
    }
    let rows: Vec<&[u64]> = match view.whole(t, part) {
        Some(whole) => whole.chunks(view.count).collect(),
        None => (0..view.elements(t)).map(|e| view.row(t, part, e)).collect::<Result<_, _>>()?,
    };
    products(layer, &rows, bias, view.count, out, work.scratch)
}

/// The three parts of a result.
fn thirds(out: &mut [u64]) -> [&mut [u64]; 3] {
    let size = out.len() / 3;
    let (first, rest) = out.split_at_mut(size);
    let (second, third) = rest.split_at_mut(size);
    [first, second, third]
}

fn multiply(view: &View<'_>, stage: &Stage, prime: usize, out: &mut [u64]) -> Result<(), CircuitError> {
    let basis = view.inner.params.basis();
    let (a, b) = (stage.inputs[0], stage.inputs[1]);
    let run = |out: [&mut [u64]; 3], x: [&[u64]; 2], y: [&[u64]; 2]| {
        if a == b {
            basis.square_words(prime, out, x)
        } else {
            basis.tensor_words(prime, out, x, y)
        }
    };
    if let (Some(a0), Some(a1), Some(b0), Some(b1)) =
        (view.whole(a, 0), view.whole(a, 1), view.whole(b, 0), view.whole(b, 1))
    {
        return Ok(run(thirds(out), [a0, a1], [b0, b1])?);
    }
    let [o0, o1, o2] = thirds(out);
    let rows = o0.chunks_mut(view.count).zip(o1.chunks_mut(view.count)).zip(o2.chunks_mut(view.count));
    for (e, ((o0, o1), o2)) in rows.enumerate() {
        let x = [view.row(a, 0, e)?, view.row(a, 1, e)?];
        let y = [view.row(b, 0, e)?, view.row(b, 1, e)?];
        run([o0, o1, o2], x, y)?;
    }
    Ok(())
}

fn combine(
    view: &View<'_>,
    stage: &Stage,
    prime: usize,
    (factors, constant): (&[u64], u64),
    out: &mut [u64],
) -> Result<(), CircuitError> {
    let basis = view.inner.params.basis();
    let parts = view.inner.tensors[stage.output].parts;
    let size = out.len() / parts;
    for (part, out) in out.chunks_mut(size).enumerate() {
        let has = |t: usize| view.inner.tensors[t].parts > part;
        let (inputs, words): (Vec<usize>, Vec<u64>) =
            stage.inputs.iter().zip(factors).filter(|(t, _)| has(**t)).map(|(t, k)| (*t, *k)).unzip();
        let constant = if part == 0 { constant } else { 0 };
        for (e, out) in out.chunks_mut(view.count).enumerate() {
            let mut rows = inputs.iter().map(|t| view.row(*t, part, e)).collect::<Result<Vec<_>, _>>()?;
            match &view.inner.one {
                Some(one) => {
                    rows.push(&one.limb(prime)[view.at..view.at + view.count]);
                    let words = [&words[..], &[constant]].concat();
                    basis.combine_words(prime, out, &rows, &words, 0)?;
                }
                None => basis.combine_words(prime, out, &rows, &words, constant)?,
            }
        }
    }
    Ok(())
}
