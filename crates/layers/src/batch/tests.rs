//! Layers against a naive oracle in 128-bit arithmetic, tiled and untiled, with every kernel and storage.

use super::apply::Storage;
use super::*;
use hushnet_matmul::Kernel;
use hushnet_ring::{low_mask, simd, Isa};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// A layer, its inputs (feature id -> words) and parameters.
#[derive(Clone, Debug)]
struct Case {
    geometry: Geometry,
    weights: Vec<i16>,
    bias: Vec<i64>,
    bits: u32,
    words: usize,
    seed: u64,
}

fn mixed(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) ^ x >> 31
}

impl Case {
    fn input(&self, feature: usize, word: usize) -> u64 {
        let x = mixed(self.seed ^ (feature * self.words + word) as u64);
        if x.is_multiple_of(16) {
            low_mask(self.bits)
        } else {
            x & low_mask(self.bits)
        }
    }

    /// Output `id` (row-major) from the definition, and how many terms it has.
    fn oracle(&self, id: usize, word: usize) -> (i128, u64) {
        let mut terms = 0;
        let mut sum = 0;
        let mut add = |weight: usize, feature: usize| {
            terms += 1;
            sum += i128::from(self.weights[weight]) * i128::from(self.input(feature, word));
        };
        match &self.geometry {
            Geometry::Dense(d) => (0..d.inputs).for_each(|k| add(id * d.inputs + k, k)),
            Geometry::Conv2d(c) => {
                let [_, oh, ow] = c.output;
                let [channels, h, w] = c.input;
                let (o, y, x) = (id / (oh * ow), id / ow % oh, id % ow);
                let per_group = channels / c.groups;
                let group = o / (c.output[0] / c.groups);
                for z in 0..per_group {
                    for i in 0..c.kernel[0] {
                        for j in 0..c.kernel[1] {
                            let sy = (y * c.stride[0] + i * c.dilation[0]) as i64 - c.pads[0] as i64;
                            let sx = (x * c.stride[1] + j * c.dilation[1]) as i64 - c.pads[1] as i64;
                            if (0..h as i64).contains(&sy) && (0..w as i64).contains(&sx) {
                                let weight = ((o * per_group + z) * c.kernel[0] + i) * c.kernel[1] + j;
                                let feature = ((group * per_group + z) * h + sy as usize) * w + sx as usize;
                                add(weight, feature);
                            }
                        }
                    }
                }
            }
        }
        (sum, terms)
    }

    /// All outputs in wire order.
    fn exact(&self, bias_shift: Option<u32>) -> Vec<u64> {
        let outputs = self.geometry.output_rows();
        let per_channel = self.geometry.biases();
        let features = outputs * self.geometry.output_row_features();
        let modulus = 1i128 << self.bits;
        self.geometry
            .output_features(0..outputs)
            .flat_map(|id| (0..self.words).map(move |w| (id, w)))
            .map(|(id, w)| {
                let bias =
                    bias_shift.map_or(0, |s| i128::from(self.bias[id / (features / per_channel)]) << s);
                (self.oracle(id, w).0 + bias).rem_euclid(modulus) as u64
            })
            .collect()
    }

    fn layer(&self) -> BatchLinear {
        BatchLinear::new(self.geometry, &self.weights, &self.bias).unwrap()
    }

    /// Runs all tiles as a server does: by ranges of words, and again with whole polynomials in the same store.
    fn run(&self, p: &PreparedLinear, tiling: &Tiling, bias_shift: Option<u32>) -> Vec<u64> {
        let mut store = p.new_store(self.words).unwrap();
        let by_range = self.run_ranges(p, tiling, bias_shift, &mut store);
        store.clear();
        let mut all = Vec::new();
        for (index, tile) in tiling.tiles().iter().enumerate() {
            let ids: Vec<usize> = self.geometry.input_features(tile.input_rows()).collect();
            assert_eq!(ids.len(), tiling.input_count(index));
            let calls = AtomicUsize::new(0);
            let fill = |position: usize, words: &mut [u64]| {
                calls.fetch_add(1, Ordering::Relaxed);
                assert_eq!(words.len(), self.words);
                for (w, word) in words.iter_mut().enumerate() {
                    *word = self.input(ids[position], w);
                }
                Ok::<(), LayerError>(())
            };
            store.add_rows(tile.input_rows(), fill).unwrap();
            assert_eq!(calls.into_inner(), ids.len());
            if let Geometry::Conv2d(_) = self.geometry {
                assert!(store.rows_held() <= tiling.window_rows());
            }
            let mut out = vec![0xDEAD; tiling.output_count(index) * self.words];
            p.apply(tile.output_rows(), &store, bias_shift, &mut out).unwrap();
            store.drop_before(tiling.keep_from(index));
            all.extend(out);
        }
        assert_eq!(by_range, all);
        all
    }

