#![no_main]
//! Either two-party peer, by the methods with slots, with a peer that says anything.

use hushnet_fuzz::targets::TWO_PARTY_SLOTS;

libfuzzer_sys::fuzz_target!(init: TWO_PARTY_SLOTS.start(), |data: &[u8]| TWO_PARTY_SLOTS.check(data));
