//! Two-party linear layers with one polynomial up and only the useful coefficients down, no rotation and no key switching
//! (Akherati, Zhang, "Efficient homomorphically encrypted CNN without rotation"; `docs/rotation-free.md`), made sound.
//!
//! Notation: `R_Q = Z_Q[X]/(X^N+1)`, t = 2^l, x = x_C + x_S mod t shares (taken in [-t/2, t/2)), F integer weights, b public and
//! uniform (from a seed), chi the centred binomial of variance 10.5, f = beta F, beta a power of two. A share travels as
//! `i = round(Q x / (t beta))`, so that `i f = (Q/t) x F + beta delta F` with |delta| <= 1/2, and wraps of x modulo t vanish modulo Q.
//!
//! # Profiles
//! **[`Profile::Flooded`]**, the paper's protocol (Algorithms 1 and 2) with masks that hide. Set-up, for every weight polynomial: rho uniform on B = 2^rho_bits integers around zero, e1, e2
//! from chi; the client gets `p1 = rho b + e1` and `p2 = f + rho + e2`. Query: v ternary, e0 from chi, `c0 = -(v b + i_C + e0)`. Answer: the valid
//! coefficients of `c0 rho + i_S f - R`. Completion: plus those of `v p1 + i_C p2`. Sum: `(i_C + i_S) f - R + v e1 + i_C e2 - e0 rho`.
//!
//! **[`Profile::Compact`]**, ours: rho = -(f + e2), so that p2 = 0 and is not sent. `p1 = -(f + e2) b + e1`; the server answers
//! `(c0 - i_S) rho - R`, one product instead of two; the client adds `v p1`, which depends on neither share, so that it is computed
//! before the input is known. Sum: `(i_C + i_S)(f + e2) - R + e0 (f + e2) + v e1`.
//! (Derivation: in the flooded protocol let the client multiply p2 by i_C + e0, which it knows, instead of i_C. Then e0 rho cancels, no noise depends
//! on rho, rho may be uniform modulo Q, p2 with it; a uniform p2 can as well come from a seed, and zero will do as its value.)
//!
//! # What the parties see
//! *Server*: c0 only; (b, v b + e0) is ring-LWE with a fresh ternary secret for every query and polynomial.
//!
//! *Client*, simulated without weights: draw p1 uniform in R_Q, p2 uniform on B integers a coefficient, every answer uniform modulo 2^r.
//! - Answers: R is uniform modulo 2^r on every coefficient sent, used once, and kept; the answer is uniform and
//!   independent of everything else. Nothing is left to flood: the noise, which is a linear form of the weights, is under the mask
//!   (fact 2 of `docs/two-party.md`).
//! - Compact: `p1 = -f b - (e2 b - e1)`; (b, e2 b - e1) is ring-LWE with the normal-form secret e2, independent for every polynomial, so p1 is
//!   uniform up to the ring-LWE advantage whatever f is. The same holds for many polynomials under one b (hybrid argument), for
//!   many set-ups, and for one set-up given to many clients, who may collude.
//! - Flooded: given p2 = P, `p1 = P b - f b - (e2 b - e1)`: as above, as long as P says nothing about f + e2. A coefficient of p2
//!   is within |f + e2| / B of uniform; with |F| < 2^(w-1) and B = 2^(kappa + w + 1) beta M, M >= the number of weights set up, all
//!   coefficients together are within 2^-kappa of uniform (zeros of f add only 21 / B each, beta >> 21).
//!
//! Repeating the set-up therefore gains nothing: the averaging attack of fact 3 of `docs/two-party.md` fails ([`Averaging`] carries it out; tests show that it finds the weights
//! as soon as e1, e2 or rho is left out or repeats).
//!
//! # Correctness
//! Each party rounds its part by t/Q (t/2^r) and the shares sum to x F up to one unit, with probability about E|noise| t/Q. In units of Q/t, with
//! g polynomials summed and sub-Gaussian proxies (chi: 10.5; conditional on the other factor):
//! - `i e2`: |i| <= Q/(2 beta), so `parties N g 10.5 (t / (2 beta))^2` at worst, a third of it for uniform shares;
//!   beta >= 16 t sigma sqrt(N g) makes its deviation at most sqrt(2)/32.
//! - Compact, `e0 f` and rounding: `(10.5 + 0.5) beta^2 |F|^2 (t/Q)^2`, |F| the Euclidean norm of the weights in one answer polynomial:
//!   Q/(t beta) >= 64 sigma |F|.
//! - Flooded, `e0 rho`: `10.5 N g (B/2)^2 (t/Q)^2` at worst: Q/(t beta) >= 2^5 (B/beta) sigma sqrt(N g).
//! - `v e1`, `e0 e2`: below 2^-20 of a unit; rounding answers to r = l + 10 bits: 2^-11.
//!
//! [`OnePolySpec::choose`] checks that 7.631 deviations (failure below 2^-40 a coefficient) stay below half a unit. So log2 Q is about
//! `2l + log2(|F| N g) + 22` (compact: 86 bits for l = 27, |F| = 2^11, N = 4096) or `2l + w + 68 + log2(g M)` (flooded).
//!
//! # Only one coefficient in s
//! Packings put useful coefficients at multiples of s. `sum_pairs a b` is needed there only: with Y = X^s, the part of a polynomial on
//! multiples of s has at Y the value 1/s times the sum of the polynomial's values at the s roots X of X^s = Y. So slot values are kept in the order
//! of Y ([`Folded`]), products are summed over runs of s slots as they are made ([`hushnet_ring::mac::dot_folded`]), and one transform of
//! N/s values finishes. That is the pruned inverse transform of the paper (section IV-A) with its first log2 s levels at the price of additions.

mod averaging;
mod client;
mod params;
mod scale;
mod server;
mod tables;

pub use averaging::{correlation, Averaging};
pub use client::{Blind, OnePolyClient};
pub use params::{OnePolyParams, OnePolySpec, Profile, RESPONSE_EXTRA_BITS, STATISTICAL_BITS};
pub use server::{OnePolyServer, WeightKey};
pub use tables::{Folded, OnePolyContext, Tally, TallyCounts};

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod tests;
