"""How many threads read and measure tensors at once."""

from __future__ import annotations

import os


def cores() -> int:
    """The cores this process may use; more threads than eight only wait for memory."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, available)
