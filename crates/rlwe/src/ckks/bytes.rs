//! Versioned bytes of keys and ciphertexts (`docs/ckks.md`, "Bytes").
//!
//! Header, 48 bytes: magic `HNCK`, version u16, kind u8, flags u8 (1: insecure parameters; 4: seeds are for ChaCha), parameter
//! hash (32 bytes), payload length u64; little-endian. Decoders compare the length with what the kind, the
//! parameters and the few count fields demand before they allocate, and every residue with its prime.

use super::bootstrap::{down_range, up_range, BootstrapParams, Encapsulation};
use super::ciphertext::{Domain, Maker, Seed};
use super::switching::{GaloisKey, Owner, SwitchingKey};
use super::{Ciphertext, CkksError, CkksParams, GaloisKeys, Level, PublicKey, RelinKey};
use hushnet_ring::pack::{pack, packed_len, unpack};
use hushnet_ring::rns::{Eval, RnsPoly};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;

/// Version of the byte format.
pub const FORMAT_VERSION: u16 = 2;
const MAGIC: [u8; 4] = *b"HNCK";
/// Number of bytes of the header of serialised objects.
pub const HEADER_BYTES: usize = 48;
/// The secret that a key belongs to, behind the header.
const OWNER_BYTES: usize = size_of::<Owner>();
/// SHA-256 of all before, at the end of a key.
const CHECKSUM_BYTES: usize = 32;
/// What all keys have beside their own.
const KEY_BYTES: usize = HEADER_BYTES + OWNER_BYTES + CHECKSUM_BYTES;
/// Level u16, parts u8, seeded u8, scale, bound, sd f64.
const CIPHERTEXT_FIELDS: usize = 28;

#[derive(Clone, Copy)]
enum Kind {
    Ciphertext = 1,
    PublicKey = 2,
    RelinKey = 3,
    GaloisKeys = 4,
    GaloisKeysAt = 5,
    Encapsulation = 6,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Ciphertext => "ciphertext",
            Kind::PublicKey => "public key",
            Kind::RelinKey => "relinearisation key",
            Kind::GaloisKeys | Kind::GaloisKeysAt => "Galois keys",
            Kind::Encapsulation => "bootstrapping keys",
        }
    }
}

fn bits_at(params: &CkksParams, i: usize) -> u32 {
    64 - params.basis().moduli()[i].value().leading_zeros()
}

/// Bytes of the packed limbs at `range`: N words of the prime's bits each.
fn poly_bytes(params: &CkksParams, range: Range<usize>) -> usize {
    range.map(|i| packed_len(params.ring_degree(), bits_at(params, i))).sum()
}

