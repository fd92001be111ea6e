"""Convolutions with groups, which the SDK's converter makes into one convolution for each: ``X_conv#0_output#0`` …"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sgsdump.tensors.types import Range


def joined(ranges: Mapping[str, Range], pattern: str, groups: int, repeat: int) -> Range | None:
    """The ranges of all groups' tensors behind one another, each value ``repeat`` times; None when one is missing."""
    parts = [ranges.get(pattern.format(index)) for index in range(groups)]
    if any(part is None for part in parts):
        return None
    low = np.concatenate([np.repeat(part.min, repeat) for part in parts if part is not None])
    high = np.concatenate([np.repeat(part.max, repeat) for part in parts if part is not None])
    return Range(low, high)
