"""``bench seal-openfhe``: ours alone on one small case, its rows, picture and refusals."""

from __future__ import annotations

from pathlib import Path

import hushnet
import hushnet_bench as bench
import pytest
from hushnet_bench import seal_openfhe


def test_quick_run_and_picture(tmp_path: Path) -> None:
    result = bench.run("seal-openfhe", quick=True, cases=["mnist-square", "primitives"], peers=[])
    mine, *primitives = result["rows"]
    assert mine["method"] == "hushnet packed" and mine["agreement"] == mine["accuracy"] == 1.0
    assert 0 < mine["max_error"] <= mine["predicted_error"]
    assert mine["peak_memory_bytes"] < 2 << 30 and mine["key_bytes"] <= 150 << 20
    assert mine["max_error"] <= mine["expected_error"] <= mine["predicted_error"]
    assert mine["security_bits"] == 128 and not {"keys, bytes", "peak memory, bytes", "security bits"} & set(
        mine["bars_missed"].split(", ")
    )
    assert mine["bars"]["keys, bytes"] == {"have": mine["key_bytes"], "at_most": 150_000_000}
    assert mine["memory"] and max(b for _, b in mine["memory"]) <= 1.1 * mine["peak_memory_bytes"]
    assert mine["ratio"] == mine["published"] / mine["seconds"]
    assert {r["case"].split(":")[1].split(",")[0].strip() for r in primitives} >= {
        "add",
        "multiply",
        "rotate",
        "rescale",
        "relinearise",
    }
    assert all(r["hushnet us"] > 0 for r in primitives)
    bench.plot(result, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes()[:4] == b"\x89PNG"
    bench.render(result)


def test_what_there_is_not_is_refused() -> None:
    for options in ({"cases": ["mnist-cube"]}, {"peers": ["helib"]}):
        with pytest.raises(hushnet.InputError, match="no case or peer .*: cases are mnist-square"):
            bench.run("seal-openfhe", quick=True, **options)


def test_a_missed_bar_is_named() -> None:
    """Each quantity alone beyond its bar."""
    bars = seal_openfhe.Bars(1.0, 100, key_bytes=10)
    good = {
        "seconds": 1.0,
        "peak_memory_bytes": 100,
        "key_bytes": 10,
        "max_error": 0.1,
        "predicted_error": 0.2,
        "security_bits": 128,
        "agreement": 1.0,
    }
    faster = {"SEAL, channel-wise": 10.0, "OpenFHE FIXEDMANUAL": 20.0}
    assert seal_openfhe.against_bars(bars, good, faster)["bars_missed"] == ""
    assert "times faster than SEAL, channel-wise" not in seal_openfhe.against_bars(bars, good, {})["bars"]
    worse = {
        "seconds": 1.1,
        "peak_memory_bytes": 101,
        "key_bytes": 11,
        "max_error": 0.3,
        "security_bits": 127,
        "agreement": 0.99,
    }
    missed = {k: seal_openfhe.against_bars(bars, good | {k: v}, faster)["bars_missed"] for k, v in worse.items()}
    assert len(set(missed.values())) == len(worse) and all(missed.values())
    assert "SEAL" in seal_openfhe.against_bars(bars, good, faster | {"SEAL, channel-wise": 9.9})["bars_missed"]
    assert "OpenFHE" in seal_openfhe.against_bars(bars, good, faster | {"OpenFHE FIXEDMANUAL": 19.9})["bars_missed"]


def test_published_figures_are_the_papers() -> None:
    assert {n: (c.seal, c.openfhe) for n, c in seal_openfhe.CASES.items()} == {
        "mnist-square": (11.15, 23.07),
        "mnist-swish-rg5-deg2": (11.08, 22.91),
        "mnist-swish-rg7-deg4": (15.01, 29.40),
        "cifar10-square": (201.1, 374.76),
        "cifar10-swish-rg5-deg2": (200.2, 374.37),
        "cifar10-swish-rg7-deg4": (249.5, 477.46),
    }
