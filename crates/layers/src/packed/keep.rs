//! Which encoded weights a server keeps for all images, and which it encodes again for every one (`docs/packed.md`, "Memory").

use super::circuit::{LinearOp, Op};
use super::compile::Circuit;
use super::cost::LevelCost;

/// Encoded weights that are kept, by inner sum of a result's ciphertext; those of other sums are encoded when the sum is computed, one sum after the
/// other, so that no two of them are there at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// By operation (empty for those that are not linear), ciphertext of the result and inner sum.
    sums: Vec<Vec<Vec<bool>>>,
    /// Bytes of what is kept.
    pub(super) bytes: u64,
    /// Most bytes that what is encoded again takes at once, numbers before they are encoded included.
    pub(super) again_bytes: u64,
    /// Plaintexts that are encoded again for every image.
    pub(super) again: usize,
    /// Microseconds that this takes.
    pub(super) micros: f64,
}

/// What a plaintext of a linear operation takes.
#[derive(Clone, Copy)]
struct Price {
    op: usize,
    /// Encoded.
    bytes: u64,
    /// As the numbers of its slots.
    numbers: u64,
    micros: f64,
}

impl Kept {
    /// As many as there is room for, those first that save the most time a byte.
    pub(super) fn choose(circuit: &Circuit) -> Self {
        let ops = &circuit.program.ops;
        let none = ops.iter().map(|op| match op {
            Op::Linear(l) => l.rotations.outputs.iter().map(|o| vec![false; o.len()]).collect(),
            _ => Vec::new(),
        });
        let mut kept = Self { sums: none.collect(), ..Self::default() };
        let linear = ops.iter().enumerate().filter_map(|(at, op)| match op {
            Op::Linear(l) => Some((circuit.price(at, l), l.as_ref())),
            _ => None,
        });
        let mut order: Vec<(Price, &LinearOp)> = linear.collect();
        order.sort_by(|(a, _), (b, _)| {
            let each = |p: &Price| p.micros / p.bytes as f64;
            each(b).total_cmp(&each(a)).then(a.op.cmp(&b.op))
        });
        let mut room = circuit.options.memory_bytes.saturating_sub(circuit.other_bytes());
        if circuit.plaintext_bytes() > room {
            // What any of them takes while it is encoded.
            let most = order.iter().map(|(p, l)| kept.at_once(*p, l)).max().unwrap_or(0);
            room = room.saturating_sub(most);
        }
        for (price, l) in &order {
            for (ct, sums) in l.rotations.outputs.iter().enumerate() {
                for (sum, s) in sums.iter().enumerate() {
                    let terms = s.terms.len();
                    let bytes = price.bytes * terms as u64;
                    if bytes <= room {
                        room -= bytes;
                        kept.bytes += bytes;
                        kept.sums[price.op][ct][sum] = true;
                    } else {
                        kept.again += terms;
                        kept.micros += price.micros * terms as f64;
                    }
                }
            }
        }
        kept.again_bytes = order.iter().map(|(p, l)| kept.at_once(*p, l)).max().unwrap_or(0);
        kept
    }

    /// Bytes that an operation's plaintexts take at once when they are encoded again: the numbers of a ciphertext's sums, and the encoded ones of
    /// one sum.
    fn at_once(&self, price: Price, l: &LinearOp) -> u64 {
        let of = |(ct, sums): (usize, &Vec<super::diagonals::Sum>)| {
            let again = self.again(price.op, ct).into_iter().map(|k| sums[k].terms.len() as u64);
            let (all, most) = again.fold((0, 0), |(all, most), terms| (all + terms, most.max(terms)));
            all * price.numbers + most * price.bytes
        };
        l.rotations.outputs.iter().enumerate().map(of).max().unwrap_or(0)
    }

    /// The inner sums of a result's ciphertext whose plaintexts are kept.
    pub(super) fn kept(&self, op: usize, ct: usize) -> Vec<usize> {
        self.of(op, ct, true)
    }

