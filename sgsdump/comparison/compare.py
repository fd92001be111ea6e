"""Compare a dump under test with a reference dump, layer by layer: ``compare`` gives a ``Comparison``.

It has three stages, each a module of its own: ``align`` pairs tensors, ``measure`` compares their values, and
``conclude`` says what the figures mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from sgsdump.comparison.align import align
from sgsdump.comparison.alignment import Mapper, has_own_inputs
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.conclude import conclude
from sgsdump.comparison.measure import MeasuredBy, Measuring, measure
from sgsdump.comparison.metrics import Settings
from sgsdump.comparison.naming.name_sources import NameSources
from sgsdump.comparison.naming.sides import Sides
from sgsdump.comparison.own_metric import Asked
from sgsdump.comparison.pair_result import Measures
from sgsdump.dumps.collector import collector_paused
from sgsdump.dumps.dump import Dump
from sgsdump.dumps.io import open_dump
from sgsdump.errors import ConfigError
from sgsdump.files.process import cores
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.stages import Stage


def compare(
    sample: Dump | str | Path,
    benchmark: Dump | str | Path,
    *,
    inputs: bool = False,
    name_map: Mapping[str, str] | NameSources | None = None,
    match_by_value: bool = False,
    stages: Sequence[Stage] = (),
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
    stages    the table of stages that the model of a Caffe network carries; without it, names tell.
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
    Raises ConfigError for an unknown metric or vendor's tool, FormatError for a path that is not a dump.

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
    own_inputs = [has_own_inputs(dump) for dump in (sample, benchmark)]
    inputs = inputs or any(own_inputs)
    measures = Measures.of(metrics, settings, compatible, crop=not any(own_inputs), details=details)
    # One library keeps the order of axes from run to run: where they differ, the program is another one.
    measures = replace(measures, turns=not (all(own_inputs) and sample.format == benchmark.format))
    names = name_map if name_map is None or isinstance(name_map, NameSources) else NameSources(name_map)
    threads = threads or cores()
    with _threads(threads, collecting=bool(measures.own)) as run:
        sides = Sides(sample, benchmark, inputs, names, match_by_value, stages, measured_by is not None, run)
        pairs = align(sides, exclude)
        how = Measuring(measures, threads, run, measured_by, progress, inputs, by_names=not all(own_inputs))
        rows = measure(pairs, how)
    return conclude(pairs, rows)


@contextmanager
def _threads(count: int, collecting: bool) -> Iterator[Mapper]:
    """Give what maps over so many threads; BLAS has one. The collector runs meanwhile only where a metric of the user's
    may leave cycles of large arrays."""
    with (
        nullcontext() if collecting else collector_paused(),
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(count) as pool,
    ):
        yield pool.map


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
            f"with sgsdump.comparison.naming.name_sources.read_name_sources"
        )
