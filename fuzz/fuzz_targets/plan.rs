#![no_main]
//! Plan files of all trust models; changes reach behind the digest.

use hushnet_fuzz::plans;
use hushnet_fuzz::targets::PLAN;

libfuzzer_sys::fuzz_target!(init: PLAN.start(), |data: &[u8]| PLAN.check(data));

/// Writes what fits; the number of bytes written.
fn put(new: Option<Vec<u8>>, out: &mut [u8], most: usize) -> Option<usize> {
    let new = new.filter(|n| n.len() <= most.min(out.len()))?;
    out[..new.len()].copy_from_slice(&new);
    Some(new.len())
}

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    // Now and then the container itself.
    let new = if seed.is_multiple_of(16) { None } else { plans::mutated(&data[..size], seed) };
    put(new, data, max_size).unwrap_or_else(|| libfuzzer_sys::fuzzer_mutate(data, size, max_size))
});

libfuzzer_sys::fuzz_crossover!(|data1: &[u8], data2: &[u8], out: &mut [u8], seed: u32| {
    let most = out.len();
    put(plans::crossed(data1, data2, seed), out, most).unwrap_or(0)
});
