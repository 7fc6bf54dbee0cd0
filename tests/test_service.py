"""``hushnet serve`` with several models, tokens and limits, and ``hushnet infer`` as their client."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet.cli import connecting as client
from hushnet.cli.hosting import Hosting
from onnx import TensorProto, helper

from tests.test_serve import served

ROWS = np.random.default_rng(5).uniform(-1, 1, (4, 6)).astype(np.float32)
TOKEN = "anns-token-of-24-letters"


def network(path: Path, weights: int) -> Path:
    """A small network of other weights for each number."""
    matrix = np.random.default_rng(weights).normal(0, 0.5, (6, 3)).astype(np.float32)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, ["n", 6])],
        [value("y", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor("w", TensorProto.FLOAT, (6, 3), matrix.ravel())],
    )
    hushnet.compile(helper.make_model(graph), trust="client-aided", calibration=ROWS).save(path)
    return path


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Plans of one network with other weights."""
    folder = tmp_path_factory.mktemp("plans")
    return [network(folder / f"net{i}.hush", i) for i in range(3)]


@pytest.fixture
def folder(plans: list[Path], tmp_path: Path) -> Path:
    """A folder of two models."""
    models = tmp_path / "models"
    models.mkdir()
    for name, plan in zip(("first", "second"), plans, strict=False):
        shutil.copy(plan, models / f"{name}.hush")
    return models


def right(connection: hushnet.Connection, plan: Path) -> bool:
    return np.allclose(connection.infer(ROWS).output, hushnet.run(plan, ROWS).output, atol=1e-9)


