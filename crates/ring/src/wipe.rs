//! Overwriting secrets.

use zeroize::DefaultIsZeroes;

/// Overwrites words with zeros that the compiler must write, at the speed of memory: `Zeroize` writes one word after the other.
pub fn wipe<T: DefaultIsZeroes>(words: &mut [T]) {
    words.fill(T::default());
    // The zeros are there before what follows, which may read them.
    zeroize::optimization_barrier(words);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_any_length() {
        for len in [0, 1, 7, 64, 1001] {
            let (mut words, mut bytes) = (vec![u64::MAX; len], vec![-1i8; len]);
            wipe(&mut words);
            wipe(&mut bytes);
            assert!(words.iter().all(|w| *w == 0) && bytes.iter().all(|b| *b == 0));
            assert_eq!((words.len(), bytes.len()), (len, len));
        }
    }
}
