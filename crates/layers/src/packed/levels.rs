//! Levels: how many every step spends, and where every value stands.

use super::circuit::{Op, Program};
use super::machine::{depth, meets_scale};
use super::spec::{horner, Network, Step};

/// Levels above the output that every tensor needs; what no output needs has none.
pub(super) fn levels(net: &Network) -> Vec<usize> {
    let mut need = vec![0; net.tensors.len()];
    need[net.output] = 1;
    for step in net.steps.iter().rev() {
        let out = need[step.output()];
        if out == 0 {
            continue;
        }
        let spent = match step {
            Step::Linear { .. } => 1,
            Step::Polynomial { coefficients, .. } => depth(coefficients),
            Step::Add { .. } => 0,
            Step::Multiply { .. } => 1,
        };
        for i in step.inputs() {
            need[i] = need[i].max(out + spent);
        }
    }
    need
}

/// Whether every value has the program's scale.
pub(super) fn exact(program: &Program) -> Vec<bool> {
    let mut exact = vec![true; program.values.len()];
    for op in &program.ops {
        match op {
            Op::Polynomial { output, coefficients, .. } => exact[*output] = meets_scale(coefficients),
            // The second factor is made at the scale that the product needs, if its polynomial can.
            Op::Multiply { inputs, output, .. } => {
                let made = program.ops.iter().find(|op| op.output() == inputs[1]);
                exact[*output] = exact[inputs[1]] && matches!(made, Some(Op::Polynomial { .. }));
            }
            _ => (),
        }
    }
    exact
}

/// Levels between an operation's result and one of its inputs.
pub(super) fn spends(op: &Op, input: usize, exact: &[bool]) -> usize {
    match op {
        Op::Linear(_) | Op::Multiply { .. } => 1,
        Op::Polynomial { coefficients, .. } => depth(coefficients),
        Op::Add { .. } => usize::from(!exact[input]),
        Op::Bootstrap { .. } => 0,
    }
}

/// What stands in slots of no element, of all values.
pub(super) fn idle(program: &mut Program) {
    for op in &program.ops {
        let of = |v: usize| program.values[v].idle;
        let idle = match op {
            Op::Linear(_) => 0.0,
            Op::Polynomial { input, members, coefficients, .. } => {
                *members as f64 * horner(coefficients, of(*input))
            }
            Op::Add { inputs, .. } => of(inputs[0]) + of(inputs[1]),
            Op::Multiply { inputs, constant, .. } => of(inputs[0]) * of(inputs[1]) + constant,
            Op::Bootstrap { input, .. } => of(*input),
        };
        program.values[op.output()].idle = if idle.is_nan() { f64::INFINITY } else { idle };
    }
}

/// Levels of all values, from the output back, and how often each is read; what nothing reads keeps level 0.
/// `entry` is the level that bootstraps take.
pub(super) fn assign_levels(
    program: &mut Program,
    output_level: usize,
    entry: usize,
) -> Vec<(String, usize)> {
    let exact = exact(program);
    program.values.iter_mut().for_each(|v| (v.level, v.uses) = (0, 0));
    program.values[program.output].level = output_level;
    program.values[program.output].uses = 1;
    let mut spent = Vec::new();
    for op in program.ops.iter().rev() {
        let out = match op {
            Op::Bootstrap { .. } => entry,
            _ => program.values[op.output()].level,
        };
        for input in op.inputs() {
            let cost = spends(op, input, &exact);
            spent.push((op.name().to_owned(), cost));
            let v = &mut program.values[input];
            v.level = v.level.max(out + cost);
            v.uses += 1;
        }
    }
    spent.reverse();
    for op in &mut program.ops {
        if let Op::Linear(l) = op {
            let out = &program.values[l.output];
            (l.level, l.bound, l.usual, l.scale) = (out.level + 1, out.bound, out.usual, program.scale);
        }
    }
    spent
}

/// Levels that the longest path of a program spends, bootstraps or not.
#[must_use]
pub(super) fn longest(program: &Program) -> usize {
    let exact = exact(program);
    let mut spent = vec![0; program.values.len()];
    for op in &program.ops {
        let of = |input: usize| spent[input] + spends(op, input, &exact);
        spent[op.output()] = op.inputs().into_iter().map(of).max().unwrap_or(0);
    }
    spent[program.output]
}

/// Levels of the longest path of a network.
#[must_use]
pub(super) fn network_depth(net: &Network) -> usize {
    levels(net)[net.input].saturating_sub(1)
}

/// Steps on the longest path and the levels that each spends.
#[must_use]
pub(super) fn network_levels(net: &Network) -> Vec<(String, usize)> {
    let need = levels(net);
    let mut tensor = net.input;
    let mut out = Vec::new();
    while tensor != net.output {
        let on_path = net.consumers(tensor).into_iter().find_map(|s| {
            let after = need[net.steps[s].output()];
            let spent = match &net.steps[s] {
                Step::Linear { .. } => 1,
                Step::Polynomial { coefficients, .. } => depth(coefficients),
                Step::Add { .. } => 0,
                Step::Multiply { .. } => 1,
            };
            (after > 0 && after + spent == need[tensor]).then_some((s, spent))
        });
        let Some((s, spent)) = on_path else { break };
        out.push((net.names[s].clone(), spent));
        tensor = net.steps[s].output();
    }
    out
}
