//! Pads that are made before their inputs and kept (`docs/mpc.md`, "Kept pads").
//!
//! Comparisons, selections and products of a bit draw random OTs and make the same of them whatever their inputs are: columns of random bits and words.
//! [`Item`] names what is drawn together. A protocol asks [`Session::pads`] for columns: they come from the session's OTs, or from pads that both
//! parties made before ([`Session::make_pads`]) and have put into this session ([`Session::supply`]). Which of both it is changes no message but those of the
//! extension, which kept pads need not.
//!
//! Kept are columns and not blocks: of a digit of two bits seven bits a value at the party that has all pads and four at the other, where two blocks
//! take 256. Every item is drawn from its own front to its end, 64 values at a time, and never twice.

use std::collections::BTreeMap;

use hushnet_ring::{ledger, pack, wipe};
use zeroize::Zeroizing;

use crate::bits::words;
use crate::cost::CostModel;
use crate::error::{check_len, MpcError, Result};
use crate::protocols::product::chunks;
use crate::protocols::{leaf, product, ripple, selection, tree};
use crate::simd::GROUP;
use crate::{uses, Party, Ring, Session};

/// Groups of 64 values that are made together.
const STEP: usize = 16;

/// What a protocol draws for a value, all of it together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Item {
    /// A digit of one bit of a comparison.
    One,
    /// A digit of two bits.
    Two,
    /// A digit that a comparison's carry goes through.
    Digit(ripple::Digit),
    /// A node of a comparison's tree: one product, or, of `both` lt and eq, two.
    Node { both: bool },
    /// A selection of one payload, or (no zero) of two, of so many bits, in both directions.
    Selection([u32; 2]),
    /// The wrap-around of a result, or of two of which one will count: numbers of so many bits.
    Wrap { results: usize, bits: u32 },
    /// Products of a bit and one number, or (no zero) two, of so many bits, which `holder` has.
    Product { holder: Party, bits: [u32; 2] },
}

/// A column of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    /// A bit a value, 64 to a word.
    Plane,
    /// A number of so many bits a value, one to a word.
    Numbers(u32),
}

impl Column {
    /// Bits a value.
    fn bits(self) -> u32 {
        match self {
            Self::Plane => 1,
            Self::Numbers(bits) => bits,
        }
    }

    /// Bytes of so many groups.
    fn bytes(self, groups: usize) -> usize {
        8 * self.bits() as usize * groups
    }
}

/// The payloads' widths, as items have them.
pub(crate) fn widths(rings: &[Ring]) -> [u32; 2] {
    [0, 1].map(|k| rings.get(k).map_or(0, |r| r.bits()))
}

fn numbers(bits: [u32; 2]) -> impl Iterator<Item = Column> {
    bits.into_iter().filter(|b| *b > 0).map(Column::Numbers)
}

impl Item {
    /// What a party has of it.
    pub(crate) fn columns(self, party: Party) -> Vec<Column> {
        let twice = |c: Column| [c, c];
        match self {
            Self::One => vec![Column::Plane; 2],
            Self::Digit(digit) => vec![Column::Plane; digit.planes(party)],
            Self::Two => vec![Column::Plane; if party == leaf::SENDER { 7 } else { 4 }],
            Self::Node { both } => vec![Column::Plane; if both { 5 } else { 3 }],
            Self::Selection(bits) => {
                [Column::Plane].into_iter().chain(numbers(bits).flat_map(twice)).collect()
            }
            Self::Wrap { results, bits } => {
                let first = if party == selection::CHOOSER { Column::Plane } else { Column::Numbers(bits) };
                [first, Column::Numbers(bits)].repeat(results)
            }
            Self::Product { holder, bits } if holder == party => numbers(bits).flat_map(twice).collect(),
            Self::Product { bits, .. } => [Column::Plane].into_iter().chain(numbers(bits)).collect(),
        }
    }

    /// Correlated OTs that `n` values draw, `[d]` with party d as their sender.
    fn ots(self, n: usize) -> [u64; 2] {
        let (n, whole) = (n as u64, (words(n) * GROUP) as u64);
        match self {
            Self::One => [0, whole],
            Self::Digit(digit) => digit.ots(n as usize),
            Self::Two => [0, 2 * whole],
            Self::Node { .. } => [whole; 2],
            Self::Selection(_) => [n; 2],
            Self::Wrap { results, .. } => [0, results as u64 * n],
            Self::Product { holder: Party::Zero, .. } => [n, 0],
            Self::Product { holder: Party::One, .. } => [0, n],
        }
    }

