//! Products of two shared matrices modulo 2^l, many heads in one call: C_h = A_h B_h with A_h of n x k, B_h of k x m.
//!
//! With A = A_0 + A_1 and B = B_0 + B_1, A_0 B_0 and A_1 B_1 are local. Each party computes one cross term by ciphertexts under the *other's* key: it encrypts its
//! share of one factor, the same factor at both, and multiplies the other's encrypted share by its own share of the other factor ([`hushnet_rlwe::wide`]). It keeps one part of
//! that cross term and answers with the other. So both work at the same time, on the same number of ciphertexts, and that factor is encrypted whose layout costs less. (Lu, Huang, Gu, Li,
//! Liu, Hong, Ren, Wei, Chen, "BumbleBee", NDSS 2025, section 4, has one party encrypt both factors and the other one multiply.)
//!
//! *Places.* A cross term is a 1x1 convolution with groups: heads are groups, the inner axis the channels, rows of the encrypted factor the
//! pixels, and the plain factor the weights. So [`Layout`] with interleaved channels places it: with the left factor encrypted, its share transposed is the image (h, k, n) and
//! the right one transposed the weights (h m, k); else the right one's share is the image (h, k, m), and the left one the weights (h n, k). Useful coefficients are multiples of a spacing s, and
//! up to s output polynomials, of any tile or head, merge into one ciphertext ([`hushnet_rlwe::pack_lwe`]), so answers are dense.
//!
//! *Error.* Each cross term is exact up to one unit ([`hushnet_rlwe::wide`]), so a result is off by at most [`MOST_UNITS`] units of the product's scale, for any
//! shares. *Cost*, for each party: [`MatrixProduct::request_len`] and [`MatrixProduct::answer_len`] bytes, two messages that cross on the wire, [`MatrixProduct::cost`] operations.

mod holder;
mod multiplier;

pub use holder::MatrixHolder;
pub use multiplier::MatrixMultiplier;

use crate::batch::{expect, Conv2d, Geometry, LayerError};
use crate::layout::{Layout, LayoutPrices};
use hushnet_ring::{low_mask, pack};
use hushnet_rlwe::pack_lwe::{merge_offset, merge_steps};
use hushnet_rlwe::wide::{WideContext, WideParams, WidePublicKey, WideSpec, DATA_PRIMES, RING_DEGREE};
use zeroize::Zeroizing;

/// Units that a result may be off by: one for each cross term.
pub const MOST_UNITS: u64 = 2;
/// Bytes of the seed in front of a request, from which its c1 are expanded.
const SEED_BYTES: usize = 32;
/// The stage number under which they are: a seed serves one request.
const STAGE: u32 = 0;
/// Largest spacing of a layout: keys for merging grow with its logarithm.
const MOST_SPACING: usize = 256;
/// Seconds on one core, and bytes of whole words as over 300 Mbit/s; only ratios steer the choice of the layout.
const PRICES: LayoutPrices =
    LayoutPrices { input: 3e-3, output: 320e-9, output_poly: 600e-6, product: 30e-6, weight: 150e-6 };
/// Most elements of an operand or result.
const MOST_ELEMENTS: usize = 1 << 26;

/// Sizes of a product of shared matrices, all heads alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    /// Pairs of matrices: the heads of an attention, for one.
    pub heads: usize,
    /// Rows of the left matrix (n).
    pub rows: usize,
    /// Columns of the left matrix and rows of the right one (k).
    pub inner: usize,
    /// Columns of the right matrix (m).
    pub columns: usize,
}

impl MatrixShape {
    /// Elements of all A, of all B, of all results.
    #[must_use]
    pub fn elements(&self) -> [usize; 3] {
        let of = |a: usize, b: usize| self.heads * a * b;
        [of(self.rows, self.inner), of(self.inner, self.columns), of(self.rows, self.columns)]
    }