    /// The others.
    pub(super) fn again(&self, op: usize, ct: usize) -> Vec<usize> {
        self.of(op, ct, false)
    }

    fn of(&self, op: usize, ct: usize, kept: bool) -> Vec<usize> {
        (0..self.sums[op][ct].len()).filter(|k| self.sums[op][ct][*k] == kept).collect()
    }

    /// Whether all plaintexts of an operation are kept.
    pub(super) fn whole(&self, op: usize) -> bool {
        self.sums[op].iter().flatten().all(|kept| *kept)
    }
}

impl Circuit {
    fn price(&self, op: usize, l: &LinearOp) -> Price {
        let at = LevelCost {
            n: self.params.ring_degree(),
            level: l.level * self.program.width,
            special: self.params.special_primes().len(),
            digit: self.params.special_primes().len(),
        };
        Price {
            op,
            bytes: self.bytes_of_rows(l, 1),
            numbers: 8 * l.period() as u64,
            micros: at.encoding(self.params.repeated_words(l.period())),
        }
    }

    /// Bytes of the encoded weights that are kept between images.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept.bytes
    }

    /// The number of plaintexts that are encoded again for every image.
    #[must_use]
    pub fn encodings(&self) -> usize {
        self.kept.again
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{options, Builder};
    use super::super::{PackedOptions, Packing};
    use super::*;
    use crate::batch::Conv2d;

    fn layers() -> super::super::Network {
        let conv = |channels: usize, size: usize, out: usize| Conv2d {
            input: [channels, size, size],
            output: [out, size, size],
            kernel: [3, 3],
            stride: [1, 1],
            pads: [1; 4],
            dilation: [1; 2],
            groups: 1,
        };
        let mut b = Builder::new(&[2, 8, 8], 7);
        let x = b.conv(0, conv(2, 8, 3));
        let x = b.conv(x, conv(3, 8, 4));
        b.dense(x, 5);
        b.network()
    }

    /// What is encoded again has no room beside what saves as much time a byte or more.
    #[test]
    fn what_saves_most_time_a_byte_is_kept_first() {
        let network = layers();
        let with = |memory_bytes| PackedOptions { memory_bytes, ..options(512, Packing::Auto) };
        let all = Circuit::compile(&network, &with(u64::MAX)).unwrap();
        // Most that any plaintexts take while they are encoded.
        let reserved = Circuit::compile(&network, &with(0)).unwrap().kept.again_bytes;
        let mut mixed = 0;
        for k in 1..10 {
            let limit = all.other_bytes() + all.plaintext_bytes() * k / 10;
            let circuit = Circuit::compile(&network, &with(limit)).unwrap();
            let room = limit.saturating_sub(circuit.other_bytes() + reserved);
            // Time a byte, bytes and whether it is kept, of every inner sum.
            let mut found = Vec::new();
            for (at, op) in circuit.program.ops.iter().enumerate() {
                let Op::Linear(l) = op else { continue };
                let price = circuit.price(at, l);
                let each = price.micros / price.bytes as f64;
                for (ct, sums) in l.rotations.outputs.iter().enumerate() {
                    let kept = circuit.kept.kept(at, ct);
                    let sums = sums.iter().enumerate();
                    found.extend(
                        sums.map(|(k, s)| (each, price.bytes * s.terms.len() as u64, kept.contains(&k))),
                    );
                }
            }
            let better = |each: f64| found.iter().filter(|s| s.2 && s.0 >= each).map(|s| s.1).sum::<u64>();
            for (each, bytes, _) in found.iter().filter(|s| !s.2) {
                assert!(bytes + better(*each) > room, "{each} {bytes}: {} of {room}", better(*each));
            }
            // Something is kept, and something that saves less is not.
            mixed += usize::from(found.iter().any(|s| s.2 && found.iter().any(|t| !t.2 && t.0 < s.0)));
        }
        assert!(mixed > 4, "{mixed}");
    }
}
