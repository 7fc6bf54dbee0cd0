//! Base OT on Ristretto: Masny and Rindal, "Endemic Oblivious Transfer" (CCS 2019), with one sender element
//! for all transfers. Two messages that may cross.
//!
//! For transfer i with choice c the receiver picks a, a random R_{1-c}, sets R_c = a*G - H(i, R_{1-c}), and
//! sends (R_0, R_1). The sender sends B = b*G. The keys are K_j = KDF(i, R_0, R_1, B, b*(R_j + H(i, R_{1-j})));
//! the receiver computes K_c from a*B. R_0 and R_1 are both uniform, whatever c is.

use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE as G;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use sha2::{Digest, Sha256, Sha512};
use zeroize::{Zeroize, Zeroizing};

use crate::block::{Block, Prg};
use crate::error::{MpcError, Result};
use crate::select::swap_bytes;

/// Transfers made: the width of a block.
pub const COUNT: usize = 128;
/// Bytes of the receiver's message.
pub const RECEIVER_BYTES: usize = COUNT * 64;
/// Bytes of the sender's message.
pub const SENDER_BYTES: usize = 32;

fn wide(rng: &mut Prg) -> Zeroizing<[u8; 64]> {
    let mut words = [0u64; 8];
    rng.words(&mut words);
    let mut out = Zeroizing::new([0u8; 64]);
    for (o, w) in out.chunks_exact_mut(8).zip(words) {
        o.copy_from_slice(&w.to_le_bytes());
    }
    words.zeroize();
    out
}

fn scalar(rng: &mut Prg) -> Zeroizing<Scalar> {
    Zeroizing::new(Scalar::from_bytes_mod_order_wide(&wide(rng)))
}

fn to_group(session: &[u8; 32], index: usize, point: &[u8; 32]) -> RistrettoPoint {
    let mut h = Sha512::new();
    h.update(b"hushnet-mpc base OT group");
    h.update(session);
    h.update((index as u64).to_le_bytes());
    h.update(point);
    RistrettoPoint::from_uniform_bytes(&h.finalize().into())
}

fn kdf(session: &[u8; 32], index: usize, pair: &[u8], b: &[u8; 32], shared: &RistrettoPoint) -> Block {
    let mut h = Sha256::new();
    h.update(b"hushnet-mpc base OT key");
    h.update(session);
    h.update((index as u64).to_le_bytes());
    h.update(pair);
    h.update(b);
    h.update(shared.compress().as_bytes());
    let mut out = [0u8; 16];
    out.copy_from_slice(&h.finalize()[..16]);
    Block::from_le_bytes(out)
}

fn array(bytes: &[u8]) -> [u8; 32] {
    let mut a = [0; 32];
    a.copy_from_slice(bytes);
    a
}

fn decode(index: usize, bytes: &[u8; 32]) -> Result<RistrettoPoint> {
    CompressedRistretto(*bytes)
        .decompress()
        .filter(|p| *p != RistrettoPoint::identity())
        .ok_or(MpcError::BadPoint { index })
}

/// The receiver between its message and its keys.
pub struct Receiver {
    session: [u8; 32],
    secrets: Vec<Zeroizing<Scalar>>,
    message: Vec<u8>,
}

impl Receiver {
    /// Choice i is bit i of `choices`.
    pub fn new(session: [u8; 32], choices: Block, rng: &mut Prg) -> Self {
        Self::some(COUNT, session, choices, rng)
    }

    /// As many transfers as asked for.
    pub(crate) fn some(count: usize, session: [u8; 32], choices: Block, rng: &mut Prg) -> Self {
        let mut message = vec![0u8; count * 64];
        let mut secrets = Vec::with_capacity(count);
        for (i, pair) in message.chunks_exact_mut(64).enumerate() {
            let a = scalar(rng);
            let other = RistrettoPoint::from_uniform_bytes(&wide(rng)).compress();
            let mine = &*a * G - to_group(&session, i, other.as_bytes());
            // R_0 is `mine` until the choice bit exchanges the two.
            let (zero, one) = pair.split_at_mut(32);
            zero.copy_from_slice(mine.compress().as_bytes());
            one.copy_from_slice(other.as_bytes());
            swap_bytes(zero, one, (choices >> i) as u64);
            secrets.push(a);
        }
        Self { session, secrets, message }
    }

