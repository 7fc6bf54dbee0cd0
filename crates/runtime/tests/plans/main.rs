//! Plans, from the file to the answer, without sockets: one program, since each links the whole run time.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod decoders;
mod end_to_end;
mod few_images;
mod operations;
mod plan_file;
mod ranges;
