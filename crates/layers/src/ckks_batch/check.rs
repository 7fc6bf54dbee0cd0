//! From an unchecked circuit to a checked one, with the error of every tensor.

use super::circuit::{batch_linear, CircuitLinear, Inner, Kind, Linear, Scaled, Stage, StageKind, StageSpec};
use super::linear::Reads;
use super::{pass, CircuitError, CircuitSpec, TensorSpec, Track};
use hushnet_matmul::{Kernel, Prepared};
use hushnet_ring::rns::{Coef, Eval, RnsPoly};
use hushnet_ring::simd;
use hushnet_ring::Ring;
use hushnet_rlwe::ckks::{CkksError, CkksParams, SCALE_TOLERANCE};

/// Largest number of features of a tensor.
const ELEMENTS: usize = 1 << 24;

/// A checked stage with what it does to errors.
type Checked = (Kind, Option<Track>);

pub(super) fn check(params: &CkksParams, spec: CircuitSpec) -> Result<Inner, CircuitError> {
    if spec.complex && params.ring() == Ring::ConjugateInvariant {
        return Err(CkksError::RealSlots.into());
    }
    for (i, t) in spec.tensors.iter().enumerate() {
        check_tensor(params, t).map_err(|detail| CircuitError::Tensor { tensor: i, detail })?;
    }
    let mut tracks: Vec<Option<Track>> = vec![None; spec.tensors.len()];
    let mut defined = vec![false; spec.tensors.len()];
    for (number, &t) in spec.inputs.iter().enumerate() {
        let fail = |detail: &str| CircuitError::Input { input: number, detail: detail.to_owned() };
        let tensor = spec.tensors.get(t).ok_or_else(|| fail("there is no such tensor"))?;
        if tensor.parts != 2 {
            return Err(fail("a fresh encryption has two parts"));
        }
        if std::mem::replace(&mut defined[t], true) {
            return Err(fail("the tensor is an input already"));
        }
        tracks[t] = Some(fresh(params, tensor, spec.complex));
    }
    let mut stages = Vec::with_capacity(spec.stages.len());
    for stage in spec.stages {
        let fail = |detail: String| CircuitError::Stage { stage: stage.name.clone(), detail };
        for &t in stage.inputs.iter().chain([&stage.output]) {
            if t >= spec.tensors.len() {
                return Err(fail(format!("there is no tensor {t}")));
            }
        }
        if let Some(t) = stage.inputs.iter().find(|t| !defined[**t]) {
            return Err(fail(format!("tensor {t} is read before any stage computes it")));
        }
        if std::mem::replace(&mut defined[stage.output], true) {
            return Err(fail(format!("tensor {} is computed a second time", stage.output)));
        }
        let (kind, track) = check_stage(params, &spec.tensors, &tracks, &stage, spec.complex)?;
        tracks[stage.output] = track;
        stages.push(Stage { name: stage.name, inputs: stage.inputs, output: stage.output, kind });
    }
    if spec.inputs.is_empty() || spec.outputs.is_empty() {
        return Err(CircuitError::Input { input: 0, detail: "a circuit has inputs and outputs".into() });
    }
    for &t in &spec.outputs {
        if defined.get(t) != Some(&true) {
            return Err(CircuitError::Tensor {
                tensor: t,
                detail: "an output that no stage computes".into(),
            });
        }
    }
    let steps = pass::steps(params, &spec.tensors, &spec.outputs, &stages);
    let all: Option<Vec<Track>> = tracks
        .iter()
        .zip(&defined)
        .map(|(t, defined)| if *defined { *t } else { Some(Track::default()) })
        .collect();
    Ok(Inner {
        params: params.clone(),
        tensors: spec.tensors,
        inputs: spec.inputs,
        outputs: spec.outputs,
        stages,
        steps,
        tracks: all,
        one: if spec.complex { Some(complex_one(params)?) } else { None },
        complex: spec.complex,
    })
}

