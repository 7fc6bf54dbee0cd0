//! The hot kernels: fixed-key AES hashing, plane extraction, bit transposes, the sparse code of the silent OT.
//! One file an instruction set, `portable` for every machine; tests hold all that the machine has equal bit for bit.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use hushnet_ring::aes128::Aes128;

use crate::block::Block;
use crate::select::equal_mask;

pub(crate) use lanes::{Lanes, Offered, Polynomial};

/// Blocks hashed at a time by the callers.
pub(crate) const GROUP: usize = 64;

/// A fixed-key permutation pi = AES-128 and the hash H(x) = pi(s(x)) ^ s(x), s(hi|lo) = (hi ^ lo | hi): circular
/// correlation robust when pi is modelled as a random permutation (Guo, Katz, Wang, Yu 2020, section 7.3).
#[derive(Clone)]
pub(crate) struct FixedKey(Keyed);

/// The round keys, for the path that uses them.
#[derive(Clone)]
enum Keyed {
    Portable(Box<Aes128>),
    #[cfg(target_arch = "x86_64")]
    Aesni(avx2::aesni::Key),
    #[cfg(target_arch = "x86_64")]
    Vaes(avx2::vaes::Key),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Key),
}

impl Keyed {
    fn portable(key: Block) -> Self {
        Self::Portable(Box::new(Aes128::new(&key.to_le_bytes())))
    }

    /// The paths beside the portable one that the machine has, best first.
    #[cfg(target_arch = "x86_64")]
    fn fast(key: Block) -> impl Iterator<Item = Self> {
        let paths: [fn(Block) -> Option<Self>; 3] = [
            |key| avx512::Key::new(key).map(Self::Avx512),
            |key| avx2::vaes::Key::new(key).map(Self::Vaes),
            |key| avx2::aesni::Key::new(key).map(Self::Aesni),
        ];
        paths.into_iter().filter_map(move |path| path(key))
    }

    /// There is none here.
    #[cfg(not(target_arch = "x86_64"))]
    fn fast(_: Block) -> impl Iterator<Item = Self> {
        std::iter::empty()
    }
}

/// The kernel of the key's path.
macro_rules! on {
    ($key:expr, $kernel:ident $(::<$p:ident>)? ($($arg:expr),*)) => {
        match &$key.0 {
            Keyed::Portable(k) => portable::$kernel$(::<$p>)?(k, $($arg),*),
            #[cfg(target_arch = "x86_64")]
            Keyed::Aesni(k) => avx2::aesni::$kernel$(::<$p>)?(k, $($arg),*),
            #[cfg(target_arch = "x86_64")]
            Keyed::Vaes(k) => avx2::vaes::$kernel$(::<$p>)?(k, $($arg),*),
            #[cfg(target_arch = "x86_64")]
            Keyed::Avx512(k) => avx512::$kernel$(::<$p>)?(k, $($arg),*),
        }
    };
}

impl FixedKey {
    pub(crate) fn new(key: Block) -> Self {
        Self(Keyed::fast(key).next().unwrap_or_else(|| Keyed::portable(key)))
    }

    /// out[i] = H(input[i] ^ offset).
    pub(crate) fn hash(&self, input: &[Block], offset: Block, out: &mut [Block]) {
        debug_assert_eq!(input.len(), out.len());
        on!(self, hash(input, offset, out));
    }

    /// out[i] = H(input[i] ^ offset, first + 2 i) with the tweakable hash H(x, j) = pi(pi(x) ^ j) ^ pi(x): tweakable circular
    /// correlation robust when pi is modelled as a random permutation (Guo, Katz, Wang, Yu 2020, section 7.4).
    pub(crate) fn tweaked(&self, input: &[Block], offset: Block, first: u64, out: &mut [Block]) {
        debug_assert_eq!(input.len(), out.len());
        on!(self, tweaked(input, offset, first, out));
    }

    /// One level of a correlated GGM tree: for i < w, left = H(nodes[i]), right = nodes[i] ^ left;
    /// nodes[i] = left, nodes[w+i] = right. Returns the XOR of the left children.
    pub(crate) fn grow(&self, nodes: &mut [Block], w: usize) -> Block {
        on!(self, grow(nodes, w))
    }

    /// [`Self::grow`] after XORing `value` into node `at`, which is secret (none where `at` is w or more): every node is read and
    /// written alike.
    pub(crate) fn grow_patched(&self, nodes: &mut [Block], w: usize, at: u64, value: Block) -> Block {
        on!(self, grow_patched(nodes, w, at, value))
    }

