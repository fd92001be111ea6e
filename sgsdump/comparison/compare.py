"""Compare a dump under test with a reference dump, layer by layer: ``compare`` gives a ``Comparison``.

Pairs go to threads by the batch: handing over one by one costs more than a small pair itself. The sums of a batch are
one call of the kernel where that is possible: what Python does for a pair is three times as slow just after the values
of another one went through the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from sgsdump.comparison.alignment import Pair, Settled, align, compared, has_own_inputs, without, without_unwritten
from sgsdump.comparison.causes import (
    argument_findings,
    cancelled,
    causes,
    source_of,
    with_collectives,
    with_sources,
)
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.completeness import completeness_of
from sgsdump.comparison.dataflow import known_sources, network_outputs, with_rises
from sgsdump.comparison.environment import environment_findings, other_inputs, other_runs, within_module
from sgsdump.comparison.layout_match import RETRY_BELOW
from sgsdump.comparison.low_precision import Rounding, TwoRuns, is_quantised, of_low_precision, types_of_products
from sgsdump.comparison.masks import without_masked
from sgsdump.comparison.match_by_value import pairs_by_value
from sgsdump.comparison.metrics import Settings
from sgsdump.comparison.naming.fused_parts import split_fused
from sgsdump.comparison.naming.name_sources import NameSources
from sgsdump.comparison.naming.network import nodes_of
from sgsdump.comparison.naming.pairs_by_map import pairs_by_map
from sgsdump.comparison.naming.pairs_by_network import Placed, placed
from sgsdump.comparison.naming.pairs_by_quantisation import pairs_by_quantisation
from sgsdump.comparison.naming.pairs_by_stage import with_stages
from sgsdump.comparison.own_metric import Asked
from sgsdump.comparison.pair_result import Measures, Started, is_rearranged, may_be_rearranged
from sgsdump.comparison.quantisation_change import change_findings
from sgsdump.comparison.rewritten import without_rewritten
from sgsdump.comparison.row import Failed, Misnamed, Row, is_suspicious
from sgsdump.comparison.same_values import WORTH, Mapper, Probes, find_misnamed, may_be_renamed
from sgsdump.comparison.sums.summation import sums_of_each
from sgsdump.dumps.collector import collector_paused
from sgsdump.dumps.dump import Dump, Network
from sgsdump.dumps.io import open_dump
from sgsdump.dumps.onnx_network import of_names
from sgsdump.errors import ConfigError
from sgsdump.files.mapped import KEPT, MappedFile, file_of, kept_open
from sgsdump.files.process import cores
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.stages import Stage

# Who measures the pairs of a sample and a benchmark: their results in the pairs' order.
MeasuredBy = Callable[[Measures, Dump, Dump, Sequence[Pair]], Iterable[Row | Failed]]

LEAST, MOST, PAIRS = 4 << 20, 24 << 20, 64  # bytes of a batch, and the pairs it has at most
MOST_SORTED = 1 << 20  # values that are sorted to see whether they are the same in another order
SHARES = 4  # batches that a thread would have to go if all were as large as the next one


@dataclass(frozen=True)
class Options:
    """The keywords of ``compare``, which documents them; ``measures`` are four of them. ``parts``: the pairs that were
    made by taking modules apart."""

    inputs: bool
    name_map: Mapping[str, str] | NameSources | None
    match_by_value: bool
    stages: Sequence[Stage]
    exclude: Sequence[str]
    measures: Measures
    threads: int
    measured_by: MeasuredBy | None
    progress: Progress
    parts: tuple[Pair, ...] = ()


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
    threads = threads or cores()
    options = Options(inputs, name_map, match_by_value, stages, exclude, measures, threads, measured_by, progress)
    # Where inputs have names of their own one tensor has several: what one operator gives and the next one takes.
    return _compared(sample, benchmark, options, None if all(own_inputs) else Probes())


def _compared(sample: Dump, benchmark: Dump, options: Options, probes: Probes | None) -> Comparison:
    # A metric of the user's may leave cycles of large arrays.
    collected = nullcontext() if options.measures.own else collector_paused()
    with (
        collected,
        threadpool_limits(limits=1, user_api="blas"),
        ThreadPoolExecutor(options.threads) as pool,
    ):
        networks = sample.network(), benchmark.network()
        sample, benchmark = within_module((sample, benchmark), networks)
        wholes = sample, benchmark
        (sample, benchmark), parts = _taken_apart(wholes, networks, options)
        places = _settled(sample, benchmark, replace(options, parts=parts), networks, pool.map)
        alignment = align(sample, benchmark, options.inputs, places.settled)
        whole = alignment
        alignment, excluded = without(alignment, options.exclude)
        sources = known_sources((sample, benchmark), alignment.pairs) or places.sources
        completeness = completeness_of(sample, benchmark, whole, alignment, sources)
        alignment, unwritten = without_unwritten(alignment)
        pairs = alignment.pairs
        stream: Iterable[Row | Failed] = (
            options.measured_by(options.measures, sample, benchmark, pairs)
            if options.measured_by
            else in_batches(pool.map, replace(options.measures, threads=options.threads), pairs, probes)
        )
        if options.progress is not SILENT:
            stream = each(options.progress, stream, "compare", "layer", len(pairs))
        results = list(stream)
        if any(networks) or any(isinstance(row, Row) and row.counts.sample_minus_inf for row in results):
            results = without_masked(sample, benchmark, pairs, results, options.measures)
        misnamed: Mapping[int, Misnamed] = {}
        if probes and any(map(is_suspicious, results)):
            held = {"benchmark": compared(benchmark, options.inputs), "sample": compared(sample, options.inputs)}
            with kept_open():
                misnamed = find_misnamed(pairs, results, held, probes, pool.map)
    _mark_rearranged(pairs, results, options.measures, misnamed)
    outputs = network_outputs(sample) | network_outputs(benchmark) if misnamed else frozenset()
    rows: list[Row] = []
    failed: list[Failed] = []
    for i, (pair, result) in enumerate(zip(pairs, results)):
        if i in misnamed:
            result = _with_match(result, misnamed[i], may_be_renamed(pair, outputs))
        if isinstance(result, Failed):
            failed.append(result)
            continue
        known = {"source": source} if (source := source_of(pair, networks)) else {}
        if places.modules and (module := places.module_of(pair)):
            known |= {"module": module, "origin": places.origin_of(pair)}
        rows.append(result.replaced(**known) if known else result)
    in_8_bits, products = False, tuple[str, ...]()
    if all(networks):
        in_8_bits = is_quantised((sample, benchmark), networks)
        products = types_of_products((sample, benchmark), networks)
        rows, failed, alignment = without_rewritten(rows, failed, alignment, networks, in_8_bits)
        pairs = alignment.pairs
    rows = cancelled(with_rises(rows, sample, benchmark, sources), pairs)
    may_round = all(networks) or any(row.dtype_note for row in rows)
    rounding = Rounding(rows, pairs, in_8_bits, products) if may_round else None
    arguments = argument_findings(rows, pairs, *networks, places.maker_of, rounding)
    found = causes(rows, arguments)
    if rounding is not None and rounding.is_low and all(networks):
        unmatched = alignment.only_in_sample, alignment.only_in_benchmark
        runs = TwoRuns(wholes, networks, pairs, unmatched, places.maker_of)
        found = of_low_precision(rows, arguments, found, runs, rounding)
    sides = zip((alignment.only_in_sample, alignment.only_in_benchmark), networks)
    unmatched_records = ((side.record, network) for side_of, network in sides for side in side_of)
    found = tuple(with_collectives(with_sources(found, rows, unmatched_records), rows, networks[1]))
    are_other_weights = any(finding.facts.get("what") in ("weight", "input") for finding in found)
    return Comparison(
        tuple(rows),
        alignment.only_in_sample,
        alignment.only_in_benchmark,
        tuple(failed),
        sample.notes,
        benchmark.notes,
        excluded,
        unwritten,
        completeness,
        causes=(*found, *(change_findings(networks) if all(networks) else ())),
        environment=(
            *environment_findings((sample.environment(), benchmark.environment()), networks, are_other_weights),
            *(other_inputs(rows, pairs, networks) or other_runs(wholes, (*rows, *failed))),
        ),
    )


def _mark_rearranged(
    pairs: Sequence[Pair], results: list[Row | Failed], measures: Measures, misnamed: Container[int]
) -> None:
    """Mark the first bad rows of which both sides hold the same values in another order; not those of which another
    tensor does."""
    looked = 0
    for i, (pair, row) in enumerate(zip(pairs, results)):
        if not isinstance(row, Row) or row.cos > RETRY_BELOW or i in misnamed or not may_be_rearranged(row):
            continue
        looked += row.count
        if looked > MOST_SORTED:
            return
        if is_rearranged(pair, row, measures):
            results[i] = row.replaced(rearranged=True)


def _taken_apart(
    dumps: tuple[Dump, Dump], networks: tuple[Network, Network], options: Options
) -> tuple[tuple[Dump, Dump], tuple[Pair, ...]]:
    """The dumps with fused modules in pieces, where the user's names say so. Raises ConfigError."""
    if not isinstance(options.name_map, NameSources) or not options.name_map.fused:
        return dumps, ()
    if options.measured_by is not None:
        raise ConfigError("a name map that takes modules apart needs both dumps here; compare without --scheduler")
    return split_fused(dumps, networks, options.name_map.fused)


