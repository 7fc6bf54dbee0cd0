//! Joining digit comparisons in a log-depth tree: lt = lt_h ^ eq_h*lt_l, eq = eq_h*eq_l (CrypTFlow2, section 3).
//!
//! The two products of a node share the operand eq_h. One random OT in each direction makes the bit triples for
//! both without any message: in the OT that party i receives, its choice bit is its share a_i of the mask of eq_h;
//! in the one that it sends, the XOR of its two pads is its share b_i of the masks of (lt_l, eq_l). A node then costs
//! 3 bits each way, or 2 on the path of the lowest digit, where no eq is needed.

use super::leaf::Digit;
use crate::bits::{bytes, words};
use crate::cost::CostModel;
use crate::error::Result;
use crate::kept::{exactly, Item};
use crate::simd::GROUP;
use crate::wire::{recv_plane, send_plane};
use crate::Session;

/// Correlated OTs that joining `digits` digits takes, in each direction.
pub(super) fn demand(digits: usize, n: usize) -> u64 {
    (digits.saturating_sub(1) * words(n) * GROUP) as u64
}

/// Levels of the tree.
pub(super) fn levels(digits: usize) -> u32 {
    digits.next_power_of_two().trailing_zeros()
}

/// Messages of [`join`].
pub(super) fn cost(model: &mut CostModel, mut digits: usize, n: usize, lowest_eq: bool) {
    while digits > 1 {
        let nodes = digits / 2;
        let planes = 3 * nodes - usize::from(!lowest_eq);
        (0..nodes).for_each(|node| model.pad(Item::Node { both: node > 0 || lowest_eq }, n));
        let by = (planes * bytes(n)) as u64;
        model.exchange(by, by);
        digits = digits.div_ceil(2);
    }
}

/// Bit triples of a node for all instances.
struct Triple {
    a: Vec<u64>,
    b: [Vec<u64>; 2],
    c: [Vec<u64>; 2],
}

impl Triple {
    /// Of both products, or of the first alone.
    fn draw(s: &mut Session, n: usize, both: bool) -> Result<Self> {
        let pads = s.pads(Item::Node { both }, n)?;
        if both {
            let [a, b0, c0, b1, c1] = exactly(pads)?;
            return Ok(Self { a, b: [b0, b1], c: [c0, c1] });
        }
        let [a, b, c] = exactly(pads)?;
        Ok(Self { a, b: [b, Vec::new()], c: [c, Vec::new()] })
    }
}

/// A node's triples as planes of n values, [`Item::Node`]: a, and b and c of either product.
pub(crate) fn node_pads(s: &mut Session, n: usize, both: bool) -> Result<Vec<Vec<u64>>> {
    let delta = s.delta();
    let mut out = vec![vec![0; words(n)]; if both { 5 } else { 3 }];
    let mut blocks = [0; GROUP];
    for w in 0..words(n) {
        s.draw_sent(&mut blocks)?;
        let m0: [u64; 2] = s.send_pads.key.planes(&blocks, 0);
        let m1: [u64; 2] = s.send_pads.key.planes(&blocks, delta);
        s.draw_received(&mut blocks)?;
        let a = s.recv_pads.key.choices(&blocks);
        let mc: [u64; 2] = s.recv_pads.key.planes(&blocks, 0);
        out[0][w] = a;
        for (k, product) in out[1..].chunks_exact_mut(2).enumerate() {
            let b = m0[k] ^ m1[k];
            product[0][w] = b;
            product[1][w] = (a & b) ^ m0[k] ^ mc[k];
        }
    }
    Ok(out)
}

/// Joins the digits, least significant first, into one comparison. All but the lowest have an eq; the result has
/// one if the lowest has. The correlated OTs have been provided: [`demand`].
pub(super) fn join(s: &mut Session, mut digits: Vec<Digit>, n: usize) -> Result<Digit> {
    while digits.len() > 1 {
        let mut triples = Vec::with_capacity(digits.len() / 2);
        for pair in digits.chunks_exact(2) {
            triples.push(Triple::draw(s, n, pair[0].eq.is_some())?);
        }
        let mut opened = Vec::with_capacity(triples.len());
        for (pair, t) in digits.chunks_exact(2).zip(&triples) {
            let mine = masked(pair, t);
            for plane in &mine {
                send_plane(&mut *s.channel, plane, n)?;
            }
            opened.push(mine);
        }
        s.channel.flush()?;
        let first = s.is_first();
        let mut next = Vec::with_capacity(digits.len().div_ceil(2));
        let mut rest = digits.into_iter();
        for (t, mut open) in triples.into_iter().zip(opened) {
            for plane in &mut open {
                let theirs = recv_plane(&mut *s.channel, n)?;
                plane.iter_mut().zip(theirs).for_each(|(p, t)| *p ^= t);
            }
            if let (Some(_), Some(high)) = (rest.next(), rest.next()) {
                next.push(node(high.lt, t, &open, first));
            }
        }
        next.extend(rest);
        digits = next;
    }
    digits.pop().ok_or(crate::MpcError::Length { what: "digits", expected: 1, got: 0 })
}

fn masked(pair: &[Digit], t: &Triple) -> Vec<Vec<u64>> {
    let xor = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a ^ b).collect();
    let mut out = Vec::with_capacity(3);
    out.extend(pair[1].eq.as_ref().map(|eq| xor(eq, &t.a)));
    out.push(xor(&pair[0].lt, &t.b[0]));
    out.extend(pair[0].eq.as_ref().map(|eq| xor(eq, &t.b[1])));
    out
}

/// Shares of high_lt ^ eq_h*lt_l and eq_h*eq_l from the opened planes d (of eq_h) and e (of lt_l, eq_l).
fn node(mut lt: Vec<u64>, t: Triple, open: &[Vec<u64>], first: bool) -> Digit {
    let first = u64::from(first).wrapping_neg();
    let product = |k: usize, w: usize| {
        let (d, e) = (open[0][w], open[1 + k][w]);
        t.c[k][w] ^ (d & t.b[k][w]) ^ (e & t.a[w]) ^ (d & e & first)
    };
    lt.iter_mut().enumerate().for_each(|(w, lt)| *lt ^= product(0, w));
    let eq = (open.len() == 3).then(|| (0..lt.len()).map(|w| product(1, w)).collect());
    Digit { lt, eq }
}
