//! Networks that are deeper than levels are, in a small ring without security.

use super::tests::{check, options, square_conv, Builder};
use super::*;
use crate::batch::Conv2d;
use std::sync::Arc;

fn deep(ring_degree: usize) -> PackedOptions {
    PackedOptions {
        bootstrap: Bootstrapping::Always,
        precision_bits: 8,
        key_bytes: Some(1 << 40),
        ..options(ring_degree, Packing::Auto)
    }
}

/// Dense layers with squares between: two levels a round.
fn rounds(b: &mut Builder, count: usize, width: usize) {
    let mut x = b.dense(0, width);
    for _ in 1..count {
        x = b.polynomial(x, &[0.0, 0.4, 0.3]);
        x = b.dense(x, width);
    }
}

/// The largest error of a network's output.
fn largest(network: &Network, image: &[f64], output: &[f64]) -> f64 {
    let exact = network.evaluate(image).unwrap();
    let off = |(a, b): (&f64, &f64)| (a - b).abs();
    output.iter().zip(&exact[network.output]).map(off).fold(0.0, f64::max)
}

fn placed(circuit: &Circuit) -> Vec<(String, usize, usize)> {
    let of = |op: &Op| match op {
        Op::Bootstrap { input, output, .. } => {
            let level = |v: &usize| circuit.program().values[*v].level;
            Some((circuit.program().values[*input].name.clone(), level(input), level(output)))
        }
        _ => None,
    };
    circuit.program().ops.iter().filter_map(of).collect()
}

#[test]
fn squares_without_end() {
    for (count, bootstraps, width) in [(8, 1, 20), (13, 2, 30)] {
        let mut b = Builder::new(&[16], count as u64);
        rounds(&mut b, count, width);
        let network = b.network();
        let (circuit, _) = check(&network, &b.image, &deep(1024));
        assert_eq!(circuit.counts().bootstraps, bootstraps, "{:?}", placed(&circuit));
        assert!(placed(&circuit).iter().all(|(_, before, after)| *before == 3 && *after <= 11));
        // The same circuit from what the search chose.
        let again =
            Circuit::rebuild(&network, circuit.options(), circuit.params(), circuit.choices()).unwrap();
        assert_eq!(again.interface().spec(), circuit.interface().spec());
        assert_eq!(again.counts(), circuit.counts());
    }
}

#[test]
fn residual_convolutions_over_bootstraps() {
    let mut b = Builder::new(&[2, 8, 8], 31);
    let mut x = b.conv(0, square_conv(2, 8, 4, 3, 1, 1));
    for _ in 0..5 {
        let y = b.polynomial(x, &[0.1, 0.5, 0.2]);
        let y = b.conv(y, square_conv(4, 8, 4, 3, 1, 1));
        x = b.add(y, x);
    }
    let x = b.polynomial(x, &[0.1, 0.4, 0.1, -0.02]);
    let x = b.conv(x, square_conv(4, 8, 6, 3, 2, 1));
    let x = b.polynomial(x, &[0.0, 0.0, 1.0]);
    b.dense(x, 10);
    let (circuit, _) = check(&b.network(), &b.image, &deep(1024));
    assert!(circuit.counts().bootstraps >= 1, "{:?}", circuit.report().operations);
}

/// ReLU on [-1, 1] but for 0.05: sign polynomials of degree 3, the last one halved and raised by 1/2.
const SIGNS: [&[f64]; 3] = [&[0.0, 2.6, 0.0, -1.8], &[0.0, 1.9, 0.0, -0.9], &[0.5, 0.75, 0.0, -0.25]];

