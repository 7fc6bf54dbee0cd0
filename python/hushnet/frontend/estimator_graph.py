"""What is shared by the modules that turn fitted scikit-learn estimators into ONNX: a graph in binary64, and refusals.

``estimators.py`` reads estimators; ``estimator_features.py`` has what prepares features, ``estimator_scores.py`` what
gives scores beside linear models and perceptrons.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .classical import DOMAIN, OPSET, TINY
from .errors import Issue, UnsupportedModel

INPUT = "features"
# scores, of classifiers one column a class; probabilities where there are any; places of labels where they are not
# those of the largest score
Scores = tuple[str, str | None, str | None]


class Build:
    """An ONNX graph in binary64, one input ``features`` of shape [N, F]."""

    def __init__(self, features: int) -> None:
        self.features = features
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[str] = []
        self.count = 0

    def op(self, kind: str, *inputs: str, domain: str = "", name: str = "", **attributes: Any) -> str:
        """A node; the name of its result."""
        if not name:
            name, self.count = f"{kind.lower()}_{self.count}", self.count + 1
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """An initializer."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype=dtype), name))
        return name

    def affine(self, x: str, weight: np.ndarray, bias: Any) -> str:
        """``x W' + b`` with W of shape (outputs, features)."""
        product = self.op("MatMul", x, self.constant(np.atleast_2d(weight).T))
        return self.op(
            "Add", product, self.constant(np.broadcast_to(np.asarray(bias, np.float64), (len(np.atleast_2d(weight)),)))
        )

    def columns(self, x: str, places: Sequence[int]) -> str:
        """Columns of a tensor."""
        return self.op("Gather", x, self.constant(list(places), np.int64), axis=1)

    def total(self, x: str) -> str:
        """The sum of every row, as one column."""
        return self.op("ReduceSum", x, self.constant([1], np.int64), keepdims=1)

    def normalised(self, x: str) -> str:
        """Rows divided by their sum."""
        return self.op("Div", x, self.op("Max", self.total(x), self.constant(TINY)))

    def sigmoid_shares(self, scores: str) -> str:
        """Sigmoids of scores, divided by the sum of their row.

        Written as the softmax of their logarithms: where all of them are small, their sum is as good as nothing.
        """
        logarithm = self.op("Neg", self.op("Softplus", self.op("Neg", scores)))
        return self.op("Softmax", logarithm, axis=1)

    def is_sigmoid(self, chances: str | None, scores: str) -> bool:
        """Whether a tensor holds the sigmoids of scores."""
        return any(n.op_type == "Sigmoid" and n.output[0] == chances and n.input[0] == scores for n in self.nodes)

    def flags(self, kind: str, x: str, than: Any) -> str:
        """Ones where a comparison with constants holds, and zeros."""
        return self.op("Cast", self.op(kind, x, self.constant(than)), to=TensorProto.DOUBLE)

    def side_by_side(self, parts: Sequence[str]) -> str:
        """Columns of all tensors."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=1)

    def model(self) -> onnx.ModelProto:
        """The model."""
        ports = [helper.make_tensor_value_info(INPUT, TensorProto.DOUBLE, ["rows", self.features])]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "sklearn", ports, outputs, self.constants)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 3)]
        return helper.make_model(graph, opset_imports=domains, ir_version=8, producer_name="hushnet")


class Reader(Build, ABC):
    """A graph that estimators inside of estimators are written into."""

    @abstractmethod
    def prepared(self, estimator: Any, x: str) -> str:
        """What a step that prepares features makes of a tensor."""

    @abstractmethod
    def final(self, estimator: Any, x: str) -> Scores:
        """Scores, probabilities and places of labels of an estimator, or of the last step of a pipeline."""

    @abstractmethod
    def targets(self, estimators: Sequence[Any]) -> list[tuple[np.ndarray, np.ndarray]] | None:
        """Weights (targets, features) and biases of linear regressors; None where an estimator is none."""


def refused(estimator: Any, problem: str, advice: str) -> UnsupportedModel:
    """The error that names an estimator, what is in the way, and what to do."""
    return UnsupportedModel([Issue(kind(estimator), "scikit-learn", problem, advice)])


def kind(estimator: Any) -> str:
    """The name of an estimator's class."""
    return type(estimator).__name__


def dense(value: Any) -> np.ndarray:
    """An array of binary64, also of a sparse one."""
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=np.float64)
