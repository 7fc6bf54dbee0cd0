//! Circuits for networks that are deeper than levels are: parameters are those of a bootstrap, and the question is where bootstraps go.

use super::circuit::{Op, Program};
use super::compile::{Found, Search, Spent, KEY_PRICES};
use super::composite::alone;
use super::cost::LevelCost;
use super::levels::{assign_levels, idle};
use super::options::{Bootstrapping, Bootstraps, PackedOptions, BOOTSTRAP_KEY_BYTES};
use super::placement::{place, Limits};
use super::plan::{plan, Choice};
use super::spec::{Network, Step};
use super::PackedError;
use hushnet_rlwe::ckks::bootstrap::{BootstrapDesign, BootstrapParams, BootstrapSpec};
use hushnet_rlwe::ckks::{CkksParams, Insecure};
use std::sync::Arc;

/// Ring degree of the secure parameters that bootstraps fit into.
const DEGREE: usize = 1 << 16;
/// Bits that an error may be too large by and still tell something: beyond, it is no error of values.
const BEYOND_BITS: f64 = 64.0;
/// Fewest slots of a bootstrap.
const LEAST_SLOTS: usize = 8;

/// A circuit with bootstraps, and what its keys counted for; `None` where bootstraps are not asked for, else why there is no such circuit.
pub(super) fn bootstrapped(
    net: &Network,
    options: &PackedOptions,
) -> Result<(Found, Spent, f64), Option<String>> {
    if options.bootstrap == Bootstrapping::Never {
        return Err(None);
    }
    if options.hide_weights {
        let why = "a flood that hides weights leaves nothing of values with the precision of a bootstrap";
        return Err(Some(why.into()));
    }
    if options.security != 0 && ![0, DEGREE].contains(&options.ring_degree) {
        return Err(Some(format!("they take ring degree {DEGREE}")));
    }
    let n = if options.ring_degree == 0 { DEGREE } else { options.ring_degree };
    let search = Search { net, options, n, width: 1 };
    search.with_bootstraps().map_err(Some)
}

/// The ring's parameters for bootstraps of messages of so many slots.
fn parameters(n: usize, slots: usize, secure: bool) -> Result<BootstrapParams, PackedError> {
    let spec = BootstrapSpec::at(n, slots)?;
    Ok(if secure { spec.check() } else { spec.check_insecure(Insecure) }?)
}

/// Slots after which all these values repeat.
fn period(program: &Program, values: impl Iterator<Item = usize>) -> usize {
    values.map(|v| program.values[v].period).max().unwrap_or(1).max(LEAST_SLOTS)
}

