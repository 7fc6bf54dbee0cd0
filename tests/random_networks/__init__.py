"""Random ONNX networks through ``compile`` and ``run``: ``python -m tests.random_networks --trust two-party``."""
