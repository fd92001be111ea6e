"""The parts of ``tools/mutate.py``: making mutants, tracing which test runs which line, trying a mutant."""
