//! Single layers, both parties on one thread: seconds and bytes as JSON lines (without the socket).
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use hushnet_layers::batch::{Conv2d, Dense, Geometry};
use hushnet_layers::cheetah::{AnswerTiles, AskTiles, CheetahClient, CheetahLinear};
use hushnet_ring::Prg;
use hushnet_rlwe::packed::{PackedClient, PackedContext, PackedServer};
use std::time::Instant;

fn conv(c: usize, hw: usize, o: usize, k: usize, s: usize, pad: usize) -> Geometry {
    let out = (hw + 2 * pad - k) / s + 1;
    Geometry::conv2d(Conv2d {
        input: [c, hw, hw],
        output: [o, out, out],
        kernel: [k, k],
        stride: [s, s],
        pads: [pad; 4],
        dilation: [1, 1],
        groups: 1,
    })
    .unwrap()
}

fn main() {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().unwrap();
    let rows = [
        ("16x16@128 1x1@128", conv(128, 16, 128, 1, 1, 0)),
        ("16x16@128 3x3@128", conv(128, 16, 128, 3, 1, 1)),
        ("56x56@64 3x3@64", conv(64, 56, 64, 3, 1, 1)),
        ("16x16@2048 1x1@512", conv(2048, 16, 512, 1, 1, 0)),
        ("224x224@3 7x7@64 s2", conv(3, 224, 64, 7, 2, 3)),
        ("56x56@64 1x1@256", conv(64, 56, 256, 1, 1, 0)),
        ("56x56@256 1x1@64", conv(256, 56, 64, 1, 1, 0)),
        ("14x14@256 3x3@256", conv(256, 14, 256, 3, 1, 1)),
        ("7x7@512 3x3@512", conv(512, 7, 512, 3, 1, 1)),
        ("FC 2048->1001", Geometry::dense(Dense { inputs: 2048, outputs: 1001 }).unwrap()),
    ];
    let context = PackedContext::new(2048).unwrap();
    let mut prg = Prg::from_os().unwrap();
    let key = PackedClient::generate(&context, &mut prg).unwrap();
    let server = PackedServer::new(&context, &key.public_key(&[1; 32], &mut prg).unwrap()).unwrap();
    for (name, geometry) in rows {
        let ring_bits = 26;
        let mut random = |len: usize, mask: u64| -> Vec<u64> {
            let mut v = vec![0; len];
            prg.fill_words(&mut v);
            v.iter_mut().for_each(|x| *x &= mask);
            v
        };
        let client_packing = hushnet_layers::cheetah::choose_layout(&geometry, 2048).unwrap();
        let weights: Vec<i16> =
            random(client_packing.weight_len(), 255).iter().map(|w| *w as i16 - 128).collect();
        let share = random(client_packing.input_len(), (1 << ring_bits) - 1);
        let start = Instant::now();
        let linear = CheetahLinear::new(
            &context,
            &geometry,
            &weights,
            &vec![0; client_packing.channels_out()],
            ring_bits,
        )
        .unwrap();
        let prepare = start.elapsed().as_secs_f64();
        let client: CheetahClient = linear.client();
        let (mut own, mut got) = (vec![0; client_packing.output_len()], vec![0; client_packing.output_len()]);
        let (mut up, mut down, mut t) = (0, 0, [0.0f64; 3]);
        for tile in 0..client.tiles() {
            let start = Instant::now();
            let request = client.request(&key, &[2; 32], 5, tile, &share).unwrap();
            t[0] += start.elapsed().as_secs_f64();
            let start = Instant::now();
            let answer = linear.answer(&server, &[2; 32], 5, tile, &request, &share, &mut own).unwrap();
            t[1] += start.elapsed().as_secs_f64();
            let start = Instant::now();
            client.open(&key, tile, &answer, &mut got).unwrap();
            t[2] += start.elapsed().as_secs_f64();
            up += request.len();
            down += answer.len();
        }
        println!(
            "{{\"layer\":\"{name}\",\"prepare\":{prepare:.4},\"request\":{:.4},\"answer\":{:.4},\"open\":{:.4},\"total\":{:.4},\"up_mb\":{:.3},\"down_mb\":{:.3},\"cost\":\"{:?}\",\"weights_mb\":{}}}",
            t[0], t[1], t[2], t.iter().sum::<f64>(), up as f64 / 1e6, down as f64 / 1e6, client_packing.cost(), linear.weight_bytes() / 1_000_000
        );
    }
}
