#![no_main]
//! Ciphertexts and keys: whatever is accepted is written back as it came.

use hushnet_rlwe::ckks::{Ciphertext, CkksParams, CkksSpec, GaloisKeys, PublicKey, RelinKey};
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

fuzz_target!(|data: &[u8]| {
    static PARAMS: OnceLock<CkksParams> = OnceLock::new();
    let params = PARAMS.get_or_init(|| {
        CkksSpec::with_depth(8192, 40, 2, 30, 41).check().expect("these parameters are secure")
    });
    if let Ok(c) = Ciphertext::from_bytes(params, data) {
        assert!(c.to_bytes().is_ok());
    }
    let _ = PublicKey::from_bytes(params, data);
    let _ = RelinKey::from_bytes(params, data);
    let _ = GaloisKeys::from_bytes(params, data);
});
