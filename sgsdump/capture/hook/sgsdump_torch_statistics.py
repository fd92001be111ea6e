"""A tensor's statistics, computed by torch where the tensor lies."""

import math
import threading

import torch
from sgsdump_torch_tensors import in_memory_order

# So many elements at a time stay in the cache as float64.
CHUNK = 1 << 18


def statistics(tensor):
    """Largest, smallest, mean and L2 norm; the last two summed in float64. None for what is no number or is empty.

    NaN is not skipped: all four are NaN then. A sum of squares beyond float64 gives an infinite norm.
    """
    if tensor.dtype is torch.bool or tensor.is_complex() or not tensor.numel():
        return None
    flat = in_memory_order(tensor.detach().resolve_neg().cpu())
    if flat.is_floating_point() and flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    least, most = torch.aminmax(flat)
    total = squares = 0.0
    for chunk in flat.split(CHUNK) if flat.numel() > CHUNK else (flat,):
        numbers = _buffer.of(chunk.numel()).copy_(chunk)
        total += numbers.sum().item()
        squares += torch.dot(numbers, numbers).item()
    return {
        "max": most.item(),
        "min": least.item(),
        "mean": total / flat.numel(),
        "l2norm": math.sqrt(squares) if squares == squares else math.nan,
    }


class Buffer(threading.local):
    """Memory for a chunk, used again and again: new memory costs more than what is computed in it."""

    numbers = None

    def of(self, size):
        if self.numbers is None:
            with torch.inference_mode(False):
                self.numbers = torch.empty(CHUNK, dtype=torch.float64, device="cpu")
        return self.numbers[:size]


_buffer = Buffer()