    /// The columns of `n` values from the session's OTs, which have been ensured.
    fn make(self, s: &mut Session, n: usize) -> Result<Vec<Vec<u64>>> {
        match self {
            Self::One => leaf::one_bit(s, n),
            Self::Two => leaf::two_bits(s, n),
            Self::Digit(digit) => ripple::pads(s, n, digit),
            Self::Node { both } => tree::node_pads(s, n, both),
            Self::Selection(bits) => selection::pads(s, n, bits),
            Self::Wrap { results, .. } => selection::wrap_pads(s, n, results),
            Self::Product { holder, bits } => product::pads(s, n, holder, bits),
        }
    }
}

/// As many columns as an item has.
pub(crate) fn exactly<const N: usize>(columns: Vec<Vec<u64>>) -> Result<[Vec<u64>; N]> {
    let got = columns.len();
    columns.try_into().map_err(|_| MpcError::Length { what: "columns of pads", expected: N, got })
}

/// The pads that protocols need: how many groups of 64 values of each item. What two cost models count adds up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PadDemand(BTreeMap<Item, usize>);

impl PadDemand {
    pub(crate) fn add(&mut self, item: Item, n: usize) {
        if n > 0 {
            let groups = self.0.entry(item).or_default();
            *groups = groups.saturating_add(words(n));
        }
    }

    /// Bytes that a party keeps of them.
    #[must_use]
    pub fn bytes(&self, party: Party) -> u64 {
        let of = |(item, &groups): (&Item, &usize)| -> u64 {
            let bits: u64 = item.columns(party).iter().map(|c| u64::from(c.bits())).sum();
            bits.saturating_mul(8).saturating_mul(groups as u64)
        };
        self.0.iter().map(of).fold(0, u64::saturating_add)
    }
}

/// Traffic of [`Session::make_pads`], both directions.
pub fn pads_cost(m: &mut CostModel, demand: &PadDemand) {
    for (item, &groups) in &demand.0 {
        for (_, groups) in chunks(groups, m.chunk / GROUP) {
            m.take(item.ots(groups * GROUP));
        }
    }
}

/// One party's half of pads that were made for later, or none. No `Debug`: they are secret. Wiped when dropped.
#[derive(Default)]
pub struct KeptPads(Vec<u8>);

impl Drop for KeptPads {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl KeptPads {
    /// A party's half of one unit, from the bytes that [`Self::bytes`] gave; [`Session::supply`] refuses others than its demand has.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// What is kept of one unit: as many bytes as [`PadDemand::bytes`] says for this party.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Where an item is in a supply.
struct Place {
    /// Its first byte in each unit.
    begin: usize,
    /// Groups of each unit.
    groups: usize,
    /// Groups that were drawn, of all units one after the other.
    drawn: usize,
}

/// Pads that protocols of a session draw from.
pub(crate) struct Supply {
    party: Party,
    places: BTreeMap<Item, Place>,
    units: Vec<KeptPads>,
}

impl Supply {
    fn new(party: Party, demand: &PadDemand, units: Vec<KeptPads>) -> Result<Self> {
        for unit in &units {
            check_len("bytes of kept pads", demand.bytes(party) as usize, unit.0.len())?;
        }
        let mut at = 0;
        let places = demand.0.iter().map(|(&item, &groups)| {
            let begin = at;
            at += item.columns(party).iter().map(|c| c.bytes(groups)).sum::<usize>();
            (item, Place { begin, groups, drawn: 0 })
        });
        Ok(Self { party, places: places.collect(), units })
    }

