"""Recorded operators computed again from their own recorded inputs, each judged alone."""
