"""Readers of dumps of RKNN-Toolkit2."""
