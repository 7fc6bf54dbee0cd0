use super::*;
use hushnet_ring::Prg;
use hushnet_rlwe::wide::WideRuns;
use proptest::prelude::*;

/// Each party's key, and what it holds of the other one's.
struct World {
    spacing: usize,
    holders: [MatrixHolder; 2],
    multipliers: [MatrixMultiplier; 2],
}

fn world(spacing: usize) -> World {
    let context = WideContext::new().unwrap();
    let made =
        [(); 2].map(|()| MatrixHolder::generate(&context, spacing, &mut Prg::from_os().unwrap()).unwrap());
    let [(first, keys_0), (second, keys_1)] = made;
    let multipliers = [keys_1, keys_0].map(|keys| {
        assert_eq!(keys.len(), MatrixProduct::key_len(&context, spacing));
        assert!(MatrixMultiplier::read(&context, spacing, &keys[1..]).is_err());
        assert!(MatrixMultiplier::read(&context, spacing, &vec![0xff; keys.len()]).is_err());
        MatrixMultiplier::read(&context, spacing, &keys).unwrap()
    });
    World { spacing, holders: [first, second], multipliers }
}

/// Both parties' shares of the result, from their shares of the operands.
fn exchange(world: &World, product: &MatrixProduct, shares: [(&[u64], &[u64]); 2]) -> [Vec<u64>; 2] {
    let mut own = shares.map(|(a, b)| product.local(a, b).unwrap());
    let requests = [0, 1].map(|p| world.holders[p].request(product, shares[p].0, shares[p].1).unwrap());
    let answers = [0, 1]
        .map(|p| world.multipliers[p].answer(product, &requests[1 - p], shares[p], &mut own[p]).unwrap());
    for p in 0..2 {
        world.holders[p].open(product, &answers[1 - p], &mut own[p]).unwrap();
        assert_eq!(requests[p].len(), product.request_len());
        assert_eq!(answers[p].len(), product.answer_len());
    }
    assert_ne!(requests[0][..SEED_BYTES], requests[1][..SEED_BYTES], "two requests from one seed");
    own
}

fn random(prg: &mut Prg, len: usize, bits: u32) -> Vec<u64> {
    let mut v = vec![0; len];
    prg.fill_words(&mut v);
    v.iter_mut().for_each(|x| *x &= low_mask(bits));
    v
}

/// The products by definition, modulo 2^64.
fn oracle(shape: &MatrixShape, a: &[u64], b: &[u64]) -> Vec<u64> {
    let mut out = Vec::new();
    for h in 0..shape.heads {
        for i in 0..shape.rows {
            for c in 0..shape.columns {
                let at = |j: usize| {
                    let (x, y) =
                        ((h * shape.rows + i) * shape.inner + j, (h * shape.inner + j) * shape.columns + c);
                    a[x].wrapping_mul(b[y])
                };
                out.push((0..shape.inner).map(at).fold(0u64, u64::wrapping_add));
            }
        }
    }
    out
}

/// What the noise rests on, without a walk over all weights.
#[test]
fn terms_are_the_weights_that_meet_in_a_polynomial() {
    for (heads, rows, inner, columns) in
        [(1, 1, 1, 1), (3, 3, 5, 7), (12, 16, 4, 9), (1, 100, 70, 130), (2, 9, 300, 3)]
    {
        let product = MatrixProduct::new(MatrixShape { heads, rows, inner, columns }, 30).unwrap();
        for factor in [Factor::Left, Factor::Right] {
            let term = Term::new(product.shape(), factor, 30).unwrap();
            let counted = (0..term.layout.output_blocks()).map(|j| term.layout.weights_of(j)).max();
            assert_eq!(Some(term.params.spec().terms), counted, "{heads} {rows} {inner} {columns}");
        }
    }
}

/// A product with either factor encrypted, whichever costs less.
fn both(shape: MatrixShape, bits: u32) -> [MatrixProduct; 2] {
    [Factor::Left, Factor::Right].map(|factor| {
        let term = Term::new(&shape, factor, bits).unwrap();
        MatrixProduct { shape, ring_bits: bits, term }
    })
}

/// Both parties against the definition, with either factor encrypted.
fn check(world: &World, shape: MatrixShape, bits: u32, seed: u8) {
    both(shape, bits).iter().for_each(|product| check_one(world, product, bits, seed));
}

