//! What the ledger of tests records of ciphertexts (`docs/mpc.md`, "Every mask is used once"), and how.

use hushnet_ring::ledger::{self, Kind, Tag};
use hushnet_ring::rns::{Eval, RnsPoly};

/// Secret keys of all constructions.
pub const SECRET: Kind = Kind("secret key");
/// Seeds from which public polynomials `a` come.
pub const SEED: Kind = Kind("seed of a ciphertext");
/// Client-aided: the pair of `a` and the secret. Shared masks meet a fresh secret in every block.
pub const BATCH_MASK: Kind = Kind("a and secret of a batch ciphertext");
/// Client-aided, coefficient-packed: the pair of `a` and the secret. All tiles share `a`; each has a fresh secret.
pub const COEFFICIENT_MASK: Kind = Kind("a and secret of a coefficient-packed ciphertext");
/// Batches on shares: `a` of requests and of the public key.
pub const SHARE_MASK: Kind = Kind("a of a batch ciphertext on shares");
/// Batches on shares: u of an answer.
pub const SHARE_RERANDOMISER: Kind = Kind("re-randomiser of a batch answer");
/// Batches on shares: the words of R.
pub const SHARE_R: Kind = Kind("R of a batch answer");
/// Coefficient-packed (Cheetah, ConvFHE): `a` of requests and of the public key.
pub const PACKED_MASK: Kind = Kind("a of a packed ciphertext");
/// Coefficient-packed: u of an answer.
pub const PACKED_RERANDOMISER: Kind = Kind("re-randomiser of a packed answer");
/// Products of shares: limbs of `a` of requests and of the public key.
pub const WIDE_MASK: Kind = Kind("a of a wide ciphertext");
/// Products of shares: u of an answer.
pub const WIDE_RERANDOMISER: Kind = Kind("re-randomiser of a wide answer");
/// ConvFHE, products of shares: `a` of merging keys.
pub const MERGE_MASK: Kind = Kind("a of a merging key");
/// Rotation-free: v of a query, the secret that meets the public b.
pub const ONE_POLY_SECRET: Kind = Kind("v of a rotation-free query");
/// Rotation-free: the words of R.
pub const ONE_POLY_R: Kind = Kind("R of a rotation-free answer");
/// Rotation-free: the set-up's secret and the number of a weight polynomial, always for the same weights.
pub const ONE_POLY_SETUP: Kind = Kind("noise of a rotation-free set-up");
/// Slots (GALA, GAZELLE): limbs of `a` of ciphertexts and keys.
pub const SLOT_MASK: Kind = Kind("a of a slot ciphertext or key");
/// Slots: u of an answer.
pub const SLOT_RERANDOMISER: Kind = Kind("re-randomiser of a slot answer");
/// The mask R of an answer in slots.
pub const SLOT_R: Kind = Kind("R of a slot answer");
/// The noise that floods an answer in slots.
pub const SLOT_FLOOD: Kind = Kind("flood of a slot answer");
/// Prepared inferences: r, that the client's share of a layer's input is sent under.
pub const UNIT_MASK: Kind = Kind("r of a prepared layer");
/// Prepared inferences: the server's share s of a layer of r.
pub const UNIT_SHARE: Kind = Kind("s of a prepared layer");
/// CKKS: limbs of `a` of ciphertexts and keys.
pub const CKKS_MASK: Kind = Kind("a of a CKKS ciphertext or key");
/// CKKS: u of an encryption under the public key, of zero where weights are hidden.
pub const CKKS_RERANDOMISER: Kind = Kind("re-randomiser of a CKKS answer");
/// The noise that floods a CKKS answer.
pub const CKKS_FLOOD: Kind = Kind("flood of a CKKS answer");

/// Every limb of a public polynomial serves once: ciphertexts of fewer primes have limbs of the same derivation.
#[inline]
pub(crate) fn limbs(kind: Kind, a: &RnsPoly<Eval>) {
    if ledger::ON {
        a.range().for_each(|i| ledger::once(kind, &[Tag::number(i as u64), Tag::words(a.limb(i))]));
    }
}
