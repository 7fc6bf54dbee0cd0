"""Activations, poolings, reductions and moves alone: random attributes and odd shapes against ONNX Runtime."""

import numpy as np
import pytest
from hushnet.frontend import check
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from .harness import OPSETS, Net, agree, expected, images, linears, ops

small = st.integers(1, 4)
opset = st.sampled_from(OPSETS)
batch = st.sampled_from(["batch", 1, 3])
shapes = st.lists(small, min_size=1, max_size=4)
quick = settings(max_examples=80, deadline=None)

UNARY = [
    ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Erf", {}), ("Exp", {}), ("Abs", {}), ("Neg", {}), ("LeakyRelu",
    {"alpha": 0.2}),
    ("LeakyRelu", {}), ("Elu", {"alpha": 0.6}), ("Elu", {}), ("HardSigmoid", {}), ("HardSigmoid", {"alpha": 0.3,
    "beta": 0.4}),
    ("Selu", {}), ("Celu", {"alpha": 0.7}), ("Softsign", {}), ("Identity", {}), ("Dropout", {}), ("Reciprocal", {}),
]  # fmt: skip


@pytest.mark.parametrize("version", OPSETS)
@pytest.mark.parametrize(("kind", "attributes"), UNARY)
def test_unary(kind, attributes, version):
    net = Net((3, 5, 2), opset=version)
    if kind == "Reciprocal":
        net.op("Exp")
    net.op(kind, net.last, **attributes)
    agree(net.model())


@pytest.mark.parametrize(("kind", "attributes", "version"), [
    ("HardSwish", {}, 14), ("HardSwish", {}, 21), ("Mish", {}, 18), ("Gelu", {}, 20), ("Gelu", {"approximate": "tanh"},
    20),
])  # fmt: skip
def test_newer_unary(kind, attributes, version):
    net = Net((3, 5, 2), opset=version)
    net.op(kind, "x0", **attributes)
    agree(net.model())


def test_sqrt_and_powers():
    for exponent in (0.5, 1.0, 2.0, 3.0, 1.5, -1.0, -0.5, 7.0, 0.0):
        net = Net((3, 2))
        net.op("Pow", net.op("Exp"), net.constant(exponent))
        agree(net.model())
    net = Net((3, 2))
    net.op("Sqrt", net.op("Abs"))
    agree(net.model())


@pytest.mark.parametrize(("low", "high"), [(0, 6), (-0.5, None), (None, 0.5), (None, None), (1, -1), (-np.inf, 1)])
def test_clip(low, high):
    net = Net((3, 2))
    inputs = ["" if v is None else net.constant(v) for v in (low, high)]
    while inputs and not inputs[-1]:
        inputs.pop()
    net.op("Clip", "x0", *inputs)
    agree(net.model())


def test_gelu_decompositions():
    net = Net((3, 7))
    erf = net.op("Erf", net.op("Div", "x0", net.constant(np.sqrt(2))))
    net.op("Mul", net.op("Mul", "x0", net.op("Add", erf, net.constant(1))), net.constant(0.5))
    assert ops(agree(net.model())) == ["gelu"]
    net = Net((3, 7))
    gate = net.op("Add", net.op("Erf", net.op("Mul", "x0", net.constant(np.sqrt(0.5)))), net.constant(1))
    net.op("Mul", gate, net.op("Mul", "x0", net.constant(0.5)))
    assert ops(agree(net.model())) == ["gelu"]
    net = Net((3, 7))
    cube = net.op("Mul", net.op("Pow", "x0", net.constant(3)), net.constant(0.044715))
    inner = net.op("Mul", net.op("Add", "x0", cube), net.constant(np.sqrt(2 / np.pi)))
    net.op("Mul", net.op("Mul", "x0", net.constant(0.5)), net.op("Add", net.op("Tanh", inner), net.constant(1)))
    agree(net.model())


@pytest.mark.parametrize("slope", [(1,), (3, 1, 1), (1, 1, 1), (2,), (3, 5, 2), (5, 1)])
def test_prelu(slope):
    net = Net((3, 5, 2))
    net.op("PRelu", "x0", net.constant(net.rng.standard_normal(slope)))
    graph = agree(net.model())
    assert bool(linears(graph)) == (slope not in {(1,), (3, 1, 1), (1, 1, 1)})


