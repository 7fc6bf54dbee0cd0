//! Which instruction sets this process uses, decided once.
//!
//! `HUSHNET_SIMD` = `portable | neon | relaxed | avx2 | avx512 | ifma | vnni | amx` lowers the choice.
#![allow(unsafe_code)]

use crate::RingError;
use std::sync::OnceLock;

/// Instruction sets, weakest first. On x86-64 each contains the ones before it, but [`Isa::Neon`] and [`Isa::Relaxed`], which ARM and WebAssembly
/// alone have beside plain Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// 128-bit vectors of 64-bit ARM.
    Neon,
    /// Relaxed SIMD of WebAssembly, where its products and sums are rounded once.
    Relaxed,
    /// AVX2, FMA and POPCNT.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, CD.
    Avx512,
    /// AVX-512 IFMA, VBMI, VBMI2, VPOPCNTDQ, and VAES (Ice Lake, Zen 4 and later).
    Ifma,
    /// AVX-512 VNNI.
    Vnni,
    /// AMX tiles with int8 products (Sapphire Rapids and later), permitted by the operating system.
    Amx,
}

impl Isa {
    /// All of them, weakest first.
    pub const ALL: [Isa; 8] =
        [Isa::Portable, Isa::Neon, Isa::Relaxed, Isa::Avx2, Isa::Avx512, Isa::Ifma, Isa::Vnni, Isa::Amx];

    /// The name that `HUSHNET_SIMD` takes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::Relaxed => "relaxed",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Ifma => "ifma",
            Isa::Vnni => "vnni",
            Isa::Amx => "amx",
        }
    }

    /// This one, or the machine's best where the machine has less. Every kernel that takes an
    /// explicit `Isa` goes through here, so none can run into a missing instruction.
    #[inline]
    #[must_use]
    pub fn usable(self) -> Isa {
        let (best, lower) = (detected(), self.min(detected()));
        if best.has(lower) {
            lower
        } else {
            Isa::Portable
        }
    }

    /// Whether a machine with this best instruction set has another one, too.
    #[inline]
    fn has(self, other: Isa) -> bool {
        other == Isa::Portable || other == self || other < self && other >= Isa::Avx2
    }
}

impl std::str::FromStr for Isa {
    type Err = RingError;
    fn from_str(s: &str) -> Result<Self, RingError> {
        let lower = s.trim().to_ascii_lowercase();
        Isa::ALL.into_iter().find(|i| i.name() == lower).ok_or_else(|| RingError::UnknownIsa(s.to_owned()))
    }
}

/// The best instruction set of this machine, whatever `HUSHNET_SIMD` says.
#[inline]
#[must_use]
pub fn detected() -> Isa {
    static DETECTED: OnceLock<Isa> = OnceLock::new();
    *DETECTED.get_or_init(detect)
}

/// Every instruction set that this machine has, weakest first: what tests run through.
#[must_use]
pub fn available() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|i| detected().has(*i)).collect()
}

/// Every instruction set that this machine lacks, weakest first: what tests name as left out.
#[must_use]
pub fn left_out() -> Vec<Isa> {
    lacking(detected())
}

fn lacking(best: Isa) -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|i| !best.has(*i)).collect()
}

fn chosen() -> &'static Result<Isa, RingError> {
    static CHOSEN: OnceLock<Result<Isa, RingError>> = OnceLock::new();
    CHOSEN.get_or_init(|| choose(std::env::var("HUSHNET_SIMD").ok().as_deref(), detected()))
}

fn choose(wanted: Option<&str>, best: Isa) -> Result<Isa, RingError> {
    match wanted.map(str::trim).filter(|s| !s.is_empty()) {
        None => Ok(best),
        Some(s) => match s.parse::<Isa>()? {
            i if !best.has(i) => Err(RingError::MissingIsa { wanted: i.name(), available: best.name() }),
            i => Ok(i),
        },
    }
}

/// The instruction set in use; programs call this first to report a wrong `HUSHNET_SIMD`.
///
/// # Errors
/// [`RingError::UnknownIsa`] or [`RingError::MissingIsa`] when `HUSHNET_SIMD` cannot be obeyed.
pub fn init() -> Result<Isa, RingError> {
    chosen().clone()
}

/// The instruction set in use; the machine's best when `HUSHNET_SIMD` cannot be obeyed.
#[inline]
#[must_use]
pub fn isa() -> Isa {
    match chosen() {
        Ok(i) => *i,
        Err(_) => detected(),
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_family = "wasm")))]
fn detect() -> Isa {
    Isa::Portable
}

#[cfg(target_family = "wasm")]
fn detect() -> Isa {
    // SAFETY: where the engine has no such instruction, another one with the same operands stands in its place (web/bindgen).
    if unsafe { fuses() } {
        Isa::Relaxed
    } else {
        Isa::Portable
    }
}

