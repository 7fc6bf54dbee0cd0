"""Convolutions, their transposes and poolings over one to three axes, and Resize.

Drawn geometries against the reference.
"""

import numpy as np
import onnx.reference
import onnxruntime as ort
import pytest
from hushnet.frontend import UnsupportedModel, check, load
from hushnet.frontend.operators.resize import Axis, Filter, matrix
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from .harness import Net, agree, expected, images, linears, ops

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
    found = linears(agree(model))
    # Taps may meet padding alone: what is then left is no layer, and no input changes it.
    x = images(model)
    still = all((a == b).all() for a, b in zip(expected(model, x), expected(model, {k: v + 1 for k, v in x.items()})))
    assert len(found) == 1 or (still and not found)


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
# ONNX defines these by a length with a fraction, where the scale asks for one; ONNX Runtime has the output's length
BY_LENGTH = {"align_corners", "tf_crop_and_resize"}
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


@st.composite
def resizes(draw):
    rank = draw(st.integers(1, 3))
    spatial = [draw(st.integers(1, 5)) for _ in range(rank)]
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    transform = draw(st.sampled_from(TRANSFORMS))
    attributes = {"mode": mode, "coordinate_transformation_mode": transform}
    if mode == "nearest":
        attributes["nearest_mode"] = draw(st.sampled_from(ROUNDINGS))
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
    words = {a.name: a.s.decode() for a in node.attribute}
    transform = words["coordinate_transformation_mode"]
    halves = transform == "pytorch_half_pixel"
    try:
        # on a tie a rounding decides what "nearest" is: ONNX Runtime's, in whose arithmetic networks are run
        ties = words["mode"] == "nearest" and transform not in BY_LENGTH
        want = expected(model, images(model)) if ties else defined(model)
    except (ValueError, IndexError, RuntimeError, ort.capi.onnxruntime_pybind11_state.Fail):
        # an axis that shrinks to nothing
        assume(False)
    # one position: ONNX Runtime and the operator's text put it at 0, the reference implementation elsewhere
    assume(not halves or all(n > 1 for n in want[0].shape[2:]))
    try:
        graph = agree(model, want)
    except UnsupportedModel as error:
        assert "shrinks to nothing" in str(error)
        return
    assert not linears(graph)


def positions(transform: str, rounding: str, given: str):
    """A function from an axis' size, and the size or scale of its output, to ONNX Runtime's nearest elements.

    They are -1 outside of the region.
    """
    # the opset of the last version that has tf_half_pixel_for_nn; it has both inputs, of which one may be empty
    opset = 11 if transform == "tf_half_pixel_for_nn" else 19
    inputs = {"x": (TensorProto.FLOAT, [1, "n", 2]), given: (TensorProto.FLOAT, [3])}
    if given == "sizes":
        inputs["sizes"] = (TensorProto.INT64, [3])
    region = np.array([0, REGION[0], 0, 1, REGION[1], 1], np.float32)
    left_out = "none" if opset == 11 else ""
    node = helper.make_node(
        "Resize", ["x", "region", given] if given == "scales" else ["x", "region", left_out, given], ["y"],
        mode="nearest",
        coordinate_transformation_mode=transform, nearest_mode=rounding, extrapolation_value=-1.0,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "resize", [helper.make_tensor_value_info(n, *port) for n, port in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(region, "region"), onnx.numpy_helper.from_array(region[:0], "none")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    def run(size, asked):
        # the last axis changes too: ONNX Runtime copies a tensor whose shape stays
        wide = np.array([1, asked, 3 if given == "sizes" else 1.5], np.int64 if given == "sizes" else np.float32)
        x = np.broadcast_to(np.arange(size, dtype=np.float32)[:, None], (1, size, 2))
        return session.run(None, {"x": x, given: wide})[0][0, :, 0].astype(int).tolist()

    return run


# no whole number of elements, so that no position is on the edge of the input
REGION = (0.13, 0.87)
SIZES = (*range(1, 14), 17, 24, 31)
OUTPUTS = (*range(1, 20), 26, 33, 45)
SCALES = tuple(np.float32(n) / np.float32(10) for n in range(1, 36))


@pytest.mark.parametrize("transform", [*TRANSFORMS, "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("given", ["sizes", "scales"])
def test_nearest_elements_are_those_of_onnx_runtime(transform, given):
    """Every coordinate mode and rounding, over many sizes: a tie goes where ONNX Runtime's arithmetic has it."""
    for rounding in ROUNDINGS:
        run = positions(transform, rounding, given)
        filter_ = Filter("nearest", transform, rounding, -0.75, False, False)
        for size in SIZES:
            for asked in OUTPUTS if given == "sizes" else SCALES:
                length = np.float32(size) * asked if given == "scales" else asked
                output, scale = int(length), float(asked) if given == "scales" else asked / size
                # ONNX Runtime takes no region where an axis keeps its size
                if not output or scale == 1 or (transform in BY_LENGTH and length != output):
                    continue
                rows = matrix(Axis(size, output, scale, REGION), filter_)
                found = [int(row.argmax()) if row.any() else -1 for row in rows]
                assert found == run(size, asked), (rounding, size, asked)


def test_an_axis_times_a_scale_is_that_of_shape_inference():
    net = Net((1, 10))
    net.op("Resize", "x0", "", net.constant([1.0, 1.0, 0.7]), mode="nearest")
    graph = agree(net.model())
    assert graph.shapes[graph.outputs[0]] == (1, 7), "binary32 rounds 6.99999988 to 7"


@pytest.mark.parametrize("scales", [(0.6, 0.4), (1.7, 2.0), (0.6, 2.5)])
def test_nearest_of_opset_10_rounds_up_where_an_axis_shrinks(scales):
    net = Net((2, 5, 7), opset=10)
    net.op("Resize", "x0", net.constant([1.0, 1.0, *scales]), mode="nearest")
    agree(net.model())


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
