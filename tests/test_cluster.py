"""A front over several servers, answers of data sets in folders, and, where Ray is installed, both on a cluster."""

from __future__ import annotations

import builtins
import importlib.util
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hushnet
import hushnet.ray
import numpy as np
import pytest
from hushnet.ray.front import Backend, Front, choice
from hushnet.ray.replica import patiently
from hushnet.ray.results import Results
from hushnet_bench import cluster, service

ROWS = {"x": np.arange(20.0).reshape(10, 2)}
RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed (pip install 'hushnet[ray]')"
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> service.Network:
    return service.tiny("client-aided", tmp_path_factory.mktemp("network"))


@contextmanager
def front(**options: Any) -> Iterator[Front]:
    made = Front(**options)
    try:
        yield made
    finally:
        made.stop()


def right(url: str, network: service.Network, row: int) -> bool:
    with hushnet.connect(url, threads=1) as client:
        got = next(iter(client.infer(network.rows[row : row + 1]).outputs.values()))
    return bool(np.abs(got - network.answers[row : row + 1]).max() <= 2 * network.tolerance)


def test_clients_come_back_to_their_server_and_none_has_more_than_its_share() -> None:
    servers = [Backend(f"replica-{i}", "h", i) for i in range(4)]
    clients = [f"10.0.0.{i}" for i in range(200)]
    first = {c: choice(c, servers)[0].name for c in clients}
    assert min(Counter(first.values()).values()) > 25, "each has some of them"
    # one that goes takes its own clients along, and nobody else's
    left = [s for s in servers if s.name != "replica-2"]
    moved = [c for c in clients if choice(c, left)[0].name != first[c]]
    assert set(moved) == {c for c in clients if first[c] == "replica-2"}
    # one client's many connections, and those of an address that all share, are spread
    for _ in range(100):
        choice("10.0.0.1", servers)[0].active += 1
    assert max(s.active for s in servers) <= 32 and min(s.active for s in servers) >= 4
    assert choice("10.0.0.1", []) == []


def test_a_killed_server_costs_its_clients_a_second_try_and_nobody_an_answer(network: service.Network) -> None:
    """Two servers behind a front, no cluster: every client has right answers though one is killed among them."""
    answers, failed = [], []
    with front() as door, ExitStack() as stack:
        servers = [stack.enter_context(service.served(network.plan, "--log-level", "error")) for _ in range(2)]
        for number, server in enumerate(servers):
            door.put(f"replica-{number}", "127.0.0.1", server.port)
        tap = cluster.Tap(door.port)
        killed = threading.Event()

        def work(number: int) -> None:
            for turn in range(3):
                if turn:
                    killed.wait(20)
                try:
                    answers.append(patiently(lambda: right(f"hush://127.0.0.1:{tap.port}", network, number), 30))
                except hushnet.HushnetError as error:
                    failed.append(error)

        with hushnet.connect(f"hush://127.0.0.1:{tap.port}", threads=1) as held:
            held.infer(network.rows[:1])
            [busy] = [i for i in range(2) if door.backends()[f"replica-{i}"].active]
            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            servers[busy].process.kill()
            servers[busy].process.wait()
            killed.set()
            # what had begun there is cut off, and says so
            with pytest.raises(hushnet.TransportError):
                held.infer(network.rows[:1])
        for thread in threads:
            thread.join()
        assert not failed and len(answers) == 24 and all(answers)
        assert door.backends()[f"replica-{1 - busy}"].total >= 16
        sent = tap.repeated()
        assert sent["frames"] > 24 and sent["repeated_frames"] == 0
        tap.close()


def test_a_frame_that_is_sent_twice_is_found(network: service.Network) -> None:
    with hushnet.serve(network.plan) as server:
        tap = cluster.Tap(server.port)
        assert right(f"hush://127.0.0.1:{tap.port}", network, 0)
        assert service.until(lambda: tap.repeated()["frames"] > 1, 5)
        tap.streams.append(bytearray(tap.streams[0]))
        assert tap.repeated()["repeated_frames"] == tap.repeated()["frames"] // 2
        tap.close()


