"""The result of ``tune``: plans with their costs (bytes, MACs at INT16), figures (error, COS, RMSE, metric) and files.

Figures are measured with the chip's integer arithmetic if the plans were run in integers (``integer_scores``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sgsdump.dumps.tables import data_frame
from sgsdump.fixedpoint.curing.ranges import params_of
from sgsdump.fixedpoint.quantisation.float_model import deployed
from sgsdump.fixedpoint.quantisation.objective import watched_by_output
from sgsdump.fixedpoint.quantisation.trials.plan_trial import words_of
from sgsdump.fixedpoint.tuning.criteria import measured
from sgsdump.fixedpoint.tuning.plan_costs import BYTES

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.quantisation.analysis import Analysis
    from sgsdump.fixedpoint.quantisation.trials.plan_trial import Plan
    from sgsdump.fixedpoint.tuning.integer_scores import EveryPicture, IntegerScores
    from sgsdump.fixedpoint.tuning.search import Proposed, SearchResult
    from sgsdump.fixedpoint.tuning.setup import Setup
    from sgsdump.fixedpoint.tuning.unseen import Expected
    from sgsdump.models.model import Model
    from sgsdump.sidecars.quant_param_entries import QuantParam
    from sgsdump.tensors.types import Range

_HELD = ("held_error", "held_way", "held_metric")
_UNSEEN = ("expected_error", "median_image", "worst_image")
_FACTS = ("label", "asked", "rate", "bytes", "macs16", "predicted", "searched", "error", "way")


@dataclass(frozen=True)
class OutputFigures:
    """The figures of a plan's outputs.

    errors       own error of each output (``Score.error``), at the input of a Softmax that makes the output.
    cos, rmse    of each output.
    metric       the user's metric; None without one.
    held_error   error on held-out images; None if the plan was not run on them.
    held_way     share of the difference between INT8 and INT16 that the plan removes on held-out images.
    held_metric  the user's metric on held-out images.
    unseen       expected error on new images.
    """

    errors: Mapping[str, float]
    cos: Mapping[str, float]
    rmse: Mapping[str, float]
    metric: float | None = None
    held_error: float | None = None
    held_way: float | None = None
    held_metric: float | None = None
    unseen: Expected | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """All figures by name, for JSON."""
        own = {name: value for name, value in vars(self).items() if name != "unseen"}
        figures = (None, None, None) if self.unseen is None else self.unseen.figures
        return own | dict(zip(_UNSEEN, figures))


@dataclass(frozen=True)
class HeldOut:
    """The result of running the plans on held-out images.

    pictures      number of images.
    folds         number of folds that hold the images out; 0 for separate images.
    beyond        rates of plans that were rejected because their error on held-out images is much larger.
    confirmed     whether held-out images confirm the recommended plan.
    float_metric  the user's metric of the float model, on the images of the search and on these; None without one.
    """

    pictures: int
    beyond: tuple[float, ...] = ()
    confirmed: bool = True
    float_metric: tuple[float, float] | None = None
    folds: int = 0


@dataclass(frozen=True)
class Limits:
    """The limits of the outputs, and whether INT8 and the recommended plan are within them.

    allowed   the limits.
    pictures  number of images that INT8 and the recommended plan were run on, held-out images included.
    held_out  whether folds hold these images out of the calibration.
    past      outputs of INT8 beyond the limits; if empty, no INT16 is needed.
    taken     whether the recommended plan is within the limits.
    """

    allowed: Thresholds
    pictures: int
    past: tuple[str, ...] = ()
    taken: bool = True
    held_out: bool = False


@dataclass(frozen=True)
class Effort:
    """The effort of a search.

    pictures     number of images; ``plans_tried`` and ``runs``: numbers of plans and of runs of the network.
    exhaustive   whether every plan was tried.
    complete     whether the search ended before the time ran out; ``unsearched``: parts that were not tried.
    off          for each plan that was run in integers, its error in integers / its error in the search - 1.
    """

    pictures: int
    plans_tried: int
    runs: int
    exhaustive: bool
    complete: bool
    unsearched: tuple[str, ...] = ()
    off: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """One plan.

    label      INT8, INT16, in limits, smallest, knee, or the requested compression rate.
    asked      requested rate, of bytes or of multiplications; None for other plans.
    rate       bytes of the convolutions' weights as a share of their bytes at INT16; ``bytes``: the bytes.
    raised     output names of the convolutions at INT16; ``tensors``: words of tensor_arrays that raise them.
    macs16     share of all multiplications at INT16; None if shapes are unknown.
    predicted  error predicted by the search's model of the errors.
    searched   error measured by fake quantisation; NaN for a plan that was run in integers only.
    error      error with the chip's integer arithmetic (``combined_error``), as ``outputs`` are.
    way        share of the difference between the errors of INT8 and INT16 that the plan removes.
    """

    label: str
    asked: float | None
    rate: float
    bytes: int
    raised: tuple[str, ...]
    tensors: tuple[str, ...]
    macs16: float | None
    predicted: float
    error: float
    way: float
    outputs: OutputFigures
    searched: float = math.nan


@dataclass(frozen=True)
class Pareto:
    """The plans that a search found.

    rows       plans from INT8 to INT16.
    cloud      (rate, error, macs16) of every tried plan.
    taken      row of the recommended plan.
    outputs    names of the outputs; ``watched``: names of the watched tensors.
    objective  description of the error; ``left_out``: outputs that cannot count.
    enough     row of the smallest plan that removes enough error; differs from ``taken`` if a few more bytes gain much.
    cost       cost that the search minimised (``plan_costs``).
    held_out   results on images that the search did not use; None without such images.
    limits     of the outputs; None with a target.
    """

    rows: tuple[Row, ...]
    cloud: tuple[tuple[float, float, float | None], ...]
    taken: Row
    outputs: tuple[str, ...]
    watched: tuple[str, ...]
    objective: str
    left_out: tuple[str, ...]
    effort: Effort
    enough: Row | None = None
    cost: str = BYTES
    held_out: HeldOut | None = None
    limits: Limits | None = None

    @property
    def tells_unseen(self) -> bool:
        """Whether the expected error on new images is known."""
        return any(row.outputs.unseen is not None for row in self.rows)

    @property
    def folds(self) -> int:
        """The number of folds that hold images out; 0 for separate images."""
        return 0 if self.held_out is None else self.held_out.folds

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per plan, as in the CSV. Raises MissingExtra without pandas."""
        columns, lines = plan_lines(self)
        return data_frame(lines, columns)


