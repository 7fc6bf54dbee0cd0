"""Reads plan files and checks them: the run time's own check is the only one."""

from __future__ import annotations

import os

from .. import _native
from ..plan import Plan


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
    _native.check_plan(plan.to_bytes(), allow_insecure=True)
