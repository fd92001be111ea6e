"""Data of the page and the charts of a comparison: ``Report`` and its parts.

``report_of`` fills them, ``html.document.render`` renders the page, and ``charts`` draws the images.
"""

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
from sgsdump.dumps.dump import Dump, Operator
from sgsdump.reports.code import Code, CodeOf
from sgsdump.reports.graph.parts import Part, direct_reads, parts_of
from sgsdump.reports.graph.program_flow import sources_of
from sgsdump.reports.layers.table import Entry, left_out_of
from sgsdump.reports.remarks import trouble, why
from sgsdump.reports.tensors.views import TensorView, views_of
from sgsdump.reports.three_lines import verdict_block
from sgsdump.reports.verdict import Step, details, next_steps
from sgsdump.reports.worst_picture import WorstPicture
from sgsdump.tensors.tensor import Quant, TensorInfo
from sgsdump.tensors.types import Range

_WHERE = ("argument", "cause", "another tensor", "not finite", "channel")
BLOB = "Caffe blob"  # name of the attribute with the blob that the tensor is a stage of


IN_FLOAT = 32  # bits of a layer with weights that stays in float32


@dataclass(frozen=True)
class Bits:
    """Bits of a convolution's input.

    input      tensor that the convolution reads.
    now        8 or 16; IN_FLOAT if the convolution stays in float.
    raised_by  what raised the input to 16 bits; "" if nothing did.
    rule       rule of the SDK that raised it.
    advised    whether the advice raises it.
    """

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
    """Facts of a report other than the comparison.

    facts        (title, value) of the run: files, images, versions.
    assumptions  assumptions made because information was missing.
    ranges       calibration ranges by tensor name.
    sample       dump, for shapes, scales and dataflow; ``benchmark`` likewise.
    attributes   attributes of each layer's operator, as text by name (``attributes_of``).
    bits         bits of the convolutions, by layer.
    page_budget  largest number of bytes of tensor values in the page.
    picture      name of the image whose tensors the dumps hold; "" if there is only one.
    """

    title: str = "Where accuracy is lost"
    facts: Sequence[tuple[str, str]] = ()
    assumptions: Sequence[str] = ()
    ranges: Mapping[str, Range] = field(default_factory=dict)
    sample: Dump | None = None
    benchmark: Dump | None = None
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bits: Mapping[str, Bits] = field(default_factory=dict)
    page_budget: int = 0
    picture: str = ""


PLAIN = Context()


