"""``python -m hushnet.options docs/options.md`` writes the tables of that page again, behind its first lines."""

import sys
from pathlib import Path

from hushnet.options import document


def main(page: Path) -> None:
    """Replaces everything from the first table's heading on."""
    head = page.read_text(encoding="utf-8").partition("## Every trust model")[0]
    page.write_text(head + document(), encoding="utf-8")


main(Path(sys.argv[1]))
