"""What the reports of layers are made of: ``LayerTable`` and its ``Entry``, and which entries are listed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sgsdump.reports.shown import number

Figure = float | int | str | bool
Status = Literal["compared", "failed", "only in benchmark", "only in sample", "without counterpart", "excluded"]


@dataclass(frozen=True)
class Entry:
    """A layer of either dump.

    sample_name  what the sample calls it.
    verdict      pass, warn or fail; "not comparable" where the status is not "compared".
    passes       whether it is within the limits; another tensor of the same name never is.
    figures      by the metric's name, in the order they are shown; empty for what was not compared.
    error        what entries are ranked by; infinite where NaN or Inf is among the values.
    limits       what the figures were held against, in words.
    remark       on how it was compared, or why it was not.
    """

    name: str
    verdict: str
    op_type: str = ""
    op_index: int | None = None
    sample_name: str = ""
    status: Status = "compared"
    figures: Mapping[str, Figure] = field(default_factory=dict)
    error: float = 0.0
    limits: str = ""
    remark: str = ""
    passes: bool = True

    @property
    def bad(self) -> bool:
        return self.verdict == "fail" or not self.passes


@dataclass(frozen=True)
class LayerTable:
    """A whole comparison.

    verdict  sentences that say it all.
    entries  in the benchmark's order, and then what was not compared.
    """

    title: str
    verdict: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def compared(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.status == "compared")

    @property
    def left_out(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.status != "compared")


@dataclass(frozen=True)
class Listing:
    """Which layers a table lists, and in which order.

    sort  depth is the network's order, worst has the largest error first.
    top   only so many of the largest errors; None for all.
    """

    sort: Literal["depth", "worst"] = "depth"
    top: int | None = None
    only_bad: bool = False

    def places(self, entries: Sequence[Entry]) -> list[int]:
        """Where the listed entries stand, in the order to list them."""
        some = [place for place, entry in enumerate(entries) if entry.bad or not self.only_bad]
        ranked = sorted(some, key=lambda place: -_rank(entries[place]))[: self.top]
        return ranked if self.sort == "worst" else sorted(ranked)


def by_reason(entries: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names under each reason, of (name, reason): one that many share is given once."""
    groups: dict[str, list[str]] = {}
    for name, reason in entries:
        groups.setdefault(reason, []).append(name)
    return groups


def as_text(figure: Figure) -> str:
    """A figure as every report for people shows it: six decimals, small and large ones in full, nan and inf as such."""
    return number(float(figure)) if isinstance(figure, float) else str(figure)


def title_of(figure: str) -> str:
    """The heading of a figure's column."""
    return figure.upper() if figure in ("rmse", "cos", "mse") else figure


def in_a_line(figures: Mapping[str, Figure]) -> str:
    """``RMSE 0.020000, COS 0.999800``."""
    return ", ".join(f"{title_of(name)} {as_text(figure)}" for name, figure in figures.items())


def _rank(entry: Entry) -> float:
    return math.inf if math.isnan(entry.error) else entry.error
