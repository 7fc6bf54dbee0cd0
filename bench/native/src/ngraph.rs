//! Primitives behind `hushnet bench ngraph-he2`: every optimisation of the paper beside what it replaces, in this process.

use hushnet_matmul::{Kernel, Prepared, Scratch, Weights};
use hushnet_ring::rns::{Coef, Eval, RnsPoly};
use hushnet_ring::{simd, Isa, Prg, Ring};
use hushnet_rlwe::ckks::client::KeyGenerator;
use hushnet_rlwe::ckks::{CkksParams, CkksSpec, EncodeAt, Encoder, Insecure, PrimeSpec};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{json, Value};
use std::hint::black_box;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Least seconds of a call: of batches of a few calls, which other load disturbs less than long ones, five times `trials` in all.
fn least(trials: usize, mut f: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut best = f64::INFINITY;
    let batch = trials.clamp(1, 8);
    for _ in 0..(5 * trials).div_ceil(batch) {
        let start = Instant::now();
        for _ in 0..batch {
            f()?;
        }
        best = best.min(start.elapsed().as_secs_f64() / batch as f64);
    }
    Ok(best)
}

fn params(ring_degree: usize, bits: u32, levels: usize, isa: Isa) -> Outcome<CkksParams> {
    let spec = CkksSpec {
        ring_degree,
        ring: Ring::Cyclotomic,
        data_primes: vec![PrimeSpec::Near(bits); levels],
        special_primes: Vec::new(),
        scale_bits: 24,
        digits: levels,
    };
    Ok(spec.check_insecure_with(Insecure, isa)?)
}

/// A random polynomial of the highest level.
fn random(p: &CkksParams, prg: &mut Prg) -> Outcome<RnsPoly<Eval>> {
    let range = p.data_range(p.max_level());
    let mut poly = p.basis().zero::<Eval>(range.clone())?;
    for i in range {
        let q = p.basis().moduli()[i].value();
        prg.fill_words(poly.limb_mut(i));
        poly.limb_mut(i).iter_mut().for_each(|w| *w %= q);
    }
    Ok(poly)
}

/// Tables 2 to 4 for one ring degree and number of 30-bit primes, on one instruction set.
fn primitives(ring_degree: usize, levels: usize, trials: usize, isa: Isa) -> Outcome<Value> {
    let p = params(ring_degree, 30, levels, isa)?;
    let (basis, encoder, level) = (p.basis(), Encoder::new(&p), p.max_level());
    let mut prg = Prg::from_seed([1; 16]);
    let at = EncodeAt { level, scale: p.scale(), bound: 1.0 };
    let full = vec![0.37; p.slots()];
    let encode_full = least(trials.div_ceil(8), || {
        black_box(encoder.encode(&full, at)?);
        Ok(())
    })?;
    // What a library without scalar encoding does at best: the same word N times a prime.
    let scalar = encoder.encode_scalar(0.37, level, p.scale())?;
    let mut filled = basis.zero::<Coef>(p.data_range(level))?;
    let encode_filled = least(trials, || {
        for (i, w) in p.data_range(level).zip(scalar.words()) {
            filled.limb_mut(i).fill(black_box(*w));
        }
        Ok(())
    })?;
    let encode_scalar = least(trials, || {
        black_box(encoder.encode_scalar(black_box(0.37), level, p.scale())?);
        Ok(())
    })?;
    let plain = random(&p, &mut prg)?;
    let mut parts = [random(&p, &mut prg)?, random(&p, &mut prg)?];
    let words: Vec<u64> = (0..p.data_range(level).end).map(|i| 12345 % basis.moduli()[i].value()).collect();
    let add_general = least(trials, || Ok(basis.add_assign(&mut parts[0], &plain)?))?;
    let add_scalar = least(trials, || Ok(basis.add_constant(&mut parts[0], &words)?))?;
    let mul_general = least(trials, || parts.iter_mut().try_for_each(|c| Ok(basis.mul_assign(c, &plain)?)))?;
    let mul_scalar = least(trials, || parts.iter_mut().try_for_each(|c| Ok(basis.scale_assign(c, &words)?)))?;
    Ok(json!({
        "ring_degree": ring_degree, "levels": levels, "simd": isa.name(),
        "encode_full": encode_full, "encode_filled": encode_filled, "encode_scalar": encode_scalar,
        "full_bytes": 8 * ring_degree * levels, "scalar_bytes": 8 * levels,
        "add_general": add_general, "add_scalar": add_scalar,
        "mul_general": mul_general, "mul_scalar": mul_scalar,
    }))
}

