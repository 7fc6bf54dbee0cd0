//! Encryption and decryption of every scheme with all secrets marked for valgrind's memcheck, which then reports every branch and
//! every address that depends on one: the half of `make constant-time` for the ciphers (`hushnet-mpc` has the other).
//!
//! Run under valgrind, built with the feature `memcheck`: exits with 1 when there was a report.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use hushnet_ring::secret::{errors, poison, publish, watched};
use hushnet_ring::{low_mask, Prg};
use hushnet_rlwe::batch_shares::{BatchShareSpec, ShareKey, ShareServer};
use hushnet_rlwe::bfv::{self, Turn};
use hushnet_rlwe::ckks::{self, CkksSpec, EncodeAt};
use hushnet_rlwe::one_poly::{OnePolyClient, OnePolyContext, OnePolyServer, OnePolySpec, Profile, Tally};
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::{PackedClient, PackedContext, PackedServer, PackedSpec, WeightPoly};
use hushnet_rlwe::wide::{
    self, WideContext, WideHolder, WideMultiplier, WidePlain, WidePublicKey, WideRuns, WideSpec,
};
use hushnet_rlwe::{mask_words, BatchContext, BatchStageSpec, ClientKey, MaskId, MaskSum};

/// Ring degree of the schemes that have one in the security table there.
const N: usize = 2048;

/// A generator whose stream is secret.
fn prg(seed: u8) -> Prg {
    let mut seed = [seed; 16];
    poison(&mut seed);
    Prg::from_seed(seed)
}

/// Secret words below 2^bits.
fn secrets(n: usize, bits: u32) -> Vec<u64> {
    let mut words = vec![0; n];
    Prg::from_seed([9; 16]).fill_words(&mut words);
    words.iter_mut().for_each(|w| *w &= low_mask(bits));
    poison(&mut words);
    words
}

/// The batch engine of the client-aided model: key, encryption, decryption.
fn batch() {
    let spec = BatchStageSpec { ring_degree: N, weight_l2: 100.0, output_bound: 1 << 16, shared_mask: true };
    let p = spec.choose().unwrap();
    let context = BatchContext::new(N).unwrap();
    let key = ClientKey::generate(&context, &mut prg(1)).unwrap();
    let mut a = vec![0; N];
    mask_words(&[1; 32], MaskId { tensor: 1, feature: 2, block: None }, p.modulus_bits(), &mut a).unwrap();
    let hat = context.words_hat(&a, p.modulus_bits()).unwrap();
    let mut messages: Vec<i32> = (0..N as i32).map(|i| i % 100 - 50).collect();
    poison(&mut messages);
    let (mut scratch, mut c0, mut out) = (context.scratch(), vec![0; N], vec![0i64; N]);
    key.encrypt_into(&p, &hat, &messages, &mut prg(2), &mut scratch, &mut c0).unwrap();
    // The ciphertext is what the server gets, less its lowest bits when it comes back.
    publish(&c0);
    let mut dropped = c0;
    hushnet_rlwe::drop_bits(&mut dropped, p.drop_bits(), p.modulus_bits()).unwrap();
    let noise = key.decrypt_into(&p, &dropped, MaskSum::Exact(&hat), &mut scratch, &mut out).unwrap();
    // What the client decrypts is its own.
    publish(&out);
    publish(&[noise.largest]);
    assert_eq!(out[7], -43);
}

/// Batches on shares: key, public key, encryption, the server's answer, opening.
fn batch_shares() {
    let spec = BatchShareSpec { ring_degree: 2 * N, ring_bits: 32, weight_l2: 100.0 };
    let p = spec.choose().unwrap();
    let context = BatchContext::new(2 * N).unwrap();
    let mut prg = prg(3);
    let key = ShareKey::generate(&context, &mut prg).unwrap();
    let public = key.public_key([3; 32], p.modulus_bits(), &mut prg).unwrap();
    // The public key travels.
    publish(&public.pk0);
    let stage = ShareServer::new(&context, &public).unwrap().stage(&p).unwrap();
    let mut a = vec![0; 2 * N];
    mask_words(&[1; 32], MaskId { tensor: 1, feature: 2, block: None }, p.modulus_bits(), &mut a).unwrap();
    let hat = context.words_hat(&a, p.modulus_bits()).unwrap();
    let (mut scratch, mut c0) = (context.scratch(), vec![0; 2 * N]);
    let shares = secrets(2 * N, 32);
    key.encrypt_into(&p, &hat, shares.into_iter(), &mut prg, &mut scratch, &mut c0).unwrap();
    // What the server makes of it is secret, because its weights are.
    let (mut own, mut out) = (vec![0; 2 * N], vec![0; 2 * N]);
    stage.answer(&mut prg, &mut scratch, &mut c0, &mut a, &mut own).unwrap();
    // The answer travels: c0 is masked, c1 is re-randomised.
    publish(&c0);
    publish(&a);
    key.open_into(&p, &a, &c0, &mut scratch, &mut out).unwrap();
}

