//! A linear map between layouts as rotations and slot-wise products (Halevi and Shoup, CRYPTO 2014), with baby and
//! giant steps.
//!
//! Output slot s needs input slots u with weights W(s, u). All pairs with the same input ciphertext i and the same
//! u - s = r form one diagonal: a plaintext vector times the input rotated by r. With r = G + b the products of one
//! giant step G are summed first, then rotated by G: the diagonal is stored rotated by -G. Zero weights outside of
//! the wanted slots clear whatever stands in other slots, so no masking level is needed, whatever the layouts are.
//!
//! *Folded* maps give a short output: outputs stand at slots f modulo m, slot s = u - r with r = (u - f) mod m takes the
//! term of input slot u, and rotations by m, 2m, ... sum the partial results: at most m diagonals an input ciphertext.

use super::layout::{Layout, EMPTY};
use super::spec::Linear;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Where outputs go and how they are summed.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Every place of an output receives its whole sum.
    Direct(Layout),
    /// Outputs modulo `modulus`, partial sums over `span` slots (the input's period).
    Folded {
        /// The final layout, of period `modulus`.
        layout: Layout,
        /// m, a power of two of at least the outputs.
        modulus: usize,
        /// Slots over which partial sums spread, a multiple of m.
        span: usize,
    },
}

impl Form {
    /// The layout of the result.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        match self {
            Form::Direct(layout) | Form::Folded { layout, .. } => layout,
        }
    }

    /// Rotations that sum the partial results, in order.
    #[must_use]
    pub fn folds(&self) -> Vec<i64> {
        match self {
            Form::Direct(_) => Vec::new(),
            Form::Folded { modulus, span, .. } => std::iter::successors(Some(*modulus), |m| Some(m * 2))
                .take_while(|m| m < span)
                .map(|m| m as i64)
                .collect(),
        }
    }
}

/// A diagonal: input ciphertext and `(r + offset) mod slots`.
pub(super) type Diagonal = (u32, u32);

/// Slots after which everything repeats: the outputs, and the copies of the inputs.
#[must_use]
pub(super) fn period(input: &Layout, form: &Form) -> usize {
    match form {
        Form::Direct(layout) => layout.period.max(input.period),
        Form::Folded { span, .. } => *span,
    }
}

/// Calls `each(diagonal, output slot, weight)` for every product of output ciphertext `ct` at output slots below `end`. The rotation of a diagonal
/// is its second number less `offset`; among copies of an input the smallest second number is taken.
pub(super) fn visit(
    map: &Linear,
    input: &Layout,
    form: &Form,
    (ct, offset): (usize, usize),
    end: usize,
    mut each: impl FnMut(Diagonal, usize, f64),
) {
    let slots = input.slots();
    let mask = slots - 1;
    match form {
        Form::Direct(layout) => {
            for (s, &f) in layout.cts[ct][..end].iter().enumerate() {
                if f == EMPTY {
                    continue;
                }
                map.row(f as usize, |_, g, w| {
                    if w == 0.0 && !map.every {
                        return;
                    }
                    let (i, r) = input.nearest(g, (s + slots - offset) & mask);
                    each((i, r), s, w);
                });
            }
        }
        Form::Folded { layout, modulus, span } => {
            for f in 0..layout.places.len() {
                map.row(f, |_, g, w| {
                    if w == 0.0 && !map.every {
                        return;
                    }
                    let (i, u) = input.places[g][0];
                    let r = (u as usize + modulus - f) & (modulus - 1);
                    let first = (u as usize + slots - r) & (span - 1);
                    for s in (first..end).step_by(*span) {
                        each((i, ((r + offset) & mask) as u32), s, w);
                    }
                });
            }
        }
    }
}

/// The non-zero diagonals of every output ciphertext; one of zeros where there is none, as where all windows lie in the padding.
#[must_use]
pub(super) fn diagonals(map: &Linear, input: &Layout, form: &Form, offset: usize) -> Vec<BTreeSet<Diagonal>> {
    let (slots, count, end) = (input.slots(), input.cts.len(), period(input, form));
    (0..form.layout().cts.len())
        .map(|ct| {
            let mut seen = vec![false; slots * count];
            visit(map, input, form, (ct, offset), end, |(i, r), _, _| {
                seen[i as usize * slots + r as usize] = true;
            });
            let hit = seen.iter().enumerate().filter(|(_, hit)| **hit);
            let mut set: BTreeSet<Diagonal> =
                hit.map(|(at, _)| ((at / slots) as u32, (at % slots) as u32)).collect();
            if set.is_empty() {
                set.insert((0, (offset & (slots - 1)) as u32));
            }
            set
        })
        .collect()
}

