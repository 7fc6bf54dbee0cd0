//! Matrix-vector products in slots.
//!
//! N = 2M slots stand in two rows of M columns; permutations move columns and may exchange rows. Inputs are padded to `ni`, outputs
//! to `no`, powers of two; more than N of either are split into blocks of N. A ciphertext holds N/ni copies of an input
//! block (one copy over both rows for ni = N), so slot p knows its input `i(p)`, its copy and its place in the copy.
//!
//! Copies that serve different outputs (hybrid and row encoding): with J = max(1, ni no / N) permutations by 0..J columns, copy k serves outputs k J .. (k+1) J, and
//! slot p of the sum belongs to output `o(p) = k J + (place mod J)`. Permutation j brings slot p + j to p, and the weight there is
//! `W[o(p), i(p + j)]`: over the slots with the same o and all j every input occurs once. What is left are ni/J partial sums an output.

use super::order::{DenseOrder, DenseSizes, Spread};
use super::{residue, Term};
use hushnet_rlwe::bfv::noise::weight_norm2;
use hushnet_rlwe::bfv::{BfvSpec, Counts, Noise, Turn};

/// Slack of predicted over expected norms of weight polynomials.
pub(crate) const NORM_SLACK: f64 = 1.06;

/// Places of a dense layer.
#[derive(Clone, Debug)]
pub struct DenseLayout {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) order: &'static DenseOrder,
    /// Slots, both rows.
    pub(crate) n: usize,
    /// Inputs of a block, padded.
    pub(crate) ni: usize,
    /// Outputs of a block, padded.
    pub(crate) no: usize,
    /// Permutations: j = 0..steps.
    pub(crate) steps: usize,
}

impl DenseLayout {
    pub(super) fn new(inputs: usize, outputs: usize, order: &'static DenseOrder, n: usize) -> Self {
        let pad = |v: usize| v.next_power_of_two().min(n);
        let (mut ni, no) = (pad(inputs), pad(outputs));
        if matches!(order.spread, Spread::Diagonals | Spread::Extended) {
            ni = ni.max(no);
        }
        let steps = match order.spread {
            Spread::Rows => 1,
            Spread::Diagonals => ni,
            Spread::Extended => (ni * ni / n).max(1),
            Spread::Hybrid => (ni * no / n).max(1),
        };
        Self { inputs, outputs, order, n, ni, no, steps }
    }

    fn row(&self) -> usize {
        self.n / 2
    }

    /// The number of ciphertexts that the input takes.
    #[must_use]
    pub fn input_blocks(&self) -> usize {
        self.inputs.div_ceil(self.n)
    }

    /// Blocks of at most N outputs.
    #[must_use]
    pub fn output_blocks(&self) -> usize {
        self.outputs.div_ceil(self.n)
    }

    /// The number of ciphertexts that the output takes.
    #[must_use]
    pub fn answers(&self) -> usize {
        if self.order.spread == Spread::Rows {
            self.outputs
        } else {
            self.output_blocks()
        }
    }

    /// Copy of the input and place in it of a slot.
    fn place(&self, slot: usize) -> (usize, usize) {
        // Both are powers of two, as are the steps.
        (slot >> self.ni.trailing_zeros(), slot & (self.ni - 1))
    }

    /// Index within its block of the input in a slot.
    fn input_at(&self, slot: usize) -> usize {
        let (copy, place) = self.place(slot);
        if self.order.spread == Spread::Extended {
            (place + copy * self.steps) % self.ni
        } else {
            place
        }
    }

    /// Index within its block of the output that a slot belongs to before any rotate-and-sum; `None` where a slot is not used.
    fn output_at(&self, slot: usize) -> Option<usize> {
        let (copy, place) = self.place(slot);
        match self.order.spread {
            Spread::Hybrid => Some(copy * self.steps + (place & (self.steps - 1))),
            Spread::Extended => (copy * self.steps < self.ni).then_some(place),
            Spread::Rows | Spread::Diagonals => (copy == 0).then_some(place),
        }
    }

    /// Permutation number `step`.
    pub(crate) fn turn(&self, step: usize) -> Turn {
        Turn { swap: step >= self.row(), left: step % self.row() }
    }

    /// Rotate-and-sum: halves of `from` slots down to `to`.
    fn halvings(&self, from: usize, to: usize) -> Vec<Turn> {
        let mut turns = Vec::new();
        let mut size = from;
        while size > to {
            size /= 2;
            turns.push(self.turn(size));
        }
        turns
    }