/// Coefficient packing (Cheetah): key, public key, encryption, weights, the server's answer, opening.
fn packed() {
    let p = PackedSpec { ring_degree: 4096, ring_bits: 32, weight_l2: 100.0 }.choose().unwrap();
    let context = PackedContext::new(4096).unwrap();
    let mut prg = prg(4);
    let client = PackedClient::generate(&context, &mut prg).unwrap();
    let public = client.public_key(&[5; 32], &mut prg).unwrap();
    // The public key travels.
    publish(&public.pk0);
    let server = PackedServer::new(&context, &public).unwrap();
    let (mut a, mut c0) = (vec![0; 4096], vec![0; 4096]);
    context.mask_hat(&[5; 32], 3, 0, &mut a).unwrap();
    client.encrypt_into(&p, &a, &secrets(4096, 32), &mut prg, &mut c0).unwrap();
    // The ciphertext travels.
    publish(&c0);
    server.absorb(&p, &secrets(4096, 32), &mut c0).unwrap();
    let weights: Vec<i64> = secrets(4096, 9).iter().map(|w| *w as i64 - 256).collect();
    let weights = WeightPoly::new(&context, &weights).unwrap();
    let (mut s0, mut s1) = (vec![0; 4096], vec![0; 4096]);
    server.combine(&[&c0], &[&a], &[&weights], &mut s0, &mut s1).unwrap();
    let places: Vec<usize> = (0..4096).step_by(5).collect();
    let [mut own, mut out] = [(); 2].map(|()| vec![0; places.len()]);
    server.answer(&p, &mut prg, &mut s0, &mut s1, &places, &mut own).unwrap();
    // The answer travels.
    publish(&s1);
    client.open(&p, &s1, &places, &mut out).unwrap();
}

/// Products of shares: key, public and merging keys, encryption, plain polynomials, merging, the server's answer, opening.
fn wide() {
    let p = WideSpec { ring_bits: 30, terms: 1, spacing: 2 }.choose().unwrap();
    let context = WideContext::new().unwrap();
    let (mut prg, tally) = (prg(8), Tally::default());
    let client = WideHolder::generate(&context, &mut prg).unwrap();
    let public = client.public_key(&[4; 32], &mut prg).unwrap().to_bytes().unwrap();
    let merging = client.merging_keys(2, &[6; 32], &mut prg).unwrap().to_bytes().unwrap();
    let request = client.encrypt(&p, (&[5; 32], 3, 0), &secrets(wide::RING_DEGREE, 30), &mut prg).unwrap();
    // The keys and the ciphertext travel.
    [&public, &merging, &request].into_iter().for_each(|message| publish(message));
    let server =
        WideMultiplier::new(&context, &WidePublicKey::from_bytes(&context, &public).unwrap()).unwrap();
    let keys = MergeKeys::from_bytes(context.merge(), 2, &merging).unwrap();
    let cipher = server.read(&p, (&[5; 32], 3, 0), &request).unwrap();
    let plain: Vec<i64> = secrets(wide::RING_DEGREE, 30).iter().map(|w| *w as i64 - (1 << 29)).collect();
    let mut turned = server.read(&p, (&[5; 32], 3, 0), &request).unwrap();
    let runs = WideRuns::new(&context, 8, 1024).unwrap().unwrap();
    runs.turn(&mut turned).unwrap();
    let plain =
        [WidePlain::new(&context, &plain, 2).unwrap(), runs.plain(&plain[..runs.coefficients()]).unwrap()];
    let sums = [(); 2].map(|()| server.combine(&[&cipher, &turned], &plain).unwrap()).to_vec();
    let merged = keys.merge(sums, 2, &tally).unwrap();
    let places: Vec<usize> = (0..wide::RING_DEGREE).step_by(5).collect();
    let [c1, _] = server.answer(&p, &mut prg, merged, &places).unwrap();
    // The answer travels.
    publish(&c1);
    client.open(&p, &c1, &places).unwrap();
}

