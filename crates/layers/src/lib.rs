//! Encrypted linear layers, one module per method.
