//! Comparison by a carry that goes through digits of up to four bits, a message for each digit.
//!
//! Party 1 holds x, party 0 holds y; [x < y] is the carry out of y + !x. With a bit a of one party, a bit b of the other (of y and !x, in whichever
//! order) and the carry c = g ^ h in front of them, the next one is the majority ab ^ (a ^ b)c. So the carry out of a digit is a polynomial T in the
//! chooser's bits and its share h, whose coefficients the sender knows, and whose leading one is 1 (where there is a carry in front).
//!
//! A random OT for each variable makes pads: values of a random polynomial P of the degree that T has without its leading term. From OT i the chooser has
//! one of two strings, coefficients of a polynomial in the *other* variables; P(c) is the sum of the chosen ones. All coefficients of P but the constant
//! are uniform for it (`docs/mpc.md`, "A carry through digits"). The chooser sends d = w ^ c for its bits w, the sender the coefficients of T(w) ^ P(w ^ d)
//! but the constant, which is its share. So a sender has its share before the chooser has, and is the chooser of the next digit.

use crate::bits::{bytes, words};
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::kept::Item;
use crate::simd::{FixedKey, GROUP};
use crate::wire::{recv_plane, send_plane};
use crate::{Block, Party, Session};

/// The longest digit.
const LONGEST: u32 = 4;

/// Coefficients of the largest polynomial: in the bits of a digit and a carry.
const MOST: usize = 2 << LONGEST;

/// A digit of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Digit {
    bits: u32,
    /// Whether there is a carry in front of it.
    carry: bool,
    /// Who knows the coefficients; the other party chooses.
    sender: Party,
}

impl Digit {
    /// Variables of its polynomial, each a random OT: the carry's share, where there is one, and the bits.
    pub(crate) fn variables(self) -> usize {
        self.bits as usize + usize::from(self.carry)
    }

    /// Correlated OTs that `n` values draw, `[d]` with party d as their sender.
    pub(crate) fn ots(self, n: usize) -> [u64; 2] {
        let mut out = [0; 2];
        out[self.sender.index()] = (self.variables() * words(n) * GROUP) as u64;
        out
    }

    /// Bits of an OT's strings: terms in all variables but one, and not their product where T's leading term is known.
    fn terms(self) -> usize {
        (1 << (self.variables() - 1)) - usize::from(self.carry)
    }

    /// Coefficients of the pads' polynomial: all, or all but the leading one.
    fn coefficients(self) -> usize {
        (1 << self.variables()) - usize::from(self.carry)
    }

    /// Planes that a party has of its pads: all coefficients, or its choices and P(c).
    pub(crate) fn planes(self, party: Party) -> usize {
        if party == self.sender {
            self.coefficients()
        } else {
            self.variables() + 1
        }
    }

    /// Planes that its sender sends: coefficients that are not its share.
    fn corrections(self) -> usize {
        self.coefficients() - 1
    }
}

/// How many digits of at most so many bits there are: an even number, where m > 2 bits fall into it. Behind an odd number party 0 would have its share last, and
/// what follows a comparison would take a message more, as a further digit does, which makes the others shorter.
fn count(m: usize, longest: u32) -> usize {
    let least = m.div_ceil(longest.clamp(1, LONGEST) as usize);
    if m < 3 {
        least
    } else {
        least.next_multiple_of(2).min(m)
    }
}

/// The digits of m bits, least significant first, as equal as can be: the first ones are longer, since no carry is in front of the first.
fn digits(m: usize, longest: u32) -> impl Iterator<Item = Digit> + Clone {
    let count = count(m, longest);
    let (least, longer) = (m / count.max(1), m % count.max(1));
    (0..count).map(move |i| Digit {
        bits: (least + usize::from(i < longer)) as u32,
        carry: i > 0,
        sender: if i % 2 == 0 { Party::One } else { Party::Zero },
    })
}

/// Correlated OTs that comparing m bits takes.
pub(super) fn demand(m: usize, longest: u32, n: usize) -> [u64; 2] {
    digits(m, longest).fold([0; 2], |[a, b], digit| {
        let [zero, one] = digit.ots(n);
        [a + zero, b + one]
    })
}

