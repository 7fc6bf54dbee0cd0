//! What parties of slot-packed layers send each other: keys, requests, answers. The first byte says which, the rest changes a valid one.

use crate::{edits, numbered, Target};
use hushnet_ring::prime::primes_near;
use hushnet_ring::Prg;
use hushnet_rlwe::bfv::client::SecretKey;
use hushnet_rlwe::bfv::{BfvError, BfvParams, BfvSpec, Evaluator, GaloisKeys, PublicKey, Turn};
use hushnet_rlwe::ckks::Insecure;
use std::sync::OnceLock;

/// Keys, requests and answers of `docs/slots.md`.
pub const BFV: Target = Target { seeds, run, memory: 4 << 20 };

const DEGREE: usize = 16;

struct World {
    params: BfvParams,
    secret: SecretKey,
    server: Evaluator,
    turns: Vec<Turn>,
    messages: [Vec<u8>; 4],
}

fn made() -> Result<World, BfvError> {
    let plain_modulus = primes_near(20, DEGREE, 1)?[0];
    let spec = BfvSpec {
        ring_degree: DEGREE,
        plain_modulus,
        primes: 2,
        prime_bits: 50,
        special_bits: 50,
        digit_bits: 0,
    };
    let (params, mut prg) = (spec.check_insecure(Insecure)?, Prg::from_seed([4; 16]));
    let secret = SecretKey::generate(&params, &mut prg)?;
    let turns = vec![Turn::left(1), Turn::left(2), Turn { swap: true, left: 0 }];
    let (public, galois) = (secret.public_key(&mut prg)?, secret.galois_keys(&turns, &mut prg)?);
    let request = secret.encrypt(&[5; DEGREE], &mut prg)?;
    let keys = [public.to_bytes()?, galois.to_bytes()?];
    let server = Evaluator::new(&params, public, galois)?;
    let (answer, _) = server.answer(&server.receive(&request)?, &mut prg)?;
    let [public, galois] = keys;
    Ok(World { params, secret, server, turns, messages: [public, galois, request, answer] })
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| made().expect("these parameters work"))
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    numbered(
        (0..4).flat_map(|which| edits::seeds(1).into_iter().map(move |s| [&[which], s.as_slice()].concat())),
    )
}

fn run(data: &[u8]) {
    let Some((which, script)) = data.split_first() else { return };
    let (w, which) = (world(), usize::from(*which) % 4);
    let mut messages = vec![w.messages[which].clone()];
    edits::apply(script, &mut messages);
    let message = messages.concat();
    let accepted = match which {
        0 => PublicKey::from_bytes(&w.params, &message).is_ok_and(|k| same(k.to_bytes(), &message)),
        1 => {
            GaloisKeys::from_bytes(&w.params, &w.turns, &message).is_ok_and(|k| same(k.to_bytes(), &message))
        }
        2 => w.server.receive(&message).is_ok_and(|c| {
            let turned = w.server.perm(&c, w.turns[0]).expect("the key is there");
            turned.noise_bound().bound() > 0.0
        }),
        _ => w.secret.open(&message).is_ok(),
    };
    assert!(accepted || !script.is_empty(), "a valid message is accepted");
}

fn same(bytes: Result<Vec<u8>, BfvError>, message: &[u8]) -> bool {
    assert!(bytes.is_ok_and(|b| b == message), "what was read is written as it came");
    true
}
