//! Random and chosen 1-of-2 OT, and correlated OT with chosen bits, from random-choice correlated OTs: pads are
//! hashes H(q), H(q ^ Delta) of the sender's block and H(t) of the receiver's; the receiver turns its random choice
//! c into b by sending c ^ b (Beaver 1995).

use crate::bits::{bit, words};
use crate::block::Block;
use crate::cost::CostModel;
use crate::error::{check_len, Result};
use crate::protocols::product::chunks;
use crate::select::all;
use crate::wire::{packed_bytes, recv_packed, recv_plane, send_packed, send_plane};
use crate::{Party, Session};

/// OTs drawn at a time.
const STEP: usize = 1024;

/// Random OT, sender: n pairs of random blocks.
///
/// # Errors
/// Channel errors.
pub fn random_send(s: &mut Session, n: usize) -> Result<Vec<[Block; 2]>> {
    s.ensure(demand(s.party, n))?;
    let delta = s.delta();
    let mut out = Vec::with_capacity(n);
    let (mut q, mut h) = ([0; STEP], [[0; STEP]; 2]);
    for (_, m) in chunks(n, STEP) {
        s.draw_sent(&mut q[..m])?;
        s.send_pads.key.hash(&q[..m], 0, &mut h[0][..m]);
        s.send_pads.key.hash(&q[..m], delta, &mut h[1][..m]);
        out.extend((0..m).map(|i| [h[0][i], h[1][i]]));
    }
    Ok(out)
}

/// Random OT, receiver: random choice bits (a plane) and the chosen blocks.
///
/// # Errors
/// Channel errors.
pub fn random_recv(s: &mut Session, n: usize) -> Result<(Vec<u64>, Vec<Block>)> {
    s.ensure(demand(s.party.other(), n))?;
    let mut choices = vec![0; words(n)];
    let mut out = vec![0; n];
    let mut t = [0; STEP];
    for (at, m) in chunks(n, STEP) {
        s.draw_received(&mut t[..m])?;
        for (i, t) in t[..m].iter().enumerate() {
            choices[(at + i) / 64] |= (*t as u64 & 1) << ((at + i) % 64);
        }
        s.recv_pads.key.hash(&t[..m], 0, &mut out[at..at + m]);
    }
    Ok((choices, out))
}

fn demand(sender: Party, n: usize) -> [u64; 2] {
    let mut d = [0; 2];
    d[sender.index()] = n as u64;
    d
}

/// Cost of random OT: only what the correlated OTs cost.
pub fn random_cost(m: &mut CostModel, sender: Party, n: usize) {
    m.take(demand(sender, n));
}

/// Chosen 1-of-2 OT of `bits`-bit messages (1..=64), sender.
///
/// # Errors
/// Channel errors.
pub fn send(s: &mut Session, messages: &[[u64; 2]], bits: u32) -> Result<()> {
    let n = messages.len();
    let pads = random_send(s, n)?;
    let ch = &mut *s.channel;
    let d = recv_plane(ch, n)?;
    let mask = crate::Ring::new(bits)?.mask();
    let mut masked = Vec::with_capacity(2 * n);
    for (i, (m, p)) in messages.iter().zip(&pads).enumerate() {
        let d = bit(&d, i) as usize;
        masked.extend([(m[0] ^ p[d] as u64) & mask, (m[1] ^ p[1 - d] as u64) & mask]);
    }
    send_packed(ch, &masked, bits)?;
    ch.flush()
}

/// Chosen 1-of-2 OT, receiver; `choices` is a plane of n bits.
///
/// # Errors
/// `Length` when `choices` does not hold n bits; channel errors.
pub fn recv(s: &mut Session, choices: &[u64], n: usize, bits: u32) -> Result<Vec<u64>> {
    check_len("choice words", words(n), choices.len())?;
    let mask = crate::Ring::new(bits)?.mask();
    let (c, pads) = random_recv(s, n)?;
    let d: Vec<u64> = c.iter().zip(choices).map(|(a, b)| a ^ b).collect();
    let ch = &mut *s.channel;
    send_plane(ch, &d, n)?;
    let masked = recv_packed(ch, 2 * n, bits)?;
    let chosen = |(i, pair): (usize, &[u64])| pair[0] ^ ((pair[0] ^ pair[1]) & all(bit(choices, i)));
    let messages = masked.chunks_exact(2).enumerate().map(chosen);
    Ok(messages.zip(&pads).map(|(m, pad)| (m ^ *pad as u64) & mask).collect())
}

/// Cost of chosen 1-of-2 OT.
pub fn cost(m: &mut CostModel, sender: Party, n: usize, bits: u32) {
    random_cost(m, sender, n);
    m.message(sender.other(), crate::bits::bytes(n) as u64);
    m.message(sender, packed_bytes(2 * n, bits));
}
