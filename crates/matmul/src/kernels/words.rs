//! Products of whole words in register tiles of few rows: what kernels of 128 and 256 bits share.
#![allow(unsafe_code)]

use super::{Wanted, WordPanel};
use crate::scratch::Scratch;
use std::ops::Range;

/// A column that is not padding: where its words begin, and its index.
pub(crate) type Column = (*const u64, usize);
/// Most rows of weights that a register tile holds.
pub(crate) const ROWS: usize = 6;
/// Words of a register tile.
pub(crate) const WIDTH: usize = 4;
/// Words that are copied together: two cache lines of every column.
const STRIP: usize = 16;

/// A register tile: `WIDTH` words at an offset of every column, the weights of its rows for every column index, constants, a mask, outputs.
pub(crate) type Micro = unsafe fn(&[Column], usize, *const u64, &[u64; ROWS], u64, &[*mut u64; ROWS]);

/// The wanted rows, all words, in tiles that `pick` chooses by their rows. The caller has checked lengths, and that the processor has the
/// instructions of these tiles.
pub(crate) fn multiply(
    (panel, pick): (&WordPanel, fn(usize) -> Micro),
    outputs: Range<usize>,
    rows: &[Option<&[u64]>],
    start: &[u64],
    mask: u64,
    out: &mut [&mut [u64]],
    scratch: &mut Scratch,
) {
    let mut wanted = Wanted::<WIDTH>::new(outputs, out, start, ROWS);
    let words = wanted.words();
    let Scratch { words: copy, columns, .. } = scratch;
    columns.clear();
    columns.extend(rows.iter().enumerate().filter_map(|(k, r)| r.map(|r| (r.as_ptr(), k))));
    for at in (0..words).step_by(STRIP) {
        let count = STRIP.min(words - at);
        // Columns that are read again by another row block, or end early, are copied together once.
        let (list, base): (&[Column], usize) = if count < STRIP || panel.blocks.len() > 1 {
            (copied::<STRIP>(columns, at, count, copy), 0)
        } else {
            (&columns[..], at)
        };
        for offset in (0..count).step_by(WIDTH) {
            for &(first, r, begin) in &panel.blocks {
                if wanted.none_of(first, r) {
                    continue;
                }
                let pointers = wanted.pointers::<ROWS>(first, r, at + offset);
                let start = wanted.constants::<ROWS>(first, r);
                let weights = panel.values[begin..begin + r * rows.len()].as_ptr();
                // SAFETY: every row is as long as the outputs (checked by the caller); a short strip is read
                // from its padded copy and a short last tile is written to spare room.
                unsafe { pick(r)(list, base + offset, weights, &start, mask, &pointers) };
                wanted.finish(first, r, at + offset);
            }
        }
    }
}

/// Copies `count` words at `at` of every column next to each other, padded to `W` with zeros.
pub(super) fn copied<'a, const W: usize>(
    columns: &[Column],
    at: usize,
    count: usize,
    copy: &'a mut (Vec<crate::limbs::Lane>, Vec<Column>),
) -> &'a [Column] {
    let (lanes, list) = copy;
    crate::scratch::grow(lanes, columns.len() * W / 8);
    list.clear();
    let base: *mut u64 = lanes.as_mut_ptr().cast();
    for (i, (words, index)) in columns.iter().enumerate() {
        // SAFETY: every column has `at + count` words, `lanes` was grown to `W` words a column,
        // and any bit pattern is a valid lane.
        unsafe {
            let to = base.add(i * W);
            if count == W {
                // A size known to the compiler: vectors, not a call.
                to.cast::<[u64; W]>().write(words.add(at).cast::<[u64; W]>().read());
            } else {
                std::ptr::copy_nonoverlapping(words.add(at), to, count);
                std::ptr::write_bytes(to.add(count), 0, W - count);
            }
            list.push((to.cast_const(), *index));
        }
    }
    list
}