def soon(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def refused(url: str, **options: Any) -> hushnet.ProtocolError:
    with pytest.raises(hushnet.ProtocolError) as caught:
        hushnet.connect(url, **options)
    return caught.value


def infer(*arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hushnet", "infer", *map(str, arguments), "--json"]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)


def test_models_of_a_folder_change_under_sessions(folder: Path, plans: list[Path]) -> None:
    with served(folder) as (process, about, lines):
        url = about["url"]
        assert about["models"] == ["first", "second"]

        def log(text: str) -> Callable[[], bool]:
            return lambda: any(text in line for line in lines)

        with hushnet.connect(f"{url}/first") as first, hushnet.connect(url, model="second") as second:
            assert right(first, plans[0]) and right(second, plans[1])
            # a new one, a changed one, a broken one
            shutil.copy(plans[0], folder / "third.hush")
            shutil.copy(plans[2], folder / "first.hush")
            (folder / "second.hush").write_bytes(plans[2].read_bytes()[:-7])
            process.send_signal(signal.SIGHUP)
            soon(log("model third was read again"))
            assert right(first, plans[0]), "a session keeps the plan that it began with"
            for name, plan in (("first", 2), ("second", 1), ("third", 0)):
                with hushnet.connect(f"{url}/{name}") as now:
                    assert right(now, plans[plan]), name
            assert log("model second stays as it was")()
            # one that is gone, one under a name that cannot be
            (folder / "third.hush").unlink()
            shutil.copy(plans[0], folder / "-wrong.hush")
            process.send_signal(signal.SIGHUP)
            soon(log("model third is no longer served"))
            assert log("model -wrong is not served")()
            assert refused(f"{url}/third").code == 8
            # nothing at all
            for plan in folder.iterdir():
                plan.unlink()
            process.send_signal(signal.SIGHUP)
            soon(log("the models that the server has stay"))
            assert right(second, plans[1])
        assert "first" not in str(refused(url)) and process.poll() is None


def test_files_have_names_of_their_own(plans: list[Path], tmp_path: Path) -> None:
    shutil.copy(plans[0], tmp_path / "net0.hush")
    with pytest.raises(hushnet.InputError, match="have one name"):
        Hosting([plans[0], tmp_path], False).files()
    assert list(Hosting([plans[0], plans[1]], False).files()) == ["net0", "net1"]
    odd = tmp_path / "of mine (2).hush"
    shutil.copy(plans[0], odd)
    assert list(Hosting([odd], False).files()) == ["model"]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(hushnet.InputError, match="no plan"):
        Hosting([empty], False).files()
    with pytest.raises(hushnet.TransportError, match="cannot be called"):
        hushnet.serve({"../net": plans[0]})


def test_a_named_file_that_is_gone_changes_nothing(plans: list[Path], tmp_path: Path) -> None:
    first, second = (Path(shutil.copy(plans[i], tmp_path / f"{name}.hush")) for i, name in enumerate(("a", "b")))
    with served(first, second) as (process, about, lines):
        first.unlink()
        shutil.copy(plans[2], second)
        process.send_signal(signal.SIGHUP)
        soon(lambda: any("model b was read again" in line for line in lines))
        for name, plan in (("a", 0), ("b", 2)):
            with hushnet.connect(f"{about['url']}/{name}") as now:
                assert right(now, plans[plan]), name
    assert any("model a stays as it was" in line for line in lines)


def test_names_are_told_where_the_operator_allows_it(folder: Path) -> None:
    with served(folder, "--list-models") as (_, about, _lines):
        error = refused(about["url"])
        assert "first, second" in str(error) and error.retry_after is None


def test_tokens_let_in_and_stay_out_of_logs(folder: Path, tmp_path: Path) -> None:
    tokens, mine, images = tmp_path / "tokens", tmp_path / "token", tmp_path / "x.npy"
    tokens.write_text(f"ann {TOKEN}\n")
    tokens.chmod(0o600)
    mine.write_text(f"{TOKEN}\n")
    np.save(images, ROWS)
    with served(folder, "--tokens", tokens, "--log-format", "json", "--log-level", "debug") as (process, about, lines):
        url = f"{about['url']}/first"
        assert refused(url).code == 9
        assert infer(url, images, "--token-file", mine).returncode == 0
        assert infer(about["url"], images, "--model", "second", HUSHNET_TOKEN=TOKEN).returncode == 0
        failed = infer(url, images, HUSHNET_TOKEN=TOKEN[::-1])
        assert failed.returncode == 1 and "--token-file" in failed.stdout and TOKEN[::-1] not in failed.stdout
        with pytest.raises(hushnet.TransportError, match="over TLS"):
            hushnet.connect("hush://192.0.2.1", token=TOKEN)
        with pytest.raises(hushnet.TransportError, match="16 to 512"):
            hushnet.connect(url, token="short")
        soon(lambda: sum("a session ends" in line for line in lines) == 2)
        # what the tables of processes show
        command = Path(f"/proc/{process.pid}/cmdline")
        assert not command.exists() or TOKEN not in command.read_text()
    records = [json.loads(line) for line in lines]
    greeted = [r for r in records if r["message"] == "a client greets"]
    assert [(r["who"], r["model"]) for r in greeted] == [("token:ann", "first"), ("token:ann", "second")]
    assert sum(r["message"] == "a client is not let in" for r in records) == 2
    assert not any(TOKEN in line or TOKEN[::-1] in line for line in lines)


def test_operators_read_metrics_where_clients_do_not(folder: Path) -> None:
    def page(url: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    with served(folder, "--admin", "0") as (_, about, _lines):
        assert about["admin"].startswith("http://127.0.0.1:")
        with hushnet.connect(f"{about['url']}/second") as connection:
            connection.infer(ROWS)
        public = f"http://127.0.0.1:{about['port']}"
        soon(lambda: 'hushnet_model_images_total{model="second"} 4' in page(f"{about['admin']}/metrics")[1])
        assert [page(public + path)[0] for path in ("/livez", "/metrics", "/v2/models/first")] == [200, 404, 404]
        told = json.loads(page(f"{about['admin']}/v2/models/first")[1])
        assert told["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, 6]}]
        assert told["outputs"] == [{"name": "y", "datatype": "FP64", "shape": [-1, 3]}]


def test_limits_of_a_peer_are_the_command_lines(folder: Path) -> None:
    with (
        served(folder, "--max-sessions-per-peer", 1, "--line", 2) as (_, about, _lines),
        hushnet.connect(f"{about['url']}/first") as one,
        hushnet.connect(f"{about['url']}/first") as other,
    ):
        one.infer(ROWS)
        with pytest.raises(hushnet.ProtocolError, match="as many sessions in work as it may") as caught:
            other.infer(ROWS)
        assert (caught.value.code, caught.value.retry_after) == (2, 2)

    def much(connection: hushnet.Connection) -> None:
        for _ in range(50):
            connection.infer(ROWS)

    with (
        served(folder, "--hourly-traffic-per-peer", 0.0001) as (_, about, _lines),
        hushnet.connect(f"{about['url']}/first") as one,
        pytest.raises(hushnet.ProtocolError, match="in an hour") as caught,
    ):
        much(one)
    assert caught.value.retry_after is not None and caught.value.retry_after > 3000


def test_a_refused_client_comes_back_when_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(client.time, "sleep", waits.append)

    def full(times: int, later: float | None) -> Callable[[], str]:
        left = iter(range(times))

        def once() -> str:
            if next(left, None) is None:
                return "answer"
            error = hushnet.ProtocolError("full")
            error.retry_after = later
            raise error

        return once

    assert client.retried(full(2, 10.0), 2) == "answer"
    assert len(waits) == 2 and all(10.0 <= wait <= 15.0 for wait in waits)
    for _ in range(50):
        client.retried(full(1, 10.0), 1)
    assert max(waits) - min(waits) > 1.0, "clients that were refused together do not come back together"
    waits.clear()
    for times, later in ((3, 10.0), (1, None)):
        with pytest.raises(hushnet.ProtocolError):
            client.retried(full(times, later), 2 if later else 5)
    assert len(waits) == 2, "no more than was asked for, and not where no time was said"


CLIENT = """
import sys, hushnet, numpy as np
url, rows = sys.argv[1:]
with hushnet.connect(url) as connection:
    print("connected", flush=True)
    for _ in range(20):
        connection.infer(np.load(rows))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process is stopped by a signal here")
@pytest.mark.parametrize("scheme", ["hush", "ws"])
def test_a_client_that_is_stopped_goes_on(plans: list[Path], tmp_path: Path, scheme: str) -> None:
    rows = tmp_path / "rows.npy"
    np.save(rows, ROWS)
    with served(plans[0]) as (_, about, _lines):
        url = f"{scheme}{about['url'][about['url'].index(':') :]}"
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, "-c", CLIENT, url, rows], **pipes) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline() == "connected\n"
            stops = 0
            while process.poll() is None:
                process.send_signal(signal.SIGSTOP)
                process.send_signal(signal.SIGCONT)
                stops += 1
                time.sleep(0.001)
            assert process.returncode == 0, process.stderr.read()
    assert stops > 20


def test_a_full_server_answers_clients_that_try_again(plans: list[Path], tmp_path: Path) -> None:
    images = tmp_path / "x.npy"
    np.save(images, ROWS)
    limits = ("--max-sessions", 1, "--line", 1, "--patience", 600)
    with served(plans[0], *limits) as (_, about, _lines):
        with hushnet.connect(about["url"]) as one:
            one.infer(ROWS)
            failed = infer(about["url"], images)
            assert failed.returncode == 1 and "try again in 1 seconds" in failed.stdout
            command = [sys.executable, "-m", "hushnet", "infer", about["url"], str(images), "--json", "--retry", "9"]
            waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert waiting.stderr is not None
            assert "Trying 9 times more, in 1." in waiting.stderr.readline()
        assert json.loads(waiting.communicate(timeout=60)[0])["outputs"] and waiting.returncode == 0
