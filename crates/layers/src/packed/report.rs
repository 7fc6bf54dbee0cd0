//! What a circuit is, in words and figures.

use super::circuit::{Method, Op, Value};
use super::compile::Circuit;
use super::cost::{Counts, LevelCost};
use super::options::Packing;
use hushnet_rlwe::ckks::bootstrap::size_of;
use serde::Serialize;

/// What a circuit is, for people and benches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Packing asked for.
    pub method: Packing,
    /// Ring degree N.
    pub ring_degree: usize,
    /// Bits of security, 0 where the parameters are not secure.
    pub security: u32,
    /// log2 of the data primes.
    pub data_prime_bits: Vec<f64>,
    /// log2 of the special primes.
    pub special_prime_bits: Vec<f64>,
    /// log2 of the widest modulus of any sample.
    pub modulus_bits: f64,
    /// log2 of the scale of linear results.
    pub scale_bits: f64,
    /// Rescalings that the parameters allow.
    pub levels: usize,
    /// Levels that every step spends.
    pub levels_spent: Vec<(String, usize)>,
    /// Evaluation keys: bytes, and number of rotations.
    pub key_bytes: u64,
    /// Rotation keys.
    pub rotation_keys: usize,
    /// Client to server, an image.
    pub upload_bytes: u64,
    /// Server to client, an image.
    pub download_bytes: u64,
    /// All encoded weights.
    pub plaintext_bytes: u64,
    /// Of them those that are kept between images; the others are encoded again for every one.
    pub kept_bytes: u64,
    /// Whether all are kept.
    pub keeps_plaintexts: bool,
    /// Predicted peak of the server.
    pub memory_bytes: u64,
    /// Predicted peak of the client.
    pub client_bytes: u64,
    /// Predicted for an image on one core, both parties together, by the cost model that chose the methods.
    pub seconds: f64,
    /// Operations for an image.
    pub counts: Counts,
    /// All rotations for an image.
    pub rotations: usize,
    /// Error that holds but with probability 2^-40, in units of the output.
    pub error_bound: f64,
    /// 7.6 deviations of errors taken as independent.
    pub error_typical: f64,
    /// Six deviations expected for values of usual magnitudes.
    pub error_expected: f64,
    /// Figures of every operation.
    pub steps: Vec<StepReport>,
    /// A line for every operation.
    pub operations: Vec<String>,
    /// Who learns what.
    pub notes: Vec<String>,
}

/// Figures of an operation's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// Step's name.
    pub name: String,
    /// `linear`, `polynomial`, `add`, `multiply` or `bootstrap`.
    pub kind: &'static str,
    /// Ciphertexts of the result.
    pub ciphertexts: usize,
    /// Its level, in data primes.
    pub level: usize,
    /// log2 of its scale.
    pub scale_bits: f64,
    /// Bound of its values.
    pub bound: f64,
    /// As [`Report::error_bound`].
    pub error_bound: f64,
    /// As [`Report::error_expected`].
    pub error_expected: f64,
}

/// What bootstraps do to an answer; `adds`: six deviations of what one adds to values within 1, where such values can be bootstrapped.
fn bootstraps_note(count: usize, failure_bits: f64, adds: Option<f64>) -> String {
    let adds = adds.map_or_else(
        || "what it adds cannot be told: no values within 1 are bootstrapped".to_owned(),
        |adds| format!("it adds {adds:.1e} of the power of two above its values' bound (six deviations)"),
    );
    format!("{count} bootstraps; each goes wrong with probability below 2^{failure_bits:.0}, and {adds}")
}

impl Circuit {
    fn step_reports(&self) -> Vec<StepReport> {
        let of = |(op, o): (&Op, &super::simulate::Outcome)| {
            let value = &self.program.values[op.output()];
            StepReport {
                name: op.name().to_owned(),
                kind: match op {
                    Op::Linear(_) => "linear",
                    Op::Polynomial { .. } => "polynomial",
                    Op::Add { .. } => "add",
                    Op::Multiply { .. } => "multiply",
                    Op::Bootstrap { .. } => "bootstrap",
                },
                ciphertexts: value.cts,
                level: o.level * self.program.width,
                scale_bits: o.scale_bits,
                bound: value.bound,
                error_bound: o.worst,
                error_expected: o.expected,
            }
        };
        self.program.ops.iter().zip(&self.outcomes).map(of).collect()
    }

