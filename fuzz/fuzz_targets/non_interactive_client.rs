#![no_main]
//! A non-interactive client with a server that says anything.

use hushnet_fuzz::targets::NON_INTERACTIVE_CLIENT;

libfuzzer_sys::fuzz_target!(init: NON_INTERACTIVE_CLIENT.start(), |data: &[u8]| NON_INTERACTIVE_CLIENT.check(data));
