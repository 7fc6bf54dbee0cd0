//! Products of two tensors, sums of elements of an axis with public weights, and the largest elements of an axis.

use super::kernels;
use super::moves::{each_row, strides};
use super::values::{Data, RowMut};
use crate::plan::spec::TopKResult;
use crate::plan::Tensor;
use rayon::prelude::*;

/// `left @ right` over the last two axes, sums in the order of the contracted axis from 0.0.
pub(super) fn matmul(
    (left, shape): (&[f64], &[usize]),
    right: &[f64],
    output: &Tensor,
    images: usize,
) -> Data {
    // The check of plans lets no other shapes through.
    let (&[.., depth], &[.., m, n]) = (shape, output.shape.as_slice()) else {
        return Data::Real(Vec::new());
    };
    let row = |x: usize| x * images..(x + 1) * images;
    each_row(output, images, |feature, _, out, _| {
        let RowMut::Real(out) = out else { return };
        let (rest, column) = (feature / n, feature % n);
        let (matrix, line) = (rest / m, rest % m);
        for k in 0..depth {
            let a = &left[row((matrix * m + line) * depth + k)];
            let b = &right[row((matrix * depth + k) * n + column)];
            kernels::accumulate_product(a, b, out);
        }
    })
}

/// `sum_t weights[t][o] x[..., indices[t][o], ...]` for every position o of the axis, from 0.0 in the order of t.
pub(super) fn interpolate(
    x: &[f64],
    (input, output): (&Tensor, &Tensor),
    axis: usize,
    (indices, weights): (&[Vec<usize>], &[Vec<f64>]),
    images: usize,
) -> Data {
    let own = strides(&input.shape);
    each_row(output, images, |_, at, row, _| {
        let RowMut::Real(out) = row else { return };
        let base: usize =
            at.iter().zip(&own).enumerate().filter(|(a, _)| *a != axis).map(|(_, (c, s))| c * s).sum();
        for (taken, factors) in indices.iter().zip(weights) {
            let element = base + taken[at[axis]] * own[axis];
            kernels::accumulate_scaled(&x[element * images..][..images], factors[at[axis]], out);
        }
    })
}

/// The largest (or smallest) elements of an axis in order, or where they are; of equal ones the first.
///
/// One pass over the axis for each, whose operations do not depend on the values.
pub(super) fn top_k(
    x: &[f64],
    (input, output): (&Tensor, &Tensor),
    axis: usize,
    (largest, what): (bool, TopKResult),
    images: usize,
) -> Data {
    let (length, taken) = (input.shape[axis], output.shape[axis]);
    let inner: usize = input.shape[axis + 1..].iter().product();
    let sign = if largest { 1.0 } else { -1.0 };
    let mut out = vec![0.0; output.elements * images];
    let chunks = out.par_chunks_mut(taken * inner * images).zip(x.par_chunks(length * inner * images));
    chunks.for_each_init(
        || [(); 4].map(|()| vec![0.0; images]),
        |[last, place, best, index], (out, x)| {
            for j in 0..inner {
                last.fill(f64::INFINITY);
                place.fill(-1.0);
                for r in 0..taken {
                    best.fill(f64::NEG_INFINITY);
                    index.fill(-1.0);
                    for i in 0..length {
                        let row = &x[(i * inner + j) * images..][..images];
                        kernels::next_best(row, sign, i as f64, (last, place), (best, index));
                    }
                    let result = &mut out[(r * inner + j) * images..][..images];
                    match what {
                        TopKResult::Values => kernels::accumulate_scaled(best, sign, result),
                        TopKResult::Indices => result.copy_from_slice(index),
                    }
                    std::mem::swap(last, best);
                    std::mem::swap(place, index);
                }
            }
        },
    );
    Data::Real(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::TensorKind;

    const IMAGES: usize = 2;

    fn tensor(shape: &[usize]) -> Tensor {
        let elements = shape.iter().product();
        Tensor { id: 0, name: "t".into(), shape: shape.to_vec(), elements, kind: TensorKind::Real }
    }

    /// Two images side by side: the second holds the first one's numbers negated.
    fn rows(values: &[f64]) -> Vec<f64> {
        values.iter().flat_map(|&v| [v, -v]).collect()
    }

    fn real(data: Data) -> Vec<f64> {
        let Data::Real(v) = data else { panic!("real") };
        v
    }

    #[test]
    fn equal_elements_are_taken_in_the_order_of_the_axis() {
        let x = rows(&[3.0, 1.0, 3.0, -2.0, 1.0]);
        let (input, output) = (tensor(&[5]), tensor(&[4]));
        let run = |largest, what| real(top_k(&x, (&input, &output), 0, (largest, what), IMAGES));
        let first = |v: &[f64]| v.iter().step_by(2).copied().collect::<Vec<_>>();
        let second = |v: &[f64]| v.iter().skip(1).step_by(2).copied().collect::<Vec<_>>();
        let indices = run(true, TopKResult::Indices);
        assert_eq!(first(&indices), [0.0, 2.0, 1.0, 4.0]);
        assert_eq!(second(&indices), [3.0, 1.0, 4.0, 0.0]);
        assert_eq!(first(&run(true, TopKResult::Values)), [3.0, 3.0, 1.0, 1.0]);
        assert_eq!(first(&run(false, TopKResult::Indices)), [3.0, 1.0, 4.0, 0.0]);
        assert_eq!(first(&run(false, TopKResult::Values)), [-2.0, 1.0, 1.0, 3.0]);
    }

    #[test]
    fn matrices_multiply_by_pairs() {
        let a = rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let b = rows(&[1.0, 0.0, 0.0, 1.0, 2.0, 1.0, 1.0, 0.0]);
        let product = real(matmul((&a, &[2, 2, 2]), &b, &tensor(&[2, 2, 2]), IMAGES));
        let want = [1.0, 2.0, 3.0, 4.0, 16.0, 5.0, 22.0, 7.0];
        assert_eq!(product, want.iter().flat_map(|&v| [v, v]).collect::<Vec<_>>());
    }

    #[test]
    fn weights_belong_to_positions_of_the_result() {
        let x = rows(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let taps = (vec![vec![2, 0], vec![1, 1]], vec![vec![0.5, 2.0], vec![1.0, 0.0]]);
        let run = |axis, input: &[usize], output: &[usize]| {
            real(interpolate(&x, (&tensor(input), &tensor(output)), axis, (&taps.0, &taps.1), IMAGES))
        };
        let first = |v: Vec<f64>| v.into_iter().step_by(2).collect::<Vec<_>>();
        assert_eq!(first(run(1, &[2, 3], &[2, 2])), [3.5, 2.0, 8.0, 8.0]);
        assert_eq!(first(run(0, &[3, 2], &[2, 2])), [5.5, 7.0, 2.0, 4.0]);
    }
}
