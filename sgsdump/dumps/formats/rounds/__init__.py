"""The rounds of a program, as ``sgsdump exec`` writes them."""