/// `1 + X^(N/2)`, which is `1 + i` in every slot.
fn complex_one(params: &CkksParams) -> Result<RnsPoly<Eval>, CircuitError> {
    let (range, half) = (params.data_range(params.max_level()), params.ring_degree() / 2);
    let mut one = params.basis().zero::<Coef>(range.clone())?;
    for i in range {
        let limb = one.limb_mut(i);
        (limb[0], limb[half]) = (1, 1);
    }
    Ok(params.basis().forward(one)?)
}

fn check_tensor(params: &CkksParams, t: &TensorSpec) -> Result<(), String> {
    if t.elements == 0 || t.elements > ELEMENTS {
        return Err(format!("{} features; 1 to {ELEMENTS} are possible", t.elements));
    }
    let level = params.level(t.level).map_err(|e| e.to_string())?;
    if !(2..=3).contains(&t.parts) {
        return Err(format!("{} parts; 2 or 3 are possible", t.parts));
    }
    if !(t.scale.is_finite() && t.scale >= 1.0 && t.bound.is_finite() && t.bound > 0.0) {
        return Err("scale and bound must be finite, the scale at least 1, the bound above 0".into());
    }
    let (value, scale, modulus) = (t.bound.log2(), t.scale.log2(), params.modulus_bits(level));
    if value + scale >= modulus - 1.0 {
        return Err(format!(
            "values up to 2^{value:.1} at scale 2^{scale:.1} do not fit in the {modulus:.1} bits of level {}",
            t.level
        ));
    }
    Ok(())
}

fn fresh(params: &CkksParams, t: &TensorSpec, complex: bool) -> Track {
    let noise = params.noise();
    let magnitude = if complex { t.bound * std::f64::consts::SQRT_2 } else { 2.0 * t.bound };
    let sd = (noise.rounding() + noise.transform(magnitude * t.scale)).hypot(noise.fresh());
    Track { sd, likely: sd, hidden: noise.fresh(), fresh: true }
}

fn same(what: &str, expected: f64, got: f64) -> Result<(), String> {
    if (got / expected - 1.0).abs() <= SCALE_TOLERANCE {
        return Ok(());
    }
    Err(format!("{what} is 2^{:.6}, the operands give 2^{:.6}", got.log2(), expected.log2()))
}

fn check_stage(
    params: &CkksParams,
    tensors: &[TensorSpec],
    tracks: &[Option<Track>],
    stage: &StageSpec,
    complex: bool,
) -> Result<Checked, CircuitError> {
    let fail = |detail: String| CircuitError::Stage { stage: stage.name.clone(), detail };
    let operands = match &stage.kind {
        StageKind::Multiply => 2,
        StageKind::Combine { .. } => stage.inputs.len().max(1),
        _ => 1,
    };
    if stage.inputs.len() != operands {
        return Err(fail(format!("{} operands, expected {operands}", stage.inputs.len())));
    }
    let (first, out) = (&tensors[stage.inputs[0]], &tensors[stage.output]);
    let lowest = stage.inputs.iter().map(|t| tensors[*t].level).min().unwrap_or(0);
    if out.level > lowest {
        return Err(fail(format!("the result has level {}, an operand {lowest}", out.level)));
    }
    let track = |t: usize| tracks[stage.inputs[t]];
    match &stage.kind {
        StageKind::Linear(l) => linear(params, (first, out), track(0), l).map_err(|e| named(e, &stage.name)),
        StageKind::Multiply => {
            if complex {
                return Err(fail("products of ciphertexts need one value a slot".into()));
            }
            let second = &tensors[stage.inputs[1]];
            multiply(params, (first, second, out), (track(0), track(1))).map_err(fail)
        }
        StageKind::Relinearise => relinearise(params, (first, out), track(0)).map_err(fail),
        StageKind::Rescale => rescale(params, (first, out), track(0)).map_err(fail),
        StageKind::Combine { factors } => {
            let inputs: Vec<&TensorSpec> = stage.inputs.iter().map(|t| &tensors[*t]).collect();
            let known: Option<Vec<Track>> = stage.inputs.iter().map(|t| tracks[*t]).collect();
            combine(&inputs, out, known.as_deref(), factors.as_ref()).map_err(fail)
        }
    }
}

