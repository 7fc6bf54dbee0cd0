#![no_main]
//! A client-aided server with a client that says anything.

use hushnet_fuzz::targets::CLIENT_AIDED_SERVER;

libfuzzer_sys::fuzz_target!(init: CLIENT_AIDED_SERVER.start(), |data: &[u8]| CLIENT_AIDED_SERVER.check(data));
