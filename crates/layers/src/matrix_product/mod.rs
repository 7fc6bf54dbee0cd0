//! Products of two shared matrices modulo 2^l, many heads in one call: C_h = A_h B_h with A_h of n x k, B_h of k x m.
//!
//! With A = A_0 + A_1 and B = B_0 + B_1 (party 0 the server), A_0 B_0 and A_1 B_1 are local. The client encrypts its shares of *both* operands
//! in one request; the server multiplies them with its own ([`hushnet_rlwe::wide`]), keeps one part of A_1 B_0 and A_0 B_1 and answers with the other. One key,
//! of the client, is enough (Lu, Huang, Gu, Li, Liu, Hong, Ren, Wei, Chen, "BumbleBee", NDSS 2025, section 4, has one party encrypt both factors, too).
//!
//! *Places.* A cross term is a 1x1 convolution with groups: heads are groups, the inner axis the channels, rows of the encrypted factor the
//! pixels, and the plain factor the weights. So [`Layout`] with interleaved channels places it: term 0 has A_1 transposed as image (h, k, n) and B_0
//! transposed as weights (h m, k), term 1 has B_1 as image (h, k, m) and A_0 as weights (h n, k). Useful coefficients are multiples of a spacing s, and
//! up to s output polynomials, of any tile or head, merge into one ciphertext ([`hushnet_rlwe::pack_lwe`]), so answers are dense.
//!
//! *Error.* Each cross term is exact up to one unit ([`hushnet_rlwe::wide`]), so a result is off by at most [`MOST_UNITS`] units of the product's scale, for any
//! shares. *Cost*: [`MatrixProduct::request_len`] bytes up, [`MatrixProduct::answer_len`] bytes down, two messages, [`MatrixProduct::cost`] operations.

mod client;
mod server;

pub use client::MatrixClient;
pub use server::{MatrixServer, MatrixSession};

use crate::batch::{Conv2d, Geometry, LayerError};
use crate::layout::{Layout, LayoutPrices};
use hushnet_ring::{low_mask, pack};
use hushnet_rlwe::pack_lwe::{merge_offset, merge_steps};
use hushnet_rlwe::wide::{WideContext, WideParams, WidePublicKey, WideSpec, DATA_PRIMES, RING_DEGREE};

/// Units that a result may be off by: one for each cross term.
pub const MOST_UNITS: u64 = 2;
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
    fn geometry(&self, term: usize) -> Result<Geometry, LayerError> {
        let (pixels, outputs) = if term == 0 { (self.rows, self.columns) } else { (self.columns, self.rows) };
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

/// Operations of a product, both cross terms together; the server's but for encryptions and openings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatrixCost {
    /// Ciphertexts of a request: encryptions at the client, transforms at the server.
    pub requests: usize,
    /// Products of a ciphertext and a plain polynomial.
    pub products: usize,
    /// Plain polynomials that are transformed.
    pub plain: usize,
    /// Automorphisms that merge answers into fewer ciphertexts.
    pub merges: usize,
    /// Ciphertexts of an answer: re-randomised by the server, opened by the client.
    pub answers: usize,
}

/// A cross term: places and parameters.
#[derive(Clone, Debug)]
struct Term {
    layout: Layout,
    params: WideParams,
}

/// An output polynomial of a cross term: its tile and its block.
type OutputPoly = (usize, usize);

