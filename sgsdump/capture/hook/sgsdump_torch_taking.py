"""What is told to the session of an operator's inputs and outputs.

Tensors that hold the same values (``sgsdump_torch_memory``) are computed, checked and written once. Statistics are
believed within a step, as long as torch's own version number says the same; in another step they are taken again, or,
as of values that are written in full always, a checksum is asked whether the memory still holds them.
"""

import torch
from sgsdump_records import Values, encode
from sgsdump_torch_memory import Memories
from sgsdump_torch_statistics import quick, statistics
from sgsdump_torch_tensors import (
    checksum_of,
    dtype_word,
    in_c_order,
    payload,
    plain,
    synchronise,
    tensors_in,
    version,
)


class Taking:
    def __init__(self, session):
        self.session = session
        self.memories = Memories()

    def guard(self, round, function, *args):
        """Call something of the hook: what it does is not seen by itself, and no mistake of it reaches the program."""
        round.quiet = True
        index = self.session.index
        lines = index.hold()
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                return function(round, *args)
        except Exception as error:
            self.session.trouble("torch, step {}: {}: {}".format(round.step, type(error).__name__, error))
            return None
        finally:
            index.release(lines)
            round.quiet = False

    def before(self, round, operator, inputs):
        """Before an operator runs; returns whether it is dumped."""
        wanted = self.session.wants(operator.step, operator.name, operator.op_type, operator.ids, operator.model)
        if wanted:
            self.take(round, operator, "in", "before", inputs)
        return wanted

    def after(self, round, wanted, operator, inputs, outputs, param, nanoseconds, written):
        for tensor in written:
            self.memories.written(tensor)
        if wanted:
            self.take(round, operator, "in", "after", inputs)
            self.take(round, operator, "out", "after", tensors_in(outputs))
        timing = self.session.control.get("timing")
        self.session.operator(operator, param=param, nanoseconds=nanoseconds if timing else None)

    def step_begins(self, round, given):
        self.session.line(event="step", step=round.step, model=round.model, inputs=self._numbers(given))

    def step_ends(self, round, result, ended):
        outputs = self._numbers(result)
        self.session.line(event="step", step=round.step, model=round.model, outputs=outputs, ended=ended)

    def _numbers(self, value):
        return [self.memories.values(tensor).number for tensor in tensors_in(value) if plain(tensor)]

    def take(self, round, operator, side, moment, tensors):
        if moment in self.session.moments(side):
            content = self.session.control["content"]
            for slot, tensor in enumerate(tensors):
                self.tensor(round, content, operator, side, slot, moment, tensor)

    def tensor(self, round, content, operator, side, slot, moment, tensor):
        if not plain(tensor):
            self.session.tensor(operator, side, slot, moment, Values(dtype_word(tensor), tensor.shape))
            return
        seen, data, lying = self.memories.values(tensor), None, None
        weight = round.weight(seen.storage, tensor)
        if content == "stats":
            seen = self.with_statistics(round, seen, tensor, weight)
        elif content == "tensor":
            seen, lying = self.to_be_stored(seen, tensor)
            data = None if lying is None else payload(lying)
        self.session.tensor(operator, side, slot, moment, seen, data, weight)
        del lying  # until now, for the payload is its memory

    def with_statistics(self, round, seen, tensor, weight):
        """The values with their statistics. Of what is seen again in another step (weights, most of all) they are taken
        again where that is quick; else a checksum is asked whether it has changed."""
        known, when = seen.when, (round, version(tensor))
        if known == when:
            return seen
        synchronise(tensor)
        checksum = None
        if (weight or known is not None) and not quick(tensor):
            checksum = checksum_of(tensor)
        if known is None or checksum is None or checksum != seen.checksum:
            figures = statistics(tensor)
            if known is None:
                seen.tell(figures)
            elif encode(figures) != (seen.stats or "null"):
                seen = self.memories.renew(tensor, seen)
                seen.tell(figures)
        if checksum is not None:
            seen.checksum = checksum
        seen.when = when
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
