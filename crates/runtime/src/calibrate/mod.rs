//! What one unit of each kind of work costs on this machine: one row, one function each (`hushnet measure-machine`).
//!
//! A cost is in seconds of processor time. To add one: a function, and a row in [`UNITS`]. What protocols of two parties cost follows from
//! samples of them ([`two_party`]), to which the planner fits its unit costs.

mod clock;
mod few_images;
pub mod two_party;

use crate::compute::Compute;
use crate::error::Error;
use clock::thread_seconds as clock;
use hushnet_layers::batch::{BatchLinear, Conv2d, Geometry, Tile, Tiling};
use hushnet_ring::{pack, simd, AlignedWords, Prg};
use hushnet_rlwe::{batch_server, BatchContext, BatchStageSpec, ClientKey, MaskId, MaskSum, Masks};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Ring degree that words are measured at.
const N: usize = 2048;

/// A kind of work whose cost on this machine is measured.
pub struct Unit {
    /// Name in files of unit costs.
    pub name: &'static str,
    /// What one unit is.
    pub about: &'static str,
    measure: fn(Duration) -> Result<f64, Error>,
}

/// Everything that can be measured.
pub const UNITS: &[Unit] = &[
    Unit {
        name: "word_product",
        about: "one ciphertext word times one weight, in a layer with many inputs and outputs",
        measure: word_product,
    },
    Unit { name: "narrow_product", about: "the same in a depthwise convolution", measure: narrow_product },
    Unit {
        name: "encrypt_word",
        about: "one word of an upload, with a transformed mask, packed",
        measure: encrypt_word,
    },
    Unit { name: "decrypt_word", about: "one word of a download, unpacked", measure: decrypt_word },
    Unit { name: "mask_word", about: "one word of a mask made from the seed", measure: mask_word },
    Unit { name: "transform_word", about: "one word of a mask transformed", measure: transform_word },
    Unit {
        name: "server_word",
        about: "one word unpacked, or cut and packed, by the server",
        measure: server_word,
    },
    Unit {
        name: "request_coefficient",
        about: "one coefficient of a request for few images, encrypted, packed, unpacked and transformed",
        measure: few_images::request_coefficient,
    },
    Unit {
        name: "answer_coefficient",
        about: "one coefficient of an answer polynomial for few images, transformed by both parties",
        measure: few_images::answer_coefficient,
    },
    Unit {
        name: "pair_coefficient",
        about: "one coefficient of a product with a weight polynomial, for few images",
        measure: few_images::pair_coefficient,
    },
    Unit {
        name: "sum_coefficient",
        about: "one coefficient of a sum of masks for few images, at both parties",
        measure: few_images::sum_coefficient,
    },
    Unit {
        name: "weight_coefficient",
        about: "one coefficient of a weight polynomial for few images, transformed",
        measure: few_images::weight_coefficient,
    },
    Unit {
        name: "byte",
        about: "one byte through a loopback socket, both ends together",
        measure: loopback_byte,
    },
];

impl Unit {
    /// Measures for about `time`; seconds of processor time, so that other load disturbs little.
    ///
    /// # Errors
    /// [`Error`] when the system refuses threads, sockets or randomness.
    pub fn measure(&self, time: Duration) -> Result<f64, Error> {
        // A pool of one thread: what runs in parallel otherwise is counted here as well.
        Compute::with_threads(1)?.run(|| (self.measure)(time))
    }
}

/// Seconds of one call: the least of as many groups of calls as fit in `time` (at least three).
fn least(time: Duration, mut f: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    f()?;
    let start = clock();
    f()?;
    // Groups of a millisecond: reading the clock takes about one microsecond.
    let calls = (1e-3 / (clock() - start).max(1e-8)).ceil().clamp(1.0, 1e5) as usize;
    let start = Instant::now();
    let (mut best, mut groups) = (f64::INFINITY, 0);
    while groups < 3 || start.elapsed() < time {
        let group = clock();
        for _ in 0..calls {
            f()?;
        }
        best = best.min((clock() - group) / calls as f64);
        groups += 1;
    }
    Ok(best)
}

/// Seconds of a word product in a convolution, words taken in and given out from and to the first-level cache.
fn products(time: Duration, conv: Conv2d) -> Result<f64, Error> {
    const BITS: u32 = 40;
    let geometry = Geometry::conv2d(conv)?;
    let weights: Vec<i16> = (0..geometry.weights()).map(|i| (i * 37 % 255) as i16 - 127).collect();
    let layer = BatchLinear::new(geometry, &weights, &vec![1; geometry.biases()])?;
    let prepared = layer.prepare(simd::isa(), BITS)?;
    let tile = Tile { inputs: [0, geometry.input_rows()], outputs: [0, geometry.output_rows()] };
    let keep = Tiling::new(geometry, &[tile])?.keep_from(0);
    let mut store = prepared.new_store(N)?;
    let words = layer.word_products(0..geometry.output_rows(), N);
    let seconds = least(time, || {
        store.clear();
        let fill = |position: usize, _, words: &mut [u64]| {
            words.fill(position as u64);
            Ok::<(), Error>(())
        };
        prepared.tile(&tile, keep, &mut store, Some(1), fill, |_, _, words| {
            black_box(words);
            Ok(())
        })
    })?;
    Ok(seconds / words as f64)
}

fn word_product(time: Duration) -> Result<f64, Error> {
    let pads = [0; 4];
    let (input, output) = ([96, 4, 4], [96, 4, 4]);
    products(
        time,
        Conv2d { input, output, kernel: [1; 2], stride: [1; 2], pads, dilation: [1; 2], groups: 1 },
    )
}

