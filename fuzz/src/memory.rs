//! An allocator that counts, so that an allocation which the input does not pay for is a crash on every toolchain: libFuzzer's own
//! `-malloc_limit_mb` needs a sanitizer, and `-rss_limit_mb` sees only memory that was touched.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that are allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Bytes that may be.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[cold]
fn exceeded(size: usize) -> ! {
    // The report may allocate. Nothing unwinds out of an allocator: the profile aborts on panics.
    LIMIT.store(usize::MAX, Relaxed);
    panic!(
        "the input makes this side allocate {size} bytes beside {} others, above the target's limit",
        LIVE.load(Relaxed)
    );
}

fn grow(size: usize) {
    let live = LIVE.fetch_add(size, Relaxed).saturating_add(size);
    if live > LIMIT.load(Relaxed) {
        exceeded(size);
    }
}

// SAFETY: every call is handed on to the system's allocator as it came; counting touches atomics only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `body`, which may hold `bytes` more than are held now.
///
/// # Panics
/// When it asks for more.
pub fn within<R>(bytes: usize, body: impl FnOnce() -> R) -> R {
    LIMIT.store(LIVE.load(Relaxed).saturating_add(bytes), Relaxed);
    let result = body();
    LIMIT.store(usize::MAX, Relaxed);
    result
}
