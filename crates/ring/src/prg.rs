//! Random generators of keys and errors, and the public masks: AES-128 in counter mode, and ChaCha for browsers.

#![allow(unsafe_code)]

use crate::aes128::{self, Aes128};
use crate::chacha::ChaCha;
use crate::error::expect_bits;
use crate::ledger;
#[cfg(target_arch = "x86_64")]
use crate::vaes;
use crate::{low_mask, simd, Isa, RingError};
use zeroize::Zeroize;

/// Blocks of bytes made in one go.
const BULK: usize = 32;

/// Key of the generator of what one party alone draws.
#[cfg(target_family = "wasm")]
type OwnKey = [u8; 32];
#[cfg(not(target_family = "wasm"))]
type OwnKey = [u8; 16];

/// A keyed AES-128.
enum Cipher {
    /// For every machine.
    Portable(Box<Aes128>),
    /// Where AES has no instructions, and for what such a machine has sent.
    ChaCha(ChaCha),
    /// Only where the processor has AVX-512 and VAES.
    #[cfg(target_arch = "x86_64")]
    Vaes(vaes::Schedule),
    /// Only where the processor has AVX2 and VAES.
    #[cfg(target_arch = "x86_64")]
    Narrow(vaes::Schedule),
}

/// Counter blocks: block `i` is `first + i step`, in little-endian halves each modulo 2^64.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    pub(crate) first: [u64; 2],
    pub(crate) step: [u64; 2],
}

impl Cipher {
    fn new(key: &[u8; 16], isa: Isa) -> Self {
        #[cfg(target_arch = "x86_64")]
        if isa.usable() >= Isa::Ifma {
            // SAFETY: `Isa::Ifma` includes AES and AVX.
            return Cipher::Vaes(unsafe { vaes::Schedule::new(key) });
        }
        #[cfg(target_arch = "x86_64")]
        if isa.usable() >= Isa::Avx2 && vaes::narrow::usable() {
            // SAFETY: AES and AVX2 were found.
            return Cipher::Narrow(unsafe { vaes::Schedule::new(key) });
        }
        let _ = isa;
        Cipher::Portable(Box::new(Aes128::new(key)))
    }

