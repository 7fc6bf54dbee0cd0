//! Holds tests only (`crates/masks/tests/masks`): whole inferences of every trust model and every linear method under the ledger of
//! `hushnet_ring::ledger`, and comparisons of what travels. It is a crate of its own so that the ledger's code is in its
//! tests alone, and all others test what the product has.
