//! What the ledger of tests records of oblivious transfers and garbled circuits (`docs/mpc.md`, "Every mask is used once").

use hushnet_ring::ledger::Kind;

/// Correlated OTs as their sender draws them: blocks q, whose hashes are pads.
pub const SENT_PAD: Kind = Kind("OT pad of the sender");
/// Correlated OTs as their receiver draws them.
pub const RECEIVED_PAD: Kind = Kind("OT pad of the receiver");
/// Words of kept pads, as a protocol draws them at party 0 and at party 1 (a pad that one chose is one of the other's two); the OTs that they were
/// made of are recorded before.
pub const KEPT_PADS: [Kind; 2] = [Kind("kept pad of party 0"), Kind("kept pad of party 1")];
/// What the hash of 1-of-2^k OT takes, sender.
pub const SENT_TABLE_KEY: Kind = Kind("1-of-N OT key of the sender");
/// What the hash of 1-of-2^k OT takes, receiver.
pub const RECEIVED_TABLE_KEY: Kind = Kind("1-of-N OT key of the receiver");
/// Column streams of IKNP that the holder of Delta expands.
pub const IKNP_SENDER: Kind = Kind("IKNP column of the sender");
/// Column streams of IKNP that the holder of the choice bits expands.
pub const IKNP_RECEIVER: Kind = Kind("IKNP column of the receiver");
/// Leaf streams of SoftSpoken, holder of Delta.
pub const SOFT_SENDER: Kind = Kind("SoftSpoken leaf of the sender");
/// Leaf streams of SoftSpoken, holder of the choice bits.
pub const SOFT_RECEIVER: Kind = Kind("SoftSpoken leaf of the receiver");
/// The roots of the trees of silent OT.
pub const FERRET_ROOT: Kind = Kind("root of a silent-OT tree");
/// Iteration and number of a tree that the sender has paid for: its key, its base OTs, its rows of the code.
pub const FERRET_SENT_TREE: Kind = Kind("silent-OT tree of the sender");
/// The same at the receiver.
pub const FERRET_RECEIVED_TREE: Kind = Kind("silent-OT tree of the receiver");
/// Tweaks of garbled gates under their key.
pub const GARBLED_TWEAK: Kind = Kind("tweak of a garbled gate");
/// Tweaks of evaluated gates under their key.
pub const EVALUATED_TWEAK: Kind = Kind("tweak of an evaluated gate");
/// Streams of the garbler's input labels, as the garbler expands them.
pub const GARBLER_LABELS: Kind = Kind("labels of the garbler");
/// The same streams at the evaluator.
pub const EVALUATOR_LABELS: Kind = Kind("labels of the evaluator");
/// The garbler's shares of results.
pub const GARBLED_R: Kind = Kind("R of a garbled result");