def _settled(sample: Dump, benchmark: Dump, options: Options, networks: tuple[Network, Network], run: Mapper) -> Placed:
    """The pairs that maps, values, the network, quantisation and stages make before names are compared, and where
    tensors stand."""
    settled = Settled()
    has_names = bool(options.name_map) and not (
        isinstance(options.name_map, NameSources) and not options.name_map.names_pairs
    )
    if options.name_map and has_names:
        settled = pairs_by_map(sample, benchmark, options.name_map, options.inputs)
    settled = replace(settled, pairs=(*options.parts, *settled.pairs))
    if options.match_by_value:
        settled = pairs_by_value(sample, benchmark, options.inputs, settled, run)
    by_names = has_names or options.match_by_value
    same_names = {record.name for record in sample.records} == {record.name for record in benchmark.records}
    if not same_names and (found := pairs_by_quantisation(sample, benchmark, networks, options.inputs, settled)):
        settled, by_names = found, True
    places = Placed(settled)
    operators = [known or of_names(dump.records) for known, dump in zip(networks, (sample, benchmark))]
    if any(operators):
        nodes = nodes_of(sample, operators[0]), nodes_of(benchmark, operators[1])
        places = placed((sample, benchmark), nodes, options.inputs, settled, pairing=not by_names)
    if same_names:
        return places
    return replace(places, settled=with_stages(sample, benchmark, options.inputs, places.settled, options.stages))