impl Search<'_> {
    /// Level of the output: 1 where it stands there.
    fn output_level(&self, program: &Program) -> usize {
        // Linear results that are the output alone are scaled to fit.
        let scaled = program.ops.iter().any(|op| {
            matches!(op, Op::Linear(l) if l.output == program.output)
                && program.values[program.output].uses == 1
        });
        if scaled || self.net.tensors[self.net.output].bound <= 1.0 {
            1
        } else {
            2
        }
    }

    fn laid_out(&self, key_price: f64, top: usize, special: usize) -> Result<Program, PackedError> {
        let choice = Choice { special, top: Some(top), ..self.choice(key_price) };
        let mut program = plan(self.net, choice, 1.0)?.0;
        self.slope(&mut program);
        Ok(program)
    }

    /// Polynomials of many terms that stand alone: an error of the operand counts by the slope, not by all coefficients' magnitudes.
    fn slope(&self, program: &mut Program) {
        for op in &mut program.ops {
            let Op::Polynomial { name, input, coefficients, slope: slope @ None, .. } = op else { continue };
            let made = self.net.steps.iter().zip(&self.net.names).find(|(_, own)| *own == name);
            if let Some((Step::Polynomial { range, .. }, _)) = made {
                *slope = alone(coefficients, *range, program.values[*input].usual);
            }
        }
    }

    fn with_bootstraps(&self) -> Result<(Found, Spent, f64), String> {
        let secure = self.options.security != 0;
        let largest = parameters(self.n, self.n / 2, secure).map_err(|e| e.to_string())?;
        let limit = self.options.key_bytes.unwrap_or(BOOTSTRAP_KEY_BYTES);
        let mut why = String::new();
        for key_price in KEY_PRICES {
            let (found, spent) = self.placed(&largest, key_price).map_err(|e| e.to_string())?;
            let error = found.outcomes.last().map_or(0.0, |o| o.expected);
            if error.is_nan() || error > self.target() {
                let missing = (error / self.target()).log2();
                return Err(if missing < BEYOND_BITS {
                    format!("the output is {missing:.1} bits less precise than asked for")
                } else {
                    "errors grow beyond all values from layer to layer: sums of what a layer reads and gives (residual), \
                     or activations of a lower degree, keep them small"
                        .into()
                });
            }
            let bytes = found.key_bytes(false);
            if bytes <= limit {
                return Ok((found, spent, key_price));
            }
            why = format!("keys would take {bytes} bytes, {limit} are allowed (key_bytes)");
        }
        Err(why)
    }

    fn placed(&self, largest: &BootstrapParams, key_price: f64) -> Result<(Found, Spent), PackedError> {
        let (fresh, special) = (largest.fresh_level().get(), largest.spec().special);
        let program = self.laid_out(key_price, fresh, special)?;
        // What bootstraps cost depends on their slots: at most those of all values.
        let slots = period(&program, 0..program.values.len());
        let params = BootstrapSpec::at(self.n, slots)?.on(largest.ckks())?;
        let at = LevelCost { n: self.n, level: 1, special, digit: special };
        let limits = Limits {
            fresh,
            sent: params.message_level().get(),
            entry: params.entry_level().get(),
            output: self.output_level(&program),
            bootstrap: at.bootstrap(&BootstrapDesign::new(&params)?),
        };
        let values =
            place(&program, &limits, |op, level| program.op_cost(op, level, at)).map_err(|step| {
                PackedError::Spec(format!(
                    "step '{step}' needs more levels than the {} that a bootstrap leaves",
                    fresh - 1
                ))
            })?;
        if values.is_empty() {
            return Err(PackedError::Spec("the network needs no bootstrap".into()));
        }
        let slots = period(&program, values.iter().copied());
        self.finished(program, largest.ckks(), largest.fresh_scale(), Bootstraps { slots, values })
    }

    /// What the expected error of the output may be.
    fn target(&self) -> f64 {
        self.net.tensors[self.net.output].bound * (-f64::from(self.options.precision_bits)).exp2()
    }

    /// The circuit that a search found before.
    ///
    /// # Errors
    /// [`PackedError::Spec`] when the parameters or the places are not those of such a circuit.
    pub(super) fn rebuilt(
        &self,
        params: &CkksParams,
        (key_price, scale): (f64, f64),
        given: &Bootstraps,
    ) -> Result<(Found, Spent), PackedError> {
        let own = BootstrapSpec::at(self.n, given.slots)?.on(params)?;
        let fail = |why: &str| Err(PackedError::Spec(why.into()));
        if self.width != 1 || scale.to_bits() != own.fresh_scale().to_bits() || self.options.hide_weights {
            return fail("bootstraps have one prime a level and a scale of their own, and hide no weights");
        }
        let program = self.laid_out(key_price, own.fresh_level().get(), own.spec().special)?;
        let written = |v: &usize| program.ops.iter().any(|op| op.output() == *v);
        let increasing = given.values.windows(2).all(|w| w[0] < w[1]);
        if given.values.is_empty() || !increasing || !given.values.iter().all(written) {
            return fail("bootstraps of values that the network does not compute");
        }
        self.finished(program, params, scale, given.clone())
    }

    /// The program with its bootstraps, every value at its level.
    fn finished(
        &self,
        mut program: Program,
        params: &CkksParams,
        scale: f64,
        bootstraps: Bootstraps,
    ) -> Result<(Found, Spent), PackedError> {
        let own = BootstrapSpec::at(self.n, bootstraps.slots)?.on(params)?;
        let output = self.output_level(&program);
        if period(&program, bootstraps.values.iter().copied()) > bootstraps.slots {
            return Err(PackedError::Spec(format!(
                "a bootstrapped value has not {} slots",
                bootstraps.slots
            )));
        }
        program.bootstrapped(&bootstraps.values);
        idle(&mut program);
        let spent = assign_levels(&mut program, output, own.entry_level().get());
        program.set_scale(scale);
        let (fresh, sent) = (own.fresh_level().get(), own.message_level().get());
        let high = |v: usize, limit: usize| program.values[v].level > limit;
        let raised = |op: &Op| matches!(op, Op::Bootstrap { output, .. } if high(*output, fresh));
        if program.ops.iter().any(raised) || program.uploads.iter().any(|u| high(u.value, sent)) {
            return Err(PackedError::Spec("a value needs more levels than there are".into()));
        }
        let design = Arc::new(BootstrapDesign::new(&own)?);
        let found = self.simulate(&program, params, Some((bootstraps, design)))?;
        Ok((found, spent))
    }
}