    /// The XOR of the left children of all nodes, as [`Self::grow`] returns it, of a level whose children nobody needs.
    pub(crate) fn lefts(&self, nodes: &[Block]) -> Block {
        on!(self, lefts(nodes))
    }

    /// Clears bit 0 of all nodes and XORs `value` into node `at`, which is secret (none where `at` is behind the last): every node is read and
    /// written alike.
    pub(crate) fn seal(&self, nodes: &mut [Block], at: u64, value: Block) {
        on!(self, seal(nodes, at, value));
    }

    /// The low words of H(blocks ^ offset): pads of terms of products.
    pub(crate) fn words(&self, blocks: &[Block; GROUP], offset: Block) -> Lanes {
        on!(self, words(blocks, offset))
    }

    /// Up to 16 bit planes of H(blocks ^ offset): plane 0 bit 127, 1 bit 63, 2 bit 126, 3 bit 62, and so on.
    pub(crate) fn planes<const P: usize>(&self, blocks: &[Block; GROUP], offset: Block) -> [u64; P] {
        on!(self, planes::<P>(blocks, offset))
    }

    /// Bit 0 of 64 blocks: the choice bits of correlated OTs.
    pub(crate) fn choices(&self, blocks: &[Block; GROUP]) -> u64 {
        on!(self, choices(blocks))
    }

    /// One term of a product at the holder of the elements: what is sent, p0 - p1 + element within the payload's bits, and this party's share, less
    /// p0 * 2^shift, modulo 2^64.
    pub(crate) fn offer(&self, term: &Offered<'_>, sent: &mut Lanes, share: &mut Lanes) {
        on!(self, offer(term, sent, share));
    }

    /// One term of a product at the holder of the bits, before the payloads come: adds the pads times 2^shift to this party's share, modulo 2^64.
    pub(crate) fn keep(&self, pads: &Lanes, shift: u32, share: &mut Lanes) {
        on!(self, keep(pads, shift, share));
    }

    /// The same once they are here: adds bit * received * 2^shift, modulo 2^64.
    pub(crate) fn collect(&self, bits: u64, received: &Lanes, shift: u32, share: &mut Lanes) {
        on!(self, collect(bits, received, shift, share));
    }

    /// Puts the polynomial's values at the places into the words, whose field is zero.
    pub(crate) fn evaluate(&self, of: &Polynomial<'_>, places: &Lanes, words: &mut Lanes) {
        on!(self, evaluate(of, places, words));
    }

    /// One step of a table's turn: for the values whose bit `step` of the turn is set, entry c + 2^step comes to place c, modulo the table's length.
    pub(crate) fn turn(&self, table: &[Lanes], turn: &Lanes, step: u32, next: &mut [Lanes]) {
        on!(self, turn(table, turn, step, next));
    }

    /// Rows of a local code whose table falls into groups of 2^log_group entries, 16 at most: XORs one entry of each group into each row. Row
    /// `first` + i takes from group j the entry that the 16-bit word i % 8 of pi((first + i) / 8 + 2^64 j) names, modulo the group's length.
    /// `first` is a multiple of 8. The work goes by one or two groups at a time, so that many rows should come: groups are then read from a near cache.
    ///
    /// # Panics
    /// When the groups do not divide the table, or are longer than 2^16.
    pub(crate) fn encode(&self, first: u64, table: &[Block], log_group: u32, rows: &mut [Block]) {
        on!(self, encode(first, table, log_group, rows));
    }
}

/// What the kernels of [`FixedKey::encode`] rely on.
#[cfg(target_arch = "x86_64")]
fn check_code(first: u64, table: &[Block], log_group: u32) {
    assert!(log_group <= 16 && table.len().trailing_zeros() >= log_group && first.is_multiple_of(8));
}

/// `value` at place `at` modulo N among zeros, by masks.
pub(crate) fn spread<const N: usize>(at: u64, value: Block) -> [Block; N] {
    std::array::from_fn(|i| value & equal_mask(i as u64, at % N as u64))
}

/// Says that these blocks are read next: the cache may bring them while something else is computed.
pub(crate) fn read_next(blocks: &[Block]) {
    #[cfg(target_arch = "x86_64")]
    x86::read_next(blocks);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = blocks;
}

/// Transposes 64x64 bits in place: bit j of word i becomes bit i of word j.
pub(crate) fn transpose64(m: &mut [u64; 64]) {
    #[cfg(target_arch = "x86_64")]
    if avx512::transpose64(m) || avx2::transpose64(m) {
        return;
    }
    portable::transpose64(m);
}
