"""Operator dumps, nano dumps, overflow files and statistics of Ascend devices."""
