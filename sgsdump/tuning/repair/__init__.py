"""Convolutions raised to INT16 in rounds, each made, dumped and compared."""