def pareto(
    search: SearchResult,
    setup: Setup,
    exact: IntegerScores | None = None,
    held: IntegerScores | None = None,
    limits: Limits | None = None,
    unseen: IntegerScores | None = None,
) -> Pareto:
    """Return the result of a search with all figures.

    exact   scores in integers on the images of the search; without them, those of the pool.
    held    scores on held-out images.
    limits  of the outputs.
    unseen  scores for the expected error on new images.
    """
    pool, trial, costs = setup.pool, setup.trial, setup.costs
    error_of = exact.error if exact is not None else pool.error
    low, high = (error_of(end.plan) for end in search.ends)
    outputs: dict[str, str] = {}
    for output, tensor in watched_by_output(trial.proto).items():
        outputs.setdefault(tensor, output)

    def row(label: str, asked: float | None, proposed: Proposed) -> Row:
        plan = proposed.plan
        score = exact.score(plan) if exact is not None else pool.scores[plan]
        chosen, error = [d for d in trial.domains if d.name in plan], error_of(plan)
        return Row(
            label=label,
            asked=asked,
            rate=costs.bytes.rate(plan),
            bytes=costs.bytes_of(plan),
            raised=tuple(name for domain in chosen for name in domain.convolutions),
            tensors=words_of(trial, plan),
            macs16=costs.macs16(plan),
            predicted=proposed.predicted,
            error=error,
            way=(low - error) / (low - high) if low > high else math.nan,
            outputs=OutputFigures(
                {outputs[name]: score.error(name) for name in pool.watched},
                {name: score.cos(name) for name in pool.outputs},
                {name: score.rmse(name) for name in pool.outputs},
                score.mean_metric if pool.metric is not None else None,
                **_held_figures(plan, held, pool.metric is not None),
                unseen=None if unseen is None or plan not in unseen.ran else unseen.expected(plan),
            ),
            searched=pool.error(plan) if plan in pool.scores else math.nan,
        )

    plans = [row(f"{proposed.rate:.4g}", proposed.rate, proposed) for proposed in search.plans]
    ends = (row("INT8", None, search.ends[0]), row("INT16", None, search.ends[1]))
    rows_of = {each.plan: r for each, r in zip(reversed(search.plans), reversed(plans))}
    own = []
    if not search.taken.plan:
        rows_of[search.taken.plan] = ends[0]
    for label, proposed in (("in limits", search.within), ("smallest", search.smallest), ("knee", search.knee)):
        if proposed is not None and proposed.plan not in rows_of:
            own.append(row(label, None, proposed))
            rows_of[proposed.plan] = own[-1]
    return Pareto(
        rows=(ends[0], *own, *plans, ends[1]),
        cloud=tuple(sorted(((costs.bytes.rate(p), pool.error(p), costs.macs16(p)) for p in pool.scores), key=_place)),
        taken=rows_of[search.taken.plan],
        enough=None if search.within else rows_of[search.smallest.plan],
        outputs=tuple(pool.outputs),
        watched=tuple(pool.watched),
        objective=f"{pool.objective.how} of {', '.join(outputs[name] for name in pool.objective.names)}",
        left_out=tuple(outputs[name] for name in pool.combined.left_out),
        effort=Effort(
            len(pool.pictures),
            len(pool.scores),
            pool.runs,
            search.exhaustive,
            search.complete,
            search.unsearched,
            tuple(exact.off().values()) if exact is not None else (),
        ),
        cost=setup.cost,
        held_out=None if held is None else _held_out(search, setup, held),
        limits=None if limits is None else replace(limits, taken=search.within is not None),
    )


