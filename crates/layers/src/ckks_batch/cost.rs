//! Exact counts: what a run will do, and what it did.

use super::circuit::{Circuit, Kind};
use std::ops::AddAssign;

/// Operations on one block of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Products of an integer weight with a ciphertext word (padding not counted).
    pub word_products: u64,
    /// Products of two ciphertexts.
    pub products: u64,
    /// Ciphertexts multiplied by an integer and added up in sums and polynomials.
    pub combined: u64,
    /// Ciphertexts taken from three parts to two.
    pub relinearisations: u64,
    /// Divisions of a ciphertext by one prime.
    pub rescalings: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, o: Self) {
        self.word_products += o.word_products;
        self.products += o.products;
        self.combined += o.combined;
        self.relinearisations += o.relinearisations;
        self.rescalings += o.rescalings;
    }
}

impl Circuit {
    /// What [`Circuit::run`] does for one block, exactly, from shapes alone.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let mut sum = Cost::default();
        for stage in 0..self.0.stages.len() {
            sum += self.stage_cost(stage);
        }
        sum
    }

    /// [`Self::cost`] of one stage. `word_products` needs the geometry, which only circuits with weights keep.
    #[must_use]
    pub fn stage_cost(&self, stage: usize) -> Cost {
        let (inner, stage) = (&self.0, &self.0.stages[stage]);
        let (first, out) = (&inner.tensors[stage.inputs[0]], &inner.tensors[stage.output]);
        let elements = out.elements as u64;
        let divisions = (first.level - out.level) as u64 * elements;
        let mut cost = Cost::default();
        match &stage.kind {
            Kind::Linear(l) => {
                let products = l.as_ref().map_or(0, |l| l.geometry.products(0..l.geometry.output_rows()));
                let words = (inner.params.ring_degree() * out.level * out.parts) as u64;
                cost.word_products = products.saturating_mul(words);
            }
            Kind::Multiply => cost.products = elements,
            Kind::Relinearise => (cost.relinearisations, cost.rescalings) = (elements, divisions),
            Kind::Rescale => cost.rescalings = divisions,
            Kind::Combine(_) => cost.combined = elements * stage.inputs.len() as u64,
        }
        cost
    }
}