    /// That every size is at least one, and operands, results and products of elements are few enough.
    ///
    /// # Errors
    /// [`LayerError::Size`] with the size that is out of range.
    pub fn check(&self) -> Result<(), LayerError> {
        let sizes = [
            ("heads of a matrix product", self.heads),
            ("rows of a matrix product", self.rows),
            ("inner axis of a matrix product", self.inner),
            ("columns of a matrix product", self.columns),
        ];
        for (what, got) in sizes {
            if !(1..=MOST_ELEMENTS).contains(&got) {
                return Err(LayerError::Size { what, got, least: 1, most: MOST_ELEMENTS });
            }
        }
        for (a, b) in [(self.rows, self.inner), (self.inner, self.columns), (self.rows, self.columns)] {
            let got = self.heads.saturating_mul(a).saturating_mul(b);
            if got > MOST_ELEMENTS {
                let what = "elements of a matrix product's operand or result";
                return Err(LayerError::Size { what, got, least: 1, most: MOST_ELEMENTS });
            }
        }
        Ok(())
    }

    /// Upper bound of the steps that places and counts take ([`MatrixProduct::new`], [`MatrixProduct::answer_len`], [`MatrixProduct::cost`]): sizes of
    /// tiles and spacings that are tried, with the channels that each walks over, and output polynomials.
    #[must_use]
    pub fn layout_steps(&self) -> u64 {
        let product = |sizes: &[usize]| sizes.iter().fold(1_u64, |p, n| p.saturating_mul(*n as u64));
        let spacings = u64::from(MOST_SPACING.ilog2()) + 1;
        let term = |pixels: usize, outputs: usize| {
            let walked = product(&[self.heads, self.inner]).saturating_add(product(&[self.heads, outputs]));
            (2 * (pixels as u64).isqrt() + 1).saturating_mul(spacings).saturating_mul(walked)
        };
        let tried = term(self.rows, self.columns).saturating_add(term(self.columns, self.rows));
        tried.saturating_mul(4).saturating_add(product(&[self.heads, self.rows, self.columns]))
    }

    /// The convolution of a cross term: channels h k, as many pixels as the encrypted factor has rows, outputs h times those of the plain factor.
    fn geometry(&self, encrypted: Factor) -> Result<Geometry, LayerError> {
        let (pixels, outputs) = match encrypted {
            Factor::Left => (self.rows, self.columns),
            Factor::Right => (self.columns, self.rows),
        };
        Geometry::conv2d(Conv2d {
            input: [self.heads * self.inner, 1, pixels],
            output: [self.heads * outputs, 1, pixels],
            kernel: [1, 1],
            stride: [1, 1],
            pads: [0; 4],
            dilation: [1, 1],
            groups: self.heads,
        })
    }
}

/// Operations of each party in a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixCost {
    /// Ciphertexts of a request: encryptions, and as many of the other party's to transform.
    pub requests: usize,
    /// Products of a ciphertext and a plain polynomial.
    pub products: usize,
    /// Plain polynomials that are transformed.
    pub plain: usize,
    /// Automorphisms that merge answers into fewer ciphertexts.
    pub merges: usize,
    /// Ciphertexts of an answer: re-randomised, and as many of the other party's to open.
    pub answers: usize,
}

/// A factor of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Factor {
    Left,
    Right,
}

/// A cross term: places and parameters, the same for both.
#[derive(Clone, Debug)]
struct Term {
    encrypted: Factor,
    layout: Layout,
    params: WideParams,
}

/// An output polynomial of a cross term: its tile and its block.
type OutputPoly = (usize, usize);

impl Term {
    /// With one factor encrypted.
    fn new(shape: &MatrixShape, encrypted: Factor, ring_bits: u32) -> Result<Self, LayerError> {
        let geometry = shape.geometry(encrypted)?;
        let layout = Layout::choose_within(&geometry, RING_DEGREE, &PRICES, MOST_SPACING)?;
        // Every output channel of a block meets the whole inner axis of its head.
        let terms = layout.outputs_per_poly() * shape.inner;
        let params = WideSpec { ring_bits, terms, spacing: layout.spacing() }.choose()?;
        Ok(Self { encrypted, layout, params })
    }

    /// With the factor encrypted whose layout is cheaper.
    fn choose(shape: &MatrixShape, ring_bits: u32) -> Result<Self, LayerError> {
        let right = Self::new(shape, Factor::Right, ring_bits)?;
        let left = Self::new(shape, Factor::Left, ring_bits)?;
        let less = left.layout.seconds(&PRICES) < right.layout.seconds(&PRICES);
        Ok(if less { left } else { right })
    }

    fn input_polys(&self) -> usize {
        self.layout.tiles() * self.layout.input_blocks()
    }

