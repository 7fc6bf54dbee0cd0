use super::*;
use crate::batch::{Dense, Geometry, LayerError};
use crate::geometries::{conv, oracle};
use crate::layout::Layout;
use hushnet_ring::{low_mask, Prg};
use hushnet_rlwe::CipherError;

fn random(prg: &mut Prg, len: usize, mask: u64) -> Vec<u64> {
    let mut v = vec![0; len];
    prg.fill_words(&mut v);
    v.iter_mut().for_each(|x| *x &= mask);
    v
}

/// Collects a set-up with an interruption in the middle.
fn collect(linear: &RotationFreeLinear) -> Setup {
    let design = linear.design();
    let mut setup = Setup::begin(design, &linear.setup_header()).unwrap();
    while setup.received() < setup.expected() {
        setup.receive(&linear.setup_poly(setup.received()).unwrap()).unwrap();
        if setup.received() == setup.expected() / 2 {
            setup = Setup::from_bytes(design, &setup.to_bytes()).unwrap();
        }
    }
    assert!(setup.receive(&linear.setup_poly(0).unwrap()).is_err());
    assert!(linear.setup_poly(setup.expected()).is_err());
    assert_eq!(setup.to_bytes().len() - 80 - 16 * setup.expected(), design.cost().bytes_setup);
    assert_eq!(setup.to_bytes().len(), setup.stored_len(setup.expected()));
    setup
}

/// Both halves against the sums by definition. Returns (elements, off by one, off by one after truncation by `truncate` bits).
fn check(geometry: &Geometry, ring_bits: u32, profile: Profile, truncate: u32, queries: usize) -> [usize; 3] {
    let mut prg = Prg::from_seed([3; 16]);
    let mask = low_mask(ring_bits);
    let shape = Layout::choose(geometry, 4096, &DEFAULT_PRICES).unwrap();
    let weights: Vec<i16> =
        random(&mut prg, shape.weight_len(), 255).iter().map(|w| *w as i16 - 128).collect();
    let bias: Vec<i64> =
        random(&mut prg, shape.channels_out(), 0xffff).iter().map(|b| *b as i64 - 32768).collect();
    let design = Design::for_weights(geometry, &weights, ring_bits, profile, 7).unwrap();
    let cost = design.cost();
    let linear = RotationFreeLinear::new(&design, &weights, &bias, false, &mut prg).unwrap();
    let setup = collect(&linear);
    let client = RotationFreeClient::new(&design, &setup).unwrap();
    let l = &design.layout;
    let pixels = l.output_len() / l.channels_out();
    let mut counts = [0; 3];
    for _ in 0..queries {
        let mine = random(&mut prg, l.input_len(), mask);
        let theirs = random(&mut prg, l.input_len(), mask);
        let (mut own, mut got) = (vec![0; l.output_len()], vec![0; l.output_len()]);
        let (mut up, mut down) = (0, 0);
        let mut spent = [TallyCounts::default(); 2];
        let (c0, s0) = (client.tally(), linear.tally());
        for tile in 0..l.tiles() {
            let mut prepared = client.prepare(tile).unwrap();
            let share = linear.share(tile, &theirs).unwrap();
            if tile + 1 == l.tiles() && tile == 0 {
                spent = [minus(client.tally(), c0), minus(linear.tally(), s0)];
            }
            let request = client.request(&mut prepared, &mine).unwrap();
            let answer = linear.answer(tile, &share, &request, &mut own).unwrap();
            assert_eq!((request.len(), answer.len()), (design.request_len(), design.answer_len(tile)));
            client.open(&prepared, &answer, &mut got).unwrap();
            assert!(client.open(&prepared, &answer[1..], &mut got).is_err());
            assert!(linear.answer(tile, &share, &request[1..], &mut own).is_err());
            (up, down) = (up + request.len(), down + answer.len());
        }
        assert_eq!((up, down), (cost.bytes_up, cost.bytes_down));
        assert_eq!(minus(client.tally(), c0), cost.client_offline + cost.client_online);
        assert_eq!(minus(linear.tally(), s0), cost.server_offline + cost.server_online);
        if l.tiles() == 1 {
            assert_eq!(spent, [cost.client_offline, cost.server_offline]);
        }
        let x: Vec<u64> = mine.iter().zip(&theirs).map(|(a, b)| a.wrapping_add(*b)).collect();
        for (e, w) in oracle(geometry, &x, &weights).iter().enumerate() {
            let want = w.wrapping_add(bias[e / pixels] as u64) & mask;
            let sum = own[e].wrapping_add(got[e]) & mask;
            let error = sum.wrapping_sub(want) & mask;
            assert!(error == 0 || error == 1 || error == mask, "{geometry:?} element {e}: {error}");
            counts[0] += 1;
            counts[1] += usize::from(error != 0);
            counts[2] += usize::from(sum >> truncate != want >> truncate);
        }
    }
    counts
}

fn minus(a: TallyCounts, b: TallyCounts) -> TallyCounts {
    TallyCounts {
        ntt: a.ntt - b.ntt,
        intt: a.intt - b.intt,
        products: a.products - b.products,
        rotations: a.rotations - b.rotations,
    }
}