    /// What goes to the sender.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The chosen keys.
    ///
    /// # Errors
    /// `BadPoint` when the sender's message is no group element.
    pub fn finish(self, from_sender: &[u8; SENDER_BYTES]) -> Result<Vec<Block>> {
        let b = decode(0, from_sender)?;
        let keys = self.secrets.iter().zip(self.message.chunks_exact(64)).enumerate();
        Ok(keys.map(|(i, (a, pair))| kdf(&self.session, i, pair, from_sender, &(b * **a))).collect())
    }
}

/// The sender between its message and its keys.
pub struct Sender {
    session: [u8; 32],
    secret: Zeroizing<Scalar>,
    message: [u8; SENDER_BYTES],
}

impl Sender {
    /// A fresh sender.
    pub fn new(session: [u8; 32], rng: &mut Prg) -> Self {
        let secret = scalar(rng);
        let message = (&*secret * G).compress().to_bytes();
        Self { session, secret, message }
    }

    /// What goes to the receiver.
    #[must_use]
    pub fn message(&self) -> &[u8; SENDER_BYTES] {
        &self.message
    }

    /// Both keys of every transfer.
    ///
    /// # Errors
    /// `BadPoint` when an element of the receiver's message does not decode; `Length` when it is too short.
    pub fn finish(self, from_receiver: &[u8]) -> Result<Vec<[Block; 2]>> {
        self.keys(COUNT, from_receiver)
    }

    /// The keys of as many transfers.
    pub(crate) fn keys(self, count: usize, from_receiver: &[u8]) -> Result<Vec<[Block; 2]>> {
        crate::error::check_len("base OT message", count * 64, from_receiver.len())?;
        let mut keys = Vec::with_capacity(count);
        for (i, pair) in from_receiver.chunks_exact(64).enumerate() {
            let bytes = [array(&pair[..32]), array(&pair[32..])];
            let mut both = [0; 2];
            for (j, key) in both.iter_mut().enumerate() {
                let point = decode(2 * i + j, &bytes[j])? + to_group(&self.session, i, &bytes[1 - j]);
                *key = kdf(&self.session, i, pair, &self.message, &(point * *self.secret));
            }
            keys.push(both);
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receiver_gets_the_chosen_key_only() {
        let mut rng = Prg::from_os().unwrap();
        let choices = rng.block();
        let r = Receiver::new([3; 32], choices, &mut rng);
        let s = Sender::new([3; 32], &mut rng);
        let (to_sender, to_receiver) = (r.message().to_vec(), *s.message());
        let keys = s.finish(&to_sender).unwrap();
        for (i, k) in r.finish(&to_receiver).unwrap().into_iter().enumerate() {
            let c = (choices >> i) as usize & 1;
            assert_eq!(k, keys[i][c]);
            assert_ne!(k, keys[i][1 - c]);
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        let mut rng = Prg::from_os().unwrap();
        let r = Receiver::new([3; 32], 5, &mut rng);
        let s = Sender::new([3; 32], &mut rng);
        let mut bad = r.message().to_vec();
        bad[64..96].fill(0xff);
        assert!(matches!(s.finish(&bad), Err(MpcError::BadPoint { index: 2 })));
        assert!(matches!(r.finish(&[0; 32]), Err(MpcError::BadPoint { index: 0 })));
        let s = Sender::new([3; 32], &mut rng);
        assert!(matches!(s.finish(&bad[..64]), Err(MpcError::Length { .. })));
    }
}
