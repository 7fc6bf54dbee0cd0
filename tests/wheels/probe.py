"""Runs one small network in each trust model, and prints seconds, errors and answers as JSON.

Needs an installed Hushnet only. Inputs and weights are drawn by integer arithmetic, so that every machine has the same;
the client-aided answers must be the planned ones exactly.
"""

from __future__ import annotations

import json
import platform
import time
from typing import Any

import hushnet
import numpy as np
from hushnet import _native
from hushnet.reference import numpy as fixed_point
from onnx import TensorProto, helper, numpy_helper


def drawn(shape: tuple[int, ...], start: int, scale: float) -> np.ndarray:
    """Multiples of 1/1000 in [-scale, scale], by a linear congruence."""
    count = int(np.prod(shape))
    values, state = [], start
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        values.append((state // 2**8 % 2001 - 1000) / 1000 * scale)
    return np.array(values, np.float32).reshape(shape)


def network(activation: str) -> Any:
    """A convolution, an activation, a dense layer: 6 x 6 pixels to four numbers."""
    constants = {
        "w1": drawn((3, 1, 3, 3), 1, 0.5),
        "b1": drawn((3,), 2, 0.2),
        "w2": drawn((4, 48), 3, 0.2),
        "b2": drawn((4,), 4, 0.2),
    }
    square = activation == "square"
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], kernel_shape=[3, 3]),
        helper.make_node("Mul", ["a", "a"], ["r"]) if square else helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def exact(x: np.ndarray, activation: str) -> np.ndarray:
    """The network in double precision."""
    w1, b1, w2, b2 = drawn((3, 9), 1, 0.5), drawn((3,), 2, 0.2), drawn((4, 48), 3, 0.2), drawn((4,), 4, 0.2)
    windows = np.lib.stride_tricks.sliding_window_view(x[:, 0].astype(float), (3, 3), (1, 2)).reshape(len(x), 4, 4, 9)
    a = np.einsum("nijk,ck->ncij", windows, w1.astype(float)) + b1[:, None, None]
    a = a * a if activation == "square" else np.maximum(a, 0)
    return np.asarray(a.reshape(len(x), -1) @ w2.T.astype(float) + b2)


def main() -> None:
    """One line of JSON."""
    calibration, x = drawn((64, 1, 6, 6), 5, 1.0), drawn((4, 1, 6, 6), 6, 0.9)
    seconds, answers, errors = {}, {}, {}
    for trust in ("client-aided", "two-party", "non-interactive"):
        activation = "square" if trust == "non-interactive" else "relu"
        start = time.monotonic()
        model = hushnet.compile(network(activation), trust=trust, calibration=calibration)
        result = hushnet.run(model, x, threads=1)
        seconds[trust] = round(time.monotonic() - start, 1)
        errors[trust] = float(np.abs(result.output - exact(x, activation)).max())
        # Shares are truncated by chance, and CKKS has noise: only this one is the same in every run.
        if trust == "client-aided":
            planned = next(iter(fixed_point.run(model.plan, {model.input_names[0]: x}).values()))
            assert np.array_equal(result.output, planned), "the answers are not the planned ones"
            answers[trust] = [float(v).hex() for v in np.ravel(result.output)]
        assert errors[trust] < 0.05, f"{trust}: error {errors[trust]}"
    print(
        json.dumps(
            {
                "machine": platform.machine(),
                "simd": _native.simd(),
                "seconds": seconds,
                "errors": errors,
                "answers": answers,
            }
        )
    )


if __name__ == "__main__":
    main()
