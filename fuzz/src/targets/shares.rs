//! What parties of two-party linear layers send each other, by encryption: packed, batch, merging keys, one polynomial. The first byte says
//! which, the rest changes a valid message. Slots have a target of their own.

use crate::{edits, numbered, Target};
use hushnet_ring::prime::primes_near;
use hushnet_ring::{low_mask, pack, Prg};
use hushnet_rlwe::batch_shares::{public_key_bits, SharePublicKey, ShareServer};
use hushnet_rlwe::one_poly::{OnePolyContext, Tally};
use hushnet_rlwe::pack_lwe::{MergeContext, MergeKeys};
use hushnet_rlwe::packed::{
    PackedClient, PackedContext, PackedParams, PackedPublicKey, PackedServer, PackedSpec, PRIME_BITS,
};
use hushnet_rlwe::{BatchContext, CipherError};
use std::sync::OnceLock;

/// Keys, requests and answers of two-party linear layers.
pub const SHARES: Target = Target { seeds, run, memory: 8 << 20 };

/// Of ciphertexts modulo primes: no party checks degrees that come from its own plan.
const DEGREE: usize = 64;
/// The least of the security table, which batches read their key's width from.
const BATCH_DEGREE: usize = 1024;
const SPACING: usize = 4;

struct World {
    packed: PackedContext,
    params: PackedParams,
    client: PackedClient,
    server: PackedServer,
    batch: BatchContext,
    merge: MergeContext,
    one: OnePolyContext,
    messages: [Vec<u8>; 6],
}

fn packed_words(words: &[u64], bits: u32) -> Result<Vec<u8>, CipherError> {
    let mut out = vec![0; pack::packed_len(words.len(), bits)];
    pack::pack(words, bits, &mut out)?;
    Ok(out)
}

fn made() -> Result<World, CipherError> {
    let mut prg = Prg::from_seed([6; 16]);
    let packed = PackedContext::new(DEGREE)?;
    let params = PackedSpec { ring_degree: 4096, ring_bits: 20, weight_l2: 16.0 }.choose()?;
    let client = PackedClient::generate(&packed, &mut prg)?;
    let public = client.public_key(&[1; 32], &mut prg)?;
    let server = PackedServer::new(&packed, &public)?;
    let (mut mask, mut request) = (vec![0; DEGREE], vec![0; DEGREE]);
    packed.mask_hat(&[2; 32], 0, 0, &mut mask)?;
    client.encrypt_into(&params, &mask, &[9; DEGREE], &mut prg, &mut request)?;
    let answer = vec![5; DEGREE];
    let batch = BatchContext::new(BATCH_DEGREE)?;
    // Any words of the width are a key.
    let mut share_key = vec![0; BATCH_DEGREE];
    prg.fill_words(&mut share_key);
    let key_bits = public_key_bits(BATCH_DEGREE)?;
    share_key.iter_mut().for_each(|w| *w &= low_mask(key_bits));
    let primes = primes_near(50, DEGREE, 2)?;
    let merge = MergeContext::new(DEGREE, &primes[..1], primes[1])?;
    let secret: Vec<i8> = (0..DEGREE).map(|i| (i % 3) as i8 - 1).collect();
    let keys = MergeKeys::generate(&merge, &secret, SPACING, &[5; 32], &mut prg)?;
    let one = OnePolyContext::new(DEGREE, &[40, 45], 1)?;
    let mut poly = vec![0; one.packed_len()];
    one.pack(&one.uniform(&[7; 32], 1)?, &mut poly)?;
    let messages = [
        [&[1; 32], packed_words(&public.pk0, PRIME_BITS)?.as_slice()].concat(),
        packed_words(&request, params.request_bits())?,
        packed_words(&answer, params.response_bits())?,
        [&[3; 32], packed_words(&share_key, key_bits)?.as_slice()].concat(),
        keys.to_bytes()?,
        poly,
    ];
    Ok(World { packed, params, client, server, batch, merge, one, messages })
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| made().expect("these parameters work"))
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    numbered(
        (0..6).flat_map(|which| edits::seeds(1).into_iter().map(move |s| [&[which], s.as_slice()].concat())),
    )
}

fn unpacked(bytes: &[u8], count: usize, bits: u32) -> Result<Vec<u64>, CipherError> {
    let mut words = vec![0; count];
    pack::unpack(bytes, bits, &mut words)?;
    Ok(words)
}

/// A key behind its seed, read as sessions read it.
fn keyed(message: &[u8], count: usize, bits: u32) -> Result<([u8; 32], Vec<u64>), CipherError> {
    let (seed, rest) = message.split_first_chunk().unwrap_or((&[0; 32], &[]));
    Ok((*seed, unpacked(rest, count, bits)?))
}

fn read(w: &World, which: usize, message: &[u8]) -> Result<(), CipherError> {
    match which {
        0 => PackedServer::new(&w.packed, &PackedPublicKey::from_bytes(&w.packed, message)?).map(drop),
        1 => {
            let mut c0 = unpacked(message, DEGREE, w.params.request_bits())?;
            w.server.absorb(&w.params, &[7; DEGREE], &mut c0)
        }
        2 => {
            let c1 = unpacked(message, DEGREE, w.params.response_bits())?;
            let (places, mut out) = ((0..DEGREE).collect::<Vec<_>>(), [0; DEGREE]);
            w.client.open(&w.params, &c1, &places, &mut out)?;
            assert!(out.iter().all(|x| x >> w.params.ring_bits() == 0), "shares are of the ring");
            Ok(())
        }
        3 => {
            let bits = public_key_bits(BATCH_DEGREE)?;
            let (seed, pk0) = keyed(message, BATCH_DEGREE, bits)?;
            ShareServer::new(&w.batch, &SharePublicKey { seed, bits, pk0 }).map(drop)
        }
        4 => {
            let keys = MergeKeys::from_bytes(&w.merge, SPACING, message)?;
            assert!(keys.to_bytes().is_ok_and(|b| b == message), "what was read is written as it came");
            Ok(())
        }
        _ => {
            let poly = w.one.unpack(message)?;
            let mut back = vec![0; message.len()];
            w.one.pack(&poly, &mut back)?;
            assert_eq!(back, message, "what was read is written as it came");
            w.one.product(&poly, &poly, &Tally::default()).map(drop)
        }
    }
}

fn run(data: &[u8]) {
    let Some((which, script)) = data.split_first() else { return };
    let (w, which) = (world(), usize::from(*which) % 6);
    let mut messages = vec![w.messages[which].clone()];
    edits::apply(script, &mut messages);
    let result = read(w, which, &messages.concat());
    assert!(result.is_ok() || !script.is_empty(), "a valid message is accepted: {result:?}");
}
