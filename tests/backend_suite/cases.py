"""The suite's cases whose inputs and outputs are tensors of numbers, with the data that the ``onnx`` package brings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.runner
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
# "light" is whole image networks with made-up weights: hours of encrypted work
QUICK = KINDS[:-1]
PACKAGE = Path(onnx.backend.test.__file__).parent


@dataclass
class Case:
    """One case: inputs by name, expected outputs in the order of the graph."""

    name: str
    kind: str
    entry: Any
    model_file: Path | None = None

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The case's network, as it stands in the suite."""
        return self.entry.model if self.model_file is None else onnx.load(self.model_file)

    @cached_property
    def _data(self) -> tuple[dict[str, Any], list[Any]]:
        constants = {tensor.name for tensor in self.model.graph.initializer}
        ports = [port for port in self.model.graph.input if port.name not in constants]
        if self.model_file is None:
            given, wanted = self.entry.data_sets[0]
        elif self.kind == "light":
            make = onnx.backend.test.runner.Runner.generate_dummy_data
            given = [make(port, seed=0, name=self.name, random=False) for port in ports]
            files = sorted(self.model_file.parent.glob(f"{self.model_file.stem}_output_*.pb"))
            wanted = [_tensor(path) for path in files]
        else:
            folder = self.model_file.parent / "test_data_set_0"
            given = [_tensor(folder / f"input_{i}.pb") for i in range(len(list(folder.glob("input_*.pb"))))]
            wanted = [_tensor(folder / f"output_{i}.pb") for i in range(len(list(folder.glob("output_*.pb"))))]
        return dict(zip((port.name for port in ports), given)), list(wanted)

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """What the network is run on."""
        return self._data[0]

    @property
    def outputs(self) -> list[np.ndarray]:
        """What the suite expects."""
        return self._data[1]

    @property
    def numeric(self) -> bool:
        """Whether inputs and outputs are tensors of numbers.

        No sequences, optional values, strings, complex numbers.
        """
        return bool(self._data[0]) and all(_number(value) for value in [*self.inputs.values(), *self.outputs])


def _number(value: Any) -> bool:
    """Real numbers, those of the types that NumPy lacks too (bfloat16, float8, int4 ...)."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fiubV" and value.dtype.names is None


def _tensor(path: Path) -> Any:
    proto = onnx.TensorProto()
    proto.ParseFromString(path.read_bytes())
    try:
        return numpy_helper.to_array(proto)
    except Exception:
        return None


def cases(kinds: tuple[str, ...] = KINDS) -> Iterator[Case]:
    """All numeric cases of the given kinds, in the order of the suite."""
    for kind in kinds:
        if kind == "light":
            found = [Case(path.stem, kind, None, path) for path in sorted((PACKAGE / "data" / "light").glob("*.onnx"))]
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                entries = load_model_tests(kind=kind)
            found = [
                Case(e.name, kind, e, Path(os.path.join(e.model_dir, "model.onnx")) if e.model_dir else None)
                for e in entries
            ]
        yield from (case for case in found if case.numeric)
