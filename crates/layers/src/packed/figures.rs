//! What follows from a compiled circuit: keys, bytes, memory, time, errors.

use super::circuit::{LinearOp, Op, Program};
use super::compile::{key_bytes, Circuit};
use super::cost::{Counts, LevelCost};
use hushnet_rlwe::ckks::bootstrap::BootstrapDesign;
use hushnet_rlwe::ckks::{CkksParams, Level};

impl Circuit {
    /// Bits of the flood that hides the weights; `None` without `hide_weights`.
    #[must_use]
    pub fn flood_bits(&self) -> Option<u32> {
        let last = self.outcomes.last().filter(|_| self.options.hide_weights)?;
        last.flood_bits
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.params
    }

    /// The predicted numbers of homomorphic operations.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Rotations that need keys, each with the highest level at which it is used.
    #[must_use]
    pub fn rotations(&self) -> &[(i64, Level)] {
        &self.rotations
    }

    /// Bytes of the evaluation keys.
    #[must_use]
    pub fn key_bytes(&self) -> u64 {
        let levels: Vec<Level> = self.rotations.iter().map(|r| r.1).collect();
        key_bytes(&self.params, &levels, self.design(), self.options.hide_weights)
    }

    /// What is known of its bootstraps, where it has some.
    #[must_use]
    pub fn design(&self) -> Option<&BootstrapDesign> {
        self.design.as_deref()
    }

    /// Bytes of the client's message for one image.
    #[must_use]
    pub fn upload_bytes(&self) -> u64 {
        let one = |u: &super::circuit::Upload| {
            let level = self.program.values[u.value].level;
            self.level(level).map_or(0, |l| self.params.fresh_ciphertext_bytes(l)) as u64
        };
        self.program.uploads.iter().map(one).sum()
    }

    /// Bytes of all encoded weights, kept or not.
    #[must_use]
    pub fn plaintext_bytes(&self) -> u64 {
        let of = |l: &LinearOp| self.bytes_of_rows(l, l.rotations.work(&l.folds).products);
        self.linear_ops().map(of).sum()
    }

    fn linear_ops(&self) -> impl Iterator<Item = &LinearOp> {
        self.program.ops.iter().filter_map(|op| if let Op::Linear(l) = op { Some(l.as_ref()) } else { None })
    }

    pub(super) fn bytes_of_rows(&self, l: &LinearOp, terms: usize) -> u64 {
        let word = |i: usize| if self.params.data_prime(i) >> 32 == 0 { 4 } else { 8 };
        let words = (0..l.level * self.program.width).map(word).sum::<u64>();
        terms as u64 * words * self.params.repeated_words(l.period()) as u64
    }

    /// Predicted peak of the server's memory: kept plaintexts, keys, ciphertexts of the widest layer, and what is encoded again at once.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.kept.bytes + self.kept.again_bytes + self.server_bytes()
    }

    /// Predicted peak of the client's memory: keys and an image's ciphertexts as they travel.
    #[must_use]
    pub fn client_bytes(&self) -> u64 {
        2 * self.upload_bytes() + self.key_bytes() + (64 << 20)
    }

    /// What both parties take but for encoded weights.
    pub(super) fn other_bytes(&self) -> u64 {
        self.client_bytes() + self.server_bytes()
    }

    /// What the server takes but for encoded weights.
    fn server_bytes(&self) -> u64 {
        let n = self.params.ring_degree() as u64;
        let primes = |l: Level| self.params.extended_range(l).len() as u64;
        let key = |l: Level| 2 * self.params.digits_at(l) as u64 * primes(l) * n * 8;
        let galois: u64 = self.interface().galois().iter().map(|r| key(r.1)).sum();
        // Keys of tens of megabytes wait in frames, and each party has tables of the ring.
        let frames = 8 * self.params.relin_key_bytes() as u64;
        let bootstraps = self
            .design()
            .map_or(0, |d| d.bytes() + d.params().way_back_bytes() + 2 * self.table_bytes() + frames);
        // The numbers of a ciphertext's weights are there before any ciphertext is.
        let work = self.work_bytes().max(self.numbers_bytes());
        galois + key(self.params.key_level()) + bootstraps + work + (64 << 20)
    }

    /// Most bytes of a ciphertext's weights before they are encoded.
    fn numbers_bytes(&self) -> u64 {
        let of = |l: &LinearOp| {
            let terms = l.rotations.outputs.iter().map(|o| o.iter().map(|s| s.terms.len()).sum::<usize>());
            (8 * l.period() * terms.max().unwrap_or(0)) as u64
        };
        self.linear_ops().map(of).max().unwrap_or(0)
    }

    /// Bytes of the tables of the parameters, about.
    fn table_bytes(&self) -> u64 {
        let primes = self.params.max_level().get() + self.params.special_primes().len();
        (primes * self.params.ring_degree()) as u64 * 64
    }

    /// Predicted seconds of an image on one core: the program, plaintexts that are encoded again, and the client's encryptions.
    #[must_use]
    pub fn predicted_seconds(&self) -> f64 {
        let (n, special) = (self.params.ring_degree(), self.params.special_primes().len());
        let sent = |u: &super::circuit::Upload| {
            let level = self.program.values[u.value].level * self.program.width;
            LevelCost { n, level, special, digit: special }.encryption()
        };
        let encryption: f64 = self.program.uploads.iter().map(sent).sum();
        (self.program.predicted_cost(n, special, self.design()) + encryption + self.kept.micros) * 1e-6
    }

    /// Most bytes of ciphertexts that a linear operation or a bootstrap holds at once.
    #[must_use]
    pub fn work_bytes(&self) -> u64 {
        (self.words as u64 * 8).max(self.design().map_or(0, BootstrapDesign::work_bytes))
    }

    /// Predicted error of the output: `(bound, typical)`, in units of the output. The bound holds but with probability
    /// 2^-40 for values within the declared bounds; the typical one is 7.6 standard deviations of errors taken as independent.
    #[must_use]
    pub fn predicted_error(&self) -> (f64, f64) {
        self.outcomes.last().map_or((0.0, 0.0), |o| (o.worst, o.typical))
    }

    /// Six expected deviations of the output's error, in units of the output: errors taken as independent, and values of their
    /// usual magnitudes (`docs/packed.md`).
    #[must_use]
    pub fn expected_error(&self) -> f64 {
        self.outcomes.last().map_or(0.0, |o| o.expected)
    }

    /// Levels that every step spends.
    #[must_use]
    pub fn levels_spent(&self) -> &[(String, usize)] {
        &self.spent
    }

    /// The operations and values of the circuit.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether all plaintexts are kept between images.
    #[must_use]
    pub fn keeps_plaintexts(&self) -> bool {
        self.kept.again == 0
    }
}
