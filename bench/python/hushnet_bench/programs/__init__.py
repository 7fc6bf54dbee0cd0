"""Programs for other interpreters: they import NumPy, one library, and each other by file name.

Hushnet is not installed there.
"""
