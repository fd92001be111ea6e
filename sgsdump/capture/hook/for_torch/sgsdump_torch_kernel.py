"""The compiled kernel, which the program's own Python loads: ``kernel``; None where torch has to do its work."""

import ctypes
import os
import sys

import torch

INTERFACE = 2  # that of sgsdump_kernel.c

# So many elements are worth the threads.
MANY = 1 << 16


def statistics(address, count, kind):
    """(least, most, sum, sum of squares); of many elements by the threads that torch computes with."""
    if count < MANY or not _parallel:
        return kernel.statistics(address, count, kind)
    return kernel.statistics(address, count, kind, _parallel, torch.get_num_threads())


def _loaded():
    """None where it was not built, is not wanted, or the program's Python is a free-threaded one: not of its ABI."""
    if os.environ.get("SGSDUMP_NO_KERNEL") or "t" in getattr(sys, "abiflags", ""):
        return None
    try:
        import sgsdump_kernel
    except ImportError:
        return None
    return sgsdump_kernel if getattr(sgsdump_kernel, "INTERFACE", 1) == INTERFACE else None


def _threads_of_torch():
    """The address of the function that hands work to torch's own threads, where they are GNU OpenMP's; else 0."""
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        return ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _alone():
    """A process that was forked has none of these threads, and would wait for them."""
    global _parallel
    _parallel = 0


kernel = _loaded()
_parallel = 0 if kernel is None else _threads_of_torch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alone)
