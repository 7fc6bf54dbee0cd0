//! What the stages of every trust model are checked for: names, the grammar, ids and their order, kinds of operands, geometries, arrays.

use super::super::checked::Files;
use super::super::ops;
use crate::plan::spec::{
    ClassesOf, KindSpec, LayerFields, LinearSpec, OpSpec, PlanSpec, PortSpec, StageKind, StageSpec, STAGES,
};
use crate::plan::{GeometrySpec, Limits, Op, PlanError, PlanOptions, Port, Tensor};
use std::collections::BTreeSet;

/// A plan on its way through the checks: which tensors have been computed, which arrays and names are taken.
pub(crate) struct Scope<'a> {
    pub spec: &'a PlanSpec,
    pub tensors: &'a [Tensor],
    pub files: &'a Files<'a>,
    pub options: &'a PlanOptions,
    defined: Vec<bool>,
    used_files: BTreeSet<String>,
    names: BTreeSet<&'a str>,
    /// Stages with arrays, and those that should have them.
    weighted: (usize, usize),
}

/// Where a stage stands: indices of its operands and of its result, and what the client computes in it.
pub(crate) struct Place {
    pub inputs: Vec<usize>,
    /// The tensor's index; of the client's stages, which have none, 0.
    pub output: usize,
    pub ops: Vec<Op>,
}

impl<'a> Scope<'a> {
    /// Nothing is computed yet.
    pub(crate) fn new(
        spec: &'a PlanSpec,
        tensors: &'a [Tensor],
        files: &'a Files<'a>,
        options: &'a PlanOptions,
    ) -> Self {
        let (defined, names, used_files) = (vec![false; tensors.len()], BTreeSet::new(), BTreeSet::new());
        Self { spec, tensors, files, options, defined, used_files, names, weighted: (0, 0) }
    }

