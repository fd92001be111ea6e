"""The record that the page and the charts of a comparison are made of: ``Report`` and its parts; ``report_of`` fills
them, ``html.document.render`` makes the page, ``charts`` the pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.details import Details
from sgsdump.comparison.distribution import pair_ranges
from sgsdump.comparison.metrics import sqnr
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.comparison.verdict import Verdict, blamed
from sgsdump.dumps.dump import Dump
from sgsdump.reports.layers.table import Entry, left_out_of
from sgsdump.reports.remarks import trouble, why
from sgsdump.reports.three_lines import verdict_block
from sgsdump.reports.verdict import Step, details, next_steps
from sgsdump.reports.worst_picture import WorstPicture
from sgsdump.tensors.tensor import Quant, TensorInfo
from sgsdump.tensors.types import Range

_WHERE = ("argument", "cause", "another tensor", "not finite", "channel")
BLOB = "Caffe blob"  # among the attributes of an operator: the blob that its tensor is a stage of


IN_FLOAT = 32  # bits of what has weights and stays in float32


@dataclass(frozen=True)
class Bits:
    """Of a convolution: what it reads, 8 or 16 bits ``now`` (IN_FLOAT where it stays float), who raised it in words (""
    where nobody did), by which rule of the SDK, and whether the advice raises it."""

    input: str
    now: int
    raised_by: str = ""
    rule: str = ""
    advised: bool = False

    @property
    def in_float(self) -> bool:
        return self.now == IN_FLOAT


@dataclass(frozen=True)
class Context:
    """A report's facts besides the comparison.

    facts        (what, value) of the run: files, pictures, versions.
    assumptions  what had to be assumed; shown first.
    ranges       calibrated ranges by tensor name.
    sample       the dumps, for shapes, scales and data flow; ``benchmark`` likewise.
    attributes   of each layer's operator, as text by name (``attributes_of``).
    bits         of the convolutions, by layer.
    """

    title: str = "Where accuracy is lost"
    facts: Sequence[tuple[str, str]] = ()
    assumptions: Sequence[str] = ()
    ranges: Mapping[str, Range] = field(default_factory=dict)
    sample: Dump | None = None
    benchmark: Dump | None = None
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bits: Mapping[str, Bits] = field(default_factory=dict)


PLAIN = Context()


@dataclass(frozen=True)
class Figures:
    """The numbers of a layer, as in ``comparison.row.Row``, NaN and infinity among them.

    sqnr       in dB; None where only the other figures are known.
    rise       rmse less the highest rmse among the sources.
    own_error  measured: the rmse with this layer's convolution alone quantised, ``inherited`` that with all others
               quantised, and ``in_all`` with all, of one model; None where it was not measured.
    brings     measured: the part of the outputs' error that this convolution alone brings, and ``gives_back`` the part
               that goes away with it alone put right.
    mean_rmse  over all pictures; None for one picture.
    """

    mse: float
    cos: float
    rmse: float
    sqnr: float | None
    rise: float = 0.0
    own_error: float | None = None
    inherited: float | None = None
    in_all: float | None = None
    brings: float | None = None
    gives_back: float | None = None
    mean_rmse: float | None = None


@dataclass(frozen=True)
class Facts:
    """The facts of a layer's tensor.

    shape       None where it is not known.
    scale       of the quantised sample; None where there is none, several where there is one per channel.
    attributes  of the operator, as text by name.
    bits        of the convolution in the layer; None where there is none.
    """

    shape: tuple[int, ...] | None = None
    dtype: str = ""
    scale: float | tuple[float, ...] | None = None
    zero_point: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    bits: Bits | None = None


@dataclass(frozen=True)
class Layer:
    """One compared layer.

    index          the operator's place in the net.
    verdict        pass, warn or fail.
    rises          the layer is among those where the error rises most (``Comparison.jumps``).
    note           remarks on the comparison.
    sources        names of the nearest compared layers that feed this one.
    trouble        NaN and Inf of either side in a few words, "" for none.
    worst_picture  the picture with the largest error, "" for one picture.
    """

    name: str
    op_type: str
    index: int
    figures: Figures
    verdict: str = "pass"
    rises: bool = False
    note: str = ""
    trouble: str = ""
    sources: tuple[str, ...] = ()
    facts: Facts = Facts()
    worst_picture: str = ""
    details: Details | None = None


@dataclass(frozen=True)
class Plan:
    """A plan of tune: ``rate`` is bytes of the weights over those with all at 16 bits, ``error`` the outputs'."""

    label: str
    rate: float
    error: float
    asked: float | None = None
    copy: str = ""


