//! Loops over the images of one feature, compiled for several instruction sets.
//!
//! Every instruction set gives the same bits: only IEEE operations, never contracted.
#![allow(unsafe_code)]
#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "what is no number must fail the comparison")]

use super::{circular, functions as f};

/// Defines a function whose body is compiled for AVX-512 and AVX2 too, chosen by `hushnet_ring::simd`.
macro_rules! kernel {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        pub(super) fn $name($($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $type),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                use hushnet_ring::{simd, Isa};
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($arg: $type),*) $(-> $ret)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $type),*) $(-> $ret)? {
                    body($($arg),*)
                }
                let isa = simd::isa();
                if isa >= Isa::Avx512 {
                    // SAFETY: `simd::isa` never exceeds what the processor has.
                    return unsafe { avx512($($arg),*) };
                }
                if isa >= Isa::Avx2 {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

/// Defines an elementwise kernel of one operand.
macro_rules! unary {
    ($name:ident, $x:ident $(, $p:ident)* => $value:expr) => {
        kernel! {
            fn $name(x: &[f64], $($p: f64,)* out: &mut [f64]) {
                for (o, &$x) in out.iter_mut().zip(x) {
                    *o = $value;
                }
            }
        }
    };
}

/// Defines an elementwise kernel of two operands.
macro_rules! binary {
    ($name:ident, $x:ident, $y:ident => $value:expr) => {
        kernel! {
            fn $name(x: &[f64], y: &[f64], out: &mut [f64]) {
                for ((o, &$x), &$y) in out.iter_mut().zip(x).zip(y) {
                    *o = $value;
                }
            }
        }
    };
}

/// Defines a kernel from a function of eight lanes.
macro_rules! lanes {
    ($name:ident, $function:path) => {
        kernel! {
            fn $name(x: &[f64], out: &mut [f64]) {
                let mut xs = x.chunks_exact(f::LANES);
                let mut os = out.chunks_exact_mut(f::LANES);
                for (x, o) in xs.by_ref().zip(os.by_ref()) {
                    let mut lanes = [0.0; f::LANES];
                    lanes.copy_from_slice(x);
                    o.copy_from_slice(&$function(lanes));
                }
                for (x, o) in xs.remainder().iter().zip(os.into_remainder()) {
                    *o = $function([*x; f::LANES])[0];
                }
            }
        }
    };
}

unary!(affine, x, mul, add => x * mul + add);
unary!(relu, x => f::relu(x));
unary!(leaky_relu, x, alpha => f::leaky_relu(x, alpha));
unary!(times, x, factor => x * factor);
unary!(prelu, x, slope => if x < 0.0 { x * slope } else { x });
unary!(clip, x, lo, hi => f::smaller(f::larger(x, lo), hi));
unary!(abs, x => x.abs());
unary!(neg, x => -x);
unary!(sqrt, x => x.sqrt());
unary!(square, x => x * x);
unary!(sigmoid, x => f::sigmoid(x));
unary!(tanh, x => f::tanh(x));
unary!(exp, x => f::exp(x));
unary!(log, x => f::log(x));
unary!(sin, x => circular::sin(x));
unary!(cos, x => circular::cos(x));
unary!(atan, x => circular::atan(x));
unary!(floor, x => x.floor());
unary!(round, x => x.round_ties_even());
unary!(hard_sigmoid, x, alpha, beta => f::hard_sigmoid(x, alpha, beta));
unary!(hard_swish, x => f::hard_swish(x));
unary!(silu, x => f::silu(x));
unary!(gelu_tanh, x => f::gelu_tanh(x));
unary!(elu, x, alpha => f::elu(x, alpha));
lanes!(erf, f::erf);
lanes!(gelu, f::gelu);
binary!(add, x, y => x + y);
binary!(sub, x, y => x - y);
binary!(mul, x, y => x * y);
binary!(div, x, y => x / y);
binary!(minimum, x, y => f::smaller(x, y));
binary!(maximum, x, y => f::larger(x, y));
binary!(less, x, y => if x < y { 1.0 } else { 0.0 });
binary!(equal, x, y => if x == y { 1.0 } else { 0.0 });

kernel! {
    /// `out += x`.
    fn accumulate(x: &[f64], out: &mut [f64]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o += x;
        }
    }
}

kernel! {
    /// `out *= x`.
    fn multiply(x: &[f64], out: &mut [f64]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o *= x;
        }
    }
}

kernel! {
    /// `out += x * y`, two roundings.
    fn accumulate_product(x: &[f64], y: &[f64], out: &mut [f64]) {
        for ((o, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *o += x * y;
        }
    }
}

kernel! {
    /// `out += x * factor`, two roundings.
    fn accumulate_scaled(x: &[f64], factor: f64, out: &mut [f64]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o += x * factor;
        }
    }
}