/// Rotation-free layers, both profiles: set-up, request, answer, opening.
fn one_poly() {
    for profile in [Profile::Compact, Profile::Flooded] {
        let n = 8192;
        let spec = OnePolySpec {
            ring_degree: n,
            ring_bits: 24,
            weight_l2: 400.0,
            weight_bits: 9,
            weights: 4096,
            terms: 1,
            profile,
        };
        let p = spec.choose().unwrap();
        let context = OnePolyContext::new(n, p.prime_bits(), 1).unwrap();
        let (mut prg, tally) = (prg(6), Tally::default());
        let client = OnePolyClient::new(&context, &p, &[7; 32], 3).unwrap();
        let server = OnePolyServer::new(&context, &p, &[7; 32], 3, &mut prg).unwrap();
        let weights: Vec<i64> = secrets(n, 8).iter().map(|w| *w as i64 - 128).collect();
        let (key, _) = server.weight_key(&weights, 0, true, &tally).unwrap();
        let mut blind = client.blind(&mut prg, &tally).unwrap();
        let mut bytes = vec![0; context.packed_len()];
        client.request(&mut blind, &secrets(n, 24), &mut bytes, &tally).unwrap();
        // The request travels.
        publish(&bytes);
        let request = context.unpack(&bytes).unwrap();
        let residues = context.dot(&[(&request, key.rho())], &tally).unwrap();
        let places: Vec<usize> = (0..context.plane()).step_by(7).collect();
        let sums = context.torus(&residues, &places).unwrap();
        let (answer, _) = server.mask(&mut prg, &sums);
        // The answer travels.
        publish(&answer);
        let own =
            context.torus(&context.dot(&[(blind.secret(), key.rho())], &tally).unwrap(), &places).unwrap();
        let mut out = vec![0; places.len()];
        client.open(&answer, &own, &mut out).unwrap();
    }
}

/// BFV: key, public and rotation keys, encryption, rotation by the server, its answer, opening.
fn bfv_slots() {
    let t = bfv::plain_modulus(bfv::DEFAULT_PLAIN_BITS).unwrap();
    let spec = bfv::candidates(t, true).into_iter().find(|s| s.ring_degree <= 8192).unwrap();
    let p = spec.check().unwrap();
    let n = p.ring_degree();
    let mut prg = prg(8);
    let key = bfv::client::SecretKey::generate(&p, &mut prg).unwrap();
    let turns = [Turn::left(1)];
    let galois = key.galois_keys(&turns, &mut prg).unwrap().to_bytes().unwrap();
    let public = key.public_key(&mut prg).unwrap().to_bytes().unwrap();
    // Keys for the server travel.
    publish(&galois);
    publish(&public);
    let galois = bfv::GaloisKeys::from_bytes(&p, &turns, &galois).unwrap();
    let server = bfv::Evaluator::new(&p, bfv::PublicKey::from_bytes(&p, &public).unwrap(), galois).unwrap();
    let bits = t.ilog2();
    let request = key.encrypt(&secrets(n, bits), &mut prg).unwrap();
    // The request travels.
    publish(&request);
    let (answer, _) = server.answer(&server.receive(&request).unwrap(), &mut prg).unwrap();
    // The answer travels.
    publish(&answer);
    let slots = key.open(&answer).unwrap();
    publish(&slots);
}

/// CKKS: key, encryption, decryption (encoding and decoding are floating-point arithmetic on the client's own numbers).
fn ckks_slots() {
    let p = CkksSpec::with_depth(8192, 45, 2, 30, 45).check().unwrap();
    let mut prg = prg(10);
    let generator = ckks::client::KeyGenerator::new(&p);
    let key = generator.secret_key(&mut prg).unwrap();
    let mut values: Vec<f64> = (0..p.slots()).map(|i| (i as f64 * 0.37).sin()).collect();
    poison(&mut values);
    let encoder = ckks::Encoder::new(&p);
    let at = EncodeAt { level: p.max_level(), scale: p.scale(), bound: 1.0 };
    let message = encoder.encode(&values, at).unwrap();
    let c = key.encrypt(&message, &mut prg).unwrap();
    let back = encoder.decode(&key.decrypt(&c).unwrap()).unwrap();
    publish(&back);
    assert!((back[1] - 0.37f64.sin()).abs() < 1e-3);
}

fn main() {
    if !watched() {
        println!("Nobody watches: run `make constant-time`, which builds this with the feature memcheck and starts valgrind.");
        std::process::exit(2);
    }
    let cases: [(&str, fn()); 7] = [
        ("batches", batch),
        ("batches on shares", batch_shares),
        ("packed coefficients", packed),
        ("products of shares", wide),
        ("rotation-free", one_poly),
        ("BFV", bfv_slots),
        ("CKKS", ckks_slots),
    ];
    let mut last = errors();
    for (name, f) in cases {
        f();
        println!("{:>5} reports  {name}", errors() - last);
        last = errors();
    }
    println!("{last} reports of branches or addresses that depend on secrets");
    std::process::exit(i32::from(last > 0));
}
