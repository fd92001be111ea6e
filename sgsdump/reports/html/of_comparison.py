"""The report of a comparison: what ``sgsdump report`` and ``compare --html`` write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.distribution import pair_ranges
from sgsdump.comparison.metrics import sqnr
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.dump import Dump
from sgsdump.reports.comparison.base import why
from sgsdump.reports.html.of_model import BLOB
from sgsdump.reports.html.report import Layer, LeftOut, Report, Step
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

MOST_NAMED = 3
LONGEST = 72


def report_of(
    comparison: Comparison,
    thresholds: Thresholds = DOCUMENTED,
    *,
    title: str = "",
    ranges: Mapping[str, Range] | None = None,
    sample: Dump | None = None,
    benchmark: Dump | None = None,
    attributes: Mapping[str, Mapping[str, str]] | None = None,
    assumptions: Sequence[str] = (),
    next_steps: Sequence[Step] | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> Report:
    """The whole report. ``compare(…, details=True)`` gives rows that have something to show when they are selected.

    ranges      calibrated ranges by tensor name.
    sample      the dumps, for shapes, scales and data flow; ``benchmark`` likewise.
    attributes  of each layer's operator, as text.
    next_steps  None: what the comparison alone can say.
    """
    return Report(
        title=title or "Where accuracy is lost",
        verdict=verdict(comparison, thresholds, attributes or {}),
        next_steps=tuple(steps(comparison, thresholds) if next_steps is None else next_steps),
        assumptions=tuple(assumptions),
        layers=layers_of(comparison, thresholds, ranges or {}, sample, benchmark, attributes or {}),
        left_out=left_out_of(comparison),
        limits=limits_of(thresholds),
        facts=tuple(facts) or facts_of(comparison),
    )


def verdict(
    comparison: Comparison,
    thresholds: Thresholds = DOCUMENTED,
    attributes: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Two sentences: how many layers are past the thresholds and which is worst; where the error arises."""

    def label(row: Row) -> str:
        return _label(row, attributes.get(row.name, {}).get(BLOB, row.name))

    past, worst = comparison.past(thresholds), comparison.worst
    if worst is None:
        return ("No layer could be compared.", "The table of what was left out gives the reasons.")
    count = len(comparison.rows)
    if not worst.error:
        return (f"All {count} compared layers hold the same values.", "There is nothing to repair.")
    first = (
        f"{len(past)} of {count} compared layers {'is' if len(past) == 1 else 'are'} bad ({thresholds})"
        if past
        else f"None of {count} compared layers is bad ({thresholds})"
    )
    sentences = [f"{first}; the worst is {label(worst)}, {_figures(worst)}."]
    jumps = comparison.jumps[:MOST_NAMED]
    if jumps:
        places = "; ".join(f"{label(row)}, {_rise(row, comparison)}" for row in jumps)
        sentences.append(f"RMSE rises most at {places}.")
    odd = [row for row in comparison.rows if not row.finite and not row.equal]
    if odd:
        sentences.append(f"NaN or Inf in {_count(len(odd), 'layer')}, the first is {label(odd[0])}.")
    if comparison.suspects:
        sentences.append(f"{_count(len(comparison.suspects), 'pair')} of one name hold different tensors.")
    if comparison.failed:
        sentences.append(f"{_count(len(comparison.failed), 'pair')} could not be compared.")
    return tuple(sentences)


def steps(comparison: Comparison, thresholds: Thresholds = DOCUMENTED) -> tuple[Step, ...]:
    """What a comparison alone advises: look where the error rises, then let the model's own figures decide."""
    if not comparison.past(thresholds):
        return (
            (Step("Nothing has to be raised to INT16: every layer is within the thresholds."),)
            if comparison.rows
            else ()
        )
    found = [Step("Select the layers marked with a triangle: there the error rises, all below them inherit it.")]
    tune = "Let sgsdump find, by simulation, the convolutions that deserve INT16; it writes the [CONV_CONFIG] for them."
    found.append(Step(tune, "sgsdump tune -m float.onnx -i pictures --input-config input_config.ini -o tuned"))
    return tuple(found)


