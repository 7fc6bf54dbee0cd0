//! Ciphertexts and keys of CKKS: whatever is accepted is written back as it came.

use crate::Target;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::client::{KeyGenerator, SecretKey};
use hushnet_rlwe::ckks::{
    Ciphertext, CkksParams, CkksSpec, EncodeAt, Encoder, Galois, GaloisKeys, Insecure, PublicKey, RelinKey,
};
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

/// Ciphertexts and keys of `docs/ckks.md`.
pub const CKKS: Target = Target { seeds, run, memory: 4 << 20 };

fn params() -> &'static CkksParams {
    static PARAMS: OnceLock<CkksParams> = OnceLock::new();
    PARAMS.get_or_init(|| {
        CkksSpec::with_depth(16, 40, 2, 30, 41).check_insecure(Insecure).expect("these parameters exist")
    })
}

struct World {
    secret: SecretKey,
    encoder: Encoder,
    seeds: Vec<(String, Vec<u8>)>,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| made().expect("these parameters work"))
}

fn made() -> Result<World, hushnet_rlwe::ckks::CkksError> {
    let (params, mut prg) = (params(), Prg::from_seed([3; 16]));
    let (encoder, keys) = (Encoder::new(params), KeyGenerator::new(params));
    let secret = keys.secret_key(&mut prg)?;
    let at = EncodeAt { level: params.level(3)?, scale: params.scale(), bound: 1.0 };
    let plain = encoder.encode(&[0.5; 8], at)?;
    let low = encoder.encode(&[0.25; 8], EncodeAt { level: params.level(1)?, ..at })?;
    let public = keys.public_key(&secret, &mut prg)?;
    let turns = [Galois::Rotate(1), Galois::Conjugate];
    let at_levels = [(Galois::Rotate(3), params.level(1)?), (Galois::Conjugate, params.level(2)?)];
    let seeds = [
        ("fresh", secret.encrypt(&plain, &mut prg)?.to_bytes()?),
        ("low", secret.encrypt(&low, &mut prg)?.to_bytes()?),
        ("hidden", public.encrypt(&plain, &mut prg)?.to_bytes()?),
        ("public-key", public.to_bytes()?),
        ("relin-key", keys.relin_key(&secret, &mut prg)?.to_bytes()?),
        ("galois-keys", keys.galois_keys(&secret, &turns, &mut prg)?.to_bytes()?),
        ("galois-keys-at", keys.galois_keys_at(&secret, &at_levels, &mut prg)?.to_bytes()?),
        ("no-galois-keys", GaloisKeys::none(params).to_bytes()?),
    ];
    Ok(World { secret, encoder, seeds: seeds.into_iter().map(|(n, s)| (n.to_owned(), s)).collect() })
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    world().seeds.clone()
}

/// With the checksum of its bytes in the place of the last ones: without it, no changed key is read further.
fn sealed(data: &[u8]) -> Option<Vec<u8>> {
    let (all, _) = data.split_at_checked(data.len().checked_sub(32)?)?;
    Some([all, &Sha256::digest(all)[..]].concat())
}

fn run(data: &[u8]) {
    read(data);
    if let Some(data) = sealed(data) {
        read(&data);
    }
}

fn read(data: &[u8]) {
    let (params, world) = (params(), world());
    let same = |bytes: Result<Vec<u8>, _>| {
        assert!(bytes.is_ok_and(|b: Vec<u8>| b == data), "what was read is written as it came");
    };
    if let Ok(c) = Ciphertext::from_bytes(params, data) {
        same(c.to_bytes());
        if let Ok(plain) = world.secret.decrypt(&c) {
            let _ = world.encoder.decode(&plain);
        }
    }
    if let Ok(key) = PublicKey::from_bytes(params, data) {
        same(key.to_bytes());
    }
    if let Ok(key) = RelinKey::from_bytes(params, data) {
        same(key.to_bytes());
    }
    if let Ok(keys) = GaloisKeys::from_bytes(params, data) {
        // Keys that all serve every level have two forms.
        assert!(keys.to_bytes().is_ok_and(|b| GaloisKeys::from_bytes(params, &b).is_ok()));
    }
}
