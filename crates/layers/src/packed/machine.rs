//! The circuit, written once over abstract ciphertexts: a simulator predicts levels, scales, errors, keys and counts; the
//! evaluator computes.

use super::circuit::{LinearOp, Op, Program, Slope};
use super::PackedError;

/// What a circuit needs of its ciphertexts. A level is as many data primes as the program's width says.
pub(super) trait Machine {
    /// A ciphertext.
    type C: Clone;
    /// What a rescaling to `level` divides by.
    fn step(&self, level: usize) -> f64;
    /// Scale.
    fn scale(&self, c: &Self::C) -> f64;
    /// Level.
    fn level(&self, c: &Self::C) -> usize;
    /// Whether it has three parts.
    fn is_product(&self, c: &Self::C) -> bool;
    /// States the bound of the message, and its usual magnitude.
    fn bounded(&mut self, c: Self::C, bound: f64, usual: f64) -> Result<Self::C, PackedError>;
    /// A copy at a lower level.
    fn drop_to(&mut self, c: &Self::C, level: usize) -> Result<Self::C, PackedError>;
    /// `c + v` in every slot.
    fn add_constant(&mut self, c: &Self::C, v: f64) -> Result<Self::C, PackedError>;
    /// `v c` with v encoded at `scale`.
    fn mul_constant(&mut self, c: &Self::C, v: f64, scale: f64) -> Result<Self::C, PackedError>;
    /// `v c` for free, by scale and sign.
    fn relabel(&mut self, c: Self::C, v: f64) -> Result<Self::C, PackedError>;
    /// Sum.
    fn add(&mut self, a: &Self::C, b: &Self::C) -> Result<Self::C, PackedError>;
    /// Square, three parts.
    fn square(&mut self, c: &Self::C) -> Result<Self::C, PackedError>;
    /// Product, three parts.
    fn mul(&mut self, a: &Self::C, b: &Self::C) -> Result<Self::C, PackedError>;
    /// Two parts at the next lower level.
    fn rescale(&mut self, c: &Self::C) -> Result<Self::C, PackedError>;
    /// The same message at the scale of the program and the level that bootstraps leave.
    fn bootstrap(&mut self, c: &Self::C) -> Result<Self::C, PackedError>;
    /// The linear operation number `at` of the program on its inputs.
    fn linear(&mut self, at: usize, op: &LinearOp, inputs: Vec<Self::C>)
        -> Result<Vec<Self::C>, PackedError>;
    /// A copy whose error counts for nothing: that of what it came from is added by [`Machine::inherit`].
    fn without_error(&mut self, c: &Self::C) -> Result<Self::C, PackedError>;
    /// `c` with `slope` times the error of `from`, in the units of values, besides its own.
    fn inherit(&mut self, c: Self::C, from: &Self::C, slope: Slope) -> Result<Self::C, PackedError>;
    /// Called after every operation, with its number.
    fn done(&mut self, at: usize, outputs: &[Self::C]) -> Result<(), PackedError>;
}

/// The depth of a polynomial as [`polynomial`] evaluates it.
#[must_use]
pub(super) fn depth(coefficients: &[f64]) -> usize {
    match coefficients {
        [] | [_] | [_, _] => 0,
        [_, _, _] => 1,
        [_, _, _, _, _] => 2,
        _ => 1 + raw_depth(coefficients),
    }
}

/// Whether the result's scale is the one asked for (else it is what the degree makes of the input's).
#[must_use]
pub(super) fn meets_scale(coefficients: &[f64]) -> bool {
    !matches!(coefficients.len(), 0..=3 | 5)
}

