//! The non-linear layers by garbled circuits. Both parties call with the same public arguments; `garbler` says who garbles.

use super::circuits::{Addend, Clip, Largest, Relu, Sign};
use super::gates::{and_gates, Circuit};
use super::modulus::Modulus;
use super::run::{cost, execute, Outputs};
use crate::cost::CostModel;
use crate::error::{check_len, MpcError, Result};
use crate::protocols::{index_ring, Bits, PoolShape};
use crate::{Party, Session};

/// Splits every value's list of words into vectors, one a word.
fn columns(width: usize, n: usize, values: impl Iterator<Item = Vec<u64>>) -> Vec<Vec<u64>> {
    let mut out = vec![Vec::with_capacity(n); width];
    for value in values {
        out.iter_mut().zip(value).for_each(|(o, v)| o.push(v));
    }
    out
}

/// Runs a circuit whose result the garbler masks with fresh residues r: it keeps r, the evaluator opens the rest.
fn masked<C: Circuit>(
    s: &mut Session,
    c: &C,
    garbler: Party,
    n: usize,
    result: Modulus,
    mine: impl FnOnce(bool, &[u64]) -> Vec<Vec<u64>>,
) -> Result<Vec<u64>> {
    if s.party() == garbler {
        let r = result.random(&mut s.rng, n);
        let words = mine(true, &r);
        execute(s, c, garbler, &words, n, Outputs::Open)?;
        return Ok(r);
    }
    let words = mine(false, &[]);
    Ok(result.reduced(execute(s, c, garbler, &words, n, Outputs::Open)?.swap_remove(0)))
}

/// XOR shares of [x >= 0].
///
/// # Errors
/// `Parameter` for a ring of fewer than 2 or more than 62 bits or a share that is not reduced; channel errors.
pub fn drelu(s: &mut Session, x: &[u64], m: Modulus, garbler: Party) -> Result<Bits> {
    m.check(x)?;
    let words = if s.party() == garbler {
        columns(Sign::widths(m).len(), x.len(), x.iter().map(|&a| Sign::words(m, a)))
    } else {
        vec![x.to_vec()]
    };
    let out = execute(s, &Sign(m), garbler, &words, x.len(), Outputs::Shared)?;
    Ok(Bits::from_values(&out[0]))
}

/// Adds the exact traffic and rounds of [`drelu`] to the model, both directions.
pub fn drelu_cost(model: &mut CostModel, n: usize, m: Modulus, garbler: Party) {
    cost(model, &Sign(m), garbler, n, Outputs::Shared);
}

/// Shares of max(x, 0), exact for every x.
///
/// # Errors
/// As [`drelu`].
pub fn relu(s: &mut Session, x: &[u64], m: Modulus, garbler: Party) -> Result<Vec<u64>> {
    m.check(x)?;
    masked(s, &Relu(m), garbler, x.len(), m, |garbles, r| {
        if !garbles {
            return vec![x.to_vec()];
        }
        let words = |(&a, &r): (&u64, &u64)| {
            [Sign::words(m, a), Addend::words(m, m.sub(a, r)), vec![m.sub(0, r)]].concat()
        };
        columns(Relu(m).garbler().len(), x.len(), x.iter().zip(r).map(words))
    })
}

/// Adds the exact traffic and rounds of [`relu`] to the model, both directions.
pub fn relu_cost(model: &mut CostModel, n: usize, m: Modulus, garbler: Party) {
    cost(model, &Relu(m), garbler, n, Outputs::Open);
}

/// AND gates of one [`relu`].
#[must_use]
pub fn relu_gates(m: Modulus) -> u64 {
    and_gates(&Relu(m))
}

/// The garbler's ends as residues of end + offset.
fn placed(m: Modulus, from_zero: bool, ends: Option<(i64, i64)>) -> Result<(u64, u64)> {
    let Some((low, high)) = ends else {
        return Err(MpcError::Parameter { what: "clip's ends that the garbler gives", got: 0, limit: 2 });
    };
    let (least, most) = m.range();
    if low > high || low < least || high > most || (from_zero && low != 0) {
        return Err(MpcError::Parameter { what: "clip's bounds (low)", got: low as u64, limit: high as u64 });
    }
    let place = |v| m.add(m.encode(v), m.offset());
    Ok((place(low), place(high)))
}

/// Shares of min(max(x, low), high), exact for every x; ReLU6 with 0 and 6 scaled. Only the garbler gives `ends` (low, high), and the
/// evaluator learns nothing of them but what `from_zero` says: that low is zero.
///
/// # Errors
/// `Parameter` at the garbler unless low <= high are values of the modulus, and low is zero where `from_zero` says so; otherwise as [`drelu`].
pub fn clip(
    s: &mut Session,
    x: &[u64],
    m: Modulus,
    from_zero: bool,
    ends: Option<(i64, i64)>,
    garbler: Party,
) -> Result<Vec<u64>> {
    m.check(x)?;
    let (low, high) = if s.party() == garbler { placed(m, from_zero, ends)? } else { (0, 0) };
    let c = Clip { modulus: m, from_zero };
    masked(s, &c, garbler, x.len(), m, |garbles, r| {
        if !garbles {
            return vec![x.to_vec()];
        }
        let words = |(&a, &r): (&u64, &u64)| {
            let back = m.sub(0, m.add(m.offset(), r));
            [Addend::words(m, m.add(a, m.offset())), c.ends(low, high), Addend::words(m, back)].concat()
        };
        columns(c.garbler().len(), x.len(), x.iter().zip(r).map(words))
    })
}

