"""Conv, Gemm, MatMul, arithmetic with constants, BatchNormalization.

Random attributes and odd shapes against ONNX Runtime.
"""

import numpy as np
import pytest
from hushnet.frontend import UnsupportedModel, load
from hushnet.reference.float import evaluate
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from .harness import OPSETS, Net, agree, linears, ops

small = st.integers(1, 4)
opset = st.sampled_from(OPSETS)
batch = st.sampled_from(["batch", 1, 3])
auto_pad = st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
quick = settings(max_examples=60, deadline=None)


@st.composite
def convolutions(draw):
    rank = draw(st.integers(1, 2))
    groups = draw(st.integers(1, 3))
    c_in, c_out = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 3))
    spatial = [draw(st.integers(1, 9)) for _ in range(rank)]
    attributes = {
        "group": groups,
        "auto_pad": draw(auto_pad),
        "strides": [draw(st.integers(1, 3)) for _ in range(rank)],
    }
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    if draw(st.booleans()):
        attributes["kernel_shape"] = kernel
    pads = [0] * (2 * rank)
    if attributes["auto_pad"] == "NOTSET":
        pads = [draw(st.integers(0, 3)) for _ in range(2 * rank)]
        attributes["pads"] = pads
    if not attributes["auto_pad"].startswith("SAME"):
        attributes["dilations"] = [draw(st.integers(1, 2)) for _ in range(rank)]
        for axis in range(rank):
            reach = (kernel[axis] - 1) * attributes["dilations"][axis] + 1
            assume(spatial[axis] + pads[axis] + pads[rank + axis] >= reach)
    net = Net((c_in, *spatial), opset=draw(opset), batch=draw(batch), seed=draw(st.integers(0, 99)))
    inputs = ["x0", net.weight(c_out, c_in // groups, *kernel)]
    if draw(st.booleans()):
        inputs.append(net.weight(c_out))
    net.op("Conv", *inputs, **attributes)
    return net.model()


@quick
@given(convolutions())
def test_conv(model):
    assert len(linears(agree(model))) == 1


@quick
@given(small, small, st.booleans(), st.sampled_from([None, "rows", "one", "all", "scalar"]), opset, batch)
def test_gemm(inputs, outputs, transposed, c, version, images):
    net = Net((inputs,), opset=version, batch=images)
    weight = net.weight(outputs, inputs) if transposed else net.weight(inputs, outputs)
    shape = {"rows": (outputs,), "one": (1,), "all": (1, outputs), "scalar": ()}.get(c)
    extra = [] if shape is None else [net.weight(*shape)]
    net.op("Gemm", "x0", weight, *extra, transB=int(transposed), alpha=0.7, beta=-1.3)
    assert len(linears(agree(net.model()))) == 1


def test_gemm_of_a_transposed_activation():
    net = Net((5,))
    net.op("Gemm", net.op("Transpose", perm=[1, 0]), net.weight(5, 3), transA=1)
    assert ops(agree(net.model())) == []


def test_gemm_adds_an_activation():
    net = Net((5,), (3,))
    net.op("Gemm", "x0", net.weight(5, 3), "x1", beta=0.5)
    agree(net.model())


@st.composite
def products(draw):
    rank = draw(st.integers(1, 4))
    shape = [draw(small) for _ in range(rank)]
    left = draw(st.booleans()) and rank >= 2
    k = shape[-2] if left else shape[-1]
    m = draw(small)
    lead = shape[:-2]
    stack = []
    if rank >= 2 and draw(st.booleans()):
        depth = draw(st.integers(0, len(lead)))
        stack = [
            draw(st.sampled_from([1, n])) if n > 1 else draw(st.sampled_from([1, 2])) for n in lead[len(lead) - depth :]
        ]
        if depth == len(lead) and draw(st.booleans()):
            stack = [1, *stack]
    vector = not stack and draw(st.integers(0, 4)) == 0
    net = Net(shape, opset=draw(opset), batch=draw(batch), seed=draw(st.integers(0, 99)))
    weight = net.weight(k) if vector else net.weight(*stack, *((m, k) if left else (k, m)))
    net.op("MatMul", *((weight, "x0") if left else ("x0", weight)))
    return net.model()


@settings(max_examples=150, deadline=None)
@given(products())
def test_matmul(model):
    assert len(linears(agree(model))) == 1


@st.composite
def constant_arithmetic(draw):
    shape = [draw(small) for _ in range(draw(st.integers(1, 4)))]
    kind = draw(st.sampled_from(["Add", "Sub", "Mul", "Div"]))
    rank = draw(st.integers(0, len(shape) + 1))
    constant = [1, *shape][len(shape) + 1 - rank :]
    constant = [draw(st.sampled_from([1, n])) if n > 1 else draw(st.sampled_from([1, 1, 3])) for n in constant]
    if rank == len(shape) + 1:
        constant[0] = 1
    net = Net(shape, opset=draw(opset), batch=draw(batch), seed=draw(st.integers(0, 99)))
    value = net.constant(np.sign(net.rng.standard_normal(constant)) * net.rng.uniform(0.5, 2, constant))
    if draw(st.booleans()) and kind != "Div":
        net.op(kind, value, "x0")
    elif kind == "Div" and draw(st.booleans()):
        net.op("Div", value, net.op("Exp"))
    else:
        net.op(kind, "x0", value)
    return net.model(), int(np.prod(constant))


@settings(max_examples=150, deadline=None)
@given(constant_arithmetic())
def test_arithmetic_with_a_constant(case):
    model, size = case
    graph = agree(model)
    if size > 1:
        # tensors never go to the client
        assert len(linears(graph)) == 1
        assert all(
            np.ndim(v) == 0
            for n in graph.nodes
            if n.__class__.__name__ == "Op"
            for v in n.attrs.values()
            if n.op == "affine"
        )


@pytest.mark.parametrize("kind", ["Min", "Max", "Sum", "Mean"])
@pytest.mark.parametrize("shape", [(), (3, 1, 1), (3, 4, 2), (4, 1)])
def test_variadic_with_constants(kind, shape):
    net = Net((3, 4, 2), (3, 1, 2))
    net.op(kind, "x0", net.constant(net.rng.standard_normal(shape)), "x1")
    agree(net.model())


@pytest.mark.parametrize("shape", [(4,), (4, 5), (4, 5, 3)])
@pytest.mark.parametrize("version", OPSETS)
def test_batch_normalization_alone_and_folded(shape, version):
    def parameters(net):
        return [net.weight(4), net.weight(4), net.weight(4), net.constant(net.rng.uniform(0.1, 2, 4))]

    net = Net(shape, opset=version)
    net.op("BatchNormalization", "x0", *parameters(net), epsilon=1e-3)
    assert len(linears(agree(net.model()))) == 1
    net = Net(shape, opset=version)
    net.op("Conv", "x0", net.weight(4, 4, *[1] * (len(shape) - 1))) if len(shape) > 1 else net.op(
        "MatMul", "x0", net.weight(4, 4)
    )
    net.op("BatchNormalization", net.last, *parameters(net))
    graph = agree(net.model())
    assert len(linears(graph)) == 1


def test_where_constants_differ_from_row_to_row_the_rows_are_one_image():
    net = Net((3,), batch=2)
    net.op("Add", "x0", net.constant([[1, 2, 3], [4, 5, 6]]))
    graph = load(net.model())
    assert graph.shapes["x0"] == (2, 3)
    x = np.ones((5, 2, 3))
    assert np.array_equal(evaluate(graph, {"x0": x})[graph.outputs[0]], x + [[1, 2, 3], [4, 5, 6]])
    net = Net((3,))
    net.op("Add", "x0", net.constant([[1, 2, 3], [4, 5, 6]]))
    with pytest.raises(UnsupportedModel, match="image to image"):
        load(net.model())
    net = Net((3,), batch=2)
    net.op("Add", "x0", net.constant([[1, 2, 3], [1, 2, 3]]))
    agree(net.model())
