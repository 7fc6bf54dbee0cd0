#![no_main]
//! Frames and control messages.

use hushnet_fuzz::targets::FRAME;

libfuzzer_sys::fuzz_target!(init: FRAME.start(), |data: &[u8]| FRAME.check(data));
