//! What the multipliers do when nothing is loaded: the same instruction on sixteen registers.
#![allow(unsafe_code)]

use hushnet_matmul::Kernel;
use std::sync::OnceLock;

/// Element products a second (bytes for byte-product kernels, words otherwise); `None` without a SIMD loop.
pub(crate) fn products_per_second(kernel: Kernel) -> Option<f64> {
    static VNNI: OnceLock<f64> = OnceLock::new();
    static IFMA: OnceLock<f64> = OnceLock::new();
    static MULLO: OnceLock<f64> = OnceLock::new();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the bench asks only for kernels that this processor has.
    unsafe {
        match kernel {
            Kernel::Vnni => return Some(*VNNI.get_or_init(|| 64.0 * rate(|n| x86::vnni(n)))),
            Kernel::Ifma => return Some(*IFMA.get_or_init(|| 8.0 * rate(|n| x86::ifma(n)))),
            Kernel::Mullo => return Some(*MULLO.get_or_init(|| 8.0 * rate(|n| x86::mullo(n)))),
            _ => {}
        }
    }
    let _ = (kernel, &VNNI, &IFMA, &MULLO);
    None
}

/// Instructions a second, best of several.
fn rate(f: impl Fn(usize)) -> f64 {
    const N: usize = 1 << 16;
    (0..30).fold(0.0, |best: f64, _| {
        let start = std::time::Instant::now();
        f(N);
        best.max((16 * N) as f64 / start.elapsed().as_secs_f64())
    })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    macro_rules! registers {
        ($name:ident, $features:literal, $step:expr) => {
            /// `16 n` instructions on sixteen independent registers.
            #[target_feature(enable = $features)]
            pub(crate) fn $name(n: usize) {
                let x = black_box(_mm512_set1_epi32(0x0102_0304));
                let w = black_box(_mm512_set1_epi32(0x7F80_0101));
                let mut acc = [black_box(_mm512_setzero_si512()); 16];
                for _ in 0..n {
                    for a in &mut acc {
                        *a = $step(*a, x, w);
                    }
                }
                black_box(acc);
            }
        };
    }

    registers!(vnni, "avx512f,avx512vnni", |a, x, w| _mm512_dpbusd_epi32(a, x, w));
    registers!(ifma, "avx512f,avx512ifma", |a, x, w| _mm512_madd52lo_epu64(a, x, w));
    registers!(mullo, "avx512f,avx512dq", |a, x, w| _mm512_add_epi64(_mm512_mullo_epi64(a, w), x));
}
