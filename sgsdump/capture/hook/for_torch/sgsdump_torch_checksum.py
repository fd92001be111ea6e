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
    if not fills_its_memory(tensor) or tensor.is_conj() or tensor.is_neg():
        return None
    size = tensor.numel() * tensor.element_size()
    if size <= SMALL:
        return _bytes(tensor)
    if kernel is not None and tensor.is_cpu:
        return kernel.checksum(tensor.data_ptr(), size)
    return _by_torch(in_memory_order(tensor), size)


def _by_torch(flat, size):
    """The sums of the words in 512 sets of places."""
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    starts = flat.data_ptr() | flat.storage_offset() * flat.element_size()
    word = next(width for width in WORDS if not (size % width or starts % width))
    if word < flat.element_size():  # in memory that is not aligned
        return _by_torch(flat.clone(), size)
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