kernel! {
    /// One element of a search for the largest value behind `(value, index)` of the pass before: element `index` takes the place of
    /// `(best, place)` where it is larger, and comes behind what was found before (a smaller value, or the same with a larger index).
    /// The operations do not depend on the values.
    fn next_best(x: &[f64], sign: f64, index: f64, before: (&[f64], &[f64]), best: (&mut [f64], &mut [f64])) {
        let found = best.0.iter_mut().zip(best.1.iter_mut());
        for (((value, place), &x), (&last, &at)) in found.zip(x).zip(before.0.iter().zip(before.1)) {
            let x = x * sign;
            let waiting = (x < last) | ((x == last) & (index > at));
            let better = waiting & ((x > *value) | (*place < 0.0));
            *value = if better { x } else { *value };
            *place = if better { index } else { *place };
        }
    }
}

kernel! {
    /// `out = exp(x - y)`.
    fn exp_difference(x: &[f64], y: &[f64], out: &mut [f64]) {
        for ((o, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *o = f::exp(x - y);
        }
    }
}

kernel! {
    /// `out /= y`.
    fn divide(y: &[f64], out: &mut [f64]) {
        for (o, &y) in out.iter_mut().zip(y) {
            *o /= y;
        }
    }
}

kernel! {
    /// `out /= count`.
    fn divide_in_place(count: f64, out: &mut [f64]) {
        for o in out {
            *o /= count;
        }
    }
}

/// Adds 1 to `outside` where the size of a value is not at most `bound`. Returns the largest size and the position of the first such
/// value (`u64::MAX`: none). The operations do not depend on the values; lanes keep minima and maxima of their own, so that they
/// vectorise.
#[inline(always)]
fn count_outside<T: Copy, S: Copy + PartialOrd + Default>(
    x: &[T],
    bound: S,
    outside: &mut [u64],
    size: impl Fn(T) -> S,
) -> (S, u64) {
    const L: usize = f::LANES;
    let greater = |a: S, b: S| if a > b { a } else { b };
    let (mut first, mut largest) = ([u64::MAX; L], [S::default(); L]);
    let (mut xs, mut counts) = (x.chunks_exact(L), outside.chunks_exact_mut(L));
    for ((chunk, x), count) in (0_u64..).zip(xs.by_ref()).zip(counts.by_ref()) {
        for lane in 0..L {
            let v = size(x[lane]);
            let bad = u64::from(!(v <= bound));
            count[lane] += bad;
            largest[lane] = greater(v, largest[lane]);
            // All ones where nothing is outside.
            let here = chunk | bad.wrapping_sub(1);
            first[lane] = if here < first[lane] { here } else { first[lane] };
        }
    }
    let place = |(lane, chunk): (u64, &u64)| chunk.saturating_mul(L as u64).saturating_add(lane);
    let mut position = (0..).zip(&first).map(place).fold(u64::MAX, u64::min);
    let mut top = largest.into_iter().fold(S::default(), |a, b| greater(b, a));
    let done = (x.len() / L * L) as u64;
    for ((i, &x), count) in (done..).zip(xs.remainder()).zip(counts.into_remainder()) {
        let v = size(x);
        let bad = u64::from(!(v <= bound));
        *count += bad;
        top = greater(v, top);
        position = position.min(i | bad.wrapping_sub(1));
    }
    (top, position)
}

kernel! {
    /// [`count_outside`] of |x|; what is no number is outside.
    fn outside_real(x: &[f64], bound: f64, outside: &mut [u64]) -> u64 {
        count_outside(x, bound, outside, f64::abs).1
    }
}

kernel! {
    /// Clamps to -bound and bound; what is no number becomes 0.
    fn saturate(bound: f64, x: &mut [f64]) {
        for x in x {
            let v = if x.is_nan() { 0.0 } else { *x };
            *x = f::smaller(f::larger(v, -bound), bound);
        }
    }
}

kernel! {
    /// [`count_outside`] of |x|, with the largest.
    fn outside_fixed(x: &[i64], bound: u64, outside: &mut [u64]) -> (u64, u64) {
        count_outside(x, bound, outside, i64::unsigned_abs)
    }
}

kernel! {
    /// Clamps to -bound and bound.
    fn clamp(bound: i64, x: &mut [i64]) {
        for x in x {
            *x = (*x).max(-bound).min(bound);
        }
    }
}

kernel! {
    /// `out = x * scale` of integers below 2^51.
    fn dequantize(x: &[i64], scale: f64, out: &mut [f64]) {
        const BITS: u64 = f::ROUND.to_bits();
        for (o, &x) in out.iter_mut().zip(x) {
            *o = (f64::from_bits(BITS.wrapping_add(x.cast_unsigned())) - f::ROUND) * scale;
        }
    }
}

kernel! {
    /// `out = x * scale` of any integers.
    fn dequantize_wide(x: &[i64], scale: f64, out: &mut [f64]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = x as f64 * scale;
        }
    }
}

