"""Which of many domains change the outputs: groups of neighbours are tried together, halved while they change much.

Noise adds up: what the 8 bits of several domains do to the outputs together is about the sum of what each does alone,
as energy, so a group that does little has no member that does much. Of n domains of which k matter some k log n groups
are tried in place of n domains; where all matter, half as many again.
"""

from __future__ import annotations

from collections.abc import Callable

# A group is looked into where it has this part of what is asked for: sums of noise are not exact.
SURE = 0.5
# Smaller groups of which all may matter are not halved again.
SMALL = 4


class GroupEffects:
    """The effects of domains 0 to ``count`` - 1, by ``effect`` of a group of them, measured once each.

    bounds    the effect of the smallest group tried with each domain in it, infinite before any is.
    together  the size of that group.
    """

    def __init__(self, count: int, effect: Callable[[range], float]):
        self._count, self._effect = count, effect
        self._known: dict[range, float] = {}
        self.bounds = [float("inf")] * count
        self.together = [count] * count

    def at_least(self, floor: float) -> list[int]:
        """The domains whose effect alone is at least ``floor``, the last first. A group is followed by its first half:
        what runs before the middle is the same."""
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
