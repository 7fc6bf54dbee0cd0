"""What a plan costs before the first image.

Every command reads, hashes and checks it once, and prepares its weights once.

The counts are the run time's (``_native.tally``). Beside the file there is its public part, which the server writes and
the client, who trusts nobody, reads and checks. Python computes no digest and writes no file.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet import _native
from hushnet import plan as plan_module
from hushnet.cli.main import app
from typer.testing import CliRunner

from .networks import Net

TRUSTS = ("client-aided", "two-party", "non-interactive")
NOTHING = {"read": 0, "written": 0, "checked": 0, "prepared": 0, "digests": 0, "files": 0}


class Network:
    """A plan in a file, and images for it."""

    def __init__(self, folder: Path, trust: str):
        net = Net((1, 6, 6), seed=4)
        net.conv(1, 2, (3, 3))
        if trust == "non-interactive":
            net.op("Mul", net.last, net.last)
        else:
            net.op("Relu")
        net.op("Flatten", axis=1)
        net.op("Gemm", net.last, net.weight(3, 32), net.weight(3), transB=1)
        self.trust, self.path, self.images = trust, folder / f"{trust}.hush", folder / "x.npy"
        self.x = np.random.default_rng(1).uniform(0, 1, (2, 1, 6, 6)).astype(np.float32)
        np.save(self.images, self.x)
        hushnet.compile(net.model(), trust=trust, calibration=self.x, batch=2).save(self.path)


@pytest.fixture(scope="module", params=TRUSTS)
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Network:
    return Network(tmp_path_factory.mktemp("work"), request.param)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], dict[str, int]]]:
    """What has been done since the test began, or since the last call."""
    python = {"digests": 0, "files": 0}

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            python[name] += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(plan_module, "_digest", counted("digests", plan_module._digest))
    monkeypatch.setattr(plan_module.Plan, "to_bytes", counted("files", plan_module.Plan.to_bytes))
    last = {**_native.tally(), **python}

    def since() -> dict[str, int]:
        nonlocal last
        now = {**_native.tally(), **python}
        found = {k: now[k] - last[k] for k in now}
        last = now
        return found

    return since


def command(*arguments: object) -> None:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_explain_reads_and_checks_once(network: Network, work: Callable[[], dict[str, int]]) -> None:
    command("explain", network.path)
    assert work() == {**NOTHING, "read": 1, "checked": 1}


def test_run_reads_checks_and_prepares_once_and_its_client_checks_the_public_part(
    network: Network, work: Callable[[], dict[str, int]]
) -> None:
    command("run", network.path, network.images)
    assert work() == {**NOTHING, "read": 1 + 1, "written": 1, "checked": 1 + 1, "prepared": 1}


def test_serving_reads_checks_and_prepares_once(network: Network, work: Callable[[], dict[str, int]]) -> None:
    with hushnet.serve(hushnet.Model.load(network.path)) as handle:
        assert work() == {**NOTHING, "read": 1, "written": 1, "checked": 1, "prepared": 1}
        with hushnet.connect(f"hush://127.0.0.1:{handle.port}") as connection:
            connection.infer(network.x)
        # The client's part: it reads and checks what the server has sent.
        assert work() == {**NOTHING, "read": 1, "checked": 1}


def test_the_public_part_is_written_once_from_what_was_checked(
    network: Network, work: Callable[[], dict[str, int]]
) -> None:
    hushnet.Model.load(network.path).public_part()
    assert work() == {**NOTHING, "read": 1, "written": 1, "checked": 1}


def test_one_model_is_prepared_once_for_all_that_is_done_with_it(
    network: Network, work: Callable[[], dict[str, int]]
) -> None:
    model = hushnet.Model.load(network.path)
    first = hushnet.run(model, network.x)
    assert work() == {**NOTHING, "read": 2, "written": 1, "checked": 2, "prepared": 1}
    assert np.allclose(first.output, hushnet.run(model, network.x).output, atol=0.05)
    model.explain(first.trace)
    with hushnet.serve(model) as handle, hushnet.connect(f"hush://127.0.0.1:{handle.port}") as connection:
        connection.infer(network.x)
    assert model.native() is model.native()
    # Two clients' readings of the public part, and nothing of the plan itself.
    assert work() == {**NOTHING, "read": 2, "checked": 2}
    # Another number of threads is another pool, which the weights are prepared in.
    hushnet.run(model, network.x, threads=1)
    assert work() == {**NOTHING, "read": 1, "written": 1, "checked": 1, "prepared": 1}


def test_both_connections_give_the_same_answers_and_traces_of_the_same_form(network: Network) -> None:
    plan, inputs = hushnet.Model.load(network.path).native(), {"x": network.x}
    ways = {way: _native.run(plan, inputs, threads=1, transport=way) for way in ("pipe", "loopback")}
    stages = [s["name"] for s in json.loads(plan.json())["stages"]]
    traces = []
    for outputs, client, server in ways.values():
        traces.append(json.loads(client))
        common = {
            "plan",
            "simd",
            "threads",
            "ring_degree",
            "insecure",
            "images",
            "blocks",
            "seconds",
            "setup_seconds",
            "rounds",
            "stages",
            "predicted",
        }
        assert (
            common | {f"{phase}bytes_{way}" for phase in ("", "setup_") for way in ("up", "down")} <= traces[-1].keys()
        )
        # What the server's plan calls them, not the neutral names that a client has.
        assert [s["name"] for s in traces[-1]["stages"]][: len(stages)] == stages
        assert traces[-1]["images"] == 2 and traces[-1]["bytes_up"] > 0 and traces[-1]["bytes_down"] > 0
        assert (server is not None) == (network.trust == "two-party")
        assert server is None or json.loads(server)["party"] == "server"
        (first,), (second,) = outputs.values(), ways["pipe"][0].values()
        assert np.allclose(first, second, atol=0.05)
    for key in ("bytes_up", "bytes_down", "setup_bytes_up", "setup_bytes_down", "rounds", "blocks"):
        assert traces[0][key] == traces[1][key], key


def test_only_two_party_runs_are_slowed_down_to_a_network(network: Network) -> None:
    plan, inputs = hushnet.Model.load(network.path).native(), {"x": network.x}
    with pytest.raises(ValueError, match="not 'loopback'"):
        _native.run(plan, inputs, transport="loopback", network=(1e9, 0.0))
    if network.trust == "two-party":
        _native.run(plan, inputs, network=(1e9, 0.0))
        return
    with pytest.raises(hushnet.HushnetError, match="only a two-party run"):
        _native.run(plan, inputs, network=(1e9, 0.0))


def test_a_copy_of_a_plan_is_a_plan_of_its_own(network: Network) -> None:
    model = hushnet.Model.load(network.path)
    other = copy.deepcopy(model.plan)
    other.document["name"] = "another"
    assert other.handle() is not model.native() and other.handle().name == "another" != model.native().name
    assert other.digest != model.plan.digest
    assert hushnet.plan.Plan.parse(network.path.read_bytes()).digest == model.plan.digest


def test_weights_are_views_of_the_bytes_that_were_read(network: Network) -> None:
    model = hushnet.Model.load(network.path)
    parsed = plan_module.Plan.parse(network.path.read_bytes())
    assert model.plan.weights.keys() == parsed.weights.keys() and model.plan.weights
    for name, array in model.plan.weights.items():
        assert not array.flags.owndata and np.array_equal(array, parsed.weights[name])


def test_damaged_files_are_refused_by_the_one_reading(network: Network, tmp_path: Path) -> None:
    whole = network.path.read_bytes()
    for data, words in (
        (whole[:-1] + bytes([whole[-1] ^ 1]), "digest"),
        (whole[:-3], "truncated"),
        (b"no plan", "truncated"),
    ):
        (tmp_path / "bad.hush").write_bytes(data)
        with pytest.raises(hushnet.PlanError, match=words) as caught:
            hushnet.Model.load(tmp_path / "bad.hush")
        assert "bad.hush" in str(caught.value)
