"""``python -m hushnet``."""

from hushnet.cli import main

main()