    fn run_ranges(
        &self,
        p: &PreparedLinear,
        tiling: &Tiling,
        bias_shift: Option<u32>,
        store: &mut RowStore,
    ) -> Vec<u64> {
        let mut all = Vec::new();
        for (index, tile) in tiling.tiles().iter().enumerate() {
            let ids: Vec<usize> = self.geometry.input_features(tile.input_rows()).collect();
            let filled = AtomicUsize::new(0);
            let out: Vec<_> =
                (0..tiling.output_count(index)).map(|_| Mutex::new(vec![None; self.words])).collect();
            let fill = |position: usize, range: Range<usize>, words: &mut [u64]| {
                filled.fetch_add(words.len(), Ordering::Relaxed);
                assert_eq!((words.len(), range.start % 16), (range.len(), 0));
                for (word, w) in words.iter_mut().zip(range) {
                    *word = self.input(ids[position], w);
                }
                Ok::<(), LayerError>(())
            };
            let emit = |position: usize, range: Range<usize>, words: &mut [u64]| {
                let mut out = out[position].lock().unwrap();
                for (word, w) in words.iter_mut().zip(range) {
                    assert_eq!(out[w].replace(*word), None, "every word comes once");
                    // Emitted words are the callee's own.
                    *word = u64::MAX;
                }
                Ok(())
            };
            p.tile(tile, tiling.keep_from(index), store, bias_shift, fill, emit).unwrap();
            assert_eq!(filled.into_inner(), ids.len() * self.words);
            all.extend(out.into_iter().flat_map(|o| o.into_inner().unwrap()).map(Option::unwrap));
        }
        all
    }

    fn check(&self, tiles: &[Tile], bias_shift: Option<u32>) {
        let exact = self.exact(bias_shift);
        let tiling = Tiling::new(self.geometry, tiles).unwrap();
        let layer = self.layer();
        for isa in simd::available() {
            let p = layer.prepare(isa, self.bits).unwrap();
            assert_eq!(self.run(&p, &tiling, bias_shift), exact, "{isa:?} {self:?}");
        }
        for kernel in Kernel::ALL.into_iter().filter(|k| k.check(self.bits).is_ok()) {
            for storage in [Storage::Words, Storage::Limbs] {
                if storage == Storage::Limbs && !kernel.uses_limbs() {
                    continue;
                }
                let p = layer.prepare_with(simd::detected(), self.bits, kernel, storage).unwrap();
                let got = self.run(&p, &tiling, bias_shift);
                assert_eq!(got, exact, "{kernel:?} {storage:?} {self:?} {tiles:?}");
            }
        }
        let (mut counted, rows) = (0, self.geometry.output_rows());
        for id in self.geometry.output_features(0..rows) {
            counted += self.oracle(id, 0).1 * self.words as u64;
        }
        assert_eq!(layer.word_products(0..rows, self.words), counted);
        let by_tile = tiles.iter().map(|t| layer.word_products(t.output_rows(), self.words)).sum::<u64>();
        assert_eq!(by_tile, counted);
    }
}

/// The one tile of everything.
fn whole(g: &Geometry) -> Vec<Tile> {
    vec![Tile { inputs: [0, g.input_rows()], outputs: [0, g.output_rows()] }]
}

/// Bands cut at random, every band of outputs as early as its inputs allow (or later).
fn bands(g: &Geometry, cuts: &[u8]) -> Vec<Tile> {
    let (mut tiles, mut inputs, mut outputs) = (Vec::new(), 0, 0);
    let (rows, all) = (g.input_rows(), g.output_rows());
    for cut in cuts {
        let next = (inputs + usize::from(*cut) % 5).min(rows);
        let mut end = outputs;
        while end < all && g.needed_rows(end..end + 1).end <= next && end < outputs + usize::from(*cut) / 5 {
            end += 1;
        }
        if next > inputs || end > outputs {
            tiles.push(Tile { inputs: [inputs, next], outputs: [outputs, end] });
        }
        (inputs, outputs) = (next, end);
    }
    if inputs < rows || outputs < all {
        tiles.push(Tile { inputs: [inputs, rows], outputs: [outputs, all] });
    }
    tiles
}

