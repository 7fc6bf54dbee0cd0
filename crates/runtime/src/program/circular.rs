//! Sine, cosine and arc tangent of `docs/functions.md`: the same bits everywhere.
//!
//! As in [`super::functions`], everything here is inlined into the loops of `kernels`.
#![allow(clippy::approx_constant, reason = "the constants are part of the definition, digit for digit")]

const TWO_OVER_PI: f64 = 0.636_619_772_367_581_4;
const HALF_PI: f64 = 1.570_796_326_794_896_6;
/// pi/2 in three parts, of which the first two have 33 bits: products with small integers are exact.
const HALF_PI_PARTS: [f64; 3] = [
    f64::from_bits(0x3FF9_21FB_5440_0000),
    f64::from_bits(0x3DD0_B461_1A60_0000),
    f64::from_bits(0x3BA3_198A_2E03_7073),
];
/// Largest remainder, a little above pi/4; beyond 2^52 turns remainders have no meaning, and are cut to it.
const MOST: f64 = 0.8;

/// `1 / i!` for i = 0 to 19.
const INVERSE_FACTORIALS: [f64; 20] = {
    let mut c = [1.0; 20];
    let (mut i, mut factorial) = (1, 1.0);
    while i < 20 {
        factorial *= i as f64;
        c[i] = 1.0 / factorial;
        i += 1;
    }
    c
};

/// Sine and cosine of the remainder by multiples of pi/2, and the quadrant: 0 to 3.
#[inline(always)]
fn quadrant(x: f64) -> (f64, f64, f64) {
    let n = (x * TWO_OVER_PI).round_ties_even();
    let r = ((x - n * HALF_PI_PARTS[0]) - n * HALF_PI_PARTS[1]) - n * HALF_PI_PARTS[2];
    let r = super::functions::smaller(super::functions::larger(r, -MOST), MOST);
    let z = r * r;
    let (mut sine, mut cosine) = (INVERSE_FACTORIALS[19], INVERSE_FACTORIALS[18]);
    let mut k = 9;
    while k > 0 {
        k -= 1;
        sine = INVERSE_FACTORIALS[2 * k + 1] - z * sine;
        cosine = INVERSE_FACTORIALS[2 * k] - z * cosine;
    }
    (r * sine, cosine, n - 4.0 * (0.25 * n).floor())
}

#[inline(always)]
pub(super) fn sin(x: f64) -> f64 {
    let (sine, cosine, q) = quadrant(x);
    let value = if q == 0.0 || q == 2.0 { sine } else { cosine };
    if q >= 2.0 {
        -value
    } else {
        value
    }
}

#[inline(always)]
pub(super) fn cos(x: f64) -> f64 {
    let (sine, cosine, q) = quadrant(x);
    let value = if q == 0.0 || q == 2.0 { cosine } else { sine };
    if q == 1.0 || q == 2.0 {
        -value
    } else {
        value
    }
}

/// Half the angle: the tangent of `atan(w) / 2`.
#[inline(always)]
fn halved(w: f64) -> f64 {
    w / (1.0 + (1.0 + w * w).sqrt())
}

#[inline(always)]
pub(super) fn atan(x: f64) -> f64 {
    let z = x.abs();
    let w = halved(halved(if z > 1.0 { 1.0 / z } else { z }));
    let y = w * w;
    let mut p = 1.0 / 25.0;
    let mut k = 12;
    while k > 0 {
        k -= 1;
        p = 1.0 / f64::from(2 * k + 1) - y * p;
    }
    let small = 4.0 * (w * p);
    let value = if z > 1.0 { HALF_PI - small } else { small };
    value.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values to the last digit.
    #[test]
    fn functions_are_accurate() {
        let close = |got: f64, want: f64, tolerance: f64| {
            assert!((got - want).abs() <= tolerance, "{got} {want}");
        };
        for (x, sine, cosine) in [
            (0.0, 0.0, 1.0),
            (0.5, 0.479_425_538_604_203, 0.877_582_561_890_372_8),
            (-1.0, -0.841_470_984_807_896_5, 0.540_302_305_868_139_8),
            (2.0, 0.909_297_426_825_681_7, -0.416_146_836_547_142_4),
            (4.0, -0.756_802_495_307_928_2, -0.653_643_620_863_611_9),
            (-5.5, 0.705_540_325_570_391_9, 0.708_669_774_291_26),
            (1e6, -0.349_993_502_171_292_94, 0.936_752_127_533_144_7),
        ] {
            close(sin(x), sine, 4e-16);
            close(cos(x), cosine, 4e-16);
        }
        assert!(sin(1e300).abs() <= 1.0 && cos(-1e300).abs() <= 1.0, "large operands stay in range");
        for (x, want) in [
            (0.0, 0.0),
            (0.3, 0.291_456_794_477_867_1),
            (1.0, 0.785_398_163_397_448_3),
            (-7.0, -1.428_899_272_190_732_7),
            (1e300, 1.570_796_326_794_896_6),
        ] {
            close(atan(x), want, 3e-16);
        }
    }
}
