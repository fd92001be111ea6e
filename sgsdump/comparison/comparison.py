"""Hold a sample dump against a benchmark dump, layer by layer: ``compare`` gives a ``Comparison``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from sgsdump.comparison.alignment import Alignment, Given, Pair, Unpaired, align
from sgsdump.comparison.batches import in_batches
from sgsdump.comparison.dataflow import with_rises
from sgsdump.comparison.metrics.base import Settings
from sgsdump.comparison.misnaming.match_by_value import pairs_by_value
from sgsdump.comparison.misnaming.misnamed import find_misnamed
from sgsdump.comparison.misnaming.value_probes import Probes
from sgsdump.comparison.naming.pairs_by_map import pairs_by_map
from sgsdump.comparison.naming.pairs_by_network import placed
from sgsdump.comparison.naming.sources import NameSources
from sgsdump.comparison.own_inputs import has_own_inputs
from sgsdump.comparison.own_metric import Asked
from sgsdump.comparison.pair_result import Measures
from sgsdump.comparison.row import Failed, Row
from sgsdump.comparison.tables import frame_of
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.io import open_dump
from sgsdump.errors import ConfigError
from sgsdump.notebook import as_html
from sgsdump.progress import SILENT, Progress, each
from sgsdump.registry import hint
from sgsdump.tensors.cores import cores

if TYPE_CHECKING:
    import pandas


JUMP_SHARE = 0.1
# Who measures the pairs of a sample and a benchmark: their results in the pairs' order.
MeasuredBy = Callable[[Measures, Dump, Dump, Sequence[Pair]], Iterable[Row | Failed]]


@dataclass(frozen=True)
class Comparison:
    """The result: rows in the benchmark's file order, everything that was not compared, and the dumps' notes.

    It is a collection of its rows: ``len(comparison)``, ``for row in comparison``, ``comparison["conv1"]``,
    ``"conv1" in comparison``.
    """

    rows: tuple[Row, ...]
    only_in_sample: tuple[Unpaired, ...]
    only_in_benchmark: tuple[Unpaired, ...]
    failed: tuple[Failed, ...]
    sample_notes: tuple[str, ...] = ()
    benchmark_notes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def suspects(self) -> tuple[Row, ...]:
        """Rows whose names agree although they are different tensors."""
        return tuple(row for row in self.rows if row.misnamed)

    @property
    def alike(self) -> tuple[Row, ...]:
        """Rows that hold one tensor against the same one: all but the suspects."""
        return tuple(row for row in self.rows if not row.misnamed)

    @property
    def worst(self) -> Row | None:
        """The row of the largest error (Σ|a-b|/Σ|b|; NaN and Inf first), suspects apart."""
        return max(self.alike or self.rows, key=lambda row: (row.error, -row.cos), default=None)

    @property
    def jumps(self) -> tuple[Row, ...]:
        """Where the error arises: the rows whose error rises over the layers that feed them, steepest first.

        Rises below a tenth of the steepest finite one are left out.
        """
        rising = sorted((row for row in self.alike if row.rise > 0), key=lambda row: -row.rise)
        steepest = next((row.rise for row in rising if math.isfinite(row.rise)), 0.0)
        return tuple(row for row in rising if row.rise >= JUMP_SHARE * steepest)

    def past(self, thresholds: Thresholds = DOCUMENTED) -> tuple[Row, ...]:
        """The rows past the thresholds, suspects apart."""
        return tuple(row for row in self.alike if not row.passes(thresholds))

    def passes(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        """True when something was compared, nothing failed to be, and every row (suspects too) is within."""
        return bool(self.rows) and not self.failed and all(row.passes(thresholds) for row in self.rows)

    def check_layers(self, thresholds: Thresholds) -> None:
        """Raises ConfigError where a layer that has limits of its own is not among those compared."""
        names = [row.name for row in self.rows] + [failed.pair.benchmark.name for failed in self.failed]
        for pattern, _, _ in thresholds.layers:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(f"the limit on {pattern!r} is of no compared layer{hint(pattern, names)}")

    def __getitem__(self, name: str) -> Row:
        """The row of the benchmark's tensor of this name, the first one in file order when several bear it.

        Raises KeyError with the nearest names, or with the reason why the tensor was not compared.
        """
        for row in self.rows:
            if row.name == name:
                return row
        reason = self._why_not_compared(name) or f"no compared layer {name!r}"
        raise KeyError(f"{reason}{hint(str(name), {row.name: row for row in self.rows})}")

    def __contains__(self, item: object) -> bool:
        """True for a row and for a row's name."""
        return any(row.name == item or row is item for row in self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        apart = {
            "failed": self.failed,
            "only in sample": self.only_in_sample,
            "only in benchmark": self.only_in_benchmark,
        }
        parts = [
            f"{len(self.rows)} layer{'' if len(self.rows) == 1 else 's'}",
            *(f"{len(items)} {what}" for what, items in apart.items() if items),
        ]
        if self.worst is not None:
            parts.append(f"worst {self.worst.name!r} COS {self.worst.cos:f} RMSE {self.worst.rmse:f}")
        return f"<Comparison: {', '.join(parts)}>"

    def _repr_html_(self) -> str | None:
        """The verdict, the error over depth and the worst rows, for a notebook."""
        return as_html("comparison", self)

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas DataFrame with one line per row: names, counts, metrics, further metrics by name, and the remarks.

        Raises MissingExtra when pandas is not installed.
        """
        return frame_of(self.rows)

    def _why_not_compared(self, name: str) -> str:
        apart = [(failed.pair.benchmark.name, failed.reason) for failed in self.failed]
        apart += [(unpaired.record.name, unpaired.reason) for unpaired in self.only_in_benchmark + self.only_in_sample]
        return next((f"{name!r} was not compared: {reason}" for other, reason in apart if other == name), "")


def compare(
    sample: Dump | str | Path,
    benchmark: Dump | str | Path,
    *,
    inputs: bool = False,
    name_map: Mapping[str, str] | NameSources | None = None,
    match_by_value: bool = False,
    exclude: Sequence[str] = (),
    metrics: Asked = (),
    settings: Settings | None = None,
    compatible: str | None = None,
    details: bool = False,
    threads: int | None = None,
    measured_by: MeasuredBy | None = None,
    progress: Progress = SILENT,
) -> Comparison:
    """Compare the dump under test with the reference, output tensors only; with ``inputs`` the network's inputs too,
    and so where either dump has each operator's inputs under names of their own (``has_own_inputs``).

    sample, benchmark  dumps, or paths of dumps of any format.
    name_map  benchmark name -> sample name, for pairs that names do not make; or all that mapping files and rules say.
    match_by_value  pair what holds the same values (two float runs of the same weights), and the rest by name.
    exclude   patterns of names (``*``, ``?``, ``[ab]``) of either dump that are left out; they are in ``excluded``.
    metrics   further metrics for the rows' ``extra``: names (of ``METRICS``; ``settings`` are for these), or {name:
              function} with functions of your own, f(sample, benchmark) -> number, called for each pair with two arrays
              of real values of one shape (None: the metric of ``METRICS`` of this name).
    compatible  a vendor's tool (of ``VENDOR_METRICS``), for the rows' ``vendor``; it reads whole tensors.
    details   the rows get ``details`` (histograms, error per channel …) for a report, in a pass of their own.
    threads   how many tensors are compared at once; None is one per core.
    measured_by  measures the pairs elsewhere, on other machines say; None is in threads of this process.
    progress  shows how many pairs are done; see ``sgsdump.progress``.

    Nothing raises for a single pair: what cannot be compared is in ``failed``. BLAS is held to one thread meanwhile.
    Raises ConfigError for an unknown metric or vendor's tool, FormatError for a path that is no dump.

    >>> import numpy as np
    >>> from sgsdump import Dump, Record, Tensor, compare
    >>> b = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    >>> float_run = Dump([Record("out", 0, 0, "Conv", Tensor.of("conv1", b))])
    >>> fixed_run = Dump([Record("out", 0, 0, "Conv", Tensor.of("conv1", b + np.float32(0.5)))])
    >>> comparison = compare(fixed_run, float_run, metrics=["MaxAbsoluteError"])
    >>> comparison
    <Comparison: 1 layer, worst 'conv1' COS 0.997965 RMSE 0.200000>
    >>> row = comparison["conv1"]
    >>> row.mse, row.rmse, row.extra["MaxAbsoluteError"]
    (0.25, 0.2, 0.5)
    >>> [row.name for row in comparison], len(comparison), comparison.passes()
    (['conv1'], 1, False)
    """
    sample, benchmark = _opened(sample), _opened(benchmark)
    _check_name_map(name_map)
    own_inputs = has_own_inputs(sample) or has_own_inputs(benchmark)
    inputs = inputs or own_inputs
    measures = Measures.of(metrics, settings, compatible, crop=not own_inputs, details=details)
    given = pairs_by_map(sample, benchmark, name_map, inputs) if name_map else Given()
    threads = threads or cores()
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        if match_by_value:
            given = pairs_by_value(sample, benchmark, inputs, given, pool.map)
        places = placed(sample, benchmark, inputs, given, pairing=not (name_map or match_by_value))
        alignment = align(sample, benchmark, inputs, places.given)
        alignment, excluded = _without(alignment, exclude)
        # Where inputs have names of their own one tensor has several: what one operator gives and the next one takes.
        repeats = has_own_inputs(sample) and has_own_inputs(benchmark)
        probes = None if repeats else Probes()
        stream: Iterable[Row | Failed] = (
            measured_by(measures, sample, benchmark, alignment.pairs)
            if measured_by
            else in_batches(pool.map, replace(measures, threads=threads), alignment.pairs, probes)
        )
        results = list(each(progress, stream, "compare", "layer", len(alignment.pairs)))
        misnamed = {} if repeats else find_misnamed(alignment.pairs, results, sample, benchmark, inputs, probes)
    rows = [
        replace(result, misnamed=misnamed.get(i), module=module) if i in misnamed or module else result
        for i, (result, pair) in enumerate(zip(results, alignment.pairs))
        if isinstance(result, Row)
        for module in [places.module_of(pair)]
    ]
    failed = [
        replace(result, reason=f"{result.reason}; {misnamed[i]}" if i in misnamed else result.reason)
        for i, result in enumerate(results)
        if isinstance(result, Failed)
    ]
    return Comparison(
        tuple(with_rises(rows, sample, benchmark, places.sources)),
        alignment.only_in_sample,
        alignment.only_in_benchmark,
        tuple(failed),
        sample.notes,
        benchmark.notes,
        excluded,
    )


def _without(alignment: Alignment, patterns: Sequence[str]) -> tuple[Alignment, tuple[str, ...]]:
    """What is left without the names that fit a pattern, and these names. Raises ConfigError for one that fits none."""
    if isinstance(patterns, str):
        raise ConfigError(f"exclude is a list of patterns, not a string; write exclude={[patterns]}")
    names: dict[str, None] = {}

    def stays(*records: Record) -> bool:
        fitting = [r.name for r in records if any(fnmatchcase(r.name, pattern) for pattern in patterns)]
        names.update(dict.fromkeys(fitting[-1:]))
        return not fitting

    kept = Alignment(
        tuple(pair for pair in alignment.pairs if stays(pair.sample, pair.benchmark)),
        tuple(one for one in alignment.only_in_sample if stays(one.record)),
        tuple(one for one in alignment.only_in_benchmark if stays(one.record)),
    )
    every = [r.name for pair in alignment.pairs for r in (pair.sample, pair.benchmark)]
    every += [one.record.name for one in alignment.only_in_sample + alignment.only_in_benchmark]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in every):
            raise ConfigError(f"nothing is named {pattern!r} among the compared tensors{hint(pattern, every)}")
    return kept, tuple(names)


def _opened(dump: Dump | str | Path) -> Dump:
    if isinstance(dump, Dump):
        return dump
    if isinstance(dump, (str, Path)):
        return open_dump(dump)
    raise ConfigError(f"compare takes dumps or their paths, not {type(dump).__name__}")


def _check_name_map(name_map: Any) -> None:
    """Raises ConfigError for a path, whose letters would be taken for names."""
    if isinstance(name_map, (str, Path)):
        raise ConfigError(
            f"name_map is a mapping {{benchmark name: sample name}}, not a string or a path; read the file {name_map} "
            f"with sgsdump.comparison.naming.sources.read_name_sources"
        )
