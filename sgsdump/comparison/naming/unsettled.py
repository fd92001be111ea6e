"""What is left to pair while one source of names after another is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sgsdump.comparison.pairing.alignment import Pair
from sgsdump.dumps.dump import Record
from sgsdump.registry import listed

SHOWN = 3


@dataclass
class Unsettled:
    """The records that are not settled yet, the pairs made, and why others were set apart or are still unpaired (by
    the record's id)."""

    sample: list[Record]
    benchmark: list[Record]
    pairs: list[Pair] = field(default_factory=list)
    apart: dict[int, str] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)

    def take(self, pairs: Iterable[Pair]) -> None:
        """Keep the pairs of records that have one partner; set the others apart, with all they were given."""
        unique = {(id(pair.sample), id(pair.benchmark)): pair for pair in pairs}
        partners: defaultdict[int, list[Pair]] = defaultdict(list)
        for pair in unique.values():
            partners[id(pair.sample)].append(pair)
            partners[id(pair.benchmark)].append(pair)
        for pair in unique.values():
            of_sample, of_benchmark = partners[id(pair.sample)], partners[id(pair.benchmark)]
            if len(of_sample) == len(of_benchmark) == 1:
                self.pairs.append(pair)
                continue
            self.apart[id(pair.sample)] = _ambiguous(
                of_sample, [p.benchmark for p in of_sample], "benchmark", len(of_benchmark) > 1
            )
            self.apart[id(pair.benchmark)] = _ambiguous(
                of_benchmark, [p.sample for p in of_benchmark], "sample", len(of_sample) > 1
            )
        self.drop_settled()

    def drop_settled(self) -> None:
        settled = {id(r) for pair in self.pairs for r in (pair.sample, pair.benchmark)} | self.apart.keys()
        self.sample = [record for record in self.sample if id(record) not in settled]
        self.benchmark = [record for record in self.benchmark if id(record) not in settled]


def _ambiguous(pairs: list[Pair], partners: list[Record], side: str, contested: bool) -> str:
    hows = " and ".join(dict.fromkeys(pair.how for pair in pairs))
    others = ", which others are paired with too" if len(pairs) == 1 and contested else ""
    return (
        f"ambiguous: {hows} would pair it with {listed([r.name for r in partners], SHOWN, repr)} of the {side}{others}"
    )
