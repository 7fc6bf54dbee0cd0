//! The processor's own tiles, by inline assembly (their intrinsics are not stable).
//! `hushnet_ring::simd` has asked the operating system for them before `Isa::Amx` exists.
#![allow(unsafe_code)]

use super::tiles::TileOps;
use crate::limbs::Lane;
use std::arch::asm;

/// Palette 1: eight tiles of 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Config([u8; 64]);

static CONFIG: Config = {
    let mut c = [0; 64];
    c[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        c[16 + 2 * tile] = 64;
        c[48 + tile] = 16;
        tile += 1;
    }
    Config(c)
};

/// Tiles 0 to 5 accumulate, 6 holds weights, 7 words.
pub(crate) struct Hardware(());

impl Hardware {
    /// `None` where the processor has no tiles or this process may not use them.
    pub(crate) fn new() -> Option<Self> {
        (hushnet_ring::simd::detected() >= hushnet_ring::Isa::Amx).then_some(Self(()))
    }
}

/// One instruction for each accumulator.
macro_rules! each_accumulator {
    ($accumulator:expr, $before:literal, $after:literal $(, $operand:tt)*) => {
        match $accumulator {
            0 => asm!(concat!($before, "tmm0", $after) $(, $operand)*, options(nostack, preserves_flags)),
            1 => asm!(concat!($before, "tmm1", $after) $(, $operand)*, options(nostack, preserves_flags)),
            2 => asm!(concat!($before, "tmm2", $after) $(, $operand)*, options(nostack, preserves_flags)),
            3 => asm!(concat!($before, "tmm3", $after) $(, $operand)*, options(nostack, preserves_flags)),
            4 => asm!(concat!($before, "tmm4", $after) $(, $operand)*, options(nostack, preserves_flags)),
            _ => asm!(concat!($before, "tmm5", $after) $(, $operand)*, options(nostack, preserves_flags)),
        }
    };
}

impl TileOps for Hardware {
    fn begin(&mut self) {
        // SAFETY: `Hardware` exists only where tiles do; the configuration is valid for palette 1.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, preserves_flags, readonly));
        };
    }
    fn end(&mut self) {
        // SAFETY: tiles exist.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
    #[inline(always)]
    fn zero(&mut self, accumulator: usize) {
        // SAFETY: tiles are configured between `begin` and `end`; the compiler never uses them itself.
        unsafe { each_accumulator!(accumulator, "tilezero ", "") };
    }
    #[inline(always)]
    unsafe fn load_weights(&mut self, from: *const Lane) {
        // SAFETY: the caller vouches for sixteen lanes.
        unsafe {
            asm!("tileloadd tmm6, [{} + {}]", in(reg) from, in(reg) 64usize, options(nostack, preserves_flags, readonly));
        }
    }
    #[inline(always)]
    unsafe fn load_words(&mut self, from: *const Lane, stride: usize) {
        // SAFETY: the caller vouches for sixteen lanes, `stride` apart.
        unsafe {
            asm!("tileloadd tmm7, [{} + {}]", in(reg) from, in(reg) 64 * stride, options(nostack, preserves_flags, readonly));
        }
    }
    #[inline(always)]
    fn multiply_add(&mut self, accumulator: usize) {
        // SAFETY: tiles are configured between `begin` and `end`.
        unsafe { each_accumulator!(accumulator, "tdpbsud ", ", tmm6, tmm7") };
    }
    #[inline(always)]
    unsafe fn store(&mut self, accumulator: usize, to: *mut Lane) {
        macro_rules! to {
            ($tile:literal) => {
                asm!(concat!("tilestored [{} + {}], ", $tile), in(reg) to, in(reg) 64usize, options(nostack, preserves_flags))
            };
        }
        // SAFETY: the caller vouches for sixteen lanes.
        unsafe {
            match accumulator {
                0 => to!("tmm0"),
                1 => to!("tmm1"),
                2 => to!("tmm2"),
                3 => to!("tmm3"),
                4 => to!("tmm4"),
                _ => to!("tmm5"),
            }
        }
    }
}