def test_clients_wait_for_a_server_and_too_many_are_turned_away(network: service.Network) -> None:
    with front(patience=0.2) as door, pytest.raises(hushnet.TransportError, match="closed the connection"):
        hushnet.connect(f"hush://127.0.0.1:{door.port}", threads=1)
    with front(max_connections=1) as door, hushnet.serve(network.plan) as server:
        late = threading.Timer(0.3, door.put, ("replica", "127.0.0.1", server.port))
        late.start()
        with hushnet.connect(f"hush://127.0.0.1:{door.port}", threads=1):
            with pytest.raises(hushnet.TransportError):
                hushnet.connect(f"hush://127.0.0.1:{door.port}", threads=1)
            assert door.refused == 1
        assert service.until(lambda: not door.backends()["replica"].active, 10)
        with pytest.raises(hushnet.TransportError, match="another port"):
            Front(port=door.port)


def test_a_data_set_goes_on_where_it_was(tmp_path: Path) -> None:
    results = Results(tmp_path / "answers", ROWS, 4, "hush://a")
    assert (results.batches, results.missing()) == (3, [0, 1, 2])
    results.put(1, {"y": np.full((4, 1), 1.0)})
    with pytest.raises(hushnet.InputError, match="done twice"):
        results.put(1, {"y": np.zeros((4, 1))})
    with pytest.raises(hushnet.InputError, match="2 of 3 batches"):
        results.get()
    with pytest.raises(hushnet.InputError, match="Another process"):
        Results(tmp_path / "answers", ROWS, 4, "hush://a")
    results.close()
    # half a file of a process that was killed is none
    (tmp_path / "answers" / "batch-00000002.part").write_bytes(b"half")
    results = Results(tmp_path / "answers", ROWS, 4, "hush://a")
    assert results.missing() == [0, 2]
    results.put(0, {"y": np.full((4, 1), 0.0)})
    results.put(2, {"y": np.full((2, 1), 2.0)})
    assert results.get()["y"].ravel().tolist() == [0.0] * 4 + [1.0] * 4 + [2.0] * 2
    results.close()
    others: list[tuple[dict[str, np.ndarray], int, str, str]] = [
        ({"x": ROWS["x"] + 1}, 4, "hush://a", "inputs"),
        (ROWS, 5, "hush://a", "size"),
        (ROWS, 4, "hush://b", "target"),
        ({"y": ROWS["x"]}, 4, "hush://a", "inputs"),
    ]
    for inputs, size, target, what in others:
        with pytest.raises(hushnet.InputError, match=f"of other {what}"):
            Results(tmp_path / "answers", inputs, size, target)


def test_without_ray_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, network: service.Network) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(hushnet.HushnetError, match=r"pip install 'hushnet\[ray\]'"):
        hushnet.ray.serve(network.plan)
    assert cluster.rows(quick=True, threads=1, progress=None)[0]["case"] == "ray"
    # the product itself imports without it
    code = "import sys; sys.modules['ray'] = None; import hushnet, hushnet.ray, hushnet.cli, hushnet_bench"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_options_that_replicas_cannot_have_are_refused(network: service.Network, tmp_path: Path) -> None:
    for options, why in (
        ({"replicas": 0}, "from 1 on"),
        ({"replicas": (3, 2)}, "least and the most"),
        ({"record": "x"}, "record of their own"),
    ):
        with pytest.raises(hushnet.InputError, match=why):
            hushnet.ray.serve(network.plan, **options)
    for inputs in (np.zeros(()), {}, {"a": np.zeros((2, 1)), "b": np.zeros((3, 1))}, np.zeros((0, 2))):
        with pytest.raises(hushnet.InputError, match="data set"):
            hushnet.ray.map("hush://127.0.0.1:1", inputs, tmp_path / "answers")


@RAY
def test_on_a_cluster_a_killed_worker_costs_nobody_an_answer() -> None:
    """Three workers, one of them killed among 32 clients; a data set with a killed worker; other weights."""
    rows = {
        row["case"]: row for row in cluster.rows(quick=False, threads=1, progress=None, cases=["kill", "map", "reload"])
    }
    assert all(row["ok"] for row in rows.values()), rows
    assert rows["kill"]["answers"] == 128 and rows["kill"]["wrong"] == rows["kill"]["repeated_frames"] == 0
    assert rows["map"]["workers_killed"] == 1
