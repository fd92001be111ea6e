"""Records of the values of a program's tensors, by memory and view (``Memories``).

Two tensors hold the same values if they are the same view of the same memory and no operator has written to the memory
in between. A tensor that is still the same object, with the same address and the same version in torch's count, is
found by its identity, which is faster (``TensorLookup``).
"""

import itertools
import threading
import weakref

import torch
from sgsdump_records import Values
from sgsdump_torch_tensors import fills_its_memory, type_word, version
from sgsdump_torch_unwritten import Unwritten
from torch.multiprocessing.reductions import StorageWeakRef

# Number of known storages beyond which freed ones are forgotten.
LEAST = 1000
MOST_WRITERS = 16  # latest writers of a memory that are recorded
NOTHING = (None, None, None)


class TensorLookup:
    """Records of a round's tensors.

    content  dumped content of the tensors; last: lookup of the previous round, whose weights are reused.
    met      by the id of a tensor: weak reference, version, address, shape, and record.
    """

    def __init__(self, content="", last=None):
        self.content = content
        self.met: dict = {}
        self._weights: dict = {}
        self._last: dict = {} if last is None or last.content != content else last._weights

    def add(self, tensor, record):
        counted = version(tensor)
        if counted is not None:
            entry = weakref.ref(tensor), counted, tensor.data_ptr(), tensor.shape, record
            self.met[id(tensor)] = entry
            if record.weight:
                self._weights[id(tensor)] = entry, tensor.stride(), tensor.dtype

    def of_last(self, tensor):
        """Return a weight's record from the last round, or None.

        The weight may hold other values, assigned through ``.data``.
        """
        entry, stride, dtype = self._last.get(id(tensor), NOTHING)
        if entry is None or not is_met(entry, tensor) or stride != tensor.stride() or dtype is not tensor.dtype:
            return None
        return entry[4]


def is_met(entry, tensor):
    """Return whether a tensor is the recorded one, unchanged."""
    return (
        entry[0]() is tensor
        and entry[4].current
        and entry[1] == tensor._version
        and entry[2] == tensor.data_ptr()
        and entry[3] == tensor.shape
    )


def stands(at, counted):
    """Return whether a tensor's values are the same at both versions.

    A view that an operator has just made counts from 0, and only later shares its base's version.
    """
    return at is not None and counted in (at, 0)


def span_of(tensor):
    """Return the piece of memory that a tensor's elements fill, and their type; None if they do not fill one.

    Equal spans hold equal elements, in any order.
    """
    if not fills_its_memory(tensor) or tensor.is_neg() or tensor.is_conj():
        return None
    return tensor.storage_offset(), tensor.numel(), tensor.dtype


class ValueRecord(Values):
    """Values with the state that shows whether they are still current.

    checksum  checksum of the values, or None; sample: ``sample_of`` a weight when its statistics were computed.
    figures   latest statistics; round, version: the round (its ``mark``) and torch's version at that time.
    storage   id of their memory; current: False once they are known to be overwritten.
    """

    __slots__ = ("checksum", "current", "figures", "round", "sample", "storage", "version")

    def __init__(self, like, number, storage):
        """``like``: the tensor, or another record of it."""
        if isinstance(like, Values):
            super().__init__(like.dtype, like.shape, number, like.device)
        else:
            super().__init__(type_word(like.dtype), like.shape, number, None if like.is_cpu else like.device.index)
        self.checksum = self.figures = self.round = self.sample = self.version = None
        self.storage = storage
        self.current = True


