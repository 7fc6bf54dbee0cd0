"""What a user is told of answers: rows that left their ranges, accuracy, what a plan does not reach."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import hushnet
import numpy as np
import onnx
import pytest
from hushnet.cli.main import app
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_breast_cancer
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

TRUST = ["client-aided", "two-party", "non-interactive"]


def network(weights: list[np.ndarray], biases: list[np.ndarray], activation: str = "Relu") -> onnx.ModelProto:
    """A perceptron on raw features."""
    nodes, tensors, at = [], [], "x"
    for i, (w, b) in enumerate(zip(weights, biases)):
        tensors += [numpy_helper.from_array(v.astype(np.float32), f"{n}{i}") for n, v in (("w", w), ("b", b))]
        nodes.append(helper.make_node("Gemm", [at, f"w{i}", f"b{i}"], [f"z{i}"]))
        at = f"z{i}"
        if i < len(weights) - 1:
            inputs = [at, at] if activation == "Mul" else [at]
            nodes.append(helper.make_node(activation, inputs, [f"a{i}"]))
            at = f"a{i}"
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
        for name, size in (("x", len(weights[0])), (at, weights[-1].shape[1]))
    ]
    graph = helper.make_graph(nodes, "perceptron", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def cancer() -> tuple[onnx.ModelProto, np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """A trained classifier with its scaler folded in; calibration and held-out rows with labels; its accuracy."""
    found = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(found.data))
    x, y = found.data[order], found.target[order]
    scaler = StandardScaler().fit(x[:400])
    trained = MLPClassifier((16,), random_state=0, max_iter=400).fit(scaler.transform(x[:400]), y[:400])
    (first, last), (b, c) = trained.coefs_, trained.intercepts_
    model = network([first / scaler.scale_[:, None], last], [b - (scaler.mean_ / scaler.scale_) @ first, c])
    return model, x[:400], y[:400], x[400:], y[400:], trained.score(scaler.transform(x[400:]), y[400:])


@pytest.mark.parametrize("trust", TRUST[:2])
def test_a_trained_table_keeps_its_accuracy_by_default(trust: str, cancer: tuple) -> None:
    model, x, y, held, labels, accuracy = cancer
    compiled = hushnet.compile(model, trust=trust, calibration=x, labels=y)
    assert compiled.shortfalls == []
    result = hushnet.run(compiled, held, transport="pipe")
    assert abs(result.accuracy(labels) - accuracy) <= 0.01 and accuracy > 0.9
    # rows beyond what calibration showed are named; they lose nobody else's answer
    assert len(result.out_of_range) < 0.05 * len(held)


def linear(trust: str, **options: object) -> hushnet.Model:
    rng = np.random.default_rng(1)
    model = network([rng.normal(size=(4, 6)), rng.normal(size=(6, 3))], [np.zeros(6), np.zeros(3)], "Mul")
    if trust == "two-party":
        model = network([rng.normal(size=(4, 6)), rng.normal(size=(6, 3))], [np.zeros(6), np.zeros(3)])
    return hushnet.compile(model, trust=trust, batch=8, **options)


@pytest.mark.parametrize("trust", TRUST)
def test_declared_ranges_hold_at_both_ends_and_only_the_row_is_marked(trust: str) -> None:
    compiled = linear(trust, input_range=(0.0, 1.0))
    x = np.random.default_rng(2).uniform(0, 1, (5, 4))
    held = x.copy()
    held[1, 2], held[3, 0] = 0.0, 1.0
    wrong = held.copy()
    wrong[1, 2], wrong[3, 0] = -0.5, 7.0
    right, marked = (hushnet.run(compiled, v, transport="pipe") for v in (held, wrong))
    assert right.out_of_range == () and right.range_error is None
    assert marked.out_of_range == (1, 3)
    error = marked.range_error
    assert (error.tensor, error.image, error.element, error.value) == ("x", 1, 2, -0.5)
    assert (error.low, error.bound, error.values) == (0.0, 1.0, 2)
    near = 0.05 * np.abs(right.output).max() + 1e-3
    np.testing.assert_allclose(marked.output, right.output, atol=near)
    strict = next(iter(marked.strict().values()))
    assert np.isnan(strict[[1, 3]]).all() and np.array_equal(strict[[0, 2, 4]], marked.output[[0, 2, 4]])


def test_the_command_line_names_rows_and_accuracy_and_ends_with_status_3(tmp_path: Path, cancer: tuple) -> None:
    model, x, y, held, labels, accuracy = cancer
    paths = {n: tmp_path / f"{n}.npy" for n in ("x", "y", "held", "labels")}
    held = held[:20].copy()
    held[7, 3] = 1e6
    for name, value in (("x", x), ("y", y), ("held", held), ("labels", labels[:20])):
        np.save(paths[name], value)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    plan = tmp_path / "m.hush"
    runner = CliRunner()
    made = ["compile", str(tmp_path / "m.onnx"), "-o", str(plan), "--calibration", str(paths["x"]), "--margin", "1.5"]
    done = runner.invoke(app, [*made, "--labels", str(paths["y"]), "--strict"])
    text = " ".join(done.output.split())
    assert done.exit_code == 0, done.output
    assert text.index("Agreement") < text.index("Ring degree") and "Accuracy" in text and "in 999 rows of 1000" in text
    assert "Rigorous" not in text and "Ranges are 1.5 times the largest values of 400 calibration rows" in text
    verbose = runner.invoke(app, ["explain", str(plan), "--verbose"]).output
    assert "Rigorous bound" in verbose
    coarse = [*made, "--labels", str(paths["y"]), "--weight-bits", "2", "--activation-bits", "3"]
    assert runner.invoke(app, coarse).exit_code == 0
    failed = runner.invoke(app, [*coarse, "--strict", "--json"])
    assert failed.exit_code == 3 and any("Accuracy" in s for s in json.loads(failed.stdout)["shortfalls"])
    assert runner.invoke(app, [*made]).exit_code == 0
    ran = ["run", str(plan), str(paths["held"]), "--transport", "pipe", "--labels", str(paths["labels"])]
    text = " ".join(runner.invoke(app, ran).output.split())
    assert (
        "1 of 20 rows left a planned range and may have wrong answers: 7." in text
        and "Accuracy of the encrypted run" in text
    )
    said = json.loads(runner.invoke(app, [*ran, "--strict-rows", "--json"]).stdout)
    assert said["rows_out_of_range"] == [7] and said["accuracy"] >= accuracy - 0.1
    values = said["values"]["z1"]
    assert values[7] == [None] and all(v != [None] for i, v in enumerate(values) if i != 7)


def test_growth_beyond_the_margin_is_told() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (40, 4))
    steady = linear("client-aided", calibration=np.concatenate([x, x])).plan.document["notes"]
    assert any("of 80 calibration rows" in n and "grew by up to 0 %" in n and n.endswith(").") for n in steady)
    x[30] *= 4
    grown = linear("client-aided", calibration=x).plan.document["notes"]
    assert any("more than the margin" in n for n in grown)


@pytest.mark.parametrize("trust", TRUST[:2])
def test_without_calibration_data_errors_as_large_as_the_answers_are_said(trust: str) -> None:
    rng = np.random.default_rng(1)
    sizes = [20, 60, 60, 60, 3]
    weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in pairwise(sizes)]
    deep = network(weights, [np.zeros(w.shape[1]) for w in weights])
    coarse = hushnet.compile(deep, trust=trust, input_range=(-1.0, 1.0), weight_bits=4, activation_bits=4)
    assert len(coarse.shortfalls) == 1 and "give calibration data" in coarse.shortfalls[0]
    fine = hushnet.compile(deep, trust=trust, calibration=rng.uniform(-1, 1, (100, 20)))
    assert fine.shortfalls == []
