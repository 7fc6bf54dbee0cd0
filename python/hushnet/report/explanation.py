"""An explanation that prints as tables, in a terminal and in a notebook."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from .rendering import render

WIDTH = 120


class Explanation(dict[str, Any]):
    """What ``explain`` says, as a dict; ``print`` shows tables, and so does a notebook."""

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=WIDTH, markup=False, emoji=False)
        console.print(render(self))
        return console.file.getvalue()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        steps, batch = len(self["layers"]), self["totals"].get("batch")
        images = "1 image" if batch == 1 else f"{batch} images"
        return f"Explanation({self['name']}: {self['trust']['mode']}, {steps} steps, for {images})"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        console = Console(file=io.StringIO(), width=WIDTH, record=True, markup=False, emoji=False)
        console.print(render(self))
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
