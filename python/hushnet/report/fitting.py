"""Tables that fit the terminal: where a table has no room for its words, one record stands after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich import table
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

# wider than any terminal
_WIDE = 1 << 16


class Table(table.Table):
    """A table of rich, turned where its longest words do not stand beside each other."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or its records."""
        # without headers the first column names what the others say
        if not self.show_header or self._needs(console, options) <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        yield from self._turned(console)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """As a table, or as records that fit any width."""
        found = super().__rich_measure__(console, options)
        return found if self._needs(console, options) <= options.max_width else Measurement(1, options.max_width)

    def _needs(self, console: Console, options: ConsoleOptions) -> int:
        """Characters that the longest words of all columns take beside each other."""
        return super().__rich_measure__(console, options.update(max_width=_WIDE)).minimum

    def _turned(self, console: Console) -> RenderResult:
        if self.title:
            yield _text(console, self.title, "table.title")
        columns = [(column.header, list(column.cells)) for column in self.columns]
        for row, style in enumerate(self.rows):
            (_, first), *rest = columns
            name = first[row]
            yield _text(console, name, "bold") if isinstance(name, str) else name
            record = table.Table(show_header=False, box=None, padding=(0, 1, 0, 0), style=style.style or "")
            record.add_column(no_wrap=True)
            record.add_column(overflow="fold")
            for header, cells in rest:
                if cells[row] != "":
                    record.add_row(Text("  ").append_text(_text(console, header, "dim")), cells[row])
            if record.rows:
                yield record
        if self.caption:
            yield _text(console, self.caption, "table.caption")


def _text(console: Console, value: object, style: str) -> Text:
    return console.render_str(value, style=style) if isinstance(value, str) else Text(str(value), style=style)


def listed(names: Iterable[str]) -> str:
    """Names in order, each once, with how often it is there."""
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in Counter(names).items())
