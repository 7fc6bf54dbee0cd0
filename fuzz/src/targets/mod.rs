//! The targets.

mod bfv;
mod ckks;
mod client_aided;
mod frame;
mod non_interactive;
mod ot;
mod plan;
mod setups;
mod shares;
mod two_party;

pub use bfv::BFV;
pub use ckks::CKKS;
pub use client_aided::{CLIENT_AIDED_CLIENT, CLIENT_AIDED_SERVER};
pub use frame::FRAME;
pub use non_interactive::{NON_INTERACTIVE_CLIENT, NON_INTERACTIVE_SERVER};
pub use ot::OT;
pub use plan::PLAN;
pub use setups::SETUPS;
pub use shares::SHARES;
pub use two_party::{TWO_PARTY_CLIENT, TWO_PARTY_SERVER, TWO_PARTY_SLOTS};
