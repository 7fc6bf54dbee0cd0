//! RNS-CKKS operation by operation, both parties in one object: for comparisons with other libraries (tests, benchmarks), not for use.
//! Secret keys never leave it.

use hushnet_ring::{Prg, Ring};
use hushnet_rlwe::ckks::client::{KeyGenerator, SecretKey};
use hushnet_rlwe::ckks::{
    self, CkksError, CkksParams, CkksSpec, Complex, EncodeAt, Encoder, Evaluator, Galois, GaloisKeys,
    PlainRows, PrimeSpec, PublicKey, RelinKey,
};
use numpy::{Complex64, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

fn refused(error: CkksError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A prime is given by its bits (below 64) or itself.
fn primes(given: &[u64]) -> Vec<PrimeSpec> {
    let spec =
        |p: &u64| u32::try_from(*p).ok().filter(|b| *b < 64).map_or(PrimeSpec::Exactly(*p), PrimeSpec::Near);
    given.iter().map(spec).collect()
}

/// A ciphertext of [`Ckks`].
#[pyclass(frozen, name = "CkksCiphertext")]
pub struct Ciphertext(ckks::Ciphertext);

#[pymethods]
impl Ciphertext {
    /// Data primes in use.
    #[getter]
    fn level(&self) -> usize {
        self.0.level().get()
    }
    /// Factor between message and phase.
    #[getter]
    fn scale(&self) -> f64 {
        self.0.scale()
    }
    /// Predicted bound of the error in a slot (fails with probability 2^-40).
    #[getter]
    fn error_bound(&self) -> f64 {
        self.0.error_bound()
    }
    /// Bound of the message.
    #[getter]
    fn bound(&self) -> f64 {
        self.0.bound()
    }
    /// The same with a tighter bound of the message, which the caller knows.
    fn with_bound(&self, bound: f64) -> PyResult<Self> {
        self.0.clone().with_bound(bound).map(Self).map_err(refused)
    }
}

/// An encoded vector of [`Ckks`].
#[pyclass(frozen, name = "CkksPlaintext")]
pub struct Plaintext(ckks::Plaintext);

/// Parameters, all keys, and the operations on slot vectors.
#[pyclass(frozen)]
pub struct Ckks {
    params: CkksParams,
    secret: SecretKey,
    public: PublicKey,
    relin: RelinKey,
    galois: GaloisKeys,
    encoder: Encoder,
    evaluator: Evaluator,
    prg: Mutex<Prg>,
}

/// Largest magnitude.
fn magnitude(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, v| m.max(v.abs()))
}

impl Ckks {
    fn at(&self, level: Option<usize>, scale: Option<f64>, bound: f64) -> PyResult<EncodeAt> {
        let level = level.map_or(Ok(self.params.max_level()), |l| self.params.level(l)).map_err(refused)?;
        Ok(EncodeAt { level, scale: scale.unwrap_or(self.params.scale()), bound })
    }

    fn sum_of_hoisted(
        &self,
        a: &ckks::Ciphertext,
        terms: &[(i64, Vec<f64>)],
        scale: f64,
    ) -> Result<ckks::Ciphertext, CkksError> {
        let raised = terms
            .iter()
            .map(|(_, w)| {
                let at = EncodeAt { level: a.level(), scale, bound: magnitude(w) };
                self.encoder.encode_raised(w, at)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let terms: Vec<_> = terms.iter().map(|(s, _)| Galois::Rotate(*s)).zip(&raised).collect();
        self.evaluator.hoisted_sum(a, &self.evaluator.hoist(a)?, &terms, &self.galois)
    }

    fn sum_of_rotated(
        &self,
        a: &ckks::Ciphertext,
        terms: &[(i64, Vec<f64>)],
        scale: f64,
        bound: f64,
    ) -> Result<ckks::Ciphertext, CkksError> {
        let sums = vec![vec![0]; terms.len()];
        let mut rows = PlainRows::new(&self.params, a.level(), scale, self.params.slots(), sums)?;
        for (i, (_, w)) in terms.iter().enumerate() {
            rows.set(&self.encoder, i, std::slice::from_ref(w))?;
        }
        let products = self.evaluator.plain_sums(&[a], &rows)?;
        let turned: Vec<_> = terms.iter().map(|(s, _)| *s).zip(products).collect();
        self.evaluator.rotate_sum_rescale(&turned, bound, &self.galois)
    }
}

#[pymethods]
impl Ckks {
    #[new]
    #[pyo3(signature = (ring_degree, data_primes, special_primes, scale_bits, rotations, digits=None, conjugation=false))]
    fn new(
        ring_degree: usize,
        data_primes: Vec<u64>,
        special_primes: Vec<u64>,
        scale_bits: u32,
        rotations: Vec<i64>,
        digits: Option<usize>,
        conjugation: bool,
    ) -> PyResult<Self> {
        let spec = CkksSpec {
            ring_degree,
            ring: Ring::Cyclotomic,
            digits: digits.unwrap_or(data_primes.len()),
            data_primes: primes(&data_primes),
            special_primes: primes(&special_primes),
            scale_bits,
        };
        let params = spec.check().map_err(refused)?;
        let mut prg = Prg::from_os().map_err(|e| PyValueError::new_err(e.to_string()))?;
        let keys = KeyGenerator::new(&params);
        let secret = keys.secret_key(&mut prg).map_err(refused)?;
        let mut wanted: Vec<Galois> = rotations.iter().map(|s| Galois::Rotate(*s)).collect();
        wanted.extend(conjugation.then_some(Galois::Conjugate));
        Ok(Self {
            public: keys.public_key(&secret, &mut prg).map_err(refused)?,
            relin: keys.relin_key(&secret, &mut prg).map_err(refused)?,
            galois: keys.galois_keys(&secret, &wanted, &mut prg).map_err(refused)?,
            encoder: Encoder::new(&params),
            evaluator: Evaluator::new(&params),
            secret,
            prg: Mutex::new(prg),
            params,
        })
    }

    /// The primes, data primes first, then special ones.
    #[getter]
    fn primes(&self) -> Vec<u64> {
        let data = (0..self.params.max_level().get()).map(|i| self.params.data_prime(i));
        data.chain(self.params.special_primes()).collect()
    }

    #[pyo3(signature = (values, bound, level=None, scale=None))]
    fn encode(
        &self,
        values: PyReadonlyArray1<'_, f64>,
        bound: f64,
        level: Option<usize>,
        scale: Option<f64>,
    ) -> PyResult<Plaintext> {
        let at = self.at(level, scale, bound)?;
        self.encoder.encode(values.as_slice()?, at).map(Plaintext).map_err(refused)
    }

    #[pyo3(signature = (values, bound, level=None, scale=None))]
    fn encode_complex(
        &self,
        values: PyReadonlyArray1<'_, Complex64>,
        bound: f64,
        level: Option<usize>,
        scale: Option<f64>,
    ) -> PyResult<Plaintext> {
        let at = self.at(level, scale, bound)?;
        let values: Vec<Complex> =
            values.as_slice()?.iter().map(|z| Complex { re: z.re, im: z.im }).collect();
        self.encoder.encode_complex(&values, at).map(Plaintext).map_err(refused)
    }

    fn decode_complex<'py>(
        &self,
        py: Python<'py>,
        p: &Plaintext,
    ) -> PyResult<Bound<'py, PyArray1<Complex64>>> {
        let slots = self.encoder.decode_complex(&p.0).map_err(refused)?;
        Ok(PyArray1::from_vec(py, slots.iter().map(|z| Complex64::new(z.re, z.im)).collect()))
    }

    fn decode<'py>(&self, py: Python<'py>, p: &Plaintext) -> PyResult<Bound<'py, PyArray1<f64>>> {
        Ok(PyArray1::from_vec(py, self.encoder.decode(&p.0).map_err(refused)?))
    }

    /// With the public key, or the secret key.
    #[pyo3(signature = (p, symmetric=false))]
    fn encrypt(&self, p: &Plaintext, symmetric: bool) -> PyResult<Ciphertext> {
        let mut prg = self.prg.lock().unwrap_or_else(PoisonError::into_inner);
        let c =
            if symmetric { self.secret.encrypt(&p.0, &mut prg) } else { self.public.encrypt(&p.0, &mut prg) };
        c.map(Ciphertext).map_err(refused)
    }

    fn decrypt(&self, c: &Ciphertext) -> PyResult<Plaintext> {
        self.secret.decrypt(&c.0).map(Plaintext).map_err(refused)
    }

    fn add(&self, a: &Ciphertext, b: &Ciphertext) -> PyResult<Ciphertext> {
        self.evaluator.add(&a.0, &b.0).map(Ciphertext).map_err(refused)
    }

    fn sub(&self, a: &Ciphertext, b: &Ciphertext) -> PyResult<Ciphertext> {
        self.evaluator.sub(&a.0, &b.0).map(Ciphertext).map_err(refused)
    }

    fn add_plain(&self, a: &Ciphertext, p: &Plaintext) -> PyResult<Ciphertext> {
        self.evaluator.add_plain(&a.0, &p.0).map(Ciphertext).map_err(refused)
    }

    fn multiply_plain(&self, a: &Ciphertext, p: &Plaintext) -> PyResult<Ciphertext> {
        self.evaluator.mul_plain(&a.0, &p.0).map(Ciphertext).map_err(refused)
    }

    /// Plus one number in all slots.
    fn add_scalar(&self, a: &Ciphertext, value: f64) -> PyResult<Ciphertext> {
        let w = self.encoder.encode_scalar(value, a.0.level(), a.0.scale()).map_err(refused)?;
        self.evaluator.add_scalar(&a.0, &w).map(Ciphertext).map_err(refused)
    }

    /// Times one number, encoded at a scale.
    fn multiply_scalar(&self, a: &Ciphertext, value: f64, scale: f64) -> PyResult<Ciphertext> {
        let w = self.encoder.encode_scalar(value, a.0.level(), scale).map_err(refused)?;
        self.evaluator.mul_scalar(&a.0, &w).map(Ciphertext).map_err(refused)
    }

    /// Three parts.
    fn multiply(&self, a: &Ciphertext, b: &Ciphertext) -> PyResult<Ciphertext> {
        self.evaluator.mul(&a.0, &b.0).map(Ciphertext).map_err(refused)
    }

    /// Three parts.
    fn square(&self, a: &Ciphertext) -> PyResult<Ciphertext> {
        self.evaluator.square(&a.0).map(Ciphertext).map_err(refused)
    }

    fn relinearise(&self, a: &Ciphertext) -> PyResult<Ciphertext> {
        self.evaluator.relinearise(&a.0, &self.relin).map(Ciphertext).map_err(refused)
    }

    fn relinearise_rescale(&self, a: &Ciphertext) -> PyResult<Ciphertext> {
        self.evaluator.relinearise_rescale(&a.0, &self.relin).map(Ciphertext).map_err(refused)
    }

    fn rescale(&self, a: &Ciphertext) -> PyResult<Ciphertext> {
        self.evaluator.rescale(&a.0).map(Ciphertext).map_err(refused)
    }

    fn drop_to(&self, a: &Ciphertext, level: usize) -> PyResult<Ciphertext> {
        let level = self.params.level(level).map_err(refused)?;
        self.evaluator.drop_to(&a.0, level).map(Ciphertext).map_err(refused)
    }

    fn rotate(&self, a: &Ciphertext, steps: i64) -> PyResult<Ciphertext> {
        self.evaluator.rotate(&a.0, steps, &self.galois).map(Ciphertext).map_err(refused)
    }

    /// Several rotations of one ciphertext, cut into digits once.
    fn rotate_many(&self, a: &Ciphertext, steps: Vec<i64>) -> PyResult<Vec<Ciphertext>> {
        let many = self.evaluator.rotate_many(&a.0, &steps, &self.galois).map_err(refused)?;
        Ok(many.into_iter().map(Ciphertext).collect())
    }

    fn conjugate(&self, a: &Ciphertext) -> PyResult<Ciphertext> {
        self.evaluator.conjugate(&a.0, &self.galois).map(Ciphertext).map_err(refused)
    }

    /// `sum_k w_k rot(a, s_k)` for terms (s_k, w_k) with weights encoded at a scale: hoisted, one division by the special primes.
    fn hoisted_sum(&self, a: &Ciphertext, terms: Vec<(i64, Vec<f64>)>, scale: f64) -> PyResult<Ciphertext> {
        self.sum_of_hoisted(&a.0, &terms, scale).map(Ciphertext).map_err(refused)
    }

    /// `sum_k rot(w_k a, s_k)`, rescaled in the one division by the special primes; slots of the result are within a bound.
    fn rotate_sum_rescale(
        &self,
        a: &Ciphertext,
        terms: Vec<(i64, Vec<f64>)>,
        scale: f64,
        bound: f64,
    ) -> PyResult<Ciphertext> {
        self.sum_of_rotated(&a.0, &terms, scale, bound).map(Ciphertext).map_err(refused)
    }
}

/// Adds the classes.
///
/// # Errors
/// What Python raises.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Ckks>()?;
    m.add_class::<Ciphertext>()?;
    m.add_class::<Plaintext>()
}
