"""Comparisons, logic, selections, running sums, reductions and functions of one operand.

Drawn attributes against ONNX Runtime.
"""

import numpy as np
import onnx
import onnx.reference
import pytest
from hushnet.frontend import UnsupportedModel, load
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from .harness import Net, agree, expected, images, linears

quick = settings(max_examples=60, deadline=None)
small = st.integers(1, 4)
shapes = st.lists(small, min_size=1, max_size=3)
FLOAT = TensorProto.FLOAT


def as_float(net, name):
    """Results that are no floats, as floats."""
    return net.op("Cast", name, to=FLOAT)


UNARY = [
    "Log",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Softplus",
    "Ceil",
    "Floor",
    "Round",
    "Sign",
]


@pytest.mark.parametrize("kind", UNARY)
def test_functions(kind):
    net = Net((4, 9))
    before = {"Log": "Exp", "Acosh": "Exp", "Asin": "Tanh", "Acos": "Tanh", "Atanh": "Tanh"}.get(kind)
    source = net.op(before, "x0") if before else "x0"
    if kind == "Acosh":
        source = net.op("Add", source, net.constant(1.0))
    net.op(kind, source)
    agree(net.model())


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("ThresholdedRelu", {"alpha": 0.4}),
        ("ThresholdedRelu", {}),
        ("Shrink", {"lambd": 0.7, "bias": 0.2}),
        ("Shrink", {}),
    ],
)
def test_functions_with_a_threshold(kind, attributes):
    net = Net((4, 9))
    net.op(kind, **attributes)
    agree(net.model())


@pytest.mark.parametrize("exponent", [0.3, -1.7, 2.5, 66.0, 0.0])
def test_powers_of_positive_numbers(exponent):
    net = Net((3, 2))
    net.op("Pow", net.op("Sigmoid", "x0"), net.constant(exponent))
    agree(net.model())


def test_powers_that_differ_from_element_to_element():
    net = Net((3, 2))
    net.op("Pow", net.op("Sigmoid", "x0"), net.constant([[1.0, 0.5], [2.0, 3.3], [-1.0, 2.0]]))
    agree(net.model())
    net = Net((3, 2), (3, 2))
    net.op("Pow", net.op("Sigmoid", "x0"), "x1")
    agree(net.model())
    net = Net((3, 2))
    net.op("Pow", net.constant([[2.0, 0.5]]), "x0")
    agree(net.model())


@quick
@given(st.sampled_from(["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"]), shapes, st.data())
def test_comparisons(kind, shape, data):
    constant = data.draw(st.booleans())
    other = [data.draw(st.sampled_from([1, n])) for n in shape]
    net = Net(shape) if constant else Net(shape, other)
    # rounded, so that some are equal
    left = net.op("Round", "x0")
    right = net.constant(np.rint(net.rng.standard_normal(other))) if constant else net.op("Round", "x1")
    pair = (left, right) if data.draw(st.booleans()) else (right, left)
    as_float(net, net.op(kind, *pair))
    agree(net.model())


@quick
@given(st.sampled_from(["And", "Or", "Xor"]), shapes, st.booleans())
def test_logic(kind, shape, negated):
    net = Net(shape, shape)
    zero = net.constant(0.0)
    a, b = net.op("Less", "x0", zero), net.op("Less", "x1", zero)
    y = net.op(kind, net.op("Not", a) if negated else a, b)
    as_float(net, y)
    agree(net.model())


@quick
@given(shapes, st.data())
def test_where(shape, data):
    net = Net(shape, shape)
    constant = data.draw(st.booleans())
    condition = net.constant(net.rng.random(shape) < 0.5, bool) if constant else net.op("Less", "x0", "x1")
    value = data.draw(st.sampled_from(["x1", "scalar", "tensor"]))
    other = {"x1": "x1", "scalar": net.constant(-3.5), "tensor": net.constant(net.rng.standard_normal(shape))}[value]
    net.op("Where", condition, *(("x0", other) if data.draw(st.booleans()) else (other, "x0")))
    graph = agree(net.model())
    assert not linears(graph)