    /// The next columns of an item, for `n` values.
    fn take(&mut self, item: Item, n: usize) -> Result<Vec<Vec<u64>>> {
        if n == 0 {
            return Ok(vec![Vec::new(); item.columns(self.party).len()]);
        }
        let needed = words(n);
        let place = self.places.get_mut(&item);
        let left = place.as_ref().map_or(0, |p| p.groups * self.units.len() - p.drawn);
        let Some(place) = place.filter(|_| needed <= left) else {
            return Err(MpcError::Exhausted { missing: (GROUP * (needed - left)) as u64 });
        };
        let (begin, groups, first) = (place.begin, place.groups, place.drawn);
        place.drawn += needed;
        let columns = item.columns(self.party);
        let room = |c: &Column| match c {
            Column::Plane => vec![0; needed],
            Column::Numbers(_) => vec![0; needed * GROUP],
        };
        let mut out: Vec<Vec<u64>> = columns.iter().map(room).collect();
        let mut done = 0;
        while done < needed {
            let (unit, from) = ((first + done) / groups, (first + done) % groups);
            let these = (needed - done).min(groups - from);
            let mut at = begin;
            for (column, out) in columns.iter().zip(&mut out) {
                let bytes = &mut self.units[unit].0[at + column.bytes(from)..][..column.bytes(these)];
                record(self.party, bytes);
                match column {
                    Column::Plane => read(bytes, &mut out[done..done + these]),
                    Column::Numbers(bits) => {
                        let out = &mut out[done * GROUP..(done + these) * GROUP];
                        crate::bits::unpack(bytes, *bits, out)?;
                    }
                }
                at += column.bytes(groups);
            }
            done += these;
        }
        out.iter_mut().zip(&columns).filter(|(_, c)| **c != Column::Plane).for_each(|(o, _)| o.truncate(n));
        Ok(out)
    }
}

fn read(bytes: &[u8], out: &mut [u64]) {
    out.iter_mut().zip(bytes.as_chunks::<8>().0).for_each(|(w, b)| *w = u64::from_le_bytes(*b));
}

/// Tells the ledger of tests that pads are used: all are words of 64 random bits.
fn record(party: Party, bytes: &mut [u8]) {
    if ledger::ON {
        let mut all = vec![0; bytes.len() / 8];
        read(bytes, &mut all);
        ledger::words(uses::KEPT_PADS[party.index()], &mut all);
        bytes.as_chunks_mut::<8>().0.iter_mut().zip(&all).for_each(|(b, w)| *b = w.to_le_bytes());
    }
}

impl Session {
    /// Makes pads for later, from this session's OTs. Both parties call it, with the same demand.
    ///
    /// # Errors
    /// Channel errors.
    pub fn make_pads(&mut self, demand: &PadDemand) -> Result<KeptPads> {
        let mut kept = KeptPads(vec![0; demand.bytes(self.party) as usize]);
        let mut begin = 0;
        for (&item, &groups) in &demand.0 {
            let columns = item.columns(self.party);
            for (first, groups_here) in chunks(groups, self.chunk() / GROUP) {
                self.ensure(item.ots(groups_here * GROUP))?;
                for (next, these) in chunks(groups_here, STEP) {
                    let made = Zeroizing::new(item.make(self, these * GROUP)?);
                    let mut at = begin;
                    for (column, words) in columns.iter().zip(made.iter()) {
                        let out = &mut kept.0[at + column.bytes(first + next)..][..column.bytes(these)];
                        let bits = if *column == Column::Plane { 64 } else { column.bits() };
                        pack::pack(words, bits, out).map_err(|e| crate::bits::refused(e, bits))?;
                        at += column.bytes(groups);
                    }
                }
            }
            begin += columns.iter().map(|c| c.bytes(groups)).sum::<usize>();
        }
        Ok(kept)
    }

    /// From now on protocols draw from these pads, which were made for `demand` each, until [`Self::withdraw`]. Both parties call it, with as many units of the
    /// same demand in the same order.
    ///
    /// # Errors
    /// `Length` when these are other bytes.
    pub fn supply(&mut self, demand: &PadDemand, units: Vec<KeptPads>) -> Result<()> {
        self.supply = Some(Supply::new(self.party, demand, units)?);
        Ok(())
    }

    /// Protocols draw from the session's OTs again. What was not drawn of a supply is wiped.
    pub fn withdraw(&mut self) {
        self.supply = None;
    }

    /// Ensures OTs for [`Self::pads`], where they come from OTs.
    pub(crate) fn provide(&mut self, n: [u64; 2]) -> Result<()> {
        match self.supply {
            Some(_) => Ok(()),
            None => self.ensure(n),
        }
    }

    /// The next columns of an item for `n` values: kept ones, or made of OTs, which have been provided.
    pub(crate) fn pads(&mut self, item: Item, n: usize) -> Result<Vec<Vec<u64>>> {
        match &mut self.supply {
            Some(supply) => supply.take(item, n),
            None => item.make(self, n),
        }
    }
}
