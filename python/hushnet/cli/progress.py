"""Progress on a terminal: a bar for every layer of a run, its bytes and the time left, and a clock for planning.

Nothing is written where standard error is no terminal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from hushnet.cli.common import err

if TYPE_CHECKING:
    from hushnet.report import Step

Tell = Callable[[str, int, int], None]

# bars of layers that stand on the screen at a time
SHOWN = 10
# of a run, below which the plan's own seconds tell more than the run so far
EARLY = 0.02
_BLOCK = re.compile(r"\[(\d+)/(\d+)\] (.*)", re.DOTALL)
_SET_UP = "setup"


class _Left(ProgressColumn):
    """Time left, counted down between two calls; time taken behind the end."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """The column of one bar."""
        if task.finished:
            return Text(f"{task.finished_time or 0.0:.1f} s", style="dim")
        end = task.fields.get("end")
        return Text("" if end is None else f"{clock(end - time.monotonic())} left")


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, from 0:00 up."""
    whole = max(round(seconds), 0)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def megabytes(done: float, of: float) -> str:
    """Bytes so far and in all."""
    unit, name = (1e6, "MB") if of >= 1e5 else (1e3, "kB")
    return f"{done / unit:.1f} of {of / unit:.1f} {name}" if of else ""


class Bars:
    """A callback ``(name, done, total)`` of a run that draws a bar for every step, and one for all."""

    def __init__(self, progress: Progress, steps: Sequence[Step]) -> None:
        self.progress, self.steps = progress, steps
        self.started = time.monotonic()
        self.block, self.blocks, self.place, self.name = 0, 1, -1, ""
        # the seconds of a plan without them count evenly
        self.weights = [step.seconds or 1e-9 for step in steps] or [1.0]
        self.bars: list[TaskID] = []
        self.all = progress.add_task("all layers", total=1.0, sent="", end=self.started + sum(self.weights))

    def __call__(self, name: str, done: int, total: int) -> None:
        """What the run time tells: ``done`` of ``total`` parts of a step."""
        found = _BLOCK.fullmatch(name)
        block, blocks, name = (int(found[1]) - 1, int(found[2]), found[3]) if found else (0, 1, name)
        if name == _SET_UP and self.place < 0:
            self._bar(name, 0.0)
            self._move(done / total if total else 1.0, 0.0)
            # the clock of the layers starts behind the set-up
            self.started = time.monotonic()
            return
        if block != self.block or blocks != self.blocks:
            self._end()
            self.block, self.blocks, self.place, self.name = block, blocks, -1, ""
        if name != self.name:
            self._end()
            self.place, self.name = min(self.place + 1, len(self.weights) - 1), name
            if self.place < len(self.steps) and self.steps[self.place].bytes:
                self._bar(self.steps[self.place].name, self.steps[self.place].bytes / self.blocks)
        self._tell(done / total if total else 0.0)

    def end(self) -> None:
        """The run is done: the last parts of a step are not told."""
        self._end()
        self.progress.update(self.all, completed=1.0)

    def _bar(self, name: str, size: float) -> None:
        """A new bar for a step, unless it has one; the oldest one goes where there are too many."""
        if self.bars and self.progress.tasks[-1].description == name and not self.progress.tasks[-1].finished:
            return
        self.bars.append(self.progress.add_task(name, total=1.0, sent=megabytes(0.0, size), end=None))
        if len(self.bars) > SHOWN:
            self.progress.remove_task(self.bars.pop(0))

    def _move(self, share: float, size: float, end: float | None = None) -> None:
        if self.bars:
            self.progress.update(self.bars[-1], completed=share, sent=megabytes(share * size, size), end=end)

    def _end(self) -> None:
        """The step in work is done."""
        if self.bars and not self.progress.tasks[-1].finished:
            size = self.steps[self.place].bytes / self.blocks if self.place >= 0 else 0.0
            self._move(1.0, size)

    def _tell(self, share: float) -> None:
        """How far the step in work is, and with it the run; when both will end."""
        now, whole = time.monotonic(), sum(self.weights)
        before, own = sum(self.weights[: self.place]), self.weights[self.place]
        done = (self.block + (before + share * own) / whole) / self.blocks
        # seconds of the run for one of the plan's: those so far, or the plan's
        pace = (now - self.started) / (done * whole) if done > EARLY else 1.0
        self.progress.update(
            self.all,
            completed=done,
            description=f"block {self.block + 1} of {self.blocks}" if self.blocks > 1 else "all layers",
            sent=megabytes(self._sent(share), sum(step.bytes for step in self.steps)),
            end=now + pace * (1.0 - done) * whole,
        )
        if self.place < len(self.steps) and self.steps[self.place].bytes:
            size = self.steps[self.place].bytes / self.blocks
            self._move(share, size, now + pace * (1.0 - share) * own / self.blocks)

    def _sent(self, share: float) -> float:
        """Bytes so far."""
        sizes = [step.bytes / self.blocks for step in self.steps]
        own = share * sizes[self.place] if self.place < len(sizes) else 0.0
        return self.block * sum(sizes) + sum(sizes[: self.place]) + own


@contextmanager
def layer_bars(steps: Callable[[], Sequence[Step]], *, quiet: bool, console: Console = err) -> Iterator[Tell | None]:
    """A callback of ``run`` and ``infer`` that draws a bar for every layer; None where nobody would see it.

    Args:
        steps: what the run is expected to do; asked only where bars are drawn.
        quiet: no bars.
    """
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        TextColumn("{task.fields[sent]}"),
        _Left(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bars = Bars(progress, steps())
        yield bars
        bars.end()


@contextmanager
def working(what: str, *, quiet: bool, console: Console = err) -> Iterator[None]:
    """A line that says what takes so long, with the time so far; nothing where nobody would see it."""
    if quiet or not console.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task(what, total=None)
        yield
