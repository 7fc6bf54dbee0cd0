//! Products of two tensors of matrices on shares: their check, and what stands around the ciphertexts of [`super::methods`].
//!
//! A product is computed modulo 2^w, w the bits that hold every sum of inner-axis products of values below the operands' reaches, a sign and one bit
//! to spare. Shares of the ring 2^l lose their upper bits for it, or are extended by a wrap-around each. The result leaves for 2^l as it is divided.

use super::check::{fault, fractions_of_product, holds, Fault, Shared};
use hushnet_layers::batch::LayerError;
use hushnet_layers::matrix_product::{MatrixProduct, MatrixShape, MOST_UNITS};
use hushnet_mpc::{self as mpc, CostModel, Party, Result as Ran, Ring, Session};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The narrowest ring of a product.
const LEAST_BITS: u32 = 4;
/// Copies of operands and results that the protocol keeps, in bytes an element.
const BYTES_PER_ELEMENT: u64 = 32;

/// Products of two tensors of matrices, checked.
#[derive(Clone, Debug)]
pub struct Matrices {
    product: Arc<MatrixProduct>,
    /// The ring that holds the products.
    own: Ring,
    /// The ring of the shares.
    ring: Ring,
    /// Bits that are dropped.
    bits: u32,
}

/// w for inner axes of k elements and operands below 2^x and 2^y: the sums are below 2^(w-2), units of masking included.
fn own_bits(inner: usize, [x, y]: [u32; 2]) -> u32 {
    let sums = usize::BITS - inner.saturating_sub(1).leading_zeros();
    x.saturating_add(y).saturating_add(sums + 2).max(LEAST_BITS)
}

impl Matrices {
    /// The sizes that the shapes of operands and result give, before anything is laid out.
    pub(super) fn shape(x: &Shared<'_>, y: &Shared<'_>, to: &Shared<'_>) -> Result<MatrixShape, Fault> {
        let [a, b, c] = [x, y, to].map(|t| t.tensor.shape.as_slice());
        if let ([heads @ .., rows, inner], [others @ .., same, columns]) = (a, b) {
            if heads == others && inner == same && c == [heads, &[*rows, *columns]].concat() {
                let heads = heads.iter().fold(1_usize, |n, d| n.saturating_mul(*d));
                let shape = MatrixShape { heads, rows: *rows, inner: *inner, columns: *columns };
                return match shape.check() {
                    Ok(()) => Ok(shape),
                    Err(e) => fault(format!("{e}; split the product along its leading axes")),
                };
            }
        }
        fault(format!(
            "shapes {a:?} and {b:?} do not multiply to {c:?}: [..., n, k] times [..., k, m] is [..., n, m], all axes in front being equal"
        ))
    }

    /// That fraction bits, ring and dropped bits fit a product of a checked shape.
    pub(super) fn check(
        (shape, bits): (MatrixShape, u32),
        (x, y): (&Shared<'_>, &Shared<'_>),
        to: &Shared<'_>,
        ring: Ring,
    ) -> Result<Self, Fault> {
        fractions_of_product((x.f, y.f, bits), to.f)?;
        let wide = own_bits(shape.inner, [x.reach, y.reach]);
        let Ok(own) = Ring::new(wide) else {
            return fault(format!(
                "sums of {} products of values below 2^{} and 2^{} take {wide} bits, rings have 64; give them fewer fraction bits",
                shape.inner, x.reach, y.reach
            ));
        };
        if bits > own.bits() - 2 {
            return fault(format!(
                "{bits} bits cannot be dropped from sums of {} (at most {})",
                own.bits(),
                own.bits() - 2
            ));
        }
        if own.bits() > ring.bits() {
            if let Some(wide) = [x, y].into_iter().find(|o| o.reach + 2 > ring.bits()) {
                return fault(format!(
                    "values below 2^{} of tensor '{}' cannot be extended from shares of {} bits; compile the model again with a wider ring",
                    wide.reach,
                    wide.tensor.name,
                    ring.bits()
                ));
            }
        }
        if bits == 0 {
            let sums = |(a, b): (u128, u128)| {
                a.saturating_mul(b).saturating_mul(shape.inner as u128).saturating_add(MOST_UNITS.into())
            };
            holds(to, x.exact().zip(y.exact()).map(sums))?;
        }
        let product = MatrixProduct::new(shape, own.bits()).or_else(|e| {
            fault(format!("a product of matrices modulo 2^{}: {e}; give its operands fewer bits", own.bits()))
        })?;
        Ok(Self { product: Arc::new(product), own, ring, bits })
    }

