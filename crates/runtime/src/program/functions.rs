//! The elementary functions of `docs/functions.md`: the same bits everywhere.
//!
//! Everything here is inlined into the loops of `kernels`, where it vectorises.
#![allow(clippy::approx_constant, reason = "the constants are part of the definition, digit for digit")]

/// `1.5 * 2^52`: adding it rounds to an integer, half to even, and leaves the integer in the low bits.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;

const LOG2E: f64 = 1.442_695_040_888_963_4;
const LN2_HI: f64 = f64::from_bits(0x3FE6_2E42_FEE0_0000);
const LN2_LO: f64 = f64::from_bits(0x3DEA_39EF_3579_3C76);
const TWO_OVER_SQRT_PI: f64 = 1.128_379_167_095_512_6;
const ONE_OVER_SQRT_PI: f64 = 0.564_189_583_547_756_3;
const SQRT_HALF: f64 = 0.707_106_781_186_547_6;
const SIXTH: f64 = 0.166_666_666_666_666_66;

/// `1 / i!` for i = 0 to 13.
const INVERSE_FACTORIALS: [f64; 14] = {
    let mut c = [1.0; 14];
    let (mut i, mut factorial) = (1, 1.0);
    while i < 14 {
        factorial *= i as f64;
        c[i] = 1.0 / factorial;
        i += 1;
    }
    c
};

#[inline(always)]
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a > b {
        a
    } else {
        b
    }
}

#[inline(always)]
pub(super) fn smaller(a: f64, b: f64) -> f64 {
    if a < b {
        a
    } else {
        b
    }
}

#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    let x = smaller(larger(x, -708.0), 708.0);
    let shifted = x * LOG2E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    let mut p = INVERSE_FACTORIALS[13];
    let mut i = 13;
    while i > 0 {
        i -= 1;
        p = p * r + INVERSE_FACTORIALS[i];
    }
    // The low bits of `shifted` are n in two's complement; |n| <= 1022, so 2^n is normal.
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    p * power
}

/// Largest mantissa of `log`, above 1 by as much as its half is below.
const SQRT_2: f64 = 1.414_213_562_373_095_1;
/// Numbers below this one have fewer than 53 bits.
const LEAST_NORMAL: f64 = f64::MIN_POSITIVE;

/// The natural logarithm; minus infinity of zero, and no number of what is negative.
#[inline(always)]
pub(super) fn log(x: f64) -> f64 {
    let tiny = x < LEAST_NORMAL;
    let scaled = if tiny { x * (1_u64 << 54) as f64 } else { x };
    let bits = scaled.to_bits();
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // The exponent as a double: its bits below those of 2^52.
    let exponent = f64::from_bits((bits >> 52) | (1075 << 52)) - 4_503_599_627_370_496.0;
    let exponent = exponent - if tiny { 1077.0 } else { 1023.0 };
    let above = mantissa > SQRT_2;
    let m = if above { 0.5 * mantissa } else { mantissa };
    let e = if above { exponent + 1.0 } else { exponent };
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 23.0;
    let mut k = 11;
    while k > 0 {
        k -= 1;
        p = p * z + 1.0 / f64::from(2 * k + 1);
    }
    let value = e * LN2_HI + ((2.0 * s) * p + e * LN2_LO);
    let value = if x == 0.0 { f64::NEG_INFINITY } else { value };
    if x < 0.0 {
        f64::NAN
    } else {
        value
    }
}

#[inline(always)]
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub(super) fn tanh(x: f64) -> f64 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

#[inline(always)]
pub(super) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

#[inline(always)]
pub(super) fn elu(x: f64, alpha: f64) -> f64 {
    if x < 0.0 {
        alpha * (exp(x) - 1.0)
    } else {
        x
    }
}

#[inline(always)]
pub(super) fn relu(x: f64) -> f64 {
    if x > 0.0 {
        x
    } else {
        0.0
    }
}

#[inline(always)]
pub(super) fn leaky_relu(x: f64, alpha: f64) -> f64 {
    if x < 0.0 {
        alpha * x
    } else {
        x
    }
}

#[inline(always)]
pub(super) fn hard_sigmoid(x: f64, alpha: f64, beta: f64) -> f64 {
    smaller(larger(alpha * x + beta, 0.0), 1.0)
}

#[inline(always)]
pub(super) fn hard_swish(x: f64) -> f64 {
    x * hard_sigmoid(x, SIXTH, 0.5)
}

#[inline(always)]
pub(super) fn gelu_tanh(x: f64) -> f64 {
    (0.5 * x) * (1.0 + tanh(0.797_884_560_802_865_4 * (x + (0.044_715 * x) * (x * x))))
}

