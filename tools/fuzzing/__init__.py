"""The parts of ``fuzz_readers.py``."""
