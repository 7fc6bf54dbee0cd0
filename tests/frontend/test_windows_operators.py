"""Convolutions, their transposes and poolings over one to three axes, and Resize.

Drawn geometries against the reference.
"""

import onnx.reference
import pytest
from hushnet.frontend import UnsupportedModel, check, load
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from .harness import Net, agree, images, linears, ops

slow = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
small = st.integers(1, 3)


def defined(model):
    """What ONNX's own reference implementation gives."""
    return onnx.reference.ReferenceEvaluator(model).run(None, images(model))


@st.composite
def transposed(draw):
    rank, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    spatial = [draw(st.integers(1, 4)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    dilations = [draw(st.integers(1, 2)) for _ in range(rank)]
    attributes = {"strides": strides, "dilations": dilations, "group": groups}
    mode = draw(st.sampled_from(["pads", "pads", "VALID", "SAME_UPPER", "SAME_LOWER", "shape"]))
    span = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, spatial, kernel, dilations)]
    if mode == "pads":
        attributes["output_padding"] = [draw(st.integers(0, s - 1)) for s in strides]
        attributes["pads"] = [draw(st.integers(0, (n - 1) // 2)) for n in span * 2]
    elif mode == "shape":
        attributes["output_shape"] = [draw(st.integers(max(low, n - 2), n)) for n, low in zip(span, spatial)]
    else:
        attributes["auto_pad"] = mode
        # ONNX Runtime makes negative padding of larger strides
        assume(mode == "VALID" or all(k > s for k, s in zip(kernel, strides)))
    net = Net((2 * groups, *spatial), batch=draw(st.sampled_from(["batch", 2])))
    inputs = ["x0", net.weight(2 * groups, draw(small), *kernel)]
    if draw(st.booleans()):
        inputs.append(net.weight(net.constants[0].dims[1] * groups))
    net.op("ConvTranspose", *inputs, **attributes)
    return net.model()


@slow
@given(transposed())
def test_transposed_convolution(model):
    note(str(model.graph.node[0].attribute))
    assert len(linears(agree(model))) == 1


def test_transposed_convolution_works_on_the_small_image():
    """The layer reads the input as it is: no zeros are put between its elements and encrypted."""
    net = Net((2, 5, 5))
    net.op("ConvTranspose", "x0", net.weight(2, 3, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1])
    (layer,) = linears(agree(net.model()))
    assert layer.geometry.input == (2, 5, 5) and layer.geometry.output[0] == 3 * 4


@st.composite
def volumes(draw):
    groups = draw(st.integers(1, 2))
    spatial = [draw(st.integers(1, 4)) for _ in range(3)]
    kernel = [draw(st.integers(1, 2)) for _ in range(3)]
    attributes = {
        "strides": [draw(st.integers(1, 2)) for _ in range(3)],
        "dilations": [draw(st.integers(1, 2)) for _ in range(3)],
        "pads": [draw(st.integers(0, 1)) for _ in range(6)],
        "group": groups,
    }
    for a in range(3):
        reach = (kernel[a] - 1) * attributes["dilations"][a] + 1
        assume(spatial[a] + attributes["pads"][a] + attributes["pads"][3 + a] >= reach)
    net = Net((groups * draw(small), *spatial))
    inputs = ["x0", net.weight(groups * draw(small), net.shapes[0][0] // groups, *kernel)]
    if draw(st.booleans()):
        inputs.append(net.weight(net.constants[0].dims[0]))
    net.op("Conv", *inputs, **attributes)
    return net.model()


@slow
@given(volumes())
def test_convolution_over_three_axes(model):
    assert len(linears(agree(model))) == 1


@st.composite
def pools(draw):
    kind = draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
    rank = 3 if kind != "LpPool" and draw(st.booleans()) else draw(st.integers(1, 2))
    spatial = [draw(st.integers(2, 5)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    attributes = {
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)) for _ in range(rank)],
        "dilations": [draw(st.integers(1, 2)) for _ in range(rank)],
        "pads": [draw(st.integers(0, k - 1)) for k in kernel * 2],
        "ceil_mode": draw(st.integers(0, 1)) if kind != "LpPool" else 0,
    }
    if kind == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    if kind == "LpPool":
        attributes["p"] = draw(st.integers(1, 3))
    for a in range(rank):
        assume(
            spatial[a] + attributes["pads"][a] + attributes["pads"][rank + a]
            >= (kernel[a] - 1) * attributes["dilations"][a] + 1
        )
    net = Net((draw(small), *spatial), opset=22)
    net.op(kind, "x0", **attributes)
    model = net.model()
    assume(not any("only padding" in issue.problem for issue in check(model)))
    return model


@slow
@given(pools())
def test_pools_of_any_rank_and_dilation(model):
    agree(model)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_global_norm(order):
    net = Net((3, 4, 5))
    net.op("GlobalLpPool", p=order)
    agree(net.model())


@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_normalisation(size):
    net = Net((4, 3, 3))
    net.op("LRN", size=size, alpha=0.3, beta=0.6, bias=1.5)
    agree(net.model())


TRANSFORMS = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]


@st.composite
def resizes(draw):
    rank = draw(st.integers(1, 3))
    spatial = [draw(st.integers(1, 5)) for _ in range(rank)]
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    transform = draw(st.sampled_from(TRANSFORMS))
    attributes = {"mode": mode, "coordinate_transformation_mode": transform}
    if mode == "nearest":
        attributes["nearest_mode"] = draw(st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    else:
        attributes["antialias"] = draw(st.integers(0, 1))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = draw(st.sampled_from([-0.75, -0.5]))
        attributes["exclude_outside"] = draw(st.integers(0, 1))
    net = Net((2, *spatial), opset=19, batch=2)
    roi = ""
    if transform == "tf_crop_and_resize":
        attributes["extrapolation_value"] = draw(st.sampled_from([0.0, 1.5]))
        # no position on the edge of the input, where a rounding decides between an element and the value outside
        region = [draw(st.sampled_from([(0.0, 1.0), (0.23, 0.91), (-0.31, 1.27), (0.11, 1.13)])) for _ in spatial]
        roi = net.constant([0.0, 0.0, *(start for start, _ in region), 1.0, 1.0, *(end for _, end in region)])
    if draw(st.booleans()):
        scales = [draw(st.sampled_from([0.5, 0.6, 1.0, 1.5, 2.0, 3.0])) for _ in spatial]
        assume(all(int(n * s) >= 1 for n, s in zip(spatial, scales)))
        net.op("Resize", "x0", roi, net.constant([1.0, 1.0, *scales]), **attributes)
    else:
        sizes = [draw(st.integers(1, 7)) for _ in spatial]
        if transform != "tf_crop_and_resize" and draw(st.booleans()):
            attributes |= {
                "axes": list(range(2, 2 + rank)),
                "keep_aspect_ratio_policy": draw(st.sampled_from(["not_larger", "not_smaller", "stretch"])),
            }
            net.op("Resize", "x0", roi, "", net.ints(*sizes), **attributes)
        else:
            net.op("Resize", "x0", roi, "", net.ints(2, 2, *sizes), **attributes)
    return net.model()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(resizes())
def test_resize(model):
    (node,) = model.graph.node
    note(f"{node.attribute} {[onnx.numpy_helper.to_array(t).tolist() for t in model.graph.initializer]}")
    halves = any(a.s == b"pytorch_half_pixel" for a in node.attribute)
    try:
        want = defined(model)
    except (ValueError, IndexError, RuntimeError):
        # the reference does not take an axis that shrinks to nothing
        assume(False)
    # one position: ONNX Runtime and the operator's text put it at 0, the reference implementation elsewhere
    assume(not halves or all(n > 1 for n in want[0].shape[2:]))
    try:
        graph = agree(model, want)
    except UnsupportedModel as error:
        assert "shrinks to nothing" in str(error)
        return
    assert not linears(graph)


def test_nearest_enlargements_are_moves():
    net = Net((3, 4, 5))
    net.op(
        "Resize",
        "x0",
        "",
        net.constant([1, 1, 2, 3]),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    assert set(ops(agree(net.model()))) <= {"reshape", "broadcast"}


def test_upsample_of_old_opsets():
    net = Net((3, 4, 5), opset=9)
    net.op("Upsample", "x0", net.constant([1, 1, 2, 2]), mode="linear")
    agree(net.model(), None)


def test_resize_of_the_batch_is_refused():
    net = Net((2, 3), batch=2)
    net.op("Resize", "x0", "", net.constant([2.0, 1.0, 1.0]))
    with pytest.raises(UnsupportedModel, match="batch"):
        load(net.model())
