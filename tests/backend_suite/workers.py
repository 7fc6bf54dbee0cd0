"""Cases in processes of their own, so that one that dies or does not end is a finding and not the end of the run."""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from .judge import CRASHED, Verdict, judge

CASE_SECONDS = 300.0


class _Worker:
    def __init__(self, found: Sequence[Any], trust: str, judge_one: Callable[[Any, str], Any]):
        context = mp.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(found, trust, theirs, judge_one), daemon=True)
        self.process.start()
        theirs.close()
        self.index: int | None = None
        self.since = 0.0

    def give(self, index: int) -> None:
        self.index, self.since = index, time.monotonic()
        self.pipe.send(index)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(found: Sequence[Any], trust: str, pipe: Connection, judge_one: Callable[[Any, str], Any]) -> None:
    while True:
        try:
            index = pipe.recv()
        except EOFError:
            return
        pipe.send(judge_one(found[index], trust))


def no_result(case: Any, reason: str) -> Verdict:
    """The verdict of a case whose process died, or did not end."""
    return Verdict(case.name, case.kind, CRASHED, reason=reason)


def judge_all(
    found: Sequence[Any],
    trust: str,
    *,
    processes: int = 2,
    seconds: float = CASE_SECONDS,
    progress: Callable[[int, Any], Any] | None = None,
    judge_one: Callable[[Any, str], Any] | None = None,
    failed: Callable[[Any, str], Any] = no_result,
) -> list[Any]:
    """The verdicts of all cases, in their order, by the suite's own judge or another; ``failed``: of those without."""
    judge_one = judge_one or judge
    waiting = list(range(len(found)))[::-1]
    verdicts: dict[int, Any] = {}
    workers = [_Worker(found, trust, judge_one) for _ in range(min(processes, len(found)))]

    def keep(index: int, verdict: Any) -> None:
        verdicts[index] = verdict
        if progress:
            progress(len(verdicts), verdict)

    while len(verdicts) < len(found):
        for place, worker in enumerate(workers):
            if worker.index is None:
                if waiting:
                    worker.give(waiting.pop())
                continue
            case = found[worker.index]
            try:
                if worker.pipe.poll(0.02):
                    keep(worker.index, worker.pipe.recv())
                    worker.index = None
                    if waiting:
                        worker.give(waiting.pop())
                    continue
                late = time.monotonic() - worker.since > seconds
                reason = f"no result within {seconds:.0f} s" if late else ""
            except (EOFError, OSError):
                late, reason = True, f"the process ended (exit code {worker.process.exitcode})"
            if late:
                keep(worker.index, failed(case, reason))
                worker.end()
                workers[place] = _Worker(found, trust, judge_one)
    for worker in workers:
        worker.end()
    return [verdicts[i] for i in range(len(found))]
