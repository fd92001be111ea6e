"""Tells the session of an operator's inputs and outputs (``Taking``).

Two tensors hold the same values where they are the same piece of the same memory and no operator has written to it in
between (``Memories``); these are computed, checked and written once. A tensor that is still the same object, at the
same address and of the same version by torch's own count, is found by itself, which is quicker (``TensorLookup``).

Statistics are believed within a step as long as the version stays, and those of one piece of memory are those of all
its views. In another step a weight whose version, address and shape stand still is not looked at again, but for a
sample of its memory (``sample_of``; all of it where it is small): not everything that changes memory is an operator,
which is why of values that are written in full a checksum of all is always asked for.
"""

import itertools
import threading
import weakref
import zlib

import torch
from sgsdump_records import Values, encode, figures_text, is_beyond
from sgsdump_torch_statistics import checksum_of, sample_of, statistics
from sgsdump_torch_tensors import (
    fills_its_memory,
    in_c_order,
    outside_transforms,
    payload,
    plain,
    shape_of,
    synchronise,
    tensors_in,
    type_word,
    unreadable,
    version,
    why_not_plain,
)
from sgsdump_torch_unwritten import Unwritten
from torch.multiprocessing.reductions import StorageWeakRef

MOST_WHY = 300
# Storages to be known before those that were freed are forgotten.
LEAST = 1000
MOST_SUMMED = 1 << 26  # bytes of an input of a round
MOST_WRITERS = 16  # of a memory, that are told of what is read of it
NOTHING = (None, None, None)


class Running:
    """An operator or module that is running. dumped: whether it is.

    facts, key, size   of an operator: what its schema says; the key of its arguments; the bytes of the memory that it
                resizes.
    marked      unwritten memory that an operator may write to.
    """

    __slots__ = ("dumped", "facts", "inputs", "key", "marked", "operator", "size")

    def __init__(self, operator, inputs, dumped):
        self.operator = operator
        self.inputs = inputs
        self.dumped = dumped
        self.marked = ()


