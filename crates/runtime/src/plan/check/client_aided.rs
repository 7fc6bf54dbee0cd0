//! The client-aided part of a checked plan, and its check: the client's stages and the encrypted linear layers between them, in batches.

use super::{header, tensors, Scope};
use crate::plan::checked::{Checked, Files, Model, Parts};
use crate::plan::coefficients::{self, Sizes};
use crate::plan::spec::{PlanSpec, StageKind, StageSpec, Trust};
use crate::plan::{
    block_images, file, linear, product, ClientStage, CoefficientLayer, MaskMode, Need, PlanError,
    PlanOptions, Port, Stage, Tensor, IMAGES_TOGETHER,
};
use crate::program::{self, StageProgram};

/// The part of a plan that the client's interpreter runs, and the linear layers of client-aided plans between its stages.
pub struct ClientAided {
    pub(crate) stages: Vec<Stage>,
    pub(crate) programs: Vec<StageProgram>,
    pub(crate) client_memory: u64,
}

impl ClientAided {
    pub(crate) fn new(tensors: &[Tensor], stages: Vec<Stage>, outputs: &[Port], images: usize) -> Self {
        let programs = program::compile(tensors, &stages, outputs);
        let client_memory = program::peak_bytes(tensors, &stages, &programs, images);
        Self { stages, programs, client_memory }
    }
}

impl Model for ClientAided {
    const TRUST: Trust = Trust::ClientAided;

    fn check(
        spec: PlanSpec,
        json: &str,
        files: &Files<'_>,
        options: &PlanOptions,
    ) -> Result<Checked<Self>, PlanError> {
        header(&spec, options)?;
        let n = spec.params.ring_degree;
        if !(8..=1 << 17).contains(&n) || !n.is_power_of_two() {
            let detail = format!("ring degree {n} is not a power of two from 8 to 131072");
            return Err(PlanError::Structure(detail));
        }
        let tensors = tensors(&spec, &options.limits)?;
        let mut scope = Scope::new(&spec, &tensors, files, options);
        let inputs = scope.inputs()?;
        let mut sizes = Sizes::default();
        let stages =
            spec.stages.iter().map(|s| stage(&mut scope, s, &mut sizes)).collect::<Result<Vec<_>, _>>()?;
        let outputs = scope.outputs()?;
        let (with, all) = scope.finish()?;
        let model = Self::new(&tensors, stages, &outputs, block_images(&spec));
        need(&model, &tensors).check(&options.limits)?;
        let (json, weights) = (json.to_owned(), with == all);
        Ok(Checked::new(Parts { spec, json, tensors, inputs, outputs, weights, model }))
    }
}

/// What a client holds for a full block: tensors, mask sums of the session, and messages on their way.
fn need(model: &ClientAided, tensors: &[Tensor]) -> Need {
    let mut need = Need::default();
    need.add("the tensors of one block", model.client_memory);
    let linear = || model.stages.iter().filter_map(Stage::linear);
    for s in linear().filter(|s| s.mask == MaskMode::Shared) {
        need.add(&format!("the mask sums of stage '{}'", s.name), s.mask_bytes());
    }
    need.add_largest("the messages", linear().map(|s| (s.name.as_str(), s.message_bytes())));
    let packed = || model.stages.iter().filter_map(Stage::coefficients);
    for s in packed() {
        need.add(&format!("the mask sums of stage '{}'", s.name), s.stage.kept_bytes());
    }
    let images = IMAGES_TOGETHER;
    let keys = |s: &CoefficientLayer| product(&[8, s.tiles(), s.stage.layout().degree(), images]);
    need.add_largest("the keys", packed().map(|s| (s.name.as_str(), keys(s))));
    let results = |s: &CoefficientLayer| product(&[8, tensors[s.output].elements, images]);
    let held = |s: &CoefficientLayer| results(s).saturating_add(s.message_bytes());
    need.add_largest("the messages and results", packed().map(|s| (s.name.as_str(), held(s))));
    need
}

fn stage<'a>(scope: &mut Scope<'a>, stage: &'a StageSpec, sizes: &mut Sizes) -> Result<Stage, PlanError> {
    let name = stage.name.as_str();
    let place = scope.stage(stage)?;
    let StageKind::Linear(layer) = &stage.kind else {
        return Ok(Stage::Client(ClientStage { name: name.to_owned(), ops: place.ops }));
    };
    let (input, output) = (place.inputs[0], place.output);
    if let Some(bits) = &layer.coefficients {
        let ends = ((input, &scope.tensors[input]), (output, &scope.tensors[output]));
        let (ring_degree, limits) = (scope.spec.params.ring_degree, scope.limits());
        let context = coefficients::Context {
            name,
            layer,
            bits,
            input: ends.0,
            output: ends.1,
            ring_degree,
            limits,
            sizes,
        };
        context.check_shape()?;
        let arrays = scope.arrays(name, [("weights", &layer.weights), ("bias", &layer.bias)])?;
        let weights = arrays
            .map(|[w, b]| file::weights((w, b), &layer.geometry.weight_shape(), scope.files))
            .transpose()?;
        return Ok(Stage::Coefficients(Box::new(context.check(weights)?)));
    }
    let Some(batch) = &layer.batch else {
        // The grammar has refused it.
        return Err(PlanError::Structure(format!("stage '{name}' has no parameters")));
    };
    let mut context = linear::Context {
        name,
        layer,
        batch,
        input: (input, &scope.tensors[input]),
        output: (output, &scope.tensors[output]),
        ring_degree: scope.spec.params.ring_degree,
        insecure: scope.spec.params.insecure,
        weights: None,
        limits: scope.limits(),
    };
    context.check_shape()?;
    if let Some([w, b]) = scope.arrays(name, [("weights", &layer.weights), ("bias", &layer.bias)])? {
        context.weights = Some(file::weights((w, b), &layer.geometry.weight_shape(), scope.files)?);
    }
    Ok(Stage::Linear(Box::new(context.check()?)))
}