/// With bytes and operations as stated; shares are extreme in places.
fn check_one(world: &World, product: &MatrixProduct, bits: u32, seed: u8) {
    let shape = *product.shape();
    assert!(product.spacing() <= world.spacing);
    let mut prg = Prg::from_seed([seed; 16]);
    let [len_a, len_b, len_c] = shape.elements();
    let mut shares = |len| {
        let mut v = random(&mut prg, len, bits);
        for (i, v) in v.iter_mut().enumerate() {
            *v = match i % 11 {
                0 => low_mask(bits),
                3 => 1 << (bits - 1),
                5 => 0,
                _ => *v,
            };
        }
        v
    };
    let (a0, a1, b0, b1) = (shares(len_a), shares(len_a), shares(len_b), shares(len_b));
    let before = world.multipliers.each_ref().map(MatrixMultiplier::tally);
    let own = exchange(world, product, [(&a0, &b0), (&a1, &b1)]);
    let cost = product.cost();
    assert_eq!(product.term.input_polys(), cost.requests);
    for (before, after) in before.into_iter().zip(world.multipliers.each_ref().map(MatrixMultiplier::tally)) {
        assert_eq!((after.ntt - before.ntt) as usize, cost.requests + cost.plain, "{shape:?}");
        assert_eq!((after.products - before.products) as usize, cost.products, "{shape:?}");
        assert_eq!((after.rotations - before.rotations) as usize, cost.merges, "{shape:?}");
        assert_eq!((after.intt - before.intt) as usize, cost.answers, "{shape:?}");
    }
    let sum =
        |x: &[u64], y: &[u64]| -> Vec<u64> { x.iter().zip(y).map(|(x, y)| x.wrapping_add(*y)).collect() };
    let want = oracle(&shape, &sum(&a0, &a1), &sum(&b0, &b1));
    let mut off = 0;
    for (e, w) in want.iter().enumerate() {
        let shift = 64 - bits;
        let error = ((own[0][e].wrapping_add(own[1][e]).wrapping_sub(*w) << shift) as i64) >> shift;
        assert!(error.unsigned_abs() <= MOST_UNITS, "{shape:?} element {e}: {error}");
        off += usize::from(error != 0);
    }
    let stated = product.off_fraction().unwrap() * len_c as f64;
    assert!(off as f64 <= 1.5 * stated + 6.0 * stated.sqrt() + 4.0, "{shape:?}: {off}, {stated} stated");
    // Lengths that an honest peer never sends, and shares that are no operands.
    let ([holder, _], [multiplier, _]) = (&world.holders, &world.multipliers);
    let (request, answer) = (vec![0; product.request_len()], vec![0; product.answer_len()]);
    let mut out = vec![0; len_c];
    assert!(multiplier.answer(product, &request[1..], (&a0, &b0), &mut out).is_err());
    assert!(multiplier.answer(product, &request, (&a0[1..], &b0), &mut out).is_err());
    assert!(multiplier.answer(product, &request, (&a0, &b0), &mut out[1..]).is_err());
    assert!(holder.open(product, &answer[1..], &mut out).is_err());
    assert!(holder.open(product, &answer, &mut out[1..]).is_err());
    assert!(holder.request(product, &a1[1..], &b1).is_err());
    assert!(product.local(&a1, &b1[1..]).is_err());
}

#[test]
fn products_of_heads_as_they_come_in_attention() {
    let world = world(256);
    for (heads, rows, inner, columns) in [
        (2, 16, 32, 16),
        (3, 24, 8, 5),
        (1, 1, 1, 1),
        (1, 7, 300, 3),
        (1, 2, 3, 700),
        (1, 700, 3, 2),
        (5, 1, 64, 1),
    ] {
        check(&world, MatrixShape { heads, rows, inner, columns }, 37, 1);
    }
    // More pixels than a polynomial holds: tiles.
    check(&world, MatrixShape { heads: 1, rows: 9000, inner: 2, columns: 2 }, 30, 2);
    check(&world, MatrixShape { heads: 2, rows: 3, inner: 5, columns: 4 }, 4, 3);
    check(&world, MatrixShape { heads: 1, rows: 4, inner: 16, columns: 4 }, 43, 4);
}

