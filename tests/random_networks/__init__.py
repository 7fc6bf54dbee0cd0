"""Random ONNX networks through ``compile`` and ``run`` of a trust model.

``python -m tests.random_networks --trust X --count 1000``.
"""