impl Term {
    fn new(shape: &MatrixShape, term: usize, ring_bits: u32) -> Result<Self, LayerError> {
        let geometry = shape.geometry(term)?;
        let layout = Layout::choose_within(&geometry, RING_DEGREE, &PRICES, MOST_SPACING)?;
        // Every output channel of a block meets the whole inner axis of its head.
        let terms = layout.outputs_per_poly() * shape.inner;
        let params = WideSpec { ring_bits, terms, spacing: layout.spacing() }.choose()?;
        Ok(Self { layout, params })
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

/// What both parties derive of a product: places and parameters of both cross terms. Public.
#[derive(Clone, Debug)]
pub struct MatrixProduct {
    shape: MatrixShape,
    ring_bits: u32,
    terms: [Term; 2],
}

impl MatrixProduct {
    /// For shares modulo 2^`ring_bits` of a checked shape.
    ///
    /// # Errors
    /// As [`MatrixShape::check`]; what [`Layout::choose`] and [`WideSpec::choose`] refuse: rings above about 43 bits.
    pub fn new(shape: MatrixShape, ring_bits: u32) -> Result<Self, LayerError> {
        shape.check()?;
        let terms = [Term::new(&shape, 0, ring_bits)?, Term::new(&shape, 1, ring_bits)?];
        Ok(Self { shape, ring_bits, terms })
    }

    /// The sizes that it was made for.
    #[must_use]
    pub fn shape(&self) -> &MatrixShape {
        &self.shape
    }

    /// Bytes of the client's message.
    #[must_use]
    pub fn request_len(&self) -> usize {
        self.terms.iter().map(|t| t.input_polys() * t.params.request_len()).sum()
    }

    /// Bytes of the server's message.
    #[must_use]
    pub fn answer_len(&self) -> usize {
        let of = |t: &Term| t.groups().len() * t.part_len();
        self.terms.iter().map(of).sum()
    }

    /// Most bytes that a server holds beside messages and shares: ciphertexts of a cross term, plain polynomials of all its groups.
    #[must_use]
    pub fn server_bytes(&self) -> usize {
        let polynomial = DATA_PRIMES * RING_DEGREE * size_of::<u64>();
        let of = |t: &Term| 2 * t.input_polys() + t.groups().map(|g| t.plain_polys(&g)).sum::<usize>();
        polynomial * self.terms.iter().map(of).max().unwrap_or(0)
    }

    /// Spacing that the client's merging keys must reach, a power of two.
    #[must_use]
    pub fn spacing(&self) -> usize {
        self.terms.iter().map(|t| t.layout.spacing()).max().unwrap_or(1)
    }

    /// Bytes of the client's keys for products up to a spacing, once a session: the public key, then merging keys.
    #[must_use]
    pub fn key_len(context: &WideContext, spacing: usize) -> usize {
        WidePublicKey::byte_len() + context.merge().keys_len(spacing)
    }

    /// Operations of both parties, exactly.
    #[must_use]
    pub fn cost(&self) -> MatrixCost {
        self.terms.iter().fold(MatrixCost::default(), |sum, t| {
            let cost = t.layout.cost();
            let merges: usize = t.groups().map(|g| merge_steps(g.len(), t.layout.spacing())).sum();
            MatrixCost {
                requests: sum.requests + cost.input_polys,
                products: sum.products + cost.products,
                plain: sum.plain + t.groups().map(|g| t.plain_polys(&g)).sum::<usize>(),
                merges: sum.merges + merges,
                answers: sum.answers + t.groups().len(),
            }
        })
    }

    /// Most fraction of results that is off by a unit or two.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn off_fraction(&self) -> Result<f64, LayerError> {
        let mut sum = 0.0;
        for term in &self.terms {
            sum += term.params.off_by_one_fraction()?;
        }
        Ok(sum)
    }

    /// A_i B_i of one party's shares, modulo 2^l, row-major (h, n, m).
    fn local(&self, a: &[u64], b: &[u64]) -> Vec<u64> {
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
        out
    }

    /// Element (h, i, c) of the result at element e of a cross term's output.
    fn result_element(&self, term: usize, e: usize) -> usize {
        let MatrixShape { rows, columns, .. } = self.shape;
        if term == 1 {
            return e;
        }
        let (h, c, i) = (e / rows / columns, e / rows % columns, e % rows);
        (h * rows + i) * columns + c
    }
}

/// Matrices (h, a, b), each transposed: (h, b, a).
fn transposed(x: &[u64], rows: usize, columns: usize) -> Vec<u64> {
    let mut out = vec![0; x.len()];
    for (from, to) in x.chunks_exact(rows * columns).zip(out.chunks_exact_mut(rows * columns)) {
        for (i, row) in from.chunks_exact(columns).enumerate() {
            row.iter().enumerate().for_each(|(j, v)| to[j * rows + i] = *v);
        }
    }
    out
}

#[cfg(test)]
mod tests;
