//! Comparison of short digits by 1-of-2^k OT, bit-sliced.
//!
//! Party 1 holds a digit x, party 0 a digit y. They get XOR shares of lt = [x < y] and eq = [x = y]. Party 0 chooses, because it knows its share of a
//! layer's result when it answers: its choices then travel with the answer (`docs/mpc.md`, "Rounds").
//! CrypTFlow2 (CCS 2020) sends a table of 2^k entries for 4-bit digits; we use that lt(y) vanishes at y = 0 and
//! that eq(y), as a polynomial in y's bits, has the public leading coefficient 1, so that k = 2 costs 2 choice
//! bits and 3 + 2 correction bits. With a tree node of 6 bits per digit that is 6.5 bits per compared bit; k = 1,
//! 3, 4 cost 8, 7.3 and 9.75.
//!
//! k = 2: u = !x1, v = !x0; lt(y) = u*y1 ^ u*v*y0 ^ v*y1*y0, eq(y) = u*v ^ u*y0 ^ v*y1 ^ y1*y0. Two random OTs with
//! pad strings m1_0, m1_1, m0_0, m0_1 and choices c1, c0 make the pads P(c) = m1_c1[c0] ^ m0_c0[c1] (lt: independent
//! for all four c) and E_i = m_i,0[2] ^ m_i,1[2] (eq: affine in c). Party 0 sends d = y ^ c; R(j) = P(j ^ d).

use crate::bits::{bytes, words};
use crate::cost::CostModel;
use crate::error::Result;
use crate::kept::{exactly, Item};
use crate::simd::{FixedKey, GROUP};
use crate::wire::{recv_plane, send_plane};
use crate::{Block, Party, Session};

/// Who has the pads of all choices, and who chooses.
pub(crate) const SENDER: Party = Party::One;
const CHOOSER: Party = Party::Zero;

/// XOR shares of lt and, where needed, eq; planes of n bits.
pub(super) struct Digit {
    pub lt: Vec<u64>,
    pub eq: Option<Vec<u64>>,
}

/// Widths of the digits that cover m bits, least significant first: twos, and a one on top when m is odd.
pub(super) fn widths(m: usize) -> impl Iterator<Item = usize> {
    (0..m.div_ceil(2)).map(move |i| (m - 2 * i).min(2))
}

/// Correlated OTs that the leaves take (party 1 sends).
pub(super) fn demand(m: usize, n: usize) -> u64 {
    (m * words(n) * GROUP) as u64
}

/// Messages of [`leaves_beside`], whose message beside them has so many bytes, equal for both parties, and is read behind the leaves.
pub(super) fn cost(model: &mut CostModel, m: usize, n: usize, lowest_eq: bool, beside: u64) {
    let plane = bytes(n) as u64;
    for w in widths(m) {
        model.pad(if w == 1 { Item::One } else { Item::Two }, n);
        model.depart_late(CHOOSER, w as u64 * plane);
    }
    model.depart_late(CHOOSER, beside);
    for (i, w) in widths(m).enumerate() {
        model.arrive_late(SENDER);
        let corrections = match (w, i == 0 && !lowest_eq) {
            (1, _) => 1,
            (_, true) => 3,
            _ => 5,
        };
        model.depart_late(SENDER, corrections * plane);
    }
    model.depart_late(SENDER, beside);
    for _ in widths(m) {
        model.arrive_late(CHOOSER);
    }
    if beside > 0 {
        model.arrive_late(SENDER);
        model.arrive_late(CHOOSER);
    }
}

/// Compares m-bit numbers digit by digit; `input` holds this party's planes, least significant first. The lowest
/// digit gets an eq only when `lowest_eq`. The correlated OTs have been provided: [`demand`].
pub(super) fn leaves(s: &mut Session, input: &[Vec<u64>], n: usize, lowest_eq: bool) -> Result<Vec<Digit>> {
    leaves_beside(s, input, n, lowest_eq, &mut |_| Ok(()))
}

/// [`leaves`], and messages beside them: `send` runs behind a party's first message, the sender's corrections or the chooser's choices.
pub(super) fn leaves_beside(
    s: &mut Session,
    input: &[Vec<u64>],
    n: usize,
    lowest_eq: bool,
    send: &mut dyn FnMut(&mut Session) -> Result<()>,
) -> Result<Vec<Digit>> {
    if s.party == SENDER {
        let digits = send_leaves(s, input, n, lowest_eq)?;
        send(s)?;
        return Ok(digits);
    }
    let mut digits = choose_leaves(s, input, n)?;
    send(s)?;
    finish_leaves(s, input, n, lowest_eq, &mut digits)?;
    Ok(digits)
}

