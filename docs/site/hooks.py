"""What MkDocs asks while it builds the site: pages that stand outside of ``docs/``, and links that lead there.

- The documents of the repository's root become pages under ``project/``.
- Notebooks become pages: their text and their code, without outputs.
- A link to a source file becomes the path of that file: the site has no sources.

Pages in ``docs/`` therefore read the same in the repository and on the site.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def place(page: str) -> str:
    """Where a page of the site stands in the repository: ``project/README.md`` is ``README.md``."""
    name = page.removeprefix("project/")
    return name if page.startswith("project/") else f"docs/{page}"


def page_of(path: str) -> str | None:
    """The page of the site that shows a file of the repository; None where there is none."""
    if path in PROJECT:
        return f"project/{path}"
    inside = path.removeprefix("docs/")
    if inside == path:
        return None
    if inside.endswith(".ipynb"):
        return inside.removesuffix(".ipynb") + ".md"
    # folders, scripts and models are no pages
    return inside if inside.endswith((".md", ".svg", ".png", ".csv")) else None


def relinked(text: str, page: str) -> str:
    """A page's Markdown with links that lead to pages of the site, or to nothing but a path."""

    def link(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        name, mark, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(place(page)), name))
        other = page_of(there)
        if other is None:
            return f"{label} (`{there}`)" if there not in label else label
        return f"{picture}[{label}]({posixpath.relpath(other, posixpath.dirname(page) or '.')}{mark}{anchor})"

    # fences stay as they are
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in _FENCE.split(text))


def notebook(path: Path) -> str:
    """A notebook as Markdown: text, and code in fences."""
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        found.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(found) + "\n"


def made() -> dict[str, str]:
    """The pages that stand in no file of ``docs/``, by their place on the site."""
    pages = {f"project/{name}": (ROOT / name).read_text(encoding="utf-8") for name in PROJECT}
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = notebook(path)
    return pages


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of :func:`made`."""
    from mkdocs.structure.files import File

    for name, text in made().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of a page, as the site has them."""
    return relinked(markdown, page.file.src_uri)
