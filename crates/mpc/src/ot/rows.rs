//! Rows of a silent extension that are made and not yet drawn.

use crate::block::Block;
use crate::simd;
use hushnet_ring::wipe;
use std::collections::VecDeque;

/// Rows that may lie ready before they are drawn: 16 MiB, which an extension that works on many threads holds anyway.
pub(super) const AHEAD: usize = 1 << 20;

/// Rows that the cache is asked for before they are drawn: a draw of one group of 64 values, or of two.
const READ_NEXT: usize = 128;

/// Parts of rows in the order in which they were made. All memory that had rows is wiped on drop.
#[derive(Default)]
pub(super) struct Rows {
    parts: VecDeque<Vec<Block>>,
    /// Rows of the first part that were taken.
    next: usize,
    /// Rows that were not taken.
    ready: usize,
    made: usize,
    /// Parts that were taken: their memory serves again.
    used: Vec<Vec<Block>>,
}

/// Wipes all memory of a part, also what lies behind its last row.
fn wipe_all(part: &mut Vec<Block>) {
    part.resize(part.capacity(), 0);
    wipe(part);
}

impl Rows {
    /// Rows made so far.
    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Whether so many rows may be made before they are needed.
    pub(super) fn has_room(&self, rows: usize) -> bool {
        self.ready.saturating_add(rows) <= AHEAD
    }

    /// Memory for so many rows, which [`Self::put`] takes back.
    pub(super) fn fresh(&mut self, rows: usize) -> Vec<Block> {
        let mut part = self.used.pop().unwrap_or_default();
        if part.capacity() < rows {
            wipe_all(&mut part);
            part = vec![0; rows];
        }
        part.resize(rows, 0);
        part
    }

    /// Adds rows behind the others.
    pub(super) fn put(&mut self, part: Vec<Block>) {
        self.made = self.made.saturating_add(part.len());
        self.ready += part.len();
        self.parts.push_back(part);
    }

    /// Copies the next rows to `out`; how many these are.
    pub(super) fn take(&mut self, out: &mut [Block]) -> usize {
        let mut done = 0;
        while let Some(part) = self.parts.front().filter(|_| done < out.len()) {
            let n = (out.len() - done).min(part.len() - self.next);
            out[done..done + n].copy_from_slice(&part[self.next..self.next + n]);
            (done, self.next, self.ready) = (done + n, self.next + n, self.ready - n);
            if self.next == part.len() {
                self.next = 0;
                self.used.extend(self.parts.pop_front());
            } else {
                // A part is longer than the near caches. Draws follow one another, with work between them.
                simd::read_next(&part[self.next..part.len().min(self.next + n.min(READ_NEXT))]);
            }
        }
        done
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.parts.iter_mut().chain(&mut self.used).for_each(wipe_all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_order_and_memory_is_used_again() {
        let mut rows = Rows::default();
        let mut next = 0;
        let mut put = |rows: &mut Rows, n: usize| {
            let mut part = rows.fresh(n);
            part.iter_mut().for_each(|r| {
                *r = next;
                next += 1;
            });
            rows.put(part);
        };
        put(&mut rows, 5);
        put(&mut rows, 3);
        let mut out = [0; 6];
        assert_eq!((rows.take(&mut out), out), (6, [0, 1, 2, 3, 4, 5]));
        put(&mut rows, 4);
        assert_eq!((rows.used.len(), rows.ready, rows.made()), (0, 6, 12));
        assert_eq!((rows.take(&mut out), out), (6, [6, 7, 8, 9, 10, 11]));
        assert_eq!((rows.take(&mut out), rows.used.len()), (0, 2));
        assert!(rows.has_room(AHEAD) && !rows.has_room(AHEAD + 1));
    }
}