@quick
@given(shapes, st.data(), st.sampled_from(["Add", "Sub", "Mul", "Div", "Min", "Max"]), batch)
def test_two_activations(shape, data, kind, images_):
    other = [data.draw(st.sampled_from([1, n])) for n in shape]
    net = Net(shape, other, batch=images_)
    right = net.op("Exp", "x1") if kind == "Div" else "x1"
    pair = ("x0", right) if data.draw(st.booleans()) or kind == "Div" else (right, "x0")
    net.op(kind, *pair)
    agree(net.model())


@quick
@given(shapes, st.data(), opset, batch)
def test_softmax(shape, data, version, images_):
    axis = data.draw(st.sampled_from([*range(1, len(shape) + 1), *range(-len(shape), 0)]))
    net = Net(shape, opset=version, batch=images_)
    net.op("Softmax", axis=axis)
    agree(net.model())


@st.composite
def poolings(draw):
    rank = draw(st.integers(1, 2))
    kind = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    spatial = [draw(st.integers(1, 9)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    attributes = {
        "kernel_shape": kernel,
        "auto_pad": draw(st.sampled_from(["NOTSET"] * 4 + ["VALID", "SAME_UPPER", "SAME_LOWER"])),
    }
    if draw(st.booleans()):
        attributes["strides"] = [draw(st.integers(1, 4)) for _ in range(rank)]
    dilations = [1] * rank
    if kind == "MaxPool" and attributes["auto_pad"] == "NOTSET" and draw(st.booleans()):
        dilations = attributes["dilations"] = [draw(st.integers(1, 2)) for _ in range(rank)]
    pads = [0] * (2 * rank)
    if attributes["auto_pad"] == "NOTSET":
        pads = attributes["pads"] = [draw(st.integers(0, k - 1)) for k in kernel * 2]
        attributes["ceil_mode"] = draw(st.integers(0, 1))
    if kind == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    if attributes["auto_pad"].startswith("SAME"):
        # ONNX Runtime computes negative padding otherwise, and refuses it
        assume(all(s <= k for s, k in zip(attributes.get("strides", [1] * rank), kernel)))
    else:
        for a in range(rank):
            assume(spatial[a] + pads[a] + pads[rank + a] >= (kernel[a] - 1) * dilations[a] + 1)
    net = Net((draw(small), *spatial), opset=draw(opset), batch=draw(batch))
    net.op(kind, "x0", **attributes)
    model = net.model()
    assume(not any("only padding" in issue.problem for issue in check(model)))
    return model


@settings(max_examples=400, deadline=None)
@given(poolings())
def test_pooling(model):
    agree(model)


@pytest.mark.parametrize("kind", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 5), (2, 3, 2, 2)])
def test_global_pooling(kind, shape):
    net = Net(shape)
    net.op(kind)
    agree(net.model())


@st.composite
def reductions(draw):
    shape = draw(shapes)
    kind = draw(
        st.sampled_from(
            ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare"]
        )
    )
    version = draw(opset)
    axes = draw(st.sets(st.integers(1, len(shape)), min_size=1))
    axes = [a - len(shape) - 1 if draw(st.booleans()) else a for a in sorted(axes)]
    net = Net(shape, opset=version, batch=draw(batch))
    keep = draw(st.integers(0, 1))
    if version >= 18 or kind == "ReduceSum":
        net.op(kind, "x0", net.ints(*axes), keepdims=keep)
    else:
        net.op(kind, "x0", axes=axes, keepdims=keep)
    return net.model()


@quick
@given(reductions())
def test_reduction(model):
    agree(model)