class Taking:
    def __init__(self, session):
        self.session = session
        self.memories = Memories()
        self._last = TensorLookup()  # of the round that began last

    def guard(self, round, function, *args):
        """Call something of the hook: the hook does not see it, and none of its errors reaches the program."""
        round.quiet = True
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), outside_transforms():
                return function(round, *args)
        except Exception as error:
            self.session.trouble("torch, step {}: {}: {}".format(round.step, type(error).__name__, error))
            return None
        finally:
            round.quiet = False

    def before(self, round, operator, inputs):
        """Before a module or an operator runs."""
        dumped = self.session.wants(round.step, operator)
        if dumped:
            self.take(round, operator, "in", "before", inputs)
        return Running(operator, inputs, dumped)

    def after(self, round, running, outputs, called, nanoseconds, written):
        """``called``: its arguments that are no tensors, or the text on them, and what ``Facts.call`` gives; None of a
        module."""
        operator = running.operator
        for tensor in written:
            self.memories.written(tensor)
        if running.dumped:
            self.take(round, operator, "in", "after", running.inputs)
            self.take(round, operator, "out", "after", tensors_in(outputs))
            for tensor in written:
                self.memories.wrote(tensor)
        round.lines.append(self.session.operator(round.step, operator, called[0], nanoseconds, called[1]))

    def allocated(self, round, result):
        """An operator gave memory to which nothing is written."""
        for tensor in tensors_in(result):
            if plain(tensor):
                self.memories.unwritten.allocated(tensor)

    def grown(self, round, tensor, before):
        """An operator resized memory that had so many bytes."""
        self.memories.written(tensor)
        self.memories.unwritten.grown(tensor, before)

    def storage_grown(self, round, storage, before):
        """The same of a storage, by the program itself."""
        self.memories.rewritten(storage._cdata)
        self.memories.unwritten.storage_grown(storage, before)

    def say(self, round):
        """Write the lines that are waiting for the next operator to begin: if that ends the program, they are there."""
        lines, round.lines = round.lines, []
        if round.ordinary is not None:
            lines.insert(0, round.ordinary.waiting())
        if any(lines):
            self.session.say(lines, round.step)

    def step_begins(self, round, inputs, thread):
        self.memories.unwritten.begins()
        fed = self._checksum(inputs)
        self._say_step(round, of_model=round.of_model, thread=thread, fed=fed, inputs=self._numbers(inputs))

    def _checksum(self, inputs):
        """Of what a round is fed: types and shapes, and the values of tensors that are not too large to be read."""
        total = 0
        for tensor in tensors_in(inputs):
            total = zlib.crc32("{} {}".format(tensor.dtype, shape_of(tensor)).encode(), total)
            size = tensor.numel() * tensor.element_size() if plain(tensor) and not unreadable(tensor) else 0
            if 0 < size <= MOST_SUMMED and not self.memories.unwritten.holds(tensor):
                synchronise(tensor)
                lying = in_c_order(tensor)
                total = zlib.crc32(payload(lying), total)
        return "{:08x}".format(total)

    def _say_step(self, round, **facts):
        line = encode({"event": "step", "step": round.step, "model": round.model, **facts})
        self.session.say([line, "\n"], round.step)

    def step_ends(self, round, result, ended):
        self.say(round)
        round.ordinary = None
        self.memories.flush()
        self.memories.unwritten.ends()
        outputs = self._numbers(result)
        self._say_step(round, outputs=outputs, ended=ended)
        self.session.ends(round.step)

    def _numbers(self, value):
        return [self.memories.values(tensor).number for tensor in tensors_in(value) if plain(tensor)]

    def take(self, round, operator, side, moment, tensors):
        session = self.session
        if not tensors or moment not in session.moments(side):
            return
        content = session.content
        self.look_up(round, content)
        if round.ordinary is not None:
            words = round.ordinary.told(tensors)
            if words is not None:
                round.lines.append(session.tensors(round.step, operator, side, moment, words))
                return
        step, told = round.step, []
        met, era = round.lookup.met, session.era()
        for slot, tensor in enumerate(tensors):
            entry = met.get(id(tensor))
            if entry is not None:
                values = entry[4]
                if values.told == step and values.era is era and not values.unwritten and is_met(entry, tensor):
                    told.append(values.word)
                    continue
            port = step, operator, side, slot, moment
            try:
                told.append(self._of_tensor(round, content, port, tensor))
            except Exception as error:
                told.append(self._left_out(port, tensor, f"{type(error).__name__}: {error}"[:MOST_WHY]))
        round.lines.append(session.tensors(step, operator, side, moment, told))

    def look_up(self, round, content):
        """Let the round's lookup be one of tensors of which this is dumped."""
        if round.lookup.content != content:
            round.lookup = self._last = TensorLookup(content, self._last)

    def _of_tensor(self, round, content, port, tensor):
        """The index's text on a tensor."""
        if content != "tensor":
            values = self.described(round, content, tensor)
            return self._left_out(port, tensor, values.why) if values.why else self.session.tensor(port, values)
        why = why_not_plain(tensor) or unreadable(tensor)
        if why:
            return self._left_out(port, tensor, why)
        values = self._record(round, tensor)
        if values.unwritten:
            return self.session.tensor(port, values)
        values, lying = self.to_be_stored(values, tensor)
        told = self.session.tensor(port, values, None if lying is None else payload(lying))
        del lying  # until now, for the payload is its memory
        return told

    def _left_out(self, port, tensor, why):
        """The index's text on a tensor whose values cannot be had."""
        return self.session.tensor(port, Values(type_word(tensor.dtype), shape_of(tensor), why=why))

    def described(self, round, content, tensor):
        """The values of a tensor that is not to be stored."""
        entry = round.lookup.met.get(id(tensor))
        if entry is not None and is_met(entry, tensor):
            return entry[4]
        record = round.lookup.of_last(tensor)
        if record is not None:
            record.belong(round.network.weight(record.storage, tensor))
        else:
            why = why_not_plain(tensor)
            if why:
                return Values(type_word(tensor.dtype), shape_of(tensor), why=why)
            record = self._record(round, tensor)
        if record.unwritten:
            return record
        if content == "stats" and not (record.round is round.mark and stands(record.version, version(tensor))):
            why = unreadable(tensor)
            if why:
                return Values(type_word(tensor.dtype), shape_of(tensor), why=why)
            record = self.with_statistics(round, record, tensor)
        round.lookup.add(tensor, record)
        return record

    def _record(self, round, tensor):
        record = self.memories.values(tensor)
        weight = round.network.weight(record.storage, tensor)
        if weight != record.weight:
            record.belong(weight)
        return record

    def with_statistics(self, round, record, tensor):
        """The values with their statistics, which are taken once of all views of one piece of memory, and of a weight
        once as long as nothing tells that it has changed."""
        if not tensor.is_cpu:
            synchronise(tensor)
        counted = version(tensor)
        lasts = record.round is not None or record.storage in round.network.owners
        sample = sample_of(tensor) if lasts else None
        if sample is None or record.sample != sample or not stands(record.version, counted):
            span = span_of(tensor)
            of_span = self.memories.of_storage(record.storage).figures
            mark, at, figures = of_span.get(span, NOTHING) if span is not None else NOTHING
            if mark is not round.mark or not stands(at, counted):
                figures = statistics(tensor)
                if span is not None:
                    of_span[span] = round.mark, counted, figures
            if record.round is None or figures != record.figures:
                record = self._with_figures(record, figures, tensor)
        record.sample = sample
        record.round, record.version = round.mark, counted or record.version or counted
        return record

    def _with_figures(self, record, figures, tensor):
        """The record of values with these statistics: a new one where it had others."""
        if record.round is not None:
            if (figures_text(figures) if figures else "") == record.stats:  # NaN equals none
                return record
            record = self.memories.renew(tensor, record)
        record.figures = figures
        if figures is not None:
            record.stats, record.beyond = figures_text(figures), is_beyond(figures)
            record.text = record.told = None
        return record

    def to_be_stored(self, record, tensor):
        """The record, and the elements in C order that have yet to be stored; None where they are stored."""
        synchronise(tensor)
        lying, checksum = None, checksum_of(tensor)
        if checksum is None:
            lying = in_c_order(tensor)
            checksum = checksum_of(lying)
        if record.checksum is not None and checksum != record.checksum:
            record = self.memories.renew(tensor, record)
        record.checksum = checksum
        if record.stored is not None:
            return record, None
        return record, in_c_order(tensor) if lying is None else lying


