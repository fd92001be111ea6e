"""Rounds (runs of the outermost module) of a program, as ``sgsdump exec`` writes them."""
