//! Which values are secret, told to valgrind: what `make constant-time` runs on (`docs/mpc.md`, "Constant time").
//!
//! Memcheck reports every branch and every address that depends on undefined memory. A check marks secrets as undefined
//! ([`poison`]) and every value that the other party or the caller may know as defined ([`publish`], [`declassify`]); what is left to
//! report is a leak (Langley's ctgrind, 2010). Without the feature `memcheck`, and where the program does not run under
//! valgrind, all of these do nothing.
#![cfg_attr(feature = "memcheck", allow(unsafe_code))]

#[cfg(not(all(feature = "memcheck", target_arch = "x86_64")))]
fn request(_: Request, _: usize, _: usize) -> usize {
    0
}

/// Requests of valgrind (`valgrind.h`, `memcheck.h`).
#[derive(Clone, Copy)]
enum Request {
    RunningOnValgrind = 0x1001,
    CountErrors = 0x1201,
    MakeUndefined = 0x4d43_0001,
    MakeDefined = 0x4d43_0002,
}

/// Asks valgrind, which recognises four rotations that add up to nothing; 0 outside of valgrind.
#[cfg(all(feature = "memcheck", target_arch = "x86_64"))]
fn request(what: Request, first: usize, second: usize) -> usize {
    let arguments = [what as usize, first, second, 0, 0, 0];
    let mut answer = 0usize;
    // SAFETY: a processor rotates rdi by 128 bits in all and exchanges rbx with itself; valgrind reads the six words behind rax and writes
    // rdx. The memory that a request names changes its marks, never its contents.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") &raw const arguments,
            inout("rdx") answer,
        );
    }
    answer
}

/// Whether marks have an effect: the feature is on and the program runs under valgrind.
#[must_use]
pub fn watched() -> bool {
    request(Request::RunningOnValgrind, 0, 0) != 0
}

/// Errors that valgrind has found so far; 0 where nobody watches.
#[must_use]
pub fn errors() -> usize {
    request(Request::CountErrors, 0, 0)
}

/// Marks values as secret for the check of constant time.
pub fn poison<T: Copy>(values: &mut [T]) {
    request(Request::MakeUndefined, values.as_mut_ptr() as usize, size_of_val(values));
}

/// Marks values, where they lie, as known to the other party or to the caller.
pub fn publish<T>(values: &[T]) {
    request(Request::MakeDefined, values.as_ptr() as usize, size_of_val(values));
}

/// A bit or number computed from secrets that may steer what happens next. Every call says why in a comment.
#[inline]
pub fn declassify<T: Copy>(value: T) -> T {
    if cfg!(feature = "memcheck") {
        // Through memory, so that the marks of a register go, too.
        let value = std::hint::black_box([value]);
        publish(&value);
        return std::hint::black_box(value)[0];
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_change_no_value() {
        let mut words = [1u64, 2, 3];
        poison(&mut words);
        publish(&words);
        assert_eq!((declassify(words[1]), words), (2, [1, 2, 3]));
    }
}
