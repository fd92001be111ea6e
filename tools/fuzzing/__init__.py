"""The parts of ``fuzz_readers.py`` and ``fuzz_inputs.py``."""