/// One multiply-accumulate of a scalar weight and both parts of a ciphertext inside of a layer of 100 x 845: the product of matrices, reduced at the end.
fn layer(ring_degree: usize, levels: usize) -> Outcome<f64> {
    const SHAPE: (usize, usize) = (100, 845);
    const WORDS: usize = 256;
    let p = params(ring_degree, 30, levels, simd::isa())?;
    let mut prg = Prg::from_seed([2; 16]);
    let mut words = vec![0u64; SHAPE.0 * SHAPE.1];
    prg.fill_words(&mut words);
    let weights: Vec<i16> = words.iter().map(|w| (w % 127) as i16 - 63).collect();
    let weights = Weights::new(SHAPE.0, SHAPE.1, &weights)?;
    let kernel = Kernel::choose_for_words(simd::isa(), SHAPE, 52, 30, weights.limbs());
    let prepared = Prepared::for_words(&weights, kernel, 52, 30, SHAPE.1)?;
    let mut data = vec![0u64; SHAPE.1 * WORDS];
    prg.fill_words(&mut data);
    data.iter_mut().for_each(|w| *w &= (1 << 30) - 1);
    let rows: Vec<Option<&[u64]>> = data.chunks(WORDS).map(Some).collect();
    let mut out = vec![0u64; SHAPE.0 * WORDS];
    let mut scratch = Scratch::new();
    let prime = p.data_range(p.max_level()).start;
    let seconds = least(4, || {
        let mut outs: Vec<&mut [u64]> = out.chunks_mut(WORDS).collect();
        prepared.multiply(&rows, &[], &mut outs, &mut scratch)?;
        Ok(p.basis().residues_of_wrapped(&mut out, 52, prime)?)
    })?;
    Ok(seconds / (SHAPE.0 * SHAPE.1 * WORDS) as f64 * (2 * levels * ring_degree) as f64)
}

/// Products of a ciphertext with a plaintext at (nearly) the same modulus from 30-bit and from wider primes.
fn widths(ring_degree: usize, bits: u32, trials: usize) -> Outcome<Value> {
    let mut out = Vec::new();
    for wide in [30, 50] {
        let levels = bits.div_ceil(wide) as usize;
        let p = params(ring_degree, wide, levels, simd::isa())?;
        let mut prg = Prg::from_seed([3; 16]);
        let plain = random(&p, &mut prg)?;
        let mut parts = [random(&p, &mut prg)?, random(&p, &mut prg)?];
        let seconds =
            least(trials, || parts.iter_mut().try_for_each(|c| Ok(p.basis().mul_assign(c, &plain)?)))?;
        out.push(json!({"prime_bits": wide, "levels": levels, "mul_general": seconds}));
    }
    Ok(Value::Array(out))
}

/// Encoding at the level that is needed against encoding at the highest one; encryption of real and of complex slots.
fn encodings(ring_degree: usize, levels: usize, trials: usize) -> Outcome<Value> {
    let p = params(ring_degree, 30, levels, simd::isa())?;
    let encoder = Encoder::new(&p);
    let mut prg = Prg::from_seed([4; 16]);
    let secret = KeyGenerator::new(&p).secret_key(&mut prg)?;
    let values: Vec<f64> = (0..p.ring_degree()).map(|i| (i % 97) as f64 / 97.0).collect();
    let at = |level| -> Outcome<EncodeAt> {
        Ok(EncodeAt { level: p.level(level)?, scale: p.scale(), bound: 1.0 })
    };
    let (low, high) = (at(1)?, at(levels)?);
    let encode = |at| {
        least(trials, || {
            black_box(encoder.encode(&values[..p.slots()], at)?);
            Ok(())
        })
    };
    let (encode_low, encode_high) = (encode(low)?, encode(high)?);
    let real = least(trials, || {
        let [a, b] = encoder.encode_pair(&values[..p.slots()], &values[..p.slots()], high)?;
        black_box((secret.encrypt_small(a, &mut prg)?, secret.encrypt_small(b, &mut prg)?));
        Ok(())
    })? / p.ring_degree() as f64;
    let complex = least(trials, || {
        black_box(secret.encrypt_small(encoder.encode_packed_small(&values, high)?, &mut prg)?);
        Ok(())
    })? / p.ring_degree() as f64;
    Ok(json!({
        "encode_low": encode_low, "encode_high": encode_high,
        "low_bytes": 8 * ring_degree, "high_bytes": 8 * ring_degree * levels,
        "real_value": real, "complex_value": complex,
    }))
}

/// Seconds of primitives as JSON: `native` and `portable` (Tables 2 to 4), `layer` (a scalar product inside of a layer), `widths`, `encodings`.
#[pyfunction]
#[pyo3(signature = (ring_degree, levels, trials=200))]
fn ngraph_primitives(py: Python<'_>, ring_degree: usize, levels: usize, trials: usize) -> PyResult<String> {
    py.detach(|| -> Outcome<String> {
        let all = json!({
            "native": primitives(ring_degree, levels, trials, simd::isa())?,
            "portable": primitives(ring_degree, levels, trials.div_ceil(4), Isa::Portable)?,
            "layer": layer(ring_degree, levels)?,
            "widths": widths(ring_degree, 30 * levels as u32, trials)?,
            "encodings": encodings(ring_degree, levels, trials.div_ceil(8))?,
        });
        Ok(all.to_string())
    })
    .map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(ngraph_primitives, m)?)
}