#[test]
fn composites_between_residual_sums_keep_to_their_errors() {
    let mut b = Builder::new(&[2, 8, 8], 12);
    let mut x = b.conv(0, square_conv(2, 8, 4, 3, 1, 1));
    x = b.scaled(x, 0.5);
    for _ in 0..3 {
        let y = b.composite(x, &SIGNS);
        let y = b.conv(y, square_conv(4, 8, 4, 3, 1, 1));
        let y = b.scaled(y, 0.3);
        x = b.add(y, x);
    }
    let x = b.composite(x, &SIGNS);
    b.dense(x, 10);
    let network = b.network();
    let (circuit, output) = check(&network, &b.image, &PackedOptions { precision_bits: 6, ..deep(1024) });
    let worst = largest(&network, &b.image, &output);
    // Without slopes, twelve polynomials' coefficients would multiply it by 2^30.
    assert!(worst < circuit.expected_error() && circuit.expected_error() < 1e3 * worst, "{worst}");
    let inside = placed(&circuit).iter().filter(|(name, ..)| name.contains('t')).count();
    assert!(inside >= 1, "{:?}", placed(&circuit));
}

/// sin 1.2 x on [-2, 2]: slopes up to 1.2, where coefficients' magnitudes would count an error 6.6 times, eight times in a row.
#[test]
fn fitted_polynomials_count_errors_by_their_slopes() {
    let mut b = Builder::new(&[16], 29);
    let mut x = b.dense(0, 20);
    for _ in 0..8 {
        x = b.fitted(x, &[0.0, 1.2, 0.0, -0.288, 0.0, 0.0207, 0.0, -0.000711], 2.0);
        x = b.dense(x, 20);
    }
    let network = b.network();
    let (circuit, output) = check(&network, &b.image, &deep(1024));
    let worst = largest(&network, &b.image, &output);
    let expected = circuit.expected_error();
    assert!(worst < expected && expected < 1e3 * worst, "{worst} of {expected}");
}

/// As in MobileNet: a depthwise layer with one large channel, of which the 1x1 layer behind it reads little. No path counts all large rows, which
/// would be 8 times as much from pair to pair.
#[test]
fn large_channels_that_are_read_little_do_not_add_up() {
    let mut b = Builder::new(&[4, 8, 8], 17);
    let mut x = b.conv(0, square_conv(4, 8, 4, 1, 1, 0));
    for _ in 0..6 {
        x = b.polynomial(x, &[0.1, 0.6, 0.1]);
        let depthwise = Conv2d { groups: 4, ..square_conv(4, 8, 4, 3, 1, 1) };
        let wide = b.conv(x, depthwise);
        b.raise(2, 4, 8.0);
        x = b.conv(wide, square_conv(4, 8, 4, 1, 1, 0));
        b.read_less(2, 4, 1.0 / 8.0);
    }
    b.dense(x, 10);
    let network = b.network();
    let (circuit, output) = check(&network, &b.image, &deep(1024));
    let worst = largest(&network, &b.image, &output);
    let expected = circuit.expected_error();
    assert!(worst < expected && expected < 300.0 * worst, "{worst} of {expected}");
}

/// Sums of products before a bias of the other sign takes them back: larger than the result's bound, and they must not wrap.
#[test]
fn biases_that_are_larger_than_the_output() {
    let mut b = Builder::new(&[16], 8);
    rounds(&mut b, 8, 20);
    b.centre(100.0, 0.5);
    let network = b.network();
    let (circuit, output) = check(&network, &b.image, &PackedOptions { precision_bits: 4, ..deep(1024) });
    assert!(circuit.counts().bootstraps > 0);
    assert!(output.iter().all(|v| (v - 0.5).abs() < 0.1), "{output:?}");
}

/// Eight channels behind a stride of two: all four phases of two blocks, or one phase of eight.
#[test]
fn dense_layouts_repeat_after_fewer_slots() {
    let grid = Grid { rows: 8, cols: 8, block: 64, gap: [2, 2], limit: 0, dense: false };
    let layout = |dense: bool| Layout::on_grid(1024, [8, 4, 4], Grid { dense, ..grid }).unwrap();
    let (wide, dense) = (layout(false), layout(true));
    assert_eq!((wide.period, dense.period), (512, 128));
    for (layout, copies) in [(wide, 2), (dense, 8)] {
        assert!(layout.places.len() == 128 && layout.places.iter().all(|p| p.len() == copies));
    }
}

