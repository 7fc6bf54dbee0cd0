//! Two-party computation on additive shares over Z_2^l (l up to 64), semi-honest, 128-bit computational
//! security (no step here has a statistical error; what the silent OT rests on: `docs/mpc.md`): x = x0 + x1 mod 2^l, party i holds x_i.
//!
//! A [`Session`] joins two parties over a [`Channel`]. The protocols are functions on a session and a share
//! vector, called by both parties with the same public arguments: [`relu`], [`leaky_relu`], [`clip`],
//! [`max_pool`], [`truncate`], [`average_pool`], [`argmax`] and their parts. [`garble`] has the same layers by garbled circuits, also
//! for shares modulo an odd p, and [`to_ring`], [`to_odd`] and [`mux_odd`] lead from one kind of share to the other. Every protocol `p` has a twin
//! `p_cost` that predicts bytes, rounds and turns exactly; see [`CostModel`]. `docs/mpc.md` has the formulas.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::print_stdout))]

pub(crate) mod bits;
mod block;
pub mod channel;
mod cost;
mod divisor;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod garble;
mod kept;
mod line;
pub mod ot;
mod protocols;
mod ring;
mod select;
mod session;
mod simd;
pub mod uses;
mod wire;

pub use block::{Block, Prg};
pub use channel::{memory_pair, Channel, MemoryChannel, Stats, TcpChannel};
pub use cost::{Cost, CostModel, Extended};
pub use error::{MpcError, Result};
pub use kept::{pads_cost, KeptPads, PadDemand};
pub use ot::ledger::SilentSize;
pub use ot::OtKind;
pub use protocols::*;
pub use ring::Ring;
pub use session::{setup_cost, Party, Session};