/// Groups whose plain polynomials stand where those of the last group stood: one thread makes most of them, one after the other.
#[test]
fn groups_leave_nothing_to_the_next_one() {
    let shape = MatrixShape { heads: 12, rows: 64, inner: 32, columns: 60 };
    let products = both(shape, 37);
    let world = world(products.iter().map(MatrixProduct::spacing).max().unwrap());
    let again = |t: &Term| {
        let runs = WideRuns::new(&WideContext::new().unwrap(), t.layout.spacing(), t.step());
        t.groups().len() > 4 && runs.unwrap().is_some()
    };
    assert!(products.iter().any(|product| again(&product.term)), "a shape with few groups shows nothing");
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    one.install(|| check(&world, shape, 37, 6));
}

/// Every value with every share, of both factors: an outer product.
#[test]
fn products_of_every_value_and_share() {
    let bits = 3;
    let pairs: Vec<[u64; 2]> = (0..64).map(|i| [i / 8, i % 8]).collect();
    let n = pairs.len();
    let product = MatrixProduct::new(MatrixShape { heads: 1, rows: n, inner: 1, columns: n }, bits).unwrap();
    let world = world(product.spacing());
    let [of_0, of_1] = [0, 1].map(|party| pairs.iter().map(|p| p[party]).collect::<Vec<u64>>());
    let [own, got] = exchange(&world, &product, [(&of_0, &of_0), (&of_1, &of_1)]);
    let mut off = 0;
    for (e, (own, got)) in own.iter().zip(got).enumerate() {
        let [x, y] = [e / n, e % n].map(|i| pairs[i][0] + pairs[i][1]);
        let error = (own.wrapping_add(got).wrapping_sub(x * y) << (64 - bits)) as i64 >> (64 - bits);
        assert!(error.unsigned_abs() <= MOST_UNITS, "{x} {y}: {error}");
        off += usize::from(error != 0);
    }
    let stated = product.off_fraction().unwrap() * own.len() as f64;
    assert!(off as f64 <= 1.5 * stated + 6.0 * stated.sqrt() + 4.0, "{off}, {stated} stated");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn any_product_is_right(
        heads in 1usize..5, rows in 1usize..40, inner in 1usize..40, columns in 1usize..40, bits in 3u32..44,
    ) {
        let shape = MatrixShape { heads, rows, inner, columns };
        let spacing = both(shape, bits).iter().map(MatrixProduct::spacing).max().unwrap();
        check(&world(spacing), shape, bits, 5);
    }
}

/// The factor is encrypted whose layout costs less: of a tall product the right one, of a wide one the left one.
#[test]
fn the_cheaper_factor_is_encrypted() {
    for (rows, columns, wanted) in [(4, 4000, Factor::Left), (4000, 4, Factor::Right)] {
        let shape = MatrixShape { heads: 1, rows, inner: 64, columns };
        let chosen = MatrixProduct::new(shape, 37).unwrap().term;
        assert_eq!(chosen.encrypted, wanted, "{rows} x {columns}");
        let least = both(shape, 37).iter().map(|p| p.term.layout.seconds(&PRICES)).fold(f64::MAX, f64::min);
        assert!(chosen.layout.seconds(&PRICES) <= least);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let shape = MatrixShape { heads: 2, rows: 3, inner: 4, columns: 5 };
    for wrong in [
        MatrixShape { heads: 0, ..shape },
        MatrixShape { inner: 0, ..shape },
        MatrixShape { rows: usize::MAX, ..shape },
        MatrixShape { columns: 1 << 26, ..shape },
    ] {
        assert!(matches!(MatrixProduct::new(wrong, 30), Err(LayerError::Size { .. })), "{wrong:?}");
    }
    assert!(matches!(MatrixProduct::new(shape, 50), Err(LayerError::Cipher(_))));
}

/// What `docs/mpc.md` states of each party in attention in MiniLM's shape, and of one head of 64.
#[test]
fn bytes_of_attention_are_as_stated() {
    let of = |heads, rows, inner, columns| {
        let product = MatrixProduct::new(MatrixShape { heads, rows, inner, columns }, 37).unwrap();
        (product.request_len(), product.answer_len(), product.cost().merges)
    };
    assert_eq!(of(12, 128, 32, 128), (3_981_344, 1_155_072, 168));
    assert_eq!(of(12, 128, 128, 32), (4_030_496, 288_768, 186));
    assert_eq!(of(1, 128, 64, 128), (331_808, 96_256, 30));
}
