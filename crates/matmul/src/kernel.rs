//! Which kernel multiplies which matrix: a cost table, measured by `cargo bench -p hushnet-kernels --bench gemm`.

use crate::limbs::limbs_for;
use crate::MatmulError;
use hushnet_ring::Isa;

/// One way to compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Wrapping 64-bit products in plain Rust.
    Portable,
    /// Two 32-bit products a word, on ARM.
    Neon,
    /// Two 32-bit products a word.
    Avx2,
    /// Words in 16-bit digits, two columns to a product.
    Madd,
    /// 64-bit low products.
    Mullo,
    /// 52-bit low multiply-add; moduli up to 2^52.
    Ifma,
    /// Products of byte limbs, four to a lane.
    Vnni,
    /// Products of byte limbs in tiles.
    Amx,
    /// The tile algorithm on emulated tiles: proves it where there is no such hardware.
    EmulatedAmx,
}

impl Kernel {
    /// All kernels, on every machine whether it runs them or not.
    pub const ALL: [Kernel; 9] = [
        Kernel::Portable,
        Kernel::Neon,
        Kernel::Avx2,
        Kernel::Madd,
        Kernel::Mullo,
        Kernel::Ifma,
        Kernel::Vnni,
        Kernel::Amx,
        Kernel::EmulatedAmx,
    ];

