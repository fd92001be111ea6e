"""The compiled kernels, all optional (numpy does the same, slower; SGSDUMP_NO_KERNEL=1 leaves them out), and the number
of threads."""

from __future__ import annotations

import importlib
import os
from types import ModuleType


def kernel(name: str, **constants: int) -> ModuleType | None:
    """The compiled module of this name; None where it was not built, was built from a source with other ``constants``
    than its caller counts on, or is switched off."""
    if os.environ.get("SGSDUMP_NO_KERNEL"):
        return None
    try:
        compiled = importlib.import_module(name)
    except ImportError:
        return None
    return compiled if all(getattr(compiled, key, None) == value for key, value in constants.items()) else None


def cores() -> int:
    """The cores this process may use; more threads than eight only wait for memory."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, available)
