use super::*;
use crate::batch::{Conv2d, Dense};

fn conv(
    input: [usize; 3],
    outputs: usize,
    kernel: [usize; 2],
    stride: usize,
    pads: [usize; 4],
    groups: usize,
) -> Geometry {
    let out = |i: usize| (input[1 + i] + pads[i] + pads[i + 2] - kernel[i]) / stride + 1;
    Geometry::conv2d(Conv2d {
        input,
        output: [outputs, out(0), out(1)],
        kernel,
        stride: [stride, stride],
        pads,
        dilation: [1, 1],
        groups,
    })
    .unwrap()
}

fn words(prg: &mut Prg, len: usize, bits: u32) -> Vec<u64> {
    let mut v = vec![0; len];
    prg.fill_words(&mut v);
    v.iter_mut().for_each(|w| *w &= low_mask(bits));
    v
}

/// Both halves against the sums by definition, a unit off no more often than stated.
fn check(geometry: &Geometry, degree: usize, images: usize, ring_bits: u32) {
    let mut prg = Prg::from_seed([images as u8; 16]);
    let context = BatchContext::new(degree).unwrap();
    let weights: Vec<i16> = words(&mut prg, geometry.weights(), 8).iter().map(|w| *w as i16 - 128).collect();
    let bias: Vec<i64> = words(&mut prg, geometry.biases(), 16).iter().map(|b| *b as i64 - 32768).collect();
    let linear = BatchShareLinear::new(&context, geometry, &weights, &bias, ring_bits, None).unwrap();
    let norm = linear.client().params().spec().weight_l2;
    let client = BatchShareClient::new(&context, geometry, ring_bits, norm).unwrap();
    let key = ShareKey::generate(&context, &mut prg).unwrap();
    let server = ShareServer::new(
        &context,
        &key.public_key([4; 32], client.params().modulus_bits(), &mut prg).unwrap(),
    )
    .unwrap();
    let mine = words(&mut prg, images * client.inputs(), ring_bits);
    let theirs = words(&mut prg, images * client.inputs(), ring_bits);
    let (mut got, mut own) = (vec![0; images * client.outputs()], vec![0; images * client.outputs()]);
    let mut window = linear.window(&server, images).unwrap();
    let id = BlockId { seed: &[5; 32], stage: 2, block: 1 };
    for tile in 0..client.tiles() {
        let request = client.request(&key, id, tile, &mine).unwrap();
        assert_eq!(request.len(), client.request_len(tile, images));
        if !request.is_empty() {
            assert!(linear.answer(&mut window, id, tile, &request[1..], &theirs, &mut own).is_err());
        }
        let answer = linear.answer(&mut window, id, tile, &request, &theirs, &mut own).unwrap();
        assert_eq!(answer.len(), client.answer_len(tile, images));
        assert!(client.open(&key, tile, &answer[1..], &mut got).is_err());
        client.open(&key, tile, &answer, &mut got).unwrap();
    }
    let mut off = 0;
    for b in 0..images {
        let inputs = b * client.inputs()..(b + 1) * client.inputs();
        let x: Vec<u64> =
            mine[inputs.clone()].iter().zip(&theirs[inputs]).map(|(a, c)| a.wrapping_add(*c)).collect();
        let want = crate::geometries::oracle(geometry, &x, &weights);
        let pixels = want.len() / bias.len();
        for (e, w) in want.iter().enumerate() {
            let at = b * client.outputs() + e;
            let sum = own[at].wrapping_add(got[at]);
            let error = sum.wrapping_sub(w.wrapping_add(bias[e / pixels] as u64)) & low_mask(ring_bits);
            assert!(
                error == 0 || error == 1 || error == low_mask(ring_bits),
                "image {b} element {e}: {error}"
            );
            off += usize::from(error != 0);
        }
    }
    let stated = client.params().spec().off_by_one_fraction() * got.len() as f64;
    assert!(off as f64 <= 1.5 * stated + 6.0 * stated.sqrt() + 4.0, "{geometry:?}: {off}, {stated} stated");
}

