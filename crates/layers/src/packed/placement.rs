//! Where a program is bootstrapped: the cheapest set of values whose bootstraps leave every value the levels that it needs.
//!
//! From the output back, every value that is read by operations seen so far has a level that it must have. An operation passes its result's level,
//! and what it spends, on to its inputs; of two readers the higher level counts (joins). Before its own operation is passed, a value may be
//! bootstrapped, if the level that it must have is one that bootstraps leave; it must then have [`Limits::entry`] only. What the client sends has at
//! most the level of fresh encryptions. A state is the levels of all values that are read and not yet written. The states of least cost are kept, and of
//! two of which one needs no level more and costs no more, that one: a shortest path over (values x levels), exact up to [`STATES`].

use super::circuit::{Op, Program, Value};
use super::levels::{exact, spends};
use std::collections::HashMap;

/// States that are kept.
const STATES: usize = 1024;

/// What levels there are, and what bootstraps cost.
pub(super) struct Limits {
    /// Highest level that the client sends.
    pub(super) sent: usize,
    /// Level that a bootstrap leaves.
    pub(super) fresh: usize,
    /// Level that a value must have to be bootstrapped.
    pub(super) entry: usize,
    /// Level of the output.
    pub(super) output: usize,
    /// Cost of bootstrapping a ciphertext.
    pub(super) bootstrap: f64,
}

/// A decision, and those behind it.
struct Node {
    value: usize,
    before: Option<usize>,
}

#[derive(Clone)]
struct Reached {
    cost: f64,
    /// Last decision.
    last: Option<usize>,
}

/// Needed levels by live value, 0 for values that are not live.
type Needs = Vec<u8>;

/// The values to bootstrap, increasing; the operation whose inputs cannot have the levels that they need where there is no such set.
/// `cost` is that of an operation whose result has a level.
pub(super) fn place(
    program: &Program,
    limits: &Limits,
    cost: impl Fn(&Op, usize) -> f64,
) -> Result<Vec<usize>, String> {
    let exact = exact(program);
    let sent: Vec<bool> = {
        let mut sent = vec![false; program.values.len()];
        program.uploads.iter().for_each(|u| sent[u.value] = true);
        sent
    };
    // A second factor has the scale that its product needs, which bootstraps do not leave.
    let mut factor = vec![false; program.values.len()];
    for op in &program.ops {
        if let Op::Multiply { inputs, .. } = op {
            factor[inputs[1]] = true;
        }
    }
    let mut nodes: Vec<Node> = Vec::new();
    let mut start = vec![0u8; program.values.len()];
    start[program.output] = limits.output as u8;
    let mut states = vec![(start, Reached { cost: 0.0, last: None })];
    for op in program.ops.iter().rev() {
        let value = op.output();
        let mut next: HashMap<Needs, Reached> = HashMap::new();
        let mut add = |needs: &Needs, state: &Reached, level: usize, last: Option<usize>, more: f64| {
            let mut needs = needs.clone();
            needs[value] = 0;
            for input in op.inputs() {
                let needed = level + spends(op, input, &exact);
                // Levels come from bootstraps or from the client.
                if needed > limits.sent.max(limits.fresh) {
                    return;
                }
                needs[input] = needs[input].max(needed as u8);
            }
            let cost = state.cost + more + cost(op, level);
            let known = next.entry(needs).or_insert(Reached { cost: f64::INFINITY, last: None });
            if cost < known.cost {
                *known = Reached { cost, last };
            }
        };
        for (needs, state) in &states {
            let level = usize::from(needs[value]);
            if level == 0 {
                // Nothing reads it.
                add(needs, state, 0, state.last, 0.0);
                continue;
            }
            add(needs, state, level, state.last, 0.0);
            if level > limits.entry && level <= limits.fresh && value != program.output && !factor[value] {
                nodes.push(Node { value, before: state.last });
                let price = limits.bootstrap * program.values[value].cts as f64;
                add(needs, state, limits.entry, Some(nodes.len() - 1), price);
            }
        }
        if next.is_empty() {
            return Err(op.name().to_owned());
        }
        states = kept(next);
    }
    let fits = |needs: &Needs| {
        needs.iter().zip(&sent).all(|(n, sent)| *n == 0 || (*sent && usize::from(*n) <= limits.sent))
    };
    let best = states.iter().find(|(needs, _)| fits(needs));
    let Some((_, best)) = best else { return Err("the input".into()) };
    let mut out = Vec::new();
    let mut at = best.last;
    while let Some(node) = at.and_then(|i| nodes.get(i)) {
        out.push(node.value);
        at = node.before;
    }
    out.sort_unstable();
    Ok(out)
}

/// Without those that another state is at least as good as; of the rest the cheapest, by cost.
fn kept(states: HashMap<Needs, Reached>) -> Vec<(Needs, Reached)> {
    let mut all: Vec<(Needs, Reached)> = states.into_iter().collect();
    // Equal costs in one order, whatever the map's.
    all.sort_by(|a, b| a.1.cost.total_cmp(&b.1.cost).then_with(|| a.0.cmp(&b.0)));
    let mut out: Vec<(Needs, Reached)> = Vec::new();
    for (needs, state) in all {
        let worse = out.iter().any(|(n, _)| n.iter().zip(&needs).all(|(a, b)| a <= b));
        if !worse && out.len() < STATES {
            out.push((needs, state));
        }
    }
    out
}

impl Program {
    /// Puts bootstraps behind values; everything that read one of them reads its bootstrapped copy.
    pub(super) fn bootstrapped(&mut self, values: &[usize]) {
        for &value in values {
            let copy = self.values.len();
            let old = self.values[value].clone();
            let name = format!("bootstrap of {}", old.name);
            self.values.push(Value { name: format!("{} bootstrapped", old.name), ..old });
            for op in &mut self.ops {
                op.inputs_mut().into_iter().filter(|i| **i == value).for_each(|i| *i = copy);
            }
            let at = self.ops.iter().position(|op| op.output() == value).map_or(0, |at| at + 1);
            self.ops.insert(at, Op::Bootstrap { name, input: value, output: copy });
        }
    }
}