/// A digit's pads and choices as planes of n values: [`Item::One`]. The sender has the pad of 0 and its XOR with that of 1, the other party its choice and
/// that one's pad.
pub(crate) fn one_bit(s: &mut Session, n: usize) -> Result<Vec<Vec<u64>>> {
    let (mut out, mut q) = (vec![vec![0; words(n)]; 2], [0; GROUP]);
    let delta = s.delta();
    for w in 0..words(n) {
        let group = if s.party == SENDER {
            s.draw_sent(&mut q)?;
            let ([m0], [m1]) = (s.send_pads.key.planes::<1>(&q, 0), s.send_pads.key.planes::<1>(&q, delta));
            [m0, m0 ^ m1]
        } else {
            s.draw_received(&mut q)?;
            let [pad] = s.recv_pads.key.planes(&q, 0);
            [s.recv_pads.key.choices(&q), pad]
        };
        out.iter_mut().zip(group).for_each(|(o, g)| o[w] = g);
    }
    Ok(out)
}

/// The same of a digit of two bits: [`Item::Two`]. The sender has P(0) to P(3) and E's three coefficients, the other party c1, c0, P(c) and E(c).
pub(crate) fn two_bits(s: &mut Session, n: usize) -> Result<Vec<Vec<u64>>> {
    let mut q = [0; 2 * GROUP];
    let mut out = vec![vec![0; words(n)]; if s.party == SENDER { 7 } else { 4 }];
    let delta = s.delta();
    for w in 0..words(n) {
        if s.party == SENDER {
            s.draw_sent(&mut q)?;
            let all = sent_two(&s.send_pads.key, delta, &q);
            out.iter_mut().zip(all).for_each(|(o, g)| o[w] = g);
        } else {
            s.draw_received(&mut q)?;
            let all = chosen_two(&s.recv_pads.key, &q);
            out.iter_mut().zip(all).for_each(|(o, g)| o[w] = g);
        }
    }
    Ok(out)
}

fn sent_two(hash: &FixedKey, delta: Block, q: &[Block; 2 * GROUP]) -> [u64; 7] {
    let (q1, q0) = halves(q);
    let h: [[u64; 3]; 2] = [hash.planes(q1, 0), hash.planes(q1, delta)];
    let l: [[u64; 3]; 2] = [hash.planes(q0, 0), hash.planes(q0, delta)];
    let [p0, p1, p2, p3] = std::array::from_fn(|c| h[c >> 1][c & 1] ^ l[c & 1][c >> 1]);
    [p0, p1, p2, p3, h[0][2] ^ l[0][2], l[0][2] ^ l[1][2], h[0][2] ^ h[1][2]]
}

fn chosen_two(hash: &FixedKey, t: &[Block; 2 * GROUP]) -> [u64; 4] {
    let (t1, t0) = halves(t);
    let (c1, c0) = (hash.choices(t1), hash.choices(t0));
    let (h, l): ([u64; 3], [u64; 3]) = (hash.planes(t1, 0), hash.planes(t0, 0));
    let pad = h[0] ^ ((h[0] ^ h[1]) & c0) ^ l[0] ^ ((l[0] ^ l[1]) & c1);
    [c1, c0, pad, h[2] ^ l[2]]
}

fn halves(q: &[Block; 2 * GROUP]) -> (&[Block; GROUP], &[Block; GROUP]) {
    let (a, b) = q.split_at(GROUP);
    match (a.try_into(), b.try_into()) {
        (Ok(a), Ok(b)) => (a, b),
        _ => unreachable!("the halves of 128 blocks are 64 blocks"),
    }
}

fn send_leaves(s: &mut Session, x: &[Vec<u64>], n: usize, lowest_eq: bool) -> Result<Vec<Digit>> {
    let mut digits = Vec::new();
    for (i, bits) in x.chunks(2).enumerate() {
        let digit = match bits {
            [x0, x1] => send_two(s, x0, x1, n, i > 0 || lowest_eq)?,
            [x0] => send_one(s, x0, n)?,
            _ => unreachable!("chunks(2)"),
        };
        digits.push(digit);
    }
    s.channel.flush()?;
    Ok(digits)
}

