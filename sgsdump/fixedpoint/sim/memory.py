"""Working memory of a fixed model: the place of each tensor, and the operators of the dump that need it."""

from __future__ import annotations

from dataclasses import dataclass

from sgsdump.errors import ModelError
from sgsdump.fixedpoint.sim.file import INTEGER_KINDS, SimFile, SimTensor
from sgsdump.fixedpoint.sim.plan import groups_of


@dataclass(frozen=True, eq=False)
class Allocation:
    """A tensor in working memory: ``id`` is its position in the file, ``first`` and ``last`` are operator numbers."""

    id: int
    tensor: SimTensor
    first: int
    last: int

    @property
    def size(self) -> int:
        begin, end = self.tensor.memory
        return end - begin


@dataclass(frozen=True, eq=False)
class Memory:
    """``operators``: type and output of each operator of the dump; ``allocations`` in the order of their IDs."""

    operators: tuple[tuple[str, str], ...]
    allocations: tuple[Allocation, ...]

    def live(self, operator: int) -> list[Allocation]:
        """Return the tensors that the operator of this number reads, writes or must leave untouched."""
        return [each for each in self.allocations if each.first <= operator <= each.last]

    @property
    def bytes(self) -> int:
        return max((each.tensor.memory[1] for each in self.allocations), default=0)


def memory_of(sim: SimFile) -> Memory:
    """Return the places of a fixed model's tensors. Raises ModelError for a float model."""
    if sim.kind not in INTEGER_KINDS:
        raise ModelError(f"{sim.path} is a float model, which has no working memory. Pass fixed.sim")
    groups, spans = groups_of(sim), dict[int, tuple[int, int]]()
    for number, group in enumerate(groups):
        for index in (index for operator in group for index in (*operator.inputs, *operator.outputs)):
            spans[index] = (spans.get(index, (number, number))[0], number)
    allocations = [
        Allocation(index, tensor, *spans[index])
        for index, tensor in enumerate(sim.tensors)
        if index in spans and tensor.memory[1] > tensor.memory[0]
    ]
    operators = [
        (group[-1].kind, sim.tensors[group[-1].outputs[0]].name if group[-1].outputs else "") for group in groups
    ]
    return Memory(tuple(operators), tuple(allocations))
