//! Kernels: the only place with `unsafe`.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod madd;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "x86_64")]
pub(crate) mod pack;
pub(crate) mod portable;
pub(crate) mod recombine;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod rows;
pub(crate) mod tiles;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vnni;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod words;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use rows::*;