fn named(e: CircuitError, stage: &str) -> CircuitError {
    match e {
        CircuitError::Stage { detail, .. } => CircuitError::Stage { stage: stage.to_owned(), detail },
        CircuitError::Layer(e) => CircuitError::Stage { stage: stage.to_owned(), detail: e.to_string() },
        other => other,
    }
}

fn linear(
    params: &CkksParams,
    (first, out): (&TensorSpec, &TensorSpec),
    track: Option<Track>,
    spec: &CircuitLinear,
) -> Result<Checked, CircuitError> {
    let fail = |detail: String| CircuitError::Stage { stage: String::new(), detail };
    let g = &spec.geometry;
    let shape = [g.input_rows() * g.input_row_features(), g.output_rows() * g.output_row_features()];
    if shape != [first.elements, out.elements] {
        return Err(fail(format!(
            "the geometry takes {} and gives {} features, its tensors have {} and {}",
            shape[0], shape[1], first.elements, out.elements
        )));
    }
    if out.parts != first.parts {
        return Err(fail("a linear layer keeps the number of parts".into()));
    }
    if out.scale < first.scale {
        return Err(fail("a linear layer cannot lower the scale: its weights are integers".into()));
    }
    let Some((weights, bias)) = &spec.weights else { return Ok((Kind::Linear(None), None)) };
    let rows = batch_linear(spec, weights)?;
    if bias.len() != g.biases() && bias.len() != out.elements {
        return Err(fail(format!("{} biases for {} outputs", bias.len(), g.biases())));
    }
    let bias: Vec<Scaled> = bias
        .iter()
        .map(|b| Scaled::new(*b, out.scale))
        .collect::<Option<_>>()
        .ok_or_else(|| fail("a bias times the scale is not a finite number".into()))?;
    let widest = (0..out.level).map(|i| params.data_prime(i)).max().unwrap_or(0);
    // Sums of weights times words, and a bias word, within half the modulus on either side of zero.
    let reach = (u128::from(rows.max_row_l1()) + 1) * u128::from(widest);
    let sum_bits = match reach {
        r if r < 1 << 51 => 52,
        r if r < 1 << 63 => 64,
        _ => {
            return Err(fail(format!(
                "sums of weights reach {}, so sums of words wrap 64 bits; use fewer weight bits",
                rows.max_row_l1()
            )))
        }
    };
    let isa = simd::isa();
    let word_bits = (64 - widest.leading_zeros()).min(sum_bits);
    let groups = rows
        .groups()
        .iter()
        .map(|w| {
            let shape = (w.rows(), w.columns());
            let kernel = Kernel::choose_for_words(isa, shape, sum_bits, word_bits, w.limbs());
            Ok(Prepared::for_words(w, kernel, sum_bits, word_bits, w.columns())?)
        })
        .collect::<Result<Vec<_>, CircuitError>>()?;
    let reads = Reads::new(g, &groups).map_err(CircuitError::from)?;
    let (l1, l2) = (rows.max_row_l1() as f64, rows.max_row_l2());
    let track = track.map(|t| Track {
        sd: t.sd * if t.fresh { l2 } else { l1 } + 0.5,
        likely: t.likely * l2 + 0.5,
        hidden: t.hidden * if t.fresh { l2 } else { l1 },
        fresh: false,
    });
    Ok((Kind::Linear(Some(Box::new(Linear { reads, geometry: *g, groups, bias, sum_bits }))), track))
}

fn multiply(
    params: &CkksParams,
    (a, b, out): (&TensorSpec, &TensorSpec, &TensorSpec),
    (ta, tb): (Option<Track>, Option<Track>),
) -> Result<Checked, String> {
    if [a.parts, b.parts, out.parts] != [2, 2, 3] {
        return Err("a product takes two parts and two parts and gives three; relinearise first".into());
    }
    if a.elements != b.elements || a.elements != out.elements {
        return Err(format!("{}, {} and {} features", a.elements, b.elements, out.elements));
    }
    same("the result's scale", a.scale * b.scale, out.scale)?;
    let noise = params.noise();
    let track = ta.zip(tb).map(|(x, y)| Track {
        sd: noise.product((a.bound * a.scale, x.sd), (b.bound * b.scale, y.sd)),
        likely: noise.product((a.bound * a.scale, x.likely), (b.bound * b.scale, y.likely)),
        hidden: noise.product((a.bound * a.scale, x.hidden), (b.bound * b.scale, y.hidden)),
        fresh: false,
    });
    Ok((Kind::Multiply, track))
}

