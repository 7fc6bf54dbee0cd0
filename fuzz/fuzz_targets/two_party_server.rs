#![no_main]
//! A two-party server with a client that says anything.

use hushnet_fuzz::targets::TWO_PARTY_SERVER;

libfuzzer_sys::fuzz_target!(init: TWO_PARTY_SERVER.start(), |data: &[u8]| TWO_PARTY_SERVER.check(data));