@st.composite
def changes_of_shape(draw):
    shape = draw(shapes)
    net = Net(shape, opset=draw(opset), batch=draw(batch))
    full = len(shape) + 1
    kind = draw(st.sampled_from(["Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Expand"]))
    if kind == "Flatten":
        net.op(kind, axis=draw(st.sampled_from([1, 1 - full])))
    elif kind == "Reshape":
        target = draw(st.permutations(shape))
        if draw(st.booleans()) and target[0] % 2 == 0:
            target = [2, target[0] // 2, *target[1:]]
        target = [0, *target]
        if draw(st.booleans()):
            target[draw(st.integers(0, len(target) - 1))] = -1
        net.op(kind, "x0", net.ints(*target))
    elif kind == "Squeeze":
        ones = [a + 1 for a, n in enumerate(shape) if n == 1]
        assume(ones)
        net.op(kind, "x0", net.ints(*(a - full if draw(st.booleans()) else a for a in ones)))
    elif kind == "Unsqueeze":
        axes = sorted(draw(st.sets(st.integers(1, full), min_size=1, max_size=2)))
        net.op(kind, "x0", net.ints(*(a for a in axes if a <= full + len(axes) - 1)))
    elif kind == "Transpose":
        net.op(kind, perm=[0, *draw(st.permutations(range(1, full)))])
    else:
        target = [draw(st.sampled_from([1, n])) if n > 1 else draw(small) for n in shape]
        net.op(kind, "x0", net.ints(*([1, *target] if draw(st.booleans()) else target)))
    return net.model()


@settings(max_examples=150, deadline=None)
@given(changes_of_shape())
def test_change_of_shape(model):
    assert not linears(agree(model))


@st.composite
def slices(draw):
    shape = [draw(st.integers(2, 7)) for _ in range(draw(st.integers(1, 3)))]
    axes = sorted(draw(st.sets(st.integers(1, len(shape)), min_size=1)))
    bound = st.integers(-9, 9) | st.sampled_from([2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1])
    starts, ends, steps = [], [], []
    for axis in axes:
        n, step = shape[axis - 1], draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        start, end = draw(bound), draw(bound)
        if draw(st.booleans()):
            start, end = draw(st.integers(0, n - 1)), n if step > 0 else -n - 1
        probe = np.arange(n)[slice(max(min(start, n + 9), -n - 9), max(min(end, n + 9), -n - 9), step)]
        assume(probe.size)
        starts, ends, steps = [*starts, start], [*ends, end], [*steps, step]
    net = Net(shape, opset=draw(opset), batch=draw(batch))
    given_axes = [a - len(shape) - 1 if draw(st.booleans()) else a for a in axes]
    net.op("Slice", "x0", net.ints(*starts), net.ints(*ends), net.ints(*given_axes), net.ints(*steps))
    return net.model()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(slices())
def test_slice(model):
    agree(model)


@st.composite
def pads(draw):
    shape = draw(shapes)
    rank = len(shape)
    amounts = [draw(st.integers(-1, 3)) for _ in range(2 * rank)]
    for a in range(rank):
        assume(shape[a] + min(amounts[a], 0) + min(amounts[rank + a], 0) >= 1)
    version = draw(opset)
    net = Net(shape, opset=version, batch=draw(batch))
    value = [net.constant(draw(st.sampled_from([0.0, 0.5, -2.0])))] if draw(st.booleans()) else []
    if version >= 18 and draw(st.booleans()):
        net.op("Pad", "x0", net.ints(*amounts), value[0] if value else "", net.ints(*range(-rank, 0)))
    else:
        net.op("Pad", "x0", net.ints(0, *amounts[:rank], 0, *amounts[rank:]), *value)
    return net.model()


@quick
@given(pads())
def test_pad(model):
    agree(model)


@st.composite
def concatenations(draw):
    shape = draw(shapes)
    axis = draw(st.integers(1, len(shape)))
    net = Net(shape, batch=draw(st.sampled_from([1, 3])), opset=draw(opset))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        size = [int(net.batch), *shape]
        size[axis] = draw(small)
        parts.append(
            net.constant(np.broadcast_to(net.rng.standard_normal(size[1:]), size)) if draw(st.booleans()) else "x0"
        )
    parts.insert(draw(st.integers(0, len(parts))), net.op("Relu", "x0"))
    net.op("Concat", *parts, axis=axis if draw(st.booleans()) else axis - len(shape) - 1)
    return net.model(), any(p.startswith("c") for p in parts)


@quick
@given(concatenations())
def test_concat(case):
    model, has_constant = case
    assert bool(linears(agree(model))) == has_constant


@quick
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), opset, batch, st.booleans())
def test_split(sizes, version, images_, equal):
    total = sum(sizes)
    net = Net((2, total), opset=version, batch=images_)
    if equal:
        assume(total % len(sizes) == 0)
        # from opset 18 the number of parts must be told
        extra = {"num_outputs": len(sizes)} if version >= 18 else {}
        net.op("Split", "x0", outputs=len(sizes), axis=2, **extra)
    else:
        net.op("Split", "x0", net.ints(*sizes), outputs=len(sizes), axis=-1)
    agree(net.model(*net.nodes[0].output))