/// Product of the data primes that a step from `from` down to `to` divides by.
fn divisor(params: &CkksParams, from: usize, to: usize) -> f64 {
    (to..from).rev().fold(1.0, |d, i| d * params.data_prime(i) as f64)
}

fn relinearise(
    params: &CkksParams,
    (a, out): (&TensorSpec, &TensorSpec),
    track: Option<Track>,
) -> Result<Checked, String> {
    if params.special_primes().is_empty() {
        return Err("relinearisation needs special primes".into());
    }
    if [a.parts, out.parts] != [3, 2] || a.elements != out.elements {
        return Err("relinearisation takes three parts to two, and keeps the features".into());
    }
    if a.level - out.level > 1 {
        return Err(
            "relinearisation rescales by one prime at most; rescale further in a stage of its own".into()
        );
    }
    same("the result's scale", a.scale / divisor(params, a.level, out.level), out.scale)?;
    let (noise, q) = (params.noise(), divisor(params, a.level, out.level));
    let level = params.level(a.level).map_err(|e| e.to_string())?;
    let switching = noise.switching(params.digit_ratio2(level));
    let rounding = noise.part_rounding(2);
    let after = |sd: f64| (sd.hypot(switching) / q).hypot(rounding);
    Ok((
        Kind::Relinearise,
        track.map(|t| Track {
            sd: after(t.sd),
            likely: after(t.likely),
            hidden: after(t.hidden),
            fresh: false,
        }),
    ))
}

fn rescale(
    params: &CkksParams,
    (a, out): (&TensorSpec, &TensorSpec),
    track: Option<Track>,
) -> Result<Checked, String> {
    if a.parts != out.parts || a.elements != out.elements {
        return Err("rescaling keeps parts and features".into());
    }
    if out.level >= a.level {
        return Err("rescaling lowers the level".into());
    }
    same("the result's scale", a.scale / divisor(params, a.level, out.level), out.scale)?;
    let rounding = params.noise().part_rounding(a.parts);
    let after = |sd: f64| {
        (out.level..a.level).rev().fold(sd, |sd, i| (sd / params.data_prime(i) as f64).hypot(rounding))
    };
    Ok((
        Kind::Rescale,
        track.map(|t| Track {
            sd: after(t.sd),
            likely: after(t.likely),
            hidden: after(t.hidden),
            fresh: false,
        }),
    ))
}

fn combine(
    inputs: &[&TensorSpec],
    out: &TensorSpec,
    tracks: Option<&[Track]>,
    factors: Option<&(Vec<i64>, f64)>,
) -> Result<Checked, String> {
    let parts = inputs.iter().map(|t| t.parts).max().unwrap_or(2);
    if out.parts != parts {
        return Err(format!("the result has {} parts, its operands give {parts}", out.parts));
    }
    if let Some(t) = inputs.iter().find(|t| t.elements != out.elements) {
        return Err(format!("an operand of {} features and a result of {}", t.elements, out.elements));
    }
    let Some((factors, constant)) = factors else { return Ok((Kind::Combine(None), None)) };
    if factors.len() != inputs.len() {
        return Err(format!("{} factors for {} operands", factors.len(), inputs.len()));
    }
    let constant =
        Scaled::new(*constant, out.scale).ok_or("the constant times the scale is not a finite number")?;
    let rounding = if constant.is_zero() { 0.0 } else { 0.5 };
    let track = tracks.map(|tracks| {
        let terms = || tracks.iter().zip(factors).map(|(t, k)| (t, k.unsigned_abs() as f64));
        Track {
            sd: terms().map(|(t, k)| t.sd * k).sum::<f64>() + rounding,
            likely: terms().map(|(t, k)| (t.likely * k).powi(2)).sum::<f64>().sqrt() + rounding,
            hidden: terms().map(|(t, k)| t.hidden * k).sum::<f64>(),
            fresh: false,
        }
    });
    Ok((Kind::Combine(Some((factors.clone(), constant))), track))
}