@dataclass(frozen=True)
class Tradeoff:
    """Tune's plans: ``tried`` holds (rate, error) of every one as the search saw it, ``plans`` those told of, in the
    hardware's integers, ``taken`` the one to take.

    what  what the error is of, for the axis.
    """

    tried: tuple[tuple[float, float], ...]
    plans: tuple[Plan, ...]
    taken: Plan
    what: str = "error of the outputs"

    @property
    def envelope(self) -> list[tuple[float, float]]:
        """(rate, error) of the plans tried that no other beats."""
        return lower_envelope(self.tried)


@dataclass(frozen=True)
class OtherRun:
    """The same layers in another run (an older one, one with what is advised), drawn beside the report's own: what it
    is called, and its figures by name."""

    label: str
    figures: Mapping[str, Figures]


@dataclass(frozen=True)
class View:
    """How the layers are shown.

    first     the layer to show first, that of the first finding; "" for the steepest one.
    by_flow   it is known which layers feed which; else layers stand in the order of the file.
    other     another run to compare with.
    worst     what the outputs say on the picture that is furthest off.
    graph     the files of ``graph_files`` that stand beside the page.
    """

    first: str = ""
    by_flow: bool = True
    other: OtherRun | None = None
    worst: WorstPicture | None = None
    graph: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The whole report.

    verdict   the first lines of the verdict (``three_lines.verdict_block``).
    layers    in depth order.
    left_out  the layers that were not compared, and why.
    limits    thresholds by metric (``cos``, ``rmse``, ``mse``, ``sqnr``), for the lines in the chart.
    good      whether the verdict is good; None if no layer fails.
    details   further sentences, below the verdict.
    """

    title: str
    verdict: tuple[str, ...]
    next_steps: tuple[Step, ...] = ()
    assumptions: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()
    left_out: tuple[Entry, ...] = ()
    tradeoff: Tradeoff | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    facts: Sequence[tuple[str, str]] = ()
    good: bool | None = None
    view: View = View()
    details: tuple[str, ...] = ()


def report_of(
    comparison: Comparison,
    thresholds: Thresholds = DOCUMENTED,
    context: Context = PLAIN,
    steps: Iterable[Step] | None = None,
    conclusion: Verdict | None = None,
) -> Report:
    """Return the whole report. Rows of ``compare(…, details=True)`` have details to show when they are selected.

    steps       next steps; None for the steps that the comparison alone can recommend.
    conclusion  verdict with the user's limits; None for a verdict without limits.
    """
    blobs = {name: texts[BLOB] for name, texts in context.attributes.items() if BLOB in texts}
    concluded = comparison.verdict() if conclusion is None else conclusion
    concluded = replace(concluded, assumptions=())  # the page lists assumptions itself
    return Report(
        title=context.title,
        verdict=tuple(verdict_block(concluded)),
        next_steps=tuple(next_steps(comparison, thresholds) if steps is None else steps),
        assumptions=tuple(context.assumptions),
        layers=layers_of(comparison, thresholds, context),
        left_out=tuple(left_out_of(comparison.account)),
        limits=limits_of(thresholds),
        facts=tuple(context.facts)
        or tuple(
            (f"note on the {side}", note)
            for side, notes in (("sample", comparison.sample_notes), ("benchmark", comparison.benchmark_notes))
            for note in notes
        ),
        good=None if comparison.is_complete and not blamed(comparison.causes) else False,
        view=View(_first(comparison, thresholds), comparison.completeness.by_flow),
        details=details(comparison, thresholds, concluded, blobs),
    )


def _first(comparison: Comparison, thresholds: Thresholds) -> str:
    """The layer of the first finding that says where."""
    where = (finding.layer for finding in comparison.findings(thresholds) if finding.kind in _WHERE)
    return next((name for name in where if name), "")


def layers_of(comparison: Comparison, thresholds: Thresholds, context: Context) -> tuple[Layer, ...]:
    """A layer of each row, in the rows' order."""
    jumps = {id(row) for row in comparison.jumps} if len(comparison.rows) > 1 else set()
    range_names = pair_ranges([row.names[-1] for row in comparison.rows], context.ranges)
    layers = []
    for row in comparison.rows:
        limits = context.ranges.get(range_names.get(row.names[-1], ""))
        details = row.details
        if details is not None and limits is not None:
            details = replace(details, low=limits.low, high=limits.high)
        layers.append(
            Layer(
                row.name,
                row.op_type,
                row.op_index,
                _figures(row),
                verdict=row.verdict(thresholds),
                rises=id(row) in jumps,
                note=why(row),
                trouble=trouble(row),
                sources=row.sources,
                facts=_facts(row, context),
                worst_picture=row.runs.worst if row.runs else "",
                details=details,
            )
        )
    return tuple(layers)


