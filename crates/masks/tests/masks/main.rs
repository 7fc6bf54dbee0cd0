//! Every mask, pad, seed and key stream of whole inferences is used once (`docs/mpc.md`, "Every mask is used once").
//!
//! Every test records under the process's ledger, one at a time. The ledger hears all threads, so nothing here runs outside of a recording.
#![allow(clippy::unwrap_used)]

#[path = "../../../runtime/tests/common/mod.rs"]
mod batches;
#[path = "../../../runtime/src/two_party/tests/builder.rs"]
mod builder;
mod client_aided;
mod features;
mod nets;
mod non_interactive;
mod products;
mod recorder;
mod two_party;
mod wire;

use hushnet_ring::ledger::{Finding, Kind, Recording, Report, ENTROPY, GENERATOR};

/// Kinds that a method must use, with the least number of records: a recorder that records nothing fails.
type Needs<'a> = &'a [(Kind, u64)];

/// Which of the needed kinds are missing or too few.
fn lacking(report: &Report, needs: Needs<'_>) -> Vec<String> {
    let used = |kind: &Kind| report.uses.get(kind).copied().unwrap_or(0);
    let few = needs.iter().filter(|(kind, least)| used(kind) < *least);
    few.map(|(kind, least)| format!("{}: {} of {least}", kind.0, used(kind))).collect()
}

/// No identity twice, no overlapping counters, and all kinds that must be there.
fn assert_once(what: &str, report: &Report, needs: Needs<'_>) {
    let found: Vec<String> = report.findings.iter().map(Finding::to_string).collect();
    assert!(found.is_empty(), "{what}: used twice: {found:#?}");
    let always = [(ENTROPY, 2), (GENERATOR, 2)];
    for needs in [needs, &always] {
        let lacking = lacking(report, needs);
        assert!(lacking.is_empty(), "{what}: too few records: {lacking:?} in {:?}", report.uses);
    }
    // `cargo test -p hushnet-masks -- --nocapture` shows what was counted.
    eprintln!("{what}: {} records of {} kinds", report.uses.values().sum::<u64>(), report.uses.len());
}

/// That a planted failure was found as a failure of these kinds, among others that follow from it.
fn assert_found(what: &str, report: &Report, kinds: &[Kind]) {
    for kind in kinds {
        assert!(
            report.findings.iter().any(|f| f.kind == *kind),
            "{what}: nothing was found of '{}': {:?}",
            kind.0,
            report.findings
        );
    }
}

/// Records what `f` does.
fn recorded<R>(f: impl FnOnce() -> R) -> (R, Report) {
    let recording = Recording::start();
    let result = f();
    (result, recording.finish())
}