/// [`diagonals`] of a map that were asked for before: a look ahead asks for what the next step asks for again.
#[derive(Default)]
pub(super) struct Known(Vec<Entry>);

struct Entry {
    weights: Arc<Vec<f64>>,
    between: (Layout, Form),
    offset: usize,
    sets: Rc<Vec<BTreeSet<Diagonal>>>,
}

impl Known {
    /// [`diagonals`].
    pub(super) fn diagonals(
        &mut self,
        map: &Linear,
        input: &Layout,
        form: &Form,
        offset: usize,
    ) -> Rc<Vec<BTreeSet<Diagonal>>> {
        let same = |e: &&Entry| {
            let (from, to) = (&e.between.0, &e.between.1);
            Arc::ptr_eq(&e.weights, &map.weights) && e.offset == offset && from == input && to == form
        };
        if let Some(found) = self.0.iter().find(same) {
            return found.sets.clone();
        }
        let sets = Rc::new(diagonals(map, input, form, offset));
        let (weights, between) = (map.weights.clone(), (input.clone(), form.clone()));
        self.0.push(Entry { weights, between, offset, sets: sets.clone() });
        sets
    }

    /// Forgets a map, which is not asked for again.
    pub(super) fn forget(&mut self, map: &Linear) {
        self.0.retain(|e| !Arc::ptr_eq(&e.weights, &map.weights));
    }
}

/// How rotations are cut into baby and giant steps: r = giant + baby, giant steps are multiples of `base`, baby steps in
/// `[-shift, base - shift)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Giant steps are multiples of it.
    pub base: usize,
    /// Shift of the baby steps.
    pub shift: usize,
    /// Offset of the diagonals' numbers.
    pub offset: usize,
}

impl Split {
    /// `(baby, giant)` of a diagonal's second number.
    #[must_use]
    pub fn cut(&self, shifted: u32) -> (i64, i64) {
        let r = i64::from(shifted) - self.offset as i64;
        let giant = (r + self.shift as i64).div_euclid(self.base as i64) * self.base as i64;
        (r - giant, giant)
    }
}

/// One sum of products: those of a giant step of an output ciphertext.
#[derive(Clone, Debug, PartialEq)]
pub struct Sum {
    /// Rotation after the sum.
    pub giant: i64,
    /// Positions in [`Rotations::inputs`].
    pub terms: Vec<u32>,
}

/// The rotations and products of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotations {
    /// Rotated inputs: (input ciphertext, baby step).
    pub inputs: Vec<(u32, i64)>,
    /// Per output ciphertext, its sums by giant step.
    pub outputs: Vec<Vec<Sum>>,
}

/// What a map costs in operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Inputs that are cut into digits once for their rotations.
    pub hoists: usize,
    /// Rotations of hoisted inputs.
    pub babies: usize,
    /// Rotations of sums.
    pub giants: usize,
    /// Plaintext products.
    pub products: usize,
    /// Rotations that sum partial results, all output ciphertexts together.
    pub folds: usize,
    /// Output ciphertexts.
    pub outputs: usize,
    /// Different rotation keys.
    pub keys: usize,
}

impl Rotations {
    /// Cuts diagonals into baby and giant steps.
    #[must_use]
    pub fn new(diagonals: &[BTreeSet<Diagonal>], split: Split) -> Self {
        let mut numbers = BTreeMap::new();
        let mut inputs = Vec::new();
        let outputs = diagonals
            .iter()
            .map(|set| {
                let mut sums: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
                for &(i, shifted) in set {
                    let (baby, giant) = split.cut(shifted);
                    let number = *numbers.entry((i, baby)).or_insert_with(|| {
                        inputs.push((i, baby));
                        inputs.len() as u32 - 1
                    });
                    sums.entry(giant).or_default().push(number);
                }
                sums.into_iter().map(|(giant, terms)| Sum { giant, terms }).collect()
            })
            .collect();
        Self { inputs, outputs }
    }