    /// A report of the circuit for planners and users.
    #[must_use]
    pub fn report(&self) -> Report {
        let p = &self.params;
        let bits = |q: u64| (q as f64).log2();
        let data: Vec<f64> = (0..p.max_level().get()).map(|i| bits(p.data_prime(i))).collect();
        let special: Vec<f64> = p.special_primes().iter().map(|q| bits(*q)).collect();
        let all: f64 = data.iter().sum();
        let keys: f64 = data[..p.key_level().get()].iter().chain(&special).sum();
        let (error_bound, error_typical) = self.predicted_error();
        let level = self.program.values[self.program.output].level;
        let one = self.level(level).map_or(0, |l| p.ciphertext_bytes(l)) as u64;
        let mut notes = vec!["the server learns shapes only; the client learns the output".to_owned()];
        if let Some(bits) = self.flood_bits() {
            notes.push(format!(
                "the output is re-randomised and flooded by {bits} bits: weights stay hidden (2^-40)"
            ));
        } else {
            notes.push("the output's ciphertext noise depends on the weights and is not hidden".to_owned());
        }
        if let Some(design) = self.design() {
            let adds = design.error(design.params().fresh_scale(), 1.0).map(|e| 6.0 * e.mean);
            notes.push(bootstraps_note(self.counts.bootstraps, design.failure_bits(), adds.ok()));
        }
        Report {
            method: self.options.method,
            ring_degree: p.ring_degree(),
            security: if p.is_secure() { 128 } else { 0 },
            data_prime_bits: data,
            special_prime_bits: special,
            modulus_bits: all.max(keys),
            scale_bits: self.program.scale.log2(),
            levels: match self.design {
                Some(_) => super::levels::longest(&self.program),
                None => p.max_level().get() / self.program.width - 1,
            },
            levels_spent: self.spent.clone(),
            key_bytes: self.key_bytes(),
            rotation_keys: self.rotations.len(),
            upload_bytes: self.upload_bytes(),
            download_bytes: one * self.program.output_layout.cts.len() as u64,
            plaintext_bytes: self.plaintext_bytes(),
            kept_bytes: self.kept_bytes(),
            keeps_plaintexts: self.keeps_plaintexts(),
            memory_bytes: self.memory_bytes(),
            client_bytes: self.client_bytes(),
            seconds: self.predicted_seconds(),
            counts: self.counts,
            rotations: self.counts.rotations(),
            error_bound,
            error_typical,
            error_expected: self.expected_error(),
            steps: self.step_reports(),
            operations: self.describe(),
            notes,
        }
    }

    /// What a bootstrap is for and costs.
    fn describe_bootstrap(&self, out: &Value) -> String {
        let Some(design) = self.design() else { return String::new() };
        let at = LevelCost {
            n: self.params.ring_degree(),
            level: 1,
            special: self.params.special_primes().len(),
            digit: self.params.special_primes().len(),
        };
        format!(
            "what follows needs {} levels, the value before has {}: {} ciphertexts of {} slots are bootstrapped to level {}, divided by {} before, {:.1} s each",
            out.level - 1,
            design.params().entry_level().get() - 1,
            out.cts,
            design.params().spec().slots,
            design.params().fresh_level().get(),
            size_of(out.bound.max(out.idle.abs())),
            at.bootstrap(design) * 1e-6
        )
    }

    /// One line for every operation: method, layout, rotations and products.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let program = &self.program;
        let line = |op: &Op| {
            let out = &program.values[op.output()];
            let head =
                format!("{}: level {} -> {}, ", op.name(), program.values[op.inputs()[0]].level, out.level);
            let tail = match op {
                Op::Linear(l) => {
                    let w = l.rotations.work(&l.folds);
                    let how = match &l.method {
                        Method::Rotate { split, form, .. } => format!(
                            "baby steps to {} and giant steps over {}{}",
                            split.base,
                            form.layout().grid.map_or_else(
                                || format!("a flat layout of period {}", form.layout().period),
                                |g| format!(
                                    "a {}x{} grid, gap {:?}, blocks of {}",
                                    g.rows, g.cols, g.gap, g.block
                                )
                            ),
                            if l.folds.is_empty() { "" } else { ", folded" }
                        ),
                        Method::Replicated { copies, layout, .. } => format!(
                            "copies made by the client, {copies} a ciphertext, period {} of {}",
                            layout.period, program.slots
                        ),
                    };
                    format!(
                        "{} -> {} ciphertexts, {how}: {} + {} + {} rotations (hoisted, giant, folds), {} products, {} keys",
                        program.values[l.input].cts, out.cts, w.babies, w.giants, w.folds, w.products, w.keys
                    )
                }
                Op::Polynomial { members, coefficients, .. } => {
                    format!("degree {}, {} ciphertexts, {members} summed", coefficients.len() - 1, out.cts)
                }
                Op::Add { .. } | Op::Multiply { .. } => format!("{} ciphertexts", out.cts),
                Op::Bootstrap { .. } => self.describe_bootstrap(out),
            };
            head + &tail
        };
        program.ops.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::bootstraps_note;

    #[test]
    fn a_bootstrap_whose_error_cannot_be_told_is_said_to_be_one() {
        let told = bootstraps_note(3, -50.6, Some(2.5e-6));
        assert!(told.starts_with(
            "3 bootstraps; each goes wrong with probability below 2^-51, and it adds 2.5e-6 of"
        ));
        let untold = bootstraps_note(3, -50.6, None);
        assert!(untold.contains("cannot be told") && !untold.contains("NaN"));
    }
}
