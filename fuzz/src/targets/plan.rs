//! Plan files: the container, and the JSON and weights behind the digest, of all trust models.

use crate::{nets, plans::Parts, Target};
use hushnet_runtime::plan::{PlanError, Trust};
use hushnet_runtime::AnyPlan;

/// Plan files of every kind.
pub const PLAN: Target = Target { seeds, run, memory: 48 << 20 };

fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut out = vec![
        ("client-aided".to_owned(), nets::client_aided()),
        ("non-interactive".to_owned(), nets::non_interactive(false)),
        ("non-interactive-hide".to_owned(), nets::non_interactive(true)),
        ("packed".to_owned(), nets::packed()),
    ];
    for method in ["cheetah", "batch", "rotation-free", "convfhe", "gala", "gazelle"] {
        out.push((format!("two-party-{method}"), nets::file_of(&nets::two_party(method, method == "batch"))));
    }
    for (i, net) in nets::two_party_stages().iter().enumerate() {
        out.push((format!("two-party-stages-{i}"), nets::file_of(net)));
    }
    for (name, seed) in &out {
        assert!(accepted(seed).is_ok(), "{name}: {:?}", accepted(seed));
        assert!(Parts::open(seed).and_then(|p| p.seal()).is_some_and(|s| accepted(&s).is_ok()), "{name}");
    }
    out
}

/// Reads a plan as a client does, and, where it is accepted, its public part.
fn accepted(data: &[u8]) -> Result<Trust, PlanError> {
    let o = nets::options();
    let plan = AnyPlan::from_bytes(data, &o)?;
    // What is accepted has a public part, which is accepted as well.
    let public = plan.public_part().expect("an accepted plan has a public part");
    if let Err(e) = AnyPlan::from_bytes(&public, &o) {
        panic!("the public part of an accepted plan is refused: {e}");
    }
    Ok(plan.trust())
}

fn run(data: &[u8]) {
    let _ = accepted(data);
}
