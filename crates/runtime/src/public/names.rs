//! Neutral names: those of layers and tensors come from the model's file, and may say what a network is made of and was trained on.

use crate::plan::spec::{OpKind, OpSpec, PortSpec, Trust};
use crate::plan::GeometrySpec;
use std::collections::{BTreeMap, BTreeSet};

/// Gives things names by kind and number: "conv 1", "conv 2", "relu 1". Things of client-aided plans keep theirs.
pub(super) struct Names {
    kept: bool,
    counts: BTreeMap<&'static str, usize>,
    /// The client's stages after the last layer have another name.
    answered: bool,
    taken: BTreeSet<String>,
}

impl Names {
    /// Names of a plan of this trust model.
    pub(super) fn of(trust: Trust) -> Self {
        let kept = trust == Trust::ClientAided;
        Self { kept, counts: BTreeMap::new(), answered: false, taken: BTreeSet::new() }
    }

    fn number(&mut self, kind: &'static str) -> String {
        let count = self.counts.entry(kind).or_insert(0);
        *count += 1;
        format!("{kind} {count}")
    }

    /// The next of a kind.
    pub(super) fn next(&mut self, name: &str, kind: &'static str) -> String {
        if self.kept {
            return name.to_owned();
        }
        self.number(kind)
    }

    /// The next linear layer.
    pub(super) fn layer(&mut self, name: &str, geometry: &GeometrySpec) -> String {
        let kind = match geometry {
            GeometrySpec::Dense { .. } => "dense",
            GeometrySpec::Conv2d { .. } => "conv",
        };
        self.next(name, kind)
    }

    /// From here on the client has an answer.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    /// The next stage of the client: "encode" before an answer, "decode" after it, with a number from the second on.
    pub(super) fn client(&mut self, name: &str) -> String {
        if self.kept {
            return name.to_owned();
        }
        let kind = if self.answered { "decode" } else { "encode" };
        let numbered = self.number(kind);
        if numbered.ends_with(" 1") && self.taken.insert(kind.into()) {
            return kind.into();
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
