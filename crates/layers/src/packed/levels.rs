//! Levels: how many every step spends, and where every value stands.

use super::circuit::{Op, Program};
use super::machine::{depth, meets_scale};
use super::spec::{Network, Step};

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
        };
        for i in step.inputs() {
            need[i] = need[i].max(out + spent);
        }
    }
    need
}

/// Levels of all values, from the output (level 1) back; what nothing reads keeps 0.
pub(super) fn assign_levels(program: &mut Program) -> Vec<(String, usize)> {
    let exact: Vec<bool> = {
        let mut exact = vec![true; program.values.len()];
        for op in &program.ops {
            if let Op::Polynomial { output, coefficients, .. } = op {
                exact[*output] = meets_scale(coefficients);
            }
        }
        exact
    };
    program.values[program.output].level = 1;
    let mut spent = Vec::new();
    for op in program.ops.iter().rev() {
        let out = program.values[op.output()].level;
        for input in op.inputs() {
            let cost = match op {
                Op::Linear(_) => 1,
                Op::Polynomial { coefficients, .. } => depth(coefficients),
                Op::Add { .. } => usize::from(!exact[input]),
            };
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
            };
            (after > 0 && after + spent == need[tensor]).then_some((s, spent))
        });
        let Some((s, spent)) = on_path else { break };
        out.push((net.names[s].clone(), spent));
        tensor = net.steps[s].output();
    }
    out
}
