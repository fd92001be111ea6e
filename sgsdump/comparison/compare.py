"""``compare``: compare a dump under test with a reference dump, layer by layer.

``compare`` works in three steps, each in its own module: ``align`` pairs tensors, ``measure`` computes metrics of
each pair, and ``conclude`` collects further evidence for the causes of differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from sgsdump.dumps.trees import is_known
from sgsdump.errors import ConfigError
from sgsdump.files.process import cores
from sgsdump.progress import SILENT, Progress
from sgsdump.tensors.stages import Stage

if TYPE_CHECKING:
    from sgsdump.dumps.own_reader import ReaderFunction


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
    reader: str | Path | ReaderFunction | None = None,
    measured_by: MeasuredBy | None = None,
    progress: Progress = SILENT,
) -> Comparison:
    """Compare a sample with a benchmark and return a ``Comparison``.

    Parameters
    ----------
    sample, benchmark : Dump, str or Path
        Dump under test and reference dump, or paths of dumps in any format.
    inputs : bool
        If True, compare the inputs of the network too. By default only output tensors are compared. Inputs are always
        compared if a dump stores the inputs of each operator under separate names (``has_own_inputs``).
    name_map : mapping or NameSources, optional
        {benchmark name: sample name} for tensors whose names differ between the dumps. Or the contents of mapping files
        and rules.
    match_by_value : bool
        If True, pair tensors with equal values first, then the other tensors by name. Suitable for two float runs with
        the same weights.
    stages : sequence of Stage
        Stages of a Caffe model: the tensors that the SDK creates for the successive values of a blob. A fixed model
        from ``calibrate`` contains this table. If ``stages`` is empty, stages are recognised by their names, such as
        ``conv1_xx``.
    exclude : sequence of str
        Name patterns (``*``, ``?``, ``[ab]``). Tensors of either dump that match are left out; ``excluded`` of the
        result lists them.
    metrics : sequence of str or mapping
        Additional metrics, stored in ``extra`` of each row: names from ``METRICS``, or {name: function} with your own
        functions f(sample, benchmark) -> number. sgsdump calls each of your functions once per pair of tensors. The
        arguments are the real (dequantised) values of both tensors, as two arrays of equal shape. {name: None} selects
        a metric of ``METRICS``.
    settings : Settings, optional
        Parameters of the metrics in ``METRICS``.
    compatible : str, optional
        Vendor tool (a key of ``VENDOR_METRICS``) whose metrics are added to each row as ``vendor``. These metrics need
        whole tensors in memory.
    details : bool
        If True, compute the ``details`` of each row for a report, such as histograms and the error per channel. Reads
        all values a second time.
    threads : int, optional
        Number of tensors that are compared in parallel; by default one per core.
    reader : str, Path or callable, optional
        Reader of your own for the paths that sgsdump does not know; see ``open_dump``.
    measured_by : MeasuredBy, optional
        Function that compares the pairs elsewhere, for example on other machines. By default, threads of this process
        compare the pairs.
    progress : Progress
        Receives the number of compared pairs; see ``sgsdump.progress``.

    Returns
    -------
    Comparison
        One row per compared tensor, in the file order of the benchmark. ``failed`` lists pairs of tensors that cannot
        be compared. For such a pair, ``compare`` raises no error.

    Raises
    ------
    ConfigError
        If a metric or vendor tool is unknown, or if a name map or pattern matches no tensor.
    FormatError
        If a path is not a dump.

    Notes
    -----
    BLAS is limited to one thread during the comparison.

    Examples
    --------
    >>> import numpy as np
    >>> from sgsdump import Dump, Record, Tensor, compare
    >>> b = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    >>> float_run = Dump([Record("out", 0, 0, "Conv", Tensor.of("conv1", b))])
    >>> fixed_run = Dump([Record("out", 0, 0, "Conv", Tensor.of("conv1", b + np.float32(0.5)))])
    >>> comparison = compare(fixed_run, float_run, metrics=["MaxAbsoluteError"])
    >>> comparison.verdict().outcome
    'DIFFERS'
    >>> row = comparison["conv1"]
    >>> row.mse, row.rmse, row.extra["MaxAbsoluteError"]
    (0.25, 0.2, 0.5)
    >>> [row.name for row in comparison], len(comparison), comparison.passes()
    (['conv1'], 1, False)
    """
    sample, benchmark = _opened(sample, reader), _opened(benchmark, reader)
    _check_name_map(name_map)
    own_inputs = [has_own_inputs(dump) for dump in (sample, benchmark)]
    inputs = inputs or any(own_inputs)
    measures = Measures.of(metrics, settings, compatible, crop=not any(own_inputs), details=details)
    # Both dumps of one library use one order of axes; a different order would mean a different program.
    measures = replace(measures, turns=not (all(own_inputs) and sample.format == benchmark.format))
    names = name_map if name_map is None or isinstance(name_map, NameSources) else NameSources(name_map)
    threads = threads or cores()
    with _threads(threads, collecting=bool(measures.own)) as run:
        sides = Sides(sample, benchmark, inputs, names, match_by_value, stages, measured_by is not None, run)
        pairs = align(sides, exclude)
        how = Measuring(measures, threads, run, measured_by, progress, inputs, by_names=not all(own_inputs))
        rows = measure(pairs, how)
    return conclude(pairs, rows, measures)


@contextmanager
def _threads(count: int, collecting: bool) -> Iterator[Mapper]:
    """Yield a parallel version of ``map`` that uses ``count`` threads; meanwhile, limit BLAS to one thread.

    Garbage collection is disabled until the context manager exits. If the user passes metric functions, garbage
    collection stays enabled, because these functions can leave reference cycles of large arrays.
    """
    with (
        nullcontext() if collecting else collector_paused(),
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(count) as pool,
    ):
        yield pool.map


def _opened(dump: Dump | str | Path, reader: str | Path | ReaderFunction | None) -> Dump:
    if isinstance(dump, Dump):
        return dump
    if isinstance(dump, (str, Path)):
        return open_dump(dump, reader=None if reader is None or is_known(Path(dump)) else reader)
    raise ConfigError(f"compare takes Dump objects or paths, not {type(dump).__name__}")


def _check_name_map(name_map: Any) -> None:
    """Raise ConfigError if ``name_map`` is a path instead of a mapping of names."""
    if isinstance(name_map, (str, Path)):
        raise ConfigError(
            f"name_map must be a mapping {{benchmark name: sample name}}, not a path; read the file {name_map} "
            f"with sgsdump.comparison.naming.name_sources.read_name_sources"
        )
