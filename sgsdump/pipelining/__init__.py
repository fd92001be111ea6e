"""The parts of ``pipeline.py``: what to dump, what to feed, the two ways to run, and the folder that is written."""
