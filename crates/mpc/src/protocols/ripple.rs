//! Comparison bit by bit: 4 bits a compared bit where digits and their tree take 6.5, in a message a bit.
//!
//! Party 1 holds x, party 0 holds y; [x < y] is the carry out of y + !x. With u = !x and the carry c = c_0 ^ c_1 in front of a bit, the next one is
//! the majority yu ^ yc ^ uc = [y c_0 ^ y (u ^ c_1)] ^ [u c_1 ^ u c_0]. y c_0 and u c_1 are local. y (u ^ c_1) is a product of party 0's bit and party 1's, u c_0 one of
//! party 1's bit and party 0's: a random OT each. Who has y or u chooses, and all choices travel with the first messages; who has the carry's share corrects, one bit.
//!
//! A party's share of a product that it corrects is its pad, whatever the payload is. So party 1 has its share of a carry before party 0 has, and then the other way
//! round: two bits a message (`docs/mpc.md`, "Bit by bit").

use crate::bits::{bytes, words};
use crate::cost::CostModel;
use crate::error::Result;
use crate::kept::{exactly, Item};
use crate::simd::GROUP;
use crate::wire::{recv_plane, send_plane};
use crate::{Party, Session};

/// Bits whose corrections go in one message.
const STEP: usize = 2;

/// Correlated OTs that comparing m bits takes: party 1 corrects products with every bit of y, party 0 with all of u but the lowest.
pub(super) fn demand(m: usize, n: usize) -> [u64; 2] {
    [m.saturating_sub(1), m].map(|ots| (ots * words(n) * GROUP) as u64)
}

/// Who has its share of the result first: party 1 has the last message where there is an odd number of bits.
pub(super) fn first_to_know(m: usize) -> Party {
    match m % STEP {
        0 => Party::Zero,
        _ => Party::One,
    }
}

/// Messages of [`begin`] and [`finish`]; the message beside them has so many bytes, equal for both parties, and is read between them.
pub(super) fn cost(model: &mut CostModel, m: usize, n: usize, beside: u64) {
    let planes = |count: usize| (count * bytes(n)) as u64;
    for (sender, products) in [(Party::Zero, m.saturating_sub(1)), (Party::One, m)] {
        (0..products).for_each(|_| model.pad(Item::Bit { sender }, n));
    }
    model.depart_late(Party::Zero, planes(m));
    model.depart_late(Party::Zero, beside);
    model.arrive_late(Party::One);
    model.depart_late(Party::One, planes(m - 1 + m.min(STEP)));
    model.depart_late(Party::One, beside);
    model.arrive_late(Party::Zero);
    if beside > 0 {
        model.arrive_late(Party::One);
        model.arrive_late(Party::Zero);
    }
    for at in (STEP..=m).step_by(STEP) {
        model.message(Party::Zero, planes((m - at + 1).min(STEP)));
        model.message(Party::One, planes((m - at).min(STEP)));
    }
}

/// What the holder of a carry's share has of a product: its pad for a choice of 0, what the pad for 1 differs by, and the other party's masked choice.
struct Corrected {
    pad: Vec<u64>,
    difference: Vec<u64>,
    swap: Vec<u64>,
}

/// Both columns of products whose OT `sender` sends, from the session's OTs, which have been ensured: the sender's [`Corrected`], the other party's [`Chosen`].
pub(crate) fn pads(s: &mut Session, n: usize, sender: Party) -> Result<Vec<Vec<u64>>> {
    let [mut first, mut second] = [(); 2].map(|()| vec![0; words(n)]);
    let mut blocks = [0; GROUP];
    let delta = s.delta();
    for (a, b) in first.iter_mut().zip(&mut second) {
        if s.party == sender {
            s.draw_sent(&mut blocks)?;
            [*a] = s.send_pads.key.planes::<1>(&blocks, 0);
            let [one] = s.send_pads.key.planes::<1>(&blocks, delta);
            *b = *a ^ one;
        } else {
            s.draw_received(&mut blocks)?;
            *a = s.recv_pads.key.choices(&blocks);
            [*b] = s.recv_pads.key.planes(&blocks, 0);
        }
    }
    Ok(vec![first, second])
}

impl Corrected {
    fn draw(s: &mut Session, n: usize) -> Result<Self> {
        let [pad, difference] = exactly(s.pads(Item::Bit { sender: s.party }, n)?)?;
        Ok(Self { pad, difference, swap: vec![0; words(n)] })
    }

    /// The correction for a payload.
    fn send(&self, s: &mut Session, payload: impl Iterator<Item = u64>, n: usize) -> Result<()> {
        let plane: Vec<u64> = self.difference.iter().zip(payload).map(|(d, f)| d ^ f).collect();
        send_plane(&mut *s.channel, &plane, n)
    }

    /// This party's share of the product, in word w.
    fn share(&self, w: usize) -> u64 {
        self.pad[w] ^ (self.swap[w] & self.difference[w])
    }
}

/// What the holder of a bit has of a product: its random choice, its pad, and the other party's correction.
struct Chosen {
    choice: Vec<u64>,
    pad: Vec<u64>,
    correction: Vec<u64>,
}

impl Chosen {
    fn draw(s: &mut Session, n: usize) -> Result<Self> {
        let [choice, pad] = exactly(s.pads(Item::Bit { sender: s.party.other() }, n)?)?;
        Ok(Self { choice, pad, correction: vec![0; words(n)] })
    }