#[test]
fn shares_of_layers_of_every_kind() {
    for (geometry, degree, images) in [
        (conv([1, 9, 7], 3, [5, 5], 2, [1, 1, 1, 1], 1), 2048, 2048),
        (conv([3, 5, 6], 4, [3, 2], 1, [1, 0, 1, 1], 1), 2048, 1),
        (conv([6, 5, 5], 6, [3, 3], 1, [1; 4], 6), 2048, 9),
        (conv([4, 6, 6], 2, [1, 1], 2, [0; 4], 2), 4096, 4091),
        (Geometry::dense(Dense { inputs: 70, outputs: 11 }).unwrap(), 2048, 100),
        (Geometry::dense(Dense { inputs: 1, outputs: 1 }).unwrap(), 2048, 2047),
    ] {
        check(&geometry, degree, images, 24);
        check(&geometry, degree, images, 13);
    }
}

#[test]
fn large_images_come_in_tiles_that_fit() {
    let geometry = conv([16, 112, 112], 8, [3, 3], 2, [1; 4], 1);
    let context = BatchContext::new(2048).unwrap();
    let client = BatchShareClient::new(&context, &geometry, 22, 1000.0).unwrap();
    assert!(client.tiles() > 1);
    assert!(client.window_bytes() <= 2 * TILE_BYTES, "{}", client.window_bytes());
    let requests: usize = (0..client.tiles()).map(|t| client.request_len(t, 8)).sum();
    let answers: usize = (0..client.tiles()).map(|t| client.answer_len(t, 8)).sum();
    let k = client.params().modulus_bits() as usize;
    assert_eq!(requests, 16 * 112 * 112 * k);
    assert_eq!(answers, 8 * 56 * 56 * (2048 + 8) / 8 * client.params().response_bits() as usize);
}

#[test]
fn tiled_layers_are_right() {
    // Wide rows, so that a few of them fill a tile.
    let geometry = conv([40, 8, 30], 20, [3, 3], 1, [1; 4], 1);
    let context = BatchContext::new(2048).unwrap();
    assert!(BatchShareClient::new(&context, &geometry, 20, 1000.0).unwrap().tiles() > 1);
    check(&geometry, 2048, 3, 20);
}

#[test]
fn blocks_beyond_the_ring_and_foreign_tiles_are_refused() {
    let geometry = Geometry::dense(Dense { inputs: 2, outputs: 3 }).unwrap();
    let context = BatchContext::new(2048).unwrap();
    let mut prg = Prg::from_seed([1; 16]);
    let linear = BatchShareLinear::new(&context, &geometry, &[1; 6], &[0; 3], 20, Some(64.0)).unwrap();
    assert!((linear.client().params().spec().weight_l2 - 64.0).abs() < 1e-9);
    let key = ShareKey::generate(&context, &mut prg).unwrap();
    let server = ShareServer::new(
        &context,
        &key.public_key([4; 32], linear.client().params().modulus_bits(), &mut prg).unwrap(),
    )
    .unwrap();
    assert!(linear.window(&server, 2049).is_err());
    assert!(linear.window(&server, 0).is_err());
    let id = BlockId { seed: &[5; 32], stage: 2, block: 1 };
    let client = linear.client();
    assert!(client.request(&key, id, 0, &vec![0; 2 * 2049]).is_err());
    assert!(client.request(&key, id, 0, &[0; 3]).is_err());
    assert!(client.request(&key, id, 1, &[0; 2]).is_err());
    let request = client.request(&key, id, 0, &[0; 2]).unwrap();
    let mut window = linear.window(&server, 1).unwrap();
    linear.answer(&mut window, id, 0, &request, &[0; 2], &mut [0; 3]).unwrap();
    // The same tile again.
    assert!(linear.answer(&mut window, id, 0, &request, &[0; 2], &mut [0; 3]).is_err());
}