fn conv() -> impl Strategy<Value = Geometry> {
    let axis = || (1usize..=9, 1usize..=9, 1usize..=3, 1usize..=3, 0usize..=3, 0usize..=3);
    let channels = prop_oneof![
        (1usize..=6, 1usize..=7).prop_map(|(c, o)| (c, o, 1)),
        (1usize..=4, 1usize..=3, 2usize..=3).prop_map(|(c, o, g)| (c * g, o * g, g)),
        (1usize..=6, 1usize..=2).prop_map(|(c, multiplier)| (c, c * multiplier, c)),
        (1usize..=2).prop_map(|c| (c, 14, 1)),
    ];
    (axis(), axis(), channels).prop_filter_map("kernel within the padded input", |(v, h, (c, o, groups))| {
        let size = |(n, k, s, d, before, after): (usize, usize, usize, usize, usize, usize)| {
            let padded = n + before + after;
            (padded > d * (k - 1)).then(|| (padded - d * (k - 1) - 1) / s + 1)
        };
        let spec = Conv2d {
            input: [c, v.0, h.0],
            output: [o, size(v)?, size(h)?],
            kernel: [v.1, h.1],
            stride: [v.2, h.2],
            pads: [v.4, h.4, v.5, h.5],
            dilation: [v.3, h.3],
            groups,
        };
        Some(Geometry::conv2d(spec).unwrap())
    })
}

