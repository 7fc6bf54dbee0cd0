#![no_main]
//! Ciphertexts and keys of CKKS.

use hushnet_fuzz::targets::CKKS;

libfuzzer_sys::fuzz_target!(init: CKKS.start(), |data: &[u8]| CKKS.check(data));
