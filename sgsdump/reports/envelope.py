"""The plans no other plan beats: the lower envelope of a trade-off."""

from __future__ import annotations

import math
from collections.abc import Iterable


def lower_envelope(plans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """(rate, error) of the plans with less error than every plan of the same rate or a smaller one, by rising rate.

    Plans whose error is NaN beat none.

    >>> lower_envelope([(0.5, 4.0), (0.6, 5.0), (0.7, 1.0), (0.5, 3.0)])
    [(0.5, 3.0), (0.7, 1.0)]
    """
    best, least = [], math.inf
    for rate, error in sorted(plan for plan in plans if not math.isnan(plan[1])):
        if error < least:
            best.append((rate, error))
            least = error
    return best
