"""The parts of ``comparison.py``: which tensors belong together, how they lie, what is summed, what a row says."""
