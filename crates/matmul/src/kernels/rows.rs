//! Rows of a matrix in blocks, as the kernels in vectors read weights and write outputs.

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

/// Output rows of a call: a register tile may compute rows that are not wanted, and those go to `spare`.
pub(crate) struct Wanted<'a, 'b, const W: usize> {
    /// Rows of the matrix that are wanted.
    pub(crate) rows: std::ops::Range<usize>,
    /// One output for every wanted row.
    pub(crate) out: &'a mut [&'b mut [u64]],
    /// One constant for every wanted row, or empty.
    pub(crate) start: &'a [u64],
    /// Room for tiles that end early, or are not wanted; made when first needed.
    spare: Vec<[u64; W]>,
    tile_rows: usize,
}

impl<'a, 'b, const W: usize> Wanted<'a, 'b, W> {
    pub(crate) fn new(
        rows: std::ops::Range<usize>,
        out: &'a mut [&'b mut [u64]],
        start: &'a [u64],
        tile_rows: usize,
    ) -> Self {
        Self { rows, out, start, spare: Vec::new(), tile_rows }
    }

    /// Words of an output.
    pub(crate) fn words(&self) -> usize {
        self.out.first().map_or(0, |o| o.len())
    }

    /// Whether none of these rows is wanted.
    pub(crate) fn none_of(&self, first: usize, rows: usize) -> bool {
        first >= self.rows.end || first + rows <= self.rows.start
    }

    /// Where `W` words at `at` of every row of a tile go. Tiles that end early begin with the output's words.
    pub(crate) fn pointers<const R: usize>(&mut self, first: usize, rows: usize, at: usize) -> [*mut u64; R] {
        let mut pointers = [std::ptr::null_mut(); R];
        for (i, pointer) in pointers.iter_mut().enumerate().take(rows) {
            let row = (first + i).checked_sub(self.rows.start).filter(|r| *r < self.out.len());
            let piece = row.map(|r| &mut self.out[r][at..]);
            *pointer = match piece {
                Some(piece) if piece.len() >= W => piece.as_mut_ptr(),
                piece => {
                    self.spare.resize(self.tile_rows, [0; W]);
                    if let Some(piece) = piece {
                        self.spare[i][..piece.len()].copy_from_slice(piece);
                    }
                    self.spare[i].as_mut_ptr()
                }
            };
        }
        pointers
    }

    /// Copies tiles that end early from the spare room.
    pub(crate) fn finish(&mut self, first: usize, rows: usize, at: usize) {
        for i in 0..rows {
            let row = (first + i).checked_sub(self.rows.start).filter(|r| *r < self.out.len());
            if let Some(piece) = row.map(|r| &mut self.out[r][at..]).filter(|p| p.len() < W) {
                piece.copy_from_slice(&self.spare[i][..piece.len()]);
            }
        }
    }

    /// The constants of a tile.
    pub(crate) fn constants<const R: usize>(&self, first: usize, rows: usize) -> [u64; R] {
        let mut constants = [0; R];
        if !self.start.is_empty() {
            for (i, constant) in constants.iter_mut().enumerate().take(rows) {
                let row = (first + i).checked_sub(self.rows.start);
                *constant = row.and_then(|r| self.start.get(r)).copied().unwrap_or(0);
            }
        }
        constants
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
