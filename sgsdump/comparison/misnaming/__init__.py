"""Pairs of one name that hold different tensors: which other tensor each really agrees with."""
