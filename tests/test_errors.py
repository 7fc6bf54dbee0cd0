"""Exceptions stand in ``hushnet`` itself, and their fields say what their messages say."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet.cli.main import app
from hushnet.graph import Dense, Graph, Linear, Op
from hushnet.planner import compile
from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent


def squares(depth: int, size: int = 4) -> Graph:
    """Dense layers with squares behind them."""
    nodes: list[Linear | Op] = []
    for i in range(depth):
        nodes.append(Linear(f"l{i}", f"t{i}", f"m{i}", Dense(size, size), np.eye(size), np.zeros(size)))
        nodes.append(Op(f"s{i}", "square", [f"m{i}"], f"t{i + 1}", {}))
    shapes = {name: (size,) for i in range(depth + 1) for name in (f"t{i}", f"m{i}")}
    return Graph("g", ["t0"], [f"t{depth}"], shapes, nodes)


def below(kind: type) -> set[type]:
    """All kinds of an exception."""
    return {kind}.union(*(below(sub) for sub in kind.__subclasses__()))


def test_every_exception_is_one_of_the_package_itself_and_of_the_page() -> None:
    for module in pkgutil.walk_packages(hushnet.__path__, "hushnet."):
        if module.name != "hushnet.__main__" and not module.name.endswith("options.__main__"):
            importlib.import_module(module.name)
    named = {kind.__name__ for kind in below(hushnet.HushnetError) if kind.__module__.split(".")[0] == "hushnet"}
    assert len(named) == 15 and named <= set(hushnet.__all__), named - set(hushnet.__all__)
    page = (ROOT / "docs/errors.md").read_text()
    assert all(f"`{name}`" in page or f"hushnet.{name}`" in page for name in named), named


def test_options_that_are_wrong_are_fields() -> None:
    with pytest.raises(hushnet.OptionError) as caught:
        hushnet.compile("absent.onnx", trust="two-party", engin="batch")  # type: ignore[arg-type]
    error = caught.value
    assert (error.option, error.value, error.trust, error.nearest) == ("engin", "batch", "two-party", "engine")
    assert error.takes == ("client-aided", "non-interactive")
    with pytest.raises(hushnet.OptionError) as caught:
        hushnet.compile("absent.onnx", margin=0.5)
    error = caught.value
    assert (error.option, error.value, error.trust, error.nearest) == ("margin", 0.5, "client-aided", "")
    assert error.takes == ("client-aided", "two-party", "non-interactive")


@pytest.mark.parametrize(
    ("trust", "engine"),
    [
        ("client-aided", "batch"),
        ("client-aided", "packed"),
        ("two-party", None),
        ("non-interactive", "batch"),
        ("non-interactive", "packed"),
    ],
)
def test_memory_that_is_too_small_is_a_field(trust: str, engine: str | None) -> None:
    more = {} if engine is None else {"engine": engine}
    with pytest.raises(hushnet.LimitError) as caught:
        compile(squares(1) if trust == "non-interactive" else layer(), trust=trust, batch=4, max_memory=1000, **more)
    error = caught.value
    assert (error.what, error.limit, error.unit) == ("memory", 1000, "bytes")
    assert error.needed is not None and error.needed > 1000 and "max_memory" in str(error)
    # that much is enough (of packed circuits, the keys that are taken differ by some)
    graph = squares(1) if trust == "non-interactive" else layer()
    compile(graph, trust=trust, batch=4, max_memory=int(1.01 * error.needed), **more)


def layer() -> Graph:
    """One dense layer."""
    return Graph(
        "g", ["x"], ["y"], {"x": (4,), "y": (4,)}, [Linear("l", "x", "y", Dense(4, 4), np.eye(4), np.zeros(4))]
    )


def test_a_modulus_that_is_too_small_is_a_field() -> None:
    with pytest.raises(hushnet.LimitError) as caught:
        compile(squares(4), trust="non-interactive", batch=4096, ring_degree=4096)
    error = caught.value
    assert (error.what, error.unit) == ("modulus", "bits") and error.limit > 50
    assert error.needed is None or error.needed > error.limit
    assert str(error.limit) in str(error)


def test_nodes_that_are_refused_are_fields() -> None:
    graph = squares(2)
    graph.nodes[1] = Op("s0", "relu", ["m0"], "t1", {})
    with pytest.raises(hushnet.BlockedPlan) as caught:
        compile(graph, trust="non-interactive")
    assert [b.node for b in caught.value.blocked] == ["s0"] and caught.value.blocked[0].advice


def test_rows_values_and_limits_of_a_range_are_fields() -> None:
    model = hushnet.Model(compile(layer(), batch=4, engine="packed", input_range=(0.0, 1.0)))
    x = np.full((3, 4), 0.5)
    x[1, 2] = 7.0
    result = hushnet.run(model, x, transport="pipe")
    error = result.range_error
    assert isinstance(error, hushnet.RangeError) and result.out_of_range == (1,)
    assert (error.image, error.element, error.affected, error.images) == (1, 2, [1], 1)
    assert error.value == pytest.approx(7.0) and error.bound == pytest.approx(1.0) and error.low == pytest.approx(0.0)
    assert (error.input, error.position, error.given) == ("x", (2,), pytest.approx(7.0))


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
def test_what_left_its_range_is_named_as_the_user_knows_it(trust: str, tmp_path: Path) -> None:
    """Columns are picked and scaled in front of the first layer: 'fixed 1' is nothing that a user has passed."""
    graph = squares(1)
    graph.shapes |= {"x": (6,), "picked": (4,), "scaled": (4,)}
    first = Op("pick", "gather", ["x"], "picked", {"axis": 0, "indices": [5, 0, 3, 1]})
    scale = Op("scale", "channel_scale", ["picked"], "scaled", {"factor": [8.0, 1.0, 2.0, 1.0]})
    graph.nodes[0] = replace(graph.nodes[0], input="scaled")
    graph.nodes[:0], graph.inputs = [first, scale], ["x"]
    x = np.random.default_rng(0).uniform(-1, 1, (50, 6))
    kind = {"engine": "packed"} if trust == "non-interactive" else {}
    model = hushnet.Model(compile(graph, trust=trust, batch=1, calibration=x, **kind))
    rows = x[:3].copy()
    rows[2, 3] = -40.0
    results = [hushnet.run(model, rows, transport="pipe")]
    server = hushnet.serve(model)
    with hushnet.connect(f"hush://127.0.0.1:{server.port}") as connection:
        results.append(connection.infer(rows))
    server.stop()
    for result in results:
        error = result.range_error
        assert isinstance(error, hushnet.RangeError) and result.out_of_range == (2,)
        assert (error.input, error.position, error.given, error.image) == ("x", (3,), -40.0, 2)
        assert "input 'x' at [3], -40" in str(error) or error.tensor == "x"
    # the command says the same
    model.save(tmp_path / "m.hush")
    np.save(tmp_path / "x.npy", rows)
    said = CliRunner().invoke(app, ["run", str(tmp_path / "m.hush"), str(tmp_path / "x.npy")]).output
    assert "The first is -40, input 'x' at [3] of row 2." in " ".join(said.split())
