"""The parts of ``quant_level.py``: streaming figures, fitted ranges and weights, quant parameters, log files."""
