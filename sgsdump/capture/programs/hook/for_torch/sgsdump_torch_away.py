"""Dump of tensors on devices (``Away``), whose values are fetched together: at the end of a round, or when many wait.

What a line says of such a tensor depends on its values: whether they are the recorded ones, or others that a kernel
outside torch wrote. The line is therefore a function, called in order after the fetch. Lines after it wait too.
"""

import weakref
from typing import Any

import torch
from sgsdump_records import Values
from sgsdump_torch_devices import Reader, statistics_of, statistics_on_device
from sgsdump_torch_memories import NOTHING, span_of, stands, storage_of, view_of
from sgsdump_torch_statistics import checksum_of
from sgsdump_torch_tensors import in_c_order, payload, unreadable, version, why_not_plain

GONE = "a kernel outside torch changed it, and its values were gone at the end of the round"
NO_READ = "the device could not be read: {}"


class Away:
    """Reads of a round's tensors; ``waits``: whether lines wait for them."""

    def __init__(self, taking):
        self._taking = taking
        self._reader = Reader()
        self._reads: dict = {}  # number of values -> the Read that brings them
        self._renewed: dict = {}  # number of values -> record of the values that replaced them
        self._failed = ""
        self.waits = False

    def is_full(self):
        return self._reader.is_full()

    def of_tensor(self, round, content, port, tensor):
        """Return what a line says of a tensor, or a function that returns it after ``fetch``."""
        taking, reads = self._taking, content in ("tensor", "stats")
        why = why_not_plain(tensor) or (unreadable(tensor) if reads else "")
        if why:
            return taking.left_out(port, tensor, why)
        record = taking.record_of(round, content, tensor)
        if content != "tensor":
            round.lookup.add(tensor, record)
        if not reads:
            return taking.session.tensor(port, record)
        read = None
        if not record.unwritten:
            read = self._elements(record, tensor) if content == "tensor" else self._statistics(round, record, tensor)
        self.waits = True
        return lambda: self._told(port, record, read)

    def fetch(self):
        """Wait for all reads."""
        self._reads.clear()
        self.waits = False
        try:
            self._reader.fetch()
        except RuntimeError as error:  # the device has failed, and so will the program
            self._reader = Reader()
            self._failed = NO_READ.format(str(error).strip().partition("\n")[0])

    def _statistics(self, round, record, tensor):
        """Read the statistics; of a weight that was read in an earlier round, only what shows whether it has changed.

        The conditions are those of ``Taking.with_statistics``.
        """
        counted = version(tensor)
        if record.round is round.mark and stands(record.version, counted):
            return self._reads.get(record.number)
        read = self._reads[record.number] = Read(record, tensor, self._memory_of(record))
        if record.round is not None or record.storage in round.network.owners:
            read.sample = self._reader.sample(tensor)
        read.is_again = read.sample is not None and record.sample is not None and stands(record.version, counted)
        if not read.is_again:
            read.figures = self._figures(round, record, tensor, counted)
        record.round, record.version = round.mark, counted or record.version or counted
        return read

    def _memory_of(self, record):
        return self._taking.memories.of_storage(record.storage).reference

    def _figures(self, round, record, tensor, counted):
        """Read the statistics of a tensor. Views of the same piece of memory share one read."""
        taking = self._taking
        span = span_of(tensor)
        of_span = taking.memories.of_storage(record.storage).figures
        mark, at, figures = of_span.get(span, NOTHING) if span is not None else NOTHING
        if mark is not round.mark or not stands(at, counted):
            figures = self._reader.figures(tensor)
            if span is not None:
                of_span[span] = round.mark, counted, figures
        return figures

    def _elements(self, record, tensor):
        """Read the checksum, and the elements if they are neither stored nor on their way."""
        read = Read(record, tensor, self._memory_of(record))
        read.checksum = self._reader.checksum(tensor)
        is_new = record.stored is None and record.number not in self._reads
        if is_new:
            read.elements = self._reader.elements(tensor)
            self._reads[record.number] = read
        elif not record.weight:  # a kernel outside torch may write to it more than once in a round
            read.copy = self._reader.copy(tensor)
        if read.checksum is None:  # the elements do not fill their memory
            read.checksum = self._reader.checksum(self._reader.copy(tensor))
        return read

    def _told(self, port, record, read):
        """Return what a line says of a tensor, after the fetch."""
        record = self._renewed.get(record.number, record)
        why = ""
        if read is not None and not read.is_told:
            if self._failed:
                why = self._failed
            elif read.checksum is not None:
                return self._told_elements(port, record, read)
            else:
                record, why = self._with_statistics(record, read)
        return self._left_out(port, record, why) if why else self._taking.session.tensor(port, record)

    def _left_out(self, port, record, why):
        return self._taking.session.tensor(port, Values(record.dtype, record.shape, why=why))

    def _told_elements(self, port, record, read):
        checksum = read.checksum.data
        if record.checksum is not None and checksum != record.checksum:
            record = self._renew(record, read)
        record.checksum = checksum
        lying = None if record.stored is not None else read.elements_now()
        if record.stored is None and lying is None:
            return self._left_out(port, record, GONE)
        return self._taking.session.tensor(port, record, None if lying is None else payload(lying))

    def _with_statistics(self, record, read):
        """Return the record with its statistics, and why it has none."""
        read.is_told = True
        sample = None if read.sample is None else read.sample.data
        if read.is_again and sample == record.sample:
            return record, ""
        is_known, figures = read.statistics_now()
        if not is_known:
            return record, GONE
        if read.is_first or figures != record.figures:
            replaced, record = record, self._taking.with_figures(record, figures, read.view, read.is_first)
            if record is not replaced:
                self._renewed[replaced.number] = record
                record.round, record.version = replaced.round, replaced.version
        record.sample = sample
        return record, ""

    def _renew(self, record, read):
        new = self._renewed[record.number] = self._taking.memories.renew(read.view, record)
        return new