def limits_of(
    allowed: Thresholds, model: Model, exact: IntegerScores, every: EveryPicture | None, held: IntegerScores | None
) -> Limits:
    """Return whether INT8 is within the limits in integers, on the images that judge and on held-out images.

    every  all images that judge, if the search sees only some of them.
    """
    judges = [judge for judge in (every or exact, held) if judge is not None]
    past = dict.fromkeys(name for judge in judges for name in judge.past(frozenset(), allowed))
    outputs = watched_by_output(deployed(model))
    names = tuple(output for output, tensor in outputs.items() if tensor in past)
    of_folds = held is not None and held.folds > 0
    pictures = judges[0].pictures if of_folds else sum(judge.pictures for judge in judges)
    return Limits(allowed, pictures, names, held_out=of_folds)


def _held_figures(plan: Plan, held: IntegerScores | None, with_metric: bool) -> dict[str, float | None]:
    if held is None or plan not in held.scores:
        return {}
    error, low, high = (held.error(each) for each in (plan, frozenset[str](), frozenset(held.domains)))
    way = (low - error) / (low - high) if low > high else math.nan
    return dict(zip(_HELD, (error, way, held.score(plan).mean_metric if with_metric else None)))


def _held_out(search: SearchResult, setup: Setup, held: IntegerScores) -> HeldOut:
    pool = setup.pool
    metric = None
    if pool.metric is not None:
        of = partial(measured, pool.metric, pool.outputs)
        parts = [[of(picture.floats, picture) for picture in each] for each in (pool.pictures, setup.held_out)]
        metric = (math.fsum(parts[0]) / len(parts[0]), math.fsum(parts[1]) / len(parts[1]))
    beyond = tuple(setup.costs.bytes.rate(plan) for plan in search.beyond)
    return HeldOut(held.pictures, beyond, search.confirmed, metric, held.folds)


