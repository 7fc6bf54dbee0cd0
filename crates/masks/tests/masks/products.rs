//! Products of two shared matrices: requests, answers and keys of two sessions.

use super::{assert_found, assert_once, recorded, Needs};
use hushnet_layers::matrix_product::{MatrixClient, MatrixProduct, MatrixServer, MatrixSession, MatrixShape};
use hushnet_ring::ledger::Recording;
use hushnet_ring::Prg;
use hushnet_rlwe::uses;
use hushnet_rlwe::wide::WideContext;

const NEEDS: Needs<'_> =
    &[(uses::SECRET, 2), (uses::WIDE_MASK, 12), (uses::WIDE_RERANDOMISER, 8), (uses::MERGE_MASK, 4)];

/// Two products in each of two sessions, of the same operands, which every party holds in the clear here.
fn sessions(context: &WideContext) {
    let shape = MatrixShape { heads: 2, rows: 3, inner: 4, columns: 5 };
    let product = MatrixProduct::new(shape, 30).unwrap();
    let [a, b, _] = shape.elements().map(|len| vec![7; len]);
    for session in 0..2u8 {
        let mut prg = Prg::from_os().unwrap();
        let (client, keys) = MatrixClient::generate(context, product.spacing(), &mut prg).unwrap();
        let server = MatrixSession::read(context, product.spacing(), &keys).unwrap();
        for image in 0..2u8 {
            let number = (&[10 * session + image; 32], 1);
            let request = client.request(&product, number, &a, &b).unwrap();
            let (answer, _) =
                MatrixServer::default().answer(&server, &product, number, &request, (&a, &b)).unwrap();
            client.open(&product, &answer, &a, &b).unwrap();
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
