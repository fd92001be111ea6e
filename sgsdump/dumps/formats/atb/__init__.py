"""Tensor files and trees of ATB (Ascend Transformer Boost), as written by msit and msprobe."""