#[test]
fn shares_of_layers_of_every_kind() {
    for (k, geometry) in [
        conv(3, 15, 5, 3, 1, 1, 1),
        conv(3, 33, 4, 7, 2, 3, 1),
        conv(20, 9, 13, 1, 1, 0, 1),
        conv(6, 14, 6, 3, 2, 1, 6),
        conv(8, 60, 2, 1, 2, 0, 2),
        conv(64, 7, 40, 3, 1, 1, 1),
        conv(5, 80, 3, 3, 1, 1, 1),
        Geometry::dense(Dense { inputs: 3000, outputs: 11 }).unwrap(),
        Geometry::dense(Dense { inputs: 100, outputs: 301 }).unwrap(),
        Geometry::dense(Dense { inputs: 1, outputs: 1 }).unwrap(),
    ]
    .iter()
    .enumerate()
    {
        let profile = if k % 3 == 1 { Profile::Flooded } else { Profile::Compact };
        let [all, off, _] = check(geometry, 26, profile, 8, 1);
        assert!(off as f64 <= 0.03 * all as f64 + 4.0, "{geometry:?}: {off} of {all}");
    }
}

#[test]
fn a_million_outputs_are_within_one_unit_and_truncation_hides_all_but_few() {
    // 64 channels of 16x16 and 8x8: both profiles, 2^20 outputs together and more.
    let (mut all, mut off, mut truncated) = (0, 0, 0);
    for (profile, geometry, queries) in [
        (Profile::Compact, conv(8, 64, 64, 3, 1, 1, 1), 3),
        (Profile::Flooded, conv(8, 64, 64, 3, 1, 1, 1), 2),
    ] {
        let counts = check(&geometry, 30, profile, 9, queries);
        let predicted = {
            let w = vec![127i16; 64 * 72];
            Design::for_weights(&geometry, &w, 30, profile, 0).unwrap().params.spec().off_by_one_fraction()
        };
        let fraction = counts[1] as f64 / counts[0] as f64;
        assert!(fraction < 1.1 * predicted + 1e-3, "{profile:?}: {fraction}, predicted {predicted}");
        // A unit crosses a multiple of 2^9 in one case of 2^9.
        let expected = counts[0] as f64 * predicted / 512.0;
        assert!((counts[2] as f64) < expected + 5.0 * expected.sqrt() + 3.0, "{} of {expected}", counts[2]);
        all += counts[0];
        off += counts[1];
        truncated += counts[2];
    }
    assert!(all >= 1_000_000 && off > 0 && truncated < off / 100, "{all} {off} {truncated}");
}

#[test]
fn damaged_and_foreign_set_ups_are_refused() {
    let mut prg = Prg::from_seed([5; 16]);
    let geometry = Geometry::dense(Dense { inputs: 1000, outputs: 9 }).unwrap();
    let weights = vec![3i16; 9000];
    let design = Design::for_weights(&geometry, &weights, 20, Profile::Compact, 1).unwrap();
    let linear = RotationFreeLinear::new(&design, &weights, &[0; 9], true, &mut prg).unwrap();
    let setup = collect(&linear);
    let stored = setup.to_bytes();
    for at in [0, 5, 10, 20, 60, 100, stored.len() - 1] {
        let mut bytes = stored.clone();
        bytes[at] ^= 1;
        assert!(Setup::from_bytes(&design, &bytes).is_err(), "{at}");
    }
    for len in [0, 31, 50, 79] {
        assert!(Setup::from_bytes(&design, &stored[..len]).is_err(), "{len}");
    }
    assert!(Setup::from_bytes(&design, &[&stored[..], &[0]].concat()).is_err());
    // A file cut anywhere else goes on where whole polynomials end.
    let record = design.setup_poly_len() + 16;
    for len in [80, 81, 79 + record, 80 + record, stored.len() - 1] {
        let cut = Setup::from_bytes(&design, &stored[..len]).unwrap();
        assert_eq!(cut.received(), (len - 80) / record, "{len}");
        let grown = [&stored[..cut.stored_len(cut.received())], &setup.records(cut.received())].concat();
        assert!(grown == stored && cut.header() == setup.header());
    }
    // Polynomials in another order, or of another set-up of the same layer.
    assert!(setup.expected() > 1);
    let mut swapped = stored.clone();
    swapped[80..80 + 2 * record].rotate_left(record);
    assert!(Setup::from_bytes(&design, &swapped).is_err());
    let again = RotationFreeLinear::new(&design, &weights, &[0; 9], true, &mut prg).unwrap();
    assert_ne!(again.setup_header(), linear.setup_header());
    let mixed = [&again.setup_header()[..], &stored[80..]].concat();
    assert!(Setup::from_bytes(&design, &mixed).is_err());
    // The same bytes whenever they are asked for, with keys kept or not.
    assert!((0..setup.expected()).all(|k| linear.setup_poly(k).unwrap() == linear.setup_poly(k).unwrap()));
    let other = Design::for_weights(&geometry, &weights, 21, Profile::Compact, 1).unwrap();
    assert!(Setup::from_bytes(&other, &stored).is_err());
    assert!(Setup::begin(&design, &linear.setup_header()[1..]).is_err());
    let empty = Setup::begin(&design, &linear.setup_header()).unwrap();
    assert!(RotationFreeClient::new(&design, &empty).is_err());
    // Words that are not below their primes.
    let mut bad = empty.clone();
    for _ in 0..bad.expected() {
        bad.receive(&vec![0xff; design.setup_poly_len()]).unwrap();
    }
    assert!(matches!(
        RotationFreeClient::new(&design, &bad),
        Err(LayerError::Cipher(CipherError::NotReduced))
    ));
    // Weights beyond what the design says.
    assert!(RotationFreeLinear::new(&design, &[100; 9000], &[0; 9], true, &mut prg).is_err());
    assert!(RotationFreeLinear::new(&design, &[1; 8999], &[0; 9], true, &mut prg).is_err());
}