/// Products of ciphertexts that a polynomial takes a switch of keys for.
#[must_use]
pub(super) fn switches(coefficients: &[f64]) -> usize {
    fn below(c: &[f64]) -> usize {
        let c = trim(c);
        if c.len() < 2 {
            return 0;
        }
        let (low, high) = c.split_at(1 << (c.len() - 1).ilog2());
        // A quotient of degree 1 is a product with a constant.
        let quotient = usize::from(trim(high).len() > 2) + below(high);
        quotient + below(low)
    }
    match coefficients.len() {
        0..=5 if coefficients.len() != 4 => depth(coefficients),
        n => (n - 1).ilog2() as usize + below(coefficients) + 1,
    }
}

fn trim(c: &[f64]) -> &[f64] {
    let end = c.iter().rposition(|v| *v != 0.0).map_or(0, |p| p + 1);
    &c[..end]
}

/// Levels that `raw` needs above its own.
fn raw_depth(c: &[f64]) -> usize {
    let c = trim(c);
    if c.len() < 2 {
        return 0;
    }
    let m = 1usize << (c.len() - 1).ilog2();
    let power = m.ilog2() as usize;
    let quotient = if c.len() - 1 == m { 0 } else { 1 + raw_depth(&c[m..]) };
    power.max(quotient).max(raw_depth(&c[..m]))
}

struct Powers<'a, M: Machine> {
    m: &'a mut M,
    /// `x^(2^j)`.
    list: Vec<M::C>,
}

impl<M: Machine> Powers<'_, M> {
    fn get(&mut self, j: usize, level: usize) -> Result<M::C, PackedError> {
        while self.list.len() <= j {
            let square = self.m.square(&self.list[self.list.len() - 1].clone())?;
            let next = self.m.rescale(&square)?;
            self.list.push(next);
        }
        self.m.drop_to(&self.list[j].clone(), level)
    }

    /// The polynomial without its constant at `level` and `scale`, not rescaled; `None` for a constant one. The caller adds the constant after
    /// rescaling, at a scale that integers of 128 bits hold.
    fn raw(&mut self, c: &[f64], level: usize, scale: f64) -> Result<Option<M::C>, PackedError> {
        let c = trim(c);
        if c.len() < 2 {
            return Ok(None);
        }
        let j = (c.len() - 1).ilog2() as usize;
        let (low, high) = c.split_at(1 << j);
        let power = self.get(j, level)?;
        let inner = scale / self.m.scale(&power);
        let mut out = if high.len() == 1 {
            self.m.mul_constant(&power, high[0], inner)?
        } else {
            let quotient = self.rescaled(high, level, inner)?;
            self.m.mul(&quotient, &power)?
        };
        if let Some(rest) = self.raw(low, level, scale)? {
            out = self.m.add(&out, &rest)?;
        }
        Ok(Some(out))
    }

    fn rescaled(&mut self, c: &[f64], level: usize, scale: f64) -> Result<M::C, PackedError> {
        let above = scale * self.m.step(level);
        match self.raw(c, level + 1, above)? {
            Some(raw) => {
                let sum = self.m.rescale(&raw)?;
                match c.first() {
                    Some(v) if *v != 0.0 => self.m.add_constant(&sum, *v),
                    _ => Ok(sum),
                }
            }
            None => Err(PackedError::Spec("a constant polynomial".into())),
        }
    }
}

/// `sum over members of p(x)` at `level`, from inputs at `level + depth`. Degrees 1, 2 and 4 take 0, 1 and 2 levels: the
/// second highest coefficient is removed by a shift of x (an addition), the highest becomes part of the scale; others
/// are evaluated by division by powers of two of x, with every constant encoded at the scale that is missing.
pub(super) fn polynomial<M: Machine>(
    m: &mut M,
    members: &[M::C],
    c: &[f64],
    level: usize,
    scale: f64,
) -> Result<M::C, PackedError> {
    let mut total: Option<M::C> = None;
    let mut constant = 0.0;
    for x in members {
        let (raw, rest) = member(m, x, c, level, scale)?;
        constant += rest;
        total = Some(match total {
            Some(sum) => m.add(&sum, &raw)?,
            None => raw,
        });
    }
    let mut total = total.ok_or_else(|| PackedError::Spec("a polynomial of nothing".into()))?;
    if m.level(&total) > level {
        total = m.rescale(&total)?;
    }
    if constant != 0.0 {
        total = m.add_constant(&total, constant)?;
    }
    Ok(total)
}

