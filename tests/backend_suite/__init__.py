"""ONNX's backend suite through ``compile`` and ``run``: every case is passed, refused with advice, wrong or crashed.

``python -m tests.backend_suite --trust client-aided --json`` judges all cases; ``tests/frontend/test_backend_suite.py``
a sample of them.
"""