def limits_of(thresholds: Thresholds) -> dict[str, float]:
    """The limits on the metrics that the charts draw."""
    limits = {"cos": thresholds.min_cos, "rmse": thresholds.max_rmse, "mse": thresholds.max_mse}
    limits |= {name: limit for name, limit in thresholds.further if name == "sqnr"}
    return {name: limit for name, limit in limits.items() if limit is not None}


def lower_envelope(plans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The plans that no other beats: (rate, error) of those with less error than every plan of the same rate or a
    smaller one, by rising rate. Plans whose error is NaN beat none.

    >>> lower_envelope([(0.5, 4.0), (0.6, 5.0), (0.7, 1.0), (0.5, 3.0)])
    [(0.5, 3.0), (0.7, 1.0)]
    """
    best, least = [], math.inf
    for rate, error in sorted(plan for plan in plans if not math.isnan(plan[1])):
        if error < least:
            best.append((rate, error))
            least = error
    return best


def _figures(row: Row) -> Figures:
    decibels = sqnr(row.sums) if row.sums is not None and not row.statistics else math.nan
    mean_rmse = row.runs.mean_rmse if row.runs else None
    return Figures(row.mse, row.cos, row.rmse, decibels, row.rise, mean_rmse=mean_rmse)


def _facts(row: Row, context: Context) -> Facts:
    sample, benchmark = _info(context.sample, row.sample_name), _info(context.benchmark, row.name)
    shapes = [info.shape for info in (benchmark, sample) if info and info.shape is not None]
    quant = sample.quant if sample else None
    dtypes = f"{row.sample_dtype} against {row.benchmark_dtype}" if row.sample_dtype else ""
    return Facts(
        shape=shapes[0] if shapes else None,
        dtype=row.sample_dtype if row.sample_dtype == row.benchmark_dtype else dtypes,
        scale=_scale(quant),
        zero_point=quant.zero_point if quant else None,
        attributes={**context.attributes.get(row.name, {}), **({"called at": row.source} if row.source else {})},
        bits=context.bits.get(row.name),
    )


def _info(dump: Dump | None, name: str) -> TensorInfo | None:
    return dump[name].info if dump is not None and name in dump else None


def _scale(quant: Quant | None) -> float | tuple[float, ...] | None:
    if quant is None or not np.any(quant.scale):
        return None
    return float(quant.scale) if np.ndim(quant.scale) == 0 else tuple(float(scale) for scale in np.ravel(quant.scale))


def other_run(label: str, comparison: Comparison) -> OtherRun:
    """A comparison as the run that is drawn beside the report's own."""
    return OtherRun(label, {row.name: _figures(row) for row in comparison.rows})
