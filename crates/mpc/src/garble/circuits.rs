//! The circuits of the non-linear layers. Garbler's words are residues that it computes ahead from its share a and its fresh
//! share r of the result, so that only what needs both parties is done in gates.

use super::gates::{Circuit, Gates};
use super::modulus::Modulus;
use super::words::{add, at_least, not, public, select, to_wires, wires, xor, Bit, Word};

/// b + k for the garbler's residue k, as [`addend`] gives it: bits - 1 ANDs for 2^l; 3 bits - 1 for p.
pub(super) struct Addend;

impl Addend {
    /// Widths of the garbler's words.
    pub(super) fn widths(m: Modulus) -> Vec<u32> {
        match m {
            Modulus::PowerOfTwo(r) => vec![r.bits()],
            Modulus::Odd(p) => vec![p.bits(); 3],
        }
    }

    /// The garbler's words: k; modulo p also k - p modulo 2^bits, and p - k, from which on b + k exceeds p.
    pub(super) fn words(m: Modulus, k: u64) -> Vec<u64> {
        match m {
            Modulus::PowerOfTwo(_) => vec![k],
            Modulus::Odd(p) => {
                let mask = u64::MAX >> (64 - p.bits());
                vec![k, k.wrapping_sub(p.value()) & mask, p.value() - k]
            }
        }
    }

    fn add<G: Gates>(g: &mut G, m: Modulus, k: &[Vec<G::Wire>], b: &Word<G::Wire>) -> Word<G::Wire> {
        match m {
            Modulus::PowerOfTwo(_) => add(g, b, &wires(&k[0])),
            Modulus::Odd(_) => {
                let wraps = at_least(g, b, &wires(&k[2]));
                let k = select(g, &wraps, &wires(&k[1]), &wires(&k[0]));
                add(g, b, &k)
            }
        }
    }
}

/// [x >= 0] of x = a + b.
pub(super) struct Sign(pub Modulus);

impl Sign {
    /// Widths of the garbler's words.
    pub(super) fn widths(m: Modulus) -> Vec<u32> {
        match m {
            Modulus::PowerOfTwo(r) => vec![r.bits()],
            Modulus::Odd(p) => vec![p.bits(), p.bits(), 1],
        }
    }

    /// For 2^l: a. For p: x >= 0 exactly where b lies in the cyclic interval of (p+1)/2 residues from low = -a on; the words are
    /// low, its last residue plus one, and whether it wraps around.
    pub(super) fn words(m: Modulus, a: u64) -> Vec<u64> {
        match m {
            Modulus::PowerOfTwo(_) => vec![a],
            Modulus::Odd(p) => {
                let low = p.sub(0, a);
                let high = p.add(low, p.half());
                vec![low, high + 1, (high.wrapping_sub(low)) >> 63]
            }
        }
    }

    fn bit<G: Gates>(g: &mut G, m: Modulus, a: &[Vec<G::Wire>], b: &Word<G::Wire>) -> Bit<G::Wire> {
        match m {
            Modulus::PowerOfTwo(_) => {
                let x = add(g, b, &wires(&a[0]));
                not(g, &x[x.len() - 1])
            }
            Modulus::Odd(_) => {
                let (from, to) = (at_least(g, b, &wires(&a[0])), at_least(g, b, &wires(&a[1])));
                let inside = xor(g, &from, &to);
                xor(g, &inside, &Bit::Wire(a[2][0].clone()))
            }
        }
    }
}

impl Circuit for Sign {
    fn garbler(&self) -> Vec<u32> {
        Self::widths(self.0)
    }

    fn evaluator(&self) -> Vec<u32> {
        vec![self.0.bits()]
    }

    fn outputs(&self) -> Vec<u32> {
        vec![1]
    }

    fn run<G: Gates>(&self, g: &mut G, a: &[Vec<G::Wire>], b: &[Vec<G::Wire>]) -> Vec<Vec<G::Wire>> {
        let sign = Self::bit(g, self.0, a, &wires(&b[0]));
        vec![to_wires(g, vec![sign])]
    }
}

/// max(x, 0) - r: x >= 0 ? b + (a - r) : -r. Garbler's words: those of [`Sign`] for a, of [`Addend`] for a - r, then -r.
pub(super) struct Relu(pub Modulus);

impl Circuit for Relu {
    fn garbler(&self) -> Vec<u32> {
        [Sign::widths(self.0), Addend::widths(self.0), vec![self.0.bits()]].concat()
    }

    fn evaluator(&self) -> Vec<u32> {
        vec![self.0.bits()]
    }

    fn outputs(&self) -> Vec<u32> {
        vec![self.0.bits()]
    }

