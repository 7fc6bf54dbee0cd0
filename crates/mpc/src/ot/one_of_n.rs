//! Chosen 1-of-2^k OT, k <= 8, from k random 1-of-2 OTs each (Naor and Pinkas 1999, with random OT first): message
//! j is padded with XOR_i F(m_{i, j_i}, j), and the receiver knows the k keys m_{i, choice_i} only. F(m, j) = H(m ^ j*P)
//! for a public odd constant P: the keys are pseudo-random and used for this message only.

use crate::bits::{bit, bytes, words};
use crate::block::Block;
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::select::look_up;
use crate::wire::{packed_bytes, recv_packed, recv_plane, send_packed, send_plane};
use crate::{uses, Party, Session};
use hushnet_ring::ledger;
use hushnet_ring::secret::declassify;

use super::chosen::{random_cost, random_recv, random_send};

const TWEAK: Block = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

fn check(k: u32) -> Result<()> {
    if k == 0 || k > 8 {
        return Err(MpcError::Parameter { what: "log2 of the number of messages", got: k.into(), limit: 8 });
    }
    Ok(())
}

fn tweak(j: u64) -> Block {
    TWEAK.wrapping_mul(Block::from(j) + 1)
}

/// Sender: `messages` holds n rows of 2^k messages of `bits` bits.
///
/// # Errors
/// `Parameter` for k outside 1..=8; `Length` when there is no whole number of rows; channel errors.
pub fn send(s: &mut Session, messages: &[u64], k: u32, bits: u32) -> Result<()> {
    check(k)?;
    let mask = crate::Ring::new(bits)?.mask();
    let rows = 1usize << k;
    let n = messages.len() / rows;
    crate::error::check_len("messages of 1-of-2^k OT", n * rows, messages.len())?;
    let keys = random_send(s, n * k as usize)?;
    let mut d = Vec::new();
    for _ in 0..k {
        d.push(recv_plane(&mut *s.channel, n)?);
    }
    let mut masked = messages.to_vec();
    let mut pad = vec![0; rows];
    let mut key = vec![0; rows];
    for (i, row) in masked.chunks_exact_mut(rows).enumerate() {
        for (b, d) in d.iter().enumerate() {
            let pair = keys[b * n + i];
            for (j, key) in key.iter_mut().enumerate() {
                *key = pair[(j >> b & 1) ^ bit(d, i) as usize] ^ tweak(j as u64);
            }
            ledger::blocks(uses::SENT_TABLE_KEY, &mut key);
            s.hash.hash(&key, 0, &mut pad);
            row.iter_mut().zip(&pad).for_each(|(m, p)| *m ^= *p as u64);
        }
        row.iter_mut().for_each(|m| *m &= mask);
    }
    send_packed(&mut *s.channel, &masked, bits)?;
    s.channel.flush()
}

/// Receiver: one choice below 2^k per row.
///
/// # Errors
/// `Parameter` for k outside 1..=8 or a choice out of range; channel errors.
pub fn recv(s: &mut Session, choices: &[u8], k: u32, bits: u32) -> Result<Vec<u64>> {
    check(k)?;
    let mask = crate::Ring::new(bits)?.mask();
    // Choices are secret, so the error must not tell which one, and every one is looked at.
    let all = choices.iter().fold(0, |all, &c| all | c);
    if declassify(u32::from(all) >> k != 0) {
        let limit = (1 << k) - 1;
        return Err(MpcError::Parameter { what: "choice (one of them), at least", got: limit + 1, limit });
    }
    let n = choices.len();
    let (c, keys) = random_recv(s, n * k as usize)?;
    for b in 0..k as usize {
        let mut d = vec![0; words(n)];
        for (i, choice) in choices.iter().enumerate() {
            d[i / 64] |= (u64::from(choice >> b & 1) ^ bit(&c, b * n + i)) << (i % 64);
        }
        send_plane(&mut *s.channel, &d, n)?;
    }
    let masked = recv_packed(&mut *s.channel, n << k, bits)?;
    let mut pads = [0; 8];
    let mut own = [0; 8];
    Ok((0..n)
        .map(|i| {
            let j = u64::from(choices[i]);
            (0..k as usize).for_each(|b| own[b] = keys[b * n + i] ^ tweak(j));
            ledger::blocks(uses::RECEIVED_TABLE_KEY, &mut own[..k as usize]);
            s.hash.hash(&own[..k as usize], 0, &mut pads[..k as usize]);
            let pad = pads[..k as usize].iter().fold(0, |a, p| a ^ *p as u64);
            (look_up(&masked[i << k..(i + 1) << k], j) ^ pad) & mask
        })
        .collect())
}

/// Cost of n chosen 1-of-2^k OTs.
pub fn cost(m: &mut CostModel, sender: Party, n: usize, k: u32, bits: u32) {
    random_cost(m, sender, n * k as usize);
    m.message(sender.other(), u64::from(k) * bytes(n) as u64);
    m.message(sender, packed_bytes(n << k, bits));
}
