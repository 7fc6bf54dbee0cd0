//! Arithmetic on words of wires, least significant bit first. Public constants are folded, so they cost no gates.

use super::gates::Gates;

/// A bit that is public, or on a wire.
#[derive(Clone)]
pub(super) enum Bit<W> {
    Public(bool),
    Wire(W),
}

/// A word.
pub(super) type Word<W> = Vec<Bit<W>>;

/// Wires as a word.
pub(super) fn wires<W: Clone>(w: &[W]) -> Word<W> {
    w.iter().cloned().map(Bit::Wire).collect()
}

/// A public number as a word of `bits` bits.
pub(super) fn public<W>(v: u64, bits: usize) -> Word<W> {
    (0..bits).map(|i| Bit::Public((v >> i) & 1 == 1)).collect()
}

/// The word on wires.
pub(super) fn to_wires<G: Gates>(g: &mut G, word: Word<G::Wire>) -> Vec<G::Wire> {
    let mut out = Vec::with_capacity(word.len());
    for b in word {
        let w = match b {
            Bit::Wire(w) => w,
            Bit::Public(v) => {
                let zero = g.zero();
                if v {
                    g.not(&zero)
                } else {
                    zero
                }
            }
        };
        out.push(w);
    }
    out
}

/// Not a.
pub(super) fn not<G: Gates>(g: &mut G, a: &Bit<G::Wire>) -> Bit<G::Wire> {
    match a {
        Bit::Public(v) => Bit::Public(!v),
        Bit::Wire(w) => Bit::Wire(g.not(w)),
    }
}

/// a xor b.
pub(super) fn xor<G: Gates>(g: &mut G, a: &Bit<G::Wire>, b: &Bit<G::Wire>) -> Bit<G::Wire> {
    match (a, b) {
        (Bit::Wire(a), Bit::Wire(b)) => Bit::Wire(g.xor(a, b)),
        (Bit::Public(true), other) | (other, Bit::Public(true)) => not(g, other),
        (Bit::Public(false), other) | (other, Bit::Public(false)) => other.clone(),
    }
}

/// a and b.
pub(super) fn and<G: Gates>(g: &mut G, a: &Bit<G::Wire>, b: &Bit<G::Wire>) -> Bit<G::Wire> {
    match (a, b) {
        (Bit::Wire(a), Bit::Wire(b)) => Bit::Wire(g.and(a, b)),
        (Bit::Public(true), other) | (other, Bit::Public(true)) => other.clone(),
        (Bit::Public(false), _) | (_, Bit::Public(false)) => Bit::Public(false),
    }
}

/// The majority of three: c ^ (a ^ c)(b ^ c), one AND.
fn majority<G: Gates>(g: &mut G, a: &Bit<G::Wire>, b: &Bit<G::Wire>, c: &Bit<G::Wire>) -> Bit<G::Wire> {
    if let Bit::Public(v) = a {
        // Of a public and two others: their AND or their OR.
        let both = and(g, b, c);
        if !v {
            return both;
        }
        let either = xor(g, b, c);
        return xor(g, &either, &both);
    }
    if let Bit::Public(_) = b {
        return majority(g, b, a, c);
    }
    let (ac, bc) = (xor(g, a, c), xor(g, b, c));
    let t = and(g, &ac, &bc);
    xor(g, &t, c)
}

/// a + b modulo 2^bits: bits - 1 ANDs.
pub(super) fn add<G: Gates>(g: &mut G, a: &Word<G::Wire>, b: &Word<G::Wire>) -> Word<G::Wire> {
    let mut carry = Bit::Public(false);
    let mut out = Vec::with_capacity(a.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        let ab = xor(g, a, b);
        out.push(xor(g, &ab, &carry));
        if i + 1 < out.capacity() {
            carry = majority(g, a, b, &carry);
        }
    }
    out
}

/// [a >= b], unsigned: the carry out of a + not b + 1, bits ANDs.
pub(super) fn at_least<G: Gates>(g: &mut G, a: &Word<G::Wire>, b: &Word<G::Wire>) -> Bit<G::Wire> {
    let mut carry = Bit::Public(true);
    for (a, b) in a.iter().zip(b) {
        let b = not(g, b);
        carry = majority(g, a, &b, &carry);
    }
    carry
}

/// yes where the bit is set, no elsewhere: bits ANDs.
pub(super) fn select<G: Gates>(
    g: &mut G,
    bit: &Bit<G::Wire>,
    yes: &Word<G::Wire>,
    no: &Word<G::Wire>,
) -> Word<G::Wire> {
    let mut out = Vec::with_capacity(yes.len());
    for (y, n) in yes.iter().zip(no) {
        let change = xor(g, y, n);
        let change = and(g, bit, &change);
        out.push(xor(g, &change, n));
    }
    out
}