    pub(crate) fn limits(&self) -> &'a Limits {
        &self.options.limits
    }

    /// Kind of a tensor.
    pub(crate) fn kind(&self, tensor: usize) -> KindSpec {
        self.spec.tensors[tensor].kind
    }

    fn find(&self, place: &str, id: u32) -> Result<usize, PlanError> {
        // Ids are places in the list of tensors.
        let found = usize::try_from(id).ok().filter(|i| *i < self.tensors.len());
        found.ok_or_else(|| PlanError::DanglingTensor { place: place.to_owned(), id })
    }

    fn read(&self, place: &str, id: u32) -> Result<usize, PlanError> {
        let i = self.find(place, id)?;
        if !self.defined[i] {
            let tensor = self.tensors[i].name.clone();
            return Err(PlanError::UsedBeforeDefined { place: place.to_owned(), tensor });
        }
        Ok(i)
    }

    fn define(&mut self, place: &str, id: u32) -> Result<usize, PlanError> {
        let i = self.find(place, id)?;
        if std::mem::replace(&mut self.defined[i], true) {
            let tensor = self.tensors[i].name.clone();
            return Err(PlanError::DefinedTwice { place: place.to_owned(), tensor });
        }
        Ok(i)
    }

    fn ports(&mut self, kind: &str, ports: &[PortSpec], input: bool) -> Result<Vec<Port>, PlanError> {
        let mut seen = BTreeSet::new();
        let mut out = Vec::with_capacity(ports.len());
        for port in ports {
            let place = format!("{kind} '{}'", port.name);
            if !seen.insert(&port.name) {
                return Err(PlanError::Structure(format!("two {kind}s are called '{}'", port.name)));
            }
            let tensor =
                if input { self.define(&place, port.tensor)? } else { self.read(&place, port.tensor)? };
            let held = self.kind(tensor);
            if !held.clear() || input && held != KindSpec::Real {
                let wanted = if input { "a real tensor" } else { "a tensor of the client's" };
                return Err(PlanError::Structure(format!("{place} must be {wanted}, it is {}", held.name())));
            }
            about_values(port, input, self.tensors[tensor].shape.iter().product())
                .map_err(|wrong| PlanError::Structure(format!("{place}: {wrong}")))?;
            if let Some([low, high]) = port.range {
                if !input || !low.is_finite() || !high.is_finite() || low > high {
                    let problem = "a range is of an input, two finite numbers, the smaller first";
                    return Err(PlanError::Structure(format!(
                        "{place} has the range {low} to {high}; {problem}"
                    )));
                }
            }
            out.push(Port { name: port.name.clone(), tensor, range: port.range });
        }
        if out.is_empty() {
            return Err(PlanError::Structure(format!("the plan has no {kind}s")));
        }
        Ok(out)
    }

    /// The network's inputs, before the stages.
    ///
    /// # Errors
    /// [`PlanError`] naming the port.
    pub(crate) fn inputs(&mut self) -> Result<Vec<Port>, PlanError> {
        self.ports("input", &self.spec.inputs, true)
    }

    /// The network's outputs, after the stages.
    ///
    /// # Errors
    /// [`PlanError`] naming the port.
    pub(crate) fn outputs(&mut self) -> Result<Vec<Port>, PlanError> {
        self.ports("output", &self.spec.outputs, false)
    }

    /// A stage's name, place in the grammar, operands and result.
    ///
    /// # Errors
    /// [`PlanError`] naming the stage.
    pub(crate) fn stage(&mut self, stage: &'a StageSpec) -> Result<Place, PlanError> {
        let name = stage.name.as_str();
        if !self.names.insert(name) {
            return Err(PlanError::Structure(format!("two stages are called '{name}'")));
        }
        let (trust, kind) = (self.spec.trust, stage.kind.name());
        let rule = STAGES.iter().find(|r| r.kind == kind && r.trust.contains(&trust));
        let Some(rule) = rule else {
            let what = format!("kind '{kind}' of stage '{name}' in a {} plan", trust.name());
            return Err(PlanError::Unsupported(what));
        };
        if let StageKind::Client { ops } = &stage.kind {
            let ops = ops.iter().enumerate().map(|(i, op)| self.op(name, i, op)).collect::<Result<_, _>>()?;
            return Ok(Place { inputs: Vec::new(), output: 0, ops });
        }
        let place = format!("stage '{name}'");
        let inputs = stage.inputs.iter().map(|id| self.read(&place, *id)).collect::<Result<Vec<_>, _>>()?;
        let output = stage.output.ok_or_else(|| PlanError::Structure(format!("{place} has no result")))?;
        let output = self.define(&place, output)?;
        let layers = trust.grammar().layers;
        for &tensor in &inputs {
            self.held(name, tensor, rule.from.unwrap_or(layers))?;
        }
        self.held(name, output, rule.to.unwrap_or(layers))?;
        if let StageKind::Linear(layer) = &stage.kind {
            self.layer(name, layer, (inputs[0], output))?;
        }
        Ok(Place { inputs, output, ops: Vec::new() })
    }

    fn held(&self, stage: &str, tensor: usize, wanted: KindSpec) -> Result<(), PlanError> {
        let held = self.kind(tensor);
        if held == wanted {
            return Ok(());
        }
        let (name, wanted, held) = (&self.tensors[tensor].name, wanted.name(), held.name());
        let detail = format!("tensor '{name}' must be {wanted}, it is {held}");
        Err(PlanError::Linear { stage: stage.to_owned(), detail })
    }

    fn op(&mut self, stage: &str, index: usize, op: &OpSpec) -> Result<Op, PlanError> {
        let place = format!("operation {index} of stage '{stage}'");
        let inputs = op.inputs.iter().map(|&id| self.read(&place, id)).collect::<Result<Vec<_>, _>>()?;
        let output = self.define(&place, op.output)?;
        let fail = |detail| PlanError::Op { stage: stage.to_owned(), index, op: op.kind.name(), detail };
        if let Some(&t) = inputs.iter().chain([&output]).find(|&&t| !self.kind(t).clear()) {
            let (name, held) = (&self.tensors[t].name, self.kind(t).name());
            return Err(fail(format!("tensor '{name}' is {held}; the client cannot see its values")));
        }
        let operands: Vec<&Tensor> = inputs.iter().map(|&i| &self.tensors[i]).collect();
        ops::check(&op.kind, &operands, &self.tensors[output]).map_err(fail)?;
        Ok(Op { kind: op.kind.clone(), inputs, output })
    }

    /// What linear layers of every trust model keep: method and fields of the trust model, and a geometry that fits the tensors.
    fn layer(&self, stage: &str, layer: &LinearSpec, (from, to): (usize, usize)) -> Result<(), PlanError> {
        let LinearSpec {
            method,
            geometry,
            weights: _,
            bias: _,
            weight_l2,
            batch,
            coefficients,
            predicted: _,
        } = layer;
        let (trust, grammar) = (self.spec.trust.name(), self.spec.trust.grammar());
        let fail = |detail: String| PlanError::Linear { stage: stage.to_owned(), detail };
        let rule = grammar.methods.map(|known| known.iter().find(|m| m.name == method));
        if rule == Some(None) {
            let known = grammar.method_names(&[]);
            return Err(PlanError::Unsupported(format!(
                "method '{method}' of stage '{stage}' (linear layers of {trust} plans have {known})"
            )));
        }
        let rule = rule.flatten();
        if let Some(rule) = rule.filter(|r| r.engine != self.spec.engine) {
            return Err(PlanError::Unsupported(format!(
                "method '{method}' of stage '{stage}' in a {trust} plan of engine {:?} (it is of engine {:?})",
                self.spec.engine, rule.engine
            )));
        }
        let wanted = rule.map_or(LayerFields::Norm, |r| r.fields);
        for (given, fields) in [
            (batch.is_some(), LayerFields::Batch),
            (coefficients.is_some(), LayerFields::Bits),
            (weight_l2.is_some(), LayerFields::Norm),
        ] {
            if given != (wanted == fields) {
                let has = if given { "no" } else { "the fields" };
                let names = fields.names();
                return Err(fail(format!(
                    "a linear layer of method '{method}' of a {trust} plan has {has} {names}"
                )));
            }
        }
        let (x, y) = (&self.tensors[from], &self.tensors[to]);
        match geometry {
            GeometrySpec::Dense { inputs, outputs } if *inputs != x.elements || *outputs != y.elements => {
                Err(fail(format!(
                    "a dense layer {inputs} -> {outputs} does not fit tensors {:?} -> {:?}",
                    x.shape, y.shape
                )))
            }
            GeometrySpec::Conv2d { input, output, .. } if x.shape != *input || y.shape != *output => {
                Err(fail(format!(
                    "a convolution {input:?} -> {output:?} does not fit tensors {:?} -> {:?}",
                    x.shape, y.shape
                )))
            }
            _ => Ok(()),
        }
    }

    /// The two arrays of a stage, which a plan gives both or, as a public part, neither.
    ///
    /// # Errors
    /// [`PlanError::Structure`] when only one is given.
    pub(crate) fn arrays<'b, const N: usize>(
        &mut self,
        stage: &str,
        fields: [(&str, &'b Option<String>); N],
    ) -> Result<Option<[&'b str; N]>, PlanError> {
        self.weighted.1 += 1;
        let given = fields.iter().filter(|(_, name)| name.is_some()).count();
        if given == 0 {
            return Ok(None);
        }
        if given < N {
            let names: Vec<&str> = fields.iter().map(|(field, _)| *field).collect();
            let detail = format!("stage '{stage}' has only one of {}", names.join(" and "));
            return Err(PlanError::Structure(detail));
        }
        self.weighted.0 += 1;
        let names = fields.map(|(_, name)| name.as_deref().unwrap_or_default());
        self.used_files.extend(names.iter().map(|n| (*n).to_owned()));
        Ok(Some(names))
    }

    /// Marks arrays that a stage reads.
    pub(crate) fn reads(&mut self, names: impl IntoIterator<Item = String>) {
        self.used_files.extend(names);
    }

    /// What holds of the plan as a whole; tells how many stages have arrays, and how many should.
    ///
    /// # Errors
    /// [`PlanError`] for tensors that no stage computes, arrays that no stage uses, and plans of which only some stages have arrays.
    pub(crate) fn finish(&self) -> Result<(usize, usize), PlanError> {
        if let Some(i) = self.defined.iter().position(|d| !d) {
            let (id, name) = (self.tensors[i].id, self.tensors[i].name.clone());
            return Err(PlanError::Tensor { id, name, detail: "no stage computes it".into() });
        }
        if let Some(name) = self.files.keys().find(|n| !self.used_files.contains(*n)) {
            return Err(PlanError::Weights { tensor: name.clone(), detail: "no stage uses it".into() });
        }
        let (with, all) = self.weighted;
        if with != 0 && with != all {
            return Err(PlanError::Structure(format!(
                "{with} of {all} linear layers and functions have weights"
            )));
        }
        Ok((with, all))
    }
}