class Read:
    """What is read of a tensor at one place of a round. The tensor may be gone when the values are there.

    sample, checksum, figures, elements   ``Coming`` of each; None if it is not read.
    copy       the elements, still on the device; needed only if they are not the recorded ones.
    is_first   whether the record had no statistics before; is_again: whether its figures are known if the sample is
               the same.
    """

    __slots__ = (
        *("_count", "_is_float", "_memory", "_tensor", "checksum", "copy", "elements", "figures"),
        *("is_again", "is_first", "is_told", "sample", "view"),
    )

    def __init__(self, record, tensor, memory):
        self._tensor, self._memory = weakref.ref(tensor), memory
        self._count, self._is_float = tensor.numel(), tensor.is_floating_point()
        self.view = view_of(tensor)
        self.is_first = record.round is None
        self.sample: Any = None
        self.checksum: Any = None
        self.figures: Any = None
        self.elements: Any = None
        self.copy: Any = None
        self.is_again = self.is_told = False

    def statistics_now(self):
        """Return whether the statistics are known, and the statistics."""
        if self.figures is not None:
            return True, statistics_of(self.figures.data, self._count, self._is_float)
        if not self.is_again:
            return True, None  # a tensor without statistics, such as bool
        tensor = self._still_there()
        return tensor is not None, None if tensor is None else statistics_on_device(tensor)

    def elements_now(self):
        """Return the elements in C order; None if they were not read and are gone."""
        if self.elements is not None:
            return self.elements.data
        if self.copy is not None:
            return in_c_order(self.copy)
        tensor = self._still_there()
        if tensor is None or checksum_of(tensor) != self.checksum.data:
            return None
        return in_c_order(tensor)

    def _still_there(self):
        tensor = self._tensor()
        if tensor is None:
            tensor = self._view_again()
        return None if tensor is None or unreadable(tensor) else tensor

    def _view_again(self):
        """Return the same view of the storage, if that still exists."""
        offset, shape, strides, dtype, is_conj, is_neg = self.view
        storage = None if is_conj or is_neg else storage_of(self._memory)
        if storage is None:
            return None
        return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, strides)
