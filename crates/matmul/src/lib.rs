//! Integer weight matrices times matrices of ciphertext words modulo a power of two.
