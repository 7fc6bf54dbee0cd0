//! NumPy arrays in and out.

use crate::errors::Kind;
use hushnet_runtime::{Input, InputData, Output};
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A borrowed input, row by row; a copied one where it lies otherwise in memory.
pub(crate) struct Array<'py> {
    name: String,
    shape: Vec<usize>,
    values: Values<'py>,
}

enum Values<'py> {
    F32(PyReadonlyArrayDyn<'py, f32>),
    F64(PyReadonlyArrayDyn<'py, f64>),
    Copied32(Vec<f32>),
    Copied64(Vec<f64>),
}

/// Reads `{name: float32 or float64 array}`.
pub(crate) fn read<'py>(inputs: &Bound<'py, PyDict>) -> PyResult<Vec<Array<'py>>> {
    inputs.iter().map(|(name, value)| Array::new(name.extract()?, &value)).collect()
}

impl<'py> Array<'py> {
    fn new(name: String, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = value.extract::<PyReadonlyArrayDyn<'py, f32>>() {
            let shape = array.shape().to_vec();
            // a slice of an array in the order of columns has its elements in another order than its shape says
            let values = if array.is_c_contiguous() {
                Values::F32(array)
            } else {
                Values::Copied32(array.as_array().iter().copied().collect())
            };
            return Ok(Self { name, shape, values });
        }
        if let Ok(array) = value.extract::<PyReadonlyArrayDyn<'py, f64>>() {
            let shape = array.shape().to_vec();
            // a slice of an array in the order of columns has its elements in another order than its shape says
            let values = if array.is_c_contiguous() {
                Values::F64(array)
            } else {
                Values::Copied64(array.as_array().iter().copied().collect())
            };
            return Ok(Self { name, shape, values });
        }
        let what = match value.downcast::<PyUntypedArray>() {
            Ok(array) => format!("has dtype {}", array.dtype()),
            Err(_) => format!("is a {}", value.get_type().name()?),
        };
        let text =
            format!("input '{name}' {what}, wanted a NumPy array of float32 or float64 in native byte order");
        Err(Kind::Input.error(text))
    }

    /// For the run time.
    pub(crate) fn input(&self) -> Input<'_> {
        let data = match &self.values {
            Values::F32(a) => InputData::F32(a.as_slice().unwrap_or_default()),
            Values::F64(a) => InputData::F64(a.as_slice().unwrap_or_default()),
            Values::Copied32(v) => InputData::F32(v),
            Values::Copied64(v) => InputData::F64(v),
        };
        Input { name: &self.name, shape: self.shape.clone(), data }
    }
}

/// Makes `{name: float64 array}`.
pub(crate) fn write<'py>(py: Python<'py>, outputs: Vec<Output>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for output in outputs {
        let array: Bound<'py, PyArrayDyn<f64>> =
            numpy::PyArray1::from_vec(py, output.data).reshape(output.shape.as_slice())?;
        dict.set_item(output.name, array)?;
    }
    Ok(dict)
}
