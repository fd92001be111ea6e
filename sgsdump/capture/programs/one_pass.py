"""Sums of a torch tensor in one pass, by the hooks' compiled kernel, for dumps from within a program."""

from __future__ import annotations

import sys
from typing import Any

from sgsdump.tensors.one_pass.compiled import kernel

# The kernel's type numbers.
_KINDS = {"torch.float32": 0, "torch.float16": 1, "torch.bfloat16": 2}
# A free-threaded Python has another ABI than the one that the kernel may have been built for.
_FREE_THREADED = "t" in getattr(sys, "abiflags", "")
_kernel = None if _FREE_THREADED else kernel("sgsdump.capture.programs.hook.sgsdump_kernel")


def sums_of(tensor: Any) -> tuple[float, float, float, float] | None:
    """Return minimum, maximum, sum and sum of squares of a plain tensor; all NaN if one element is NaN.

    None without the kernel, or for a tensor that the kernel cannot read.
    """
    kind = _KINDS.get(str(tensor.dtype))
    if _kernel is None or kind is None or not (tensor.is_cpu and tensor.is_contiguous() and tensor.numel()):
        return None
    sums: tuple[float, float, float, float] = _kernel.statistics(tensor.data_ptr(), tensor.numel(), kind)
    return sums
