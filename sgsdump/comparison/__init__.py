"""Pair the tensors of two dumps, measure every pair, judge."""
