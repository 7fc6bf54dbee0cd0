//! The ledger is in these tests only: not in what a release builds, nor in the tests of other crates.

use std::path::Path;
use std::process::Command;

/// The features that cargo resolves for a package.
fn tree(package: &str, edges: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = Command::new(cargo)
        .current_dir(root)
        .args([
            "tree",
            "--locked",
            "--offline",
            "--all-features",
            "-p",
            package,
            "-e",
            edges,
            "--prefix",
            "none",
        ])
        .output()
        .unwrap();
    assert!(done.status.success(), "cargo tree: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

const LEDGER: &str = "hushnet-ring feature \"ledger\"";

#[test]
fn no_build_of_the_package_has_the_ledger() {
    // With all features of its own, too: none leads there. What cargo calls normal and build edges is what a release takes.
    for package in ["hushnet-python", "hushnet-runtime", "hushnet-mpc", "hushnet-layers", "hushnet-rlwe"] {
        let features = tree(package, "features,normal,build");
        assert!(features.contains("hushnet-ring v"), "{package}: {features}");
        assert!(!features.contains(LEDGER), "{package} is built with the ledger");
    }
    // Nor have the tests of the other crates.
    assert!(!tree("hushnet-runtime", "features").contains(LEDGER));
    // The search finds it where it is, among dev-dependencies.
    assert!(tree("hushnet-masks", "features").contains(LEDGER));
    assert!(!tree("hushnet-masks", "features,normal,build").contains(LEDGER));
}
