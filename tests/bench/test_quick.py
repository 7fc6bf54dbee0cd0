"""``make bench-quick``: every benchmark that the list names, a core each, and failures that are seen."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def quick(place: Path, hushnet: str) -> subprocess.CompletedProcess[str]:
    """The Makefile's recipe, with ``setup`` up to date and another program in the place of ``hushnet``."""
    shutil.copy(ROOT / "Makefile", place)
    (place / "bench").mkdir()
    shutil.copy(ROOT / "bench/quick.py", place / "bench")
    folder = place / ".venv/bin"
    folder.mkdir(parents=True)
    (folder / "hushnet").write_text(hushnet)
    (folder / "hushnet").chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    command = ["make", "-s", "-o", "setup", "bench-quick"]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("hushnet", "told"),
    [
        ("#!/bin/sh\nexit 3\n", "could not be had"),
        ("#!/bin/sh\necho []\n", "names no benchmark"),
        (
            '#!/bin/sh\ncase "$*" in *--list*) echo \'[{"name": "a"}, {"name": "b"}]\';; '
            "*a*) exit 0;; *) echo why; exit 4;; esac\n",
            "why\n== bench b --quick: 0 s, failed with status 4",
        ),
    ],
)
def test_bench_quick_fails_when_there_is_no_list_or_a_benchmark_fails(tmp_path: Path, hushnet: str, told: str) -> None:
    done = quick(tmp_path, hushnet)
    assert done.returncode != 0 and told in done.stdout + done.stderr, done


def test_bench_quick_runs_every_benchmark(tmp_path: Path) -> None:
    done = quick(
        tmp_path,
        '#!/bin/sh\ncase "$*" in *--list*) echo \'[{"name": "a"}, {"name": "b"}, {"name": "c"}]\';; '
        '*) echo "$*" >> ran;; esac\n',
    )
    assert done.returncode == 0 and all(f"== bench {name} --quick" in done.stdout for name in "abc"), done
    assert sorted((tmp_path / "ran").read_text().split("\n")) == ["", *(f"bench {n} --quick --json" for n in "abc")]


def test_the_longest_benchmarks_begin_first() -> None:
    program = runpy.run_path(str(ROOT / "bench/quick.py"))
    listed = program["names"](str(Path(sys.executable).parent / "hushnet"))
    longest = set(program["LONGEST"])
    assert set(listed[: len(longest)]) == longest and len(set(listed)) == len(listed) > len(longest)


def test_benchmarks_run_side_by_side_and_none_begins_after_a_failure(tmp_path: Path) -> None:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        pytest.skip("there is one core only")
    # Each waits for the others of its round: one after the other, the first would wait for ever. Then one fails.
    script = f"""#!{sys.executable}
import json, os, sys, time
from pathlib import Path
if "--list" in sys.argv:
    print(json.dumps([{{"name": f"b{{i}}"}} for i in range({count + 2})]))
    sys.exit()
cores = sorted(os.sched_getaffinity(0))
Path("ran-" + sys.argv[2]).write_text(repr(cores))
end = time.monotonic() + 60
while len(list(Path().glob("ran-*"))) < {count} and time.monotonic() < end:
    time.sleep(0.01)
sys.exit(time.monotonic() >= end or 5 * (len(cores) == 1))
"""
    done = quick(tmp_path, script)
    ran = {path.name: path.read_text() for path in tmp_path.glob("ran-*")}
    assert done.returncode != 0 and "failed with status 5" in done.stdout, done
    assert len(ran) == count and len(set(ran.values())) == count, ran