def layers_of(
    comparison: Comparison,
    thresholds: Thresholds,
    ranges: Mapping[str, Range],
    sample: Dump | None = None,
    benchmark: Dump | None = None,
    attributes: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Layer, ...]:
    """A layer of each row, in the rows' order."""
    jumps = {id(row) for row in comparison.jumps}
    range_names = pair_ranges([row.names[-1] for row in comparison.rows], ranges)
    found = []
    for row in comparison.rows:
        info = _info(sample, row.sample_name)
        other = _info(benchmark, row.name)
        quant = info.quant if info else None
        limits = ranges.get(range_names.get(row.names[-1], ""))
        details = row.details
        if details is not None and limits is not None:
            details = replace(details, low=limits.low, high=limits.high)
        shape = other.shape if other and other.shape is not None else info.shape if info else None
        found.append(
            Layer(
                name=row.name,
                op_type=row.op_type,
                index=row.op_index,
                mse=row.mse,
                cos=row.cos,
                rmse=row.rmse,
                sqnr=sqnr(row.sums) if row.sums is not None and not row.statistics else float("nan"),
                rise=row.rise,
                rises=id(row) in jumps,
                verdict=row.verdict(thresholds),
                note=why(row),
                sources=row.sources,
                shape=shape,
                dtype=row.sample_dtype if row.sample_dtype == row.benchmark_dtype else _dtypes(row),
                scale=_scale(quant),
                zero_point=quant.zero_point if quant else None,
                attributes=(attributes or {}).get(row.name, {}),
                worst_picture=row.runs.worst if row.runs else "",
                mean_rmse=row.runs.mean_rmse if row.runs else None,
                details=details,
            )
        )
    return tuple(found)


def left_out_of(comparison: Comparison) -> tuple[LeftOut, ...]:
    """Everything that was not compared, and why."""
    failed = [
        LeftOut(one.pair.benchmark.name, one.reason, "both", one.pair.benchmark.op_type) for one in comparison.failed
    ]
    apart = [
        LeftOut(one.record.name, one.reason, side, one.record.op_type, one.expected)
        for side, those in (("benchmark", comparison.only_in_benchmark), ("sample", comparison.only_in_sample))
        for one in those
    ]
    unwritten = (LeftOut(name, "nothing had been written to its memory yet", "both") for name in comparison.unwritten)
    return (*failed, *apart, *unwritten, *(LeftOut(name, "excluded", "both") for name in comparison.excluded))


def limits_of(thresholds: Thresholds) -> dict[str, float]:
    """The limits on the metrics that the chart draws."""
    limits = {"cos": thresholds.min_cos, "rmse": thresholds.max_rmse, "mse": thresholds.max_mse}
    limits |= {name: limit for name, limit in thresholds.further if name == "sqnr"}
    return {name: limit for name, limit in limits.items() if limit is not None}


def facts_of(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """The readers' notes."""
    return (
        *(("note on the sample", note) for note in comparison.sample_notes),
        *(("note on the benchmark", note) for note in comparison.benchmark_notes),
    )


def _info(dump: Dump | None, name: str):  # type: ignore[no-untyped-def]
    return dump[name].info if dump is not None and name in dump else None


def _dtypes(row: Row) -> str:
    return f"{row.sample_dtype} against {row.benchmark_dtype}" if row.sample_dtype else ""


def _scale(quant: Quant | None) -> float | tuple[float, ...] | None:
    if quant is None or not np.any(quant.scale):
        return None
    return float(quant.scale) if np.ndim(quant.scale) == 0 else tuple(float(scale) for scale in np.ravel(quant.scale))


def _label(row: Row, blob: str) -> str:
    """The layer, by its Caffe blob where it is a stage of one; then its stage and its operator."""
    name, stage = (row.name, row.stage) if blob == row.name else (blob, row.name)
    beside = [_short(text) for text in (stage, row.op_type) if text]
    return f"{_short(name)} ({', '.join(beside)})" if beside else _short(name)


def _short(name: str) -> str:
    """A sentence bears no name of 500 characters; its end tells more than its beginning."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 3]}…{name[1 - LONGEST * 2 // 3 :]}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _figures(row: Row) -> str:
    return f"statistics apart by {row.error:.3g}" if row.statistics else f"RMSE {row.rmse:f}, COS {row.cos:f}"


def _rise(row: Row, comparison: Comparison) -> str:
    errors = {each.name: each.error for each in comparison.alike}
    before = max((errors[name] for name in row.sources if name in errors), default=0.0)
    return f"from {before:.4f} to {row.error:.4f}"
