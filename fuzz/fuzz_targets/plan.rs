#![no_main]
//! Plan files of both engines, and their JSON without the digest in front.

use hushnet_runtime::plan::{Plan, PlanOptions};
use hushnet_runtime::two_party::TwoPartyPlan;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

fuzz_target!(|data: &[u8]| {
    let options = PlanOptions::default();
    let _ = Plan::from_bytes(data, &options);
    let _ = TwoPartyPlan::from_bytes(data, &options);
    if let Ok(json) = std::str::from_utf8(data) {
        let _ = Plan::from_parts(json, &BTreeMap::new(), &options);
        let _ = TwoPartyPlan::from_parts(json, &BTreeMap::new(), &options);
    }
});
