"""Ascend's operator dumps, nano dumps, overflow files and statistics."""