@dataclass(frozen=True)
class Figures:
    """Figures of a layer, as in ``comparison.row.Row``; they may be NaN or infinite.

    sqnr        in dB; None if only the other figures are known.
    rise        rmse minus the largest rmse of the sources.
    own_error   rmse of the layer if only its convolution is quantised; None if not measured.
    inherited   rmse of the layer if all other convolutions are quantised.
    in_all      rmse of the layer with all convolutions as in the same model.
    brings      share of the outputs' error if only this convolution is quantised; None if not measured.
    gives_back  share of the outputs' error that is removed if only this convolution is exact.
    mean_rmse   mean over all images; None for one image.
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
    """Facts of a layer's tensor.

    shape       None if unknown.
    scale       scale of the quantised sample; None for none; a tuple for one scale per channel.
    attributes  attributes of the operator, as text by name.
    bits        bits of the layer's convolution; None for other operators.
    code        code that called the operator: of one program, or of both if they differ; () if the dumps have none.
    """

    shape: tuple[int, ...] | None = None
    dtype: str = ""
    scale: float | tuple[float, ...] | None = None
    zero_point: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    bits: Bits | None = None
    code: tuple[Code, ...] = ()


@dataclass(frozen=True)
class Layer:
    """Compared layer.

    index          number of the operator in the model.
    verdict        pass, warn or fail.
    rises          whether the error rises most at this layer or a few others (``Comparison.jumps``).
    note           remarks on the comparison.
    sources        names of the nearest compared layers that feed this layer.
    trouble        NaN and Inf of either side as text; "" for none.
    worst_picture  name of the image with the largest error; "" for one image.
    module         path of the layer's module, such as ``layers.0.attn``; "" if unknown.
    parts          operators inside the layer that were not compared.
    reads          what the operator of a layer with parts reads itself.
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
    module: str = ""
    parts: tuple[Part, ...] = ()
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Plan of tune.

    rate   bytes of the weights as a share of all INT16; ``asked`` is the requested rate.
    error  error of the outputs.
    """

    label: str
    rate: float
    error: float
    asked: float | None = None
    copy: str = ""


@dataclass(frozen=True)
class Tradeoff:
    """Plans of tune.

    tried  (rate, error) of every plan, as the search measured it.
    plans  reported plans, measured with the integer arithmetic of the hardware; ``taken`` is the chosen plan.
    what   label of the error axis.
    """

    tried: tuple[tuple[float, float], ...]
    plans: tuple[Plan, ...]
    taken: Plan
    what: str = "error of the outputs"

    @property
    def envelope(self) -> list[tuple[float, float]]:
        """(rate, error) of the tried plans on the Pareto front."""
        return lower_envelope(self.tried)


@dataclass(frozen=True)
class OtherRun:
    """Another run of the same layers, drawn beside the report's run.

    ``figures`` are by layer name. ``is_earlier`` is True for a run before the changes, False for a run with the
    recommended changes.
    """

    label: str
    figures: Mapping[str, Figures]
    is_earlier: bool = False


@dataclass(frozen=True)
class View:
    """Options of the page.

    first     layer to select first, from the first finding; "" for the layer with the largest rise.
    by_flow   whether the dataflow is known; otherwise layers are in file order.
    other     another run to compare with.
    worst     outputs on the image with the largest error.
    graph     files of ``graph_files`` beside the page.
    measured  whether the layers were compared; otherwise the page has no figures.
    """

    first: str = ""
    by_flow: bool = True
    other: OtherRun | None = None
    worst: WorstPicture | None = None
    graph: tuple[str, ...] = ()
    measured: bool = True


@dataclass(frozen=True)
class Report:
    """All data of a page.

    verdict   first lines of the verdict (``three_lines.verdict_block``).
    layers    compared layers, in depth order.
    left_out  layers that were not compared, with the reason.
    limits    limits by metric (``cos``, ``rmse``, ``mse``, ``sqnr``), drawn as lines in the chart.
    good      whether the verdict is good; None if the layers decide.
    details   further sentences below the verdict.
    tensors   8-bit values of some layers, by name (``tensors.views.views_of``).
    picture   name of the image that ``tensors`` belong to; "" if there is only one.
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
    tensors: Mapping[str, TensorView] = field(default_factory=dict)
    picture: str = ""


def report_of(
    comparison: Comparison,
    thresholds: Thresholds = DOCUMENTED,
    context: Context = PLAIN,
    steps: Iterable[Step] | None = None,
    conclusion: Verdict | None = None,
) -> Report:
    """Return the report. Rows from ``compare(…, details=True)`` have details, which the page shows if selected.

    steps       next steps; None for the steps that the comparison alone can recommend.
    conclusion  verdict with the user's limits; None for a verdict without limits.
    """
    blobs = {name: texts[BLOB] for name, texts in context.attributes.items() if BLOB in texts}
    concluded = comparison.verdict() if conclusion is None else conclusion
    concluded = replace(concluded, assumptions=())  # the page lists assumptions itself
    first = _first(comparison, thresholds)
    report = Report(
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
        view=View(first, comparison.completeness.by_flow),
        details=details(comparison, thresholds, concluded, blobs),
    )
    return with_tensors(report, comparison, context)


def with_tensors(report: Report, comparison: Comparison, context: Context) -> Report:
    """Return the report with the values of the layers that add the largest error by the report's figures."""
    added = {layer.name: _added(layer.figures) for layer in report.layers}
    views = views_of(comparison.rows, context.sample, context.benchmark, added, report.view.first, context.page_budget)
    return replace(report, tensors=views, picture=context.picture)