    /// Words `2i, 2i+1` of `out` become the masked halves of the encrypted block `i`.
    fn keystream(&self, blocks: Blocks, mask: u64, out: &mut [u64]) {
        match self {
            Cipher::Portable(cipher) => aes128::keystream(cipher, blocks, mask, out),
            Cipher::ChaCha(c) => {
                c.keystream(blocks.first[0] / 4, out);
                if mask != u64::MAX {
                    out.iter_mut().for_each(|w| *w &= mask);
                }
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant exists only where the processor has AVX-512 and VAES.
            Cipher::Vaes(s) => unsafe { vaes::keystream(s, blocks, mask, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this variant exists only where the processor has AVX2 and VAES.
            Cipher::Narrow(s) => unsafe { vaes::narrow::keystream(s, blocks, mask, out) },
        }
    }
}

/// Cryptographic generator: block `i` of its stream is AES-128 of the little-endian 128-bit `i`. In WebAssembly, a generator that the operating
/// system has seeded is ChaCha instead, which is several times faster there: no other party makes its stream.
///
/// Every call starts at a fresh block and discards what it does not need of the last one. No
/// `Debug`; the key schedule is wiped on drop.
pub struct Prg {
    cipher: Cipher,
    counter: u64,
    isa: Isa,
    stream: ledger::Stream,
}

impl Prg {
    /// Seeded by the operating system.
    ///
    /// # Errors
    /// [`RingError::Entropy`] when the operating system has no randomness to give.
    pub fn from_os() -> Result<Self, RingError> {
        let mut key = OwnKey::default();
        getrandom::fill(&mut key).map_err(|e| RingError::Entropy(e.to_string()))?;
        ledger::bytes(ledger::ENTROPY, &mut key);
        Ok(Self::of_own_key(&mut key))
    }

    /// A generator for this party alone, keyed from the stream of this one; the key is recorded as `kind`.
    #[must_use]
    pub fn fork(&mut self, kind: ledger::Kind) -> Self {
        let mut key = OwnKey::default();
        self.fill_bytes(&mut key);
        ledger::bytes(kind, &mut key);
        Self::of_own_key(&mut key)
    }

    /// What no other party makes: the target's fastest generator. The key is wiped.
    fn of_own_key(key: &mut OwnKey) -> Self {
        #[cfg(target_family = "wasm")]
        let prg = Self::chacha(*key);
        #[cfg(not(target_family = "wasm"))]
        let prg = Self::from_seed(*key);
        key.zeroize();
        prg
    }

    /// ChaCha with twelve rounds under a key: block `i` of its stream, 64 bytes, is that of the counter `i`, the nonce being 0. As
    /// [`Self::from_seed`], a key must never serve twice for secrets.
    #[must_use]
    pub fn chacha(mut key: [u8; 32]) -> Self {
        let cipher = Cipher::ChaCha(ChaCha::new(&key));
        let stream = ledger::Stream::new(ledger::GENERATOR, &key);
        key.zeroize();
        Self { cipher, counter: 0, isa: simd::isa(), stream }
    }

    /// With a given seed: for tests, and for deriving streams from a seed that is itself random.
    /// Two generators of one seed give the same stream, so a seed must never serve twice for secrets.
    #[must_use]
    pub fn from_seed(seed: [u8; 16]) -> Self {
        Self::from_seed_with(seed, simd::isa())
    }

    /// [`Self::from_seed`] on an explicit instruction set (the stream does not depend on it).
    #[must_use]
    pub fn from_seed_with(mut seed: [u8; 16], isa: Isa) -> Self {
        let cipher = Cipher::new(&seed, isa);
        let stream = ledger::Stream::new(ledger::GENERATOR, &seed);
        seed.zeroize();
        Self { cipher, counter: 0, isa: isa.usable(), stream }
    }

    /// For a stream that is made more than once by design: public, or of a message that is made anew. The ledger of tests does not hear of
    /// it, so the caller records what must not come twice.
    #[must_use]
    pub fn untracked(mut self) -> Self {
        self.stream.rename(None);
        self
    }

    /// Whether it is ChaCha, which is faster where AES has no instructions.
    #[must_use]
    pub fn is_chacha(&self) -> bool {
        matches!(self.cipher, Cipher::ChaCha(_))
    }

    /// The instruction set that samplers on this generator use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Fills `out` with the next `ceil(len / 16)` blocks.
    pub fn fill_bytes(&mut self, out: &mut [u8]) {
        let mut words = [0; 2 * BULK];
        for chunk in out.chunks_mut(16 * BULK) {
            let needed = chunk.len().div_ceil(8);
            self.fill_words(&mut words[..needed]);
            for (bytes, word) in chunk.chunks_mut(8).zip(&words) {
                bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            }
        }
        words.zeroize();
    }

    /// Fills `out` with little-endian words of the next `ceil(len / 2)` blocks.
    pub fn fill_words(&mut self, out: &mut [u64]) {
        let blocks = self.take_blocks(out.len().div_ceil(2));
        self.cipher.keystream(blocks, u64::MAX, out);
    }

    /// The next `count` counter blocks, which are then used up.
    fn take_blocks(&mut self, count: usize) -> Blocks {
        // A block of ChaCha is four of AES.
        let count = if matches!(self.cipher, Cipher::ChaCha(_)) { count.next_multiple_of(4) } else { count };
        let first = self.counter;
        self.counter = first.wrapping_add(count as u64);
        self.stream.take(first.into(), count as u64);
        Blocks { first: [first, 0], step: [1, 0] }
    }

    /// Runs the vector sampler where there is one; whether it did.
    pub(crate) fn add_errors(&mut self, _words: &mut [u64], _blocks: usize) -> bool {
        #[cfg(target_arch = "x86_64")]
        if !matches!(self.cipher, Cipher::Portable(_) | Cipher::ChaCha(_)) {
            let blocks = self.take_blocks(_blocks);
            match &self.cipher {
                // SAFETY: this variant exists only for `Isa::Ifma`, which includes all that is needed.
                Cipher::Vaes(s) => unsafe { vaes::centred_binomial_add(s, blocks, _words) },
                // SAFETY: this variant exists only where the processor has AVX2 and VAES.
                Cipher::Narrow(s) => unsafe { vaes::narrow::centred_binomial_add(s, blocks, _words) },
                Cipher::Portable(_) | Cipher::ChaCha(_) => {}
            }
            return true;
        }
        false
    }
}

/// Words of the longest mask: the counter of its blocks has 32 bits.
const MASK_WORDS: u64 = 1 << 33;

/// Public mask polynomials (`docs/wire-protocol.md`): word `j` is the low `modulus_bits` of the `j`-th
/// little-endian u64 of the AES-128-CTR keystream under a key, with the counter block
/// `nonce[0], nonce[1], nonce[2], counter = 0, 1, ...` (four little-endian u32). The key is public.
pub struct MaskStream {
    cipher: Cipher,
}

impl MaskStream {
    /// Expands the key, once for any number of masks.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        Self::with_isa(key, simd::isa())
    }

    /// [`Self::new`] on an explicit instruction set (the words do not depend on it).
    #[must_use]
    pub fn with_isa(key: &[u8; 16], isa: Isa) -> Self {
        Self { cipher: Cipher::new(key, isa) }
    }

    /// Words `start..start + out.len()` of the mask of `nonce`; `start` must be even.
    ///
    /// # Errors
    /// [`RingError::ModulusBits`] unless `modulus_bits` is 1 to 64; [`RingError::Length`] when `start` is odd, or
    /// above 2^33 words, where the counter would wrap.
    pub fn words(
        &self,
        nonce: [u32; 3],
        start: usize,
        modulus_bits: u32,
        out: &mut [u64],
    ) -> Result<(), RingError> {
        expect_bits(modulus_bits)?;
        let end = start as u64 + out.len() as u64;
        if end > MASK_WORDS || !start.is_multiple_of(2) {
            let most = usize::try_from(MASK_WORDS).unwrap_or(usize::MAX);
            return Err(RingError::Length { what: "mask", expected: most, got: start });
        }
        let counter = (start as u64 / 2) << 32;
        let first = [u64::from(nonce[0]) | u64::from(nonce[1]) << 32, u64::from(nonce[2]) | counter];
        let blocks = Blocks { first, step: [0, 1 << 32] };
        self.cipher.keystream(blocks, low_mask(modulus_bits), out);
        Ok(())
    }
}

/// The first words of the mask of `tensor, feature, block` ([`MaskStream`]).
///
/// # Errors
/// As [`MaskStream::words`].
pub fn expand_words(
    key: &[u8; 16],
    tensor: u32,
    feature: u32,
    block: u32,
    modulus_bits: u32,
    out: &mut [u64],
) -> Result<(), RingError> {
    MaskStream::new(key).words([tensor, feature, block], 0, modulus_bits, out)
}

/// [`expand_words`] on an explicit instruction set; `nonce` is `[tensor, feature, block]`.
///
/// # Errors
/// As [`expand_words`].
pub fn expand_words_with(
    isa: Isa,
    key: &[u8; 16],
    nonce: [u32; 3],
    modulus_bits: u32,
    out: &mut [u64],
) -> Result<(), RingError> {
    MaskStream::with_isa(key, isa).words(nonce, 0, modulus_bits, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::{BlockEncrypt, KeyInit};
    use aes::Block;

    /// FIPS 197, appendix C.1: the block cipher is AES-128 in the right byte order, on every path.
    #[test]
    fn keystream_is_aes_128() {
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let plain = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.swap_bytes();
        let cipher_text = 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128.swap_bytes();
        for isa in simd::available() {
            let mut out = [0; 2];
            let blocks = Blocks { first: [plain as u64, (plain >> 64) as u64], step: [1, 0] };
            Cipher::new(&key, isa).keystream(blocks, u64::MAX, &mut out);
            assert_eq!(u128::from(out[0]) | u128::from(out[1]) << 64, cipher_text, "{isa:?}");
        }
    }

    #[test]
    fn masks_follow_the_wire_protocol() {
        let key = [7; 16];
        for isa in simd::available() {
            for (len, k) in [(1, 64), (2, 1), (64, 42), (65, 53), (2048, 64), (1000, 24)] {
                let mut out = vec![0; len];
                expand_words_with(isa, &key, [1, 2, u32::MAX], k, &mut out).unwrap();
                for (j, &word) in out.iter().enumerate() {
                    let mut block = [0; 16];
                    block[0] = 1;
                    block[4] = 2;
                    block[8..12].fill(0xff);
                    block[12..].copy_from_slice(&(j as u32 / 2).to_le_bytes());
                    let mut block = Block::from(block);
                    aes::Aes128::new(&key.into()).encrypt_block(&mut block);
                    let half: [u8; 8] = block[j % 2 * 8..][..8].try_into().unwrap();
                    assert_eq!(word, u64::from_le_bytes(half) & low_mask(k), "{isa:?} word {j} k {k}");
                }
            }
        }
        for isa in simd::available() {
            let stream = MaskStream::with_isa(&key, isa);
            let mut whole = vec![0; 700];
            stream.words([5, 6, 7], 0, 42, &mut whole).unwrap();
            for (start, end) in [(0, 700), (2, 3), (16, 272), (130, 130), (688, 700)] {
                let mut part = vec![0; end - start];
                stream.words([5, 6, 7], start, 42, &mut part).unwrap();
                assert_eq!(part, whole[start..end], "{isa:?} {start}..{end}");
            }
            assert!(stream.words([0; 3], 1, 42, &mut whole).is_err());
            // No 32-bit machine has a place so far behind.
            if let Ok(end) = usize::try_from(MASK_WORDS) {
                assert!(stream.words([0; 3], end - 2, 42, &mut whole[..3]).is_err());
                assert!(stream.words([0; 3], end - 2, 42, &mut whole[..2]).is_ok());
            }
        }
        assert!(expand_words(&key, 0, 0, 0, 0, &mut []).is_err());
        assert!(expand_words(&key, 0, 0, 0, 65, &mut []).is_err());
    }

    #[test]
    fn the_stream_does_not_depend_on_the_instruction_set_nor_repeat() {
        let mut streams = Vec::new();
        for isa in simd::available() {
            let mut prg = Prg::from_seed_with([3; 16], isa);
            let mut stream = Vec::new();
            for len in [1, 16, 17, 1000, 0, 5000] {
                let mut bytes = vec![0; len];
                prg.fill_bytes(&mut bytes);
                stream.extend_from_slice(&bytes);
            }
            let mut words = vec![0; 333];
            prg.fill_words(&mut words);
            stream.extend(words.iter().flat_map(|w| w.to_le_bytes()));
            streams.push(stream);
        }
        assert!(streams.windows(2).all(|s| s[0] == s[1]));
        let distinct: std::collections::HashSet<_> = streams[0][40..].chunks_exact(16).collect();
        assert_eq!(distinct.len(), streams[0][40..].chunks_exact(16).len());
        let mut other = [0; 16];
        Prg::from_os().unwrap().fill_bytes(&mut other);
        assert_ne!(other, [0; 16]);
    }

    /// The stream of ChaCha (its vectors: `chacha`), whatever is asked at a time, and samplers on it, which have no vectors of their own.
    #[test]
    fn chacha_is_a_generator_as_the_others_are() {
        let key = std::array::from_fn(|i| 3 * i as u8);
        let mut whole = [0; 64];
        ChaCha::new(&key).keystream(0, &mut whole);
        let mut prg = Prg::chacha(key);
        for (start, len) in [(0, 3), (8, 8), (16, 9), (32, 32)] {
            let mut part = vec![0; len];
            prg.fill_words(&mut part);
            assert_eq!(part, whole[start..start + len]);
        }
        let (mut a, mut b) = (vec![0; 100], vec![0; 100]);
        crate::sample::centred_binomial_add(&mut Prg::chacha(key), &mut a);
        let mut words = vec![0; 4 * 24];
        ChaCha::new(&key).keystream(0, &mut words);
        for (words, samples) in words.chunks(24).zip(b.chunks_mut(32)) {
            crate::kernels::add_coins(Isa::Portable, &words.try_into().unwrap(), samples);
        }
        assert_eq!(a, b);
    }

    #[test]
    fn forks_are_of_their_own_and_leave_the_stream() {
        let mut prg = Prg::from_os().unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..20 {
            let mut words = [0; 9];
            prg.fork(ledger::GENERATOR).fill_words(&mut words);
            assert!(words.into_iter().all(|w| seen.insert(w)));
            prg.fill_words(&mut words);
            assert!(words.into_iter().all(|w| seen.insert(w)));
        }
    }

    /// Whatever generator the target has for it: no word of a request comes again in a later one, whatever their lengths.
    #[test]
    fn requests_of_a_generator_of_the_system_are_apart() {
        let mut prg = Prg::from_os().unwrap();
        let mut seen = std::collections::HashSet::new();
        for len in [1, 2, 3, 7, 8, 9, 31, 32, 33, 64, 100, 1] {
            let mut words = vec![0; len];
            prg.fill_words(&mut words);
            assert!(words.into_iter().all(|w| seen.insert(w)), "{len}");
        }
    }
}