/// Adds the exact traffic and rounds of [`clip`] to the model, both directions.
pub fn clip_cost(model: &mut CostModel, n: usize, m: Modulus, from_zero: bool, garbler: Party) {
    cost(model, &Clip { modulus: m, from_zero }, garbler, n, Outputs::Open);
}

fn rows_of(x: &[u64], per: usize) -> Result<usize> {
    if per == 0 || !x.len().is_multiple_of(per) {
        let expected = x.len().next_multiple_of(per.max(1));
        return Err(MpcError::Length { what: "rows of values", expected, got: x.len() });
    }
    Ok(x.len() / per)
}

/// Words of a [`Largest`]: every value of every row, then what the result is masked with.
fn largest_words(x: &[u64], c: &Largest, r: Option<&[u64]>) -> Vec<Vec<u64>> {
    let (k, m) = (c.values, c.modulus);
    let Some(r) = r else { return columns(k, x.len() / k, x.chunks(k).map(<[u64]>::to_vec)) };
    let row = |(row, &r): (&[u64], &u64)| {
        let mut words: Vec<u64> = row.iter().flat_map(|&a| Addend::words(m, m.add(a, m.offset()))).collect();
        match c.index {
            Some(bits) => words.push(r.wrapping_neg() & (u64::MAX >> (64 - bits))),
            None => words.extend(Addend::words(m, m.sub(0, m.add(m.offset(), r)))),
        }
        words
    };
    columns(c.garbler().len(), x.len() / k, x.chunks(k).zip(r).map(row))
}

/// Shares of the largest value of every row of `per` values, exact for all values.
///
/// # Errors
/// `Length` when x is not a whole number of rows; otherwise as [`drelu`].
pub fn max_rows(s: &mut Session, x: &[u64], per: usize, m: Modulus, garbler: Party) -> Result<Vec<u64>> {
    m.check(x)?;
    let n = rows_of(x, per)?;
    let c = Largest { modulus: m, values: per, index: None };
    masked(s, &c, garbler, n, m, |garbles, r| largest_words(x, &c, garbles.then_some(r)))
}

/// Cost of [`max_rows`] of n rows.
pub fn max_rows_cost(model: &mut CostModel, n: usize, per: usize, m: Modulus, garbler: Party) {
    cost(model, &Largest { modulus: m, values: per, index: None }, garbler, n, Outputs::Open);
}

/// Shares of the window maxima, padding excluded; every window is a row of [`max_rows`].
///
/// # Errors
/// `Length` when x is not `channels*height*width` long; `Parameter` as [`PoolShape::output`]; otherwise as [`drelu`].
pub fn max_pool(
    s: &mut Session,
    x: &[u64],
    m: Modulus,
    shape: PoolShape,
    garbler: Party,
) -> Result<Vec<u64>> {
    check_len("pooled tensor", shape.channels * shape.height * shape.width, x.len())?;
    let (per, windows) = shape.windows()?;
    let gathered: Vec<u64> = windows.into_iter().map(|i| x[i]).collect();
    max_rows(s, &gathered, per, m, garbler)
}

/// Cost of [`max_pool`].
///
/// # Errors
/// As [`PoolShape::output`].
pub fn max_pool_cost(model: &mut CostModel, m: Modulus, shape: PoolShape, garbler: Party) -> Result<()> {
    let (per, windows) = shape.windows()?;
    max_rows_cost(model, windows.len() / per, per, m, garbler);
    Ok(())
}

fn argmax_circuit(m: Modulus, classes: usize) -> Result<Largest> {
    Ok(Largest { modulus: m, values: classes, index: Some(index_ring(classes)?.bits()) })
}

/// Shares, in [`index_ring`], of the index of each row's largest value, the first of equals; exact for all values.
///
/// # Errors
/// As [`max_rows`].
pub fn argmax(s: &mut Session, x: &[u64], classes: usize, m: Modulus, garbler: Party) -> Result<Vec<u64>> {
    m.check(x)?;
    let n = rows_of(x, classes)?;
    let (c, result) = (argmax_circuit(m, classes)?, Modulus::PowerOfTwo(index_ring(classes)?));
    masked(s, &c, garbler, n, result, |garbles, r| largest_words(x, &c, garbles.then_some(r)))
}

/// Cost of [`argmax`] over `rows` rows.
///
/// # Errors
/// `Parameter` when there are no classes.
pub fn argmax_cost(
    model: &mut CostModel,
    rows: usize,
    classes: usize,
    m: Modulus,
    garbler: Party,
) -> Result<()> {
    cost(model, &argmax_circuit(m, classes)?, garbler, rows, Outputs::Open);
    Ok(())
}
