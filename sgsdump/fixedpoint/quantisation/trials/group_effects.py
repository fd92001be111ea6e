"""Group testing: find the domains that affect the outputs by trying groups of neighbours and splitting them.

Noise adds up: the effect of several domains at 8 bits is about the sum of their single effects, as energy. A group with
little effect therefore has no member with much effect. If k of n domains matter, some k log n groups are tried instead
of n domains; if all matter, half as many again.
"""

from __future__ import annotations

from collections.abc import Callable

# A group is examined from this part of the threshold on, because sums of noise are not exact.
SURE = 0.5
# Groups up to this size whose members may all matter are not halved again.
SMALL = 4


class GroupEffects:
    """The effects of domains 0 to ``count`` - 1; ``effect`` measures a group, once each.

    bounds    effect of the smallest group tried with each domain, infinite before any trial.
    together  the size of that group.
    """

    def __init__(self, count: int, effect: Callable[[range], float]):
        self._count, self._effect = count, effect
        self._known: dict[range, float] = {}
        self.bounds = [float("inf")] * count
        self.together = [count] * count

    def at_least(self, floor: float) -> list[int]:
        """Return the domains whose own effect is at least ``floor``, from the last domain to the first.

        The first half of a group is tried next, because it runs the same up to the middle.
        """
        found = []
        pending = [range(self._count)] if self._count else []
        while pending:
            group = pending.pop()
            effect = self._of(group)
            if len(group) == 1:
                found += [group.start] if effect >= floor else []
            elif len(group) <= SMALL and effect >= len(group) * floor:
                pending += [range(index, index + 1) for index in reversed(group)]
            elif effect >= SURE * floor:
                middle = (group.start + group.stop) // 2
                pending += [range(middle, group.stop), range(group.start, middle)]
        return found[::-1]

    def _of(self, group: range) -> float:
        if group not in self._known:
            self._known[group] = effect = self._effect(group)
            for index in group:
                if len(group) <= self.together[index]:
                    self.bounds[index], self.together[index] = effect, len(group)
        return self._known[group]