/// Who has its share of the result first: the last digit's sender.
pub(super) fn first_to_know(m: usize, longest: u32) -> Party {
    digits(m, longest).last().map_or(Party::Zero, |digit| digit.sender)
}

/// Messages of [`begin`] and [`finish`]; the message beside them has so many bytes, equal for both parties, and is read between them.
pub(super) fn cost(model: &mut CostModel, m: usize, longest: u32, n: usize, beside: u64) {
    let planes = |count: usize| (count * bytes(n)) as u64;
    let all = || digits(m, longest);
    all().for_each(|digit| model.pad(Item::Digit(digit), n));
    let next = all().skip(1).map(Digit::variables).chain([0]);
    for (i, (digit, choices)) in all().zip(next).enumerate() {
        let by = planes(digit.corrections() + choices);
        if i > 0 {
            model.message(digit.sender, by);
            continue;
        }
        model.depart_late(Party::Zero, planes(digit.variables()));
        model.depart_late(Party::Zero, beside);
        model.arrive_late(Party::One);
        model.depart_late(Party::One, by);
        model.depart_late(Party::One, beside);
        model.arrive_late(Party::Zero);
        if beside > 0 {
            model.arrive_late(Party::One);
            model.arrive_late(Party::Zero);
        }
    }
}

/// Where a polynomial's coefficient of `term` is, a term in all variables but variable i.
fn place(term: usize, i: usize) -> usize {
    let low = term & ((1 << i) - 1);
    low | (term >> i) << (i + 1)
}

/// P(z ^ d) for P(z), in place: of every variable, terms without it get the coefficients of those with it times d.
fn shift(p: &mut [u64], d: impl Iterator<Item = u64>) {
    for (v, d) in d.enumerate() {
        for pair in p.chunks_exact_mut(2 << v) {
            let (without, with) = pair.split_at_mut(1 << v);
            without.iter_mut().zip(with).for_each(|(a, b)| *a ^= *b & d);
        }
    }
}

/// A polynomial's value; its coefficients are used up.
fn value(p: &mut [u64], at: &[u64]) -> u64 {
    for (v, w) in at.iter().enumerate().rev() {
        let (without, with) = p.split_at_mut(1 << v);
        without.iter_mut().zip(with).for_each(|(a, b)| *a ^= *b & w);
    }
    p[0]
}

/// The coefficients of the carry out of a digit, in the chooser's share of the carry in front of it, where there is one, and its bits: `g` is the sender's
/// share of that carry, `bits` are its bits.
fn carry_out(t: &mut [u64; MOST], g: Option<u64>, bits: impl Iterator<Item = u64>) {
    (t[0], t[1]) = (g.unwrap_or(0), !0);
    let mut terms = if g.is_some() { 2 } else { 1 };
    for b in bits {
        // ab ^ (a ^ b)c for a new variable a
        for i in 0..terms {
            t[terms + i] = t[i];
            t[i] &= b;
        }
        t[terms] ^= b;
        terms *= 2;
    }
}

/// A digit's columns from the session's OTs, which have been ensured: see [`Digit::planes`].
pub(crate) fn pads(s: &mut Session, n: usize, digit: Digit) -> Result<Vec<Vec<u64>>> {
    match digit.terms() {
        1 => strings::<1>(s, n, digit),
        2 => strings::<2>(s, n, digit),
        3 => strings::<3>(s, n, digit),
        4 => strings::<4>(s, n, digit),
        7 => strings::<7>(s, n, digit),
        8 => strings::<8>(s, n, digit),
        _ => strings::<15>(s, n, digit),
    }
}

/// Of strings of S = [`Digit::terms`] bits.
fn strings<const S: usize>(s: &mut Session, n: usize, digit: Digit) -> Result<Vec<Vec<u64>>> {
    let variables = digit.variables();
    let mut out = vec![vec![0; words(n)]; digit.planes(s.party)];
    let mut blocks = vec![0; variables * GROUP];
    let delta = s.delta();
    for w in 0..words(n) {
        let mut p = [0; MOST];
        if s.party == digit.sender {
            s.draw_sent(&mut blocks)?;
            sent::<S>(&s.send_pads.key, delta, &blocks, &mut p);
        } else {
            s.draw_received(&mut blocks)?;
            chosen::<S>(&s.recv_pads.key, &blocks, &mut p);
        }
        out.iter_mut().zip(p).for_each(|(o, p)| o[w] = p);
    }
    Ok(out)
}

