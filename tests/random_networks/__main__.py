"""The table of random networks: ``python -m tests.random_networks --trust two-party --count 1000 --seed 1 --json``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

from tests.backend_suite.workers import judge_all

from .judge import CRASHED, REFUSED, RIGHT, VERDICTS, WRONG, Drawn, Verdict, judge, no_result

SECONDS = 120.0
# share of networks of which a row may be off by more than max_error
BEYOND = 0.01


def main() -> int:
    """Judges networks of a seed; fails when one is wrong or crashed, or too many are off by more than max_error."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_networks", description=__doc__)
    parser.add_argument("--trust", required=True, choices=("client-aided", "two-party", "non-interactive"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="index of the first network")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of one network")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = [Drawn(options.seed, options.first + index) for index in range(options.count)]
    started = time.monotonic()

    def progress(done: int, verdict: Verdict) -> None:
        if done % 100 == 0 or verdict.verdict in (WRONG, CRASHED):
            seconds = time.monotonic() - started
            text = f"{done}/{len(found)} {verdict.name} {verdict.verdict} {seconds:.0f} s {verdict.reason[:300]}"
            print(text, file=sys.stderr, flush=True)

    verdicts = judge_all(
        found,
        options.trust,
        processes=options.processes,
        seconds=options.seconds,
        progress=progress,
        judge_one=judge,
        failed=no_result,
    )
    counts = Counter(v.verdict for v in verdicts)
    beyond, coarse, jumped = (sum(getattr(v, what) for v in verdicts) for what in ("beyond", "coarse", "jumped"))
    seconds = round(time.monotonic() - started, 1)
    if options.json:
        document = {"trust": options.trust, "seed": options.seed, "networks": len(verdicts), "seconds": seconds}
        document |= {v: counts[v] for v in VERDICTS}
        document |= {"coarse": coarse, "beyond": beyond, "jumped": jumped}
        print(json.dumps(document | {"verdicts": [v.as_json() for v in verdicts]}, indent=1))
    else:
        told = f"{coarse} coarse, {beyond} beyond, {jumped} jumped"
        print(f"{options.trust}, seed {options.seed}: {dict(counts)}, {told}, {seconds} s")
        for v in verdicts:
            if v.verdict in (WRONG, CRASHED):
                print(f"{v.verdict}: {v.name} ({', '.join(v.operators)}): {v.reason}")
        reasons = Counter(", ".join(v.refused) or v.reason[:80] for v in verdicts if v.verdict == REFUSED)
        print("\n".join(f"refused {count:4}: {reason}" for reason, count in reasons.most_common()))
    failed = counts[WRONG] or counts[CRASHED] or not counts[RIGHT] or beyond > BEYOND * counts[RIGHT] + 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