    /// The operations of these rotations, with `folds` of every output behind them.
    #[must_use]
    pub fn work(&self, folds: &[i64]) -> Work {
        let hoisted: BTreeSet<u32> = self.inputs.iter().filter(|(_, b)| *b != 0).map(|(i, _)| *i).collect();
        let babies = self.inputs.iter().filter(|(_, b)| *b != 0);
        let giants = self.outputs.iter().flatten().filter(|s| s.giant != 0);
        let steps = babies
            .clone()
            .map(|(_, b)| *b)
            .chain(giants.clone().map(|s| s.giant))
            .chain(folds.iter().copied());
        Work {
            hoists: hoisted.len(),
            babies: babies.count(),
            giants: giants.clone().count(),
            products: self.outputs.iter().flatten().map(|s| s.terms.len()).sum(),
            folds: folds.len() * self.outputs.len(),
            outputs: self.outputs.len(),
            keys: steps.collect::<BTreeSet<_>>().len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Grid;
    use super::*;
    use crate::batch::{Conv2d, Dense, Geometry};

    fn map(geometry: Geometry) -> Linear {
        let weights = (0..geometry.weights()).map(|i| (i % 3) as f64).collect();
        Linear { geometry, weights: Arc::new(weights), bias: Arc::new(Vec::new()), every: false }
    }

    /// One period of the slots tells all diagonals.
    #[test]
    fn diagonals_are_those_of_all_slots() {
        let slots = 128;
        let grid = |c, h, w| Layout::on_grid(slots, [c, h, w], Grid::compact(h, w, 0)).unwrap();
        let conv = Geometry::conv2d(Conv2d {
            input: [3, 4, 4],
            output: [5, 2, 2],
            kernel: [3, 3],
            stride: [2, 2],
            pads: [1, 1, 0, 0],
            dilation: [1, 1],
            groups: 1,
        });
        let conv = map(conv.unwrap());
        let dense = |inputs, outputs| map(Geometry::dense(Dense { inputs, outputs }).unwrap());
        let folded = |outputs, modulus, span| Form::Folded {
            layout: Layout::padded(slots, outputs, modulus),
            modulus,
            span,
        };
        let cases = [
            (&conv, grid(3, 4, 4), Form::Direct(grid(5, 2, 2))),
            (&conv, Layout::flat(slots, 48), Form::Direct(Layout::flat(slots, 20))),
            (&dense(6, 3), Layout::flat(slots, 6), Form::Direct(Layout::flat(slots, 3))),
            (&dense(3, 20), Layout::flat(slots, 3), Form::Direct(Layout::padded(slots, 20, 64))),
            (&dense(200, 7), Layout::flat(slots, 200), Form::Direct(Layout::flat(slots, 7))),
            (&dense(32, 3), Layout::flat(slots, 32), folded(3, 4, 32)),
            (&dense(200, 5), Layout::flat(slots, 200), folded(5, 16, slots)),
        ];
        for (map, input, form) in &cases {
            for offset in [0, 8, 64] {
                let found = diagonals(map, input, form, offset);
                assert_eq!(found.len(), form.layout().cts.len());
                for (ct, set) in found.iter().enumerate() {
                    let mut all = BTreeSet::new();
                    visit(map, input, form, (ct, offset), slots, |d, _, _| {
                        all.insert(d);
                    });
                    assert!(!all.is_empty() && *set == all);
                }
            }
        }
    }

    #[test]
    fn what_is_known_is_that_of_the_same_question() {
        let maps = [0, 1].map(|_| map(Geometry::dense(Dense { inputs: 2, outputs: 2 }).unwrap()));
        let layouts = [Layout::flat(16, 2), Layout::padded(16, 2, 8)];
        let mut known = Known::default();
        let questions = (0..16).map(|i| {
            let form = Form::Direct(layouts[i / 4 % 2].clone());
            (&maps[i / 8], &layouts[i / 2 % 2], form, 4 * (i % 2))
        });
        for (map, input, form, offset) in questions.clone().chain(questions) {
            let found = known.diagonals(map, input, &form, offset);
            assert_eq!(*found, diagonals(map, input, &form, offset));
            assert!(Rc::ptr_eq(&found, &known.diagonals(map, input, &form, offset)));
        }
        assert_eq!(known.0.len(), 16);
        known.forget(&maps[0]);
        assert_eq!(known.0.len(), 8);
    }
}
