//! Set-ups of rotation-free layers: the header and polynomials that a server sends, and the file that a client keeps of them. The first
//! byte says which and of which profile, the rest changes a valid one.

use crate::{edits, numbered, Target};
use hushnet_layers::batch::{Dense, Geometry, LayerError};
use hushnet_layers::rotation_free::{
    Design, Profile, RotationFreeClient, RotationFreeLinear, Setup, WeightBounds,
};
use hushnet_ring::Prg;
use std::sync::OnceLock;

/// Set-ups as they travel and as they are kept.
pub const SETUPS: Target = Target { seeds, run, memory: 32 << 20 };

struct World {
    design: Design,
    header: Vec<u8>,
    polys: Vec<Vec<u8>>,
    stored: Vec<u8>,
}

fn made(profile: Profile) -> Result<World, LayerError> {
    let mut prg = Prg::from_seed([8; 16]);
    let geometry = Geometry::dense(Dense { inputs: 6, outputs: 3 })?;
    let bounds = WeightBounds { l2: 32.0, bits: 4 };
    let design = Design::smallest(&geometry, 16, bounds, profile, 2)?;
    let weights: Vec<i16> = (0..18).map(|i| i % 7 - 3).collect();
    let linear = RotationFreeLinear::new(&design, &weights, &[1, 2, 3], false, &mut prg)?;
    let header = linear.setup_header();
    let mut setup = Setup::begin(&design, &header)?;
    let polys = (0..setup.expected()).map(|k| linear.setup_poly(k)).collect::<Result<Vec<_>, _>>()?;
    polys.iter().try_for_each(|p| setup.receive(p))?;
    Ok(World { header, polys, stored: setup.to_bytes(), design })
}

fn world(which: usize) -> &'static World {
    static WORLDS: OnceLock<[World; 2]> = OnceLock::new();
    let make = || [Profile::Compact, Profile::Flooded].map(|p| made(p).expect("this layer has parameters"));
    &WORLDS.get_or_init(make)[which % 2]
}

fn seeds() -> Vec<(String, Vec<u8>)> {
    numbered(
        (0..4).flat_map(|which| edits::seeds(2).into_iter().map(move |s| [&[which], s.as_slice()].concat())),
    )
}

fn read(w: &World, kept: bool, script: &[u8]) -> Result<(), LayerError> {
    if kept {
        let mut file = vec![w.stored.clone()];
        edits::apply(script, &mut file);
        let file = file.concat();
        let setup = Setup::from_bytes(&w.design, &file)?;
        let whole = setup.to_bytes();
        assert!(file.starts_with(&whole), "what was read is a part of the file");
        assert!(setup.received() <= setup.expected());
        return Ok(());
    }
    let mut messages: Vec<Vec<u8>> = [vec![w.header.clone()], w.polys.clone()].concat();
    edits::apply(script, &mut messages);
    let (header, polys) = messages.split_first().map_or((&[][..], &[][..]), |(h, p)| (h.as_slice(), p));
    let mut setup = Setup::begin(&w.design, header)?;
    polys.iter().try_for_each(|p| setup.receive(p))?;
    RotationFreeClient::new(&w.design, &setup).map(drop)
}

fn run(data: &[u8]) {
    let Some((which, script)) = data.split_first() else { return };
    let result = read(world(usize::from(*which) >> 1), which % 2 == 0, script);
    assert!(result.is_ok() || !script.is_empty(), "a valid set-up is accepted: {result:?}");
}
