"""Layered layout of a small directed graph: a row for each node, its place in the row, and the bends of long links.

The steps are those of Sugiyama, Tagawa and Toda (1981): rows by longest path, crossing reduction by barycentres, and
coordinates that are as close as possible to the mean of the neighbours. A coordinate step solves a least-squares
problem with minimum distances exactly, by pooling adjacent violators. All links of a node share one path through the
rows that they cross. The result depends only on the input; ties keep the order of the nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SWEEPS = 8  # of crossing reduction, and of coordinates
ALONE = 6  # nodes without links in a row
BEND = 0.16  # half of the width of a bend, relative to a node
HALF = 0.5  # half of the width of a node
STRAIGHT = 4.0  # weight of a neighbour on the other end of a long link, so that long links are straight


@dataclass(frozen=True)
class Layout:
    """Positions of nodes and links.

    Attributes
    ----------
    rows : tuple of int
        Row of each node, from 0 at the top.
    x : tuple of float
        Centre of each node in widths of a node; the smallest left edge is 0.
    bends : tuple of tuple of float
        For each link, its x at the rows between its ends, from the upper end to the lower end.
    width : float
        Width of the drawing in widths of a node.
    """

    rows: tuple[int, ...]
    x: tuple[float, ...]
    bends: tuple[tuple[float, ...], ...]
    width: float


def layered(count: int, links: Sequence[tuple[int, int]]) -> Layout:
    """Return the layout of the nodes 0 to ``count`` - 1.

    Parameters
    ----------
    count : int
        Number of nodes, which are numbered in execution order.
    links : sequence of (int, int)
        Links from a node to a node. A link to an earlier node is drawn upwards.
    """
    if not count:
        return Layout((), (), (), 0.0)
    down = [(min(link), max(link)) for link in links]
    rows = _rows(count, down)
    graph = _Rows(count, rows, down)
    graph.order()
    x = graph.coordinates()
    left = min(x[node] - HALF for node in range(count))
    bends = tuple(tuple(x[bend] - left for bend in graph.path(*link)) for link in down)
    width = max(x[node] + HALF for node in range(count)) - left
    return Layout(tuple(rows), tuple(x[node] - left for node in range(count)), bends, width)


def _rows(count: int, links: Iterable[tuple[int, int]]) -> list[int]:
    """Return the row of each node: below its sources; a node without sources is just above its first consumer."""
    sources: list[list[int]] = [[] for _ in range(count)]
    consumers: list[list[int]] = [[] for _ in range(count)]
    for source, consumer in links:
        if source != consumer:
            sources[consumer].append(source)
            consumers[source].append(consumer)
    rows = [0] * count
    for node in range(count):
        rows[node] = max((rows[source] + 1 for source in sources[node]), default=0)
    for node in reversed(range(count)):
        if not sources[node] and consumers[node]:
            rows[node] = min(rows[consumer] for consumer in consumers[node]) - 1
    alone = [node for node in range(count) if not sources[node] and not consumers[node]]
    first = max((rows[node] + 1 for node in range(count) if sources[node] or consumers[node]), default=0)
    for place, node in enumerate(alone):
        rows[node] = first + place // ALONE
    return rows


class _Rows:
    """Nodes and bends in rows. Bends are numbered after the nodes; all links of a source share its bends."""

    def __init__(self, count: int, rows: Sequence[int], links: Iterable[tuple[int, int]]):
        self.count = count
        self.row = list(rows)
        self.bends: list[list[int]] = [[] for _ in range(count)]  # of each source, from its next row on
        self.above: list[list[int]] = [[] for _ in range(count)]
        for source, consumer in sorted(set(links)):
            if source == consumer:
                continue
            self._extend(source, rows[consumer] - rows[source] - 1)
            last = self.path(source, consumer)[-1:] or [source]
            self.above[consumer].append(last[0])
        self.below: list[list[int]] = [[] for _ in self.row]
        for node, above in enumerate(self.above):
            for each in above:
                self.below[each].append(node)
        self.rows: list[list[int]] = [[] for _ in range(max(self.row) + 1)]
        for node in [*range(count), *sorted(range(count, len(self.row)), key=lambda bend: self.row[bend])]:
            self.rows[self.row[node]].append(node)

    def _extend(self, source: int, length: int) -> None:
        bends = self.bends[source]
        while len(bends) < length:
            self.above.append([bends[-1] if bends else source])
            bends.append(len(self.row))
            self.row.append(self.row[source] + len(bends))

    def path(self, source: int, consumer: int) -> list[int]:
        """Return the bends between the ends of a link."""
        return self.bends[source][: max(self.row[consumer] - self.row[source] - 1, 0)]

    def order(self) -> None:
        """Sort the nodes of each row so that few links cross."""
        best, fewest = [list(row) for row in self.rows], self._crossings()
        for sweep in range(SWEEPS):
            if not fewest:
                break
            neighbours, rows = (self.below, self.rows[-2::-1]) if sweep % 2 else (self.above, self.rows[1:])
            place = self._places()
            for row in rows:
                wanted = {
                    node: sum(place[each] for each in neighbours[node]) / len(neighbours[node])
                    if neighbours[node]
                    else place[node]
                    for node in row
                }
                row.sort(key=lambda node: wanted[node])
                for at, node in enumerate(row):
                    place[node] = at
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows = best

    def _places(self) -> list[float]:
        place = [0.0] * len(self.row)
        for row in self.rows:
            for at, node in enumerate(row):
                place[node] = at
        return place

    def _crossings(self) -> int:
        place, total = self._places(), 0
        for row in self.rows[1:]:
            ends = [place[above] for node in row for above in sorted(self.above[node], key=lambda each: place[each])]
            total += _inversions(ends)
        return total

    def coordinates(self) -> list[float]:
        """Return the x of each node and bend."""
        x = [0.0] * len(self.row)
        half = [HALF if node < self.count else BEND for node in range(len(self.row))]
        offsets = [_offsets(row, half) for row in self.rows]
        for row, offset in zip(self.rows, offsets):
            for node, at in zip(row, offset):
                x[node] = at - (offset[-1] + half[row[-1]]) / 2
        for sweep in range(SWEEPS):
            numbers = range(len(self.rows))
            for number in numbers if sweep % 2 == 0 else reversed(numbers):
                row, offset = self.rows[number], offsets[number]
                targets, weights = zip(*(self._target(node, x) for node in row))
                for node, at in zip(row, separated(targets, weights, offset)):
                    x[node] = at
        return x

    def _target(self, node: int, x: Sequence[float]) -> tuple[float, float]:
        """Return the mean x of the neighbours, and its weight."""
        total = weight = 0.0
        for each in (*self.above[node], *self.below[node]):
            one = STRAIGHT if node >= self.count or each >= self.count else 1.0
            total += one * x[each]
            weight += one
        return (total / weight, weight) if weight else (x[node], 0.1)


def _offsets(row: Sequence[int], half: Sequence[float]) -> list[float]:
    """Return the smallest possible x of each node of a row."""
    offsets, at = [], 0.0
    for node in row:
        offsets.append(at + half[node])
        at += 2 * half[node]
    return offsets


def separated(targets: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return positions near the targets whose distances are at least those of ``offsets``, by weighted least squares.

    >>> separated([0.0, 0.0], [1.0, 1.0], [0.0, 1.0])
    [-0.5, 0.5]
    """
    blocks: list[list[float]] = []  # mean, weight, count
    for target, weight, offset in zip(targets, weights, offsets):
        blocks.append([target - offset, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, size, count = blocks.pop()
            before = blocks[-1]
            before[0] = (before[0] * before[1] + mean * size) / (before[1] + size)
            before[1] += size
            before[2] += count
    means = (mean for mean, _, count in blocks for _ in range(int(count)))
    return [mean + offset for mean, offset in zip(means, offsets)]


def _inversions(values: Iterable[float]) -> int:
    """Return the number of pairs that are in the wrong order."""
    seen: list[float] = []
    total = 0
    for value in values:
        at = bisect_right(seen, value)
        total += len(seen) - at
        seen.insert(at, value)
    return total
