use super::*;
use crate::batch::{Conv2d, Dense};
use crate::geometries::{conv, oracle};
use hushnet_ring::Prg;
use hushnet_rlwe::coefficients::CoefficientKey;
use hushnet_rlwe::packed::PackedContext;
use proptest::prelude::*;

const SEED: [u8; 32] = [2; 32];

struct Case {
    weights: Vec<i16>,
    bias: Vec<i64>,
    inputs: Vec<i64>,
    bound: u64,
}

/// Random integers of so many bits, and the rigorous bound of the layer's results.
fn case(layout: &Layout, (weight_bits, input_bits): (u32, u32), seed: u8) -> Case {
    let mut prg = Prg::from_seed([seed; 16]);
    let mut random = |len: usize, bits: u32| -> Vec<i64> {
        let mut v = vec![0; len];
        prg.fill_words(&mut v);
        let most = (1i64 << (bits - 1)) - 1;
        v.into_iter().map(|x| (x % (2 * most as u64 + 1)) as i64 - most).collect()
    };
    let weights: Vec<i16> = random(layout.weight_len(), weight_bits).into_iter().map(|w| w as i16).collect();
    let inputs = random(layout.input_len(), input_bits);
    let bias = random(layout.channels_out(), 17);
    let row = weights.len() / bias.len();
    let largest = (1u64 << (input_bits - 1)) - 1;
    let of = |(w, b): (&[i16], &i64)| {
        w.iter().map(|w| u64::from(w.unsigned_abs())).sum::<u64>() * largest + b.unsigned_abs()
    };
    let bound = weights.chunks(row).zip(&bias).map(of).max().unwrap();
    Case { weights, bias, inputs, bound }
}

/// Both halves against the sums by definition, two images in a session; every length as stated.
fn run(geometry: &Geometry, n: usize, bits: (u32, u32)) {
    let context = PackedContext::new(n).unwrap();
    let layout = layout(geometry, n).unwrap();
    let Case { weights, bias, inputs, bound } = case(&layout, bits, 4);
    let (stage, spec) = choose(geometry, n, &weights, bound).unwrap();
    let checked = check(geometry, n, Some(&weights), bound, *stage.params().bits()).unwrap();
    assert_eq!(checked.params(), stage.params());
    let told = check(geometry, n, None, bound, *stage.params().bits()).unwrap();
    assert_eq!(told.params(), stage.params());

    let kept = CoefficientLinear::new(&context, stage.clone(), &weights, &bias, true).unwrap();
    let streamed = CoefficientLinear::new(&context, checked, &weights, &bias, false).unwrap();
    assert_eq!((kept.weight_bytes(), streamed.weight_bytes()), (layout.prepared_bytes(), 2 * weights.len()));
    let mut client = CoefficientClient::new(&context, told);
    let mut masks = vec![0; stage.masks_len()];
    kept.masks(&SEED, 5, &mut masks).unwrap();
    let mut again = vec![0; stage.masks_len()];
    streamed.masks(&SEED, 5, &mut again).unwrap();
    assert_eq!(masks, again);
    client.take_masks(&masks).unwrap();

    let pixels = layout.output_len() / layout.channels_out();
    let noise_bound = spec.noise(stage.params().bits());
    for image in 0..2i64 {
        let x: Vec<i64> = inputs.iter().map(|v| if image == 0 { *v } else { -*v }).collect();
        let mut got = vec![i64::MIN; layout.output_len()];
        for tile in 0..stage.tiles() {
            let key = CoefficientKey::generate(&context, &mut Prg::from_os().unwrap()).unwrap();
            let mut request = vec![0; stage.request_len()];
            client.request(&key, (&SEED, 5), tile, |e| x[e], &mut request).unwrap();
            let mut answer = vec![0; stage.answer_len(tile)];
            let engine = if (tile as i64 + image) % 2 == 0 { &kept } else { &streamed };
            engine.answer(tile, &request, &mut answer).unwrap();
            let noise = client.open(&key, tile, &answer, &mut got).unwrap();
            assert!((noise as f64) < noise_bound, "{noise} {noise_bound}");
            assert!(engine.answer(tile, &request[1..], &mut answer).is_err());
            assert!(engine.answer(tile, &request, &mut answer[1..]).is_err());
            assert!(client.open(&key, tile, &answer[1..], &mut got).is_err());
            assert!(client.request(&key, (&SEED, 5), tile, |e| x[e], &mut request[1..]).is_err());
        }
        let words: Vec<u64> = x.iter().map(|v| *v as u64).collect();
        let want: Vec<i64> = oracle(geometry, &words, &weights).iter().map(|v| *v as i64).collect();
        for (e, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(*got, want + bias[e / pixels], "{geometry:?} element {e}");
        }
    }
}

