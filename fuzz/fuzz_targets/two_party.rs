#![no_main]
//! A two-party server with a client that says anything.

use hushnet_mpc::{Channel, MpcError, Result, Stats};
use hushnet_runtime::plan::PlanOptions;
use hushnet_runtime::two_party::{TwoPartyModel, TwoPartyPlan};
use hushnet_runtime::Compute;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

struct Script(Vec<u8>);

impl Channel for Script {
    fn send(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn recv(&mut self, data: &mut [u8]) -> Result<()> {
        if data.len() > self.0.len() {
            return Err(MpcError::Io(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let rest = self.0.split_off(data.len());
        data.copy_from_slice(&self.0);
        self.0 = rest;
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn stats(&self) -> Stats {
        Stats::default()
    }
}

fuzz_target!(|data: &[u8]| {
    static MODEL: OnceLock<TwoPartyModel> = OnceLock::new();
    let model = MODEL.get_or_init(|| {
        let bytes = include_bytes!("../../crates/runtime/tests/fixtures/two_party.hush");
        let plan = TwoPartyPlan::from_bytes(bytes, &PlanOptions::default()).expect("a plan");
        TwoPartyModel::new(&plan, Compute::default()).expect("a model")
    });
    let _ = model.serve(Box::new(Script(data.to_vec())), &mut |_| {});
});
