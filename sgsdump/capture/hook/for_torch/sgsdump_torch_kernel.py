"""The compiled kernel, which the program's own Python loads: ``kernel``; None where torch has to do its work."""

import os
import sys


def _loaded():
    """None where it was not built, is not wanted, or the program's Python is a free-threaded one: not of its ABI."""
    if os.environ.get("SGSDUMP_NO_KERNEL") or "t" in getattr(sys, "abiflags", ""):
        return None
    try:
        import sgsdump_kernel
    except ImportError:
        return None
    return sgsdump_kernel if hasattr(sgsdump_kernel, "checksum") else None


kernel = _loaded()
