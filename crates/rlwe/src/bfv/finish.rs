//! What leaves the server: a re-randomised, masked, flooded answer modulo `2^r`.
//!
//! **What the client may see** (facts 1 and 2 of `docs/two-party.md`). An answer is `(c0, c1)` rounded to `2^r`, a public
//! function of `c1' = c1 + pk1 u + e1` and of the phase `q/t (m - R) + v + r + (e_pk u + e1 s) + f` modulo q, r the error of rounding q/t R. R is uniform modulo t in
//! every slot and used once, so `m - R` is uniform whatever m is, garbage slots included. f is the sum of three uniform numbers below W in
//! every coefficient, centred; W depends on the parameters only. *Simulation*: draw c1' and `m - R` uniformly and f as prescribed.
//! Hybrid 1: the shift `v + r + e_pk u + e1 s` is dropped from f (|r| <= sqrt(N)/2 is counted, [`super::noise::mask_rounding_norm`]). The square roots of the density of a sum of three uniforms and
//! of its shift by one differ by at most 1.07/W in norm, so by the triangle inequality and independence of
//! coefficients the statistical distance is at most 1.07 |shift|_2 / W <= 2^-40 ([`super::noise::hidden_norm`]; the norm bound
//! itself fails with probability below 2^-40). Both are for one answer: A answers add up to at most A times as much. Hybrid 2: now u and e1 occur in c1' only, and
//! `pk1 u + e1` is a ring-LWE sample, so c1' is pseudorandom.

use super::client::small;
use super::error::expect;
use super::noise::rerandomising;
use super::params::BfvParams;
use super::{BfvError, Cipher, Evaluator};
use crate::uses;
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::rns::{uniform_limb, Coef, RnsPoly};
use hushnet_ring::{low_mask, pack, sample, Prg};
use zeroize::Zeroize;

/// Bits of the low part of a flooding number.
const LOW_BITS: u32 = 48;

impl Evaluator {
    /// Turns a ciphertext into an answer and the server's share R of its slots: the client's is what [`super::client::SecretKey::open`]
    /// reads, and both sum to the slots modulo t, exactly.
    ///
    /// # Errors
    /// [`BfvError::Noise`] when the noise bound leaves less than 40 bits of flooding; [`BfvError::ForeignParams`].
    pub fn answer(&self, c: &Cipher, prg: &mut Prg) -> Result<(Vec<u8>, Vec<u64>), BfvError> {
        let p = &self.params;
        if c.params != *p {
            return Err(BfvError::ForeignParams("the ciphertext"));
        }
        let n = p.ring_degree();
        let noise = c.noise.plus(rerandomising(n));
        if !p.holds(&noise) {
            return Err(BfvError::Noise {
                noise_bits: noise.norm_bound(n).log2(),
                limit_bits: p.hidden_norm().log2(),
            });
        }
        let basis = p.basis();
        let mut share = vec![0; n];
        uniform_limb(prg, &p.0.plain_modulus, &mut share);
        ledger::vector(uses::SLOT_R, &mut share);
        let mut u = small(p, p.data(), prg, sample::ternary)?;
        ledger::once(uses::SLOT_RERANDOMISER, &[Tag::words(u.words())]);
        let mut e1 = small(p, p.data(), prg, sample::centred_binomial)?;
        let [mut c0, mut c1] = c.parts.clone();
        basis.mul_add(&mut c0, &self.public.b, &u)?;
        basis.mul_add(&mut c1, &self.public.a, &u)?;
        basis.add_assign(&mut c1, &e1)?;
        let mut mask = p.message(&share)?;
        basis.sub_assign(&mut c0, &mask)?;
        let (mut c0, c1) = (basis.inverse(c0)?, basis.inverse(c1)?);
        let mut flood = flooding(p, prg)?;
        basis.add_assign(&mut c0, &flood)?;
        for secret in [&mut u, &mut e1, &mut mask] {
            secret.zeroize();
        }
        flood.zeroize();
        let mut bytes = vec![0; p.answer_len()];
        let (first, second) = bytes.split_at_mut(p.answer_len() / 2);
        expect("answer", first.len(), second.len())?;
        pack::pack(&switch(p, &c0), p.response_bits(), first)?;
        pack::pack(&switch(p, &c1), p.response_bits(), second)?;
        Ok((bytes, share))
    }
}

