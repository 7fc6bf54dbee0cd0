"""Other libraries, and our own CKKS, as executors of one circuit, to compare with (docs/polynomial-networks.md)."""
