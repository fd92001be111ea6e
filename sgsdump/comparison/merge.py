"""One comparison of many runs (images): each layer's figures over all runs, their means, and its worst run.

Sums merge without loss: MSE, COS, RMSE and all other metrics of ``Sums`` are those of all runs' values together. This
is also the definition of SQNR in onnxruntime's qdq_loss_debug. Other metrics are combined from the runs' figures by
``Metric.merged`` (the mean, or the largest of largest values); a user's metrics by their mean. Pairs that failed in one
run are listed, and such a comparison does not pass. Vendor figures are left out, because the vendors' tools have no
figures for several runs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TypeVar

from sgsdump.comparison.account import Completeness
from sgsdump.comparison.agreement import Agreement
from sgsdump.comparison.alignment import Unpaired
from sgsdump.comparison.channels import merged_channels
from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.dataflow import risen_again
from sgsdump.comparison.details import Details, merged
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.metrics import METRICS, Sums, cos, mean, merged_sums, mse, rmse
from sgsdump.comparison.row import DIFFER, EQUAL, Errors, Extras, Failed, OverRuns, Row
from sgsdump.comparison.stored_integers import merged_integers
from sgsdump.dumps.dump import Dump
from sgsdump.errors import ConfigError, listed

Item = TypeVar("Item")
_Layer = tuple[str, str, int, int]
SHOWN = 3


@dataclass(frozen=True, eq=False)
class Compared:
    """Comparison over all images.

    ``sample`` and ``benchmark`` are the dumps of the last image, ``label``; dumps from a cluster have no values.
    """

    comparison: Comparison
    sample: Dump
    benchmark: Dump
    label: str = ""


def merge(comparisons: Mapping[str, Comparison]) -> Comparison:
    """Return the comparison of all runs; ``comparisons`` is by run name. Rows keep the order of the first run.

    Raises ConfigError if ``comparisons`` is empty.
    """
    if not comparisons:
        raise ConfigError("no comparisons to merge")
    rows: defaultdict[_Layer, dict[str, Row]] = defaultdict(dict)
    for run, comparison in comparisons.items():
        for layer, row in _by_layer(comparison.rows):
            rows[layer][run] = row
    whole = _completeness(comparisons)
    return Comparison(
        tuple(risen_again([_merged_row(of_layer, len(comparisons)) for of_layer in rows.values()], whole.by_flow)),
        _listed(comparisons, lambda c: c.only_in_sample, _unpaired_key, _unpaired_in),
        _listed(comparisons, lambda c: c.only_in_benchmark, _unpaired_key, _unpaired_in),
        _listed(comparisons, lambda c: c.failed, _failed_key, _failed_in),
        _notes(comparisons, lambda c: c.sample_notes),
        _notes(comparisons, lambda c: c.benchmark_notes),
        tuple(dict.fromkeys(name for c in comparisons.values() for name in c.excluded)),
        tuple(dict.fromkeys(name for c in comparisons.values() for name in c.unwritten)),
        whole,
        causes=_causes(comparisons.values()),
        environment=tuple(dict.fromkeys(finding for c in comparisons.values() for finding in c.environment)),
        agreement=_agreement([c.agreement for c in comparisons.values()]),
    )


def _agreement(agreements: Sequence[Agreement | None]) -> Agreement | None:
    """Return the sum over all runs; None unless all runs have the same template."""
    known = [agreement for agreement in agreements if agreement is not None]
    if len(known) < len(agreements) or len({agreement.template for agreement in known}) != 1:
        return None
    return reduce(add, known)


def _completeness(comparisons: Mapping[str, Comparison]) -> Completeness:
    """Return the completeness of all runs: a layer that any run lacks is missing."""
    parts = [comparison.completeness for comparison in comparisons.values()]

    def names(of: Callable[[Completeness], Iterable[str]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in parts for name in of(part)))

    return Completeness(
        any(part.by_flow for part in parts),
        names(lambda part: part.outputs),
        names(lambda part: part.missing_outputs),
        names(lambda part: part.missing),
        names(lambda part: part.fused),
        of=max(part.of for part in parts),
    )


def _causes(comparisons: Iterable[Comparison]) -> tuple[Finding, ...]:
    """Deduplicate causes across runs."""
    firsts: dict[tuple[str | None, ...], Finding] = {}
    for finding in (finding for comparison in comparisons for finding in comparison.causes):
        values = map(finding.facts.get, ("argument", "sample", "benchmark", "what"))
        firsts.setdefault((finding.kind, finding.layer, *values), finding)
    return tuple(firsts.values())


def merge_each(comparisons: Iterable[tuple[str, Comparison]]) -> Comparison:
    """Merge comparisons as they arrive, given as (run name, comparison).

    Only the rows are kept until the end; details such as histograms are added up immediately. Raises ConfigError if
    there is no comparison.
    """
    kept: dict[str, Comparison] = {}
    totals: dict[_Layer, Details] = {}
    for run, comparison in comparisons:
        rows = []
        for layer, row in _by_layer(comparison.rows):
            if row.details is not None:
                details = [row.details.of_picture(run)]
                totals[layer] = merged([totals[layer], *details] if layer in totals else details)
            rows.append(row.replaced(details=None))
        kept[run] = replace(comparison, rows=tuple(rows))
    together = merge(kept)
    rows = [row.replaced(details=totals.get(layer)) for layer, row in _by_layer(together)]
    return replace(together, rows=tuple(rows))


def _by_layer(rows: Iterable[Row]) -> Iterator[tuple[_Layer, Row]]:
    """Yield each row with its key in every run: its name and its index among rows of this name."""
    counts: Counter[tuple[str, str, int]] = Counter()
    for row in rows:
        layer = row.name, row.io, row.slot
        yield (*layer, counts[layer]), row
        counts[layer] += 1


def _merged_row(runs: Mapping[str, Row], of: int) -> Row:
    rows = list(runs.values())
    first, worst = rows[0], max(runs, key=lambda run: (runs[run].error, -runs[run].cos))
    sums = merged_sums(row.sums for row in rows if row.sums is not None)
    statistics = _each([row.statistics for row in rows], max)
    nan = math.nan
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    notes += [f"compared in {len(rows)} of {of} runs"] if len(rows) < of else []
    figures = (nan, nan, nan) if statistics or _checksums(rows) else (mse(sums), cos(sums), rmse(sums))
    means = (mean([row.rmse for row in rows]), mean([row.cos for row in rows]))
    return Row(
        first.place,
        Errors(sums.count, *figures, all(row.equal for row in rows), statistics, sums, _checksums(rows)),
        sums.odd,
        replace(
            first.context,
            note="; ".join(notes[:SHOWN]) + (" …" if len(notes) > SHOWN else ""),
            misnamed=next((row.misnamed for row in rows if row.misnamed), None),
            dtype_note=next((row.dtype_note for row in rows if row.dtype_note), ""),
        ),
        Extras(
            {name: _further(name, [row.extra.get(name, nan) for row in rows], sums) for name in first.extra},
            _each([row.left_out for row in rows], sum),
            integers=merged_integers([row.integers for row in rows]),
            indices=merged_integers([row.indices for row in rows]),
            channels=merged_channels([row.channels for row in rows]),
            runs=OverRuns(len(rows), worst if runs[worst].error else "", runs[worst].rmse, runs[worst].cos, *means),
            details=_details(runs),
        ),
    )


def _checksums(rows: Sequence[Row]) -> str:
    """Return the combined result of the checksums, or "" if a run has none."""
    checksums = {row.checksums for row in rows}
    return "" if "" in checksums else DIFFER if DIFFER in checksums else EQUAL


def _details(runs: Mapping[str, Row]) -> Details | None:
    details = {run: row.details for run, row in runs.items() if row.details is not None}
    return merged(list(details.values()), list(details)) if details else None


def _further(name: str, values: Sequence[float], sums: Sums) -> float:
    if name not in METRICS:
        return mean(values)
    metric = METRICS[name]
    return float(metric.merged(values) if metric.accumulator else metric.of(sums))


def _each(maps: Sequence[Mapping[str, Item]], together: Callable[[list[Item]], Item]) -> dict[str, Item]:
    """Combine all values of each name."""
    return {
        name: together([facts[name] for facts in maps if name in facts])
        for name in dict.fromkeys(n for m in maps for n in m)
    }


def _listed(
    comparisons: Mapping[str, Comparison],
    items: Callable[[Comparison], Iterable[Item]],
    key: Callable[[Item], tuple[object, ...]],
    prefixed: Callable[[Item, str], Item],
) -> tuple[Item, ...]:
    """Return items that were not compared, once for all runs with the same reason.

    The runs are named unless the item concerns all of them.
    """
    firsts: dict[tuple[object, ...], Item] = {}
    runs: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    for run, comparison in comparisons.items():
        for item in items(comparison):
            firsts.setdefault(key(item), item)
            runs[key(item)].append(run)
    return tuple(prefixed(item, _which(runs[which], len(comparisons))) for which, item in firsts.items())


def _which(runs: list[str], of: int) -> str:
    return "" if len(runs) >= of else f"in {listed(runs, SHOWN)}: "


def _unpaired_key(item: Unpaired) -> tuple[object, ...]:
    return item.record.io, item.record.name, item.record.slot, item.reason


def _unpaired_in(item: Unpaired, which: str) -> Unpaired:
    return replace(item, reason=which + item.reason)


def _failed_key(item: Failed) -> tuple[object, ...]:
    return item.pair.benchmark.io, item.pair.benchmark.name, item.pair.benchmark.slot, item.reason


def _failed_in(item: Failed, which: str) -> Failed:
    return replace(item, reason=which + item.reason)


def _notes(comparisons: Mapping[str, Comparison], notes: Callable[[Comparison], Iterable[str]]) -> tuple[str, ...]:
    return _listed(comparisons, notes, lambda note: (note,), lambda note, which: which + note)
