//! The protocols on shares, one file each, every one with its cost.

mod argmax;
mod compare;
mod convert;
pub(crate) mod cross;
mod divide;
pub(crate) mod leaf;
mod maximum;
mod multiply;
mod narrow;
mod odd;
mod pool;
mod power;
pub(crate) mod product;
mod relu;
mod rescale;
pub(crate) mod ripple;
mod rows;
pub(crate) mod selection;
mod softmax;
mod spline;
mod stretched;
pub(crate) mod tree;
mod truncate;

pub use argmax::{argmax, argmax_cost, index_ring};
pub use compare::{
    drelu, drelu_cost, drelu_dropping, drelu_dropping_cost, less_than, less_than_cost, Bits, Comparison,
};
pub use convert::{
    bit_to_arithmetic, bit_to_arithmetic_cost, mux, mux_cost, open, open_cost, reveal, reveal_cost,
};
pub use divide::{divide, divide_cost, Quotient};
pub use maximum::{max_many, max_many_cost, maximum, maximum_cost};
pub use multiply::{multiply, multiply_cost, square, square_cost, Factor};
pub use narrow::{narrowed, relu_dividing, relu_dividing_cost, widened, widened_cost, Narrowing};
pub use odd::{
    mux_odd, mux_odd_cost, small_odd, to_odd, to_odd_cost, to_odd_small, to_odd_small_cost, to_ring,
    to_ring_cost, to_ring_small, to_ring_small_cost,
};
pub use pool::{
    average_pool, average_pool_cost, max_pool, max_pool_cost, max_pool_dividing, max_pool_dividing_cost,
    PoolShape, MAX_AXIS,
};
pub use power::{power, power_cost, Power};
pub use relu::{
    clip, clip_cost, leaky_relu, leaky_relu_cost, relu, relu_cost, relu_dropping, relu_dropping_cost,
    relu_within, relu_within_cost, Slope,
};
pub use rescale::{rescale, rescale_cost};
pub use rows::{multiply_rows, multiply_rows_cost};
pub use softmax::{softmax, softmax_cost, Softmax};
pub use spline::{
    saturating_spline, saturating_spline_cost, spline, spline_cost, BasisSpec, Function, Interval, Pieces,
    Shape, ShapeSpec, Spline,
};
pub use truncate::{truncate, truncate_cost, Range, Rounding};
