#![no_main]
//! Set-ups of rotation-free layers.

use hushnet_fuzz::targets::SETUPS;

libfuzzer_sys::fuzz_target!(init: SETUPS.start(), |data: &[u8]| SETUPS.check(data));
