//! Which channels meet in which step.

use super::*;
use crate::batch::Conv2d;
use crate::slots::{Geometry, Layout, Method};
use proptest::prelude::*;

fn layout(channels: [usize; 2], side: usize, stride: usize, groups: usize, slots: usize) -> ConvLayout {
    let out = (side - 1) / stride + 1;
    let geometry = Geometry::conv2d(Conv2d {
        input: [channels[0], side, side],
        output: [channels[1], out, out],
        kernel: [1, 1],
        stride: [stride, stride],
        pads: [0; 4],
        dilation: [1, 1],
        groups,
    });
    match Layout::new(&geometry.unwrap(), Method::Gala, slots).unwrap() {
        Layout::Conv(layout) => *layout,
        Layout::Dense(_) => panic!("a convolution has another layout"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn channels_of_a_group_meet_in_the_step_that_brings_them_together(
        groups in 1usize..9, inputs in 1usize..5, outputs in 1usize..5, side in 1usize..5, stride in 1usize..3,
        slots in prop::sample::select(vec![16usize, 32, 64]),
    ) {
        let layout = layout([groups * inputs, groups * outputs], side, stride, groups, slots);
        let (per, phases) = (layout.per_cipher, layout.phases.len());
        for output in 0..layout.output_blocks() {
            for input in layout.inputs_of(output) {
                let mut expected = vec![false; per * phases];
                for (step, to) in (0..per).flat_map(|step| (0..per).map(move |to| (step, to))) {
                    let (o, v) = (output * per + to, input * per + layout.source(to, step));
                    let same = o / layout.conv.group_outputs() == v / phases / layout.conv.group_inputs();
                    expected[step * phases + v % phases] |= o < groups * outputs && v < layout.channels() && same;
                }
                prop_assert_eq!(layout.meetings(output, input, &mut 0), expected);
            }
        }
    }
}

#[test]
fn a_depthwise_layer_has_one_visit_a_channel() {
    let layout = layout([20_000, 20_000], 1, 1, 20_000, 4096);
    let mut visited = 0;
    for output in 0..layout.output_blocks() {
        layout.inputs_of(output).for_each(|input| drop(layout.meetings(output, input, &mut visited)));
    }
    assert_eq!(visited, 20_000);
}
