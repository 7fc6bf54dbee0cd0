//! A circuit is written once, over any [`Gates`]: garbler, evaluator, plain bits, or a counter.

/// What a circuit is run on.
pub(super) trait Gates {
    /// What passes along a wire.
    type Wire: Clone;

    /// a and b.
    fn and(&mut self, a: &Self::Wire, b: &Self::Wire) -> Self::Wire;

    /// a xor b.
    fn xor(&mut self, a: &Self::Wire, b: &Self::Wire) -> Self::Wire;

    /// not a.
    fn not(&mut self, a: &Self::Wire) -> Self::Wire;

    /// A wire that carries false and that everybody knows.
    fn zero(&mut self) -> Self::Wire;
}

/// A boolean function of the garbler's and the evaluator's words, bits of a word least significant first.
pub(super) trait Circuit: Sync {
    /// Widths of the garbler's words.
    fn garbler(&self) -> Vec<u32>;

    /// Widths of the evaluator's words.
    fn evaluator(&self) -> Vec<u32>;

    /// Widths of the output words.
    fn outputs(&self) -> Vec<u32>;

    /// The gates.
    fn run<G: Gates>(
        &self,
        g: &mut G,
        garbler: &[Vec<G::Wire>],
        evaluator: &[Vec<G::Wire>],
    ) -> Vec<Vec<G::Wire>>;
}

/// Bits of a list of words.
pub(super) fn total(widths: &[u32]) -> usize {
    widths.iter().map(|&w| w as usize).sum()
}

/// Counts AND gates.
#[derive(Default)]
pub(super) struct Count(pub u64);

impl Gates for Count {
    type Wire = ();
    fn and(&mut self, (): &(), (): &()) {
        self.0 += 1;
    }
    fn xor(&mut self, (): &(), (): &()) {}
    fn not(&mut self, (): &()) {}
    fn zero(&mut self) {}
}

/// AND gates of a circuit.
pub(super) fn and_gates<C: Circuit>(c: &C) -> u64 {
    let words = |widths: Vec<u32>| widths.into_iter().map(|w| vec![(); w as usize]).collect::<Vec<_>>();
    let mut count = Count::default();
    c.run(&mut count, &words(c.garbler()), &words(c.evaluator()));
    count.0
}
