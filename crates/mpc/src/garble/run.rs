//! One circuit on many inputs, between two parties.

use super::gates::{and_gates, total, Circuit};
use super::parties::{Evaluator, Garbler, Labels, LANES};
use super::BYTES_PER_AND;
use crate::bits::{bit, bytes, words};
use crate::block::{Block, Prg};
use crate::cost::CostModel;
use crate::error::{check_len, Result};
use crate::ot::{recv_blocks, send_blocks};
use crate::protocols::product::chunks;
use crate::select::mask;
use crate::wire::{recv_plane, send_plane};
use crate::{uses, Party, Session};

/// What becomes of the outputs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outputs {
    /// XOR shares.
    Shared,
    /// The evaluator learns them, the garbler gets zeros.
    Open,
}

/// The circuit on n instances. `mine` holds this party's words, one vector of n values each, in the circuit's order.
/// Returns this party's part of every output word. Two messages for every `Session::chunk` instances.
pub(super) fn execute<C: Circuit>(
    s: &mut Session,
    circuit: &C,
    garbler: Party,
    mine: &[Vec<u64>],
    n: usize,
    outputs: Outputs,
) -> Result<Vec<Vec<u64>>> {
    for w in mine {
        check_len("word of a garbled circuit", n, w.len())?;
    }
    let mut out: Vec<Vec<u64>> = circuit.outputs().iter().map(|_| Vec::with_capacity(n)).collect();
    let ands = and_gates(circuit);
    for (at, n) in chunks(n, s.chunk()) {
        let pass = Pass { circuit, ands, mine, at, n, outputs };
        let mut demand = [0; 2];
        demand[garbler.index()] = (n * total(&circuit.evaluator())) as u64;
        s.ensure(demand)?;
        if s.party() == garbler {
            pass.garble(s, &mut out)?;
        } else {
            pass.evaluate(s, &mut out)?;
        }
    }
    Ok(out)
}

/// Cost of [`execute`].
pub(super) fn cost<C: Circuit>(m: &mut CostModel, circuit: &C, garbler: Party, n: usize, outputs: Outputs) {
    let ands = and_gates(circuit);
    let (choices, results) = (total(&circuit.evaluator()), total(&circuit.outputs()));
    for (_, n) in chunks(n, m.chunk) {
        let mut demand = [0; 2];
        demand[garbler.index()] = (n * choices) as u64;
        m.take(demand);
        m.message(garbler.other(), bytes(n * choices) as u64);
        let opened = if outputs == Outputs::Open { bytes(n * results) as u64 } else { 0 };
        m.message(garbler, 16 + ands * BYTES_PER_AND * n as u64 + opened);
        m.garble(ands * n as u64);
    }
}

/// `mine.len()` instances from `at` on, of a longer run.
struct Pass<'a, C> {
    circuit: &'a C,
    ands: u64,
    mine: &'a [Vec<u64>],
    at: usize,
    n: usize,
    outputs: Outputs,
}

/// Labels as words of wires.
fn into_words(labels: Vec<Labels>, widths: &[u32]) -> Vec<Vec<Labels>> {
    let mut labels = labels.into_iter();
    widths.iter().map(|&w| labels.by_ref().take(w as usize).collect()).collect()
}

