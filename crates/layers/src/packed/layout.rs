//! Where the elements of a tensor stand: ciphertexts and slots.

/// No element.
pub(super) const EMPTY: u32 = u32::MAX;

/// A regular arrangement: blocks of a power of two slots, each with a grid of `cols` columns; a channel's element
/// (y, x) stands at grid position (y gap + py, x gap + px) of its block for its phase (py, px).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows of the grid.
    pub rows: usize,
    /// Columns of the grid: rotation by `cols` goes one row down.
    pub cols: usize,
    /// Slots of a block, a power of two of at least rows cols.
    pub block: usize,
    /// Distance of neighbours.
    pub gap: [usize; 2],
    /// At most this many channels a ciphertext (0: as many as fit).
    pub limit: usize,
    /// Channels fill all phases of a block before the next one, so that few slots hold them; else blocks before phases.
    pub dense: bool,
}

impl Grid {
    /// The smallest grid for h x w elements.
    #[must_use]
    pub fn compact(h: usize, w: usize, limit: usize) -> Self {
        Self { rows: h, cols: w, block: (h * w).next_power_of_two(), gap: [1, 1], limit, dense: false }
    }
}

/// Elements in slots. Slots of no element hold zero or a polynomial's constant, never anything unbounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Per ciphertext, the element of each slot or `EMPTY`.
    pub cts: Vec<Vec<u32>>,
    /// Per element, its places (ciphertext, slot), at least one.
    pub places: Vec<Vec<(u32, u32)>>,
    /// The content repeats after this many slots (a power of two, at most the slots).
    pub period: usize,
    /// How it was made.
    pub grid: Option<Grid>,
    /// Per element its only place within a period, where every element has one.
    single: Option<Vec<(u32, u32)>>,
}

impl Layout {
    fn new(elements: usize, cts: Vec<Vec<u32>>, grid: Option<Grid>) -> Self {
        let mut places = vec![Vec::new(); elements];
        for (c, slots) in cts.iter().enumerate() {
            for (s, &e) in slots.iter().enumerate() {
                if e != EMPTY {
                    places[e as usize].push((c as u32, s as u32));
                }
            }
        }
        let slots = cts.first().map_or(1, Vec::len);
        let mut period = slots;
        while period > 1 && cts.iter().all(|c| (0..slots).all(|s| c[s] == c[(s + period / 2) % slots])) {
            period /= 2;
        }
        let single = places.iter().map(|p| (p.len() == slots / period).then(|| p[0])).collect();
        Self { cts, places, period, grid, single }
    }

    /// Channels in blocks and phases of a grid; `None` when an element falls outside of it. Channels go to
    /// blocks first, then phases, then ciphertexts (`dense`: of as few blocks as hold them); spare blocks hold copies.
    #[must_use]
    pub fn on_grid(slots: usize, [c, h, w]: [usize; 3], grid: Grid) -> Option<Self> {
        let Grid { rows, cols, block, gap: [gy, gx], limit, dense } = grid;
        if block > slots || rows * cols > block || (h - 1) * gy >= rows || (w - 1) * gx >= cols {
            return None;
        }
        let phases: Vec<(usize, usize)> = (0..gy)
            .flat_map(|py| (0..gx).map(move |px| (py, px)))
            .filter(|(py, px)| (h - 1) * gy + py < rows && (w - 1) * gx + px < cols)
            .collect();
        let blocks = slots / block;
        let capacity = match limit {
            0 => blocks * phases.len(),
            some => some.min(blocks * phases.len()),
        };
        let count = c.div_ceil(capacity);
        // Fewer channels than blocks: copies in the spare blocks, at a distance that is a power of two.
        let needed = if dense { c.div_ceil(phases.len()) } else { c };
        let stride = if count == 1 && limit == 0 { needed.next_power_of_two().min(blocks) } else { blocks };
        let mut cts = vec![vec![EMPTY; slots]; count];
        for z in 0..c {
            let (ct, within) = (z / capacity, z % capacity);
            let (b, (py, px)) = (within % stride, phases[within / stride]);
            for copy in (b..blocks).step_by(stride) {
                for y in 0..h {
                    for x in 0..w {
                        let slot = copy * block + (y * gy + py) * cols + x * gx + px;
                        cts[ct][slot] = ((z * h + y) * w + x) as u32;
                    }
                }
            }
        }
        Some(Self::new(c * h * w, cts, Some(grid)))
    }

