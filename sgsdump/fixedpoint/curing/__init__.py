"""The float model rewritten so that 8 bits lose less: one file per cure, ``cure.py`` chooses among them."""
