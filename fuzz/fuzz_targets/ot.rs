#![no_main]
//! Base OTs and OT extensions with a peer that says anything.

use hushnet_fuzz::targets::OT;

libfuzzer_sys::fuzz_target!(init: OT.start(), |data: &[u8]| OT.check(data));
