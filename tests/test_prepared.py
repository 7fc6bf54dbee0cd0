"""Inferences that are prepared before their inputs: command line, API, restarts, and parties that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet.reference import two_party as reference
from onnx import TensorProto, helper, numpy_helper


def small(path: Path) -> tuple[np.ndarray, float]:
    """A network of two layers as a two-party plan; one image, and how far right answers may be from the planned."""
    rng = np.random.default_rng(3)
    weights = {
        "w0": rng.normal(0, 0.3, (4, 1, 3, 3)),
        "b0": rng.normal(0, 0.1, 4),
        "w1": rng.normal(0, 0.1, (5, 4 * 4 * 4)),
        "b1": rng.normal(0, 0.1, 5),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["y"], transB=1),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", 1, 8, 8]), ("y", ["n", 5]))]
    initial = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "small", [ends[0]], [ends[1]], initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    samples = rng.uniform(0, 1, (64, 1, 8, 8)).astype(np.float32)
    compiled = hushnet.compile(model, trust="two-party", calibration=samples, method="cheetah")
    compiled.save(path)
    stage = next(s for s in compiled.plan.stages if s["kind"] == "reveal")
    tensor = compiled.plan.tensors[stage["out"]]
    reach = np.max(reference.unit_reach(compiled.plan)[tensor["name"]]) * tensor["scale"] + 1e-9
    return samples[:1], float(reach)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, float]:
    path = tmp_path_factory.mktemp("prepared") / "net.hush"
    return path, *small(path)


def hush(*arguments: object) -> subprocess.CompletedProcess:
    words = [sys.executable, "-m", "hushnet", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def right(path: Path, x: np.ndarray, got: np.ndarray, reach: float) -> bool:
    model = hushnet.Model.load(path)
    planned = next(iter(reference.run(model.plan, {model.input_names[0]: x}).values()))
    return bool(np.abs(got - planned).max() <= reach)


def test_the_command_line_prepares_and_spends(network: tuple[Path, np.ndarray, float], tmp_path: Path) -> None:
    path, x, reach = network
    np.save(tmp_path / "x.npy", np.repeat(x, 2, axis=0))
    server, client = tmp_path / "server", tmp_path / "client"
    told = hushnet.Model.load(path).explain()["totals"]["prepared"]
    with hushnet.serve(path, prepared=server) as handle:
        url = f"hush://{handle.address}"
        made = hush("prepare", url, "-n", 3, "--folder", client, "--json")
        assert made.returncode == 0, made.stderr
        summary = json.loads(made.stdout)
        assert summary["units"] == summary["prepared"] == 3
        done = hush("infer", url, tmp_path / "x.npy", "--prepared", client, "--json", "-o", tmp_path / "y.npy")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        # what it cost before is printed beside what it costs now, and is no part of it
        assert 0 < answer["prepared"]["bytes_up"] <= summary["bytes_up"]
        assert answer["prepared"]["seconds"] > 0
        assert right(path, np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy"), reach)
        # one is left for two images: nothing runs in its place, and nothing is spent
        refused = hush("infer", url, tmp_path / "x.npy", "--prepared", client, "--json")
        assert refused.returncode == 1
        error = json.loads(refused.stdout)["error"]
        assert error["type"] == "PreparedError" and "holds 1 prepared" in error["message"], error
        assert "hushnet prepare" in error["message"]
        alone = hush("infer", url, tmp_path / "x.npy", "--json")
        assert alone.returncode == 0 and "prepared" not in json.loads(alone.stdout)
        said = hush("prepare", url, "-n", 1, "--folder", client)
        assert said.returncode == 0 and "holds 2 for this server" in " ".join(said.stdout.split()), said.stdout
    assert told["client_bytes"] == next(client.glob("*.unit")).stat().st_size
    assert told["server_bytes"] == next(server.glob("*.unit")).stat().st_size
    assert told["unprepared"] == [] and told["online_transfers"] == 0 < told["online_bytes_up"]


def test_units_outlive_a_server_and_are_its_clients_own(
    network: tuple[Path, np.ndarray, float], tmp_path: Path
) -> None:
    path, x, reach = network
    with hushnet.serve(path, prepared=tmp_path / "server") as handle:
        port, url = handle.port, f"hush://{handle.address}"
        with hushnet.connect(url, prepared=tmp_path / "client") as connection:
            assert connection.prepared == 0
            with pytest.raises(hushnet.PreparedError, match="prepare more"):
                connection.infer(x)
            # nothing was sent: the session goes on
            trace = connection.prepare(2)
            assert trace["units"] == 2 and connection.prepared == 2
            assert trace["bytes_up"] == trace["total"]["predicted"]["bytes_up"]
    with hushnet.serve(path, port=port, prepared=tmp_path / "server"):
        with hushnet.connect(url, prepared=tmp_path / "client") as connection:
            got = connection.infer(x)
            assert right(path, x, got.output, reach)
            trace = got.trace
            assert trace["bytes_up"] == trace["total"]["predicted"]["bytes_up"]
            assert trace["prepared"]["bytes_up"] > 0 and connection.prepared == 1
        # a copy of what was spent is put back, as no backup may be
        left = next((tmp_path / "client").glob("*.unit"))
        copy = left.read_bytes()
        with hushnet.connect(url, prepared=tmp_path / "client") as connection:
            connection.infer(x)
        left.write_bytes(copy)
        said = pytest.raises(hushnet.PreparedError, match="spent, out of date")
        with hushnet.connect(url, prepared=tmp_path / "client") as connection, said as caught:
            connection.infer(x)
        assert caught.value.code == 10
    # a server without a folder, one without room, and a plan of another trust model
    with hushnet.serve(path) as handle:
        said = pytest.raises(hushnet.PreparedError, match="keeps no prepared inferences")
        with hushnet.connect(f"hush://{handle.address}", prepared=tmp_path / "other") as connection, said:
            connection.prepare(1)
        with hushnet.connect(f"hush://{handle.address}") as connection:
            assert connection.prepared is None
            with pytest.raises(hushnet.PreparedError, match="name one"):
                connection.prepare(1)
    with hushnet.serve(path, prepared=tmp_path / "full", prepared_client_quota=1000) as handle:
        said = pytest.raises(hushnet.PreparedError, match="no room")
        with hushnet.connect(f"hush://{handle.address}", prepared=tmp_path / "third") as connection, said:
            connection.prepare(5)
        assert not list((tmp_path / "full").glob("*.unit")) and not list((tmp_path / "third").glob("*.unit"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="parties are forked")
def test_nothing_is_used_twice_when_parties_are_killed(network: tuple[Path, np.ndarray, float], tmp_path: Path) -> None:
    """A few kills here; ``python -m tests.kills --count 1000`` for the whole claim.

    In a process of its own: forks of one that has threads would inherit their locks.
    """
    path, x, reach = network
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "run").mkdir()
    code = (
        "import sys, json, numpy as np; from pathlib import Path; from tests.kills import kills; "
        "p, x, f, n, r = sys.argv[1:]; "
        "print(json.dumps(kills(Path(p), np.load(x), Path(f), int(n), reach=float(r))))"
    )
    count = int(os.environ.get("HUSHNET_KILLS", "12"))
    words = [sys.executable, "-c", code, path, tmp_path / "x.npy", tmp_path / "run", count, reach]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60 + 5 * count, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["kills"] == count and found["twice"] == found["wrong"] == 0, found
    assert found["spent"] > 0 and found["answers"] > 0, found


def test_a_reuse_would_be_seen(network: tuple[Path, np.ndarray, float], tmp_path: Path) -> None:
    """The measure notices what it is for: a client whose folder is put back announces a unit again."""
    path, x, _ = network
    with hushnet.serve(path, prepared=tmp_path / "server", record=tmp_path / "record") as handle:
        url = f"hush://{handle.address}"
        with hushnet.connect(url, prepared=tmp_path / "client") as connection:
            connection.prepare(1)
            unit = next((tmp_path / "client").glob("*.unit"))
            copy = unit.read_bytes()
            connection.infer(x)
        unit.write_bytes(copy)
        said = pytest.raises(hushnet.PreparedError)
        with hushnet.connect(url, prepared=tmp_path / "client") as connection, said:
            connection.infer(x)
    identity = bytes.fromhex(unit.stem.partition("-")[2])
    assert (tmp_path / "record").read_bytes().count(identity) == 3
