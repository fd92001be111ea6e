"""The sums of a torch tensor in one pass, by the compiled kernel of the hooks, for what dumps a program from within."""

from __future__ import annotations

import os
import sys
from typing import Any

# The kernel's numbers for types.
_KINDS = {"torch.float32": 0, "torch.float16": 1, "torch.bfloat16": 2}


def _loaded() -> Any:
    """None where it was not built, is not wanted, or the Python is a free-threaded one: not of its ABI."""
    if os.environ.get("SGSDUMP_NO_KERNEL") or "t" in getattr(sys, "abiflags", ""):
        return None
    try:
        from sgsdump.capture.hook import sgsdump_kernel
    except ImportError:
        return None
    return sgsdump_kernel


_kernel = _loaded()


def sums_of(tensor: Any) -> tuple[float, float, float, float] | None:
    """Least, most, sum and sum of squares of a plain tensor, all NaN where one element is; None where the kernel is not
    there, or does not read this tensor."""
    kind = _KINDS.get(str(tensor.dtype))
    if _kernel is None or kind is None or not (tensor.is_cpu and tensor.is_contiguous() and tensor.numel()):
        return None
    sums: tuple[float, float, float, float] = _kernel.statistics(tensor.data_ptr(), tensor.numel(), kind)
    return sums