fn narrow_product(time: Duration) -> Result<f64, Error> {
    let (input, output, pads) = ([32, 8, 8], [32, 8, 8], [1; 4]);
    products(
        time,
        Conv2d { input, output, kernel: [3; 2], stride: [1; 2], pads, dilation: [1; 2], groups: 32 },
    )
}

/// A client and parameters of a usual stage.
struct Client {
    context: BatchContext,
    key: ClientKey,
    params: hushnet_rlwe::BatchStageParams,
    noise: Prg,
}

impl Client {
    fn new() -> Result<Self, Error> {
        let spec =
            BatchStageSpec { ring_degree: N, weight_l2: 500.0, output_bound: 1 << 22, shared_mask: true };
        let params = spec.choose().map_err(|e| Error::Internal(e.to_string()))?;
        let (context, mut noise) = (BatchContext::new(N)?, Prg::from_os()?);
        let key = ClientKey::generate(&context, &mut noise)?;
        Ok(Self { context, key, params, noise })
    }
}

const ID: MaskId = MaskId { tensor: 0, feature: 0, block: Some(0) };

fn encrypt_word(time: Duration) -> Result<f64, Error> {
    let Client { context, key, params, mut noise } = Client::new()?;
    let (mut scratch, mut words) = (context.scratch(), AlignedWords::new(N));
    let k = params.modulus_bits();
    let mut mask = context.zero_words_hat(k)?;
    context.mask_hat_into(&[1; 32], ID, &mut mask, &mut scratch)?;
    let (messages, mut packed) = (vec![100; N], vec![0; pack::packed_len(N, k)]);
    let seconds = least(time, || {
        key.encrypt_into(&params, &mask, &messages, &mut noise, &mut scratch, &mut words)?;
        Ok(pack::pack(&words, k, black_box(&mut packed))?)
    })?;
    Ok(seconds / N as f64)
}

fn decrypt_word(time: Duration) -> Result<f64, Error> {
    let Client { context, key, params, .. } = Client::new()?;
    let (mut scratch, mut words, mut plain) = (context.scratch(), AlignedWords::new(N), vec![0; N]);
    let bits = params.modulus_bits() - params.drop_bits();
    let mut sum = context.zero_words_hat(params.modulus_bits())?;
    context.mask_hat_into(&[1; 32], ID, &mut sum, &mut scratch)?;
    let packed = vec![0x5a; pack::packed_len(N, bits)];
    let seconds = least(time, || {
        pack::unpack(&packed, bits, &mut words)?;
        key.decrypt_into(&params, &words, MaskSum::Exact(&sum), &mut scratch, black_box(&mut plain))?;
        Ok(())
    })?;
    Ok(seconds / N as f64)
}

fn mask_word(time: Duration) -> Result<f64, Error> {
    let (masks, mut words) = (Masks::new(&[1; 32]), AlignedWords::new(N));
    let seconds = least(time, || Ok(masks.words(ID, 0, 40, black_box(&mut words))?))?;
    Ok(seconds / N as f64)
}

fn transform_word(time: Duration) -> Result<f64, Error> {
    let context = BatchContext::new(N)?;
    let (mut hat, words) = (context.zero_words_hat(40)?, vec![77; N]);
    let seconds = least(time, || {
        context.multiplier().words_hat_into(&words, black_box(&mut hat)).map_err(Error::from)
    })?;
    Ok(seconds / N as f64)
}

fn server_word(time: Duration) -> Result<f64, Error> {
    let mut words = AlignedWords::new(N);
    let (packed, mut out) = (vec![0x5a; pack::packed_len(N, 40)], vec![0; pack::packed_len(N, 26)]);
    let seconds = least(time, || {
        pack::unpack(&packed, 40, &mut words)?;
        batch_server::drop_bits(&mut words, 14, 40)?;
        Ok(pack::pack(&words, 26, black_box(&mut out))?)
    })?;
    Ok(seconds / (2 * N) as f64)
}

fn loopback_byte(time: Duration) -> Result<f64, Error> {
    const PIECE: usize = 1 << 20;
    let io = |e: std::io::Error| Error::from(crate::error::TransportError::Io(e.to_string()));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(io)?;
    let mut near = TcpStream::connect(listener.local_addr().map_err(io)?).map_err(io)?;
    let (mut far, _) = listener.accept().map_err(io)?;
    let reader = std::thread::spawn(move || -> std::io::Result<f64> {
        let mut buffer = vec![0; PIECE];
        let start = clock();
        while far.read(&mut buffer)? > 0 {}
        Ok(clock() - start)
    });
    let piece = vec![1; PIECE];
    let (start, begun, mut sent) = (Instant::now(), clock(), 0);
    while sent < 16 * PIECE || start.elapsed() < time {
        near.write_all(&piece).map_err(io)?;
        sent += PIECE;
    }
    drop(near);
    let writing = clock() - begun;
    let reading = reader.join().map_err(|_| Error::Internal("the reading thread failed".into()))?;
    Ok((writing + reading.map_err(io)?) / sent as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_costs_something_and_less_than_a_microsecond() {
        for unit in UNITS {
            let seconds = unit.measure(Duration::from_millis(5)).unwrap();
            assert!(seconds > 1e-13 && seconds < 1e-6, "{}: {seconds}", unit.name);
        }
        let names: std::collections::HashSet<_> = UNITS.iter().map(|u| u.name).collect();
        assert_eq!(names.len(), UNITS.len());
    }
}