kernel! {
    /// `out = round_half_even(x * inverse)`, clamped to -bound and bound, `bound < 2^50`; what is no number becomes 0. Adds 1 to
    /// `outside` where a value was clamped. Returns the largest absolute value before and the position of the first that was
    /// clamped (`u64::MAX`: none). The operations do not depend on the values.
    fn quantize(x: &[f64], inverse: f64, bound: f64, out: &mut [i64], outside: &mut [u64]) -> (u64, u64) {
        const BITS: u64 = f::ROUND.to_bits();
        // The sum rounds to an integer, half to even, while |x * inverse| < 2^51; beyond, it is above any bound.
        let round = |x: f64| x * inverse + f::ROUND - f::ROUND;
        for (o, &x) in out.iter_mut().zip(x) {
            let v = round(x);
            let v = if v.is_nan() { 0.0 } else { v };
            let v = f::smaller(f::larger(v, -bound), bound);
            *o = (v + f::ROUND).to_bits().wrapping_sub(BITS).cast_signed();
        }
        let (largest, first) = count_outside(x, bound, outside, |x| round(x).abs());
        (largest as u64, first)
    }
}

kernel! {
    /// [`quantize`] for any bound.
    fn quantize_wide(x: &[f64], inverse: f64, bound: f64, out: &mut [i64], outside: &mut [u64]) -> (u64, u64) {
        let round = |x: f64| (x * inverse).round_ties_even();
        for (o, &x) in out.iter_mut().zip(x) {
            let v = round(x);
            let v = if v.is_nan() { 0.0 } else { v };
            *o = f::smaller(f::larger(v, -bound), bound) as i64;
        }
        let (largest, first) = count_outside(x, bound, outside, |x| round(x).abs());
        (largest as u64, first)
    }
}

kernel! {
    fn widen_i16(x: &[i16], out: &mut [i64]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = i64::from(x);
        }
    }
}

kernel! {
    fn widen_i32(x: &[i32], out: &mut [i64]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = i64::from(x);
        }
    }
}

kernel! {
    /// Low halves; the values fit.
    fn narrow_i16(x: &[i64], out: &mut [i16]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = x as i16;
        }
    }
}

kernel! {
    /// Low halves; the values fit.
    fn narrow_i32(x: &[i64], out: &mut [i32]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = x as i32;
        }
    }
}

kernel! {
    fn maximum_i16(x: &[i16], out: &mut [i16]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = (*o).max(x);
        }
    }
}

kernel! {
    fn maximum_i32(x: &[i32], out: &mut [i32]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = (*o).max(x);
        }
    }
}

kernel! {
    fn maximum_i64(x: &[i64], out: &mut [i64]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = (*o).max(x);
        }
    }
}

kernel! {
    /// `out = x > out ? x : out`.
    fn maximum_f64(x: &[f64], out: &mut [f64]) {
        for (o, &x) in out.iter_mut().zip(x) {
            *o = f::larger(x, *o);
        }
    }
}

/// Images and features of a square of the transposition.
const SQUARE: usize = 8;

/// `out[f * stride + i] = x[i * features + f]` for `out.len() / stride` features and `count` images.
#[inline(always)]
fn transpose<T: Copy + Into<f64>>(x: &[T], features: usize, count: usize, out: &mut [f64], stride: usize) {
    for (block, rows) in out.chunks_mut(SQUARE * stride).enumerate() {
        let (first, height) = (block * SQUARE, rows.len() / stride);
        let mut done = 0;
        if height == SQUARE {
            // Squares are read image by image and written feature by feature, a cache line each.
            while done + SQUARE <= count {
                let mut square = [[0.0; SQUARE]; SQUARE];
                for i in 0..SQUARE {
                    let at = (done + i) * features + first;
                    for (row, &value) in square.iter_mut().zip(&x[at..at + SQUARE]) {
                        row[i] = value.into();
                    }
                }
                for (row, values) in rows.chunks_exact_mut(stride).zip(&square) {
                    row[done..done + SQUARE].copy_from_slice(values);
                }
                done += SQUARE;
            }
        }
        for image in done..count {
            for (f, row) in rows.chunks_exact_mut(stride).enumerate() {
                row[image] = x[image * features + first + f].into();
            }
        }
    }
}

kernel! {
    fn transpose_f32(x: &[f32], features: usize, count: usize, out: &mut [f64], stride: usize) {
        transpose(x, features, count, out, stride);
    }
}

kernel! {
    fn transpose_f64(x: &[f64], features: usize, count: usize, out: &mut [f64], stride: usize) {
        transpose(x, features, count, out, stride);
    }
}
