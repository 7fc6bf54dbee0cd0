#![no_main]
//! A two-party client with a server that says anything.

use hushnet_fuzz::targets::TWO_PARTY_CLIENT;

libfuzzer_sys::fuzz_target!(init: TWO_PARTY_CLIENT.start(), |data: &[u8]| TWO_PARTY_CLIENT.check(data));