    /// Elements one after the other, repeated at a distance that is a power of two.
    #[must_use]
    pub fn flat(slots: usize, elements: usize) -> Self {
        let period = elements.next_power_of_two().min(slots);
        let cts = (0..elements.div_ceil(slots))
            .map(|c| {
                (0..slots)
                    .map(|s| c * slots + s % period)
                    .map(|e| if e < elements { e as u32 } else { EMPTY })
                    .collect()
            })
            .collect();
        Self::new(elements, cts, None)
    }

    /// Elements one after the other, repeated at distance `period`, a power of two of at least the elements.
    #[must_use]
    pub fn padded(slots: usize, elements: usize, period: usize) -> Self {
        let element = |s: usize| if s % period < elements { (s % period) as u32 } else { EMPTY };
        Self::new(elements, vec![(0..slots).map(element).collect()], None)
    }

    /// The copy of an element that is reached first going up from slot `start`, around the end: its ciphertext (of several at one
    /// slot the first) and how far it is. Cost: a load where copies are a period apart, else a binary search among them.
    #[must_use]
    pub fn nearest(&self, element: usize, start: usize) -> (u32, u32) {
        if let Some(single) = &self.single {
            let (i, u) = single[element];
            return (i, (u as usize).wrapping_sub(start) as u32 & (self.period as u32 - 1));
        }
        let mask = self.slots() - 1;
        let far = |&(i, u): &(u32, u32)| (i, ((u as usize).wrapping_sub(start) & mask) as u32);
        let places = self.places[element].as_slice();
        match (places, places.first(), places.last()) {
            ([one], ..) => far(one),
            // Copies of one ciphertext are in the order of their slots.
            (_, Some(first), Some(last)) if first.0 == last.0 => {
                let next = places.partition_point(|p| (p.1 as usize) < start);
                far(places.get(next).unwrap_or(first))
            }
            _ => places.iter().map(far).min_by_key(|&(i, r)| (r, i)).unwrap_or((0, 0)),
        }
    }

    /// The number of slots of a ciphertext, N/2.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.cts.first().map_or(0, Vec::len)
    }

    /// Slot values of every ciphertext.
    #[must_use]
    pub fn fill(&self, values: &[f64]) -> Vec<Vec<f64>> {
        let one = |slots: &Vec<u32>| {
            slots.iter().map(|&e| if e == EMPTY { 0.0 } else { values[e as usize] }).collect()
        };
        self.cts.iter().map(one).collect()
    }

    /// Elements from slot values of every ciphertext.
    #[must_use]
    pub fn read(&self, slots: &[Vec<f64>]) -> Vec<f64> {
        self.places.iter().map(|p| slots[p[0].0 as usize][p[0].1 as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_copy_is_that_of_a_scan() {
        let slots = 64;
        let grid = |c, h, w, limit| Layout::on_grid(slots, [c, h, w], Grid::compact(h, w, limit)).unwrap();
        // The last has copies in two ciphertexts, which no constructor makes today.
        let across = Layout::new(2, vec![vec![0, 1, 0, EMPTY], vec![1, 0, EMPTY, 0]], None);
        let layouts = [
            Layout::flat(slots, 5),
            Layout::flat(slots, 64),
            Layout::flat(slots, 150),
            Layout::padded(slots, 3, 32),
            grid(2, 3, 4, 0),
            grid(3, 2, 2, 0),
            grid(9, 4, 4, 0),
            grid(3, 3, 3, 1),
            across,
        ];
        for layout in &layouts {
            let slots = layout.slots();
            for (e, places) in layout.places.iter().enumerate() {
                for start in 0..slots {
                    let far = |&(i, u): &(u32, u32)| ((u as usize + slots - start) % slots, i);
                    let (r, i) = places.iter().map(far).min().unwrap();
                    assert_eq!(layout.nearest(e, start), (i, r as u32), "element {e} from slot {start}");
                }
            }
        }
    }
}
