"""Transforms and columns put back into images: the graph gives what ONNX's reference gives, without a layer."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hushnet.frontend import UnsupportedModel, load
from hypothesis import given, settings
from hypothesis import strategies as st

from .harness import Net, agree, images, linears

quick = settings(max_examples=25, deadline=None)


def as_reference(net):
    """The graph against ONNX's reference, which has all forms of these operators."""
    model = net.model()
    feeds = images(model)
    graph = agree(model, onnx.reference.ReferenceEvaluator(model).run(None, feeds))
    assert not linears(graph)


@quick
@given(st.data())
def test_transforms_along_an_axis(data):
    size, parts = data.draw(st.integers(2, 9)), data.draw(st.sampled_from([1, 2]))
    shape = [3, 4, parts]
    axis = data.draw(st.integers(1, 2))
    shape[axis - 1] = size
    inverse = data.draw(st.booleans())
    onesided = data.draw(st.booleans()) and parts == (2 if inverse else 1)
    least = 2 * (size - 1) if onesided and inverse else 2
    length = data.draw(st.sampled_from([None, least, least + 1, size + 3]))
    if onesided and inverse and length == size + 3 < least:
        length = least
    net = Net(shape, opset=20)
    inputs = ["x0", "" if length is None else net.constant(length, np.int64), net.constant(axis, np.int64)]
    net.op("DFT", *inputs, inverse=int(inverse), onesided=int(onesided))
    as_reference(net)


@pytest.mark.parametrize("opset", [17, 19])
def test_transforms_of_old_opsets_name_their_axis(opset):
    net = Net((6, 5, 2), opset=opset)
    net.op("DFT", axis=2, inverse=1)
    as_reference(net)


@quick
@given(st.data())
def test_transforms_of_frames(data):
    length, step, onesided = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 4)), data.draw(st.booleans())
    net = Net((data.draw(st.integers(6, 14)), 1), opset=17)
    window = net.constant(np.hanning(length + 2)[1:-1]) if data.draw(st.booleans()) else ""
    step = net.constant(step, np.int64)
    net.op("STFT", "x0", step, window, net.constant(length, np.int64), onesided=int(onesided))
    as_reference(net)


@quick
@given(st.data())
def test_columns_become_an_image(data):
    block, image = ([data.draw(st.integers(low, high)) for _ in range(2)] for low, high in ((1, 3), (5, 7)))
    strides, dilations = ([data.draw(st.integers(1, 2)) for _ in range(2)] for _ in range(2))
    pads = [data.draw(st.integers(0, 1)) for _ in range(4)]
    count = 1
    for a in range(2):
        count *= (image[a] + pads[a] + pads[2 + a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
    net = Net((2 * block[0] * block[1], count), opset=18)
    net.op("Col2Im", "x0", net.ints(*image), net.ints(*block), strides=strides, dilations=dilations, pads=pads)
    as_reference(net)


def test_what_has_no_real_matrix_is_refused():
    net = Net((6, 3), opset=20)
    net.op("DFT", "x0", "", net.constant(1, np.int64))
    with pytest.raises(UnsupportedModel, match="last axis has 3 elements"):
        load(net.model())
    net = Net((6, 2), opset=20)
    net.op("DFT", "x0", "", net.constant(1, np.int64), onesided=1)
    with pytest.raises(UnsupportedModel, match="one-sided"):
        load(net.model())
    net = Net((4000, 1), opset=20)
    net.op("DFT", "x0", "", net.constant(1, np.int64))
    with pytest.raises(UnsupportedModel, match="more than 4194304"):
        load(net.model())