/// The flag of what makes the uniform polynomials.
fn flag(maker: Maker) -> u8 {
    match maker {
        Maker::Aes => 0,
        // 2 stood for draws of 52 bits from all primes.
        Maker::ChaCha => 4,
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    /// Bytes written.
    at: usize,
}

impl<'a> Writer<'a> {
    /// All of `bytes`: a header and as much payload as follows it.
    fn new(kind: Kind, params: &CkksParams, maker: Maker, bytes: &'a mut [u8]) -> Self {
        let payload = bytes.len() - HEADER_BYTES;
        let mut out = Self { bytes, at: 0 };
        out.put(&MAGIC);
        out.put(&FORMAT_VERSION.to_le_bytes());
        out.put(&[kind as u8, u8::from(!params.is_secure()) | flag(maker)]);
        out.put(params.hash());
        out.put(&(payload as u64).to_le_bytes());
        out
    }

    /// As [`Self::new`], of a key: its owner follows the header, and [`Self::seal`] ends it.
    fn key(kind: Kind, params: &CkksParams, (maker, owner): (Maker, &Owner), bytes: &'a mut [u8]) -> Self {
        let mut out = Self::new(kind, params, maker, bytes);
        out.put(owner);
        out
    }

    /// The checksum of all that was written.
    fn seal(mut self) {
        let sum = Sha256::digest(&self.bytes[..self.at]);
        self.put(&sum);
    }

    fn room(&mut self, count: usize) -> &mut [u8] {
        self.at += count;
        &mut self.bytes[self.at - count..self.at]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    fn poly(&mut self, params: &CkksParams, p: &RnsPoly<Eval>) -> Result<(), CkksError> {
        for i in p.range() {
            let bits = bits_at(params, i);
            pack(p.limb(i), bits, self.room(packed_len(params.ring_degree(), bits)))?;
        }
        Ok(())
    }
}

struct Reader<'a> {
    kind: Kind,
    maker: Maker,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(kind: Kind, params: &CkksParams, bytes: &'a [u8]) -> Result<Self, CkksError> {
        let fail = |why| CkksError::Bytes { what: kind.name(), why };
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES).ok_or(fail("shorter than its header"))?;
        let (version, hash) = (u16::from_le_bytes([header[4], header[5]]), &header[8..40]);
        if header[..4] != MAGIC {
            return Err(fail("not made by this program (wrong magic)"));
        }
        if version != FORMAT_VERSION {
            return Err(fail("unknown format version; use the program version that wrote it"));
        }
        if header[6] != kind as u8 {
            return Err(fail("another kind of object"));
        }
        let maker = if header[7] & flag(Maker::ChaCha) == 0 { Maker::Aes } else { Maker::ChaCha };
        if hash != params.hash() || header[7] != u8::from(!params.is_secure()) | flag(maker) {
            return Err(CkksError::ForeignParams(kind.name()));
        }
        if header[40..48] != (rest.len() as u64).to_le_bytes() {
            return Err(fail("the length in its header is not the length that came"));
        }
        Ok(Self { kind, maker, rest })
    }

    /// As [`Self::new`], of a key: the checksum is right; its owner.
    fn key(kind: Kind, params: &CkksParams, bytes: &'a [u8]) -> Result<(Self, Owner), CkksError> {
        let mut r = Self::new(kind, params, bytes)?;
        let end = r.rest.len().checked_sub(CHECKSUM_BYTES).ok_or(r.fail("truncated"))?;
        let (all, sum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if Sha256::digest(all)[..] != *sum {
            return Err(r.fail("its checksum is not that of its bytes; send it again"));
        }
        r.rest = &r.rest[..end];
        let owner = r.array()?;
        Ok((r, owner))
    }

    fn fail(&self, why: &'static str) -> CkksError {
        CkksError::Bytes { what: self.kind.name(), why }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], CkksError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(self.fail("truncated"))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const K: usize>(&mut self) -> Result<[u8; K], CkksError> {
        let mut out = [0; K];
        out.copy_from_slice(self.take(K)?);
        Ok(out)
    }

    fn seed(&mut self) -> Result<Seed, CkksError> {
        Ok(Seed { bytes: self.array()?, maker: self.maker })
    }

    fn number(&mut self) -> Result<f64, CkksError> {
        let v = f64::from_le_bytes(self.array()?);
        if !v.is_finite() || v < 0.0 {
            return Err(self.fail("a scale, bound or error is not a finite number of at least 0"));
        }
        Ok(v)
    }

    /// That exactly `count` bytes remain.
    fn expect(&self, count: usize) -> Result<(), CkksError> {
        if self.rest.len() == count {
            Ok(())
        } else {
            Err(self.fail("its length does not fit its parameters"))
        }
    }

    fn poly(&mut self, params: &CkksParams, range: Range<usize>) -> Result<RnsPoly<Eval>, CkksError> {
        params.basis().fill_with(range, |i, limb| {
            let bits = bits_at(params, i);
            unpack(self.take(packed_len(params.ring_degree(), bits))?, bits, limb)?;
            let q = params.basis().moduli()[i].value();
            // Words are below 2^50, so that differences do not wrap where they do not borrow.
            if limb.iter().fold(0, |borrows, w| borrows | (q - 1).wrapping_sub(*w)) >> 63 != 0 {
                return Err(self.fail("a residue is not below its prime"));
            }
            Ok(())
        })
    }
}

impl Ciphertext {
    /// Number of bytes that [`Self::to_bytes`] writes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        let one = poly_bytes(&self.params, self.params.data_range(self.level));
        HEADER_BYTES + CIPHERTEXT_FIELDS + if self.seed.is_some() { 32 + one } else { self.parts.len() * one }
    }

    /// Level, parts, scale, bounds, then the parts with each residue in as many bits as its prime; of a fresh
    /// symmetric encryption c0 and the seed of c1.
    ///
    /// # Errors
    /// [`CkksError`] only when the ring refuses, which checked parameters exclude.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CkksError> {
        let mut bytes = vec![0; self.byte_len()];
        self.write_bytes(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes [`Self::to_bytes`] where they go.
    ///
    /// # Errors
    /// [`CkksError::Bytes`] unless there is room for [`Self::byte_len`] bytes and no more.
    pub fn write_bytes(&self, bytes: &mut [u8]) -> Result<(), CkksError> {
        if bytes.len() != self.byte_len() {
            return Err(CkksError::Bytes {
                what: Kind::Ciphertext.name(),
                why: "the room for it has another length",
            });
        }
        let maker = self.seed.map_or(Maker::Aes, |s| s.maker);
        let mut w = Writer::new(Kind::Ciphertext, &self.params, maker, bytes);
        w.put(&(self.level.0 as u16).to_le_bytes());
        w.put(&[self.parts.len() as u8, u8::from(self.seed.is_some())]);
        for v in [self.scale, self.bound, self.sd] {
            w.put(&v.to_le_bytes());
        }
        match &self.seed {
            Some(seed) => {
                w.put(&seed.bytes);
                w.poly(&self.params, &self.parts[0])?;
            }
            None => {
                for p in &self.parts {
                    w.poly(&self.params, p)?;
                }
            }
        }
        Ok(())
    }

    /// Reads [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`CkksError::Bytes`], [`CkksError::ForeignParams`], [`CkksError::Level`], [`CkksError::Capacity`].
    pub fn from_bytes(params: &CkksParams, bytes: &[u8]) -> Result<Self, CkksError> {
        let mut r = Reader::new(Kind::Ciphertext, params, bytes)?;
        let level = params.level(usize::from(u16::from_le_bytes(r.array()?)))?;
        let [count, seeded] = r.array()?;
        let (scale, bound, sd) = (r.number()?, r.number()?, r.number()?);
        params.check_capacity(bound, scale, level)?;
        let range = params.data_range(level);
        let one = poly_bytes(params, range.clone());
        let mut c = Self { params: params.clone(), parts: Vec::new(), level, scale, bound, sd, seed: None };
        match (seeded, count) {
            (1, 2) => {
                r.expect(32 + one)?;
                let seed = r.seed()?;
                c.parts =
                    vec![r.poly(params, range.clone())?, seed.expand(params, Domain::Ciphertext, range)?];
                c.seed = Some(seed);
            }
            (0, 2 | 3) if r.maker == Maker::Aes => {
                r.expect(usize::from(count) * one)?;
                for _ in 0..count {
                    c.parts.push(r.poly(params, range.clone())?);
                }
            }
            _ => return Err(r.fail("wrong number of parts, or a generator without a seed")),
        }
        Ok(c)
    }
}

impl PublicKey {
    /// Owner, seed, one polynomial, checksum.
    ///
    /// # Errors
    /// [`CkksError`] only when the ring refuses, which checked parameters exclude.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CkksError> {
        let payload = 32 + poly_bytes(&self.params, self.b.range());
        let mut bytes = vec![0; KEY_BYTES + payload];
        let mut w = Writer::key(Kind::PublicKey, &self.params, (self.seed.maker, &self.owner), &mut bytes);
        w.put(&self.seed.bytes);
        w.poly(&self.params, &self.b)?;
        w.seal();
        Ok(bytes)
    }

    /// Reads [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`CkksError::Bytes`], [`CkksError::ForeignParams`].
    pub fn from_bytes(params: &CkksParams, bytes: &[u8]) -> Result<Self, CkksError> {
        let (mut r, owner) = Reader::key(Kind::PublicKey, params, bytes)?;
        let range = params.data_range(params.max_level());
        r.expect(32 + poly_bytes(params, range.clone()))?;
        let seed = r.seed()?;
        let b = r.poly(params, range.clone())?;
        let a = seed.expand(params, Domain::PublicKey, range)?;
        Ok(Self { params: params.clone(), owner, b, a, seed })
    }
}

