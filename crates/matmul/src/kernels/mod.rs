//! Kernels: the only place with `unsafe`.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod pack;
pub(crate) mod portable;
pub(crate) mod recombine;
pub(crate) mod tiles;
#[cfg(target_arch = "x86_64")]
pub(crate) mod vnni;

/// Splits `m` rows into the fewest blocks of at most `most` rows, of sizes that differ by at most one.
pub(crate) fn row_blocks(m: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let blocks = m.div_ceil(most);
    (0..blocks).map(move |b| {
        let (start, end) = (b * m / blocks, (b + 1) * m / blocks);
        (start, end - start)
    })
}

/// Weights of whole-word kernels: `[row block][column][row in block]`, sign-extended.
pub(crate) struct WordPanel {
    /// `(first row, rows, start in values)` of every row block.
    pub(crate) blocks: Vec<(usize, usize, usize)>,
    /// Two's complement weights.
    pub(crate) values: Vec<u64>,
}

impl WordPanel {
    pub(crate) fn new(w: &crate::Weights, most: usize, mask: u64) -> Self {
        let mut blocks = Vec::new();
        let mut values = Vec::with_capacity(w.values().len());
        for (start, rows) in row_blocks(w.rows(), most) {
            blocks.push((start, rows, values.len()));
            for k in 0..w.columns() {
                values.extend((start..start + rows).map(|m| i64::from(w.row(m)[k]) as u64 & mask));
            }
        }
        Self { blocks, values }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn row_blocks_cover_every_row_once_and_evenly() {
        for m in 1..100 {
            for most in 1..14 {
                let blocks: Vec<_> = super::row_blocks(m, most).collect();
                assert_eq!(blocks.len(), m.div_ceil(most));
                let mut next = 0;
                for (start, rows) in &blocks {
                    assert_eq!(*start, next);
                    assert!(*rows <= most && *rows >= m / blocks.len());
                    next += rows;
                }
                assert_eq!(next, m);
            }
        }
    }
}