fn geometry() -> impl Strategy<Value = Geometry> {
    prop_oneof![
        3 => conv(),
        1 => (1usize..150, 1usize..30)
            .prop_map(|(inputs, outputs)| Geometry::dense(Dense { inputs, outputs }).unwrap()),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    (geometry(), 1u32..=64, 1usize..80, any::<u64>(), any::<bool>()).prop_map(
        |(geometry, bits, words, seed, small)| {
            let weights = (0..geometry.weights())
                .map(|i| {
                    let w = mixed(seed ^ i as u64 ^ 0xABCD) as i16;
                    if small {
                        w >> 8
                    } else {
                        w
                    }
                })
                .collect();
            let bias = (0..geometry.biases()).map(|o| mixed(seed ^ o as u64) as i64 >> 40).collect();
            Case { geometry, weights, bias, bits, words, seed }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn layers_equal_the_definition(c in case(), cuts in prop::collection::vec(any::<u8>(), 0..12), shift in prop::option::of(0u32..20)) {
        c.check(&whole(&c.geometry), shift);
        c.check(&bands(&c.geometry, &cuts), shift);
    }

    #[test]
    fn geometry_survives_json(g in geometry()) {
        let json = serde_json::to_string(&g).unwrap();
        prop_assert_eq!(serde_json::from_str::<Geometry>(&json).unwrap(), g);
    }

    #[test]
    fn arbitrary_sizes_never_panic(v in prop::collection::vec(prop_oneof![0usize..6, any::<usize>()], 17)) {
        let c = Conv2d {
            input: [v[0], v[1], v[2]], output: [v[3], v[4], v[5]], kernel: [v[6], v[7]], stride: [v[8], v[9]],
            pads: [v[10], v[11], v[12], v[13]], dilation: [v[14], v[15]], groups: v[16],
        };
        if let Ok(g) = Geometry::conv2d(c) {
            prop_assert!(g.weights() > 0);
        }
        let _ = Geometry::dense(Dense { inputs: v[0], outputs: v[1] });
    }
}

#[test]
fn several_threads_and_one_give_the_same() {
    let g = Geometry::conv2d(Conv2d {
        input: [8, 6, 5],
        output: [8, 6, 5],
        kernel: [3, 3],
        stride: [1, 1],
        pads: [1, 1, 1, 1],
        dilation: [1, 1],
        groups: 8,
    })
    .unwrap();
    let weights = (0..g.weights()).map(|i| i as i16 - 36).collect();
    let c = Case { geometry: g, weights, bias: vec![3; 8], bits: 40, words: 1000, seed: 5 };
    let exact = c.exact(Some(7));
    let tiling = Tiling::new(g, &bands(&g, &[12, 13, 14, 200])).unwrap();
    for threads in [1, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let p = c.layer().prepare(simd::isa(), 40).unwrap();
        assert_eq!(pool.install(|| c.run(&p, &tiling, Some(7))), exact);
    }
}

fn mnist() -> Conv2d {
    Conv2d {
        input: [1, 28, 28],
        output: [5, 13, 13],
        kernel: [5, 5],
        stride: [2, 2],
        pads: [1, 1, 0, 0],
        dilation: [1, 1],
        groups: 1,
    }
}

#[test]
fn json_is_that_of_the_plan_format() {
    let json = r#"{"type":"dense","inputs":845,"outputs":100}"#;
    let g: Geometry = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&g).unwrap(), json);
    let json = concat!(
        r#"{"type":"conv2d","input":[1,28,28],"output":[5,13,13],"kernel":[5,5],"stride":[2,2],"#,
        r#""pads":[1,1,0,0],"dilation":[1,1],"groups":1}"#
    );
    let g: Geometry = serde_json::from_str(json).unwrap();
    assert_eq!(g, Geometry::conv2d(mnist()).unwrap());
    assert_eq!(serde_json::to_string(&g).unwrap(), json);
    assert!(serde_json::from_str::<Geometry>(&json.replace("[5,13,13]", "[5,14,13]")).is_err());
    assert!(serde_json::from_str::<Geometry>(&json.replace("\"groups\":1", "\"groups\":-1")).is_err());
    assert!(serde_json::from_str::<Geometry>(&json.replace("\"groups\":1", "\"groups\":1,\"x\":1")).is_err());
    assert!(serde_json::from_str::<Geometry>(r#"{"type":"conv3d"}"#).is_err());
    let tile: Tile = serde_json::from_str(r#"{"inputs":[0,784],"outputs":[0,845]}"#).unwrap();
    assert_eq!(tile, Tile { inputs: [0, 784], outputs: [0, 845] });
}

#[test]
fn inconsistent_geometries_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Conv2d)| {
        let mut c = mnist();
        change(&mut c);
        Geometry::conv2d(c).unwrap_err()
    };
    assert!(matches!(
        refused(&|c| c.output[1] = 12),
        LayerError::OutputSize { what: "height", expected: 13, got: 12 }
    ));
    assert!(matches!(refused(&|c| c.output[2] = 14), LayerError::OutputSize { what: "width", .. }));
    assert!(matches!(refused(&|c| c.stride[0] = 0), LayerError::Size { what: "vertical stride", .. }));
    assert!(matches!(refused(&|c| c.groups = 5), LayerError::Groups { what: "input", .. }));
    assert!(matches!(refused(&|c| c.dilation = [8, 1]), LayerError::KernelTooLarge { what: "height", .. }));
    assert!(matches!(refused(&|c| c.input[1] = usize::MAX), LayerError::Size { what: "input height", .. }));
    assert!(matches!(
        refused(&|c| c.input = [1 << 20; 3]),
        LayerError::Size { what: "number of input features", .. }
    ));
    assert!(Geometry::dense(Dense { inputs: 0, outputs: 1 }).is_err());
}

#[test]
fn wrong_tilings_are_refused_by_name() {
    let g = Geometry::conv2d(mnist()).unwrap();
    let tile = |i0, i1, o0, o1| Tile { inputs: [i0, i1], outputs: [o0, o1] };
    let check = |tiles: &[Tile]| Tiling::new(g, tiles).map(drop);
    assert_eq!(check(&[tile(0, 4, 0, 1), tile(4, 28, 1, 13)]), Ok(()));
    assert_eq!(check(&[tile(0, 28, 0, 4), tile(28, 28, 4, 13)]), Ok(()));
    assert!(matches!(
        check(&[tile(0, 3, 0, 1)]),
        Err(LayerError::TileTooEarly { needed: 4, received: 3, .. })
    ));
    assert!(matches!(check(&[tile(1, 28, 0, 13)]), Err(LayerError::TileOrder { what: "inputs", .. })));
    assert!(matches!(check(&[tile(0, 29, 0, 13)]), Err(LayerError::TileOrder { .. })));
    assert!(matches!(check(&[tile(0, 28, 5, 4)]), Err(LayerError::TileOrder { what: "outputs", .. })));
    assert!(matches!(check(&[tile(0, 28, 0, 12)]), Err(LayerError::TilesIncomplete { what: "outputs", .. })));
    assert!(matches!(check(&[]), Err(LayerError::TilesIncomplete { what: "inputs", .. })));
    assert!(matches!(check(&[tile(0, 0, 0, 0)]), Err(LayerError::TileEmpty(0))));
    assert!(check(&[tile(usize::MAX, usize::MAX, 0, usize::MAX)]).is_err());
}

#[test]
fn bounds_are_rigorous_and_checked() {
    let g = Geometry::dense(Dense { inputs: 3, outputs: 2 }).unwrap();
    let l = BatchLinear::new(g, &[1, -2, 2, 0, 5, 0], &[-100, 7]).unwrap();
    assert_eq!(l.max_row_l2(), 5.0);
    assert_eq!(l.max_row_l1(), 5);
    assert_eq!(l.output_bound(10), Ok(150));
    assert_eq!(l.output_bound(1000), Ok(5100));
    assert_eq!(l.output_bound(u64::MAX), Err(LayerError::OutputOverflow));
    assert!(BatchLinear::new(g, &[0; 5], &[0; 2]).is_err());
    assert!(BatchLinear::from_bytes(g, &[0; 6], &[0; 3]).is_err());
}

#[test]
fn missing_rows_and_foreign_stores_are_errors() {
    let g = Geometry::conv2d(mnist()).unwrap();
    let l = BatchLinear::new(g, &vec![1; g.weights()], &[0; 5]).unwrap();
    let p = l.prepare(Isa::Portable, 40).unwrap();
    let mut store = p.new_store(4).unwrap();
    let fill = |_: usize, words: &mut [u64]| {
        words.fill(1);
        Ok::<(), LayerError>(())
    };
    let mut out = vec![0; 5 * 13 * 4];
    assert_eq!(p.apply(0..1, &store, None, &mut out), Err(LayerError::RowMissing(0)));
    assert!(store.add_rows(1..2, fill).is_err());
    store.add_rows(0..4, fill).unwrap();
    assert_eq!(p.apply(0..1, &store, None, &mut out), Ok(()));
    assert!(p.apply(0..2, &store, None, &mut out).is_err());
    assert!(p.apply(13..14, &store, None, &mut out).is_err());
    store.drop_before(1);
    assert_eq!(p.apply(0..1, &store, None, &mut out), Err(LayerError::RowMissing(0)));
    let dense =
        BatchLinear::new(Geometry::dense(Dense { inputs: 4, outputs: 1 }).unwrap(), &[1; 4], &[0]).unwrap();
    let d = dense.prepare(Isa::Portable, 40).unwrap();
    assert_eq!(d.apply(0..1, &store, None, &mut out[..4]), Err(LayerError::ForeignStore));
    let mut store = d.new_store(4).unwrap();
    store.add_rows(0..3, fill).unwrap();
    assert_eq!(d.apply(0..1, &store, None, &mut out[..4]), Err(LayerError::RowMissing(3)));
    assert!(store.add_rows(3..5, fill).is_err());
    let failing = |_: usize, _: &mut [u64]| Err(LayerError::TileEmpty(9));
    assert_eq!(store.add_rows(3..4, failing), Err(LayerError::TileEmpty(9)));
    store.clear();
    let tile = Tile { inputs: [0, 4], outputs: [0, 1] };
    let words = |_: usize, _: Range<usize>, words: &mut [u64]| {
        words.fill(1);
        Ok::<(), LayerError>(())
    };
    let failing = |_: usize, _: Range<usize>, _: &mut [u64]| Err(LayerError::TileEmpty(9));
    assert_eq!(d.tile(&tile, 4, &mut store, None, words, failing), Err(LayerError::TileEmpty(9)));
    assert!(d.tile(&tile, 4, &mut store, None, words, words).is_err(), "rows came already");
    store.clear();
    assert_eq!(d.tile(&tile, 4, &mut store, None, failing, words), Err(LayerError::TileEmpty(9)));
    store.clear();
    assert_eq!(d.tile(&tile, 4, &mut store, None, words, words), Ok(()));
    assert_eq!(p.tile(&tile, 4, &mut store, None, words, words), Err(LayerError::ForeignStore));
    assert!(d.new_store(0).is_err());
    assert!(dense.prepare(Isa::Portable, 65).is_err());
}
