//! Bands in which inputs arrive and outputs leave.

use super::{Geometry, LayerError};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// New input rows uploaded, and output rows returned, `[begin, end)` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tile {
    /// Input rows (dense: features).
    pub inputs: [usize; 2],
    /// Output rows (dense: features).
    pub outputs: [usize; 2],
}

impl Tile {
    /// Rows of the input that the tile reads.
    #[must_use]
    pub fn input_rows(&self) -> Range<usize> {
        self.inputs[0]..self.inputs[1]
    }

    /// Rows of the output that the tile computes.
    #[must_use]
    pub fn output_rows(&self) -> Range<usize> {
        self.outputs[0]..self.outputs[1]
    }
}

/// Tiles checked against a geometry: inputs and outputs in order and exactly once, no output before its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiling {
    geometry: Geometry,
    tiles: Vec<Tile>,
}

impl Tiling {
    /// Checks the tiles.
    ///
    /// # Errors
    /// [`LayerError`] naming the tile and what it must be.
    pub fn new(geometry: Geometry, tiles: &[Tile]) -> Result<Self, LayerError> {
        let limits = [geometry.input_rows(), geometry.output_rows()];
        let mut done = [0; 2];
        for (index, tile) in tiles.iter().enumerate() {
            if tile.input_rows().is_empty() && tile.output_rows().is_empty() {
                return Err(LayerError::TileEmpty(index));
            }
            for (side, [start, end]) in [tile.inputs, tile.outputs].into_iter().enumerate() {
                if start != done[side] || end < start || end > limits[side] {
                    let what = ["inputs", "outputs"][side];
                    let (expected, limit) = (done[side], limits[side]);
                    return Err(LayerError::TileOrder { tile: index, what, start, end, expected, limit });
                }
                done[side] = end;
            }
            let needed = geometry.needed_rows(tile.output_rows()).end;
            if !tile.output_rows().is_empty() && needed > done[0] {
                return Err(LayerError::TileTooEarly { tile: index, needed, received: done[0] });
            }
        }
        for (side, what) in ["inputs", "outputs"].into_iter().enumerate() {
            if done[side] != limits[side] {
                return Err(LayerError::TilesIncomplete { what, expected: limits[side], got: done[side] });
            }
        }
        Ok(Self { geometry, tiles: tiles.to_vec() })
    }

    /// The shapes of the layer that the tiles cover.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The tiles of the layer, in order.
    #[must_use]
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// Features uploaded for a tile; 0 when there is no such tile.
    #[must_use]
    pub fn input_count(&self, tile: usize) -> usize {
        self.tiles.get(tile).map_or(0, |t| t.input_rows().len() * self.geometry.input_row_features())
    }

    /// Features returned by a tile; 0 when there is no such tile.
    #[must_use]
    pub fn output_count(&self, tile: usize) -> usize {
        self.tiles.get(tile).map_or(0, |t| t.output_rows().len() * self.geometry.output_row_features())
    }

    /// First input row that the tiles after `tile` still read: rows before it can go.
    #[must_use]
    pub fn keep_from(&self, tile: usize) -> usize {
        let end = self.tiles.get(tile).map_or(self.geometry.output_rows(), |t| t.outputs[1]);
        self.geometry.first_needed_row(end..self.geometry.output_rows())
    }

    /// Most input rows in the window at once, a tile's new ones included.
    #[must_use]
    pub fn window_rows(&self) -> usize {
        let mut kept = 0;
        let mut most = 0;
        for (index, tile) in self.tiles.iter().enumerate() {
            most = most.max(tile.inputs[1].saturating_sub(kept));
            kept = self.keep_from(index).min(tile.inputs[1]);
        }
        most
    }
}