    fn run<G: Gates>(&self, g: &mut G, a: &[Vec<G::Wire>], b: &[Vec<G::Wire>]) -> Vec<Vec<G::Wire>> {
        let b = wires(&b[0]);
        let (signs, rest) = a.split_at(Sign::widths(self.0).len());
        let positive = Sign::bit(g, self.0, signs, &b);
        let x = Addend::add(g, self.0, rest, &b);
        let out = select(g, &positive, &x, &wires(&rest[rest.len() - 1]));
        vec![to_wires(g, out)]
    }
}

/// min(max(x, low), high) - r. Shares are of x + offset, so that signed order is that of residues; `low` and `high` too.
/// Both ends are the garbler's words, so gates and tables are the same for all of them; a `low` of zero is public where `from_zero` says so,
/// and then costs no word and no comparison modulo 2^l. Garbler's words: [`Addend`] for a, `low` unless it is public, `high`, and [`Addend`] for -(offset + r).
pub(super) struct Clip {
    pub modulus: Modulus,
    pub from_zero: bool,
}

impl Clip {
    /// The garbler's words for the ends, residues of end + offset.
    pub(super) fn ends(&self, low: u64, high: u64) -> Vec<u64> {
        if self.from_zero {
            vec![high]
        } else {
            vec![low, high]
        }
    }
}

impl Circuit for Clip {
    fn garbler(&self) -> Vec<u32> {
        let (addend, ends) = (Addend::widths(self.modulus), self.ends(0, 0).len());
        [addend.clone(), vec![self.modulus.bits(); ends], addend].concat()
    }

    fn evaluator(&self) -> Vec<u32> {
        vec![self.modulus.bits()]
    }

    fn outputs(&self) -> Vec<u32> {
        vec![self.modulus.bits()]
    }

    fn run<G: Gates>(&self, g: &mut G, a: &[Vec<G::Wire>], b: &[Vec<G::Wire>]) -> Vec<Vec<G::Wire>> {
        let m = self.modulus;
        let (first, rest) = a.split_at(Addend::widths(m).len());
        let (ends, last) = rest.split_at(rest.len() - Addend::widths(m).len());
        let x = Addend::add(g, m, first, &wires(&b[0]));
        let low = if self.from_zero { public(m.offset(), x.len()) } else { wires(&ends[0]) };
        let high = wires(&ends[ends.len() - 1]);
        let above = at_least(g, &x, &low);
        let y = select(g, &above, &x, &low);
        let over = at_least(g, &y, &high);
        let y = select(g, &over, &high, &y);
        let out = Addend::add(g, m, last, &y);
        vec![to_wires(g, out)]
    }
}

/// The largest of k values minus r, or its index (the first of equals) minus r modulo 2^index_bits. Shares as in [`Clip`].
/// Garbler's words: [`Addend`] for every value, then for -(offset + r), or the index's -r.
pub(super) struct Largest {
    pub modulus: Modulus,
    pub values: usize,
    /// Bits of the index, where the index is asked for.
    pub index: Option<u32>,
}

impl Circuit for Largest {
    fn garbler(&self) -> Vec<u32> {
        let one = Addend::widths(self.modulus);
        let mut all = one.repeat(self.values);
        match self.index {
            Some(bits) => all.push(bits),
            None => all.extend(one),
        }
        all
    }

    fn evaluator(&self) -> Vec<u32> {
        vec![self.modulus.bits(); self.values]
    }

    fn outputs(&self) -> Vec<u32> {
        vec![self.index.unwrap_or(self.modulus.bits())]
    }

    fn run<G: Gates>(&self, g: &mut G, a: &[Vec<G::Wire>], b: &[Vec<G::Wire>]) -> Vec<Vec<G::Wire>> {
        let m = self.modulus;
        let per = Addend::widths(m).len();
        let index_bits = self.index.unwrap_or(0) as usize;
        let value = |g: &mut G, i: usize| Addend::add(g, m, &a[per * i..per * (i + 1)], &wires(&b[i]));
        let (mut best, mut at) = (value(g, 0), public(0, index_bits));
        for i in 1..self.values {
            let x = value(g, i);
            let keep = at_least(g, &best, &x);
            if self.index.is_none() || i + 1 < self.values {
                best = select(g, &keep, &best, &x);
            }
            at = select(g, &keep, &at, &public(i as u64, index_bits));
        }
        let last = &a[per * self.values..];
        let out =
            if self.index.is_some() { add(g, &at, &wires(&last[0])) } else { Addend::add(g, m, last, &best) };
        vec![to_wires(g, out)]
    }
}
