//! Round trips, pinned bytes, and decoders that survive anything.

use super::*;
use crate::ckks::ciphertext::{Domain, Maker, Seed};
use hushnet_ring::simd;
use sha2::{Digest, Sha256};

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..12].iter().map(|b| format!("{b:02x}")).collect()
}

/// `0.5 rot_2(c) - 0.25 conj(c)` with one division.
fn hoisted_sum(w: &World, c: &Ciphertext) -> Ciphertext {
    let slots = w.params.slots();
    let plain = |v| w.encoder.encode_raised(&vec![v; slots], w.at(3, 1.0)).unwrap();
    let (half, quarter) = (plain(0.5), plain(-0.25));
    let terms = [(Galois::Rotate(2), &half), (Galois::Conjugate, &quarter)];
    w.evaluator.hoisted_sum(c, &w.evaluator.hoist(c).unwrap(), &terms, &w.galois).unwrap()
}

/// Every kind of object of one deterministic world.
fn objects(isa: Isa) -> (World, Vec<(&'static str, Vec<u8>)>) {
    let spec = CkksSpec::with_depth(2048, 40, 2, 30, 40);
    let mut w = World::new(&spec, isa, 42);
    let x: Vec<Complex> =
        (0..1024).map(|j| Complex { re: f64::from(j) / 1024.0, im: -f64::from(j % 7) / 16.0 }).collect();
    let fresh = w.encrypt(&x, 3, 2.0);
    let plain = w.encoder.encode_complex(&x, w.at(3, 2.0)).unwrap();
    let public = w.public.encrypt(&plain, &mut w.prg).unwrap();
    let e = w.evaluator.clone();
    let product = e.mul(&fresh, &public).unwrap();
    let scalar = w.encoder.encode_scalar(0.3, fresh.level(), w.params.scale()).unwrap();
    let weighted = e.mul_scalar(&fresh, &scalar).unwrap();
    let ciphertexts = [
        ("fresh", fresh.clone()),
        ("public", public),
        ("lower", e.drop_to(&fresh, w.params.level(2).unwrap()).unwrap()),
        ("product", product.clone()),
        ("relinearised", e.relinearise(&product, &w.relin).unwrap()),
        ("fused", e.relinearise_rescale(&product, &w.relin).unwrap()),
        ("rescaled", e.rescale(&weighted).unwrap()),
        ("rotated", e.rotate(&fresh, 2, &w.galois).unwrap()),
        ("conjugate", e.conjugate(&fresh, &w.galois).unwrap()),
        ("hoisted sum", hoisted_sum(&w, &fresh)),
        (
            "rotated sum",
            e.rotate_sum_rescale(&[(1, weighted.clone()), (-4, weighted.clone())], 4.0, &w.galois).unwrap(),
        ),
        ("hidden", w.public.hide(&fresh, Some(50), &mut w.prg).unwrap()),
    ];
    let mut out = vec![
        ("public key", w.public.to_bytes().unwrap()),
        ("relin key", w.relin.to_bytes().unwrap()),
        ("galois keys", w.galois.to_bytes().unwrap()),
    ];
    let low =
        [(Galois::Rotate(3), w.params.level(1).unwrap()), (Galois::Conjugate, w.params.level(2).unwrap())];
    let keys = KeyGenerator::new(&w.params).galois_keys_at(&w.secret, &low, &mut w.prg).unwrap();
    out.push(("galois keys of levels", keys.to_bytes().unwrap()));
    for (name, c) in ciphertexts {
        let bytes = c.to_bytes().unwrap();
        assert_eq!(bytes.len(), c.byte_len());
        let back = Ciphertext::from_bytes(&w.params, &bytes).unwrap();
        assert!(
            back.parts() == c.parts() && back.level() == c.level() && back.is_seeded() == c.is_seeded(),
            "{name}"
        );
        assert_eq!((back.scale(), back.bound(), back.noise()), (c.scale(), c.bound(), c.noise()));
        assert_eq!(back.to_bytes().unwrap(), bytes);
        out.push((name, bytes));
    }
    (w, out)
}

#[test]
fn bytes_are_pinned_and_equal_on_every_instruction_set() {
    let pinned = include_str!("pinned.txt");
    for isa in simd::available() {
        let (_, objects) = objects(isa);
        let got: String =
            objects.iter().map(|(name, b)| format!("{name}: {} bytes, {}\n", b.len(), hex(b))).collect();
        assert_eq!(got, pinned, "{isa:?}");
    }
}

#[test]
fn keys_that_travelled_work() {
    let (mut w, _) = objects(simd::isa());
    let public = PublicKey::from_bytes(&w.params, &w.public.to_bytes().unwrap()).unwrap();
    let relin = RelinKey::from_bytes(&w.params, &w.relin.to_bytes().unwrap()).unwrap();
    let galois = GaloisKeys::from_bytes(&w.params, &w.galois.to_bytes().unwrap()).unwrap();
    assert_eq!(galois.len(), STEPS.len() + 1);
    let x = w.values(1.0);
    let plain = w.encoder.encode_complex(&x, w.at(3, 1.0)).unwrap();
    let c = public.encrypt(&plain, &mut w.prg).unwrap();
    let e = w.evaluator.clone();
    let c = e.relinearise_rescale(&e.square(&c).unwrap(), &relin).unwrap();
    let square = map2(&x, &x, times);
    let rotated: Vec<Complex> = (0..x.len()).map(|j| square[(j + 1) % x.len()]).collect();
    w.assert_close("after travel", &e.rotate(&c, 1, &galois).unwrap(), &rotated);
}

/// A client in a browser draws from ChaCha: what it sends says so, has as many bytes, and works on a server with the keys of one.
#[test]
fn seeds_of_browsers_travel() {
    let spec = CkksSpec::with_depth(2048, 40, 2, 30, 40);
    let mut w = World::of_generator(&spec, simd::isa(), Prg::chacha([7; 32]));
    let x = w.values(1.0);
    let fresh = w.encrypt(&x, 3, 1.0);
    let low = [(Galois::Rotate(3), w.params.level(1).unwrap())];
    let levels = KeyGenerator::new(&w.params).galois_keys_at(&w.secret, &low, &mut w.prg).unwrap();
    let (_, of_aes) = objects(simd::isa());
    let kinds = [
        ("fresh", fresh.to_bytes().unwrap()),
        ("public key", w.public.to_bytes().unwrap()),
        ("relin key", w.relin.to_bytes().unwrap()),
        ("galois keys", w.galois.to_bytes().unwrap()),
    ];
    for (name, bytes) in &kinds {
        let (_, other) = of_aes.iter().find(|(n, _)| n == name).unwrap();
        assert_eq!((bytes.len(), bytes[7] ^ other[7]), (other.len(), 4), "{name}");
    }
    assert_eq!(levels.to_bytes().unwrap()[7] & 4, 4);
    let received = Ciphertext::from_bytes(&w.params, &kinds[0].1).unwrap();
    assert!(received.is_seeded() && received.parts() == fresh.parts());
    assert_eq!(received.to_bytes().unwrap(), kinds[0].1);
    let relin = RelinKey::from_bytes(&w.params, &kinds[2].1).unwrap();
    let galois = GaloisKeys::from_bytes(&w.params, &kinds[3].1).unwrap();
    let e = w.evaluator.clone();
    let squared = e.relinearise_rescale(&e.square(&received).unwrap(), &relin).unwrap();
    let square = map2(&x, &x, times);
    let rotated: Vec<Complex> = (0..x.len()).map(|j| square[(j + 1) % x.len()]).collect();
    w.assert_close("after travel", &e.rotate(&squared, 1, &galois).unwrap(), &rotated);
    // Read with the other generator, everything is noise; without a seed, there is no generator to name.
    let mut other = kinds[0].1.clone();
    other[7] ^= 4;
    assert!(Ciphertext::from_bytes(&w.params, &other).unwrap().parts()[1] != fresh.parts()[1]);
    // The flag of draws that were made otherwise once.
    other[7] ^= 2;
    assert!(Ciphertext::from_bytes(&w.params, &other).is_err());
    let mut unseeded =
        w.public.encrypt(&w.encoder.encode_complex(&x, w.at(3, 1.0)).unwrap(), &mut w.prg).unwrap();
    unseeded = e.mul(&unseeded, &unseeded).unwrap();
    let mut bytes = unseeded.to_bytes().unwrap();
    assert_eq!(bytes[7] & 4, 0);
    bytes[7] ^= 4;
    assert!(Ciphertext::from_bytes(&w.params, &bytes).is_err());
    // One header for keys of both kinds there is not.
    let mut mixed = w.galois.clone();
    let key = mixed.keys.values_mut().next().unwrap();
    key.key.seed = Seed::fresh(&mut Prg::from_seed([1; 16]));
    assert!(mixed.to_bytes().is_err());
}

/// As `docs/ckks.md` has them, written out: ChaCha itself is compared with published streams.
#[test]
fn uniform_polynomials_of_browsers_are_as_documented() {
    let (w, _) = objects(simd::isa());
    let seed = Seed { bytes: std::array::from_fn(|i| i as u8), maker: Maker::ChaCha };
    let range = w.params.data_range(w.params.level(2).unwrap());
    let poly = seed.expand(&w.params, Domain::Relinearise(1), range.clone()).unwrap();
    for i in range {
        let q = w.params.basis().moduli()[i].value();
        let mut text = b"hushnet ckks uniform chacha 2".to_vec();
        text.extend(seed.bytes);
        text.extend([2, 0, 1, q].into_iter().flat_map(u64::to_le_bytes));
        let mut words = vec![0; 64];
        Prg::chacha(Sha256::digest(text).into()).fill_words(&mut words);
        let (draws, bound): (Vec<u64>, u64) = if q < 1 << 28 {
            (words.into_iter().flat_map(|w| [w & 0xffff_ffff, w >> 32]).collect(), (1 << 32) / q * q)
        } else {
            (words.into_iter().map(|w| w >> 12).collect(), (1 << 52) / q * q)
        };
        let expected = draws.into_iter().filter(|w| *w < bound).map(|w| w % q);
        assert!(expected.zip(poly.limb(i)).all(|(a, b)| a == *b));
    }
}

/// Calls a decoder on every truncation class and on changed bytes; nothing may panic.
fn batter(bytes: &[u8], decode: impl Fn(&[u8]) -> bool) {
    assert!(decode(bytes));
    for cut in (0..100).chain([bytes.len() - 1, bytes.len() / 2]) {
        assert!(!decode(&bytes[..cut.min(bytes.len() - 1)]), "cut at {cut}");
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(!decode(&longer));
    for at in 0..HEADER_BYTES {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1;
        assert!(!decode(&changed), "header byte {at}");
    }
    for at in HEADER_BYTES..bytes.len().min(HEADER_BYTES + 64) {
        for flip in [1, 0x80, 0xff] {
            let mut changed = bytes.to_vec();
            changed[at] ^= flip;
            decode(&changed);
        }
    }
    // All ones: residues above their primes.
    let mut ones = bytes.to_vec();
    let half = HEADER_BYTES + (bytes.len() - HEADER_BYTES) / 2;
    ones[half..].fill(0xff);
    assert!(!decode(&ones));
}

#[test]
fn decoders_refuse_what_they_did_not_write() {
    let (w, objects) = objects(simd::isa());
    let p = &w.params;
    for (name, bytes) in &objects {
        match *name {
            "public key" => batter(bytes, |b| PublicKey::from_bytes(p, b).is_ok()),
            "relin key" => batter(bytes, |b| RelinKey::from_bytes(p, b).is_ok()),
            "galois keys" => {
                // Reading them is slow; the header and lengths are what the others test too.
                assert!(GaloisKeys::from_bytes(p, &bytes[..bytes.len() - 1]).is_err());
                let count = HEADER_BYTES + 16;
                let refused = |change: &dyn Fn(&mut [u8]), why: &str| {
                    let mut changed = bytes.clone();
                    change(&mut changed);
                    let damaged = GaloisKeys::from_bytes(p, &changed).err().unwrap().to_string();
                    assert!(damaged.contains("checksum"), "{damaged}");
                    let end = changed.len() - 32;
                    let sum = Sha256::digest(&changed[..end]);
                    changed[end..].copy_from_slice(&sum);
                    let error = GaloisKeys::from_bytes(p, &changed).err().unwrap().to_string();
                    assert!(error.contains(why), "{error}");
                };
                refused(&|b| b[count..count + 4].fill(0xff), "length");
                refused(&|b| b[count + 4] ^= 1, "exponents");
                refused(&|b| b[bytes.len() - 40..][..8].fill(0xff), "residue");
            }
            "fresh" | "product" => batter(bytes, |b| Ciphertext::from_bytes(p, b).is_ok()),
            _ => assert!(PublicKey::from_bytes(p, bytes).is_err()),
        }
    }
    let fresh = objects.iter().find(|(name, _)| *name == "fresh").map(|(_, bytes)| bytes).unwrap();
    let c = Ciphertext::from_bytes(p, fresh).unwrap();
    for off in [-1, 1] {
        let mut room = vec![0; fresh.len().wrapping_add_signed(off)];
        assert!(matches!(c.write_bytes(&mut room), Err(CkksError::Bytes { .. })));
    }
    let mut room = vec![0xA5; fresh.len()];
    c.write_bytes(&mut room).unwrap();
    assert_eq!(&room, fresh);
    let other = CkksSpec::with_depth(2048, 40, 2, 31, 40).check_insecure(Insecure).unwrap();
    for (_, bytes) in objects.iter().filter(|(name, _)| *name == "fresh") {
        assert_eq!(Ciphertext::from_bytes(&other, bytes).err(), Some(CkksError::ForeignParams("ciphertext")));
    }
}

#[test]
fn limbs_leave_and_come_back() {
    let (mut w, _) = objects(simd::isa());
    let x = w.values(1.0);
    let c = w.encrypt(&x, 2, 1.0);
    assert_eq!(c.limb(1, 1), c.parts()[1].limb(w.params.data_range(c.level()).start + 1));
    let make = |parts| Ciphertext::from_parts(&w.params, parts, c.scale(), c.bound(), c.noise());
    assert!(make(c.parts().to_vec()).unwrap().parts() == c.parts());
    let mut large = c.parts().to_vec();
    large[1].words_mut()[5] = u64::MAX;
    assert!(matches!(make(large), Err(CkksError::Bytes { .. })));
    let mut uneven = c.parts().to_vec();
    let end = uneven[1].range().end;
    uneven[1].truncate(end - 1);
    assert!(matches!(make(uneven), Err(CkksError::Bytes { .. })));
    assert!(matches!(make(c.parts()[..1].to_vec()), Err(CkksError::Parts { .. })));
}
