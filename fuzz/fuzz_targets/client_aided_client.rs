#![no_main]
//! A client-aided client with a server that says anything.

use hushnet_fuzz::targets::CLIENT_AIDED_CLIENT;

libfuzzer_sys::fuzz_target!(init: CLIENT_AIDED_CLIENT.start(), |data: &[u8]| CLIENT_AIDED_CLIENT.check(data));
