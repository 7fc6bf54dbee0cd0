//! Units of work of client-aided plans for few images: coefficients of polynomials, both parties' work together.

use super::{least, N};
use crate::error::Error;
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::coefficients::{
    combine, lift_masks, lift_request, round_answer, round_masks, CoefficientBits, CoefficientKey,
    CoefficientParams, CoefficientScratch, CoefficientSpec,
};
use hushnet_rlwe::packed::{PackedContext, WeightPoly};
use std::hint::black_box;
use std::time::Duration;

/// Weight polynomials of a product: more than the second-level caches hold.
const TERMS: usize = 512;

/// A client, and parameters of a usual stage.
struct Stage {
    context: PackedContext,
    key: CoefficientKey,
    params: CoefficientParams,
    scratch: CoefficientScratch,
    prg: Prg,
}

impl Stage {
    fn new() -> Result<Self, Error> {
        let spec =
            CoefficientSpec { ring_degree: N, output_bound: 1 << 22, weight_l2: 2000.0, weight_l1: 60_000.0 };
        let bits = CoefficientBits { upload: 40, body: 26, mask: 34 };
        let params = spec.check(bits).map_err(|e| Error::Internal(e.to_string()))?;
        let (context, mut prg) = (PackedContext::new(N)?, Prg::from_os()?);
        let key = CoefficientKey::generate(&context, &mut prg)?;
        let scratch = CoefficientScratch::new(&context);
        Ok(Self { context, key, params, scratch, prg })
    }
}

pub(super) fn request_coefficient(time: Duration) -> Result<f64, Error> {
    let Stage { context, key, params, mut scratch, mut prg } = Stage::new()?;
    let bits = params.bits().upload;
    let (messages, mut words, mut mask) = (vec![100; N], vec![0; N], vec![0; N]);
    let mut packed = vec![0; pack::packed_len(N, bits)];
    let seconds = least(time, || {
        context.mask_hat(&[1; 32], 0, 0, &mut mask)?;
        key.encrypt_into(&params, &mask, &messages, &mut prg, &mut scratch, &mut words)?;
        pack::pack(&words, bits, &mut packed)?;
        pack::unpack(black_box(&packed), bits, &mut words)?;
        Ok(lift_request(&context, &params, black_box(&mut words))?)
    })?;
    Ok(seconds / N as f64)
}

pub(super) fn answer_coefficient(time: Duration) -> Result<f64, Error> {
    let Stage { context, key, params, mut scratch, .. } = Stage::new()?;
    let (mut sum, masks) = (vec![77; N], vec![5; N]);
    // A quarter of the coefficients hold results.
    let places: Vec<usize> = (0..N / 4).map(|i| 4 * i).collect();
    let (mut body, mut out) = (vec![0; places.len()], vec![0; places.len()]);
    let seconds = least(time, || {
        round_answer(&context, &params, &mut sum, &places, places.iter().map(|_| 3), &mut body)?;
        key.open(&params, &masks, &body, &places, &mut scratch, black_box(&mut out))?;
        Ok(())
    })?;
    Ok(seconds / N as f64)
}

pub(super) fn pair_coefficient(time: Duration) -> Result<f64, Error> {
    let context = PackedContext::new(N)?;
    let weights: Vec<WeightPoly> =
        (0..TERMS).map(|i| WeightPoly::new(&context, &vec![i as i64; N])).collect::<Result<_, _>>()?;
    let (x, mut out) = (vec![9; N], vec![0; N]);
    let (left, right) = (vec![x.as_slice(); TERMS], weights.iter().collect::<Vec<_>>());
    let seconds = least(time, || Ok(combine(&context, &left, &right, black_box(&mut out))?))?;
    Ok(seconds / (N * TERMS) as f64)
}

pub(super) fn sum_coefficient(time: Duration) -> Result<f64, Error> {
    let Stage { context, params, .. } = Stage::new()?;
    let bits = params.bits().mask;
    let (mut sum, mut packed) = (vec![77; N], vec![0; pack::packed_len(N, bits)]);
    let seconds = least(time, || {
        round_masks(&context, &params, &mut sum)?;
        pack::pack(&sum, bits, &mut packed)?;
        pack::unpack(black_box(&packed), bits, &mut sum)?;
        Ok(lift_masks(&context, &params, black_box(&mut sum))?)
    })?;
    Ok(seconds / N as f64)
}

pub(super) fn weight_coefficient(time: Duration) -> Result<f64, Error> {
    let (context, weights) = (PackedContext::new(N)?, vec![-3i64; N]);
    let seconds = least(time, || {
        black_box(WeightPoly::new(&context, &weights)?);
        Ok(())
    })?;
    Ok(seconds / N as f64)
}
