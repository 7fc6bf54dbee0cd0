//! Protocols between two parties: one program, since each that is linked costs seconds.

#![allow(clippy::unwrap_used)]

mod ahead;
mod common;
mod exponentials;
mod functions;
mod garble;
mod hostile;
mod kept;
mod ot;
mod products;
mod properties;
mod protocols;
mod ripple;
mod softmax;
mod views;
