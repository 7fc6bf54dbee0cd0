//! Networks of known shapes with random weights: for speed, not for answers.

use crate::builder::{File, Net};
use hushnet_runtime::plan::TensorBytes;
use hushnet_runtime::two_party::TwoPartyPlan;
use std::collections::BTreeMap;

const BITS: u32 = 6;
/// Activations between layers stay below this.
const ACTIVATION: u64 = 127;

/// A plan file.
pub(crate) fn plan(name: &str) -> Vec<u8> {
    let net = match name {
        "plain20" => plain20(),
        "resnet50" => resnet50(),
        "tiny" => tiny(),
        _ => panic!("no synthetic network {name}"),
    };
    let files: BTreeMap<String, TensorBytes<'_>> = net
        .files
        .iter()
        .map(|(n, (dtype, shape, data)): (_, &File)| (n.clone(), TensorBytes { dtype, shape, data }))
        .collect();
    TwoPartyPlan::file(&net.json(), &files).unwrap()
}

/// Back to the activations' size: random weights of BITS bits and `terms` terms grow values about `18 sqrt(terms)` times.
fn rescale(net: &mut Net, x: usize, sign: &str, terms: usize) -> usize {
    let drop = (13.0 * (terms as f64).sqrt()).log2().ceil() as u32;
    let t = net.truncate_to(x, drop, sign, false, ACTIVATION);
    net.tensors[t]["frac_bits"] = 4.into();
    t
}

fn conv_relu(net: &mut Net, x: usize, outputs: usize, kernel: usize, stride: usize) -> usize {
    let terms = net.shape(x)[0] * kernel * kernel;
    let c = net.conv(x, outputs, kernel, stride, kernel / 2, 1, BITS);
    let r = net.relu(c);
    rescale(net, r, "non-negative", terms)
}

fn head(net: &mut Net, x: usize, classes: usize) {
    let side = net.shape(x)[1];
    let s = net.pool("sum_pool", x, [side, side], [1, 1], [0; 4]);
    let t = net.truncate_to(s, 4, "non-negative", false, ACTIVATION);
    let d = net.dense(t, classes, BITS);
    let t = net.truncate(d, 4, "any", true);
    net.open("logits", t);
}

fn tiny() -> Net {
    let mut net = Net::new(30, 1);
    let mut x = net.input("image", &[3, 16, 16], 4, 15);
    x = conv_relu(&mut net, x, 8, 3, 1);
    x = conv_relu(&mut net, x, 16, 3, 2);
    head(&mut net, x, 10);
    net
}

/// Twenty layers on 32 x 32 images, as ResNet-20 without the shortcuts.
fn plain20() -> Net {
    let mut net = Net::new(25, 2);
    let mut x = net.input("image", &[3, 32, 32], 4, 15);
    x = conv_relu(&mut net, x, 16, 3, 1);
    for (width, first) in [(16, 1), (32, 2), (64, 2)] {
        for layer in 0..6 {
            x = conv_relu(&mut net, x, width, 3, if layer == 0 { first } else { 1 });
        }
    }
    head(&mut net, x, 10);
    net
}

fn resnet50() -> Net {
    let mut net = Net::new(28, 3);
    let x = net.input("image", &[3, 224, 224], 4, 15);
    let c = net.conv(x, 64, 7, 2, 3, 1, BITS);
    let p = net.pool("max_pool", c, [3, 3], [2, 2], [1; 4]);
    let r = net.relu(p);
    let mut x = rescale(&mut net, r, "non-negative", 147);
    for (blocks, width, first) in [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)] {
        for block in 0..blocks {
            let stride = if block == 0 { first } else { 1 };
            let a = conv_relu(&mut net, x, width, 1, 1);
            let b = conv_relu(&mut net, a, width, 3, stride);
            let c = net.conv(b, 4 * width, 1, 1, 0, 1, BITS);
            let main = rescale(&mut net, c, "any", width);
            let side = if block == 0 {
                let terms = net.shape(x)[0];
                let s = net.conv(x, 4 * width, 1, stride, 0, 1, BITS);
                rescale(&mut net, s, "any", 2 * terms)
            } else {
                x
            };
            let sum = net.add(main, side);
            x = net.relu(sum);
            // The bound of the sum is twice the activations'.
            net.tensors[x]["bound"] = ACTIVATION.into();
        }
    }
    head(&mut net, x, 1000);
    net
}
