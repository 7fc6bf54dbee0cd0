//! Both orders of channels against the layer by definition.

use super::*;
use crate::batch::{Conv2d, Dense};
use crate::geometries::oracle;
use proptest::prelude::*;

fn negacyclic(a: &[i64], b: &[i64]) -> Vec<i64> {
    let n = a.len();
    let mut out = vec![0; n];
    for (i, x) in a.iter().enumerate().filter(|(_, x)| **x != 0) {
        for (j, y) in b.iter().enumerate().filter(|(_, y)| **y != 0) {
            if i + j < n {
                out[i + j] += x * y;
            } else {
                out[i + j - n] -= x * y;
            }
        }
    }
    out
}

fn check(geometry: &Geometry, p: &Layout) {
    let n = p.degree();
    let x: Vec<i64> = (0..p.input_len()).map(|i| (i as i64 * 37 + 11) % 101 - 50).collect();
    let w: Vec<i16> = (0..p.weight_len()).map(|i| ((i as i64 * 53 + 7) % 31 - 15) as i16).collect();
    let mut got = vec![None; p.output_len()];
    let (mut products, mut polys) = (0, 0);
    for tile in 0..p.tiles() {
        for j in 0..p.output_blocks() {
            let mut sum = vec![0; n];
            assert_eq!(p.first_weight_poly(j), polys % p.cost().weight_polys);
            for i in p.inputs_of(j) {
                let mut a = vec![0; n];
                p.for_each_input(tile, i, |at, e| a[at] = x[e]);
                for (s, v) in sum.iter_mut().zip(negacyclic(&a, &p.weight_poly(&w, i, j))) {
                    *s += v;
                }
                products += 1;
                polys += 1;
            }
            let (places, elements) = p.output_places(tile, j, 1);
            assert_eq!(places.len(), p.output_count(tile, j));
            for (at, e) in places.into_iter().zip(elements) {
                assert!(at % p.spacing() == 0 && got[e].replace(sum[at]).is_none());
            }
        }
    }
    assert_eq!(products, p.cost().products);
    let got: Vec<u64> = got.into_iter().map(|v| v.unwrap() as u64).collect();
    let x: Vec<u64> = x.iter().map(|v| *v as u64).collect();
    assert_eq!(got, oracle(geometry, &x, &w));
}

fn prices(dear_output: bool, dear_weight: bool) -> LayoutPrices {
    LayoutPrices {
        input: 30e-6,
        output: if dear_output { 1.0 } else { 1e-9 },
        output_poly: 1e-6,
        product: 4e-6,
        weight: if dear_weight { 1.0 } else { 1e-6 },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn coefficients_are_the_convolution(
        c in 1usize..7, o in 1usize..5, h in 1usize..9, w in 1usize..9, k in (1usize..4, 1usize..4),
        stride in (1usize..4, 1usize..4), pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
        dilation in (1usize..3, 1usize..3), grouped in any::<bool>(), n in prop::sample::select(vec![64usize, 128, 256]),
        dear in (any::<bool>(), any::<bool>()),
    ) {
        let groups = if grouped { c } else { 1 };
        let o = if grouped { o * c } else { o };
        let (eh, ew) = (dilation.0 * (k.0 - 1) + 1, dilation.1 * (k.1 - 1) + 1);
        prop_assume!(h + pads[0] + pads[2] >= eh && w + pads[1] + pads[3] >= ew);
        let oh = (h + pads[0] + pads[2] - eh) / stride.0 + 1;
        let ow = (w + pads[1] + pads[3] - ew) / stride.1 + 1;
        let geometry = Geometry::conv2d(Conv2d { input: [c, h, w], output: [o, oh, ow], kernel: [k.0, k.1],
            stride: [stride.0, stride.1], pads, dilation: [dilation.0, dilation.1], groups }).unwrap();
        check(&geometry, &Layout::choose(&geometry, n, &prices(dear.0, dear.1)).unwrap());
        check(&geometry, &Layout::choose_blocks(&geometry, n, &prices(dear.0, dear.1)).unwrap());
        // Weights at multiples of as much as there is room for, where kernels have one position.
        let apart = Layout::choose_apart_by(&geometry, n, &[1, 2, 4, 16, 64], |l| 1.0 / l.weight_spacing() as f64).unwrap();
        prop_assert!(apart.extent != (1, 1) || apart.weight_spacing() >= 64);
        check(&geometry, &apart);
        if let Ok(layout) = Layout::of_the_paper(&geometry, n) {
            check(&geometry, &layout);
        }
    }

    #[test]
    fn dense_layers_of_any_size_in_every_order(inputs in 1usize..200, outputs in 1usize..50) {
        let geometry = Geometry::dense(Dense { inputs, outputs }).unwrap();
        check(&geometry, &Layout::choose(&geometry, 64, &prices(false, false)).unwrap());
        check(&geometry, &Layout::choose_blocks(&geometry, 64, &prices(false, false)).unwrap());
        check(&geometry, &Layout::dense_of_the_paper(&geometry, 64).unwrap());
    }
}

#[test]
fn the_papers_packings_are_what_it_says() {
    // c_i = 4, 2x2 pixels, N = 16: one polynomial, useful coefficients at multiples of c_i.
    let conv = Geometry::conv2d(Conv2d {
        input: [4, 2, 2],
        output: [3, 2, 2],
        kernel: [1, 1],
        stride: [1, 1],
        pads: [0; 4],
        dilation: [1, 1],
        groups: 1,
    })
    .unwrap();
    let layout = Layout::of_the_paper(&conv, 16).unwrap();
    assert_eq!((layout.spacing(), layout.input_blocks(), layout.output_blocks()), (4, 1, 3));
    // (12), (13) with n_i = 4, n_o = 2, N = 8: W_k0 at X^k, -W_k,(4-l) at X^(2 l + k).
    let dense = Geometry::dense(Dense { inputs: 4, outputs: 2 }).unwrap();
    let layout = Layout::dense_of_the_paper(&dense, 8).unwrap();
    let poly = layout.weight_poly(&[1, 2, 3, 4, 5, 6, 7, 8], 0, 0);
    assert_eq!(poly, [1, 5, -4, -8, -3, -7, -2, -6]);
    let mut at = Vec::new();
    layout.for_each_input(0, 0, |place, _| at.push(place));
    assert_eq!(at, [0, 2, 4, 6]);
    assert!(Layout::dense_of_the_paper(&conv, 16).is_err());
}

#[test]
fn strided_pointwise_convolutions_touch_only_the_pixels_they_need() {
    let geometry = Geometry::conv2d(Conv2d {
        input: [4, 16, 16],
        output: [4, 8, 8],
        kernel: [1, 1],
        stride: [2, 2],
        pads: [0; 4],
        dilation: [1, 1],
        groups: 1,
    })
    .unwrap();
    for layout in [Layout::choose, Layout::choose_blocks] {
        let p = layout(&geometry, 256, &prices(false, false)).unwrap();
        assert_eq!(p.phases, [(0, 0)]);
        check(&geometry, &p);
    }
}
