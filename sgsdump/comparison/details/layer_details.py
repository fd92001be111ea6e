"""The details of one pair of tensors in one pass over its values, and those of several pictures merged.

``details_of(pair)`` gives one picture's; ``merged`` those of several, without loss: bins are whole powers of two wide
and begin at a whole multiple of their width, so that the bins of two pictures can be made alike by adding neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.details.details import Details
from sgsdump.tensors.value_range import Range


def details_of(pair: Pair, range: Range | None = None, picture: str = "") -> Details:
    """One pass over a pair, its layouts matched as ``compare`` does; memory is that of a few chunks of values.

    Raises SgsdumpError where the pair cannot be compared.
    """
    raise NotImplementedError


def merged(details: Sequence[Details]) -> Details:
    """The details of several pictures of one layer: counts and sums are added, the heat map is that of the worst."""
    raise NotImplementedError
