#![no_main]
//! What parties of slot-packed layers send each other.

use hushnet_fuzz::targets::BFV;

libfuzzer_sys::fuzz_target!(init: BFV.start(), |data: &[u8]| BFV.check(data));
