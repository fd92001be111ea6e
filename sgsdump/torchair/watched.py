"""The watcher: the outputs of watched operators, after themselves and again after each listed operator.

An operator that is in both lists, and collective communication, dump nothing but what is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sgsdump.torchair.dumped import write
from sgsdump.torchair.operators import Operator
from sgsdump.torchair.plan import Plan
from sgsdump.torchair.tree import Step
from sgsdump.torchair.unwritten import NotWritten


class Watched:
    """``listed`` None: after every operator."""

    def __init__(self, plan: Plan, step: Step, watched: frozenset[str], listed: frozenset[str] | None):
        self._plan = plan
        self._step = step
        self._watched = watched
        self._listed = listed
        self._held: list[tuple[Operator, Sequence[Any]]] = []

    def before(self, operator: Operator, inputs: Sequence[Any]) -> Sequence[Any]:
        return ()

    def after(self, operator: Operator, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if operator.node in self._watched:
            self._held.append((operator, outputs))
            write(self._plan, self._step, operator, (), outputs)
        elif self._is_listed(operator):
            for one, held in self._held:
                now = [tensor.now() if isinstance(tensor, NotWritten) else tensor for tensor in held]
                write(self._plan, self._step, operator, (), now, watched=one)

    def _is_listed(self, operator: Operator) -> bool:
        if operator.is_data or operator.is_collective:
            return False
        return self._listed is None or operator.node in self._listed
