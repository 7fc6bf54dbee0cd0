"""The layers of the gala benchmark, as geometries of plans."""

from __future__ import annotations

import json
from typing import Any

from hushnet import zoo

Row = dict[str, Any]
SLOTS = 2048  # of the paper


def dense(inputs: int, outputs: int) -> str:
    """A dense layer, as plans write it."""
    return json.dumps({"type": "dense", "inputs": inputs, "outputs": outputs})


def conv(channels: int, side: int, outputs: int, kernel: int) -> str:
    """A convolution that keeps the image's size."""
    return json.dumps({
        "type": "conv2d", "input": [channels, side, side], "output": [outputs, side, side], "kernel": [kernel] * 2,
        "stride": [1, 1], "pads": [kernel // 2] * 4, "dilation": [1, 1], "groups": 1,
    })  # fmt: skip


def layers_of(name: str) -> list[str]:
    """The linear layers of a zoo network as geometries, in order."""
    import onnx

    model = onnx.shape_inference.infer_shapes(zoo.build(name))
    graph = model.graph
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*graph.input, *graph.value_info, *graph.output)
    }
    sizes = {t.name: list(t.dims) for t in graph.initializer}
    out = []
    for node in graph.node:
        options = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Conv":
            weights = sizes[node.input[1]]
            out.append(json.dumps({
                "type": "conv2d", "input": shapes[node.input[0]][1:], "output": shapes[node.output[0]][1:],
                "kernel": weights[2:],
                "stride": list(options.get("strides", [1, 1])), "pads": list(options.get("pads", [0] * 4)),
                "dilation": list(options.get("dilations", [1, 1])), "groups": options.get("group", 1),
            }))  # fmt: skip
        elif node.op_type in ("Gemm", "MatMul"):
            weights = sizes[node.input[1]]
            inputs, outputs = reversed(weights) if options.get("transB") else weights
            out.append(dense(inputs, outputs))
    return out


def add_row(total: Row, part: Row, times: int = 1) -> None:
    """``total += times * part``, figure by figure."""
    for key, value in part.items():
        total[key] = total.get(key, 0) + times * value
