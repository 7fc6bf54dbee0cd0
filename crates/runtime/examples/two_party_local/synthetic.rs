//! Networks of known shapes with random weights: for speed, not for answers.

use crate::builder::{File, Net};
use hushnet_runtime::plan::TensorBytes;
use hushnet_runtime::two_party::TwoPartyPlan;
use std::collections::BTreeMap;

const BITS: u32 = 6;
/// Activations between layers stay below this.
const ACTIVATION: u64 = 127;

/// A plan file.
pub fn plan(name: &str) -> Vec<u8> {
    let net = match name {
        "plain20" => plain20(),
        "resnet50" => resnet50(),
        "tiny" => tiny(),
        _ => panic!("no synthetic network {name}"),
    };
    let files: BTreeMap<String, TensorBytes<'_>> =
        net.files.iter().map(|(n, (dtype, shape, data)): (_, &File)| (n.clone(), TensorBytes { dtype, shape, data })).collect();
    TwoPartyPlan::file(&net.json(), &files).unwrap()
}

/// Back to 4 fraction bits and the activations' bound.
fn rescale(net: &mut Net, x: usize, sign: &str) -> usize {
    net.truncate_to(x, BITS - 1, sign, false, ACTIVATION)
}

fn conv_relu(net: &mut Net, x: usize, outputs: usize, kernel: usize, stride: usize) -> usize {
    let c = net.conv(x, outputs, kernel, stride, kernel / 2, 1, BITS);
    let r = net.relu(c);
    rescale(net, r, "non-negative")
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
    let mut net = Net::new(32, 2);
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
    let mut net = Net::new(32, 3);
    let x = net.input("image", &[3, 224, 224], 4, 15);
    let c = net.conv(x, 64, 7, 2, 3, 1, BITS);
    let p = net.pool("max_pool", c, [3, 3], [2, 2], [1; 4]);
    let r = net.relu(p);
    let mut x = rescale(&mut net, r, "non-negative");
    for (blocks, width, first) in [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)] {
        for block in 0..blocks {
            let stride = if block == 0 { first } else { 1 };
            let a = conv_relu(&mut net, x, width, 1, 1);
            let b = conv_relu(&mut net, a, width, 3, stride);
            let c = net.conv(b, 4 * width, 1, 1, 0, 1, BITS);
            let main = rescale(&mut net, c, "any");
            let side = if block == 0 {
                let s = net.conv(x, 4 * width, 1, stride, 0, 1, BITS);
                rescale(&mut net, s, "any")
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