/// Sums of three uniform numbers below W, centred, modulo every data prime.
fn flooding(p: &BfvParams, prg: &mut Prg) -> Result<RnsPoly<Coef>, BfvError> {
    let (n, (top, low)) = (p.ring_degree(), p.0.flood);
    let mut sums = vec![0u128; n];
    let mut random = vec![0u64; 3 * n];
    for _ in 0..3 {
        prg.fill_words(&mut random);
        ledger::vector(uses::SLOT_FLOOD, &mut random);
        for (sum, w) in sums.iter_mut().zip(random.chunks_exact(3)) {
            // The factor below `top` is uniform up to 2^-53.
            let high = (u128::from(w[0]) * u128::from(top)) >> 64;
            let rest = u128::from(w[1]) | u128::from(w[2]) << 64;
            *sum += (high << low) + if low == 0 { 0 } else { rest >> (128 - low) };
        }
    }
    random.zeroize();
    // Three times the mean of a uniform number below W is 3 (W - 1)/2; half a unit does not matter.
    let centre = 3 * ((u128::from(top) << low) - 1) / 2;
    let (mut lows, mut highs) = (vec![0u64; n], vec![0u64; n]);
    for ((sum, l), h) in sums.iter().zip(&mut lows).zip(&mut highs) {
        *l = *sum as u64 & low_mask(LOW_BITS);
        *h = (*sum >> LOW_BITS) as u64;
    }
    sums.zeroize();
    let mut out = p.basis().from_signed(&lows, p.data())?;
    lows.zeroize();
    let moduli = &p.basis().moduli()[p.data()];
    for shift in [0, 32] {
        // At most 72 bits are left above: 32 and 40.
        let part: Vec<u64> =
            highs.iter().map(|h| if shift == 0 { h & 0xffff_ffff } else { h >> 32 }).collect();
        let poly = p.basis().from_signed(&part, p.data())?;
        let words: Vec<u64> = moduli.iter().map(|m| m.pow(2, u64::from(LOW_BITS + shift))).collect();
        p.basis().scale_add(&mut out, &poly, &words)?;
    }
    highs.zeroize();
    for i in p.data() {
        let m = p.basis().moduli()[i];
        let minus = m.neg((centre % u128::from(m.value())) as u64);
        for w in out.limb_mut(i) {
            *w = m.add(*w, minus);
        }
    }
    Ok(out)
}

/// `round(2^r x / q) mod 2^r` of every coefficient, to within one unit: `x/q = sum_i y_i/q_i mod 1`, `y_i = x (q/q_i)^-1 mod q_i`.
fn switch(p: &BfvParams, x: &RnsPoly<Coef>) -> Vec<u64> {
    let r = p.response_bits();
    let mut out = vec![1u64 << (63 - r); x.degree()];
    for (i, f) in p.0.fractions.iter().enumerate() {
        for (o, &w) in out.iter_mut().zip(x.limb(i)) {
            // Shoup's product: w times the inverse, below 2 q_i.
            let estimate = ((u128::from(w) * u128::from(f.inverse.1)) >> 64) as u64;
            let y = w.wrapping_mul(f.inverse.0).wrapping_sub(estimate.wrapping_mul(f.q));
            let y = y.min(y.wrapping_sub(f.q));
            *o = o.wrapping_add(((u128::from(y) * u128::from(f.ratio)) >> f.shift) as u64);
        }
    }
    out.iter_mut().for_each(|o| *o >>= 64 - r);
    out
}
