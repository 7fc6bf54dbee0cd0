use super::*;
use crate::batch::Dense;
use crate::cheetah::{AnswerTiles, AskTiles};
use crate::geometries::{conv, oracle};
use hushnet_ring::{low_mask, Prg};
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::{PackedClient, PackedServer};

#[test]
fn shares_of_merged_layers_with_exact_costs() {
    let context = ConvFheContext::new().unwrap();
    let mut prg = Prg::from_seed([4; 16]);
    let key = PackedClient::generate(&context.packed, &mut prg).unwrap();
    let public = key.public_key(&[1; 32], &mut prg).unwrap();
    let keys = MergeKeys::for_client(&context.merge, &key, 2048, &[2; 32], &mut prg).unwrap();
    let server = PackedServer::new(&context.packed, &public).unwrap();
    let session = ConvFheSession::new(server, keys);
    for (number, geometry) in [
        conv(16, 16, 16, 3, 1, 1, 1),
        conv(3, 33, 4, 7, 2, 3, 1),
        conv(64, 7, 40, 3, 1, 1, 1),
        conv(6, 14, 6, 3, 2, 1, 6),
        Geometry::dense(Dense { inputs: 300, outputs: 77 }).unwrap(),
        Geometry::dense(Dense { inputs: 5000, outputs: 9 }).unwrap(),
    ]
    .into_iter()
    .enumerate()
    {
        let bits = 26;
        let mut random = |len: usize, mask: u64| -> Vec<u64> {
            let mut v = vec![0; len];
            prg.fill_words(&mut v);
            v.iter_mut().for_each(|x| *x &= mask);
            v
        };
        let layout = Layout::choose(&geometry, RING_DEGREE, &DEFAULT_PRICES).unwrap();
        let weights: Vec<i16> = random(layout.weight_len(), 255).iter().map(|w| *w as i16 - 128).collect();
        let bias: Vec<i64> = random(layout.channels_out(), 0xff).iter().map(|b| *b as i64).collect();
        let (mine, theirs) =
            (random(layout.input_len(), low_mask(bits)), random(layout.input_len(), low_mask(bits)));
        // Prepared and streamed weights in turn.
        let streamed = number % 2 == 1;
        let make = if streamed { ConvFheLinear::streamed } else { ConvFheLinear::new };
        let linear = make(&context, &geometry, &weights, &bias, bits).unwrap();
        let prepared = linear.design().prepared_bytes();
        assert_eq!(linear.weight_bytes(), if streamed { 2 * weights.len() } else { prepared });
        let (client, cost) = (linear.client(), linear.design().cost());
        let (mut own, mut got) = (vec![0; layout.output_len()], vec![0; layout.output_len()]);
        let (mut up, mut down) = (0, 0);
        for tile in 0..layout.tiles() {
            let request = client.request(&key, &[9; 32], 3, tile, &mine).unwrap();
            let answer = linear.answer(&session, &[9; 32], 3, tile, &request, &theirs, &mut own).unwrap();
            client.open(&key, tile, &answer, &mut got).unwrap();
            assert!(client.open(&key, tile, &answer[1..], &mut got).is_err());
            (up, down) = (up + request.len(), down + answer.len());
        }
        assert_eq!((up, down), (cost.bytes_up, cost.bytes_down));
        // Streamed: a transform for every pair of products, tile by tile.
        let made = TallyCounts { ntt: cost.server_online.products / 2, ..TallyCounts::default() };
        assert_eq!(linear.tally(), cost.server_online + if streamed { made } else { cost.setup });
        assert_eq!(client.tally(), cost.client_online);
        let x: Vec<u64> = mine.iter().zip(&theirs).map(|(a, b)| a.wrapping_add(*b)).collect();
        let pixels = layout.output_len() / layout.channels_out();
        let mut off = 0;
        for (e, w) in oracle(&geometry, &x, &weights).iter().enumerate() {
            let want = w.wrapping_add(bias[e / pixels] as u64);
            let error = own[e].wrapping_add(got[e]).wrapping_sub(want) & low_mask(bits);
            assert!(error == 0 || error == 1 || error == low_mask(bits), "{geometry:?} {e}: {error}");
            off += usize::from(error != 0);
        }
        let predicted = linear.design().params.off_by_one_fraction();
        assert!(off as f64 <= (2.0 * predicted + 0.02) * own.len() as f64 + 3.0, "{off} {predicted}");
    }
}