class TensorLookup:
    """The records of a round's tensors. ``content``: what is dumped of them; ``last``: the lookup of the round before,
    whose weights count.

    met  by the number of a tensor: a reference to it, its version, its address, its shape, and the record.
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
        """The record of a weight in the last round; None where it has to be found. Its values may be others, by
        ``.data``."""
        entry, stride, dtype = self._last.get(id(tensor), NOTHING)
        if entry is None or not is_met(entry, tensor) or stride != tensor.stride() or dtype is not tensor.dtype:
            return None
        return entry[4]


def is_met(entry, tensor):
    """Whether a tensor is the one that was met, and as it was."""
    return (
        entry[0]() is tensor
        and entry[4].current
        and entry[1] == tensor._version
        and entry[2] == tensor.data_ptr()
        and entry[3] == tensor.shape
    )


def stands(at, counted):
    """Whether a tensor of this version holds what it held at another. A view that an operator has just made counts from
    0, and only later as what it is a view of."""
    return at is not None and counted in (at, 0)


def span_of(tensor):
    """The piece of its memory that a tensor's elements fill, and their type: equal for equal elements, whatever their
    order. None where they do not fill one."""
    if not fills_its_memory(tensor) or tensor.is_neg() or tensor.is_conj():
        return None
    return tensor.storage_offset(), tensor.numel(), tensor.dtype


class ValueRecord(Values):
    """checksum  of the values; None until one was taken, and of what has none. sample: ``sample_of`` a weight when its
              statistics were taken.
    figures   their statistics, as they were taken last; round, version: in which round (its ``mark``) and at which of
              torch's versions of the tensor that was.
    storage   the number of the memory they are in; current: as far as is known they are there.
    """

    __slots__ = ("checksum", "current", "figures", "round", "sample", "storage", "version")

    def __init__(self, tensor, number, storage):
        device = None if tensor.is_cpu else tensor.device.index
        super().__init__(type_word(tensor.dtype), tensor.shape, number, device)
        self.checksum = self.figures = self.round = self.sample = self.version = None
        self.storage = storage
        self.current = True


class Memories:
    """What is known of the memory of tensors.

    pending  entries (``TensorLookup``) of tensors whose memory is not known yet: what the compiled kernel tells of has
             memory of its own, until something is seen to share it.
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
        """The record of a tensor's values as they are now."""
        storage = tensor.untyped_storage()
        number = storage._cdata
        view = _view_of(tensor)
        memory = self.storages.get(number)
        if memory is None and self.pending:
            self.flush()
            memory = self.storages.get(number)
        record = None if memory is None else memory.records.get(view)
        if record is not None and record.unwritten and not self.unwritten.holds(tensor):
            self.written(tensor)  # by what torch knows nothing of
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
        """What is known of a memory that a record is in."""
        return self.storages[number]

    def renew(self, tensor, record):
        """Other values are where these were, and no operator told of it."""
        with self._lock:
            new = ValueRecord(tensor, next(self.numbers), record.storage)
            new.belong(record.weight)
            self.storages[record.storage].records[_view_of(tensor)] = new
            record.current = False
        return new

    def flush(self):
        """Let the memory of all tensors that still live be known."""
        with self._lock:  # against other threads' flushes; the kernel may append at any time
            pending = self.pending[:]
            del self.pending[: len(pending)]
        for reference, _, address, shape, record in pending:
            tensor = reference()
            if tensor is None or record.storage is not None:
                continue
            if tensor.data_ptr() == address and tensor.shape == shape:
                self.register(tensor, record)
            else:
                record.current = False  # the program has given the tensor other memory

    def register(self, tensor, record):
        """The record's values are in this tensor's memory."""
        storage = tensor.untyped_storage()
        record.storage = number = storage._cdata
        with self._lock:
            memory = self.storages.get(number)
            if memory is None:
                memory = self.storages[number] = Memory(storage)
            memory.records.setdefault(_view_of(tensor), record)
            span = span_of(tensor)
            if span is not None:
                memory.figures.setdefault(span, (record.round, record.version, record.figures))

    def written(self, tensor):
        """An operator wrote to a tensor's memory."""
        self.rewritten(tensor.untyped_storage()._cdata)

    def rewritten(self, number):
        """The memory of this number holds other values."""
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
        """An operator wrote these values: whatever is read of their memory from now on is made of them too."""
        record = self.values(tensor)
        memory = self.storages[record.storage]
        memory.writers = [*memory.writers, record.number][-MOST_WRITERS:]

    def tidy(self):
        """Forget memory that was freed, now and then."""
        if len(self.storages) < self._enough:
            return
        with self._lock:
            for number in [number for number, memory in self.storages.items() if memory.reference.expired()]:
                del self.storages[number]
            self._enough = 2 * len(self.storages) + LEAST


class Memory:
    """A storage, by a weak reference: as long as that is kept, no other storage gets its number.

    figures  the statistics of pieces of it: in which round and at which version they were taken.
    writers  the numbers of the values that were written into it last.
    """

    __slots__ = ("figures", "records", "reference", "writers")

    def __init__(self, storage):
        self.reference = StorageWeakRef(storage)
        self.records: dict = {}
        self.figures: dict = {}
        self.writers: list = []


def _view_of(tensor):
    return (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())
