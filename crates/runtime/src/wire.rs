//! frames
/// Bytes of a frame's header.
pub const HEADER: usize = 16;
