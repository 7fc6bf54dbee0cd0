"""The table: ``python -m tests.error_statement --trust two-party --rows 10000 --json``."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter

import numpy as np

from .judge import BROKEN, CRASHED, HELD, KEPT, VERDICTS, Found, judge
from .sources import KINDS, TRUST, sources


def main(arguments: list[str] | None = None) -> int:
    """Judges networks; fails when a statement is broken, or none is held."""
    parser = argparse.ArgumentParser(prog="python -m tests.error_statement", description=__doc__)
    parser.add_argument("--trust", action="append", choices=TRUST, help="trust models (default: all)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="kinds of networks (default: all)")
    parser.add_argument("--only", default="", help="networks whose names have this word")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of a network (default: 10000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="no further rows of a network after so long")
    parser.add_argument("--calibration", type=int, default=150, help="rows that plans are made from (default: 150)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found: list[Found] = []
    for source in sources(tuple(given.kind or KINDS)):
        if given.only not in source.name:
            continue
        for trust in [t for t in given.trust or TRUST if t in source.trusts]:
            # a row of large networks takes seconds
            count = min(given.calibration, 24) if source.kind == "zoo" else given.calibration
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found.append(judge(source, trust, rows=given.rows, seconds=given.seconds, calibration=count))
            told(found[-1], as_json=given.json)
    counts = Counter(row.verdict for row in found)
    if not given.json:
        rows, beyond = sum(row.rows for row in found), sum(row.beyond for row in found)
        print(
            f"{', '.join(f'{counts[v]} {v}' for v in VERDICTS)}; {beyond} of {rows} rows are beyond what is stated, "
            f"1 in {KEPT} may be."
        )
    return 1 if counts[BROKEN] or counts[CRASHED] or not counts[HELD] else 0


def told(row: Found, *, as_json: bool) -> None:
    """A row for people, or for programs."""
    if as_json:
        print(json.dumps(row.as_json()), flush=True)
        return
    head = f"{row.kind:<13} {row.name:<26} {row.trust:<16} {row.verdict:<8}"
    if row.reason:
        print(f"{head} {row.reason[:110]}", flush=True)
        return
    print(
        f"{head} {row.rows:6} rows, {row.beyond:3} beyond ({100 * row.share:.3f} %), {row.rigorous} rigorous, "
        f"worst {row.worst:.2f}, 999 of 1000 keep {row.tight:.2f}, {row.outside} outside, {row.seconds:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
