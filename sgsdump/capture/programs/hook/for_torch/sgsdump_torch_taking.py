"""Dump of an operator's inputs and outputs through the session (``Taking``).

Values that are known to be the same (``sgsdump_torch_memories.py``) are computed, checked and written once. Tensors on
devices are read together (``sgsdump_torch_away.py``).

Statistics are valid within a step while the version is unchanged; those of one piece of memory apply to all its views.
In a later step, a weight with unchanged version, address and shape is not read again, except for a sample of its memory
(``sample_of``; all of it if small), because not every change of memory is an operator. For the same reason, values that
are written in full always get a checksum of all bytes.
"""

import functools
import zlib

import torch
from sgsdump_records import Values, encode, figures_text, is_beyond
from sgsdump_torch_away import Away
from sgsdump_torch_devices import Devices, Reader
from sgsdump_torch_memories import NOTHING, Memories, TensorLookup, is_met, span_of, stands, view_of
from sgsdump_torch_statistics import checksum_of, sample_of, statistics
from sgsdump_torch_tensors import (
    in_c_order,
    outside_transforms,
    payload,
    plain,
    shape_of,
    tensors_in,
    type_word,
    unreadable,
    version,
    why_not_plain,
)

MOST_WHY = 300
MOST_SUMMED = 1 << 26  # largest input of a round, in bytes, for which a checksum is computed


class Running:
    """An operator or module that is running; ``dumped``: whether it is dumped.

    facts, key, size   of an operator: facts of its schema; key of its arguments; bytes of the memory that it resizes.
    marked      marked unwritten memory that the operator may write to.
    """

    __slots__ = ("dumped", "facts", "inputs", "key", "marked", "operator", "size")

    def __init__(self, operator, inputs, dumped):
        self.operator = operator
        self.inputs = inputs
        self.dumped = dumped
        self.marked = ()


