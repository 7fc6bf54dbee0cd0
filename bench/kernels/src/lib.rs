//! Nothing: the programs in `benches/` measure kernels of the product's crates, `cargo bench -p hushnet-kernels`.
