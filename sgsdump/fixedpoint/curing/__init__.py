"""Cures: rewrites of the float model that lower the INT8 error; one module per cure, chosen by ``cure.py``."""
