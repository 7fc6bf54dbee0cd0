"""The error statement held on every network of the tests and the zoo: 999 rows of 1000 keep to ``max_error``.

``python -m tests.error_statement`` runs each network of the tests' builders, of ``hushnet zoo`` and the trained ones
that come with the package: calibrated on some rows, run on 10,000 others (fewer where a row is costly). Planned runs
are the encrypted ones, bit by bit, so none is encrypted. Of two-party plans units of masking and truncation are drawn
as in a run. Noise of non-interactive ones is not in their planned runs; ``max_error`` counts 7.6 of its deviations.
"""