    fn output_polys(&self) -> usize {
        self.layout.tiles() * self.layout.output_blocks()
    }

    /// Output polynomials of each merged ciphertext, in order: all tiles of a block stand side by side, so that they share plain polynomials.
    fn groups(&self) -> impl ExactSizeIterator<Item = Vec<OutputPoly>> + '_ {
        let (s, tiles, all) = (self.layout.spacing(), self.layout.tiles(), self.output_polys());
        (0..all.div_ceil(s))
            .map(move |g| (g * s..((g + 1) * s).min(all)).map(|i| (i % tiles, i / tiles)).collect())
    }

    /// Useful coefficients of a merged ciphertext, and the elements that stand there.
    fn places(&self, group: &[OutputPoly]) -> (Vec<usize>, Vec<usize>) {
        let (mut places, mut elements) = (Vec::new(), Vec::new());
        for (at, (tile, block)) in group.iter().enumerate() {
            let offset = merge_offset(at, group.len(), self.layout.spacing());
            let (of_poly, of) = self.layout.output_places(*tile, *block, 1);
            places.extend(of_poly.into_iter().map(|place| place + offset));
            elements.extend(of);
        }
        (places, elements)
    }

    /// Bytes of a merged ciphertext: c1.
    fn part_len(&self) -> usize {
        pack::packed_len(RING_DEGREE, self.params.response_bits())
    }

    /// How far apart weights of neighbouring outputs stand in a plain polynomial.
    fn step(&self) -> usize {
        self.layout.spacing() * self.layout.tile_pixels()
    }

    /// Blocks of a group: each once.
    fn blocks(group: &[OutputPoly]) -> std::ops::Range<usize> {
        let block = |at: Option<&OutputPoly>| at.map_or(0, |(_, block)| *block);
        block(group.first())..block(group.last()) + 1
    }

    /// Plain polynomials that a group needs.
    fn plain_polys(&self, group: &[OutputPoly]) -> usize {
        Self::blocks(group).map(|j| self.layout.inputs_of(j).len()).sum()
    }
}

/// What both parties derive of a product: places and parameters of its cross terms. Public.
#[derive(Clone, Debug)]
pub struct MatrixProduct {
    shape: MatrixShape,
    ring_bits: u32,
    term: Term,
}

impl MatrixProduct {
    /// For shares modulo 2^`ring_bits` of a checked shape.
    ///
    /// # Errors
    /// As [`MatrixShape::check`]; what [`Layout::choose`] and [`WideSpec::choose`] refuse: rings above about 43 bits.
    pub fn new(shape: MatrixShape, ring_bits: u32) -> Result<Self, LayerError> {
        shape.check()?;
        Ok(Self { shape, ring_bits, term: Term::choose(&shape, ring_bits)? })
    }

    /// The sizes that it was made for.
    #[must_use]
    pub fn shape(&self) -> &MatrixShape {
        &self.shape
    }

    /// Bytes of each party's request: a seed, then ciphertexts.
    #[must_use]
    pub fn request_len(&self) -> usize {
        SEED_BYTES + self.term.input_polys() * self.term.params.request_len()
    }

    /// Bytes of each party's answer.
    #[must_use]
    pub fn answer_len(&self) -> usize {
        self.term.groups().len() * self.term.part_len()
    }

    /// Most bytes that a party holds beside messages and shares: ciphertexts of a cross term, plain polynomials of all its groups.
    #[must_use]
    pub fn working_bytes(&self) -> usize {
        let polynomial = DATA_PRIMES * RING_DEGREE * size_of::<u64>();
        let plain: usize = self.term.groups().map(|g| self.term.plain_polys(&g)).sum();
        polynomial * (2 * self.term.input_polys() + plain)
    }

    /// Spacing that both parties' merging keys must reach, a power of two.
    #[must_use]
    pub fn spacing(&self) -> usize {
        self.term.layout.spacing()
    }

    /// Bytes of a party's keys for products up to a spacing, once a session: the public key, then merging keys.
    #[must_use]
    pub fn key_len(context: &WideContext, spacing: usize) -> usize {
        WidePublicKey::byte_len() + context.merge().keys_len(spacing)
    }

