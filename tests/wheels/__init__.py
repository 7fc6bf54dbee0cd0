"""Checks of the wheels that `make wheels` builds; ``python -m tests.wheels`` runs them."""