/// Bytes of one switching key: seed and a polynomial over the special primes and those of its level, a digit.
fn switching_bytes(params: &CkksParams, level: Level) -> usize {
    32 + params.digits_at(level) * poly_bytes(params, params.extended_range(level))
}

impl CkksParams {
    /// Bytes of a relinearisation key.
    #[must_use]
    pub fn relin_key_bytes(&self) -> usize {
        KEY_BYTES + switching_bytes(self, self.key_level())
    }

    /// Bytes of Galois keys of these levels, one for each automorphism.
    #[must_use]
    pub fn galois_keys_bytes(&self, levels: &[Level]) -> usize {
        let levelled = levels.iter().any(|l| *l < self.key_level());
        let each = |l: &Level| 4 + 2 * usize::from(levelled) + switching_bytes(self, *l);
        KEY_BYTES + 4 + levels.iter().map(each).sum::<usize>()
    }

    /// Bytes of a public key.
    #[must_use]
    pub fn public_key_bytes(&self) -> usize {
        KEY_BYTES + 32 + poly_bytes(self, self.data_range(self.max_level()))
    }

    /// Bytes of a fresh ciphertext of a level, whose second part is a seed.
    #[must_use]
    pub fn fresh_ciphertext_bytes(&self, level: Level) -> usize {
        HEADER_BYTES + CIPHERTEXT_FIELDS + 32 + poly_bytes(self, self.data_range(level))
    }