#[test]
fn layers_of_every_kind_are_exact() {
    for geometry in [
        conv(3, 15, 5, 3, 1, 1, 1),
        conv(3, 33, 4, 7, 2, 3, 1),
        conv(20, 9, 13, 1, 1, 0, 1),
        conv(6, 14, 6, 3, 2, 1, 6),
        conv(8, 60, 2, 1, 2, 0, 2),
        conv(64, 7, 40, 3, 1, 1, 1),
        conv(256, 14, 96, 1, 1, 0, 1),
        Geometry::dense(Dense { inputs: 3000, outputs: 11 }).unwrap(),
        Geometry::dense(Dense { inputs: 100, outputs: 1001 }).unwrap(),
        Geometry::dense(Dense { inputs: 1, outputs: 1 }).unwrap(),
    ] {
        run(&geometry, 2048, (8, 8));
    }
    run(&conv(5, 12, 7, 3, 1, 1, 1), 4096, (9, 12));
    run(&conv(5, 12, 7, 3, 1, 1, 1), 2048, (2, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_convolution_is_exact(
        c in 1usize..5, o in 1usize..5, h in 1usize..40, w in 1usize..40, k in (1usize..5, 1usize..5),
        stride in (1usize..4, 1usize..4), pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
        dilation in (1usize..3, 1usize..3), grouped in any::<bool>(),
    ) {
        let groups = if grouped { c } else { 1 };
        let o = if grouped { o * c } else { o };
        let (eh, ew) = (dilation.0 * (k.0 - 1) + 1, dilation.1 * (k.1 - 1) + 1);
        prop_assume!(h + pads[0] + pads[2] >= eh && w + pads[1] + pads[3] >= ew);
        let oh = (h + pads[0] + pads[2] - eh) / stride.0 + 1;
        let ow = (w + pads[1] + pads[3] - ew) / stride.1 + 1;
        let geometry = Geometry::conv2d(Conv2d { input: [c, h, w], output: [o, oh, ow], kernel: [k.0, k.1],
            stride: [stride.0, stride.1], pads, dilation: [dilation.0, dilation.1], groups }).unwrap();
        run(&geometry, 2048, (8, 8));
    }
}

/// A layer of ResNet-50's shape: tiles of an image share the sums of masks, so that there are fewer of those than of answers.
#[test]
fn masks_do_not_grow_with_tiles() {
    let geometry = conv(64, 56, 64, 3, 1, 1, 1);
    let layout = layout(&geometry, 2048).unwrap();
    let travel = travel(&layout);
    assert!(layout.tiles() > 1);
    assert_eq!(travel.mask, 2048 * layout.output_blocks() as u64);
    assert_eq!(layout.cost().output_polys, layout.tiles() * layout.output_blocks());
}

#[test]
fn what_does_not_fit_is_refused() {
    let geometry = conv(1, 64, 1, 64, 1, 0, 1);
    assert!(matches!(layout(&geometry, 2048), Err(LayerError::TooLarge { .. })));
    let geometry = conv(4, 8, 4, 3, 1, 1, 1);
    let layout = layout(&geometry, 2048).unwrap();
    let weights = vec![1; layout.weight_len()];
    assert!(matches!(choose(&geometry, 2048, &weights[1..], 100), Err(ChooseError::Layer(_))));
    assert!(matches!(choose(&geometry, 2048, &weights, 1 << 50), Err(ChooseError::Params(_))));
    assert!(matches!(choose(&geometry, 1024, &weights, 100), Err(ChooseError::Params(_))));
    let (stage, _) = choose(&geometry, 2048, &weights, 36 * 127).unwrap();
    let context = PackedContext::new(4096).unwrap();
    assert!(CoefficientLinear::new(&context, stage.clone(), &weights, &[0; 4], true).is_err());
    let key = CoefficientKey::generate(&context, &mut Prg::from_os().unwrap()).unwrap();
    let client = CoefficientClient::new(&PackedContext::new(2048).unwrap(), stage.clone());
    let mut request = vec![0; stage.request_len()];
    assert!(client.request(&key, (&SEED, 0), 0, |_| 0, &mut request).is_err());
    // Answers before the sums of masks have come.
    let answer = vec![0; stage.answer_len(0)];
    assert!(client.open(&key, 0, &answer, &mut vec![0; layout.output_len()]).is_err());
}
