"""The table of ONNX's backend suite: ``python -m tests.backend_suite --trust client-aided --json``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from .cases import QUICK, cases
from .judge import CRASHED, PASSED, REFUSED, VERDICTS, WRONG, Verdict, fits_between, judge, judge_between
from .listed import unexplained, unused
from .workers import CASE_SECONDS, judge_all

LISTING = "tests/backend_suite/listed.py"
MINIMUMS = Path(__file__).with_name("minimums.json")


def table(verdicts: list[Verdict]) -> str:
    """Counts by kind, and every case that is wrong or crashed."""
    lines = [f"{'':20}" + "".join(f"{v:>10}" for v in VERDICTS) + f"{'all':>10}"]
    for kind in [*dict.fromkeys(v.kind for v in verdicts), "all"]:
        counts = Counter(v.verdict for v in verdicts if kind in (v.kind, "all"))
        lines.append(f"{kind:20}" + "".join(f"{counts[v]:10}" for v in VERDICTS) + f"{sum(counts.values()):10}")
    lines += [
        f"{v.verdict}: {v.name} ({', '.join(v.operators)}): {v.reason}"
        for v in verdicts
        if v.verdict in (WRONG, CRASHED)
    ]
    return "\n".join(lines)


def below(verdicts: list[Verdict], least: dict[str, int]) -> list[str]:
    """Kinds of which fewer cases passed than before."""
    kinds = {v.kind for v in verdicts}
    passed = Counter(v.kind for v in verdicts if v.verdict == PASSED)
    return [
        f"{kind}: {passed[kind]} passed, {count} at least before"
        for kind, count in least.items()
        if kind in kinds and passed[kind] < count
    ]


def refusals(verdicts: list[Verdict]) -> str:
    """Refused cases by operators, most first."""
    counts = Counter(", ".join(v.operators[:4]) for v in verdicts if v.verdict == REFUSED)
    return "\n".join(f"{count:6}  {name}" for name, count in counts.most_common())


def main() -> int:
    """Runs the suite.

    The exit code is 1 where a case is wrong or crashed, or fewer passed than :data:`MINIMUMS` has.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.backend_suite", description=__doc__)
    parser.add_argument("--trust", default="client-aided", choices=["client-aided", "two-party", "non-interactive"])
    parser.add_argument(
        "--kinds", default=",".join(QUICK), help="comma-separated; light: whole image networks, hours of work"
    )
    parser.add_argument("--match", default="", help="only cases whose name holds this")
    parser.add_argument("--every", type=int, default=1, help="only every n-th case")
    parser.add_argument("--first", type=int, default=0, help="the first of these; with --every a shard of the suite")
    parser.add_argument("--between", action="store_true", help="every case between two layers of the server's")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=CASE_SECONDS, help="limit of one case")
    parser.add_argument("--refused", action="store_true", help="count the refused cases by operator")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [c for c in cases(tuple(options.kinds.split(","))) if options.match in c.name]
    found = found[options.first :: options.every]
    if options.between:
        found = [case for case in found if fits_between(case)]
    started = time.monotonic()

    def progress(done: int, verdict: Verdict) -> None:
        if done % 50 == 0 or verdict.verdict in (WRONG, CRASHED):
            print(
                f"{done}/{len(found)} {verdict.name} {verdict.verdict} {time.monotonic() - started:.0f} s "
                f"{verdict.reason[:300]}",
                file=sys.stderr,
                flush=True,
            )

    verdicts = judge_all(
        found,
        options.trust,
        processes=options.processes,
        seconds=options.seconds,
        progress=progress,
        judge_one=judge_between if options.between else judge,
    )
    counts = Counter(v.verdict for v in verdicts)
    everything = not options.match and options.every == 1 and not options.first
    least = json.loads(MINIMUMS.read_text()).get(options.trust + (" between" if options.between else ""), {})
    short = below(verdicts, least) if everything else []
    if options.trust == "client-aided" and not options.between:
        short += [
            f"{v.name}: refused, and {LISTING} does not name it ({v.reason[:200]})" for v in unexplained(verdicts)
        ]
        complete = everything and set(options.kinds.split(",")) >= set(QUICK)
        short += [f"{pattern}: {LISTING} names it, and all its cases pass" for pattern in unused(verdicts) if complete]
    if options.json:
        document = {"trust": options.trust, "cases": len(verdicts), "seconds": round(time.monotonic() - started, 1)}
        print(
            json.dumps(
                document
                | {v: counts[v] for v in VERDICTS}
                | {"below": short, "verdicts": [v.as_json() for v in verdicts]},
                indent=1,
            )
        )
    else:
        print("\n".join([table(verdicts), *short]))
        if options.refused:
            print(refusals(verdicts))
    return 1 if counts[WRONG] or counts[CRASHED] or not counts[PASSED] or short else 0


if __name__ == "__main__":
    sys.exit(main())
