"""Reads plan files and checks them: the run time's own check is the only one."""

from __future__ import annotations

import os
import re

from .. import _native
from ..errors import PlanError
from ..plan import Plan

# what the run time says of a plan with a number above its limits; who reads a stranger's plan may raise them, and who
# compiles one may not
_ABOVE = re.compile(r"([^:]+) is (\d+), above the limit of (\d+); raise the limit")


def read(data: bytes, *, allow_insecure: bool = False) -> Plan:
    """Reads and checks a plan file's bytes.

    Raises:
        PlanError: as :meth:`Plan.parse` and :func:`validate`, or below 128 bits without ``allow_insecure``.
    """
    plan = Plan.parse(data)
    _native.check_plan(data, allow_insecure=allow_insecure)
    return plan


def load(path: str | os.PathLike[str], *, allow_insecure: bool = False) -> Plan:
    """Reads and checks a plan file.

    Raises:
        PlanError: as :func:`read`. OSError: the file cannot be read.
    """
    return Plan.load(path, allow_insecure=allow_insecure)


def validate(plan: Plan) -> None:
    """Checks everything that a run relies on: structure, shapes, ranges, parameters, tiles, weights.

    Plans that are marked insecure are checked for correctness only; :func:`load` refuses them unless allowed.

    Raises:
        PlanError: the first thing that does not hold, with its stage or tensor.
    """
    try:
        _native.check_plan(plan.to_bytes(), allow_insecure=True)
    except PlanError as error:
        if found := _ABOVE.search(str(error)):
            raise PlanError(
                f"The plan of this network is too large for any party: {found[1].strip()} is {int(found[2]):,}, and at "
                f"most {int(found[3]):,} are read. Layers on many windows, heads or channels of a large image make it "
                "so: take smaller images or a smaller network, end it earlier (until), or choose another trust model."
            ) from error
        raise