def test_masks_of_minus_infinity_become_large_numbers():
    net = Net((4, 4))
    mask = net.constant(np.tril(np.ones((4, 4))), bool)
    net.op("Softmax", net.op("Where", mask, "x0", net.constant(-np.inf)))
    agree(net.model())


@quick
@given(st.integers(0, 1), shapes)
def test_modulo(fmod, shape):
    net = Net(shape, shape)
    divisor = net.op("Add", net.op("Abs", "x1"), net.constant(0.5))
    net.op("Mod", "x0", divisor, fmod=fmod)
    if fmod:
        agree(net.model())
        return
    # ONNX Runtime has the remainder of division by floats with fmod=1 only
    model = net.model()
    feeds = images(model)
    agree(model, [np.mod(feeds["x0"], np.abs(feeds["x1"]) + np.float32(0.5))])


@st.composite
def selections(draw):
    kind = draw(
        st.sampled_from(
            ["Gather", "GatherElements", "GatherND", "Compress", "Trilu", "ReverseSequence", "CenterCropPad"]
        )
    )
    shape = [draw(st.integers(2, 4)) for _ in range(draw(st.integers(2, 3)))]
    net = Net(shape, batch=2, opset=18)
    axis = draw(st.integers(1, len(shape)))
    size = shape[axis - 1]
    if kind == "Gather":
        count = draw(st.integers(1, 6))
        net.op(kind, "x0", net.ints(*(draw(st.integers(-size, size - 1)) for _ in range(count))), axis=axis)
    elif kind == "GatherElements":
        of = [2, *shape]
        of[axis] = draw(st.integers(1, 5))
        indices = np.broadcast_to(net.rng.integers(-size, size, of[1:]), of)
        net.op(kind, "x0", net.constant(indices, np.int64), axis=axis)
    elif kind == "GatherND":
        depth = draw(st.integers(1, len(shape)))
        rows = np.stack([net.rng.integers(-n, n, 3) for n in shape[:depth]], axis=-1)
        net.op(kind, "x0", net.constant(np.broadcast_to(rows, (2, *rows.shape)), np.int64), batch_dims=1)
    elif kind == "Compress":
        keep = net.rng.random(size) < 0.6
        keep[draw(st.integers(0, size - 1))] = True
        net.op(kind, "x0", net.constant(keep, bool), axis=axis)
    elif kind == "Trilu":
        net.op(
            kind,
            "x0",
            *([net.constant(draw(st.integers(-2, 2)), np.int64)] if draw(st.booleans()) else []),
            upper=draw(st.integers(0, 1)),
        )
    elif kind == "ReverseSequence":
        count = draw(st.integers(1, shape[0]))
        net.op(kind, "x0", net.ints(count, count), batch_axis=0, time_axis=1)
    else:
        net.op(kind, "x0", net.ints(draw(st.integers(1, 6))), axes=[axis])
    return net.model()


@settings(max_examples=150, deadline=None)
@given(selections())
def test_selections_are_moves(model):
    assert not linears(agree(model))


@quick
@given(st.data())
def test_scatter(data):
    shape = [3, 4]
    axis = data.draw(st.integers(1, 2))
    net = Net(shape, shape, batch=2, opset=18)
    # of several updates of one place ONNX leaves the order open: every place once
    indices = np.stack([net.rng.permutation(shape[axis - 1]) for _ in range(shape[2 - axis])], axis=axis - 1).reshape(
        shape
    )
    net.op("ScatterElements", "x0", net.constant(np.broadcast_to(indices, (2, *shape)), np.int64), "x1", axis=axis)
    agree(net.model())


def test_scatter_that_adds_is_refused():
    net = Net((3, 4), batch=2, opset=18)
    net.op("ScatterElements", "x0", net.constant(np.zeros((2, 3, 4)), np.int64), "x0", axis=1, reduction="add")
    with pytest.raises(UnsupportedModel, match="combines"):
        load(net.model())


