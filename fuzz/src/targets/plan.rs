//! Plan files: the container, and the JSON and weights behind the digest, of all trust models.

use crate::{nets, plans::Parts, Target};
use hushnet_runtime::non_interactive::NonInteractivePlan;
use hushnet_runtime::plan::{Plan, PlanError, Trust};
use hushnet_runtime::session::trust;
use hushnet_runtime::two_party::TwoPartyPlan;

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
    let trust = trust(data, &o.limits)?;
    // What is accepted has a public part, which is accepted as well.
    let reread = |public: Result<Vec<u8>, PlanError>, read: &dyn Fn(&[u8]) -> Result<(), PlanError>| {
        let public = public.expect("an accepted plan has a public part");
        read(&public).unwrap_or_else(|e| panic!("the public part of an accepted plan is refused: {e}"));
    };
    match trust {
        Trust::ClientAided => {
            let plan = Plan::from_bytes(data, &o)?;
            reread(plan.public_part(), &|b| Plan::from_bytes(b, &o).map(drop));
        }
        Trust::TwoParty => {
            let plan = TwoPartyPlan::from_bytes(data, &o)?;
            reread(plan.public_part(), &|b| TwoPartyPlan::from_bytes(b, &o).map(drop));
        }
        Trust::NonInteractive => {
            let plan = NonInteractivePlan::from_bytes(data, &o)?;
            reread(plan.public_part(), &|b| NonInteractivePlan::from_bytes(b, &o).map(drop));
        }
    }
    Ok(trust)
}

fn run(data: &[u8]) {
    let _ = accepted(data);
}