/// A polynomial before its last rescaling, but for a constant.
fn member<M: Machine>(
    m: &mut M,
    x: &M::C,
    c: &[f64],
    level: usize,
    scale: f64,
) -> Result<(M::C, f64), PackedError> {
    match *c {
        [c0, c1] => {
            let x = m.drop_to(x, level)?;
            Ok((m.relabel(x, c1)?, c0))
        }
        [c0, c1, c2] => {
            let mut x = m.drop_to(x, level + 1)?;
            let shift = c1 / (2.0 * c2);
            if shift != 0.0 {
                x = m.add_constant(&x, shift)?;
            }
            let square = m.square(&x)?;
            Ok((m.relabel(square, c2)?, c0 - c2 * shift * shift))
        }
        [c0, c1, c2, c3, c4] => {
            // z = x + s: c4 z^4 + b2 z^2 + b1 z + b0, as c4 (z^2 + h)^2 + b1 z + b0 - c4 h^2.
            let s = c3 / (4.0 * c4);
            let b2 = c2 - 6.0 * c4 * s * s;
            let b1 = c1 - 2.0 * c2 * s + 8.0 * c4 * s.powi(3);
            let b0 = c0 - c1 * s + c2 * s * s - 3.0 * c4 * s.powi(4);
            let h = b2 / (2.0 * c4);
            let mut z = m.drop_to(x, level + 2)?;
            if s != 0.0 {
                z = m.add_constant(&z, s)?;
            }
            let square = m.square(&z)?;
            let mut u = m.rescale(&square)?;
            if h != 0.0 {
                u = m.add_constant(&u, h)?;
            }
            let fourth = m.square(&u)?;
            let mut out = m.relabel(fourth, c4)?;
            if b1 != 0.0 {
                let z = m.drop_to(&z, level + 1)?;
                let missing = m.scale(&out) / m.scale(&z);
                let line = m.mul_constant(&z, b1, missing)?;
                out = m.add(&out, &line)?;
            }
            Ok((out, b0 - c4 * h * h))
        }
        _ => {
            let above = scale * m.step(level);
            let mut powers = Powers { m, list: vec![x.clone()] };
            let raw = powers.raw(c, level + 1, above)?;
            raw.map(|r| (r, c[0])).ok_or_else(|| PackedError::Spec("a constant polynomial".into()))
        }
    }
}

/// The scale that a polynomial's result needs: that of the program, or what makes its product with another value have that.
fn aimed<M: Machine>(m: &M, program: &Program, value: usize, values: &[Vec<M::C>]) -> f64 {
    let reader = program.ops.iter().find_map(|op| match op {
        Op::Multiply { inputs: [a, b], output, .. } if *b == value => Some((*a, *output)),
        _ => None,
    });
    match reader.map(|(a, output)| (values[a].first(), program.values[output].level)) {
        Some((Some(partner), level)) => program.scale * m.step(level) / m.scale(partner),
        _ => program.scale,
    }
}

/// The product of an operand and a chain of polynomials of it, and a constant; the chain's error passes by the slope.
fn multiply<M: Machine>(
    m: &mut M,
    (x, y): (&M::C, &M::C),
    level: usize,
    (slope, constant): (Slope, f64),
) -> Result<M::C, PackedError> {
    let (x, y) = (m.drop_to(x, level + 1)?, m.drop_to(y, level + 1)?);
    let (clean_x, clean_y) = (m.without_error(&x)?, m.without_error(&y)?);
    let product = m.mul(&clean_x, &clean_y)?;
    let product = m.rescale(&product)?;
    let product = m.inherit(product, &y, slope)?;
    if constant == 0.0 {
        return Ok(product);
    }
    m.add_constant(&product, constant)
}

