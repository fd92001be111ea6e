"""Readers of dumps of MindSpore."""
