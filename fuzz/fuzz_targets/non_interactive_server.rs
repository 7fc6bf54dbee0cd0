#![no_main]
//! A non-interactive server with a client that says anything.

use hushnet_fuzz::targets::NON_INTERACTIVE_SERVER;

libfuzzer_sys::fuzz_target!(init: NON_INTERACTIVE_SERVER.start(), |data: &[u8]| NON_INTERACTIVE_SERVER.check(data));
