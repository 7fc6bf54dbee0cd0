//! Arrays of a plan file as the stages of a batch circuit read them.

use super::Checker;
use crate::plan::{PlanError, TensorBytes};

impl<'a> Checker<'a> {
    pub(super) fn file(&self, name: &str) -> Result<&'a TensorBytes<'a>, PlanError> {
        self.scope
            .files
            .get(name)
            .ok_or_else(|| PlanError::Weights { tensor: name.to_owned(), detail: "not in the file".into() })
    }

    pub(super) fn weights(&self, name: &str, shape: &[usize]) -> Result<Vec<i16>, PlanError> {
        let fail = |detail: String| PlanError::Weights { tensor: name.to_owned(), detail };
        let file = self.file(name)?;
        if file.shape != shape {
            return Err(fail(format!("shape {:?}, expected {shape:?}", file.shape)));
        }
        match file.dtype {
            "I8" => Ok(file.data.iter().map(|b| i16::from(b.cast_signed())).collect()),
            "I16" => Ok(file.data.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect()),
            other => Err(fail(format!("type {other}, expected I8 or I16"))),
        }
    }

    pub(super) fn eights(
        &self,
        name: &str,
        dtype: &str,
    ) -> Result<impl Iterator<Item = [u8; 8]> + 'a, PlanError> {
        let file = self.file(name)?;
        if file.dtype != dtype {
            let detail = format!("type {}, expected {dtype}", file.dtype);
            return Err(PlanError::Weights { tensor: name.to_owned(), detail });
        }
        Ok(file.data.chunks_exact(8).map(|c| [c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))
    }

    pub(super) fn integers(&self, name: &str) -> Result<Vec<i64>, PlanError> {
        Ok(self.eights(name, "I64")?.map(i64::from_le_bytes).collect())
    }

    pub(super) fn reals(&self, name: &str) -> Result<Vec<f64>, PlanError> {
        let values: Vec<f64> = self.eights(name, "F64")?.map(f64::from_le_bytes).collect();
        if values.iter().any(|v| !v.is_finite()) {
            return Err(PlanError::Weights { tensor: name.to_owned(), detail: "not a finite number".into() });
        }
        Ok(values)
    }
}