    /// Bytes of a ciphertext of two parts.
    #[must_use]
    pub fn ciphertext_bytes(&self, level: Level) -> usize {
        HEADER_BYTES + CIPHERTEXT_FIELDS + 2 * poly_bytes(self, self.data_range(level))
    }
}

fn write_switching(w: &mut Writer<'_>, params: &CkksParams, key: &SwitchingKey) -> Result<(), CkksError> {
    w.put(&key.seed.bytes);
    key.b.iter().try_for_each(|b| w.poly(params, b))
}

fn read_switching(
    r: &mut Reader<'_>,
    params: &CkksParams,
    level: Level,
    domain: impl Fn(usize) -> Domain,
) -> Result<SwitchingKey, CkksError> {
    let range = params.extended_range(level);
    let mut key = SwitchingKey { seed: r.seed()?, level, b: Vec::new(), a: Vec::new() };
    for d in 0..params.digits_at(level) {
        key.b.push(r.poly(params, range.clone())?);
        key.a.push(key.seed.expand(params, domain(d), range.clone())?);
    }
    Ok(key)
}

impl RelinKey {
    /// Owner, seed and one polynomial over all primes a digit, checksum.
    ///
    /// # Errors
    /// [`CkksError`] only when the ring refuses, which checked parameters exclude.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CkksError> {
        let mut bytes = vec![0; KEY_BYTES + switching_bytes(&self.params, self.key.level)];
        let mut w = Writer::key(Kind::RelinKey, &self.params, (self.key.seed.maker, &self.owner), &mut bytes);
        write_switching(&mut w, &self.params, &self.key)?;
        w.seal();
        Ok(bytes)
    }

    /// Reads [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`CkksError::Bytes`], [`CkksError::ForeignParams`], [`CkksError::NoSpecialPrime`].
    pub fn from_bytes(params: &CkksParams, bytes: &[u8]) -> Result<Self, CkksError> {
        params.needs_special()?;
        let (mut r, owner) = Reader::key(Kind::RelinKey, params, bytes)?;
        r.expect(switching_bytes(params, params.key_level()))?;
        let key = read_switching(&mut r, params, params.key_level(), Domain::Relinearise)?;
        Ok(Self { params: params.clone(), owner, key })
    }
}

