"""What this repository claims of its own structure, checked by reading it: ``python -m tests.gates``.

Every gate is a module with ``problems(root)``, which returns one sentence for everything that does not hold. A gate
whose subject is missing (a crate, a file or a type that its table names) has failed. ``tests/test_gates.py`` and
``tests/test_gates_of_files.py`` plant violations in copies of the tree.
"""
