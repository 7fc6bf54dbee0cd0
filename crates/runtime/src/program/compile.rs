//! From the operations of a plan to row programs, with the liveness of every tensor.

use super::values::Storage;
use crate::plan::{OpKind, Port, Stage, Tensor, TensorKind};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// How a stage is executed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StageProgram {
    Linear {
        /// The next stage's first segment consumes each output feature as it is decrypted.
        fused: bool,
        /// The output is kept (when not fused, or when needed later too).
        keep: bool,
        /// Tensors that nobody reads after this stage.
        free: Vec<usize>,
    },
    Client(Vec<Segment>),
}

/// Consecutive operations of a client stage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    pub kind: SegmentKind,
    /// Tensors that nobody reads after this segment.
    pub free: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SegmentKind {
    /// Elementwise operations, feature by feature: only what is read later is kept.
    Rows(RowProgram),
    /// One operation (index in the stage) on whole tensors.
    Whole(usize),
}

/// Elementwise operations in single-assignment form: every tensor has a register of one row's length.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RowProgram {
    pub features: usize,
    pub real_registers: usize,
    pub fixed_registers: usize,
    /// `(tensor, register)` read before.
    pub loads: Vec<(usize, Register)>,
    pub steps: Vec<Step>,
    /// `(tensor, register)` written after.
    pub stores: Vec<(usize, Register)>,
}

/// A row of reals, or of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    Real(usize),
    Fixed(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub kind: OpKind,
    pub inputs: Vec<Register>,
    pub output: Register,
    /// Tensor computed, for messages and observed ranges.
    pub tensor: usize,
    /// Scale and bound of the fixed tensor (operand of dequantize, result of quantize).
    pub fixed: Option<(f64, u64)>,
    /// Features of a channel, for `prelu` and `channel_scale`.
    pub channel: usize,
}

/// Whether feature i of the result depends on feature i of the operands only.
fn by_rows(kind: &OpKind) -> bool {
    !matches!(
        kind,
        OpKind::Softmax { .. }
            | OpKind::MaxPool { .. }
            | OpKind::AveragePool { .. }
            | OpKind::ReduceMean { .. }
            | OpKind::ReduceSum { .. }
            | OpKind::ReduceMax { .. }
            | OpKind::ReduceProd { .. }
            | OpKind::Matmul {}
            | OpKind::Interpolate { .. }
            | OpKind::TopK { .. }
            | OpKind::Gather { .. }
            | OpKind::Transpose { .. }
            | OpKind::Concat { .. }
            | OpKind::Slice { .. }
            | OpKind::Pad { .. }
            | OpKind::Broadcast {}
    )
}

/// Position of a segment (or of a linear stage, segment 0) in the order of execution.
type Time = (usize, usize);

/// Programs of all stages; `outputs` are never freed.
pub(crate) fn compile(tensors: &[Tensor], stages: &[Stage], outputs: &[Port]) -> Vec<StageProgram> {
    let groups: Vec<Vec<(usize, usize)>> = stages.iter().map(|s| group(tensors, s)).collect();
    let last = last_reads(stages, &groups, outputs, tensors.len());
    let mut free: HashMap<Time, Vec<usize>> = HashMap::new();
    for (tensor, time) in last.iter().enumerate() {
        if let Some(t) = time {
            free.entry(*t).or_default().push(tensor);
        }
    }
    let mut programs: Vec<StageProgram> = Vec::with_capacity(stages.len());
    for (s, stage) in stages.iter().enumerate() {
        programs.push(match stage {
            Stage::Linear(_) | Stage::Coefficients(_) => StageProgram::Linear {
                fused: false,
                keep: true,
                free: free.remove(&(s, 0)).unwrap_or_default(),
            },
            Stage::Client(client) => {
                let segments = groups[s].iter().enumerate().map(|(g, &(first, end))| {
                    let now = (s, g);
                    let whole = end == first + 1 && !by_rows(&client.ops[first].kind);
                    let kind = if whole {
                        SegmentKind::Whole(first)
                    } else {
                        let lives_on = |t: usize| last[t].is_none_or(|l| l > now);
                        SegmentKind::Rows(row_program(tensors, &client.ops[first..end], lives_on))
                    };
                    Segment { kind, free: free.remove(&now).unwrap_or_default() }
                });
                StageProgram::Client(segments.collect())
            }
        });
    }
    fuse(stages, &last, &mut programs);
    programs
}

/// Ranges of operations: maximal runs by rows with one number of features, single operations otherwise.
fn group(tensors: &[Tensor], stage: &Stage) -> Vec<(usize, usize)> {
    let Stage::Client(client) = stage else { return vec![(0, 0)] };
    let mut groups: Vec<(usize, usize)> = Vec::new();
    let mut open: Option<usize> = None;
    for (i, op) in client.ops.iter().enumerate() {
        let features = tensors[op.output].elements;
        match groups.last_mut() {
            Some(g) if by_rows(&op.kind) && open == Some(features) => g.1 = i + 1,
            _ => groups.push((i, i + 1)),
        }
        open = by_rows(&op.kind).then_some(features);
    }
    groups
}