    /// Operations of each party, exactly.
    #[must_use]
    pub fn cost(&self) -> MatrixCost {
        let (term, cost) = (&self.term, self.term.layout.cost());
        MatrixCost {
            requests: cost.input_polys,
            products: cost.products,
            plain: term.groups().map(|g| term.plain_polys(&g)).sum(),
            merges: term.groups().map(|g| merge_steps(g.len(), term.layout.spacing())).sum(),
            answers: term.groups().len(),
        }
    }

    /// Most fraction of results that is off by a unit or two.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn off_fraction(&self) -> Result<f64, LayerError> {
        Ok(2.0 * self.term.params.off_by_one_fraction()?)
    }

    /// A party's share of the encrypted one of a (h, n, k) and b (h, k, m), as the image of a cross term; `room` holds it where it is transposed.
    fn image<'a>(&self, a: &'a [u64], b: &'a [u64], room: &'a mut Transposed) -> &'a [u64] {
        match self.term.encrypted {
            Factor::Left => room.insert(transposed(a, self.shape.rows, self.shape.inner)),
            Factor::Right => b,
        }
    }

    /// A party's share of the plain one, as the weights of a cross term; `room` as for [`Self::image`].
    fn weights<'a>(&self, a: &'a [u64], b: &'a [u64], room: &'a mut Transposed) -> &'a [u64] {
        match self.term.encrypted {
            Factor::Left => room.insert(transposed(b, self.shape.inner, self.shape.columns)),
            Factor::Right => a,
        }
    }

    /// That a party's shares are whole operands.
    fn whole(&self, a: &[u64], b: &[u64]) -> Result<(), LayerError> {
        let [len_a, len_b, _] = self.shape.elements();
        expect("first operand's share", len_a, a.len())?;
        expect("second operand's share", len_b, b.len())
    }

    /// Adds shares of a cross term's elements to a party's share of the result.
    fn add(&self, elements: Vec<usize>, shares: Vec<u64>, own: &mut [u64]) {
        let mask = low_mask(self.ring_bits);
        for (e, share) in elements.into_iter().zip(shares) {
            let at = self.result_element(e);
            own[at] = own[at].wrapping_add(share) & mask;
        }
    }

    /// A_i B_i of one party's shares a (h, n, k) and b (h, k, m), modulo 2^l, row-major (h, n, m): what its share of the result begins with.
    ///
    /// # Errors
    /// [`LayerError::Length`] unless shares are whole operands.
    pub fn local(&self, a: &[u64], b: &[u64]) -> Result<Vec<u64>, LayerError> {
        self.whole(a, b)?;
        let MatrixShape { heads, rows, inner, columns } = self.shape;
        let mask = low_mask(self.ring_bits);
        let mut out = vec![0u64; heads * rows * columns];
        for (row, out) in out.chunks_exact_mut(columns).enumerate() {
            let (h, i) = (row / rows, row % rows);
            for j in 0..inner {
                let x = a[(h * rows + i) * inner + j];
                let y = &b[(h * inner + j) * columns..][..columns];
                out.iter_mut().zip(y).for_each(|(o, y)| *o = o.wrapping_add(x.wrapping_mul(*y)));
            }
            out.iter_mut().for_each(|o| *o &= mask);
        }
        Ok(out)
    }

    /// Element (h, i, c) of the result at element e of a cross term's output.
    fn result_element(&self, e: usize) -> usize {
        let MatrixShape { rows, columns, .. } = self.shape;
        if self.term.encrypted == Factor::Right {
            return e;
        }
        let (h, c, i) = (e / rows / columns, e / rows % columns, e % rows);
        (h * rows + i) * columns + c
    }
}

/// Room for a transposed share, wiped on drop.
type Transposed = Option<Zeroizing<Vec<u64>>>;

/// Matrices (h, a, b), each transposed: (h, b, a).
fn transposed(x: &[u64], rows: usize, columns: usize) -> Zeroizing<Vec<u64>> {
    let mut out = Zeroizing::new(vec![0; x.len()]);
    for (from, to) in x.chunks_exact(rows * columns).zip(out.chunks_exact_mut(rows * columns)) {
        for (i, row) in from.chunks_exact(columns).enumerate() {
            row.iter().enumerate().for_each(|(j, v)| to[j * rows + i] = *v);
        }
    }
    out
}

#[cfg(test)]
mod tests;
