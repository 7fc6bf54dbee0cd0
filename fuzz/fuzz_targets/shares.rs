#![no_main]
//! What parties of two-party linear layers send each other, by encryption.

use hushnet_fuzz::targets::SHARES;

libfuzzer_sys::fuzz_target!(init: SHARES.start(), |data: &[u8]| SHARES.check(data));