/// What a port says of its values beside its name: classes of an output, what takes the place of missing values of an
/// input, names of its columns.
///
/// # Errors
/// A sentence without the port's name.
fn about_values(port: &PortSpec, input: bool, elements: usize) -> Result<(), String> {
    let (classes, missing) = (&port.classes, &port.missing);
    if let Some(classes) = classes {
        let count = classes.names.len();
        if input || count == 0 {
            return Err("only an output has classes, and then at least one".into());
        }
        let fits = match classes.of {
            ClassesOf::Index => true,
            ClassesOf::Columns | ClassesOf::Values => count == elements,
            ClassesOf::Sign => count == 2 && elements == 1,
        };
        if !fits {
            return Err(format!("{count} classes are named for {elements} values"));
        }
    }
    if let Some(missing) = missing {
        if !input {
            return Err("only an input has values for missing ones".into());
        }
        if ![1, elements].contains(&missing.len()) || missing.iter().flatten().any(|v| !v.is_finite()) {
            return Err(format!(
                "{} values stand for missing ones of {elements} elements; there must be one finite number for all, or one for each",
                missing.len()
            ));
        }
    }
    if let Some(columns) = &port.columns {
        if !input || columns.len() != elements {
            return Err(format!(
                "{} names of columns are given for {elements} elements; an input has as many as elements, others none",
                columns.len()
            ));
        }
        let distinct: BTreeSet<&String> = columns.iter().collect();
        if distinct.len() != columns.len() {
            return Err("two columns have one name".into());
        }
    }
    Ok(())
}