impl GaloisKeys {
    /// Number of bytes that [`Self::to_bytes`] writes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        let levels: Vec<Level> = self.keys.values().map(|k| k.key.level).collect();
        self.params.galois_keys_bytes(&levels)
    }

    /// Owner, count u32, then per key its exponent u32, (only where a key serves lower levels than others could) its level
    /// u16, seed and one polynomial a digit; exponents increase. A checksum ends it.
    ///
    /// # Errors
    /// [`CkksError`] only when the ring refuses, which checked parameters exclude.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CkksError> {
        let levelled = self.keys.values().any(|k| k.key.level < self.params.key_level());
        let kind = if levelled { Kind::GaloisKeysAt } else { Kind::GaloisKeys };
        let mut bytes = vec![0; self.byte_len()];
        let mut makers = self.keys.values().map(|k| k.key.seed.maker);
        let maker = makers.next().unwrap_or(Maker::Aes);
        if makers.any(|m| m != maker) {
            return Err(CkksError::Bytes { what: kind.name(), why: "its keys are from unlike machines" });
        }
        let mut w = Writer::key(kind, &self.params, (maker, &self.owner), &mut bytes);
        w.put(&(self.keys.len() as u32).to_le_bytes());
        for (&exponent, key) in &self.keys {
            w.put(&(exponent as u32).to_le_bytes());
            if levelled {
                w.put(&(key.key.level.0 as u16).to_le_bytes());
            }
            write_switching(&mut w, &self.params, &key.key)?;
        }
        w.seal();
        Ok(bytes)
    }

    /// Reads [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`CkksError::Bytes`], [`CkksError::ForeignParams`], [`CkksError::NoSpecialPrime`].
    pub fn from_bytes(params: &CkksParams, bytes: &[u8]) -> Result<Self, CkksError> {
        params.needs_special()?;
        let levelled = bytes.get(6) == Some(&(Kind::GaloisKeysAt as u8));
        let kind = if levelled { Kind::GaloisKeysAt } else { Kind::GaloisKeys };
        let (mut r, owner) = Reader::key(kind, params, bytes)?;
        let count = u32::from_le_bytes(r.array()?) as usize;
        if !levelled {
            match count.checked_mul(4 + switching_bytes(params, params.key_level())) {
                Some(total) => r.expect(total)?,
                None => return Err(r.fail("its length does not fit its parameters")),
            }
        }
        let mut keys = BTreeMap::new();
        let mut last = 1;
        for _ in 0..count {
            let exponent = u32::from_le_bytes(r.array()?) as usize;
            if exponent <= last || exponent.is_multiple_of(2) || exponent >= 2 * params.ring_degree() {
                return Err(r.fail("exponents are not odd, below 2N and increasing"));
            }
            last = exponent;
            let level = if levelled {
                params.level(usize::from(u16::from_le_bytes(r.array()?)))?
            } else {
                params.key_level()
            };
            if level > params.key_level() || r.rest.len() < switching_bytes(params, level) {
                return Err(r.fail("a key of a level that has none, or truncated"));
            }
            let key = read_switching(&mut r, params, level, |d| Domain::Galois(exponent, d))?;
            keys.insert(exponent, GaloisKey::new(params, exponent, key)?);
        }
        r.expect(0)?;
        Ok(Self { params: params.clone(), owner, keys })
    }
}

/// Bytes of the pair of an ephemeral secret whose way back has so many keys.
pub(super) fn encapsulation_bytes(params: &CkksParams, parts: usize) -> usize {
    let down = 32 + poly_bytes(params, down_range(params));
    KEY_BYTES + down + 32 + parts * poly_bytes(params, up_range(params))
}

impl Encapsulation {
    /// Owner, the key to the ephemeral secret (seed, b over the last special prime and q_0), those from it (seed, b of every part over
    /// that prime and all data primes), checksum.
    ///
    /// # Errors
    /// [`CkksError`] only when the ring refuses, which checked parameters exclude.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CkksError> {
        let mut bytes = vec![0; encapsulation_bytes(&self.params, self.up.b.len())];
        let mut w =
            Writer::key(Kind::Encapsulation, &self.params, (self.up.seed.maker, &self.owner), &mut bytes);
        write_switching(&mut w, &self.params, &self.down)?;
        write_switching(&mut w, &self.params, &self.up)?;
        w.seal();
        Ok(bytes)
    }

    /// Reads [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`CkksError::Bytes`] for damaged bytes, [`CkksError::ForeignParams`], [`CkksError::NoSpecialPrime`].
    pub fn from_bytes(bootstrap: &BootstrapParams, bytes: &[u8]) -> Result<Self, CkksError> {
        let params = bootstrap.ckks();
        let (mut r, owner) = Reader::key(Kind::Encapsulation, params, bytes)?;
        r.expect(bootstrap.encapsulation_bytes() - KEY_BYTES)?;
        let range = down_range(params);
        let seed = r.seed()?;
        let b = vec![r.poly(params, range.clone())?];
        let a = vec![seed.expand(params, Domain::Encapsulate, range)?];
        let down = SwitchingKey { seed, level: Level(1), b, a };
        let mut up =
            SwitchingKey { seed: r.seed()?, level: params.max_level(), b: Vec::new(), a: Vec::new() };
        for i in 0..bootstrap.parts() {
            up.b.push(r.poly(params, up_range(params))?);
            up.a.push(up.seed.expand(params, Domain::Release(i), up_range(params))?);
        }
        Ok(Self { params: params.clone(), owner, down, up })
    }
}
