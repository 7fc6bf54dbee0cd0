"""PyTorch modules by PyTorch's own exporter. PyTorch is imported here only, and only when a module is given."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .errors import ModelError

# the forms of this opset are what the exporter has written for years
OPSET = 17
_INSTALL = (
    "Install it with `pip install torch`, or export the model with torch.onnx.export elsewhere and give the file."
)


def is_module(source: object) -> bool:
    """Whether something is a ``torch.nn.Module``; asks its class, not PyTorch."""
    return any(
        kind.__name__ == "Module" and kind.__module__.partition(".")[0] == "torch" for kind in type(source).__mro__
    )


def export(module: Any, example: Any) -> onnx.ModelProto:
    """A module as an ONNX model, in evaluation mode, the first axis of inputs that share it left open.

    Args:
        example: inputs that the module takes: a tensor or array, several in a tuple, or a mapping from names
            of ``forward``.

    Raises:
        ModelError: no example, PyTorch is not installed, or its exporter refuses the module.
    """
    if example is None:
        raise ModelError(
            "a PyTorch module is exported by running it once, and no example was given. "
            "Give example=, an input of the shape that you will use."
        )
    try:
        import torch
    except ImportError as error:
        raise ModelError(f"PyTorch is not installed ({error}). {_INSTALL}") from error
    names, values = _arguments(module, example)
    tensors = tuple(torch.from_numpy(np.ascontiguousarray(v)) if isinstance(v, np.ndarray) else v for v in values)
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with tempfile.TemporaryDirectory(prefix="hushnet") as folder:
            return _exported(torch, module, names, tensors, Path(folder) / "module.onnx")
    finally:
        for part, training in modes:
            part.training = training


def _exported(torch: Any, module: Any, names: list[str], tensors: tuple[Any, ...], path: Path) -> onnx.ModelProto:
    """By the exporter that traces; by the newer one where a version of PyTorch has no other."""
    shapes = [tuple(t.shape) for t in tensors]
    batched = len({shape[:1] for shape in shapes}) == 1 and shapes[0] != ()
    how: dict[str, Any] = {"input_names": names, "opset_version": OPSET}
    if batched:
        how["dynamic_axes"] = {name: {0: "batch"} for name in names}
    attempts = [{"dynamo": False}, {}] if "dynamo" in inspect.signature(torch.onnx.export).parameters else [{}]
    problems = []
    for more in attempts:
        try:
            torch.onnx.export(module, tensors, str(path), **how, **more)
            return onnx.load(str(path))
        except Exception as error:
            problems.append(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
    raise ModelError(
        f"PyTorch's exporter refuses the module ({'; '.join(dict.fromkeys(problems))}). "
        "Export it with torch.onnx.export yourself and give the file."
    )


def _arguments(module: Any, example: Any) -> tuple[list[str], list[Any]]:
    """Names and values of the inputs in the order of ``forward``."""
    parameters = inspect.signature(module.forward).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if isinstance(example, Mapping):
        wrong = [name for name in example if name not in known]
        left_out = known[: max((known.index(n) for n in example if n in known), default=-1) + 1]
        missing = [name for name in left_out if name not in example]
        if wrong or missing or not example:
            raise ModelError(
                f"the example names {sorted(example)}, and forward takes {known}. "
                "Give the first of these by name, without gaps."
            )
        return left_out, [_checked(name, example[name]) for name in left_out]
    values = list(example) if isinstance(example, Sequence) else [example]
    # forward(*inputs) has no names of its own
    names = [known[i] if i < len(known) else f"input{i}" for i in range(len(values))]
    return names, [_checked(name, value) for name, value in zip(names, values)]


def _checked(name: str, value: Any) -> Any:
    if not hasattr(value, "shape"):
        raise ModelError(f"the example for {name!r} is of type {type(value).__name__}. Give a tensor or an array.")
    return value
