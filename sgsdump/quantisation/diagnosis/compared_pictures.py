"""Both models on several pictures, compared layer by layer over all of them.

Each picture's values live in two files without names until they are compared; only sums, counts and histograms stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sgsdump.comparison.compare import compare
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.merge import merge_each
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.spooled import spooled
from sgsdump.models.model import Model
from sgsdump.progress import SILENT, Progress, each
from sgsdump.quantisation.diagnosis.picture_pairs import PicturePair, PicturePairs
from sgsdump.quantisation.fixed_metadata import read_facts
from sgsdump.quantisation.simulation.simulation import Simulation, Simulator
from sgsdump.tensors.types import NCHW, NHWC


@dataclass(frozen=True, eq=False)
class Compared:
    """``comparison`` is over all pictures; ``sample`` and ``benchmark`` are dumps of one of them, for facts: their
    values are gone."""

    comparison: Comparison
    sample: Dump
    benchmark: Dump


class PictureComparer:
    """Compares the fixed with the float model on one picture after another.

    folder  for the values of the picture at work.

    The sessions of the fixed model, several times as many as those of the float one, are made for each picture: kept,
    they would be the largest part of the memory.
    """

    def __init__(self, float_model: Model, fixed_model: Model, folder: Path):
        facts = read_facts(fixed_model)
        self._pictures = {name for name, tensor in facts.tensors.items() if tensor.picture} if facts else set()
        self._float = Simulator(float_model, keep_sessions=True)
        self._fixed = Simulator(fixed_model)
        self._folder = folder

    def compare(self, picture: PicturePair) -> Compared:
        """The comparison on one picture, with details."""
        benchmark = _dump(self._float.run(picture.feed), self._folder)
        sample = _dump(self._fixed.run(picture.fixed_feed(self._pictures)), self._folder)
        with sample, benchmark:
            return Compared(compare(sample, benchmark, details=True), sample, benchmark)


def each_compared(comparer: PictureComparer, pairs: PicturePairs) -> Iterator[Compared]:
    """The comparison on each picture, one after another. Raises what making feeds and running the models raise."""
    return (comparer.compare(pairs.make(index)) for index in range(len(pairs)))


def over_all(results: Iterable[Compared], labels: Sequence[str], progress: Progress = SILENT) -> Compared:
    """The comparison over all pictures, from those on each of them, which are as they are needed."""
    dumps: list[Dump] = []

    def compared() -> Iterator[tuple[str, Comparison]]:
        for label, result in zip(labels, each(progress, results, "compare", "picture", len(labels))):
            dumps[:] = [result.sample, result.benchmark]
            yield label, result.comparison

    return Compared(merge_each(compared()), *dumps)


def _dump(simulation: Simulation, folder: Path) -> Dump:
    """All tensors in the model's own order of axes."""
    return spooled(map(_as_computed, simulation.records), folder)


def _as_computed(record: Record) -> Record:
    tensor = record.tensor
    if record.constant or tensor.layout != NHWC or tensor.ndim != 4:
        return record
    return replace(record, tensor=tensor.in_layout(NCHW))