    /// The permutations of rotate-and-sum under encryption, in order.
    pub(crate) fn folds(&self) -> Vec<Turn> {
        if self.order.sum_on_shares {
            return Vec::new();
        }
        match self.order.spread {
            Spread::Rows => self.halvings(self.ni, 1),
            Spread::Hybrid => self.halvings(self.ni, self.steps),
            Spread::Extended => self.halvings(self.n, self.ni),
            Spread::Diagonals => Vec::new(),
        }
    }

    pub(super) fn turns(&self) -> Vec<Turn> {
        (0..self.steps).map(|j| self.turn(j)).chain(self.folds()).collect()
    }

    pub(super) fn pack(&self, block: usize, tensor: &[u64]) -> Vec<u64> {
        let at = |slot| tensor.get(block * self.n + self.input_at(slot)).copied().unwrap_or(0);
        (0..self.n).map(at).collect()
    }

    pub(super) fn unpack(&self, block: usize, slots: &[u64], t: u64, out: &mut [u64]) {
        if self.order.spread == Spread::Rows {
            out[block] = slots[0];
            return;
        }
        let first = block * self.n;
        let end = (first + self.n).min(self.outputs);
        let out = &mut out[first..end];
        if self.order.sum_on_shares {
            // Rotate-and-sum on a share: all slots of an output, modulo t.
            out.fill(0);
        }
        for (slot, &value) in slots.iter().enumerate() {
            let Some(o) = self.output_at(slot) else { continue };
            let (copy, place) = self.place(slot);
            if o >= out.len() {
                continue;
            }
            let whole = match self.order.spread {
                Spread::Hybrid => place < self.steps,
                _ => copy == 0,
            };
            if self.order.sum_on_shares {
                out[o] += value;
            } else if whole {
                out[o] = value;
            }
        }
        if self.order.sum_on_shares {
            out.iter_mut().for_each(|v| *v %= t);
        }
    }

    pub(super) fn weight(&self, term: Term, weights: &[i16], t: u64) -> Vec<u64> {
        let value = |o: usize, i: usize| {
            let inside = o < self.outputs && i < self.inputs;
            if inside {
                residue(weights[o * self.inputs + i], t)
            } else {
                0
            }
        };
        let first = term.input as usize * self.n;
        if self.order.spread == Spread::Rows {
            let at = |slot: usize| if slot < self.ni { value(term.output as usize, first + slot) } else { 0 };
            return (0..self.n).map(at).collect();
        }
        let (row, turn) = (self.row(), self.turn(term.step as usize));
        let mut out = vec![0; self.n];
        for slot in 0..self.n {
            let Some(o) = self.output_at(slot).filter(|o| *o < self.no) else { continue };
            let source = ((slot / row) ^ usize::from(turn.swap)) * row + (slot % row + turn.left) % row;
            let w = value(term.output as usize * self.n + o, first + self.input_at(source));
            // Row encoding multiplies before the permutation.
            out[if self.order.multiply_first { source } else { slot }] = w;
        }
        out
    }

    pub(super) fn terms(&self) -> Vec<Term> {
        let mut terms = Vec::new();
        for output in 0..self.answers() as u32 {
            for step in 0..self.steps as u32 {
                for input in 0..self.input_blocks() as u32 {
                    terms.push(Term { output, input, step, tap: 0 });
                }
            }
        }
        terms
    }

    pub(super) fn counts(&self) -> Counts {
        let (bi, bo) = (self.input_blocks() as u64, self.output_blocks() as u64);
        let (outputs, steps, folds) = (self.outputs as u64, self.steps as u64, self.folds().len() as u64);
        (self.order.counts)(&DenseSizes { blocks: (bi, bo), outputs, steps, folds })
    }

    pub(super) fn noise(&self, spec: &BfvSpec) -> Noise {
        let (n, fresh) = (spec.ring_degree, Noise::fresh(spec.ring_degree));
        let norm2 = NORM_SLACK * weight_norm2(n, spec.plain_modulus);
        let (blocks, steps) = (self.input_blocks() as f64, self.steps as f64);
        let mut noise = match self.order.multiply_first {
            true if self.steps > 1 => fresh.times(n, norm2 * blocks).permuted(spec).sum(steps),
            false if self.steps > 1 => fresh.permuted(spec).times(n, norm2 * blocks * steps),
            _ => fresh.times(n, norm2 * blocks),
        };
        for _ in self.folds() {
            noise = noise.folded(spec);
        }
        noise
    }
}
