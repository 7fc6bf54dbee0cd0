//! Word buffers that start at a cache line.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
use rustix::mm::{madvise, Advice};
use std::alloc::{alloc, alloc_zeroed, handle_alloc_error, Layout};
use std::ops::{Deref, DerefMut};
use zeroize::Zeroize;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Bytes of a large page of the system, and of the shortest buffer that asks for them.
const LARGE_PAGE: usize = 1 << 21;
const MANY: usize = 2 * LARGE_PAGE;

/// Asks for large pages where a buffer covers them whole: transforms read it at strides of many pages. No more memory is taken than without.
///
/// # Safety
/// `start` points to `bytes` of an allocation.
unsafe fn advise(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        let before = start.align_offset(LARGE_PAGE);
        let inside = bytes.saturating_sub(before) / LARGE_PAGE * LARGE_PAGE;
        if inside > 0 {
            // Where the system does not take the advice, nothing is lost.
            // SAFETY: the range lies within the allocation, and this advice changes no contents.
            let _ = unsafe { madvise(start.add(before).cast(), inside, Advice::LinuxHugepage) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// A fixed-length `[u64]`, 64-byte aligned and zero at first: full-width loads never straddle lines.
#[derive(Clone)]
pub struct AlignedWords {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedWords {
    /// Makes `len` words that are zero, aligned to cache lines.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let count = len.div_ceil(8);
        let layout = Layout::array::<Line>(count);
        let Some(layout) = layout.ok().filter(|l| l.size() > 0) else {
            // Nothing to allocate, or more than there can be, which `Vec` reports.
            return Self { lines: vec![Line([0; 8]); count], len };
        };
        #[allow(clippy::cast_ptr_alignment, clippy::same_length_and_capacity)] // as the layout says
        // SAFETY: the layout has a size. Zeroed memory is valid lines, and it comes from the allocator that `Vec` frees it with, under the
        // layout of an array of `count` lines.
        let lines = unsafe {
            let many = layout.size() >= MANY;
            let start = if many { alloc(layout) } else { alloc_zeroed(layout) };
            if start.is_null() {
                handle_alloc_error(layout);
            }
            if many {
                // Before the first word is written: pages are chosen then.
                advise(start, layout.size());
                start.write_bytes(0, layout.size());
            }
            Vec::from_raw_parts(start.cast::<Line>(), count, count)
        };
        Self { lines, len }
    }
}

impl Deref for AlignedWords {
    type Target = [u64];
    #[inline]
    fn deref(&self) -> &[u64] {
        // SAFETY: `lines` holds at least `len` initialised words contiguously (`Line` is `repr(C)` of
        // eight words, and its size equals its alignment, so there is no padding).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedWords {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl Zeroize for AlignedWords {
    fn zeroize(&mut self) {
        crate::wipe(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Systems without large pages know no such flag.
    #[cfg(target_os = "linux")]
    #[test]
    fn large_buffers_ask_for_large_pages() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let words = AlignedWords::new(MANY);
        let middle = words.as_ptr() as usize + MANY / 2 * 8;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut here = false;
        let flags = maps.lines().find_map(|line| {
            let bounds = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = bounds.map(|(a, b)| [a, b].map(|x| usize::from_str_radix(x, 16)));
            if let Some([Ok(from), Ok(to)]) = bounds {
                here = (from..to).contains(&middle);
            }
            line.strip_prefix("VmFlags:").filter(|_| here)
        });
        assert!(flags.unwrap().split_whitespace().any(|f| f == "hg"), "{flags:?}");
    }

    #[test]
    fn aligned_zeroed_and_of_the_asked_length() {
        for len in [0, 1, 7, 8, 9, 2048, MANY / 8 + 5] {
            let mut a = AlignedWords::new(len);
            assert_eq!(a.len(), len);
            assert_eq!(a.as_ptr() as usize % 64, 0);
            assert!(a.iter().all(|&w| w == 0));
            a.fill(7);
            assert_eq!(a.iter().sum::<u64>(), 7 * len as u64);
            a.zeroize();
            assert!(a.iter().all(|&w| w == 0));
        }
    }
}
