use super::*;
use crate::batch::{Conv2d, Dense};
use crate::geometries::conv;
use hushnet_ring::{low_mask, Prg};
use hushnet_rlwe::packed::{PackedClient, PackedServer};

/// Both halves against the sums by definition, a unit off no more often than stated.
fn check(geometry: &Geometry, ring_bits: u32) {
    let context = PackedContext::new(2048).unwrap();
    let mut prg = Prg::from_seed([3; 16]);
    let packing = choose_layout(geometry, 2048).unwrap();
    let mask = low_mask(ring_bits);
    let mut random = |len: usize| -> Vec<u64> {
        let mut v = vec![0; len];
        prg.fill_words(&mut v);
        v
    };
    let weights: Vec<i16> = random(packing.weight_len()).iter().map(|w| (w & 0xff) as i16 - 128).collect();
    let bias: Vec<i64> = random(packing.channels_out()).iter().map(|b| (b & 0xffff) as i64 - 32768).collect();
    let server_share: Vec<u64> = random(packing.input_len()).iter().map(|x| x & mask).collect();
    let client_share: Vec<u64> = random(packing.input_len()).iter().map(|x| x & mask).collect();

    let linear = CheetahLinear::new(&context, geometry, &weights, &bias, ring_bits).unwrap();
    // As plans state it.
    let norm = 2f64.powf(linear.params().spec().weight_l2.log2().ceil());
    let linear = linear.stated(norm).unwrap();
    let client = CheetahClient::new(&context, geometry, ring_bits, linear.params().spec().weight_l2).unwrap();
    let key = PackedClient::generate(&context, &mut Prg::from_os().unwrap()).unwrap();
    let server =
        PackedServer::new(&context, &key.public_key(&[1; 32], &mut Prg::from_os().unwrap()).unwrap())
            .unwrap();
    let (mut own, mut got) = (vec![0; packing.output_len()], vec![0; packing.output_len()]);
    // Every other tile with streamed weights.
    let streamed = CheetahLinear::streamed(&context, geometry, &weights, &bias, ring_bits).unwrap();
    let streamed = streamed.stated(norm).unwrap();
    assert_eq!(linear.params(), streamed.params());
    assert_eq!(linear.weight_bytes(), prepared_bytes(&packing));
    for tile in 0..client.tiles() {
        let engine = if (tile + ring_bits as usize).is_multiple_of(2) { &linear } else { &streamed };
        let request = client.request(&key, &[2; 32], 5, tile, &client_share).unwrap();
        assert_eq!(request.len(), client.request_len());
        let answer = engine.answer(&server, &[2; 32], 5, tile, &request, &server_share, &mut own).unwrap();
        assert_eq!(answer.len(), client.answer_len());
        client.open(&key, tile, &answer, &mut got).unwrap();
        assert!(client.open(&key, tile, &answer[1..], &mut got).is_err());
        assert!(engine.answer(&server, &[2; 32], 5, tile, &request[1..], &server_share, &mut own).is_err());
    }
    let x: Vec<u64> = client_share.iter().zip(&server_share).map(|(a, b)| a.wrapping_add(*b)).collect();
    let want = crate::geometries::oracle(geometry, &x, &weights);
    let pixels = packing.output_len() / packing.channels_out();
    let mut off = 0;
    for (e, w) in want.iter().enumerate() {
        let error = own[e].wrapping_add(got[e]).wrapping_sub(w.wrapping_add(bias[e / pixels] as u64)) & mask;
        assert!(error == 0 || error == 1 || error == mask, "element {e}: {error}");
        off += usize::from(error != 0);
    }
    let stated = linear.params().off_by_one_fraction() * want.len() as f64;
    assert!(off as f64 <= 1.5 * stated + 6.0 * stated.sqrt() + 4.0, "{geometry:?}: {off}, {stated} stated");
}

#[test]
fn shares_of_convolutions_of_every_kind() {
    for geometry in [
        conv(3, 15, 5, 3, 1, 1, 1),
        conv(3, 33, 4, 7, 2, 3, 1),
        conv(20, 9, 13, 1, 1, 0, 1),
        conv(6, 14, 6, 3, 2, 1, 6),
        conv(37, 16, 21, 1, 1, 0, 1),
        conv(12, 16, 24, 1, 1, 0, 3),
        conv(24, 16, 24, 1, 1, 0, 24),
        conv(8, 60, 2, 1, 2, 0, 2),
        conv(64, 7, 40, 3, 1, 1, 1),
        Geometry::dense(Dense { inputs: 3000, outputs: 11 }).unwrap(),
        Geometry::dense(Dense { inputs: 100, outputs: 1001 }).unwrap(),
        Geometry::dense(Dense { inputs: 1, outputs: 1 }).unwrap(),
    ] {
        check(&geometry, 27);
        check(&geometry, 26);
    }
}

/// Weights of kernels with one position take a word a value, of which there are few; no others do.
#[test]
fn weights_that_stand_apart_take_little_room() {
    for (geometry, values) in [
        (conv(384, 16, 24, 1, 1, 0, 1), Some(8)),
        (conv(384, 8, 24, 1, 1, 0, 1), Some(32)),
        // 196 pixels take 200 places, 9 take 12, 49 take 56
        (conv(256, 14, 1024, 1, 1, 0, 1), Some(256)),
        (conv(20, 3, 13, 1, 1, 0, 1), Some(512)),
        (conv(512, 7, 2048, 1, 1, 0, 1), Some(256)),
        (conv(16, 16, 24, 3, 1, 1, 1), None),
    ] {
        let layout = choose_layout(&geometry, 2048).unwrap();
        let words = values.unwrap_or(2048);
        assert_eq!(prepared_bytes(&layout), layout.cost().weight_polys * words * 8, "{geometry:?}");
    }
}

/// A table of MiniLM's size is asked for all of 128 tokens at once, and its weights take 94 MB. By the price of other weights it would have
/// four tiles: as many bytes up, four times as many down.
#[test]
fn a_table_has_one_tile_of_all_tokens() {
    let table = Geometry::conv2d(Conv2d {
        input: [30522, 1, 128],
        output: [384, 1, 128],
        kernel: [1, 1],
        stride: [1, 1],
        pads: [0; 4],
        dilation: [1, 1],
        groups: 1,
    })
    .unwrap();
    let layout = choose_layout(&table, 2048).unwrap();
    assert_eq!((layout.tiles(), layout.cost().input_polys, layout.cost().output_polys), (1, 1908, 384));
    assert_eq!(prepared_bytes(&layout), 1908 * 384 * 16 * 8);
    let other = Layout::choose_blocks(&table, 2048, &DEFAULT_PRICES).unwrap();
    assert_eq!((other.tiles(), other.cost().input_polys, other.cost().output_polys), (2, 1908, 768));
}
