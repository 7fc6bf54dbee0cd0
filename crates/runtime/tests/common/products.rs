//! Products, selections and functions by their definitions, number by number.

use super::oracle::{flat, grid, list, Values};
use super::Builder;
use serde_json::Value;
use std::collections::HashMap;

/// One of `matmul`, `interpolate`, `gather` and `top_k` on one image.
pub(crate) fn operation(builder: &Builder, op: &Value, t: &HashMap<usize, Values>) -> Vec<f64> {
    let ids = list(&op["in"]);
    let out = op["out"].as_u64().unwrap() as usize;
    let (ishape, oshape) = (builder.shape(ids[0]), builder.shape(out));
    let x = t[&ids[0]].real();
    let axis = op["axis"].as_u64().map(|a| a as usize);
    let with = |at: &[usize], axis: usize, i: usize| {
        let mut c = at.to_vec();
        c[axis] = i;
        flat(&ishape, &c)
    };
    let element = |at: &Vec<usize>| match op["op"].as_str().unwrap() {
        "matmul" => {
            let (y, depth) = (t[&ids[1]].real(), ishape[ishape.len() - 1]);
            let (last, right) = (at.len() - 1, builder.shape(ids[1]));
            (0..depth).fold(0.0, |sum, k| {
                let mut c = at.clone();
                c[last - 1] = k;
                sum + x[with(at, last, k)] * y[flat(&right, &c)]
            })
        }
        "gather" => x[with(at, axis.unwrap(), list(&op["indices"])[at[axis.unwrap()]])],
        "interpolate" => {
            let (axis, indices) = (axis.unwrap(), op["indices"].as_array().unwrap());
            let taps = indices.iter().zip(op["weights"].as_array().unwrap());
            taps.fold(0.0, |sum, (i, w)| {
                sum + x[with(at, axis, list(i)[at[axis]])] * w[at[axis]].as_f64().unwrap()
            })
        }
        _ => {
            let axis = axis.unwrap();
            let mut along: Vec<(f64, usize)> = (0..ishape[axis]).map(|i| (x[with(at, axis, i)], i)).collect();
            let sign = if op["largest"].as_bool().unwrap() { -1.0 } else { 1.0 };
            along.sort_by(|a, b| (sign * a.0).partial_cmp(&(sign * b.0)).unwrap());
            let (value, index) = along[at[axis]];
            if op["what"] == "values" {
                value + 0.0
            } else {
                index as f64
            }
        }
    };
    grid(&oshape).iter().map(element).collect()
}

/// `log`, `sin`, `cos` and `atan` in the order of docs/functions.md.
pub(crate) fn function(name: &str, x: f64) -> f64 {
    let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
    match name {
        "log" => {
            let (mut m, mut e) = (x, 0.0);
            while m > std::f64::consts::SQRT_2 {
                (m, e) = (m * 0.5, e + 1.0);
            }
            while m * 2.0 <= std::f64::consts::SQRT_2 {
                (m, e) = (m * 2.0, e - 1.0);
            }
            let s = (m - 1.0) / (m + 1.0);
            let p = (0..11).rev().fold(1.0 / 23.0, |p, k| p * (s * s) + 1.0 / f64::from(2 * k + 1));
            let (high, low) = (f64::from_bits(0x3FE6_2E42_FEE0_0000), f64::from_bits(0x3DEA_39EF_3579_3C76));
            e * high + ((2.0 * s) * p + e * low)
        }
        "atan" => {
            let half = |w: f64| w / (1.0 + (1.0 + w * w).sqrt());
            let z = x.abs();
            let w = half(half(if z > 1.0 { 1.0 / z } else { z }));
            let p = (0..12).rev().fold(1.0 / 25.0, |p, k| 1.0 / f64::from(2 * k + 1) - (w * w) * p);
            let small = 4.0 * (w * p);
            (if z > 1.0 { std::f64::consts::FRAC_PI_2 - small } else { small }).copysign(x)
        }
        _ => {
            let n = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
            let parts =
                [0x3FF9_21FB_5440_0000, 0x3DD0_B461_1A60_0000, 0x3BA3_198A_2E03_7073].map(f64::from_bits);
            let r = parts.iter().fold(x, |r, p| r - n * p).clamp(-0.8, 0.8);
            let series = |first: u32| {
                let top = 1.0 / factorial(18 + first);
                (0..9).rev().fold(top, |p, k| 1.0 / factorial(2 * k + first) - (r * r) * p)
            };
            let quadrant = (n as i64).rem_euclid(4) + i64::from(name == "cos");
            let value = if quadrant % 2 == 0 { r * series(1) } else { series(0) };
            if quadrant % 4 >= 2 {
                -value
            } else {
                value
            }
        }
    }
}
