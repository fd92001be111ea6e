"""The tensor of a graph at which an error is made, found by trying few of them.

An error, once made, mostly stays: what is computed from a wrong tensor is wrong too. So a tensor that agrees clears all
that it is computed from, and where one disagrees the culprit is among those it is computed from. As ``git bisect`` does
with commits, each try takes the tensor that splits the suspects most evenly. Where operators read at most d
tensors one of the two parts is never smaller than about 1/(d+1), so that the tries grow with log N; a fork of many
branches costs up to one try for each branch.

An error can also be swallowed on its way (a Relu, a maximum, a sum of much larger values). So the tensor found is
verified: the tensors it reads are dumped too, and while one of them disagrees the search goes on from there. The result
disagrees while everything it is made from agrees. When several nodes are at fault it is one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence


class Search:
    """One search in one graph; ``ask`` gives a tensor's difference, each tensor is asked for once.

    reads  the tensors each tensor is made from; each behind those it is made from.
    tried  the differences asked for, in that order.
    """

    def __init__(self, reads: Mapping[str, Sequence[str]], threshold: float, ask: Callable[[str], float | None]):
        self.tried: dict[str, float | None] = {}
        self._reads = reads
        self._threshold = threshold
        self._ask = ask
        self._names = list(reads)
        self._place = {name: place for place, name in enumerate(self._names)}
        # Sets of tensors as the bits of integers: a tensor with all that it is made from.
        self._cone: dict[str, int] = {}
        for place, name in enumerate(self._names):
            cone = 1 << place
            for source in reads[name]:
                cone |= self._cone[source]
            self._cone[name] = cone

    def run(self) -> str | None:
        """The tensor that disagrees while its sources agree; None when what was tried agrees."""
        target = next((name for name in self._first_looks() if self._try(name)), None)
        culprit = None
        cleared = self._cleared(self.tried)
        while target is not None:
            culprit = self._narrow(target, cleared)
            bad = [name for name in self.sources(culprit) if self._is_bad(name)]
            target = min(bad, key=self._place.__getitem__, default=None)
            if target is not None:
                # The error was swallowed somewhere below: what agrees there clears nothing any more.
                cleared = self._cleared(self._members(self._cone[target]))
        return culprit

    def sources(self, name: str) -> list[str]:
        """What a tensor is made from, all of it tried; an unknown tensor is replaced by what it is made from."""
        made_from: list[str] = []
        seen: set[str] = set()
        pending = list(reversed(self._reads[name]))
        while pending:
            source = pending.pop()
            if source in seen:
                continue
            seen.add(source)
            self._try(source)
            if self.tried[source] is None:
                pending += reversed(self._reads[source])
            else:
                made_from.append(source)
        return made_from

    def _first_looks(self) -> list[str]:
        """The graph's ends, the one with most behind it first; then tensors spread evenly."""
        read = {source for sources in self._reads.values() for source in sources}
        ends = [name for name in self._names if name not in read]
        ends.sort(key=lambda name: -self._cone[name].bit_count())
        count = len(self._names)
        step = max(1, round(count / max(1.0, math.log2(max(count, 1)))))
        return [*ends, *reversed(self._names[::step])]

    def _narrow(self, target: str, cleared: int) -> str:
        """The tensor at which the suspects, those the target is made from, end."""
        suspects = self._cone[target] & ~cleared
        target = next((name for name in self._members(suspects) if self._is_bad(name)), target)
        suspects &= self._cone[target]
        while waiting := [name for name in self._members(suspects) if name not in self.tried]:
            name = max(waiting, key=lambda each: self._evenness(each, suspects))
            if self._try(name):
                target = name
                suspects &= self._cone[name]
            elif self.tried[name] is not None:
                suspects &= ~self._cone[name]
        return target

    def _evenness(self, name: str, suspects: int) -> int:
        part = (self._cone[name] & suspects).bit_count()
        return min(part, suspects.bit_count() - part)

    def _try(self, name: str) -> bool:
        """Whether the tensor disagrees."""
        if name not in self.tried:
            self.tried[name] = self._ask(name)
        return self._is_bad(name)

    def _is_bad(self, name: str) -> bool:
        value = self.tried.get(name)
        return value is not None and not value <= self._threshold

    def _cleared(self, names: Iterable[str]) -> int:
        """The tensors that these are made from, where these agree."""
        cleared = 0
        for name in names:
            if self.tried.get(name) is not None and not self._is_bad(name):
                cleared |= self._cone[name]
        return cleared

    def _members(self, tensors: int) -> list[str]:
        return [name for place, name in enumerate(self._names) if tensors >> place & 1]
