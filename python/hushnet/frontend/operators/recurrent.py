"""LSTM, GRU and RNN over a fixed length.

One layer for all inputs, and for every step one layer of the state and the gates on the client.

States have shape (features, columns): columns are the images that ONNX has inside of the tensor, one where the batch is
in front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...graph import Conv2d, Dense
from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces

Activation = Callable[[Builder, Value], Value]

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "Affine": 1.0, "ScaledTanh": 1.0}
_BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}
_PLAIN = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh"}


@dataclass(frozen=True)
class Cell:
    """One direction.

    Weights of inputs and states, bias of both, peepholes, activations and the bound of what they read.
    """

    kind: str
    hidden: int
    weight: np.ndarray
    recurrent: np.ndarray
    bias: np.ndarray
    recurrent_bias: np.ndarray
    peepholes: np.ndarray
    activations: Sequence[Activation]
    clip: float | None
    before_reset: bool
    coupled: bool


def _activation(name: str, alpha: float, beta: float) -> Activation:
    lower = name.lower()
    if lower in _PLAIN:
        return lambda build, x: build.client(_PLAIN[lower], x)
    if lower == "leakyrelu":
        return lambda build, x: build.client("leaky_relu", x, alpha=alpha)
    if lower == "elu":
        return lambda build, x: build.client("elu", x, alpha=alpha)
    if lower == "hardsigmoid":
        return lambda build, x: build.client("hard_sigmoid", x, alpha=alpha, beta=beta)
    if lower == "affine":
        return lambda build, x: build.affine(x, alpha, beta)
    if lower == "scaledtanh":
        return lambda build, x: build.affine(build.client("tanh", build.affine(x, beta, 0.0)), alpha, 0.0)
    if lower == "softsign":
        return lambda build, x: build.client("div", x, build.affine(build.client("abs", x), 1.0, 1.0))
    raise Unsupported(
        f"the activation {name} in a recurrent cell",
        "Use Sigmoid, Tanh, Relu, LeakyRelu, Elu, HardSigmoid, Affine, ScaledTanh or Softsign.",
    )


def _activations(call: Call, directions: int) -> list[list[Activation]]:
    names = call.attribute("activations") or _DEFAULTS[call.op_type] * directions
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in names]
    each = len(_DEFAULTS[call.op_type])
    if len(names) != each * directions:
        raise Unsupported(f"activations {names} for {directions} direction(s)", "Export the model again.")
    alphas, betas = list(call.attribute("activation_alpha") or []), list(call.attribute("activation_beta") or [])
    found = []
    for name in names:
        # parameters are given for the activations that have them, in order
        alpha = (alphas.pop(0) if alphas else _ALPHA[name]) if name in _ALPHA else 0.0
        beta = (betas.pop(0) if betas else _BETA[name]) if name in _BETA else 0.0
        found.append(_activation(name, float(alpha), float(beta)))
    return [found[i * each : (i + 1) * each] for i in range(directions)]


def _cells(call: Call, directions: int) -> list[Cell]:
    weight, recurrent = call.constant(1), call.constant(2)
    gates, hidden = _GATES[call.op_type], recurrent.shape[-1]
    if (
        weight.ndim != 3
        or recurrent.ndim != 3
        or len(weight) != directions
        or weight.shape[1] != gates * hidden
        or len(recurrent) != directions
    ):
        raise Unsupported(
            f"weights of shape {weight.shape} and {recurrent.shape} for {directions} direction(s)",
            "Export the model again.",
        )
    bias = call.constant(3, np.zeros((directions, 2 * gates * hidden)))
    peepholes = (
        call.constant(7, np.zeros((directions, 3 * hidden))) if call.op_type == "LSTM" else np.zeros((directions, 0))
    )
    clip = call.attribute("clip")
    before_reset = bool(call.attribute("linear_before_reset", 0)) if call.op_type == "GRU" else False
    coupled = bool(call.attribute("input_forget", 0)) if call.op_type == "LSTM" else False
    return [
        Cell(
            call.op_type, hidden, weight[d], recurrent[d], bias[d, : gates * hidden], bias[d, gates * hidden :],
            peepholes[d], activations,
            None if clip is None else float(clip), before_reset, coupled,
        )
        for d, activations in enumerate(_activations(call, directions))
    ]  # fmt: skip


def _layer(build: Builder, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
    """(inputs, columns) to (outputs, columns)."""
    inputs, columns = x.shape
    outputs = len(weight)
    if columns == 1:
        return build.reshape(build.linear(Dense(inputs, outputs), x, weight, bias), (outputs, 1))
    geometry = Conv2d((inputs, columns, 1), (outputs, columns, 1), (1, 1))
    return build.reshape(build.linear(geometry, x, weight.reshape(outputs, inputs, 1, 1), bias), (outputs, columns))


def _gate(build: Builder, cell: Cell, which: int, x: Value) -> Value:
    if cell.clip is not None:
        x = build.client("clip", x, min=-cell.clip, max=cell.clip)
    return cell.activations[which](build, x)


def _peep(build: Builder, cell: Cell, which: int, gate: Value, state: Value | None) -> Value:
    weights = cell.peepholes[which * cell.hidden : (which + 1) * cell.hidden]
    if state is None or not np.any(weights):
        return gate
    return build.client("add", gate, build.diagonal(state, weights.reshape(-1, 1), np.zeros((cell.hidden, 1))))


def _mixed(build: Builder, gate: Value, yes: Value, no: Value | None) -> Value:
    """``gate yes + no``."""
    y = build.client("mul", gate, yes)
    return y if no is None else build.client("add", y, no)


def _lstm(build: Builder, cell: Cell, given: Value, state: Value | None, memory: Value | None) -> tuple[Value, Value]:
    h = cell.hidden
    if state is not None:
        given = build.client("add", given, _layer(build, state, cell.recurrent))
    i, o, f, c = (build.slice(given, 0, n * h, h) for n in range(4))
    i = _gate(build, cell, 0, _peep(build, cell, 0, i, memory))
    f = pieces.complement(build, i) if cell.coupled else _gate(build, cell, 0, _peep(build, cell, 2, f, memory))
    kept = None if memory is None else build.client("mul", f, memory)
    memory = _mixed(build, i, _gate(build, cell, 1, c), kept)
    o = _gate(build, cell, 0, _peep(build, cell, 1, o, memory))
    return build.client("mul", o, cell.activations[2](build, memory)), memory


def _gru(build: Builder, cell: Cell, given: Value, state: Value | None) -> Value:
    h = cell.hidden
    z, r, new = (build.slice(given, 0, n * h, h) for n in range(3))
    # only where it is multiplied by the reset gate does the bias of the state stand apart
    linear = cell.recurrent_bias[2 * h :]
    if state is None:
        z = _gate(build, cell, 0, z)
        if cell.before_reset and np.any(linear):
            reset = _gate(build, cell, 0, r)
            new = build.client("add", new, build.diagonal(reset, linear.reshape(-1, 1), np.zeros((h, 1))))
        return build.client("mul", pieces.complement(build, z), _gate(build, cell, 1, new))
    if cell.before_reset:
        both = _layer(build, state, cell.recurrent, np.concatenate([np.zeros(2 * h), linear]))
        z, r = (
            _gate(build, cell, 0, build.client("add", g, build.slice(both, 0, n * h, h))) for n, g in enumerate((z, r))
        )
        new = build.client("add", new, build.client("mul", r, build.slice(both, 0, 2 * h, h)))
    else:
        both = _layer(build, state, cell.recurrent[: 2 * h])
        z, r = (
            _gate(build, cell, 0, build.client("add", g, build.slice(both, 0, n * h, h))) for n, g in enumerate((z, r))
        )
        new = build.client("add", new, _layer(build, build.client("mul", r, state), cell.recurrent[2 * h :]))
    new = build.client("mul", pieces.complement(build, z), _gate(build, cell, 1, new))
    return build.client("add", new, build.client("mul", z, state))


def _direction(
    build: Builder, cell: Cell, x: Value, state: Value | None, memory: Value | None, *, backwards: bool
) -> tuple[list[Value], Value, Value | None]:
    """States of all steps (in the order of the inputs), the last state and memory. x is (steps, columns, features)."""
    steps, columns, features = x.shape
    bias = cell.bias + cell.recurrent_bias
    if cell.before_reset:
        bias = cell.bias + np.concatenate([cell.recurrent_bias[: 2 * cell.hidden], np.zeros(cell.hidden)])
    joined = build.reshape(build.transpose(x, (2, 0, 1)), (features, steps * columns))
    given = _layer(build, joined, cell.weight, bias)
    states: list[Value] = []
    for step in range(steps - 1, -1, -1) if backwards else range(steps):
        part = build.slice(given, 1, step * columns, columns)
        if cell.kind == "LSTM":
            state, memory = _lstm(build, cell, part, state, memory)
        elif cell.kind == "GRU":
            state = _gru(build, cell, part, state)
        else:
            if state is not None:
                part = build.client("add", part, _layer(build, state, cell.recurrent))
            state = _gate(build, cell, 0, part)
        states.append(state)
    assert state is not None
    return states[::-1] if backwards else states, state, memory


def _initial(
    call: Call, build: Builder, index: int, like: Value, shape: tuple[int, int, int], *, inside: bool
) -> list[Value | None]:
    """First states of every direction as (features, columns); None for zeros.

    ``shape`` is (directions, columns, features).
    """
    directions, columns, hidden = shape
    if not call.has(index):
        return [None] * directions
    if call.is_constant(index):
        given = call.constant(index).astype(np.float64)
        if not np.any(given):
            return [None] * directions
        if not inside and np.any(given != given.take([0], axis=1)):
            raise Unsupported(
                "first states that differ from image to image", "Use the same first state for all images."
            )
        given = given if inside else given[:, :1]
        return [pieces.public(build, like, given[d].T) for d in range(directions)]
    if inside:
        whole = build.transpose(call.tensor(index), (0, 2, 1))
        return [build.reshape(build.slice(whole, 0, d, 1), (hidden, columns)) for d in range(directions)]
    state = call.tensor(index)
    if state.batch_axis != 1:
        raise Unsupported(
            f"first states with the batch in axis {state.batch_axis}", "Put the batch of first states in axis 1."
        )
    return [build.reshape(build.slice(state, 0, d, 1), (hidden, 1)) for d in range(directions)]


def _arranged(call: Call, build: Builder, x: Value, layout: int) -> tuple[Value, bool]:
    """The input as (steps, columns, features), and whether the columns were axes of the image."""
    if len(x.shape) == 3 and x.batch_axis == 0:
        return (build.transpose(x, (1, 0, 2)) if layout else x), True
    if len(x.shape) != 2 or x.batch_axis != 1 - layout:
        raise Unsupported(
            f"the batch is axis {x.batch_axis} of the input, and axis {1 - layout} is the cell's",
            "Transpose the input to (steps, batch, features).",
        )
    return build.reshape(x, (x.shape[0], 1, x.shape[1])), False


@operator("LSTM", "GRU", "RNN", batch_anywhere=True)
def recurrent(call: Call, build: Builder) -> list[Value]:
    """Unrolled over the length of the input, forwards, backwards or both."""
    x = call.tensor(0)
    direction, layout = call.attribute("direction", "forward"), int(call.attribute("layout", 0))
    directions = 2 if direction == "bidirectional" else 1
    cells = _cells(call, directions)
    if call.attribute("hidden_size", cells[0].hidden) != cells[0].hidden:
        raise Unsupported(
            f"hidden_size {call.attribute('hidden_size')} and weights for {cells[0].hidden}", "Export the model again."
        )
    x, inside = _arranged(call, build, x, layout)
    steps, columns, features = x.shape
    if call.has(4) and (not call.is_constant(4) or np.any(call.constant(4) != steps)):
        raise Unsupported(
            "sequences of different lengths", f"Pad all of them to {steps} steps, or cut the model's input."
        )
    if features != cells[0].weight.shape[1]:
        raise Unsupported(f"{features} features and weights for {cells[0].weight.shape[1]}", "Export the model again.")
    shape = (directions, columns, cells[0].hidden)
    first = _initial(call, build, 5, x, shape, inside=inside)
    memory = _initial(call, build, 6, x, shape, inside=inside) if call.op_type == "LSTM" else [None] * directions
    runs = [
        _direction(build, cell, x, first[d], memory[d], backwards=direction == "reverse" or d == 1)
        for d, cell in enumerate(cells)
    ]
    outputs = [_sequence(build, [r[0] for r in runs], layout, inside=inside)]
    outputs.append(_last(build, [r[1] for r in runs], layout, inside=inside))
    if call.op_type == "LSTM":
        outputs.append(_last(build, [r[2] for r in runs if r[2] is not None], layout, inside=inside))
    return outputs


def _stacked(build: Builder, parts: list[Value]) -> Value:
    """Parts of shape (features, columns) as (parts, columns, features)."""
    turned = [build.reshape(build.transpose(p, (1, 0)), (1, p.shape[1], p.shape[0])) for p in parts]
    return (
        turned[0]
        if len(turned) == 1
        else build.client("concat", *turned, shape=(len(turned), *turned[0].shape[1:]), axis=0)
    )


def _sequence(build: Builder, states: list[list[Value]], layout: int, *, inside: bool) -> Value:
    """(steps, directions, columns, features), or with layout 1 (columns, steps, directions, features)."""
    steps, directions = len(states[0]), len(states)
    whole = _stacked(build, [states[d][t] for t in range(steps) for d in range(directions)])
    columns, hidden = whole.shape[1:]
    if not inside:
        y = build.reshape(whole, (steps, directions, hidden))
        return Value(y.name, y.shape, 0 if layout else 2)
    y = build.reshape(whole, (steps, directions, columns, hidden))
    return build.transpose(y, (2, 0, 1, 3)) if layout else y


def _last(build: Builder, states: list[Value], layout: int, *, inside: bool) -> Value:
    """(directions, columns, features), or with layout 1 (columns, directions, features)."""
    whole = _stacked(build, states)
    directions, _, hidden = whole.shape
    if not inside:
        y = build.reshape(whole, (directions, hidden))
        return Value(y.name, y.shape, 0 if layout else 1)
    return build.transpose(whole, (1, 0, 2)) if layout else whole
