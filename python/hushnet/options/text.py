"""Texts on options: for ``help``, for the command line, and the tables of ``docs/options.md``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from .made import takers
from .option import Field, table
from .trust import KINDS


def groups() -> dict[str, dict[str, list[Field]]]:
    """Fields by the trust models that have them, then by name: one field where trust models say the same of it."""
    names = dict.fromkeys(name for kind in KINDS.values() for name in table(kind))
    found: dict[str, dict[str, list[Field]]] = {}
    for name in names:
        whose = takers(name)
        title = "all" if len(whose) == len(KINDS) else " and ".join(whose)
        found.setdefault(title, {})[name] = [table(KINDS[trust])[name] for trust in whose]
    return found


def merged(name: str, text: Callable[[Field], str]) -> str:
    """A text on an option: once where the trust models that have it agree, else by trust model."""
    said = {trust: text(table(KINDS[trust])[name]) for trust in takers(name)}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    by_text: dict[str, list[str]] = {}
    for trust, one in said.items():
        by_text.setdefault(one, []).append(trust)
    return "; ".join(f"{' and '.join(trusts)}: {one}" for one, trusts in by_text.items())


def _range(entry: Field) -> str:
    """Values, unit and range of an option in words."""
    values = [*entry.values, *entry.option.choices]
    if entry.kinds == (bool,):
        return "True or False"
    if not entry.numbers:
        return ", ".join(map(repr, values))
    said = entry.option.wanted(values, entry.numbers).removeprefix("give ")
    return said.removeprefix("a ")


def _told(name: str) -> tuple[str, str, str]:
    """What an option does, its values and its default, over all trust models that have it."""
    return merged(name, lambda f: f.option.about), merged(name, _range), merged(name, lambda f: f.default_said)


def help_text() -> str:
    """All options by trust model, as text."""
    lines = []
    for title, entries in groups().items():
        lines.append("    Options of every trust model:" if title == "all" else f"    Options of {title} plans:")
        for name in entries:
            about, values, default = _told(name)
            values = f"{values[:1].upper()}{values[1:]}. " if values else ""
            lines += textwrap.wrap(
                f"{name}: {about} {values}Default: {default}.", 112, initial_indent=" " * 8, subsequent_indent=" " * 12
            )
        lines.append("")
    return "\n".join(lines)


def document() -> str:
    """The tables of docs/options.md."""
    lines = []
    for title, entries in groups().items():
        lines += [
            "## Every trust model" if title == "all" else f"## {title.capitalize()} plans",
            "",
            "| option | command line | what it does | values | default |",
            "|---|---|---|---|---|",
        ]
        for name, found in entries.items():
            about, values, default = _told(name)
            option = found[0].option
            flag = f"`{option.flag}`" + (f" ({option.there[0]})" if option.there else "") if option.flag else ""
            lines.append(f"| `{name}` | {flag} | {about} | {values} | {default} |")
        lines.append("")
    return "\n".join(lines)
