"""The parts of ``tuning.py``, ``advice.py`` and ``repair.py``: trying, scoring, searching and writing quant plans."""
