"""The run time through its Python binding: plans, both parties, server and client, errors, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import hushnet
import numpy as np
import pytest
from hushnet import _native, planner
from hushnet.graph import Dense, Graph, Linear, Op
from hushnet.reference import numpy as reference


@pytest.fixture(scope="module")
def model() -> hushnet.Model:
    """dense 12 -> 9, relu, dense 9 -> 4, with seeded weights."""
    rng = np.random.default_rng(1)

    def layer(name: str, x: str, y: str, k: int, m: int) -> Linear:
        return Linear(name, x, y, Dense(k, m), rng.normal(size=(m, k)), rng.normal(size=m))

    graph = Graph(
        name="small",
        inputs=["x"],
        outputs=["y"],
        shapes={"x": (3, 4), "a": (9,), "b": (9,), "y": (4,)},
        nodes=[layer("first", "x", "a", 12, 9), Op("act", "relu", ["a"], "b"), layer("second", "b", "y", 9, 4)],
    )
    return hushnet.Model(planner.compile(graph, calibration=_images(64)))


@pytest.fixture(scope="module")
def plan(model: hushnet.Model) -> _native.Plan:
    return _native.Plan.load(model.plan.to_bytes())


def _images(count: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, size=(count, 3, 4))


def _expected(model: hushnet.Model, x: np.ndarray) -> np.ndarray:
    return next(iter(reference.run(model.plan, x).values()))


def test_plan(model: hushnet.Model, plan: _native.Plan, tmp_path) -> None:
    assert plan.has_weights and plan.name == "small" and not plan.insecure and plan.ring_degree == 2048
    assert plan.inputs == [("x", [3, 4])] and plan.outputs == [("y", [4])]
    assert json.loads(plan.json()) == model.plan.document
    public = _native.Plan.load(plan.public_part())
    assert not public.has_weights and '"weights":' not in public.json()
    # Both sides of the language border write the same public part.
    assert json.loads(public.json()) == model.plan.public_part().document
    path = tmp_path / "plan.hush"
    model.save(path)
    assert _native.Plan.load(path).json() == _native.Plan.load(str(path)).json() == plan.json()
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    with pytest.raises(_native.PlanError, match="digest"):
        _native.Plan.load(bytes(damaged))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(hushnet.PlanError, match="plan.hush.*truncated"):
        _native.Plan.load(path)
    with pytest.raises(_native.PlanError, match="memory"):
        _native.Plan.load(model.plan.to_bytes(), memory_limit=1000)
    with pytest.raises(_native.PlanError):
        _native.Plan.load(tmp_path / "absent.hush")


@pytest.mark.parametrize("transport", ["pipe", "loopback"])
@pytest.mark.parametrize("threads", [None, 1])
def test_run(model: hushnet.Model, plan: _native.Plan, transport: str, threads: int | None) -> None:
    x = _images(2048 + 5)
    told: list[tuple[str, int, int]] = []
    outputs, trace, _ = _native.run(plan, {"x": x}, threads, lambda *p: told.append(p), transport)
    assert np.array_equal(outputs["y"], _expected(model, x))
    t = json.loads(trace)
    assert (t["images"], t["blocks"], t["rounds"]) == (2053, 2, 4)
    assert [s["name"] for s in t["stages"]] == [s["name"] for s in model.plan.stages]
    linear = [s for s in t["stages"] if s["kind"] == "linear"]
    assert all(s["seconds"]["linear"] > 0 and s["noise_margin_bits"] > 0 for s in linear)
    assert t["bytes_up"] > sum(s["bytes_up"] for s in linear) > 0
    names = [p[0] for p in told]
    assert names[0] == "setup" and "[2/2] second" in names and all(0 <= done <= of for _, done, of in told)
    single, *_ = _native.run(plan, {"x": x[:3].astype(np.float32)})
    assert np.array_equal(single["y"], _expected(model, x[:3].astype(np.float32)))
    strided, *_ = _native.run(plan, {"x": x[::100]})
    assert np.array_equal(strided["y"], _expected(model, x)[::100])


def test_inputs_are_refused_by_name(plan: _native.Plan) -> None:
    good = _images(2)
    bad = good.copy()
    bad[1, 2, 3] = np.nan
    for inputs, text in [
        ({}, "'x' is missing"),
        ({"x": good, "z": good}, "no input 'z'"),
        ({"x": good.astype(np.int32)}, "'x' has dtype int32"),
        ({"x": [[1.0]]}, "'x' is a list"),
        ({"x": good[0]}, "'x' has shape"),
        ({"x": good[:0]}, "no images"),
        ({"x": bad}, "NaN at image 1, element 11"),
    ]:
        with pytest.raises(_native.InputError, match=text):
            _native.run(plan, inputs)
    with pytest.raises(hushnet.RangeError, match="layer '.*image 1") as caught:
        _native.run(plan, {"x": np.concatenate([good[:1], 1e6 * good[:1]])})
    error = caught.value
    assert isinstance(error, _native.HushnetError) and error.tensor and error.finite and error.stage in str(error)
    assert (
        (error.image, error.images, error.affected) == (1, 1, [1])
        and abs(error.value) > error.bound
        and not error.answer
    )
    assert error.values >= 1 and "--input-range" in str(error) and "--margin" in str(error)
    marks: list[hushnet.RangeError] = []
    outputs, *_ = _native.run(plan, {"x": np.concatenate([good[:1], 1e6 * good[:1]])}, marks=marks)
    usual, *_ = _native.run(plan, {"x": good[:1]}, marks=marks)
    assert [str(m) for m in marks] == [str(error)] and np.array_equal(outputs["y"][:1], usual["y"])
    with pytest.raises(ValueError, match="transport"):
        _native.run(plan, {"x": good}, transport="pigeon")
    with pytest.raises(_native.PlanError, match="without weights"):
        _native.run(_native.Plan.load(plan.public_part()), {"x": good})


def test_exceptions_of_callbacks_come_through(plan: _native.Plan) -> None:
    def stop(*_: object) -> None:
        raise KeyError("enough")

    for transport in ("pipe", "loopback"):
        with pytest.raises(KeyError, match="enough"):
            _native.run(plan, {"x": _images(2)}, progress=stop, transport=transport)


def test_server_and_clients(model: hushnet.Model, plan: _native.Plan) -> None:
    with _native.serve(plan, max_sessions=3) as handle:
        assert handle.running and handle.address == f"127.0.0.1:{handle.port}"
        url = f"ws://127.0.0.1:{handle.port}/ws"
        results: dict[int, bool] = {}

        def work(i: int) -> None:
            x = _images(7, seed=i)
            with _native.connect(url) as client:
                for _ in range(2):
                    outputs, _ = client.infer({"x": x})
                    results[i] = np.array_equal(outputs["y"], _expected(model, x))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert results == {0: True, 1: True, 2: True}
        client = _native.connect(url)
        assert json.loads(client.plan_json()) == model.plan.public_part().document
        with pytest.raises(_native.InputError):
            client.infer({})
        assert client.infer({"x": _images(1)})[0]["y"].shape == (1, 4)
        with pytest.raises(_native.RangeError):
            client.infer({"x": 1e9 * _images(1)})
        # Nothing was sent, and the session serves on.
        assert client.infer({"x": _images(1)})[0]["y"].shape == (1, 4)
        client.close()
        with pytest.raises(_native.TransportError, match="closed"):
            client.infer({"x": _images(1)})
        client.close()
        text = urllib.request.urlopen(f"http://127.0.0.1:{handle.port}/metrics", timeout=10).read().decode()
        assert "hushnet_sessions_total 4" in text
        assert handle.stats()["blocks"] == 9
        assert not handle.join(timeout=0.05)
    assert not handle.running
    with pytest.raises(_native.TransportError):
        _native.connect(url)
    with pytest.raises(_native.TransportError, match="ws or wss"):
        _native.connect("http://127.0.0.1:1")
    with pytest.raises(_native.TransportError, match="certificate"):
        _native.serve(plan, tls_cert="/nowhere.pem", tls_key="/nowhere.key")
    with pytest.raises(ValueError, match="both"):
        _native.serve(plan, tls_cert="/nowhere.pem")


def hear_interrupts() -> None:
    """Shells start background jobs with interrupts ignored, which children inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_serving_ends_on_interrupt(model: hushnet.Model, tmp_path) -> None:
    path = tmp_path / "plan.hush"
    model.save(path)
    command = [sys.executable, "-m", "hushnet", "serve", str(path), "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hear_interrupts) as process:
        url = json.loads(process.stdout.readline())["url"]
        x = _images(3)
        with _native.connect(url) as client:
            assert np.array_equal(client.infer({"x": x})[0]["y"], _expected(model, x))
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0


def test_waiting_ends_on_interrupt() -> None:
    """A server that never answers: Ctrl-C ends the wait at once."""
    code = (
        "import sys\nfrom hushnet import _native\n"
        "try:\n    _native.connect(f'ws://127.0.0.1:{sys.argv[1]}', connect_timeout=2.0)\n"
        "except (KeyboardInterrupt, _native.TransportError) as e:\n    print(type(e).__name__)"
    )
    with socket.create_server(("127.0.0.1", 0)) as quiet:
        environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-c", code, str(quiet.getsockname()[1])]
        pipes = {"stdout": subprocess.PIPE, "text": True, "env": environment}
        # Held open: a server that has hung up is an error, not a wait.
        with subprocess.Popen(command, **pipes, preexec_fn=hear_interrupts) as process, quiet.accept()[0]:
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline().strip() in ("KeyboardInterrupt", "TransportError")
            assert process.wait(timeout=20) == 0


def test_simd_and_threads(plan: _native.Plan) -> None:
    assert _native.simd() in ("portable", "neon", "relaxed", "avx2", "avx512", "ifma", "vnni", "amx")
    assert _native.max_modulus_bits(2048) == 53 and _native.max_modulus_bits(2047) is None
    x = _images(4)
    try:
        _native.set_threads(1)
        outputs, trace, _ = _native.run(plan, {"x": x})
        assert json.loads(trace)["threads"] == 1
    finally:
        _native.set_threads(0)
    again, *_ = _native.run(plan, {"x": x}, threads=2)
    assert np.array_equal(outputs["y"], again["y"])
    # Under HUSHNET_SIMD the machine may have more than it says.
    lacks_amx = _native.simd() != "amx" and not os.environ.get("HUSHNET_SIMD")
    for wrong in ("nonsense", "amx" if lacks_amx else "fast"):
        command = [sys.executable, "-c", "from hushnet import _native; _native.simd()"]
        environment = dict(os.environ) | {
            "HUSHNET_SIMD": wrong,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "HushnetError" in done.stderr and wrong in done.stderr
