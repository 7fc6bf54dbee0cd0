//! Links to run two-party plans over.

use hushnet_runtime::two_party::network::Network;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A link of so many bits a second (infinity: no limit) and so many seconds there and back.
pub(crate) fn link((bits_per_second, round_trip_seconds): (f64, f64)) -> PyResult<Network> {
    if bits_per_second > 0.0 && round_trip_seconds >= 0.0 && round_trip_seconds.is_finite() {
        return Ok(Network { bits_per_second, round_trip_seconds });
    }
    Err(PyValueError::new_err(format!(
        "a network of {bits_per_second} bits a second and a round trip of {round_trip_seconds} s is not possible"
    )))
}