fn send_two(s: &mut Session, x0: &[u64], x1: &[u64], n: usize, want_eq: bool) -> Result<Digit> {
    let [p0, p1, p2, p3, e0, e1, e2] = exactly(s.pads(Item::Two, n)?)?;
    let d1 = recv_plane(&mut *s.channel, n)?;
    let d0 = recv_plane(&mut *s.channel, n)?;
    let mut f = [(); 5].map(|()| vec![0; words(n)]);
    let mut lt = vec![0; words(n)];
    let mut eq = vec![0; words(n)];
    for w in 0..words(n) {
        let (d1, d0, u, v) = (d1[w], d0[w], !x1[w], !x0[w]);
        // R(j) = P(j ^ d): swap within pairs where d0, pairs where d1.
        let t = [(p0[w] ^ p1[w]) & d0, (p2[w] ^ p3[w]) & d0];
        let p = [p0[w] ^ t[0], p1[w] ^ t[0], p2[w] ^ t[1], p3[w] ^ t[1]];
        let t = [(p[0] ^ p[2]) & d1, (p[1] ^ p[3]) & d1];
        let r = [p[0] ^ t[0], p[1] ^ t[1], p[2] ^ t[0], p[3] ^ t[1]];
        lt[w] = r[0];
        f[0][w] = r[0] ^ r[1] ^ (u & v);
        f[1][w] = r[0] ^ r[2] ^ u;
        f[2][w] = r[0] ^ r[3] ^ (u | v);
        eq[w] = (u & v) ^ e0[w] ^ (d0 & e1[w]) ^ (d1 & e2[w]);
        f[3][w] = u ^ e1[w];
        f[4][w] = v ^ e2[w];
    }
    for f in &f[..if want_eq { 5 } else { 3 }] {
        send_plane(&mut *s.channel, f, n)?;
    }
    Ok(Digit { lt, eq: want_eq.then_some(eq) })
}

fn send_one(s: &mut Session, x0: &[u64], n: usize) -> Result<Digit> {
    let [mut lt, mut f] = exactly(s.pads(Item::One, n)?)?;
    let d = recv_plane(&mut *s.channel, n)?;
    for (w, d) in d.into_iter().enumerate() {
        lt[w] ^= d & f[w];
        f[w] ^= !x0[w];
    }
    send_plane(&mut *s.channel, &f, n)?;
    Ok(Digit { lt, eq: Some(x0.iter().map(|x| !x).collect()) })
}

fn choose_leaves(s: &mut Session, y: &[Vec<u64>], n: usize) -> Result<Vec<Digit>> {
    let mut digits = Vec::new();
    for bits in y.chunks(2) {
        let digit = match bits {
            [y0, y1] => choose_two(s, y0, y1, n)?,
            [y0] => choose_one(s, y0, n)?,
            _ => unreachable!("chunks(2)"),
        };
        s.channel.flush()?;
        digits.push(digit);
    }
    Ok(digits)
}

fn finish_leaves(
    s: &mut Session,
    y: &[Vec<u64>],
    n: usize,
    lowest_eq: bool,
    digits: &mut [Digit],
) -> Result<()> {
    for (i, (bits, digit)) in y.chunks(2).zip(digits).enumerate() {
        match bits {
            [y0, y1] => finish_two(s, y0, y1, n, i > 0 || lowest_eq, digit)?,
            [y0] => {
                let f = recv_plane(&mut *s.channel, n)?;
                digit.lt.iter_mut().zip(f.iter().zip(y0)).for_each(|(lt, (f, y))| *lt ^= f & y);
            }
            _ => unreachable!("chunks(2)"),
        }
    }
    Ok(())
}

fn choose_two(s: &mut Session, y0: &[u64], y1: &[u64], n: usize) -> Result<Digit> {
    let [mut d1, mut d0, lt, eq] = exactly(s.pads(Item::Two, n)?)?;
    d1.iter_mut().zip(y1).for_each(|(d, y)| *d ^= y);
    d0.iter_mut().zip(y0).for_each(|(d, y)| *d ^= y);
    send_plane(&mut *s.channel, &d1, n)?;
    send_plane(&mut *s.channel, &d0, n)?;
    Ok(Digit { lt, eq: Some(eq) })
}

fn choose_one(s: &mut Session, y0: &[u64], n: usize) -> Result<Digit> {
    let [mut d, lt] = exactly(s.pads(Item::One, n)?)?;
    d.iter_mut().zip(y0).for_each(|(d, y)| *d ^= y);
    send_plane(&mut *s.channel, &d, n)?;
    Ok(Digit { lt, eq: Some(y0.to_vec()) })
}

fn finish_two(
    s: &mut Session,
    y0: &[u64],
    y1: &[u64],
    n: usize,
    want_eq: bool,
    digit: &mut Digit,
) -> Result<()> {
    let ch = &mut *s.channel;
    let f = [recv_plane(ch, n)?, recv_plane(ch, n)?, recv_plane(ch, n)?];
    for (w, lt) in digit.lt.iter_mut().enumerate() {
        let (a, b) = (y1[w], y0[w]);
        *lt ^= (!a & b & f[0][w]) ^ (a & !b & f[1][w]) ^ (a & b & f[2][w]);
    }
    if !want_eq {
        digit.eq = None;
        return Ok(());
    }
    let g = [recv_plane(ch, n)?, recv_plane(ch, n)?];
    for (w, eq) in digit.eq.iter_mut().flatten().enumerate() {
        let (a, b) = (y1[w], y0[w]);
        *eq ^= (b & g[0][w]) ^ (a & g[1][w]) ^ (a & b);
    }
    Ok(())
}