def in_batches(
    run: Callable[[Callable, Iterable], Iterable],
    measures: Measures,
    pairs: Sequence[Pair],
    probes: Probes | None = None,
) -> Iterator[Row | Failed]:
    """The results in the pairs' order; ``run`` maps over threads. ``probes`` gets what the look for misnamed
    pairs needs of the values."""

    def results(batch: list[Pair]) -> list[Row | Failed]:
        with kept_open():
            return list(batch_results(measures, batch, probes))

    return chain.from_iterable(run(results, list(batches(pairs, measures.threads))))


def batches(pairs: Sequence[Pair], threads: int = 1) -> Iterator[list[Pair]]:
    """Pairs that follow each other, a fair share of the benchmark's bytes that remain or PAIRS: large batches first,
    so that little is done beside the values, small ones last, so that all threads end together."""

    def share(size: int) -> int:
        return min(MOST, max(LEAST, size // (SHARES * threads)))

    sizes = [math.prod(info.shape or ()) * info.dtype.itemsize for info in (p.benchmark.tensor.info for p in pairs)]
    remaining = sum(sizes)
    batch: list[Pair] = []
    enough, batch_size = share(remaining), 0
    for pair, size in zip(pairs, sizes):
        batch.append(pair)
        batch_size += size
        if batch_size >= enough or len(batch) == PAIRS:
            yield batch
            remaining -= batch_size
            batch, enough, batch_size = [], share(remaining), 0
    if batch:
        yield batch


def batch_results(measures: Measures, pairs: Iterable[Pair], probes: Probes | None) -> Iterator[Row | Failed]:
    """The results of pairs. Those that cost no memory wait for each other, and have their sums made together."""
    waiting: list[Started] = []
    files: set[MappedFile] = set()
    for pair in pairs:
        started = measures.started(pair)
        pair_files = _read_from(started) if isinstance(started, Started) else None
        if pair_files is None or len(files | pair_files) > KEPT:
            yield from _finished(measures, waiting, probes)
            waiting, files = [], set()
        if not isinstance(started, Started):
            yield started
        elif pair_files is None:
            yield from _finished(measures, [started], probes, are_mapped=False)
        else:
            waiting.append(started)
            files |= pair_files
    yield from _finished(measures, waiting, probes)


def _read_from(started: Started) -> set[MappedFile] | None:
    """The files from which the kernel can read the pair; None where values lie in memory, or are looked at again."""
    if started.looks_again or not started.by_kernel:
        return None
    files = {file_of(started.fit.sample.array), file_of(started.fit.benchmark.array)}
    return None if None in files else files  # type: ignore[return-value]


def _finished(
    measures: Measures, waiting: list[Started], probes: Probes | None, are_mapped: bool = True
) -> Iterator[Row | Failed]:
    picks = [
        probes.to_pick(started.pair.sample, started.pair.benchmark)
        if probes and started.fit.sample.array.size >= WORTH
        else None
        for started in waiting
    ]
    summed = sums_of_each([started.to_sum(picked) for started, picked in zip(waiting, picks)], measures.threads)
    for started, picked, sums in zip(waiting, picks, summed):
        result = measures.finished(started, sums)
        if probes and picked:
            probes.keep(started.pair.sample, started.pair.benchmark, picked)
        if probes and are_mapped and is_suspicious(result):
            probes.of(started.pair.sample, started.loaded[0])
            probes.of(started.pair.benchmark, started.loaded[1])
        yield result


def _with_match(result: Row | Failed, match: Misnamed, may_be_renamed: bool) -> Row | Failed:
    """The result with the tensor that its values are nearer to: the right one perhaps, else a remark."""
    told = str(match) if may_be_renamed else f"holds the values of {match.found}"
    if isinstance(result, Failed):
        return replace(result, reason=f"{result.reason}; {told}")
    if may_be_renamed:
        return result.replaced(misnamed=match)
    return result.replaced(note="; ".join(filter(None, [result.note, told])))


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
