//! Polynomial rings Z_q[X]/(X^N+1): number-theoretic transforms, samplers and
//! SIMD dispatch. Knows nothing of encryption.
