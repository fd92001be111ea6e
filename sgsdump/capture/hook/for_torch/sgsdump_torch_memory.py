"""Which tensors hold the same values: those that are the same piece of the same memory, with no operator that has
written to it in between. What changes memory behind torch's back a checksum notices (``sgsdump_torch_taking``)."""

import itertools
import threading

from sgsdump_records import Values
from sgsdump_torch_tensors import type_word
from sgsdump_torch_unwritten import Unwritten
from torch.multiprocessing.reductions import StorageWeakRef

LEAST = 1000


class Seen(Values):
    """checksum  of the values; None until one was taken, and of what has none.
    figures   their statistics, as they were taken last; round, version: in which round (its ``mark``) and at which of
              torch's versions of the tensor that was.
    storage   the number of the memory they are in; current: as far as is known they are there.
    """

    __slots__ = ("checksum", "current", "figures", "round", "storage", "version")

    def __init__(self, tensor, number, storage):
        device = None if tensor.is_cpu else tensor.device.index
        super().__init__(type_word(tensor.dtype), tensor.shape, number, device)
        self.checksum = self.figures = self.round = self.version = None
        self.storage = storage
        self.current = True


class Memories:
    def __init__(self):
        self._numbers = itertools.count()
        self.unwritten = Unwritten()
        self._of_storage: dict = {}
        self._enough = LEAST
        self.after_fork()

    def after_fork(self):
        self._lock = threading.RLock()

    def values(self, tensor):
        """The ``Seen`` of a tensor's values as they are now."""
        storage = tensor.untyped_storage()
        number = storage._cdata
        place = _place(tensor)
        memory = self._of_storage.get(number)
        seen = None if memory is None else memory.seen.get(place)
        if seen is not None and seen.unwritten and not self.unwritten.holds(tensor):
            self.written(tensor)  # by what torch knows nothing of
            seen = None
        if seen is None:
            with self._lock:
                memory = self._of_storage.get(number)
                if memory is None:
                    memory = self._of_storage[number] = Memory(storage)
                seen = memory.seen.setdefault(place, Seen(tensor, next(self._numbers), number))
                seen.unwritten = self.unwritten.holds(tensor)
        return seen

    def renew(self, tensor, seen):
        """Other values are where these were, and no operator told of it."""
        with self._lock:
            new = Seen(tensor, next(self._numbers), seen.storage)
            new.belong(seen.weight)
            self._of_storage[seen.storage].seen[_place(tensor)] = new
            seen.current = False
        return new

    def written(self, tensor):
        """An operator wrote to a tensor's memory."""
        memory = self._of_storage.get(tensor.untyped_storage()._cdata)
        if memory is not None:
            for seen in memory.seen.values():
                seen.current = False
            memory.seen = {}

    def tidy(self):
        """Forget what memory was given back, now and then."""
        if len(self._of_storage) < self._enough:
            return
        with self._lock:
            for number in [number for number, memory in self._of_storage.items() if memory.reference.expired()]:
                del self._of_storage[number]
            self._enough = 2 * len(self._of_storage) + LEAST


class Memory:
    """A storage, by a weak reference: as long as that is kept, no other storage gets its number."""

    def __init__(self, storage):
        self.reference = StorageWeakRef(storage)
        self.seen: dict = {}


def _place(tensor):
    return (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
