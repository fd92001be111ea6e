"""The tuned plans side by side: what each costs (bytes, MACs at 16 bits) and gives (error, COS, RMSE, metric), and its
files. The figures are those in the hardware's own integers, where the plans were run so (``integer_scores``).
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
    """Of each output its own error (``Score.error``), where a Softmax makes it at its input; its COS and RMSE; and the
    user's metric of them all, None without one.

    held_error   the plan's error on the pictures held out, ``held_way`` how far it goes there from INT8's to INT16's,
                 ``held_metric`` the user's metric there; None where it was not run on them.
    unseen       the error to expect on other images, by those held out or given to judge by.
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
        """Every figure by its name, for JSON."""
        own = {name: value for name, value in vars(self).items() if name != "unseen"}
        figures = (None, None, None) if self.unseen is None else self.unseen.figures
        return own | dict(zip(_UNSEEN, figures))


@dataclass(frozen=True)
class HeldOut:
    """The result of running the plans on held-out images.

    pictures      how many.
    folds         the number of folds that hold the images out; 0 for images of their own.
    beyond        plans that were to be taken, but whose error lies beyond the search's there: their parts of the bytes.
    confirmed     whether that of the one to take does not.
    float_metric  the user's metric of the float model itself, on the search's pictures and on these; None without one.
    """

    pictures: int
    beyond: tuple[float, ...] = ()
    confirmed: bool = True
    float_metric: tuple[float, float] | None = None
    folds: int = 0


@dataclass(frozen=True)
class Limits:
    """The limits on the outputs, and whether INT8 and the plan to take are within them.

    allowed   the limits.
    pictures  the number of images that INT8 and the plan to take were run on, held-out images included.
    held_out  whether folds hold these images out of the calibration.
    past      the outputs of INT8 past the limits; if empty, no INT16 is needed.
    taken     whether the plan to take is within the limits.
    """

    allowed: Thresholds
    pictures: int
    past: tuple[str, ...] = ()
    taken: bool = True
    held_out: bool = False


@dataclass(frozen=True)
class Effort:
    """The extent of a search: how many pictures, plans and runs of the network; whether it tried every plan, and
    whether it ended before the time ran out, or what it did not look at; ``off`` of each plan that was run in integers
    how far its error is above the one that the search saw, as a part of that."""

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

    label      INT8, INT16, in limits, smallest, knee, or the compression rate asked for.
    asked      that rate, of bytes or of multiplications; None for the others.
    rate       bytes of the convolutions' weights over their bytes at 16 bits; ``bytes`` themselves.
    raised     output names of the convolutions at INT16; ``tensors`` the words of tensor_arrays that raise them.
    macs16     part of all multiplications that are done at 16 bits; None where the shapes are not known.
    predicted  the error the model of the search predicted, ``searched`` the one that it saw by fake quantisation (NaN
               for a plan that was run in integers alone);
    error      the one in the hardware's integers (see ``combined_error``), as ``outputs`` are.
    way        how far from INT8's error to INT16's, 1 = all the way.
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
    """``rows`` from INT8 to INT16; ``cloud`` (rate, error, macs16) of every plan that was tried, ``taken`` the row to
    take; ``cost`` what the search made small (``plan_costs``), ``objective`` what the error is, ``left_out`` the
    outputs that cannot count; ``enough`` the smallest that goes far enough, where that is not ``taken``: a few
    more bytes bought much; ``held_out`` where there were pictures that the search did not see; ``limits`` on the
    outputs, None with a target."""

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
        """Whether the error to expect on unseen images is known."""
        return any(row.outputs.unseen is not None for row in self.rows)

    @property
    def folds(self) -> int:
        """The number of folds that hold images out; 0 for images of their own."""
        return 0 if self.held_out is None else self.held_out.folds

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one line per plan, the columns of the CSV. Raises MissingExtra without pandas."""
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
    """Lay the search's result out.

    exact, held, unseen  the integers that the figures are of: on the search's pictures (without it those of the pool),
                         on pictures held out, and on those that tell what to expect on others.
    limits               on the outputs.
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
    """The columns and a line for each plan; ``tensor_arrays`` holds names separated by blanks and commas."""
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
    """Outputs that the plan to take leaves worse than all-INT8 does: its error and INT8's."""
    low, taken = result.rows[0].outputs.errors, result.taken.outputs.errors
    return {name: (taken[name], low[name]) for name in taken if taken[name] > low[name]}


def as_document(result: Pareto) -> Any:
    """Plain Python for JSON."""
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
    """A record's fields, one of which is a record whose fields stand in its place."""
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
    """``0_0.65``: the number of the plan and the rate asked for, as in optimized_quant_info_0_0.65.pkl."""
    return f"{index}_{rate:.4g}"


def optimized(model: Model, proto: ModelProto, ranges: Mapping[str, Range], analysis: Analysis) -> list[QuantParam]:
    """Return all quant parameters of a plan: a file of them alone makes the fixed model ``proto`` again.

    As in the SDK's file, input and weights of every convolution come first, in execution order; then every other
    tensor, whose range would be measured anew otherwise (a max pool shares a convolution's domain, and so its scale),
    and what is only computed, in INT16, within a domain (the sums before a BatchNormalization).
    """
    params = {p.name: p for p in params_of(replace(model, proto=proto), model, ranges)}
    convolutions = {node.output[0] for nodes in analysis.first_inputs.values() for node in nodes}
    read = [name for node in analysis.graph.nodes if convolutions & {*node.output} for name in node.input[:2]]
    return [params[name] for name in dict.fromkeys([*read, *params]) if name in params]