def _added(figures: Figures) -> float:
    """Return the error that a layer adds: the share that is removed if measured, else its own error or rise."""
    for figure in (figures.gives_back, figures.own_error):
        if figure is not None:
            return figure
    return math.inf if math.isnan(figures.rmse) and figures.mse != 0 else figures.rise


def _first(comparison: Comparison, thresholds: Thresholds) -> str:
    """Return the layer of the first finding that names a layer."""
    findings = (finding for finding in comparison.findings(thresholds) if finding.kind in _WHERE)
    # An operator that only one side has is no layer of the page; the layers that use its result are.
    where = (
        name for finding in findings for name in (finding.names if "only_in" in finding.facts else [finding.layer])
    )
    return next((name for name in where if name), "")


def layers_of(comparison: Comparison, thresholds: Thresholds, context: Context) -> tuple[Layer, ...]:
    """Return one layer per row, in order."""
    jumps = {id(row) for row in comparison.jumps} if len(comparison.rows) > 1 else set()
    range_names = pair_ranges([row.names[-1] for row in comparison.rows], context.ranges)
    names = [row.name for row in comparison.rows]
    parts = parts_of(names, context.benchmark)
    direct = direct_reads(parts, context.benchmark)
    network = context.benchmark.network() if context.benchmark is not None else None
    flow = sources_of(set(names), context.benchmark)
    code = CodeOf(context.sample, context.benchmark)
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
                sources=flow.get(row.name, row.sources),
                facts=_facts(row, context, code.of_row(row)),
                worst_picture=row.runs.worst if row.runs else "",
                details=details,
                module=_module_of(row, (network or {}).get(row.op_index)),
                parts=parts.get(row.name, ()),
                reads=direct.get(row.name, ()),
            )
        )
    return tuple(layers)


def _module_of(row: Row, operator: Operator | None) -> str:
    """Return the path of a row's module, and below it the operator, if the operator has several tensors in the dump."""
    module = row.module or (operator.module if operator is not None else "")
    folder, _, tensor = row.name.rpartition("/")
    if module and tensor.startswith(("input.", "output.")):
        return f"{module}.{folder.rpartition('/')[2]}"
    return module


def limits_of(thresholds: Thresholds) -> dict[str, float]:
    """Return the limits on the metrics that the charts draw."""
    limits = {"cos": thresholds.min_cos, "rmse": thresholds.max_rmse, "mse": thresholds.max_mse}
    limits |= {name: limit for name, limit in thresholds.further if name == "sqnr"}
    return {name: limit for name, limit in limits.items() if limit is not None}


def lower_envelope(plans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the Pareto front of (rate, error), sorted by rate: plans with less error than every plan of lower rate.

    Plans with a NaN error are left out.

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


def _facts(row: Row, context: Context, code: tuple[Code, ...]) -> Facts:
    sample, benchmark = _info(context.sample, row.sample_name), _info(context.benchmark, row.name)
    shapes = [info.shape for info in (benchmark, sample) if info and info.shape is not None]
    quant = sample.quant if sample else None
    called = {} if not row.source or row.source in [each.place for each in code] else {"called at": row.source}
    dtypes = f"{row.sample_dtype} against {row.benchmark_dtype}" if row.sample_dtype else ""
    return Facts(
        shape=shapes[0] if shapes else None,
        dtype=row.sample_dtype if row.sample_dtype == row.benchmark_dtype else dtypes,
        scale=_scale(quant),
        zero_point=quant.zero_point if quant else None,
        attributes={**context.attributes.get(row.name, {}), **called},
        bits=context.bits.get(row.name),
        code=code,
    )


def _info(dump: Dump | None, name: str) -> TensorInfo | None:
    return dump[name].info if dump is not None and name in dump else None


def _scale(quant: Quant | None) -> float | tuple[float, ...] | None:
    if quant is None or not np.any(quant.scale):
        return None
    return float(quant.scale) if np.ndim(quant.scale) == 0 else tuple(float(scale) for scale in np.ravel(quant.scale))


def other_run(label: str, comparison: Comparison) -> OtherRun:
    """Return a comparison as the other run, which is drawn beside the report's run."""
    return OtherRun(label, {row.name: _figures(row) for row in comparison.rows})
