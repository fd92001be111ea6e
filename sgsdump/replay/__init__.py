"""Replay: recorded operators are computed again from their own recorded inputs and judged one by one."""
