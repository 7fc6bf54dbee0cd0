"""The command line as a user meets it: the whole way through two processes, and bad input of every kind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import hushnet
import numpy as np
import pytest
import typer
from hushnet import data, zoo
from hushnet.cli.main import app
from hushnet.cli.options import NON_INTERACTIVE, TWO_PARTY
from hushnet.reference import numpy as fixed_point


def hush(*arguments: object, check: bool = True) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "hushnet", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if check:
        assert done.returncode == 0, done.stderr + done.stdout
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    train_x, _, test_x, _ = data.digits()
    np.save(path / "calibration.npy", train_x[:64].astype(np.float32))
    np.save(path / "x.npy", test_x[:50].astype(np.float32))
    (path / "model.onnx").write_bytes(zoo.trained("cryptonets-relu").SerializeToString())
    hush("compile", path / "model.onnx", "-o", path / "model.hush", "--calibration", path / "calibration.npy")
    return path


def planned(folder: Path) -> np.ndarray:
    model = hushnet.Model.load(folder / "model.hush")
    return next(iter(fixed_point.run(model.plan, {model.input_names[0]: np.load(folder / "x.npy")}).values()))


class Server:
    def __init__(self, plan: Path, *extra: str):
        command = [sys.executable, "-m", "hushnet", "serve", str(plan), "--listen", "127.0.0.1:0", "--json", *extra]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.about = json.loads(self.process.stdout.readline())

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)


def test_check_explain_run(folder: Path) -> None:
    assert json.loads(hush("check", folder / "model.onnx", "--json").stdout)["supported"]
    explained = json.loads(hush("explain", folder / "model.hush", "--json").stdout)
    text = json.dumps(explained)
    assert "client-aided" in text and "pre-activation" in text
    hush(
        "run",
        folder / "model.hush",
        folder / "x.npy",
        "-o",
        folder / "y.npy",
        "--trace",
        folder / "trace.json",
        "--json",
    )
    np.testing.assert_array_equal(np.load(folder / "y.npy"), planned(folder))
    measured = json.loads(hush("explain", folder / "model.hush", "--trace", folder / "trace.json", "--json").stdout)
    assert measured != explained
    assert "128" in hush("explain", folder / "model.hush").stdout


def test_trace_equals_prediction_in_bytes(folder: Path) -> None:
    model = hushnet.Model.load(folder / "model.hush")
    result = hushnet.run(model, np.resize(np.load(folder / "x.npy"), (2048, 1, 28, 28)))
    for key in ("bytes_up", "bytes_down", "setup_bytes_down", "rounds"):
        assert result.trace[key] == model.plan.predicted[key], key


def test_serve_and_infer_in_two_processes(folder: Path) -> None:
    with Server(folder / "model.hush") as server:
        url = server.about["url"]
        hush("infer", url, folder / "x.npy", "-o", folder / "z.npy")
        np.testing.assert_array_equal(np.load(folder / "z.npy"), planned(folder))


def test_the_server_outlives_bad_peers(folder: Path) -> None:
    with Server(folder / "model.hush") as server:
        port = server.about["port"]
        for garbage in (b"", b"\x00" * 4096, b"GET /ws HTTP/1.1\r\n\r\n", os.urandom(10000)):
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.sendall(garbage)
        np.save(folder / "bad-shape.npy", np.zeros((3, 1, 27, 28), np.float32))
        np.save(folder / "nan.npy", np.full((3, 1, 28, 28), np.nan, np.float32))
        np.save(folder / "text.npy", np.full((3, 1, 28, 28), "a"))
        np.save(folder / "huge.npy", np.full((3, 1, 28, 28), 1e6, np.float32))
        for bad, word in (("bad-shape", "28"), ("nan", "finite"), ("text", "dtype")):
            done = hush("infer", server.about["url"], folder / f"{bad}.npy", check=False)
            assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
            assert word in done.stderr.lower(), (bad, done.stderr)
        said = json.loads(hush("infer", server.about["url"], folder / "huge.npy", "--json").stdout)
        assert said["rows_out_of_range"] == [0, 1, 2]
        hush("infer", server.about["url"], folder / "x.npy", "-o", folder / "after.npy")
        np.testing.assert_array_equal(np.load(folder / "after.npy"), planned(folder))


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text", "version"])
def test_damaged_plans(folder: Path, tmp_path: Path, damage: str) -> None:
    good = (folder / "model.hush").read_bytes()
    bad = {
        "truncate": good[: len(good) // 2],
        "flip": good[:-5] + bytes([good[-5] ^ 1]) + good[-4:],
        "empty": b"",
        "text": b"not a plan at all",
        "version": good.replace(b'"version":"2"', b'"version":"9"', 1),
    }[damage]
    assert bad != good
    (tmp_path / "bad.hush").write_bytes(bad)
    for command in (["explain"], ["run", folder / "x.npy"], ["serve"]):
        done = hush(command[0], tmp_path / "bad.hush", *command[1:], check=False)
        assert done.returncode == 1 and "PlanError" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_errors_are_one_line_and_name_the_remedy(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    for arguments in (
        ["compile", tmp_path / "bad.onnx", "-o", tmp_path / "o.hush"],
        ["compile", tmp_path / "absent.onnx", "-o", tmp_path / "o.hush"],
        ["compile", folder / "model.onnx", "-o", tmp_path / "o.hush", "--trust", "none"],
        ["run", folder / "model.hush", tmp_path / "absent.npy"],
        ["infer", "ws://127.0.0.1:1/ws", folder / "x.npy"],
        ["infer", "http://example", folder / "x.npy"],
        ["serve", folder / "model.hush", "--listen", "nowhere"],
        ["bench", "no-such-bench"],
        ["zoo", "no-such-net"],
        ["zoo", "open-nsfw"],
        ["zoo", "get"],
        ["zoo", "get", "no-such-net"],
        ["demo", "no-such-demo"],
    ):
        done = hush(*arguments, check=False)
        assert done.returncode != 0 and "Traceback" not in done.stderr, (arguments, done.stderr)
        assert done.stderr.strip(), arguments


def test_a_command_starts_without_the_planner() -> None:
    program = "import sys, hushnet.cli.main; print(*(m for m in sys.modules if m.startswith('hushnet.planner')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_bench_and_zoo_are_listed() -> None:
    assert {b["name"] for b in json.loads(hush("bench", "--list", "--json").stdout)} >= {
        "cryptonets-relu",
        "mobilenetv2",
    }
    assert {"resnet50-224", "open-nsfw", "minilm"} <= set(json.loads(hush("zoo", "--json").stdout))


def test_benchmarks_that_are_not_installed_are_a_sentence_with_the_remedy(tmp_path: Path) -> None:
    # A module of None in sys.modules is one that cannot be found.
    program = "import sys; sys.modules['hushnet_bench'] = None; from hushnet.cli import main; sys.exit(main())"
    for arguments in (["--list"], ["--list", "--json"], ["mobilenetv2", "--quick"]):
        done = subprocess.run(
            [sys.executable, "-c", program, "bench", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
        said = " ".join((done.stdout if "--json" in arguments else done.stderr).split())
        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert "pip install ./bench" in said and "make setup" in said, done


def test_the_former_name_of_a_command_is_refused_with_the_new_one(tmp_path: Path) -> None:
    for arguments in ([], ["-o", tmp_path / "costs.json"], ["--seconds", "0.1", "--json"]):
        done = hush("calibrate", *arguments, check=False)
        assert done.returncode == 1 and "`hushnet measure-machine`" in " ".join((done.stdout + done.stderr).split()), (
            done
        )
    with pytest.raises(AttributeError, match="measure_machine"):
        hushnet.calibrate  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'unheard'"):
        hushnet.unheard  # noqa: B018
    assert "calibrate" not in hush("--help").stdout


def test_options_that_one_trust_model_has_stand_in_its_panel_and_the_others_do_not() -> None:
    command = typer.main.get_command(app)
    panels = {
        name: {p.name: p.rich_help_panel for p in c.params if isinstance(p, typer.core.TyperOption)}
        for name, c in command.commands.items()
    }
    assert {k for k, v in panels["compile"].items() if v == TWO_PARTY} == {
        "reveal",
        "network",
        "method",
        "nonlinear",
        "queries",
        "sums",
    }
    assert {k for k, v in panels["compile"].items() if v == NON_INTERACTIVE} == {
        "activation",
        "bootstrap",
        "hide_weights",
    }
    assert {k for k, v in panels["infer"].items() if v} == {
        "setups",
        "setups_quota",
        "setups_days",
        "plan_digest",
        "prepared",
        "keys",
    }
    assert {k for k, v in panels["serve"].items() if v} == {
        "trace",
        "weight_memory",
        "store",
        "store_days",
        "keys",
        "keys_quota",
        "keys_days",
        "prepared",
        "prepared_quota",
        "prepared_client_quota",
        "prepared_days",
    }
    for name, options in panels.items():
        help_ = [p.help or "" for p in command.commands[name].params if isinstance(p, typer.core.TyperOption)]
        # The panel says whose an option is, its text does not say it again.
        assert not [h for h in help_ if h.startswith(("Two-party:", "Non-interactive:"))], (name, options)


def test_the_version_is_the_packages() -> None:
    assert hush("--version").stdout == f"hushnet {version('hushnet')}\n"


def test_a_range_for_every_feature_comes_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process: ``[2, features]`` of least and largest values; anything else is a sentence."""
    from hushnet import frontend
    from hushnet.cli.main import main
    from sklearn.datasets import load_wine
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = load_wine(return_X_y=True)
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    (tmp_path / "m.onnx").write_bytes(frontend.sklearn_model(fitted).SerializeToString())
    for name, array in (("ranges", np.stack([x.min(0), x.max(0)])), ("rows", x[:5])):
        np.save(tmp_path / f"{name}.npy", array)

    def compiled(*more: str) -> int:
        words = ["hushnet", "compile", f"{tmp_path}/m.onnx", "-o", f"{tmp_path}/m.hush", *more]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    assert compiled("--feature-ranges", str(tmp_path / "ranges.npy")) == 0
    plan = hushnet.Model.load(tmp_path / "m.hush")
    assert plan.plan.document["inputs"][0]["range"] == [x.min(), x.max()]
    assert (hushnet.run(plan, x).label == fitted.predict(x)).all()
    capsys.readouterr()
    assert compiled("--feature-ranges", str(tmp_path / "rows.npy")) == 1
    assert "Give numbers of shape [2, features]" in capsys.readouterr().err
    assert compiled("--feature-ranges", str(tmp_path / "ranges.npy"), "--input-range", "0", "1") == 1
    assert "Give one of them" in capsys.readouterr().err
