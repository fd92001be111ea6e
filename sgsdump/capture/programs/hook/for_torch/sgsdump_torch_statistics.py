"""Statistics of a tensor, and a checksum that shows whether its memory has changed.

Both need one pass of the compiled kernel, if it is built, the tensor is on the CPU and the kernel knows the type.
Otherwise torch computes them.
"""

import ctypes
import math
import os
import sys
import threading

import torch
from sgsdump_torch_tensors import fills_its_memory, in_memory_order

# Interface version of sgsdump_kernel.c.
INTERFACE = 3
# Minimum number of elements for which threads are used.
MANY = 1 << 16
# Number of float64 elements that stay in the cache.
CHUNK = 1 << 18
UNSIGNED = [getattr(torch, name) for name in ("uint16", "uint32") if hasattr(torch, name)]
# Size in bytes up to which a tensor's bytes are its checksum.
SMALL = 256
# The checksum by torch sums STRETCHES pieces of memory, each in CLASSES interleaved classes.
STRETCHES, CLASSES = 8, 64
# A tensor of more than WHOLE bytes is sampled: SAMPLED bytes, in cache lines of LINE bytes.
WHOLE, SAMPLED, LINE = 1 << 13, 1 << 12, 256
WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def _loaded_kernel():
    """Return the kernel; None if it is not built, is disabled, or the program's Python is free-threaded (other ABI)."""
    if os.environ.get("SGSDUMP_NO_KERNEL") or "t" in getattr(sys, "abiflags", ""):
        return None
    try:
        import sgsdump_kernel
    except ImportError:
        return None
    return sgsdump_kernel if getattr(sgsdump_kernel, "INTERFACE", 1) == INTERFACE else None


def _threads_of_torch():
    """Return the address of the function that gives work to torch's threads if they are GNU OpenMP's; else 0."""
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        return ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _without_threads():
    """Disable threads in a forked process, which has none of them and would wait for ever."""
    global _parallel
    _parallel = 0


kernel = _loaded_kernel()
# The kernel's type numbers.
KINDS = {} if kernel is None else {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_parallel = 0 if kernel is None else _threads_of_torch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_without_threads)


def statistics(tensor):
    """Return maximum, minimum, mean and L2 norm, the last two summed in float64; None if empty, bool or complex.

    The tensor is on the CPU. A NaN makes all four NaN. A sum of squares beyond float64 gives an infinite norm.
    """
    size = tensor.numel()
    kind = KINDS.get(tensor.dtype)
    if not size or (kind is None and (tensor.dtype is torch.bool or tensor.is_complex())):
        return None
    if tensor.is_neg() or not fills_its_memory(tensor):
        tensor = in_memory_order(tensor.detach().resolve_neg())
    if kind is None:
        least, most, total, squares = _sums_by_torch(in_memory_order(tensor))
    else:
        least, most, total, squares = sums_of_memory(tensor.data_ptr(), size, kind)
    return most, least, total / size, math.sqrt(squares) if squares == squares else math.nan


def sample_of(tensor):
    """Return bytes that show whether a tensor's memory has changed; None if the elements do not fill their memory.

    A tensor of up to WHOLE bytes gets a checksum of all bytes, a larger one a sample of SAMPLED bytes.
    """
    size = tensor.numel() * tensor.element_size()
    if size <= WHOLE:
        return checksum_of(tensor)
    if (not tensor.is_contiguous() and not fills_its_memory(tensor)) or tensor.is_conj() or tensor.is_neg():
        return None
    if kernel is not None:
        return kernel.sample(tensor.data_ptr(), size)
    lines = SAMPLED // LINE
    step = (size - LINE) // (lines - 1) // LINE * LINE
    start = tensor.data_ptr()
    return b"".join([ctypes.string_at(start + number * step, LINE) for number in range(lines)])


def sums_of_memory(address, count, kind):
    """Return (minimum, maximum, sum, sum of squares) from the kernel, which uses torch's threads for many elements."""
    if count < MANY or not _parallel:
        return kernel.statistics(address, count, kind)
    return kernel.statistics(address, count, kind, _parallel, torch.get_num_threads())


def _sums_by_torch(flat):
    """Compute the same as ``sums_of_memory`` with torch."""
    if flat.is_floating_point() and flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    if flat.dtype in UNSIGNED:  # torch has no arithmetic for these types
        flat = flat.long()
    least, most = torch.aminmax(flat)
    total = squares = 0.0
    for chunk in flat.split(CHUNK) if flat.numel() > CHUNK else (flat,):
        numbers = _buffer.of(chunk.numel()).copy_(chunk)
        total += numbers.sum().item()
        squares += torch.dot(numbers, numbers).item()
    return least.item(), most.item(), total, squares


class Buffer(threading.local):
    """Reused memory for a chunk: allocating it costs more than the computation."""

    numbers = None

    def of(self, size):
        if self.numbers is None:
            with torch.inference_mode(False):
                self.numbers = torch.empty(CHUNK, dtype=torch.float64, device="cpu")
        return self.numbers[:size]


_buffer = Buffer()


def checksum_of(tensor):
    """Return all bytes of a small tensor, else sums that change if a word changes or two are swapped.

    None if the elements do not fill their memory.
    """
    if kernel is not None and tensor.is_cpu and fills_its_memory(tensor) and not (tensor.is_conj() or tensor.is_neg()):
        size = tensor.numel() * tensor.element_size()
        return _bytes(tensor) if size <= SMALL else kernel.checksum(tensor.data_ptr(), size)
    pieces = checksum_parts(tensor)
    return None if pieces is None else b"".join(map(_bytes, pieces))


def checksum_parts(tensor):
    """Return the tensors, on the device, whose bytes are the checksum; None if the elements do not fill their memory.

    The sums do not depend on the order of addition: they are integers.
    """
    if not fills_its_memory(tensor) or tensor.is_conj() or tensor.is_neg():
        return None
    size = tensor.numel() * tensor.element_size()
    flat = in_memory_order(tensor)
    return [flat.clone()] if size <= SMALL else _sums_of_words(flat, size)


def _sums_of_words(flat, size):
    """Return the sums of the words in 512 sets of offsets, and the words after them."""
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    starts = flat.data_ptr() | flat.storage_offset() * flat.element_size()
    word = next(width for width in WORDS if not (size % width or starts % width))
    if word < flat.element_size():  # the memory is not aligned
        return _sums_of_words(flat.clone(), size)
    words = flat.view(WORDS[word])
    whole = words.numel() // (STRETCHES * CLASSES) * STRETCHES * CLASSES
    rest = words[whole:].clone()
    return [words[:whole].view(STRETCHES, -1, CLASSES).sum(1), rest] if whole else [rest]


def _bytes(tensor):
    tensor = tensor.detach().cpu()
    size = tensor.numel() * tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), size) if size else b""