/// Runs a program on its uploads; the result is the output's ciphertexts.
pub(super) fn run<M: Machine>(
    m: &mut M,
    program: &Program,
    uploads: Vec<M::C>,
) -> Result<Vec<M::C>, PackedError> {
    let mut values: Vec<Vec<M::C>> = vec![Vec::new(); program.values.len()];
    let mut left: Vec<usize> = program.values.iter().map(|v| v.uses).collect();
    for (i, upload) in uploads.into_iter().enumerate() {
        values[program.uploads[i].value].push(upload);
    }
    for (at, op) in program.ops.iter().enumerate() {
        let mut take = |v: usize| {
            left[v] -= 1;
            if left[v] == 0 {
                std::mem::take(&mut values[v])
            } else {
                values[v].clone()
            }
        };
        let out = &program.values[op.output()];
        let outputs = match op {
            Op::Linear(linear) => {
                let inputs = take(linear.input);
                m.linear(at, linear, inputs)?
            }
            Op::Polynomial { input, members, coefficients, slope, .. } => {
                let inputs = take(*input);
                let count = inputs.len() / members;
                let mut results = Vec::with_capacity(count);
                let scale = aimed(m, program, op.output(), &values);
                for i in 0..count {
                    let mut group: Vec<M::C> = (0..*members).map(|k| inputs[k * count + i].clone()).collect();
                    if slope.is_some() {
                        group = group.iter().map(|c| m.without_error(c)).collect::<Result<_, _>>()?;
                    }
                    let mut sum = polynomial(m, &group, coefficients, out.level, scale)?;
                    if let Some(slope) = slope {
                        for k in 0..*members {
                            sum = m.inherit(sum, &inputs[k * count + i], *slope)?;
                        }
                    }
                    results.push(sum);
                }
                results
            }
            Op::Multiply { inputs: [a, b], slope, constant, .. } => {
                let (first, second) = (take(*a), take(*b));
                let pairs = first.iter().zip(&second);
                pairs
                    .map(|pair| multiply(m, pair, out.level, (*slope, *constant)))
                    .collect::<Result<_, _>>()?
            }
            Op::Bootstrap { input, .. } => {
                let value = &program.values[*input];
                let mut results = Vec::new();
                for c in take(*input) {
                    // Every slot counts, not only those of elements.
                    let c = m.bounded(c, value.bound.max(value.idle.abs()), value.usual)?;
                    let fresh = m.bootstrap(&c)?;
                    results.push(m.drop_to(&fresh, out.level)?);
                }
                results
            }
            Op::Add { inputs: [a, b], .. } => {
                let mut sides = Vec::with_capacity(2);
                for v in [*a, *b] {
                    let mut side = Vec::new();
                    for c in take(v) {
                        side.push(aligned(m, &c, out.level, program.scale)?);
                    }
                    sides.push(side);
                }
                sides[0].iter().zip(&sides[1]).map(|(a, b)| m.add(a, b)).collect::<Result<_, _>>()?
            }
        };
        let outputs = outputs
            .into_iter()
            .map(|c| m.bounded(c, out.bound, out.usual))
            .collect::<Result<Vec<_>, PackedError>>()?;
        m.done(at, &outputs)?;
        values[op.output()] = outputs;
    }
    Ok(std::mem::take(&mut values[program.output]))
}

/// `c` at `level` with the program's scale: as it is where that is its scale already, else by a product with 1.
fn aligned<M: Machine>(m: &mut M, c: &M::C, level: usize, scale: f64) -> Result<M::C, PackedError> {
    if (m.scale(c) / scale - 1.0).abs() < hushnet_rlwe::ckks::SCALE_TOLERANCE / 4.0 {
        return m.drop_to(c, level);
    }
    let c = m.drop_to(c, level + 1)?;
    let missing = scale * m.step(level) / m.scale(&c);
    let product = m.mul_constant(&c, 1.0, missing)?;
    m.rescale(&product)
}
