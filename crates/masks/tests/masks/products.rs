//! Products of two shared matrices: requests, answers and keys of two sessions.

use super::{assert_found, assert_once, recorded, Needs};
use hushnet_layers::matrix_product::{MatrixHolder, MatrixMultiplier, MatrixProduct, MatrixShape};
use hushnet_ring::ledger::Recording;
use hushnet_ring::Prg;
use hushnet_rlwe::uses;
use hushnet_rlwe::wide::WideContext;

const NEEDS: Needs<'_> =
    &[(uses::SECRET, 4), (uses::WIDE_MASK, 12), (uses::WIDE_RERANDOMISER, 8), (uses::MERGE_MASK, 4)];

/// Two products in each of two sessions, of the same operands, which both parties hold in the clear here.
fn sessions(context: &WideContext) {
    let shape = MatrixShape { heads: 2, rows: 3, inner: 4, columns: 5 };
    let product = MatrixProduct::new(shape, 30).unwrap();
    let [a, b, _] = shape.elements().map(|len| vec![7; len]);
    for _ in 0..2 {
        let mut prg = Prg::from_os().unwrap();
        let parties = [(); 2].map(|()| {
            let (holder, keys) = MatrixHolder::generate(context, product.spacing(), &mut prg).unwrap();
            (holder, MatrixMultiplier::read(context, product.spacing(), &keys).unwrap())
        });
        for _ in 0..2 {
            for (holder, multiplier) in &parties {
                let mut own = product.local(&a, &b).unwrap();
                let request = holder.request(&product, &a, &b).unwrap();
                let answer = multiplier.answer(&product, &request, (&a, &b), &mut own).unwrap();
                holder.open(&product, &answer, &mut own).unwrap();
            }
        }
    }
}

#[test]
fn products_of_shares_use_every_mask_once() {
    let context = WideContext::new().unwrap();
    let ((), report) = recorded(|| sessions(&context));
    assert_once("products of shares", &report, NEEDS);
}

/// Planted: one re-randomiser in two answers. Results stay right, so nothing else would show it.
#[test]
fn planted_repetitions_in_products_are_found() {
    let (context, kind) = (WideContext::new().unwrap(), uses::WIDE_RERANDOMISER);
    let recording = Recording::start().plant(kind, 2..4);
    sessions(&context);
    assert_found(kind.0, &recording.finish(), &[kind]);
}