@quick
@given(st.sampled_from(["reflect", "edge", "wrap"]), st.data())
def test_padding_with_elements(mode, data):
    shape = [data.draw(st.integers(2, 4)) for _ in range(2)]
    amounts = [data.draw(st.integers(0, n - 1)) for n in shape * 2]
    net = Net(shape, opset=19)
    net.op("Pad", "x0", net.ints(0, *amounts[:2], 0, *amounts[2:]), mode=mode)
    agree(net.model())


@quick
@given(shapes, st.data())
def test_running_sum(shape, data):
    net = Net([*shape, 5])
    axis = data.draw(st.integers(1, len(shape) + 1))
    net.op(
        "CumSum",
        "x0",
        net.constant(axis, np.int64),
        exclusive=data.draw(st.integers(0, 1)),
        reverse=data.draw(st.integers(0, 1)),
    )
    graph = agree(net.model())
    assert not linears(graph)


@quick
@given(st.sampled_from(["ArgMax", "ArgMin"]), shapes, st.data())
def test_positions_of_extrema(kind, shape, data):
    net = Net(shape)
    axis = data.draw(st.integers(1, len(shape)))
    coarse = net.op("Round", "x0")
    y = net.op(
        kind, coarse, axis=axis, keepdims=data.draw(st.integers(0, 1)), select_last_index=data.draw(st.integers(0, 1))
    )
    as_float(net, y)
    agree(net.model())


@quick
@given(shapes, st.data())
def test_largest_elements(shape, data):
    net = Net(shape)
    axis = data.draw(st.integers(1, len(shape)))
    count = data.draw(st.integers(1, shape[axis - 1]))
    values = net.op("TopK", "x0", net.ints(count), outputs=2, axis=axis, largest=data.draw(st.integers(0, 1)))
    places = as_float(net, f"{values}_1")
    agree(net.model(values, places))


@quick
@given(st.sampled_from(["LogSoftmax", "Hardmax", "Softmax"]), shapes, st.data())
def test_along_one_axis(kind, shape, data):
    net = Net(shape)
    net.op(kind, axis=data.draw(st.integers(1, len(shape))))
    agree(net.model())


@quick
@given(st.sampled_from(["ReduceProd", "ReduceLogSum", "ReduceLogSumExp"]), shapes, st.data())
def test_more_reductions(kind, shape, data):
    axes = sorted(data.draw(st.sets(st.integers(1, len(shape)), min_size=1)))
    net = Net(shape, opset=18)
    source = net.op("Sigmoid", "x0") if kind == "ReduceLogSum" else "x0"
    net.op(kind, source, net.ints(*axes), keepdims=data.draw(st.integers(0, 1)))
    agree(net.model())


@pytest.mark.parametrize("kind", ["DepthToSpace", "SpaceToDepth"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks(kind, mode):
    net = Net((8, 4, 6), opset=13)
    attributes = {"mode": mode} if kind == "DepthToSpace" else {}
    net.op(kind, blocksize=2, **attributes)
    agree(net.model())


def test_the_newest_space_to_depth_is_read_with_its_mode():
    schema = onnx.defs.get_schema("SpaceToDepth", onnx.defs.onnx_opset_version(), "")
    if "mode" not in schema.attributes:
        pytest.skip("this onnx has no mode of SpaceToDepth")
    net = Net((2, 4, 6), opset=schema.since_version)
    net.op("SpaceToDepth", blocksize=2, mode="CRD")
    model = net.model()
    model.ir_version = 10
    x = images(model)["x0"]
    b, c, h, w = x.shape
    want = x.reshape(b, c, h // 2, 2, w // 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(b, c * 4, h // 2, w // 2)
    assert np.array_equal(onnx.reference.ReferenceEvaluator(model).run(None, {"x0": x})[0], want)
    agree(model, [want])


def test_clip_with_private_bounds():
    net = Net((3, 4), (3, 4))
    net.op("Min", net.op("Max", "x0", net.constant(-0.5)), "x1")
    agree(net.model())
    assert expected(net.model(), images(net.model()))
