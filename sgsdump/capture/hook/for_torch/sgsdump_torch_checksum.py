"""What tells other values in a tensor's memory from these."""

import ctypes

import torch
from sgsdump_torch_kernel import kernel
from sgsdump_torch_tensors import fills_its_memory, in_memory_order

# Up to so many bytes a tensor is its own checksum.
SMALL = 256
# The sums of torch's checksum: so many stretches of memory, and in each so many classes of places.
STRETCHES, CLASSES = 8, 64
WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def checksum_of(tensor):
    """All bytes of a small tensor, else numbers that none of its words can change alone, nor two of them by changing
    places; None where elements do not fill their memory."""
    flat = tensor if fills_its_memory(tensor) else in_memory_order(tensor)
    if flat.data_ptr() != tensor.data_ptr() or flat.is_conj() or flat.is_neg():
        return None
    size = flat.numel() * flat.element_size()
    if size <= SMALL:
        return _bytes(flat)
    if kernel is not None and flat.is_cpu:
        return kernel.checksum(flat.data_ptr(), size)
    return _by_torch(flat.detach(), size)


def _by_torch(tensor, size):
    """The sums of the words in 512 sets of places."""
    flat = in_memory_order(tensor)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    word = next(width for width in WORDS if not (size % width or flat.data_ptr() % width))
    if word < flat.element_size():
        return None
    words = flat.view(WORDS[word])
    whole = words.numel() // (STRETCHES * CLASSES) * STRETCHES * CLASSES
    if not whole:
        return _bytes(words)
    sums = words[:whole].view(STRETCHES, -1, CLASSES).sum(1)
    return _bytes(sums) + _bytes(words[whole:])


def _bytes(tensor):
    tensor = tensor.detach().cpu()
    size = tensor.numel() * tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), size) if size else b""