/// Values that `erf` works on at a time.
pub(super) const LANES: usize = 8;

/// `erf` of [`LANES`] values: both branches are computed only when both are needed.
#[inline(always)]
pub(super) fn erf(x: [f64; LANES]) -> [f64; LANES] {
    let z = x.map(f64::abs);
    let gauss = z.map(|z| exp(-(z * z)));
    let mut out = [1.0; LANES];
    if z.iter().any(|&z| z < 2.0) {
        let square = z.map(|z| (2.0 * z) * z);
        let (mut term, mut sum) = (z, z);
        for n in 1..=40 {
            let odd = f64::from(2 * n + 1);
            for i in 0..LANES {
                term[i] *= square[i] / odd;
                sum[i] += term[i];
            }
        }
        for i in 0..LANES {
            if z[i] < 2.0 {
                out[i] = (sum[i] * TWO_OVER_SQRT_PI) * gauss[i];
            }
        }
    }
    if z.iter().any(|&z| (2.0..6.0).contains(&z)) {
        let mut f = [0.0; LANES];
        for n in (1..=60).rev() {
            let half = f64::from(n) / 2.0;
            for i in 0..LANES {
                f[i] = half / (z[i] + f[i]);
            }
        }
        for i in 0..LANES {
            if (2.0..6.0).contains(&z[i]) {
                out[i] = 1.0 - (gauss[i] * ONE_OVER_SQRT_PI) / (z[i] + f[i]);
            }
        }
    }
    for i in 0..LANES {
        out[i] = out[i].copysign(x[i]);
    }
    out
}

#[inline(always)]
pub(super) fn gelu(x: [f64; LANES]) -> [f64; LANES] {
    let e = erf(x.map(|x| x * SQRT_HALF));
    let mut out = [0.0; LANES];
    for i in 0..LANES {
        out[i] = (0.5 * x[i]) * (1.0 + e[i]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the C library, which is right to the last digits here.
    #[test]
    fn functions_are_accurate() {
        let close = |got: f64, want: f64, tolerance: f64| {
            assert!((got - want).abs() <= tolerance, "{got} {want}");
        };
        for (x, want) in [
            (-20.0, 2.061_153_622_438_558e-9),
            (-1.0, 0.367_879_441_171_442_33),
            (0.0, 1.0),
            (0.5, 1.648_721_270_700_128_2),
            (10.0, 22_026.465_794_806_718),
            (700.0, 1.014_232_054_735_004_5e304),
        ] {
            close(exp(x) / want, 1.0, 4e-16 * (1.0 + x.abs()));
        }
        close(exp(-1e9), exp(-708.0), 0.0);
        for (x, want) in [
            (1.0, 0.0),
            (1e-310, -713.801_378_828_154_2),
            (0.5, -0.693_147_180_559_945_3),
            (1.414_213_562_373_095, 0.346_573_590_279_972_6),
            (1.414_213_562_373_095_4, 0.346_573_590_279_972_87),
            (10.0, 2.302_585_092_994_046),
            (1e300, 690.775_527_898_213_7),
        ] {
            close(log(x), want, 2e-16 * (1.0 + want.abs()));
        }
        assert!(log(0.0) == f64::NEG_INFINITY && log(-1.0).is_nan());
        close(sigmoid(2.0), 0.880_797_077_977_882_3, 1e-15);
        close(tanh(0.3), 0.291_312_612_451_590_9, 1e-15);
        for (x, want) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_284_9),
            (1.0, 0.842_700_792_949_714_9),
            (1.999, 0.995_301_556_651_370_5),
            (2.0, 0.995_322_265_018_952_7),
            (3.5, 0.999_999_256_901_627_7),
            (7.0, 1.0),
        ] {
            close(erf([x; LANES])[3], want, 5e-15);
            close(erf([-x; LANES])[0], -want, 5e-15);
        }
        close(gelu([1.0; LANES])[0], 0.841_344_746_068_542_9, 1e-14);
        close(gelu_tanh(1.0), 0.841_191_990_608_276_8, 1e-14);
        close(hard_swish(1.0), 0.666_666_666_666_666_6, 1e-15);
    }

    #[test]
    fn lanes_do_not_influence_each_other() {
        let x = [-7.0, -2.5, -0.3, 0.0, 0.4, 1.9999, 2.0, 5.9];
        let together = erf(x);
        for i in 0..LANES {
            assert_eq!(together[i].to_bits(), erf([x[i]; LANES])[0].to_bits());
        }
    }
}
