"""A tensor's statistics: in one pass by the compiled kernel, where it is there and knows the type, else by torch."""

import math
import threading

import sgsdump_torch_kernel
import torch
from sgsdump_torch_tensors import fills_its_memory, in_memory_order

# The kernel's numbers for types.
KINDS = {} if sgsdump_torch_kernel.kernel is None else {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}

UNSIGNED = [getattr(torch, name) for name in ("uint16", "uint32") if hasattr(torch, name)]

# So many elements at a time stay in the cache as float64.
CHUNK = 1 << 18


def statistics(tensor):
    """Largest, smallest, mean and L2 norm; the last two summed in float64. None for what is no number or is empty.

    NaN is not skipped: all four are NaN then. A sum of squares beyond float64 gives an infinite norm.
    """
    size = tensor.numel()
    if not size or tensor.dtype is torch.bool or tensor.is_complex():
        return None
    kind = KINDS.get(tensor.dtype)
    if not tensor.is_cpu or tensor.is_neg() or not fills_its_memory(tensor):
        tensor = in_memory_order(tensor.detach().resolve_neg().cpu())
    if kind is None:
        return _of(_by_torch(in_memory_order(tensor)), size)
    return _of(sgsdump_torch_kernel.statistics(tensor.data_ptr(), size, kind), size)


def _of(figures, size):
    least, most, total, squares = figures
    return most, least, total / size, math.sqrt(squares) if squares == squares else math.nan


def quick(tensor):
    """Whether statistics take no longer than a checksum."""
    return tensor.dtype in KINDS and tensor.is_cpu


def _by_torch(flat):
    """Least, most, sum and sum of squares."""
    if flat.is_floating_point() and flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    if flat.dtype in UNSIGNED:  # torch computes nothing with them
        flat = flat.long()
    least, most = torch.aminmax(flat)
    total = squares = 0.0
    for chunk in flat.split(CHUNK) if flat.numel() > CHUNK else (flat,):
        numbers = _buffer.of(chunk.numel()).copy_(chunk)
        total += numbers.sum().item()
        squares += torch.dot(numbers, numbers).item()
    return least.item(), most.item(), total, squares


class Buffer(threading.local):
    """Memory for a chunk, used again and again: new memory costs more than what is computed in it."""

    numbers = None

    def of(self, size):
        if self.numbers is None:
            with torch.inference_mode(False):
                self.numbers = torch.empty(CHUNK, dtype=torch.float64, device="cpu")
        return self.numbers[:size]


_buffer = Buffer()
