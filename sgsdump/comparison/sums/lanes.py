"""The order in which the sums of a pair are added up.

A chunk of at most CHUNK values is seen as rows of LANES values: value i belongs to lane i % LANES. Each lane is summed
row by row, and then added to the lane's total; at the end the lanes are added up, the first one first. All of it is
float64. So the digits depend on nothing but the values: not on the processor, the number of threads, or whether the
compiled kernel is there. (Dot products, as fast as they are, have another order on every processor.)
"""

from __future__ import annotations

LANES = 256
CHUNK = 1 << 15
SUMS = 6
COUNTS = 7
# Of a part of a pair: Σa², Σb², Σab, Σd², Σ|d| and Σ|b|, and the counts of ``Sums`` from ``sample_nan`` on.
Part = tuple[list[float], list[int]]
