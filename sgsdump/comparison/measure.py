"""Second stage of ``compare``: measure every pair; only this stage reads values and uses threads or a cluster.

Pairs are passed to threads in batches, because passing each pair costs more than measuring a small one. The sums of a
batch are computed in one kernel call if possible: Python code for a pair runs three times slower right after the values
of another pair went through the processor's cache. Modules that only some comparisons need, mostly those with a
network, are imported on first use, because imports slow down the start.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sgsdump.comparison.align import Pairs
from sgsdump.comparison.alignment import Alignment, Mapper, Pair, compared
from sgsdump.comparison.dataflow import network_outputs, with_rises
from sgsdump.comparison.layout_match import RETRY_BELOW
from sgsdump.comparison.pair_result import Measures, Started, is_rearranged, may_be_rearranged
from sgsdump.comparison.row import Failed, Misnamed, Row, differs, is_suspicious
from sgsdump.comparison.same_values import WORTH, Probes, find_misnamed, may_be_renamed
from sgsdump.comparison.sums.summation import sums_of_each
from sgsdump.dumps.dump import Dump, Network
from sgsdump.files.mapped import KEPT, MappedFile, file_of, kept_open
from sgsdump.progress import SILENT, Progress, each

# Function that measures the pairs of a sample and a benchmark and returns the results in order.
MeasuredBy = Callable[[Measures, Dump, Dump, Sequence[Pair]], Iterable[Row | Failed]]

LEAST, MOST, PAIRS = 4 << 20, 24 << 20, 64  # least and most bytes of a batch, and most pairs
MOST_SORTED = 1 << 20  # most values to sort when testing for another order
SHARES = 4  # remaining batches per thread if all were as large as the next one
_GRADIENT = "parameters_grad"
_LEFT = 1e-4  # rounding residue of a gradient whose terms cancel, relative to the module's other gradients


@dataclass(frozen=True, eq=False)
class Measuring:
    """How to measure pairs.

    measures     measures of every pair.
    threads      number of pairs to measure in parallel; ``run`` maps over these threads.
    measured_by  measures the pairs elsewhere, for example on other machines; None uses threads of this process.
    inputs       the networks' inputs were paired too.
    by_names     names may have paired different tensors. This cannot happen if inputs are named separately, because the
                 output of an operator and the input of the next are then one tensor with two names.
    """

    measures: Measures
    threads: int
    run: Mapper
    measured_by: MeasuredBy | None = None
    progress: Progress = SILENT
    inputs: bool = False
    by_names: bool = True


@dataclass(frozen=True, eq=False)
class Rows:
    """Result of the second stage: a row for each measured pair, and the reason for each failure.

    alignment  measured pairs, without those whose values show that they are different operators.
    in_8_bits  only one side computes modules in 8 bits.
    """

    rows: tuple[Row, ...]
    failed: tuple[Failed, ...]
    alignment: Alignment
    in_8_bits: bool = False


def measure(pairs: Pairs, how: Measuring) -> Rows:
    """Measure the pairs of the first stage; a pair that cannot be measured becomes a ``Failed`` with the reason."""
    networks = pairs.networks
    probes = Probes() if how.by_names else None
    aligned, results = pairs.alignment, _results(pairs, how, probes)
    if all(networks):
        from sgsdump.comparison.common_part import with_common_part
        from sgsdump.comparison.commuted import with_commuted

        aligned, results = with_commuted(aligned, results, networks, how.measures)
        results = with_common_part(aligned.pairs, results, how.measures, networks[1])
    misnamed: Mapping[int, Misnamed] = {}
    if probes and any(map(is_suspicious, results)):
        held = {side: compared(dump, how.inputs) for side, dump in zip(("sample", "benchmark"), pairs.dumps)}
        with kept_open():
            misnamed = find_misnamed(aligned.pairs, results, held, probes, how.run)
    _mark_rearranged(aligned.pairs, results, how.measures, misnamed)
    rows, failed = _told(replace(pairs, alignment=aligned), results, misnamed)
    in_8_bits = False
    if all(networks):
        from sgsdump.comparison.low_precision import is_quantised
        from sgsdump.comparison.rewritten import without_rewritten

        in_8_bits = is_quantised(pairs.dumps, networks)
        rows, failed, aligned = without_rewritten(rows, failed, aligned, networks, in_8_bits)
    rows = _cancelled(with_rises(rows, *pairs.dumps, pairs.sources), aligned.pairs)
    return Rows(tuple(rows), tuple(failed), aligned, in_8_bits)


def _results(pairs: Pairs, how: Measuring, probes: Probes | None) -> list[Row | Failed]:
    """Return the results in the order of the pairs, without masked values of attention."""
    aligned, measures = pairs.alignment.pairs, how.measures
    stream: Iterable[Row | Failed] = (
        how.measured_by(measures, *pairs.dumps, aligned)
        if how.measured_by
        else in_batches(how.run, replace(measures, threads=how.threads), aligned, probes)
    )
    if how.progress is not SILENT:
        stream = each(how.progress, stream, "compare", "layer", len(aligned))
    results = list(stream)
    if any(pairs.networks) or any(isinstance(row, Row) and row.counts.sample_minus_inf for row in results):
        from sgsdump.comparison.masks import without_masked

        results = without_masked(*pairs.dumps, aligned, results, measures)
    return results


def _told(
    pairs: Pairs, results: Sequence[Row | Failed], misnamed: Mapping[int, Misnamed]
) -> tuple[list[Row], list[Failed]]:
    """Return rows and failures with facts about their pairs: matching other tensor, source line, module."""
    outputs = network_outputs(pairs.dumps[0]) | network_outputs(pairs.dumps[1]) if misnamed else frozenset()
    rows: list[Row] = []
    failed: list[Failed] = []
    places = pairs.settled.places
    for i, (pair, result) in enumerate(zip(pairs.alignment.pairs, results)):
        if i in misnamed:
            result = _with_match(result, misnamed[i], may_be_renamed(pair, outputs))
        if isinstance(result, Failed):
            failed.append(result)
            continue
        known = {"source": source} if (source := _source_of(pair, pairs.networks)) else {}
        if places.modules and (module := places.module_of(pair)):
            known |= {"module": module, "origin": places.origin_of(pair)}
        rows.append(result.replaced(**known) if known else result)
    return rows, failed


def _source_of(pair: Pair, networks: tuple[Network, Network]) -> str:
    """Return the source line that called a pair's operator.

    The sample's line is preferred, because the fault is there.
    """
    operators = (network.get(record.op_index) for network, record in zip(networks, (pair.sample, pair.benchmark)))
    return next((operator.source for operator in operators if operator is not None and operator.source), "")


def _cancelled(rows: Sequence[Row], pairs: Iterable[Pair]) -> list[Row]:
    """Return the rows, marking gradients that are zero in theory.

    Both sides then hold residue of large terms that cancel, tiny compared with the gradients of the module's other
    parameters. An example is the bias before a normalisation.
    """
    named = [pair.benchmark for pair in pairs if _GRADIENT in pair.benchmark.name]
    gradients = {record.op_index for record in named if _GRADIENT in record.name.split(".")}
    if not gradients:
        return list(rows)
    largest: defaultdict[int, float] = defaultdict(float)
    for row in rows:
        if row.op_index in gradients:
            largest[row.op_index] = max(largest[row.op_index], _size(row))
    return [
        row.replaced(cancelled=True)
        if row.op_index in gradients and differs(row) and _size(row, max) <= _LEFT * largest[row.op_index]
        else row
        for row in rows
    ]


def _size(row: Row, of_sides: Callable[..., float] = min) -> float:
    """Return the smaller (or larger) root mean square of both sides; 0 without values."""
    sums = row.sums
    if sums is None or not sums.count or not row.finite:
        return 0.0
    return math.sqrt(of_sides(sums.aa, sums.bb) / sums.count)


def _mark_rearranged(
    pairs: Sequence[Pair], results: list[Row | Failed], measures: Measures, misnamed: Container[int]
) -> None:
    """Mark the first bad rows whose sides hold the same values in another order, except misnamed pairs."""
    looked = 0
    for i, (pair, row) in enumerate(zip(pairs, results)):
        if not isinstance(row, Row) or row.cos > RETRY_BELOW or i in misnamed or not may_be_rearranged(row):
            continue
        looked += row.count
        if looked > MOST_SORTED:
            return
        if is_rearranged(pair, row, measures):
            results[i] = row.replaced(rearranged=True)


def _with_match(result: Row | Failed, match: Misnamed, may_be_renamed: bool) -> Row | Failed:
    """Return the result with the tensor that its values match: as possible right partner, else as a remark."""
    told = str(match) if may_be_renamed else f"holds the values of {match.found}"
    if isinstance(result, Failed):
        return replace(result, reason=f"{result.reason}; {told}")
    if may_be_renamed:
        return result.replaced(misnamed=match)
    return result.replaced(note="; ".join(filter(None, [result.note, told])))


def in_batches(
    run: Callable[[Callable, Iterable], Iterable],
    measures: Measures,
    pairs: Sequence[Pair],
    probes: Probes | None = None,
) -> Iterator[Row | Failed]:
    """Yield the results in the order of the pairs.

    ``run`` maps over threads. ``probes`` collects the values that the search for misnamed pairs needs.
    """

    def results(batch: list[Pair]) -> list[Row | Failed]:
        with kept_open():
            return list(batch_results(measures, batch, probes))

    return chain.from_iterable(run(results, list(batches(pairs, measures.threads))))


def batches(pairs: Sequence[Pair], threads: int = 1) -> Iterator[list[Pair]]:
    """Yield batches of consecutive pairs.

    A batch is a fair share of the remaining benchmark bytes, with at most PAIRS pairs. Large batches come first, which
    reduces overhead; small batches come last, so that all threads finish together.
    """

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
    """Yield the results of pairs; pairs that can be read from mapped files wait to be summed together."""
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
    """Return the files from which the kernel can read the pair; None if values are in memory or needed again."""
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
