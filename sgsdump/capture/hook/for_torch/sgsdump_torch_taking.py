"""What is told to the session of an operator's inputs and outputs.

Tensors that hold the same values (``sgsdump_torch_memory``) are computed, checked and written once. Statistics are
believed within a step, as long as torch's own version number says the same; in another step they are taken again, or,
as of values that are written in full always, a checksum is asked whether the memory still holds them.
"""

import torch
from sgsdump_records import STATISTICS, Values, statistics_text
from sgsdump_torch_checksum import checksum_of
from sgsdump_torch_known import Known
from sgsdump_torch_memory import Memories
from sgsdump_torch_statistics import quick, statistics
from sgsdump_torch_tensors import (
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

MOST_WHY = 300


class Running:
    """An operator or module that is running. wanted: it is dumped; size: of the memory that it resizes, in bytes."""

    __slots__ = ("inputs", "operator", "size", "wanted")

    def __init__(self, operator, inputs, wanted):
        self.operator = operator
        self.inputs = inputs
        self.wanted = wanted


class Taking:
    def __init__(self, session):
        self.session = session
        self.memories = Memories()
        self._last = Known()  # of the round that began last

    def guard(self, round, function, *args):
        """Call something of the hook: what it does is not seen by itself, and no mistake of it reaches the program."""
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
        wanted = self.session.wants(round.step, operator)
        if wanted:
            self.take(round, operator, "in", "before", inputs)
        return Running(operator, inputs, wanted)

    def after(self, round, running, outputs, param, nanoseconds, written):
        operator = running.operator
        for tensor in written:
            self.memories.written(tensor)
        if running.wanted:
            self.take(round, operator, "in", "after", running.inputs)
            self.take(round, operator, "out", "after", tensors_in(outputs))
        round.lines.append(self.session.operator(round.step, operator, param, nanoseconds))

    def given(self, round, result):
        """An operator gave memory to which nothing is written."""
        for tensor in tensors_in(result):
            if plain(tensor):
                self.memories.unwritten.given(tensor)

    def grown(self, round, tensor, before):
        """An operator resized memory that had so many bytes."""
        self.memories.written(tensor)
        self.memories.unwritten.grown(tensor, before)

    def say(self, round):
        """Write the lines that are waiting for the next operator to begin: if that ends the program, they are there."""
        lines, round.lines = round.lines, []
        if lines:
            self.session.say(lines)

    def step_begins(self, round, given):
        self.memories.unwritten.begins()
        self.session.line(event="step", step=round.step, model=round.model, inputs=self._numbers(given))

    def step_ends(self, round, result, ended):
        self.say(round)
        self.memories.unwritten.ends()
        outputs = self._numbers(result)
        self.session.line(event="step", step=round.step, model=round.model, outputs=outputs, ended=ended)

    def _numbers(self, value):
        return [self.memories.values(tensor).number for tensor in tensors_in(value) if plain(tensor)]

    def take(self, round, operator, side, moment, tensors):
        session = self.session
        if not tensors or moment not in session.moments(side):
            return
        content = session.content
        known = round.known
        if known.content != content:
            known = round.known = self._last = Known(content, self._last)
        told = []
        for slot, tensor in enumerate(tensors):
            place = round.step, operator, side, slot, moment
            try:
                told.append(self._of_tensor(round, content, place, tensor))
            except Exception as error:
                told.append(self._left_out(place, tensor, f"{type(error).__name__}: {error}"[:MOST_WHY]))
        round.lines.append(session.tensors(round.step, operator, side, moment, told))

    def _of_tensor(self, round, content, place, tensor):
        """What the index says of a tensor."""
        if content != "tensor":
            values = round.known.get(tensor) or self.described(round, content, tensor)
            return self._left_out(place, tensor, values.why) if values.why else self.session.tensor(*place, values)
        why = why_not_plain(tensor) or unreadable(tensor)
        if why:
            return self._left_out(place, tensor, why)
        values = self.seen(round, tensor)
        if values.unwritten:
            return self.session.tensor(*place, values)
        values, lying = self.to_be_stored(values, tensor)
        told = self.session.tensor(*place, values, None if lying is None else payload(lying))
        del lying  # until now, for the payload is its memory
        return told

    def _left_out(self, place, tensor, why):
        """What the index says of a tensor whose values cannot be had."""
        return self.session.tensor(*place, Values(type_word(tensor.dtype), shape_of(tensor), why=why))

    def described(self, round, content, tensor):
        """The values of a tensor that is not to be stored."""
        seen = round.known.of_last(tensor)
        if seen is not None:
            seen.belong(round.weight(seen.storage, tensor))
        else:
            why = why_not_plain(tensor)
            if why:
                return Values(type_word(tensor.dtype), shape_of(tensor), why=why)
            seen = self.seen(round, tensor)
        if seen.unwritten:
            return seen
        if content == "stats" and (seen.round is not round.mark or seen.version != version(tensor)):
            why = unreadable(tensor)
            if why:
                return Values(type_word(tensor.dtype), shape_of(tensor), why=why)
            seen = self.with_statistics(round, seen, tensor)
        round.known.add(tensor, seen)
        return seen

    def seen(self, round, tensor):
        seen = self.memories.values(tensor)
        seen.belong(round.weight(seen.storage, tensor))
        return seen

    def with_statistics(self, round, seen, tensor):
        """The values with their statistics. Of what is seen again in another step (weights, most of all) they are taken
        again where that is quick; else a checksum is asked whether it has changed."""
        synchronise(tensor)
        checksum = None
        if (seen.weight or seen.round is not None) and not quick(tensor):
            checksum = checksum_of(tensor)
        if seen.round is None or checksum is None or checksum != seen.checksum:
            figures = statistics(tensor)
            if seen.round is None or figures != seen.figures:
                seen = self._told(seen, figures, tensor)
        if checksum is not None:
            seen.checksum = checksum
        seen.round, seen.version = round.mark, version(tensor)
        return seen

    def _told(self, seen, figures, tensor):
        """Values that have these statistics: others than those that were seen, where these had others."""
        stats = figures and dict(zip(STATISTICS, figures))
        if seen.round is not None:
            if (statistics_text(stats) if stats else "") == seen.stats:  # NaN equals none
                return seen
            seen = self.memories.renew(tensor, seen)
        seen.figures = figures
        seen.tell(stats)
        return seen

    def to_be_stored(self, seen, tensor):
        """The values, and in C order what is yet to be stored of them; None where they are."""
        synchronise(tensor)
        lying, checksum = None, checksum_of(tensor)
        if checksum is None:
            lying = in_c_order(tensor)
            checksum = checksum_of(lying)
        if seen.checksum is not None and checksum != seen.checksum:
            seen = self.memories.renew(tensor, seen)
        seen.checksum = checksum
        if seen.stored is not None:
            return seen, None
        return seen, in_c_order(tensor) if lying is None else lying