    /// The masked choice of a bit.
    fn send(&self, s: &mut Session, bit: &[u64], n: usize) -> Result<()> {
        let plane: Vec<u64> = self.choice.iter().zip(bit).map(|(c, b)| c ^ b).collect();
        send_plane(&mut *s.channel, &plane, n)
    }

    /// This party's share of the product of its bit, in word w.
    fn share(&self, bit: &[u64], w: usize) -> u64 {
        self.pad[w] ^ (bit[w] & self.correction[w])
    }
}

/// A comparison whose first messages have been sent, and of party 0 read.
pub(super) struct Begun {
    /// Products with this party's bits, and with the other one's: of bit i at i, and at i - 1 those of u, whose lowest meets no carry.
    chosen: Vec<Chosen>,
    corrected: Vec<Corrected>,
}

/// The first messages; `send` runs behind a party's own. The pads have been provided: [`demand`].
pub(super) fn begin(
    s: &mut Session,
    input: &[Vec<u64>],
    n: usize,
    send: &mut dyn FnMut(&mut Session) -> Result<()>,
) -> Result<Begun> {
    let m = input.len();
    if s.party == Party::Zero {
        let mut chosen = Vec::with_capacity(m);
        for y in input {
            let product = Chosen::draw(s, n)?;
            product.send(s, y, n)?;
            s.channel.flush()?;
            chosen.push(product);
        }
        // Drawn in front of what goes beside, as party 1 draws them.
        let mut corrected = (1..m).map(|_| Corrected::draw(s, n)).collect::<Result<Vec<_>>>()?;
        send(s)?;
        s.channel.flush()?;
        for product in &mut corrected {
            product.swap = recv_plane(&mut *s.channel, n)?;
        }
        for product in chosen.iter_mut().take(STEP) {
            product.correction = recv_plane(&mut *s.channel, n)?;
        }
        return Ok(Begun { chosen, corrected });
    }
    let mut corrected = (0..m).map(|_| Corrected::draw(s, n)).collect::<Result<Vec<_>>>()?;
    let chosen = (1..m).map(|_| Chosen::draw(s, n)).collect::<Result<Vec<_>>>()?;
    for product in &mut corrected {
        product.swap = recv_plane(&mut *s.channel, n)?;
    }
    for (product, x) in chosen.iter().zip(&input[1..]) {
        let u: Vec<u64> = x.iter().map(|x| !x).collect();
        product.send(s, &u, n)?;
    }
    for i in 0..m.min(STEP) {
        // Where the carry in front of bit 1 is what the lowest bits' product is.
        let carry = |w: usize| if i == 0 { 0 } else { corrected[0].share(w) };
        let payload = input[i].iter().enumerate().map(|(w, x)| !x ^ carry(w));
        corrected[i].send(s, payload, n)?;
    }
    send(s)?;
    s.channel.flush()?;
    Ok(Begun { chosen, corrected })
}

/// This party's share of `[x < y]`.
pub(super) fn finish(s: &mut Session, begun: Begun, input: &[Vec<u64>], n: usize) -> Result<Vec<u64>> {
    match s.party {
        Party::Zero => finish_zero(s, begun, input, n),
        Party::One => finish_one(s, begun, input, n),
    }
}

/// Party 0 corrects products with the carries in front of bits 1 and 2, then 3 and 4, each time when the corrections of the two bits before have come.
fn finish_zero(s: &mut Session, begun: Begun, y: &[Vec<u64>], n: usize) -> Result<Vec<u64>> {
    let Begun { mut chosen, corrected } = begun;
    let mut carry = vec![0; words(n)];
    for i in 0..y.len() {
        if i > 0 {
            corrected[i - 1].send(s, carry.iter().copied(), n)?;
        }
        if i >= STEP && i % STEP == 0 {
            for product in chosen[i..].iter_mut().take(STEP) {
                product.correction = recv_plane(&mut *s.channel, n)?;
            }
        }
        for (w, c) in carry.iter_mut().enumerate() {
            let of_u = if i > 0 { corrected[i - 1].share(w) } else { 0 };
            *c = (y[i][w] & *c) ^ chosen[i].share(&y[i], w) ^ of_u;
        }
    }
    Ok(carry)
}

/// Party 1 corrects those of bits 2 and 3, then 4 and 5.
fn finish_one(s: &mut Session, begun: Begun, x: &[Vec<u64>], n: usize) -> Result<Vec<u64>> {
    let Begun { mut chosen, corrected } = begun;
    let mut carry = vec![0; words(n)];
    for (i, x) in x.iter().enumerate() {
        let u: Vec<u64> = x.iter().map(|x| !x).collect();
        if i >= STEP {
            corrected[i].send(s, u.iter().zip(&carry).map(|(u, c)| u ^ c), n)?;
        }
        if i % STEP == 1 {
            for product in chosen[i - 1..].iter_mut().take(STEP) {
                product.correction = recv_plane(&mut *s.channel, n)?;
            }
        }
        for (w, c) in carry.iter_mut().enumerate() {
            let of_u = if i > 0 { chosen[i - 1].share(&u, w) } else { 0 };
            *c = (u[w] & *c) ^ corrected[i].share(w) ^ of_u;
        }
    }
    Ok(carry)
}