/// P's coefficients.
fn sent<const S: usize>(key: &FixedKey, delta: Block, blocks: &[Block], p: &mut [u64; MOST]) {
    for (i, blocks) in blocks.as_chunks::<GROUP>().0.iter().enumerate() {
        let (zero, one): ([u64; S], [u64; S]) = (key.planes(blocks, 0), key.planes(blocks, delta));
        add(p, i, &zero, &one);
    }
}

/// Adds both strings of OT i to P: the first where variable i is 0, the second where it is 1.
fn add(p: &mut [u64; MOST], i: usize, zero: &[u64], one: &[u64]) {
    for (term, (zero, one)) in zero.iter().zip(one).enumerate() {
        let at = place(term, i);
        p[at] ^= zero;
        p[at | 1 << i] ^= zero ^ one;
    }
}

/// The choices, and P(c) behind them.
fn chosen<const S: usize>(key: &FixedKey, blocks: &[Block], out: &mut [u64; MOST]) {
    let blocks = blocks.as_chunks::<GROUP>().0;
    let variables = blocks.len();
    out.iter_mut().zip(blocks).for_each(|(o, of)| *o = key.choices(of));
    let (mut pad, mut others) = (0, [0; LONGEST as usize]);
    for (i, of) in blocks.iter().enumerate() {
        let string: [u64; S] = key.planes(of, 0);
        let mut p = [0; MOST / 2];
        p[..S].copy_from_slice(&string);
        others[..i].copy_from_slice(&out[..i]);
        others[i..variables - 1].copy_from_slice(&out[i + 1..variables]);
        pad ^= value(&mut p[..1 << (variables - 1)], &others[..variables - 1]);
    }
    out[variables] = pad;
}

/// A digit in work.
struct Step {
    digit: Digit,
    /// What this party has of its pads.
    pads: Vec<Vec<u64>>,
    /// The number of its lowest bit.
    low: usize,
}

/// A comparison whose first messages have been sent, and of party 0 read.
pub(super) struct Begun {
    steps: Vec<Step>,
    /// This party's share of the carry out of the digits that are done.
    carry: Vec<u64>,
    /// The other party's masked choices in the next digit, where this one sends.
    choices: Vec<Vec<u64>>,
}

/// The first messages; `send` runs behind a party's own. The pads have been provided: [`demand`].
pub(super) fn begin(
    s: &mut Session,
    input: &[Vec<u64>],
    longest: u32,
    n: usize,
    send: &mut dyn FnMut(&mut Session) -> Result<()>,
) -> Result<Begun> {
    let mut begun = Begun { steps: Vec::new(), carry: Vec::new(), choices: Vec::new() };
    let mut low = 0;
    for digit in digits(input.len(), longest) {
        let step = Step { digit, pads: s.pads(Item::Digit(digit), n)?, low };
        if low == 0 && s.party != digit.sender {
            // The other party needs them to go on, and draws its pads meanwhile.
            step.choose(s, input, &[], n)?;
            s.channel.flush()?;
        }
        low += digit.bits as usize;
        begun.steps.push(step);
    }
    let Some(first) = begun.steps.first().map(|step| step.digit) else {
        return Err(MpcError::Length { what: "compared bits", expected: 1, got: 0 });
    };
    if s.party == first.sender {
        begun.choices = planes(s, first.variables(), n)?;
        begun.digit(s, input, 0, n)?;
        send(s)?;
        s.channel.flush()?;
    } else {
        send(s)?;
        s.channel.flush()?;
        begun.digit(s, input, 0, n)?;
    }
    Ok(begun)
}

/// This party's share of `[x < y]`.
pub(super) fn finish(s: &mut Session, mut begun: Begun, input: &[Vec<u64>], n: usize) -> Result<Vec<u64>> {
    for i in 1..begun.steps.len() {
        begun.digit(s, input, i, n)?;
    }
    Ok(begun.carry)
}

fn planes(s: &mut Session, count: usize, n: usize) -> Result<Vec<Vec<u64>>> {
    (0..count).map(|_| recv_plane(&mut *s.channel, n)).collect()
}