/// When each tensor is read last; `None`: an output of the network. Tensors that nobody reads die where they are made.
fn last_reads(
    stages: &[Stage],
    groups: &[Vec<(usize, usize)>],
    outputs: &[Port],
    tensors: usize,
) -> Vec<Option<Time>> {
    let mut last = vec![Some((0, 0)); tensors];
    for (s, stage) in stages.iter().enumerate() {
        if let Some((input, output)) = stage.encrypted() {
            last[input] = Some((s, 0));
            last[output] = Some((s, 0));
        }
        match stage {
            Stage::Linear(_) | Stage::Coefficients(_) => {}
            Stage::Client(client) => {
                for (g, &(first, end)) in groups[s].iter().enumerate() {
                    for op in &client.ops[first..end] {
                        for &t in op.inputs.iter().chain([&op.output]) {
                            last[t] = Some((s, g));
                        }
                    }
                }
            }
        }
    }
    for port in outputs {
        last[port.tensor] = None;
    }
    last
}

fn row_program(tensors: &[Tensor], ops: &[crate::plan::Op], lives_on: impl Fn(usize) -> bool) -> RowProgram {
    let mut program = RowProgram { features: tensors[ops[0].output].elements, ..RowProgram::default() };
    let mut registers: HashMap<usize, Register> = HashMap::new();
    let mut made = Vec::new();
    for op in ops {
        for &t in &op.inputs {
            if let Entry::Vacant(free) = registers.entry(t) {
                let register = program.register(&tensors[t]);
                program.loads.push((t, *free.insert(register)));
            }
        }
        made.push(op.output);
        if matches!(op.kind, OpKind::Reshape {}) {
            registers.insert(op.output, registers[&op.inputs[0]]);
            continue;
        }
        let output = program.register(&tensors[op.output]);
        registers.insert(op.output, output);
        let fixed = |t: usize| match tensors[t].kind {
            TensorKind::Fixed { scale, bound } => Some((scale, bound)),
            TensorKind::Real => None,
        };
        let channels = tensors[op.output].shape.first().copied().unwrap_or(1);
        program.steps.push(Step {
            kind: op.kind.clone(),
            inputs: op.inputs.iter().map(|t| registers[t]).collect(),
            output,
            tensor: op.output,
            fixed: fixed(op.output).or_else(|| fixed(op.inputs[0])),
            channel: tensors[op.output].elements / channels,
        });
    }
    program.stores = made.into_iter().filter(|&t| lives_on(t)).map(|t| (t, registers[&t])).collect();
    program
}

impl RowProgram {
    fn register(&mut self, tensor: &Tensor) -> Register {
        let (count, wrap): (_, fn(usize) -> Register) = match tensor.kind {
            TensorKind::Real => (&mut self.real_registers, Register::Real),
            TensorKind::Fixed { .. } => (&mut self.fixed_registers, Register::Fixed),
        };
        *count += 1;
        wrap(*count - 1)
    }
}

/// Lets a client stage's first segment run on the outputs of the linear stage before it as they are decrypted.
fn fuse(stages: &[Stage], last: &[Option<Time>], programs: &mut [StageProgram]) {
    for s in 0..stages.len().saturating_sub(1) {
        let Some((_, output)) = stages[s].encrypted() else { continue };
        let StageProgram::Client(segments) = &programs[s + 1] else { continue };
        let consumes = segments.first().is_some_and(
            |g| matches!(&g.kind, SegmentKind::Rows(r) if r.loads.iter().any(|l| l.0 == output)),
        );
        if let (true, StageProgram::Linear { fused, keep, .. }) = (consumes, &mut programs[s]) {
            *fused = true;
            *keep = last[output].is_none_or(|l| l > (s + 1, 0));
        }
    }
}

/// Bytes of the tensors that are alive at once, at most, when `images` images are computed.
pub(crate) fn peak_bytes(
    tensors: &[Tensor],
    stages: &[Stage],
    programs: &[StageProgram],
    images: usize,
) -> u64 {
    let size = |t: usize| {
        (tensors[t].elements as u64).saturating_mul((Storage::of(&tensors[t]).bytes() * images) as u64)
    };
    let mut alive: HashSet<usize> = HashSet::new();
    // Sums of 2^64 sizes fit.
    let (mut sum, mut peak) = (0_u128, 0_u128);
    let mut step = |made: &[usize], free: &[&[usize]]| {
        sum += made.iter().filter(|t| alive.insert(**t)).map(|&t| u128::from(size(t))).sum::<u128>();
        peak = peak.max(sum);
        let gone = free.iter().flat_map(|f| f.iter()).filter(|t| alive.remove(t));
        sum -= gone.map(|&t| u128::from(size(t))).sum::<u128>();
    };
    let mut fused_from: Option<Vec<usize>> = None;
    for (stage, program) in stages.iter().zip(programs) {
        match (stage, program) {
            (Stage::Linear(_) | Stage::Coefficients(_), StageProgram::Linear { fused, keep, free }) => {
                let made: Vec<usize> =
                    stage.encrypted().filter(|_| *keep).map(|(_, output)| output).into_iter().collect();
                step(&made, &[if *fused { &[] } else { free }]);
                fused_from = fused.then(|| free.clone());
            }
            (Stage::Client(c), StageProgram::Client(segments)) => {
                for segment in segments {
                    let made: Vec<usize> = match &segment.kind {
                        SegmentKind::Rows(r) => r.stores.iter().map(|s| s.0).collect(),
                        SegmentKind::Whole(op) => {
                            let mut made = vec![c.ops[*op].output];
                            // A network input that is needed whole is copied.
                            made.extend(&c.ops[*op].inputs);
                            made
                        }
                    };
                    step(&made, &[&segment.free, &fused_from.take().unwrap_or_default()]);
                }
            }
            _ => {}
        }
    }
    u64::try_from(peak).unwrap_or(u64::MAX)
}
