"""``python -m tests.architectures``: what `hushnet check` says of each in full size, and how long it takes."""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any

from hushnet.assess import TRUST, Assessment, assess_all

from . import ARCHITECTURES


def main() -> None:
    """Prints a row for every architecture and trust model."""
    parser = argparse.ArgumentParser(prog="python -m tests.architectures", description=__doc__)
    parser.add_argument("names", nargs="*", default=[], help="architectures (default: all)")
    parser.add_argument("--trust", action="append", choices=TRUST, help="trust models (default: all)")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--no-cuts", action="store_true", help="do not look for cuts")
    parser.add_argument("--json", action="store_true", help="print one JSON document a row")
    given = parser.parse_args()
    for name in given.names or ARCHITECTURES:
        model = ARCHITECTURES[name].small() if given.small else ARCHITECTURES[name].full()
        millions = sum(math.prod(t.dims) for t in model.graph.initializer) / 1e6
        for trust in given.trust or TRUST:
            start = time.perf_counter(), time.process_time()
            (found,) = assess_all(model, [trust], cuts=not given.no_cuts)
            times = {"seconds": time.perf_counter() - start[0], "processor_seconds": time.process_time() - start[1]}
            row = {"name": name, "millions": millions, "check": times, **found.as_json()}
            print(json.dumps(row) if given.json else text(row, found), flush=True)


def text(row: dict[str, Any], found: Assessment) -> str:
    """One row for people."""
    check = row["check"]
    head = (
        f"{row['name']:<19} {row['millions']:6.1f} M  {found.trust:<16} "
        f"{check['seconds']:6.1f} s ({check['processor_seconds']:.1f} of the processor)"
    )
    if found.compiles:
        sent = (found.bytes_up + found.bytes_down) / 1e6
        made_up = ", with calibration data" if found.made_up else ""
        return f"{head}  compiles: {found.batch} images in {found.seconds:.3g} s, {sent:.4g} MB{made_up}"
    groups = ", ".join(f"{group.op_type} x{group.count}" for group in found.groups)
    return f"{head}  in the way: {groups}; cut: {found.until or 'none'}"


main()