/// Whether a relaxed product and sum is rounded once, which the specification leaves to the engine, once for all. The square of `1 + 2^-30` less
/// `1 + 2^-29` is `2^-60` then, and 0 with two roundings. What stands for the instruction where there is none (`v128.bitselect`) gives the first operand
/// here, since the second is the same.
///
/// # Safety
/// Needs the instruction, or what stands for it.
#[cfg(target_family = "wasm")]
#[target_feature(enable = "simd128,relaxed-simd")]
unsafe fn fuses() -> bool {
    use std::arch::wasm32::{f64x2_extract_lane, f64x2_relaxed_madd, f64x2_relaxed_nmadd, f64x2_splat};
    use std::hint::black_box;
    const UNIT: f64 = 1.0 / (1u64 << 30) as f64;
    let (x, square) = black_box((f64x2_splat(1.0 + UNIT), 1.0 + 2.0 * UNIT));
    let sum = f64x2_relaxed_madd(x, x, f64x2_splat(-square));
    let difference = f64x2_relaxed_nmadd(x, x, f64x2_splat(square));
    [f64x2_extract_lane::<0>(sum), -f64x2_extract_lane::<0>(difference)] == [UNIT * UNIT; 2]
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Isa {
    if std::arch::is_aarch64_feature_detected!("neon") {
        Isa::Neon
    } else {
        Isa::Portable
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    macro_rules! all {
        ($($f:tt),*) => { $(is_x86_feature_detected!($f))&&* };
    }
    if !all!("avx2", "fma", "popcnt") {
        return Isa::Portable;
    }
    if !all!("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd") {
        return Isa::Avx2;
    }
    if !all!("avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vpopcntdq", "vaes", "aes") {
        return Isa::Avx512;
    }
    if !all!("avx512vnni") {
        return Isa::Ifma;
    }
    if amx_int8() {
        Isa::Amx
    } else {
        Isa::Vnni
    }
}

/// Whether the processor has AMX int8, the kernel saves its tiles, and this process may use them.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn amx_int8() -> bool {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    const OSXSAVE: u32 = 1 << 27;
    const TILE_STATE: u32 = 1 << 17 | 1 << 18;
    const SYS_ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    if __cpuid_count(0, 0).eax < 7
        || __cpuid_count(7, 0).edx & TILE_AND_INT8 != TILE_AND_INT8
        || __cpuid_count(1, 0).ecx & OSXSAVE == 0
    {
        return false;
    }
    let enabled: u32;
    // SAFETY: OSXSAVE was checked, so XGETBV exists; it only reads register 0 into eax:edx.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") enabled, out("edx") _, options(nomem, nostack)) };
    if enabled & TILE_STATE != TILE_STATE {
        return false;
    }
    let result: i64;
    // SAFETY: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) has no pointer arguments; the kernel
    // clobbers rcx and r11 only.
    unsafe {
        asm!("syscall", inlateout("rax") SYS_ARCH_PRCTL => result, in("rdi") REQUEST_PERMISSION,
             in("rsi") TILE_DATA, out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
fn amx_int8() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_order_is_capability() {
        for pair in Isa::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        for i in Isa::ALL {
            assert_eq!(i.name().parse::<Isa>(), Ok(i));
        }
        assert_eq!(" AVX2 ".parse::<Isa>(), Ok(Isa::Avx2));
        assert!(matches!("sse".parse::<Isa>(), Err(RingError::UnknownIsa(_))));
    }

    #[test]
    fn override_is_obeyed_or_refused() {
        assert_eq!(choose(None, Isa::Vnni), Ok(Isa::Vnni));
        assert_eq!(choose(Some(""), Isa::Vnni), Ok(Isa::Vnni));
        assert_eq!(choose(Some("avx2"), Isa::Vnni), Ok(Isa::Avx2));
        assert_eq!(
            choose(Some("amx"), Isa::Avx2),
            Err(RingError::MissingIsa { wanted: "amx", available: "avx2" })
        );
        assert_eq!(choose(Some("neon"), Isa::Neon), Ok(Isa::Neon));
        assert_eq!(choose(Some("portable"), Isa::Relaxed), Ok(Isa::Portable));
        for (wanted, available) in
            [("neon", Isa::Amx), ("avx2", Isa::Neon), ("neon", Isa::Relaxed), ("relaxed", Isa::Amx)]
        {
            let refused = RingError::MissingIsa { wanted, available: available.name() };
            assert_eq!(choose(Some(wanted), available), Err(refused));
        }
        assert!(matches!(choose(Some("fast"), Isa::Amx), Err(RingError::UnknownIsa(_))));
        assert!(Isa::Amx.usable() <= detected());
        assert!(available().contains(&Isa::Portable));
    }

    /// Otherwise its kernels would not be tested: `make web-kernels` has engines and processors with it.
    #[cfg(target_family = "wasm")]
    #[test]
    fn steps_of_relaxed_simd_are_rounded_once_here() {
        assert_eq!(detected(), Isa::Relaxed);
    }

    #[test]
    fn what_tests_run_through_and_what_they_leave_out_are_all() {
        let mut all = [available(), left_out()].concat();
        all.sort_unstable();
        assert_eq!(all, Isa::ALL);
        assert_eq!(
            lacking(Isa::Avx2),
            [Isa::Neon, Isa::Relaxed, Isa::Avx512, Isa::Ifma, Isa::Vnni, Isa::Amx]
        );
        for (best, other) in [(Isa::Neon, Isa::Relaxed), (Isa::Relaxed, Isa::Neon)] {
            assert_eq!(lacking(best), [other, Isa::Avx2, Isa::Avx512, Isa::Ifma, Isa::Vnni, Isa::Amx]);
        }
        assert_eq!(lacking(Isa::Amx), [Isa::Neon, Isa::Relaxed]);
        assert!(Isa::ALL.into_iter().all(|i| available().contains(&i.usable())));
    }
}