    /// What both parties compute with ciphertexts.
    pub(super) fn product(&self) -> &Arc<MatrixProduct> {
        &self.product
    }

    fn extends(&self) -> bool {
        self.own.bits() > self.ring.bits()
    }

    /// Elements of both operands, and of the result.
    pub(super) fn elements(&self) -> (usize, usize) {
        let [a, b, c] = self.product.shape().elements();
        (a + b, c)
    }

    /// Values that change their ring by a wrap-around, of one image.
    pub(super) fn converted(&self) -> u64 {
        let (operands, results) = self.elements();
        (results + if self.extends() { operands } else { 0 }) as u64
    }

    /// Bytes that its protocol keeps of one image: copies of operands and results.
    pub(super) fn held(&self) -> u64 {
        let (operands, results) = self.elements();
        BYTES_PER_ELEMENT.saturating_mul(operands as u64 + results as u64)
    }

    /// Shares of operands modulo 2^l as shares modulo 2^w.
    pub(super) fn enter(&self, s: &mut Session, operands: &[u64]) -> Ran<Zeroizing<Vec<u64>>> {
        if !self.extends() {
            return Ok(Zeroizing::new(operands.iter().map(|v| self.own.reduce(*v)).collect()));
        }
        let raised = if s.party() == Party::Zero { 1u64 << (self.ring.bits() - 2) } else { 0 };
        let lifted: Zeroizing<Vec<u64>> =
            Zeroizing::new(operands.iter().map(|v| self.ring.add(*v, raised)).collect());
        let mut wide = Zeroizing::new(mpc::rescale(s, &lifted, (self.ring, 0), self.own)?);
        wide.iter_mut().for_each(|v| *v = self.own.sub(*v, raised));
        Ok(wide)
    }

    /// Shares of products modulo 2^w as shares modulo 2^l, divided by 2^bits.
    pub(super) fn leave(&self, s: &mut Session, product: &[u64]) -> Ran<Vec<u64>> {
        let raised = if s.party() == Party::Zero { 1u64 << (self.own.bits() - 2) } else { 0 };
        let lifted: Zeroizing<Vec<u64>> =
            Zeroizing::new(product.iter().map(|v| self.own.add(*v, raised)).collect());
        let mut result = mpc::rescale(s, &lifted, (self.own, self.bits), self.ring)?;
        let back = raised >> self.bits;
        result.iter_mut().for_each(|r| *r = self.ring.sub(*r, back));
        Ok(result)
    }

    /// Cost of [`Self::enter`] on so many images.
    pub(super) fn enter_cost(&self, m: &mut CostModel, images: usize) {
        if self.extends() {
            mpc::rescale_cost(m, self.elements().0 * images, (self.ring, 0), self.own);
        }
    }

    /// Cost of [`Self::leave`] on so many images.
    pub(super) fn leave_cost(&self, m: &mut CostModel, images: usize) {
        mpc::rescale_cost(m, self.elements().1 * images, (self.own, self.bits), self.ring);
    }
}

/// What planners ask of a product of matrices: its ring, its error, and what it costs for one image.
#[derive(Clone, Copy, Debug)]
pub struct MatrixFigures {
    /// w: bits of the ring in which it is computed.
    pub ring_bits: u32,
    /// Most fraction of results that are a unit or two off, before they are divided.
    pub unit_fraction: f64,
    /// Bytes that each party sends: a request, an answer.
    pub bytes: usize,
    /// Most bytes that a party holds beside them.
    pub working_bytes: usize,
    /// Operations with ciphertexts, of each party.
    pub cost: hushnet_layers::matrix_product::MatrixCost,
}

/// Figures of a product of operands below 2^reach each.
///
/// # Errors
/// [`LayerError`] for sizes or rings that no product has.
pub fn matrix_figures(shape: MatrixShape, reaches: [u32; 2]) -> Result<MatrixFigures, LayerError> {
    let ring_bits = own_bits(shape.inner, reaches);
    let product = MatrixProduct::new(shape, ring_bits)?;
    Ok(MatrixFigures {
        ring_bits,
        unit_fraction: product.off_fraction()?,
        bytes: product.request_len() + product.answer_len(),
        working_bytes: product.working_bytes(),
        cost: product.cost(),
    })
}