/// A second factor that something else reads, or that is made of something else, is no product that engines compute.
#[test]
fn products_without_a_chain_are_refused() {
    let mut b = Builder::new(&[16], 3);
    let x = b.dense(0, 8);
    let y = b.dense(0, 8);
    let spec = b.product_of(x, y);
    assert!(spec.err().unwrap().to_string().contains("second factor"));
}

/// The worst error doubles in bits at every product: of this many, one after the other, it would be infinite.
#[test]
fn the_worst_error_of_many_products_is_a_number() {
    let mut b = Builder::new(&[16], 5);
    let mut x = b.dense(0, 16);
    for _ in 0..24 {
        let y = b.polynomial(x, &[0.0, 0.0, 1e-4]);
        x = b.add(y, x);
    }
    b.dense(x, 4);
    let circuit = Circuit::compile(&b.network(), &deep(1024)).unwrap();
    let report = circuit.report();
    assert!(report.error_bound.is_finite() && report.error_expected < report.error_bound, "{report:?}");
}

#[test]
fn what_bootstraps_cannot_do_is_refused() {
    let mut b = Builder::new(&[16], 3);
    rounds(&mut b, 9, 20);
    let network = b.network();
    let fails = |options: &PackedOptions| Circuit::compile(&network, options).err().unwrap().to_string();
    let secure = fails(&PackedOptions { security: 128, ..deep(1024) });
    assert!(secure.contains("ring degree 65536"), "{secure}");
    let hidden = fails(&PackedOptions { hide_weights: true, ..deep(1024) });
    assert!(hidden.contains("hides weights"), "{hidden}");
    let fine = fails(&PackedOptions { precision_bits: 30, ..deep(1024) });
    assert!(fine.contains("less precise"), "{fine}");
    let few = fails(&PackedOptions { key_bytes: Some(1000), ..deep(1024) });
    assert!(few.contains("key_bytes"), "{few}");

    let circuit = Circuit::compile(&network, &deep(1024)).unwrap();
    let rebuilt = |bootstraps: Bootstraps| {
        let choices = Choices { bootstraps: Some(bootstraps), ..circuit.choices() };
        Circuit::rebuild(&network, circuit.options(), circuit.params(), choices).map(drop)
    };
    let good = circuit.choices().bootstraps.unwrap();
    rebuilt(good.clone()).unwrap();
    let bad = [
        Bootstraps { values: Vec::new(), ..good.clone() },
        Bootstraps { values: vec![usize::MAX], ..good.clone() },
        Bootstraps { values: [good.values.clone(), good.values.clone()].concat(), ..good.clone() },
        Bootstraps { values: vec![1], ..good.clone() },
        Bootstraps { slots: 8, ..good.clone() },
        Bootstraps { slots: 100, ..good.clone() },
        Bootstraps { slots: 1 << 40, ..good.clone() },
    ];
    for b in bad {
        assert!(rebuilt(b.clone()).is_err(), "{b:?}");
    }
}

#[test]
fn a_server_without_the_pair_of_the_ephemeral_secret_says_so() {
    let mut b = Builder::new(&[16], 8);
    rounds(&mut b, 8, 20);
    let circuit = Arc::new(Circuit::compile(&b.network(), &deep(512)).unwrap());
    let mut prg = hushnet_ring::Prg::from_seed([4; 16]);
    let client = Client::new(&circuit, &mut prg).unwrap();
    let mut keys = client.keys(&mut prg).unwrap();
    keys.encapsulation = None;
    let server = Server::new(&circuit).unwrap();
    let uploads = client.encrypt(&b.image, &mut prg).unwrap();
    let refused = server.evaluate(uploads, &keys, &mut prg);
    assert!(matches!(refused, Err(PackedError::Message { what: "the bootstrapping keys", .. })));
}