impl<C: Circuit> Pass<'_, C> {
    /// This party's input bits of one group of lanes: for every bit of every word, a function of the lane.
    fn bits<'s>(
        &'s self,
        widths: &'s [u32],
        first: usize,
    ) -> impl Iterator<Item = impl Fn(usize) -> u64 + 's> + 's {
        let word = move |w: usize, j: u32| move |lane: usize| (self.mine[w][self.at + first + lane] >> j) & 1;
        widths.iter().enumerate().flat_map(move |(w, &width)| (0..width).map(move |j| word(w, j)))
    }

    fn groups(&self) -> impl Iterator<Item = (usize, usize)> {
        chunks(self.n, LANES)
    }

    fn garble(&self, s: &mut Session, out: &mut [Vec<u64>]) -> Result<()> {
        let (own, theirs) = (self.circuit.garbler(), self.circuit.evaluator());
        let choices = total(&theirs);
        let (delta, seed) = (s.delta(), s.rng.block());
        let d = recv_plane(&mut *s.channel, self.n * choices)?;
        send_blocks(&mut *s.channel, &[seed])?;
        let mut active = Prg::new(seed).shared_as(uses::GARBLER_LABELS);
        let mut colours = vec![0u64; words(self.n * total(&self.circuit.outputs()))];
        let (mut used, mut written) = (0, 0);
        let mut q = vec![0; LANES * choices];
        let mut table = Vec::with_capacity((self.ands * BYTES_PER_AND) as usize * LANES);
        for (first, lanes) in self.groups() {
            let q = &mut q[..lanes * choices];
            s.draw_sent(q)?;
            let mut theirs_labels = vec![[0; LANES]; choices];
            for (k, (wire, q)) in theirs_labels.iter_mut().zip(q.chunks(lanes)).enumerate() {
                for (lane, (label, &q)) in wire.iter_mut().zip(q).enumerate() {
                    *label = q ^ (delta & Block::from(bit(&d, used + k * lanes + lane)).wrapping_neg());
                }
            }
            used += lanes * choices;
            let mut own_labels = Vec::with_capacity(total(&own));
            for value in self.bits(&own, first) {
                let mut wire = [0; LANES];
                active.blocks(&mut wire[..lanes]);
                for (lane, label) in wire[..lanes].iter_mut().enumerate() {
                    *label ^= delta & mask(value(lane));
                }
                own_labels.push(wire);
            }
            table.clear();
            s.gates.renew();
            let mut g = Garbler { key: &s.gates.key, delta, tweak: s.gates.tweak, lanes, table };
            let results =
                self.circuit.run(&mut g, &into_words(own_labels, &own), &into_words(theirs_labels, &theirs));
            let next = g.tweak;
            table = g.table;
            s.gates.advance(uses::GARBLED_TWEAK, next);
            s.channel.send(&table)?;
            self.collect(&results, lanes, &mut colours, &mut written, out);
        }
        if self.outputs == Outputs::Open {
            send_plane(&mut *s.channel, &colours, written)?;
            out.iter_mut().for_each(|o| o[self.at..].fill(0));
        }
        s.channel.flush()
    }

    fn evaluate(&self, s: &mut Session, out: &mut [Vec<u64>]) -> Result<()> {
        let (theirs, own) = (self.circuit.garbler(), self.circuit.evaluator());
        let choices = total(&own);
        let mut labels = vec![0; self.n * choices];
        let mut d = vec![0u64; words(labels.len())];
        let mut used = 0;
        for (first, lanes) in self.groups() {
            let group = &mut labels[used..used + lanes * choices];
            s.draw_received(group)?;
            for (k, value) in self.bits(&own, first).enumerate() {
                for lane in 0..lanes {
                    let i = used + k * lanes + lane;
                    let choice = (group[k * lanes + lane] & 1) as u64;
                    d[i / 64] |= (choice ^ value(lane)) << (i % 64);
                }
            }
            used += lanes * choices;
        }
        send_plane(&mut *s.channel, &d, labels.len())?;
        s.channel.flush()?;
        let mut seed = [0];
        recv_blocks(&mut *s.channel, &mut seed)?;
        let mut active = Prg::new(seed[0]).shared_as(uses::EVALUATOR_LABELS);
        let mut colours = vec![0u64; words(self.n * total(&self.circuit.outputs()))];
        let (mut used, mut written) = (0, 0);
        let mut table = vec![0; (self.ands * BYTES_PER_AND) as usize * LANES];
        for (first, lanes) in self.groups() {
            debug_assert_eq!(first * choices, used);
            let spread = |labels: &[Block]| {
                let mut wire = [0; LANES];
                wire[..lanes].copy_from_slice(labels);
                wire
            };
            let own_labels = labels[used..used + lanes * choices].chunks(lanes).map(spread).collect();
            used += lanes * choices;
            let mut their_labels = vec![[0; LANES]; total(&theirs)];
            their_labels.iter_mut().for_each(|wire| active.blocks(&mut wire[..lanes]));
            let table = &mut table[..(self.ands * BYTES_PER_AND) as usize * lanes];
            s.channel.recv(table)?;
            let rows = table.chunks_exact(BYTES_PER_AND as usize);
            s.gates.renew();
            let mut e = Evaluator { key: &s.gates.key, tweak: s.gates.tweak, lanes, table: rows };
            let results =
                self.circuit.run(&mut e, &into_words(their_labels, &theirs), &into_words(own_labels, &own));
            let next = e.tweak;
            s.gates.advance(uses::EVALUATED_TWEAK, next);
            self.collect(&results, lanes, &mut colours, &mut written, out);
        }
        if self.outputs == Outputs::Open {
            let zeros = recv_plane(&mut *s.channel, written)?;
            self.decode(&zeros, out);
        }
        Ok(())
    }

    /// Appends the colours of a group's outputs, as words to `out` and as one plane (bit by bit, lane by lane).
    fn collect(
        &self,
        results: &[Vec<Labels>],
        lanes: usize,
        plane: &mut [u64],
        written: &mut usize,
        out: &mut [Vec<u64>],
    ) {
        for (word, out) in results.iter().zip(out) {
            let start = out.len();
            out.resize(start + lanes, 0);
            for (j, wire) in word.iter().enumerate() {
                for (lane, label) in wire[..lanes].iter().enumerate() {
                    let colour = (label & 1) as u64;
                    out[start + lane] |= colour << j;
                    plane[*written / 64] |= colour << (*written % 64);
                    *written += 1;
                }
            }
        }
    }

    /// XORs the colours of the zero labels into this pass's outputs.
    fn decode(&self, zeros: &[u64], out: &mut [Vec<u64>]) {
        let widths = self.circuit.outputs();
        let mut at = 0;
        for (first, lanes) in self.groups() {
            for (&width, out) in widths.iter().zip(out.iter_mut()) {
                for j in 0..width {
                    for lane in 0..lanes {
                        out[self.at + first + lane] ^= bit(zeros, at) << j;
                        at += 1;
                    }
                }
            }
        }
    }
}
