"""The planner of two-party inference: from a graph to a plan of the packed engine (``docs/two-party.md``)."""

from .compile import compile_two_party

__all__ = ["compile_two_party"]