    /// The name by which options and reports know it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Portable => "portable",
            Kernel::Neon => "neon",
            Kernel::Avx2 => "avx2",
            Kernel::Madd => "madd",
            Kernel::Mullo => "mullo",
            Kernel::Ifma => "ifma",
            Kernel::Vnni => "vnni",
            Kernel::Amx => "amx",
            Kernel::EmulatedAmx => "emulated-amx",
        }
    }

    /// The instruction set it needs.
    #[must_use]
    pub fn needs(self) -> Isa {
        match self {
            Kernel::Portable | Kernel::EmulatedAmx => Isa::Portable,
            Kernel::Neon => Isa::Neon,
            Kernel::Avx2 | Kernel::Madd => Isa::Avx2,
            Kernel::Mullo => Isa::Avx512,
            Kernel::Ifma => Isa::Ifma,
            Kernel::Vnni => Isa::Vnni,
            Kernel::Amx => Isa::Amx,
        }
    }

    /// The widest modulus it takes, in bits.
    #[must_use]
    pub fn max_modulus_bits(self) -> u32 {
        match self {
            Kernel::Ifma => 52,
            _ => 64,
        }
    }

    /// Whether it multiplies byte limbs ([`crate::Layout`]) and not whole words.
    #[must_use]
    pub fn uses_limbs(self) -> bool {
        matches!(self, Kernel::Vnni | Kernel::Amx | Kernel::EmulatedAmx)
    }

    /// Checks that this processor has the kernel and that the kernel takes the modulus.
    ///
    /// # Errors
    /// [`MatmulError::MissingInstructions`] or [`MatmulError::ModulusBits`].
    pub fn check(self, modulus_bits: u32) -> Result<(), MatmulError> {
        if self.needs().usable() != self.needs() {
            return Err(MatmulError::MissingInstructions(self.name()));
        }
        let limit = self.max_modulus_bits();
        if modulus_bits == 0 || modulus_bits > limit {
            return Err(MatmulError::ModulusBits { bits: modulus_bits, limit, kernel: self.name() });
        }
        Ok(())
    }

    /// The best kernel within `isa` for M x K weights of `weight_limbs` byte limbs, limbs packed for this product alone.
    #[must_use]
    pub fn choose(isa: Isa, m: usize, k: usize, modulus_bits: u32, weight_limbs: usize) -> Self {
        Self::choose_for_words(isa, (m, k), modulus_bits, modulus_bits, weight_limbs)
    }

    /// [`Self::choose`] for words below 2^`word_bits` where that is less than the modulus, as residues of a prime are whose sums are kept
    /// in a wider word.
    #[must_use]
    pub fn choose_for_words(
        isa: Isa,
        (m, k): (usize, usize),
        modulus_bits: u32,
        word_bits: u32,
        weight_limbs: usize,
    ) -> Self {
        let mut whole = Self::whole_words(isa, modulus_bits);
        let digits_cost = Kernel::Madd.cost(m, k, word_bits, weight_limbs);
        if whole == Kernel::Avx2 && digits_cost < whole.cost(m, k, modulus_bits, weight_limbs) {
            whole = Kernel::Madd;
        }
        match Self::limbs(isa) {
            Some(limb)
                if limb.cost(m, k, modulus_bits, weight_limbs) + packing_cost(k, modulus_bits)
                    < whole.cost(m, k, modulus_bits, weight_limbs) =>
            {
                limb
            }
            _ => whole,
        }
    }

    /// The best kernel within `isa` that works on whole words.
    #[must_use]
    pub fn whole_words(isa: Isa, modulus_bits: u32) -> Self {
        match isa.usable() {
            Isa::Portable | Isa::Relaxed => Kernel::Portable,
            Isa::Neon => Kernel::Neon,
            Isa::Avx2 => Kernel::Avx2,
            Isa::Ifma | Isa::Vnni | Isa::Amx if modulus_bits <= 52 => Kernel::Ifma,
            Isa::Avx512 | Isa::Ifma | Isa::Vnni | Isa::Amx => Kernel::Mullo,
        }
    }

    /// The best kernel within `isa` that works on byte limbs, where there is one.
    #[must_use]
    pub fn limbs(isa: Isa) -> Option<Self> {
        match isa.usable() {
            Isa::Amx => Some(Kernel::Amx),
            Isa::Vnni => Some(Kernel::Vnni),
            _ => None,
        }
    }

    /// Relative cost of sixteen words of a product, limbs being packed already.
    /// The unit is about one 512-bit multiply-add.
    #[must_use]
    pub fn cost(self, m: usize, k: usize, modulus_bits: u32, weight_limbs: usize) -> f64 {
        let (m, k) = (m as f64, k as f64);
        let words = limbs_for(modulus_bits);
        let products: usize = (0..weight_limbs).map(|j| words.saturating_sub(j)).sum();
        let quads = (k / 4.0).ceil();
        let recombination = RECOMBINATION * m * products as f64;
        match self {
            Kernel::Portable => 20.0 * m * k,
            // Twice as many instructions as with 256 bits.
            Kernel::Neon => 16.0 * m * k,
            Kernel::Avx2 => 8.0 * m * k,
            Kernel::Madd => {
                let digits = f64::from(modulus_bits.div_ceil(16).max(2));
                digits * m * k + DIGITS * k + 6.0 * digits * m
            }
            Kernel::Mullo | Kernel::Ifma => {
                let copies = if m > 12.0 { COPY * k } else { 0.0 };
                2.0 * m * k + WHOLE_WORDS * k + copies
            }
            Kernel::Vnni => m * quads * products as f64 + recombination,
            Kernel::Amx | Kernel::EmulatedAmx => {
                let tiles = (m / 16.0).ceil() * (quads / 16.0).ceil();
                1.5 * 16.0 * tiles * products as f64 + recombination
            }
        }
    }
}

/// Relative cost of reading one row of sixteen whole words.
const WHOLE_WORDS: f64 = 1.0;
/// Relative cost of copying sixteen whole words that several register tiles read.
const COPY: f64 = 8.0;
/// Relative cost of cutting one row of sixteen words into 16-bit digits.
const DIGITS: f64 = 12.0;
/// Relative cost of turning one accumulator of sixteen lanes into words.
const RECOMBINATION: f64 = 4.0;
/// Relative cost of cutting sixteen words of four rows into one limb each.
const PACKING: f64 = 8.0;

/// Relative cost of packing the limbs of sixteen words of K rows.
#[must_use]
pub fn packing_cost(k: usize, modulus_bits: u32) -> f64 {
    PACKING * k.div_ceil(4) as f64 * limbs_for(modulus_bits) as f64
}
