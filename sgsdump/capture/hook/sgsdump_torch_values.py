"""What the torch hook takes of a tensor: its bytes, its statistics, and a number for the values it holds.

Two tensors have one number only where both are the same piece of the same memory and no operator has written to it in
between. Statistics are believed within a step, as long as torch's own version number says the same; in another step a
checksum is asked. A payload is never believed: before it is used again, its bytes are compared with those of the file.
"""

import ctypes
import itertools
import math
import mmap
import os
import threading

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# So many elements at a time stay in the cache as float64.
CHUNK = 1 << 17

_memcmp = ctypes.CDLL(None).memcmp if os.name == "posix" else None


class Values:
    """Numbers of values. A number is the values' key in the spool, too."""

    def __init__(self):
        self._numbers = itertools.count()
        self.after_fork()
        self._memory = {}
        self._known = {}

    def after_fork(self):
        self._lock = threading.RLock()

    def entry(self, tensor):
        """The ``Entry`` of a tensor's values as they are now."""
        storage = tensor.untyped_storage()
        with self._lock:
            memory = self._memory.get(storage._cdata)
            if memory is None or memory.gone():
                memory = self._memory[storage._cdata] = Memory(storage)
            place = (
                *(storage._cdata, memory.serial, memory.writes, tensor.storage_offset()),
                *(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()),
            )
            entry = self._known.get(place)
            if entry is None:
                entry = self._known[place] = Entry(next(self._numbers))
            return entry

    def renew(self, entry):
        """Other values are where these were, and no operator told of it."""
        entry.number, entry.path = next(self._numbers), None

    def written(self, tensor):
        """An operator wrote to a tensor's memory."""
        with self._lock:
            memory = self._memory.get(tensor.untyped_storage()._cdata)
            if memory is not None:
                memory.writes += 1

    def tidy(self):
        """Forget what memory was given back."""
        with self._lock:
            gone = {address for address, memory in self._memory.items() if memory.gone()}
            for address in gone:
                del self._memory[address]
            latest = {address: (memory.serial, memory.writes) for address, memory in self._memory.items()}
            self._known = {place: entry for place, entry in self._known.items() if latest.get(place[0]) == place[1:3]}


class Memory:
    """A storage, by a weak reference that keeps its address from being used again before it is asked whether it is
    ``gone``."""

    _serials = itertools.count()

    def __init__(self, storage):
        self.reference = StorageWeakRef(storage)
        self.serial = next(self._serials)
        self.writes = 0

    def gone(self):
        return self.reference.expired()


class Entry:
    """path        the file that has these values, below the dump's root.
    statistics  (when, checksum, statistics): of which round and torch's version of the tensor they are known.
    """

    __slots__ = ("number", "path", "statistics")

    def __init__(self, number):
        self.number = number
        self.path = None
        self.statistics = None


def version(tensor):
    return None if tensor.is_inference() else tensor._version


def plain(value):
    """Whether a value is a tensor with elements in memory of its own, not a fake, meta, sparse or quantised one."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type != "meta"
        and not value.is_quantized
        and (type(value) in _PLAIN or not hasattr(type(value), "__tensor_flatten__"))
        and not _is_fake(value)
    )


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _is_fake(tensor):
    if type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return True
    functorch = getattr(torch._C, "_functorch", None)
    return functorch is not None and functorch.is_functorch_wrapped_tensor(tensor)


def tensors_in(value, depth=0):
    """The tensors in lists, tuples, dicts and dataclasses, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 8:
        if isinstance(value, (list, tuple)):
            inner = list(value)
        elif isinstance(value, dict):
            inner = list(value.values())
        elif hasattr(type(value), "__dataclass_fields__"):
            inner = [getattr(value, name, None) for name in type(value).__dataclass_fields__]
        else:
            return
        for one in inner:
            yield from tensors_in(one, depth + 1)


def dtype_word(tensor):
    return str(tensor.dtype).partition(".")[2]


def synchronise(tensor):
    """Let an asynchronous device finish what would still change a tensor."""
    kind = tensor.device.type
    if kind != "cpu":
        wait = getattr(getattr(torch, kind, None), "synchronize", None)
        if wait is not None:
            wait()


def payload(tensor):
    """A tensor's elements in C order, without a copy where they lie so: (a memoryview, what has to live as long)."""
    lying = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    size = lying.numel() * lying.element_size()
    if not size:
        return memoryview(b""), lying
    return memoryview((ctypes.c_char * size).from_address(lying.data_ptr())).cast("B"), lying


def same_bytes(path, data):
    """Whether a file ends with these bytes."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            skipped = len(mapped) - data.nbytes
            if skipped < 0:
                return False
            if _memcmp is None or data.readonly:
                return mapped[skipped:] == data
            theirs = (ctypes.c_char * data.nbytes).from_buffer(mapped, skipped)
            ours = (ctypes.c_char * data.nbytes).from_buffer(data)
            equal = not _memcmp(theirs, ours, ctypes.c_size_t(data.nbytes))
            del theirs
            return equal
    except (OSError, ValueError):
        return False


def checksum(tensor):
    """The sum of a tensor's words, which tells other values from these unless words have only changed places (and then
    no statistics change); None where there are no whole words."""
    if not tensor.is_contiguous() or tensor.numel() * tensor.element_size() % 8 or tensor.data_ptr() % 8:
        return None
    flat = tensor.detach().reshape(-1)
    return flat.view(torch.int64).sum().item() if flat.numel() and not tensor.is_neg() else None


def statistics(tensor):
    """Largest, smallest, mean and L2 norm; the last two summed in float64. None for what is no number or is empty.

    NaN is not skipped: all four are NaN then. A sum of squares beyond float64 gives an infinite norm.
    """
    if tensor.dtype is torch.bool or tensor.is_complex() or not tensor.numel():
        return None
    flat = _flat(tensor.detach().resolve_neg().cpu())
    if flat.is_floating_point() and flat.dtype not in (torch.float32, torch.float64):
        flat = flat.float()
    least, most = (one.item() for one in torch.aminmax(flat))
    numbers = torch.empty(min(CHUNK, flat.numel()), dtype=torch.float64)
    total = squares = 0.0
    for chunk in flat.split(CHUNK) if flat.numel() > CHUNK else (flat,):
        part = numbers if chunk.numel() == numbers.numel() else numbers[: chunk.numel()]
        part.copy_(chunk)
        total += part.sum().item()
        squares += torch.dot(part, part).item()
    return {
        "max": most,
        "min": least,
        "mean": total / flat.numel(),
        "l2norm": math.sqrt(squares) if squares == squares else math.nan,
    }


def _flat(tensor):
    """All elements once, in the order of memory where they fill it without gaps."""
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=lambda axis: (-tensor.stride(axis), -tensor.size(axis)))
        tensor = tensor.permute(order)
    return tensor.reshape(-1)