def test_uneven_split():
    net = Net((7,), opset=18)
    net.op("Split", "x0", outputs=3, axis=1, num_outputs=3)
    agree(net.model(*net.nodes[0].output))


@pytest.mark.parametrize("indices", [2, [0], [3, 2, 1, 0], [0, 2, 4], [1, 1, 4, 0, 2], [[0, -1], [2, 3]], [2, 2, 2]])
def test_gather(indices):
    net = Net((5, 3))
    net.op("Gather", "x0", net.constant(indices, np.int64), axis=1)
    agree(net.model())


@pytest.mark.parametrize(("kind", "shape", "mode"), [
    ("DepthToSpace", (8, 2, 3), "DCR"), ("DepthToSpace", (8, 2, 3), "CRD"), ("SpaceToDepth", (2, 4, 6), None),
])  # fmt: skip
def test_blocks(kind, shape, mode):
    net = Net(shape)
    net.op(kind, "x0", blocksize=2, **({"mode": mode} if mode else {}))
    agree(net.model())


def test_tile_and_cast():
    net = Net((2, 3))
    net.op("Tile", net.op("Cast", net.op("Cast", "x0", to=11), to=1), net.ints(1, 2, 3))
    agree(net.model())


@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_layer_normalization(axis):
    net = Net((3, 4, 5))
    shape = (3, 4, 5)[axis - 1 if axis > 0 else axis :]
    net.op("LayerNormalization", "x0", net.weight(*shape), net.weight(*shape), axis=axis)
    agree(net.model())


def test_instance_normalization():
    net = Net((3, 4, 5))
    net.op("InstanceNormalization", "x0", net.weight(3), net.weight(3))
    agree(net.model())


def test_swish_by_the_reference_implementation():
    net = Net((3, 4), opset=24)
    net.op("Swish", "x0", alpha=0.7)
    model = net.model()
    x = images(model)["x0"].astype(np.float64)
    agree(model, [x / (1 + np.exp(-0.7 * x))])


def masked(kind, behind):
    """Scores with minus infinity where a constant hides them, and what comes behind."""
    net = Net((3, 4))
    hidden = np.triu(np.ones((3, 4)), 1)
    if kind == "Add":
        net.op("Add", "x0", net.constant(np.where(hidden, -np.inf, 0.0)))
    elif kind == "Where":
        net.op("Where", net.constant(hidden, bool), net.constant(-np.inf), "x0")
    else:
        net.op("Where", net.op("Less", "x0", net.constant(0.5)), "x0", net.constant(np.inf))
    net.op("Mul", net.op("Transpose", perm=[0, 2, 1]), net.constant(2.0))
    if behind == "Softmax":
        net.op("Softmax", axis=1)
    elif behind is not None:
        net.op(behind)
    return net.model()


@pytest.mark.parametrize(("kind", "behind"), [("Add", None), ("Where", None), ("Where", "Abs"), ("private", None)])
def test_outputs_with_infinite_elements_are_refused(kind, behind):
    """A plan has large numbers in their place, which are no answer."""
    (issue,) = check(masked(kind, behind))
    assert issue.op_type == "output" and "infinite" in issue.problem and issue.advice


@pytest.mark.parametrize(("kind", "behind"), [("Add", "Softmax"), ("Where", "Relu"), ("Where", "Sigmoid")])
def test_infinite_elements_that_operators_take_are_read(kind, behind):
    agree(masked(kind, behind))


def test_an_output_without_elements_is_refused():
    net = Net((3, 4))
    empty = net.op("Shape", "x0", start=2, end=1)
    issues = check(net.model(empty))
    assert any("no elements" in issue.problem for issue in issues)


def test_fusable_chains_have_no_client_constants():
    net = Net((3, 6, 6))
    net.op("Conv", net.op("Mul", "x0", net.constant(1 / 255)), net.weight(4, 3, 3, 3), pads=[1, 1, 1, 1])
    net.op("Add", net.last, net.constant(0.3))
    graph = agree(net.model())
    assert ops(graph) == [] and len(linears(graph)) == 1
    assert expected(net.model(), images(net.model()))[0].shape == (3, 4, 6, 6)