impl Begun {
    /// Digit i: the sender corrects it and chooses in the next one, the chooser takes both.
    fn digit(&mut self, s: &mut Session, input: &[Vec<u64>], i: usize, n: usize) -> Result<()> {
        let (step, next) = (&self.steps[i], self.steps.get(i + 1));
        if s.party == step.digit.sender {
            self.carry = step.correct(s, input, &self.carry, &self.choices, n)?;
            return next.map_or(Ok(()), |next| next.choose(s, input, &self.carry, n));
        }
        self.carry = step.take(s, input, &self.carry, n)?;
        self.choices = planes(s, next.map_or(0, |next| next.digit.variables()), n)?;
        Ok(())
    }
}

impl Step {
    /// This party's bits of the digit in word w: of y, or of !x.
    fn bits<'a>(&self, s: &Session, input: &'a [Vec<u64>], w: usize) -> impl Iterator<Item = u64> + 'a {
        let flip = if s.is_first() { 0 } else { !0 };
        input[self.low..self.low + self.digit.bits as usize].iter().map(move |plane| plane[w] ^ flip)
    }

    /// The values of the chooser's variables in word w: its share of the carry in front, where there is one, and its bits.
    fn values(
        &self,
        s: &Session,
        input: &[Vec<u64>],
        carry: &[u64],
        w: usize,
    ) -> [u64; LONGEST as usize + 1] {
        let mut out = [0; LONGEST as usize + 1];
        let front = self.digit.carry.then(|| carry[w]);
        out.iter_mut().zip(front.into_iter().chain(self.bits(s, input, w))).for_each(|(o, v)| *o = v);
        out
    }

    /// Sends the choices, masked.
    fn choose(&self, s: &mut Session, input: &[Vec<u64>], carry: &[u64], n: usize) -> Result<()> {
        let mut masked = self.pads[..self.digit.variables()].to_vec();
        for w in 0..words(n) {
            let values = self.values(s, input, carry, w);
            masked.iter_mut().zip(values).for_each(|(m, v)| m[w] ^= v);
        }
        masked.iter().try_for_each(|plane| send_plane(&mut *s.channel, plane, n))
    }

    /// Sends the corrections for masked choices. This party's share of the carry out of the digit.
    fn correct(
        &self,
        s: &mut Session,
        input: &[Vec<u64>],
        carry: &[u64],
        choices: &[Vec<u64>],
        n: usize,
    ) -> Result<Vec<u64>> {
        let (terms, known) = (1 << self.digit.variables(), self.digit.coefficients());
        let mut share = vec![0; words(n)];
        let mut corrections = vec![vec![0; words(n)]; self.digit.corrections()];
        let (mut t, mut p) = ([0; MOST], [0; MOST]);
        for (w, share) in share.iter_mut().enumerate() {
            carry_out(&mut t, self.digit.carry.then(|| carry[w]), self.bits(s, input, w));
            p.iter_mut().zip(&self.pads).for_each(|(p, plane)| *p = plane[w]);
            p[known..terms].fill(0);
            shift(&mut p[..terms], choices.iter().map(|d| d[w]));
            *share = t[0] ^ p[0];
            for (out, (t, p)) in corrections.iter_mut().zip(t[1..].iter().zip(&p[1..])) {
                out[w] = t ^ p;
            }
        }
        corrections.iter().try_for_each(|plane| send_plane(&mut *s.channel, plane, n))?;
        Ok(share)
    }

    /// Receives the corrections. This party's share of the carry out of the digit.
    fn take(&self, s: &mut Session, input: &[Vec<u64>], carry: &[u64], n: usize) -> Result<Vec<u64>> {
        let corrections = planes(s, self.digit.corrections(), n)?;
        let variables = self.digit.variables();
        let mut share = self.pads[variables].clone();
        for (w, share) in share.iter_mut().enumerate() {
            let values = self.values(s, input, carry, w);
            let mut f = [0; MOST];
            f[1..].iter_mut().zip(&corrections).for_each(|(f, plane)| *f = plane[w]);
            if self.digit.carry {
                f[(1 << variables) - 1] = !0;
            }
            *share ^= value(&mut f[..1 << variables], &values[..variables]);
        }
        Ok(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit(x: usize, i: usize) -> u64 {
        ((x >> i) as u64 & 1).wrapping_neg()
    }

    /// The bits of z as values of so many variables.
    fn point(z: usize, variables: usize) -> Vec<u64> {
        (0..variables).map(|i| bit(z, i)).collect()
    }

    #[test]
    fn polynomials_at_every_point() {
        for v in 1..=5 {
            let p: Vec<u64> = (1..=1u64 << v).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
            for d in 0..1 << v {
                let mut shifted = p.clone();
                shift(&mut shifted, point(d, v).into_iter());
                for z in 0..1 << v {
                    let sum = |z: usize| (0..1 << v).filter(|s| s & z == *s).fold(0, |sum, s| sum ^ p[s]);
                    assert_eq!(value(&mut p.clone(), &point(z, v)), sum(z));
                    assert_eq!(value(&mut shifted.clone(), &point(z, v)), sum(z ^ d));
                }
            }
        }
    }

    #[test]
    fn carries_out_of_every_digit() {
        for (bits, own) in (1..=4).flat_map(|k| (0..1usize << k).map(move |own| (k, own))) {
            for g in [None, Some(0), Some(!0)] {
                let mut t = [0; MOST];
                carry_out(&mut t, g, point(own, bits).into_iter());
                let front = usize::from(g.is_some());
                let variables = bits + front;
                for z in 0..1usize << variables {
                    let carry = g.map_or(0, |g| (g as usize & 1) ^ (z & 1));
                    let sum = own + (z >> front) + carry;
                    let got = value(&mut t[..1 << variables].to_vec(), &point(z, variables));
                    assert_eq!(got, bit(sum, bits), "{bits} {own} {g:?} {z}");
                }
                assert!(g.is_none() || t[(1 << variables) - 1] == !0, "the leading coefficient is 1");
            }
        }
    }

    /// For whoever has one string of each OT, all coefficients of P around its point but the constant are independent sums of bits that it lacks.
    fn hides(digit: Digit) {
        let (variables, coefficients, terms) = (digit.variables(), digit.coefficients(), digit.terms());
        for c in 0..1usize << variables {
            let mut basis: Vec<u32> = Vec::new();
            for (i, term) in (0..variables).flat_map(|i| (0..terms).map(move |term| (i, term))) {
                let (mut p, mut strings) = ([0; MOST], [[0; 15]; 2]);
                strings[1 - (c >> i & 1)][term] = 1;
                let [zero, one] = &strings;
                add(&mut p, i, &zero[..terms], &one[..terms]);
                shift(&mut p[..1 << variables], point(c, variables).into_iter());
                assert_eq!(p[0], 0, "P(c) does not depend on what the chooser lacks");
                let row = p.iter().enumerate().fold(0, |row, (s, bit)| row | (*bit as u32) << s);
                assert_eq!(row >> coefficients, 0, "no term that is not sent");
                basis.push(row);
            }
            let mut rank = 0;
            for s in 1..coefficients {
                let Some(at) = basis.iter().position(|row| row >> s & 1 == 1) else { continue };
                let pivot = basis.swap_remove(at);
                basis.iter_mut().filter(|row| **row >> s & 1 == 1).for_each(|row| *row ^= pivot);
                rank += 1;
            }
            assert_eq!(rank, digit.corrections(), "{digit:?}");
        }
    }

    #[test]
    fn corrections_are_masked_whatever_is_chosen() {
        for (bits, carry) in (1..=LONGEST).flat_map(|bits| [(bits, false), (bits, true)]) {
            hides(Digit { bits, carry, sender: Party::One });
        }
    }

    #[test]
    fn digits_cover_all_bits() {
        for (m, longest) in (1..=63).flat_map(|m| (1..=4).map(move |k| (m, k))) {
            let all: Vec<_> = digits(m, longest).collect();
            assert_eq!(all.iter().map(|d| d.bits as usize).sum::<usize>(), m);
            assert!(all.len() % 2 == 0 || m < 3 || longest == 1, "{m} bits in {} digits", all.len());
            assert!((m.div_ceil(longest as usize)..=m.div_ceil(longest as usize) + 1).contains(&all.len()));
            assert!(all.iter().all(|d| (1..=longest).contains(&d.bits)));
        }
    }
}
