"""Programs for other interpreters: they import NumPy, one library, and each other by file name; hushnet is not installed there."""
