"""Plans in which nobody but the server computes: polynomial activations, evaluated under encryption."""

from .activation import Activation, Replacement, parse, replace_activations
from .network import Network, Run
from .steps import Add, Linear, Polynomial, Tensor

__all__ = [
    "Activation",
    "Add",
    "Linear",
    "Network",
    "Polynomial",
    "Replacement",
    "Run",
    "Tensor",
    "parse",
    "replace_activations",
]
