//! Products of rows of shared values with one shared factor a row: `x[i] * y[row of i]`, as [`multiply`](super::multiply::multiply) has them element by element.
//!
//! The factors' bits choose, and each meets its row by one correlated OT in either direction, stretched over the row ([`super::stretched`]). The wrap-around v of a
//! factor that is narrower than the product is one more bit: with v = v_0 ^ v_1, v*x_0 = v_0*x_0 + v_1*(1 - 2 v_0)*x_0.

use super::compare::Bits;
use super::cross::{ladder, Term};
use super::multiply::{
    check, pass_length, subtract_wrap, wrap_around, wrap_around_cost, wrap_cost, Factor, Number,
};
use super::stretched::{self, choose, collect, elements, offer, runs, together, Run};
use crate::cost::CostModel;
use crate::error::{check_len, Result};
use crate::ring::Ring;
use crate::select::all;
use crate::Session;

/// The ladder of the factor's bits, and the term of its wrap-around.
fn terms(factor: Factor, out: Ring) -> Vec<Term> {
    let mut terms = ladder(factor.ring().bits(), out);
    let wrap = factor.excess(out).map(|payload| Term { payload, shift: factor.ring().bits() });
    terms.extend(wrap);
    terms
}

/// Shares of `x[i] * y[i / len]` modulo 2^w, w = `out`'s bits, for signed x and y within the ranges of their factors, len the elements of x for one of y; exact. w
/// is at most the sum of both widths.
///
/// Each direction takes the payloads of [`multiply`](super::multiply::multiply) with the bits of y choosing, and one correlated OT a bit and row (of 1024 elements at
/// most) where that takes one a bit and element.
///
/// # Errors
/// `Length` when the elements of x are no multiple of those of y; `Parameter` when w is above the sum of the widths; channel errors.
pub fn multiply_rows(
    s: &mut Session,
    (x, of_x): (&[u64], Factor),
    (y, of_y): (&[u64], Factor),
    out: Ring,
) -> Result<Vec<u64>> {
    check(of_x, of_y, out)?;
    check_len("elements of rows", x.len().checked_next_multiple_of(y.len()).unwrap_or(0), x.len())?;
    if x.is_empty() {
        return Ok(Vec::new());
    }
    let factor = Number::new(s, y, of_y, out);
    let wrap = match of_y.excess(out) {
        Some(_) => Some(wrap_around(s, factor.shifted(), of_y)?),
        None => None,
    };
    let rows = Rows { values: y, number: factor, wrap, of: of_y, out };
    let mut product = Vec::with_capacity(x.len());
    for runs in together(&runs(y.len(), x.len() / y.len()), pass_length(s.chunk())) {
        let at = product.len();
        product.extend(rows.pass(s, runs, (&x[at..at + elements(runs)], of_x))?);
    }
    Ok(product)
}

/// The factors of the rows at one party.
struct Rows<'a> {
    values: &'a [u64],
    number: Number,
    /// XOR shares of their wrap-arounds, where the product is wider.
    wrap: Option<Bits>,
    of: Factor,
    out: Ring,
}

impl Rows<'_> {
    /// `of(row)` for every element.
    fn spread(runs: &[Run], of: impl Fn(usize) -> u64) -> Vec<u64> {
        runs.iter().flat_map(|r| std::iter::repeat_n(of(r.row), r.n)).collect()
    }

    fn pass(&self, s: &mut Session, runs: &[Run], (x, of_x): (&[u64], Factor)) -> Result<Vec<u64>> {
        let (out, bits) = (self.out, self.of.ring().bits());
        let a = Number::new(s, x, of_x, out);
        let mut product = Self::spread(runs, |row| self.number.value(row));
        product.iter_mut().enumerate().for_each(|(i, p)| *p = out.reduce(a.value(i).wrapping_mul(*p)));
        if of_x.excess(out).is_some() {
            subtract_wrap(s, &a, of_x, &Self::spread(runs, |row| self.values[row]), out, &mut product)?;
        }
        // -v * x of this party: its own wrap bit takes x off here, the other party's meets x or -x.
        let mut signed = Vec::new();
        if let Some(wrap) = &self.wrap {
            signed = Self::spread(runs, |row| all(wrap.get(row)));
            for (i, (p, sign)) in product.iter_mut().zip(&mut signed).enumerate() {
                let (value, mine) = (a.value(i), *sign);
                *p = out.sub(*p, (value & mine) << bits);
                *sign = (value ^ !mine).wrapping_sub(!mine);
            }
        }
        let terms = terms(self.of, out);
        s.ensure([stretched::demand(terms.len(), runs.len()); 2])?;
        let chosen = choose(s, runs, &terms, self.choices(runs, terms.len()))?;
        s.channel.flush()?;
        offer(s, runs, &terms, out, &mut product, |term, at, block| {
            if terms[term].shift == bits {
                block.copy_from_slice(&signed[at..at + block.len()]);
            } else {
                a.values(at, block);
            }
        })?;
        s.channel.flush()?;
        collect(s, runs, &terms, out, &chosen, &mut product)?;
        // The first party chose with y', so the second one takes offset * X_1 off.
        if !s.is_first() {
            let offset = self.of.offset(out);
            product
                .iter_mut()
                .enumerate()
                .for_each(|(i, p)| *p = out.sub(*p, offset.wrapping_mul(a.value(i))));
        }
        Ok(product)
    }

    /// The bits of each run's factor, and behind them that of its wrap-around.
    fn choices(&self, runs: &[Run], terms: usize) -> Vec<u64> {
        let bits = self.of.ring().bits();
        let wrap = |row| self.wrap.as_ref().map_or(0, |w| w.get(row) << bits);
        let keep = u64::MAX >> (64 - terms.clamp(1, 64));
        runs.iter().map(|r| (self.number.shifted()[r.row] | wrap(r.row)) & keep).collect()
    }
}

/// Adds the exact traffic and rounds of [`multiply_rows`] to the model, both directions: `rows` factors for `len` elements each.
pub fn multiply_rows_cost(
    m: &mut CostModel,
    (rows, len): (usize, usize),
    of_x: Factor,
    of_y: Factor,
    out: Ring,
) {
    if check(of_x, of_y, out).is_err() || rows * len == 0 {
        return;
    }
    let terms = terms(of_y, out);
    wrap_around_cost(m, rows, of_y, out);
    for runs in together(&runs(rows, len), pass_length(m.chunk)) {
        wrap_cost(m, elements(runs), of_x, out);
        m.take([stretched::demand(terms.len(), runs.len()); 2]);
        let choices = stretched::choice_bytes(terms.len(), runs.len());
        let payloads = stretched::payload_bytes(&terms, runs);
        m.exchange(choices, choices);
        m.exchange(payloads, payloads);
    }
}
