"""The command line: one file per group of commands, typed errors as one line and a non-zero exit code."""

from hushnet.cli.main import main

__all__ = ["main"]
