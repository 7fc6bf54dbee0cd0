//! Neutral names: those of layers and tensors come from the model's file, and may say what a network is made of and was trained on.

use crate::plan::spec::{OpKind, OpSpec, PortSpec};
use crate::plan::GeometrySpec;
use std::collections::{BTreeMap, BTreeSet};

/// Gives things names by kind and number: "conv 1", "conv 2", "relu 1".
#[derive(Default)]
pub(super) struct Names {
    counts: BTreeMap<&'static str, usize>,
    /// The client's stages after the last layer have another name.
    answered: bool,
    taken: BTreeSet<String>,
}

impl Names {
    /// The next of a kind.
    pub(super) fn next(&mut self, kind: &'static str) -> String {
        let count = self.counts.entry(kind).or_insert(0);
        *count += 1;
        format!("{kind} {count}")
    }

    /// The next linear layer.
    pub(super) fn layer(&mut self, geometry: &GeometrySpec) -> String {
        self.next(match geometry {
            GeometrySpec::Dense { .. } => "dense",
            GeometrySpec::Conv2d { .. } => "conv",
        })
    }

    /// From here on the client has an answer.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    /// The next stage of the client: "encode" before an answer, "decode" after it, with a number from the second on.
    pub(super) fn client(&mut self) -> String {
        let (kind, first) = if self.answered { ("decode", "decode") } else { ("encode", "encode") };
        let numbered = self.next(kind);
        if numbered.ends_with(" 1") && self.taken.insert(first.into()) {
            return first.into();
        }
        numbered
    }
}

/// Names of the client's own tensors, by id: an input or output is called as users call it, what is quantised from it with ".q" behind.
pub(super) fn of_ports<'a>(
    ports: impl Iterator<Item = &'a PortSpec>,
    ops: impl Iterator<Item = &'a OpSpec>,
) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    for port in ports {
        names.entry(port.tensor).or_insert_with(|| port.name.clone());
    }
    for op in ops {
        let (OpKind::Quantize {}, [from]) = (&op.kind, op.inputs.as_slice()) else { continue };
        if let Some(name) = names.get(from).map(|n| format!("{n}.q")) {
            names.entry(op.output).or_insert(name);
        }
    }
    names
}