class Memories:
    """Knowledge of the memory of tensors.

    pending  entries (``TensorLookup``) of tensors whose memory is not registered yet: tensors from the compiled kernel
             have memory of their own until a shared use is seen.
    """

    def __init__(self):
        self.numbers = itertools.count()
        self.unwritten = Unwritten()
        self.storages: dict = {}
        self.pending: list = []
        self._enough = LEAST
        self.after_fork()

    def after_fork(self):
        self._lock = threading.RLock()

    def values(self, tensor):
        """Return the record of a tensor's current values."""
        storage = tensor.untyped_storage()
        number = storage._cdata
        view = view_of(tensor)
        memory = self.storages.get(number)
        if memory is None and self.pending:
            self.flush()
            memory = self.storages.get(number)
        record = None if memory is None else memory.records.get(view)
        if record is not None and record.unwritten and not self.unwritten.holds(tensor):
            self.written(tensor)  # written outside torch
            record = None
        if record is None:
            with self._lock:
                memory = self.storages.get(number)
                if memory is None:
                    memory = self.storages[number] = Memory(storage)
                record = memory.records.setdefault(view, ValueRecord(tensor, next(self.numbers), number))
                record.parts = tuple(memory.writers)
                record.unwritten = self.unwritten.holds(tensor)
        return record

    def of_storage(self, number):
        """Return the knowledge of a record's memory."""
        return self.storages[number]

    def renew(self, view, record):
        """Replace a record: other values are in its memory, and no operator reported a write."""
        with self._lock:
            new = ValueRecord(record, next(self.numbers), record.storage)
            new.belong(record.weight)
            memory = self.storages.get(record.storage)
            if memory is not None and memory.records.get(view) is record:
                memory.records[view] = new
            else:
                new.current = False  # the memory was freed or overwritten meanwhile
            record.current = False
        return new

    def flush(self):
        """Register the memory of all pending tensors that still exist."""
        with self._lock:  # other threads may flush too; the kernel may append at any time
            pending = self.pending[:]
            del self.pending[: len(pending)]
        for reference, _, address, shape, record in pending:
            tensor = reference()
            if tensor is None or record.storage is not None:
                continue
            if tensor.data_ptr() == address and tensor.shape == shape:
                self.register(tensor, record)
            else:
                record.current = False  # the program has assigned other memory to the tensor

    def register(self, tensor, record):
        """Register that the record's values are in this tensor's memory."""
        storage = tensor.untyped_storage()
        record.storage = number = storage._cdata
        with self._lock:
            memory = self.storages.get(number)
            if memory is None:
                memory = self.storages[number] = Memory(storage)
            memory.records.setdefault(view_of(tensor), record)
            span = span_of(tensor)
            if span is not None:
                memory.figures.setdefault(span, (record.round, record.version, record.figures))

    def written(self, tensor):
        """Record that an operator wrote to a tensor's memory."""
        self.rewritten(tensor.untyped_storage()._cdata)

    def rewritten(self, number):
        """Record that the memory with this id holds other values."""
        self.flush()
        memory = self.storages.get(number)
        if memory is not None:
            for record in memory.records.values():
                record.current = False
            if not memory.writers:
                memory.writers = [record.number for record in memory.records.values()][:MOST_WRITERS]
            memory.records = {}
            memory.figures = {}

    def wrote(self, tensor):
        """Record which values an operator wrote: later reads of this memory depend on them."""
        record = self.values(tensor)
        memory = self.storages[record.storage]
        memory.writers = [*memory.writers, record.number][-MOST_WRITERS:]

    def tidy(self):
        """Forget freed memory, from time to time."""
        if len(self.storages) < self._enough:
            return
        with self._lock:
            for number in [number for number, memory in self.storages.items() if memory.reference.expired()]:
                del self.storages[number]
            self._enough = 2 * len(self.storages) + LEAST


class Memory:
    """A storage, held by a weak reference, which keeps its id from being reused.

    figures  statistics of pieces of it: round and version in which they were computed.
    writers  numbers of the values that were written to it last.
    """

    __slots__ = ("figures", "records", "reference", "writers")

    def __init__(self, storage):
        self.reference = StorageWeakRef(storage)
        self.records: dict = {}
        self.figures: dict = {}
        self.writers: list = []


def storage_of(reference):
    """Return the storage of a weak reference, or None if it was freed."""
    if reference.expired():
        return None
    return torch.UntypedStorage._new_with_weak_ptr(reference.cdata)


def view_of(tensor):
    """Return a key that is equal for equal views of one storage."""
    return (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