def _place(tried: tuple[float, float, float | None]) -> tuple[float, float]:
    return tried[:2]


def plan_lines(result: Pareto) -> tuple[list[str], list[list[Any]]]:
    """Return the columns, and a row for each plan; names in ``tensor_arrays`` are separated by commas and blanks."""
    measures = [("error", "errors", name) for name in result.taken.outputs.errors]
    measures += [(measure, measure, name) for measure in ("cos", "rmse") for name in result.outputs]
    columns = [
        *_FACTS,
        "metric",
        *(f"{head}:{name}" for head, _, name in measures),
        *_HELD,
        *_UNSEEN,
        "int16_convs",
        "tensor_arrays",
        "taken",
    ]
    lines = [
        [
            *(getattr(row, name) for name in _FACTS),
            row.outputs.metric,
            *(getattr(row.outputs, measure)[name] for _, measure, name in measures),
            *(row.outputs.fields[name] for name in (*_HELD, *_UNSEEN)),
            len(row.raised),
            ", ".join(row.tensors),
            "yes" if row is result.taken else "",
        ]
        for row in result.rows
    ]
    return columns, lines


def worsened(result: Pareto) -> dict[str, tuple[float, float]]:
    """Return (error, error at INT8) of the outputs that the recommended plan makes worse than INT8."""
    low, taken = result.rows[0].outputs.errors, result.taken.outputs.errors
    return {name: (taken[name], low[name]) for name in taken if taken[name] > low[name]}


def as_document(result: Pareto) -> Any:
    """Return the result as plain Python objects for JSON."""
    rows = [
        {**{n: v for n, v in vars(row).items() if n != "outputs"}, **row.outputs.fields, "taken": row is result.taken}
        for row in result.rows
    ]
    facts = {
        name: value
        for name, value in _flat(result, "effort").items()
        if name not in ("rows", "taken", "cloud", "enough", "held_out", "limits")
    }
    told = {
        "held_out": None if result.held_out is None else vars(result.held_out),
        "limits": None if result.limits is None else _flat_limits(result.limits),
        "rows": rows,
    }
    return _plain({"format": "sgsdump plans", "version": 1, **facts, **told, "cloud": result.cloud})


def _flat_limits(limits: Limits) -> dict[str, Any]:
    allowed = {"min_cos": limits.allowed.min_cos, "max_rmse": limits.allowed.max_rmse}
    told = {"pictures": limits.pictures, "held_out": limits.held_out, "past": limits.past, "taken": limits.taken}
    return {**allowed, **told}


def _flat(record: object, part: str) -> dict[str, Any]:
    """Return the fields of a record, with the fields of its record ``part`` inlined."""
    fields: dict[str, Any] = {}
    for name, value in vars(record).items():
        fields |= vars(value) if name == part else {name: value}
    return fields


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def stem(index: int, rate: float) -> str:
    """Return ``0_0.65``: index and requested rate of a plan, as in optimized_quant_info_0_0.65.pkl."""
    return f"{index}_{rate:.4g}"


def optimized(model: Model, proto: ModelProto, ranges: Mapping[str, Range], analysis: Analysis) -> list[QuantParam]:
    """Return all quant parameters of a plan; a file of these parameters is enough to make the fixed model ``proto``.

    As in the SDK's file, input and weights of every convolution come first, in execution order. Then come the other
    tensors, whose ranges would otherwise be measured again (a max pool shares the domain and scale of a convolution),
    and INT16 tensors computed within a domain (the sums before a BatchNormalization).
    """
    params = {p.name: p for p in params_of(replace(model, proto=proto), model, ranges)}
    convolutions = {node.output[0] for nodes in analysis.first_inputs.values() for node in nodes}
    read = [name for node in analysis.graph.nodes if convolutions & {*node.output} for name in node.input[:2]]
    return [params[name] for name in dict.fromkeys([*read, *params]) if name in params]