class Taking:
    """Dump of the tensors of rounds."""

    def __init__(self, session):
        self.session = session
        self.memories = Memories()
        self.devices = Devices()
        self._last = TensorLookup()  # lookup of the latest round

    def guard(self, round, function, *args):
        """Call a function of the hook: the hook does not see its operators, and its errors do not reach the program."""
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
        """Dump the inputs before a module or an operator runs."""
        dumped = self.session.wants(round.step, operator)
        if dumped:
            self.take(round, operator, "in", "before", inputs)
        return Running(operator, inputs, dumped)

    def after(self, round, running, outputs, called, nanoseconds, written):
        """Dump inputs and outputs after a module or an operator has run.

        ``called`` holds its simple arguments, or their text, and the result of ``Facts.call``; None for a module.
        """
        operator = running.operator
        for tensor in written:
            self.memories.written(tensor)
        if running.dumped:
            self.take(round, operator, "in", "after", running.inputs)
            self.take(round, operator, "out", "after", tensors_in(outputs))
            for tensor in written:
                self.memories.wrote(tensor)
        self._add(round, lambda: self.session.operator(round.step, operator, called[0], nanoseconds, called[1]))

    def allocated(self, round, result):
        """Record that an operator returned memory without writing to it."""
        for tensor in tensors_in(result):
            if plain(tensor):
                self.memories.unwritten.allocated(tensor)

    def grown(self, round, tensor, before):
        """Record that an operator resized memory that had ``before`` bytes."""
        self.memories.written(tensor)
        self.memories.unwritten.grown(tensor, before)

    def storage_grown(self, round, storage, before):
        """Record that the program itself resized a storage that had ``before`` bytes."""
        self.memories.rewritten(storage._cdata)
        self.memories.unwritten.storage_grown(storage, before)

    def _add(self, round, line):
        """Add a line: at once, or as the function that returns it while lines before it wait for a device."""
        round.lines.append(line if round.away is not None and round.away.waits else line())

    def say(self, round):
        """Write the waiting lines before the next operator begins, in case that operator ends the program.

        Lines that wait for a device stay until the end of the round, or until there are many.
        """
        if round.away is not None and round.away.waits:
            if round.away.is_full():
                self._fetch(round)
            return
        lines, round.lines = round.lines, []
        if round.ordinary is not None:
            lines.insert(0, round.ordinary.waiting())
        if any(lines):
            self.session.say(lines, round.step)

    def _fetch(self, round):
        """Bring what is read from devices, and write the lines that wait for it."""
        round.away.fetch()
        lines, round.lines = round.lines, []
        self.session.say([line if isinstance(line, str) else line() for line in lines], round.step)

    def step_begins(self, round, inputs, thread):
        self.memories.unwritten.begins()
        self.devices.wait()
        fed = self._checksum(inputs)
        self._say_step(round, of_model=round.of_model, thread=thread, fed=fed, inputs=self._numbers(inputs))

    def _checksum(self, inputs):
        """Return a checksum of a round's inputs: types, shapes, and values of tensors that are not too large."""
        total, reader, tensors = 0, Reader(), tensors_in(inputs)
        read = [self._input(reader, tensor) for tensor in tensors]
        try:
            reader.fetch()
        except RuntimeError:  # a device that has failed
            return ""
        for tensor, lying in zip(tensors, read):
            total = zlib.crc32("{} {}".format(tensor.dtype, shape_of(tensor)).encode(), total)
            if lying is not None:
                total = zlib.crc32(payload(lying() if callable(lying) else lying), total)
        return "{:08x}".format(total)

    def _input(self, reader, tensor):
        """Return the elements of an input, or a function that returns them after the fetch; None if not summed."""
        size = tensor.numel() * tensor.element_size() if plain(tensor) and not unreadable(tensor) else 0
        if not 0 < size <= MOST_SUMMED or self.memories.unwritten.holds(tensor):
            return None
        if tensor.is_cpu:
            return in_c_order(tensor)
        self.devices.meet(tensor)
        coming = reader.elements(tensor)
        return lambda: coming.data

    def _say_step(self, round, **facts):
        line = encode({"event": "step", "step": round.step, "model": round.model, **facts})
        self.session.say([line, "\n"], round.step)

    def step_ends(self, round, result, ended):
        if round.away is not None and round.away.waits:
            self._fetch(round)
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
        waits = False
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
                words = self._of_tensor(round, content, port, tensor)
            except Exception as error:
                words = self.left_out(port, tensor, f"{type(error).__name__}: {error}"[:MOST_WHY])
            waits = waits or not isinstance(words, str)
            told.append(words)
        if waits:
            line = functools.partial(self._told_later, step, operator, side, moment, told)
        else:
            line = functools.partial(session.tensors, step, operator, side, moment, told)
        self._add(round, line)

    def _told_later(self, step, operator, side, moment, told):
        """Return the line of tensors that were read from a device."""
        words = [one if isinstance(one, str) else self._told_now(one) for one in told]
        return self.session.tensors(step, operator, side, moment, words)

    def _told_now(self, tell):
        try:
            return tell()
        except Exception as error:
            self.session.trouble("torch: {}: {}".format(type(error).__name__, error))
            return "null"

    def _away(self, round, tensor):
        """Return the reads of a round. The compiled kernel leaves such a round: it does not wait with lines."""
        self.devices.meet(tensor)
        if round.away is None:
            round.away = Away(self)
        if round.ordinary is not None:
            round.lines.insert(0, round.ordinary.waiting())
            round.ordinary = None
        return round.away

    def look_up(self, round, content):
        """Make the round's lookup one for tensors with this dumped content."""
        if round.lookup.content != content:
            round.lookup = self._last = TensorLookup(content, self._last)

    def _of_tensor(self, round, content, port, tensor):
        """Return the index's text for a tensor, or a function that returns it once the tensor's device was read."""
        if not tensor.is_cpu and not tensor.is_meta:
            return self._away(round, tensor).of_tensor(round, content, port, tensor)
        if content != "tensor":
            values = self.described(round, content, tensor)
            return self.left_out(port, tensor, values.why) if values.why else self.session.tensor(port, values)
        why = why_not_plain(tensor) or unreadable(tensor)
        if why:
            return self.left_out(port, tensor, why)
        values = self._record(round, tensor)
        if values.unwritten:
            return self.session.tensor(port, values)
        values, lying = self.to_be_stored(values, tensor)
        told = self.session.tensor(port, values, None if lying is None else payload(lying))
        del lying  # not earlier: the payload is its memory
        return told

    def left_out(self, port, tensor, why):
        """Return the index's text for a tensor without available values."""
        return self.session.tensor(port, Values(type_word(tensor.dtype), shape_of(tensor), why=why))

    def record_of(self, round, content, tensor):
        """Return the record of a plain tensor: a weight's from the last round, if it is the same."""
        record = round.lookup.of_last(tensor) if content != "tensor" else None
        if record is None:
            return self._record(round, tensor)
        record.belong(round.network.weight(record.storage, tensor))
        return record

    def described(self, round, content, tensor):
        """Return the values of a tensor that is not stored."""
        entry = round.lookup.met.get(id(tensor))
        if entry is not None and is_met(entry, tensor):
            return entry[4]
        if round.lookup.of_last(tensor) is None:
            why = why_not_plain(tensor)
            if why:
                return Values(type_word(tensor.dtype), shape_of(tensor), why=why)
        record = self.record_of(round, content, tensor)
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
        """Return the values with statistics.

        Statistics are computed once for all views of one piece of memory, and once for a weight until a change is
        detected.
        """
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
                record = self.with_figures(record, figures, view_of(tensor), record.round is None)
        record.sample = sample
        record.round, record.version = round.mark, counted or record.version or counted
        return record

    def with_figures(self, record, figures, view, is_first):
        """Give a record these statistics and return the record; if it had others, return a new record instead.

        ``is_first``: whether the record had no statistics before.
        """
        if not is_first:
            if (figures_text(figures) if figures else "") == record.stats:  # compared as text: NaN never equals NaN
                return record
            record = self.memories.renew(view, record)
        record.figures = figures
        if figures is not None:
            record.stats, record.beyond = figures_text(figures), is_beyond(figures)
            record.text = record.told = None
        return record

    def to_be_stored(self, record, tensor):
        """Return the record, and the elements in C order that are not stored yet; None if they are stored."""
        lying, checksum = None, checksum_of(tensor)
        if checksum is None:
            lying = in_c_order(tensor)
            checksum = checksum_of(lying)
        if record.checksum is not None and checksum != record.checksum:
            record = self.memories.renew(view_of(tensor), record)
        record.checksum = checksum
        if record.stored is not None:
            return record, None
        return record, in_c_order(tensor) if lying is None else lying
