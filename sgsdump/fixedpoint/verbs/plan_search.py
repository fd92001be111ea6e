"""``tune`` in its default mode: search the smallest set of INT16 convolutions within a time budget."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.verbs.cured_ways import Start, start_cured
from sgsdump.fixedpoint.verbs.judges import JudgedBy, JudgingFeeds, judges_of
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.fixedpoint.verbs.smallest_plan import COMPARED, SmallestPlan
from sgsdump.models.network import Beside, beside_of, named_network
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.curing.cure import Cured
    from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
    from sgsdump.fixedpoint.tuning.criteria import Target, UserMetric
    from sgsdump.fixedpoint.tuning.integer_scores import IntegerScores
    from sgsdump.fixedpoint.tuning.pareto import Limits
    from sgsdump.fixedpoint.tuning.search import SearchResult
    from sgsdump.fixedpoint.tuning.setup import Setup
    from sgsdump.fixedpoint.tuning.unseen import Calibrating
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.network import Data
    from sgsdump.tensors.types import Range

Left = Callable[[], float]
BUDGET, OBJECTIVE, COST = "10m", "mean", "bytes"
COSTS = (COST, "macs")
# Estimates of the remaining time. HALVED: plans that run in integers to find the smallest sufficient plan.
# REPORTED: time of one image of the report, in runs of one image.
HALVED, REPORTED = 4, 4


@dataclass(frozen=True)
class Aims:
    """The goal of a search: the best plan for each rate, or the cheapest plan that reaches a target.

    limits            limits on the outputs of the recommended plan, if there is no target
    metric_text       contents of the file of the user's metric
    objective         error to minimise, as typed by the user
    cost              cost to minimise: ``bytes`` or ``macs``
    counts_agreement  whether the verdict counts the answers that agree with the float model
    """

    rates: tuple[float, ...]
    limits: Thresholds
    target: Target | None = None
    metric: UserMetric | None = None
    metric_text: bytes = b""
    objective: str = "mean"
    cost: str = "bytes"
    counts_agreement: bool = True


@dataclass(frozen=True, eq=False)
class Calibrated:
    """An open model with its calibration.

    ranges  calibration ranges, with room for tensors stored in INT16
    seen    ranges of the values on the calibration images
    how     settings for another calibration without some of the images
    """

    opened: OpenNetwork
    ranges: Mapping[str, Range]
    side: SideRanges
    seen: Mapping[str, Range]
    how: Calibrating
    cured: Cured | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """Resources and reporting of a search.

    left   returns the seconds left
    file   file that stores every tried plan, so that a search can resume; None: no file
    begin  receives the amount of work before the search starts
    """

    quant_level: str
    workers: Workers
    left: Left
    progress: Progress = SILENT
    file: Path | None = None
    begin: Callable[[Beginning], None] = lambda beginning: None


@dataclass(frozen=True)
class Beginning:
    """The amount of work that a search has to do.

    groups    groups of convolutions that are raised together
    most      maximum number of plans to run
    pictures  images that judge
    resumed   results known from an earlier run
    ending    time reserved for the steps after the search
    limits    whether INT8 is within the limits
    """

    groups: int
    most: int
    pictures: int
    resumed: int
    ending: Ending
    limits: Limits | None = None


@dataclass(frozen=True)
class Ending:
    """Seconds reserved for the steps after the search: verifying plans in integer arithmetic, and the report."""

    verify: float
    report: float

    @property
    def seconds(self) -> float:
        """Seconds for both steps."""
        return self.verify + self.report


class SearchOptions(Beside, JudgedBy, total=False):
    """Options of ``tune`` in its default mode, in addition to those of ``JudgedBy``.

    Attributes
    ----------
    rates : sequence of float
        Compression rates to find plans for. The rate is the bytes of weights, relative to all INT16: 0.5 is all INT8, 1
        is all INT16. With ``cost="macs"``, multiplications replace bytes. Default: 0.65, 0.7 … 0.95.
    target : str, optional
        Find the cheapest plan that reaches this target, such as ``output-cos>=0.99`` or ``metric>=0.97``. Cannot be
        combined with ``rates``, ``min_cos`` or ``max_rmse``.
    min_cos, max_rmse : float, optional
        Limits for the outputs. The cheapest plan within the limits is recommended; this plan may be all INT8. If both
        are None, the documented limits 0.99 and 0.1 apply.
    objective : str
        Error to minimise: ``mean`` of all outputs (default), ``worst``, or the names of outputs.
    cost : {"bytes", "macs"}
        Cost to minimise: bytes of weights (default), or multiplications at INT16.
    budget : str
        Time limit, such as ``60s`` or ``10m`` (default).
    cure : bool
        If True, start from the cured model. The plans then apply to the cured model only.
    """

    rates: Sequence[float]
    target: str | None
    min_cos: float | None
    max_rmse: float | None
    objective: str
    cost: str
    budget: str
    cure: bool


def smallest_plan(model: str | Path, data: Data, quant_level: str, options: SearchOptions) -> SmallestPlan:
    """Search for the smallest plan; see ``tune``."""
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.tuning.proposals import check_solver
    from sgsdump.progress import bars

    begun = time.monotonic()
    check_solver()
    network = named_network(model, data, beside_of(options, SearchOptions))
    typed = ",".join(map(str, options.get("rates", ()))) or None
    aims = aims_of(
        typed,
        options.get("target"),
        options.get("metric"),
        options.get("objective", OBJECTIVE),
        options.get("cost", COST),
        Thresholds(options.get("min_cos"), options.get("max_rmse")),
    )
    end = begun + parse_seconds(options.get("budget", BUDGET))
    opened = open_network(network, quant_level)
    feeds = judges_of(options).feeds(opened)
    run = Run(quant_level, Workers(), lambda: end - time.monotonic(), bars())
    if not options.get("cure"):
        return searched(calibrated(opened, feeds.calibrated, run), feeds, aims, run)
    start = start_cured(network, opened, WITHOUT_BITS[quant_level], run.progress)
    return searched(calibrated(start, feeds.calibrated, run), feeds, aims, run)


def aims_of(
    rates: str | None,
    target: str | None,
    metric: str | UserMetric | None,
    objective: str,
    cost: str,
    limits: Thresholds | None = None,
) -> Aims:
    """Parse the options of a search. Without ``limits``, the documented limits apply.

    Raises ConfigError for invalid options, and InputError if the metric cannot be loaded.
    """
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.files.bounded_read import read_bytes
    from sgsdump.fixedpoint.tuning.criteria import LoadedMetric, load_metric, parse_target
    from sgsdump.fixedpoint.tuning.search import RATES

    chosen = parse_rates(rates) if rates else RATES
    wanted = parse_target(target) if target else None
    if target and rates:
        raise ConfigError("--rates and --target cannot be combined: --target determines the compression rate")
    if target and limits:
        raise ConfigError(
            "--target cannot be combined with --min-cos, --max-rmse: both define when a plan is good enough"
        )
    limits = limits or DOCUMENTED
    if wanted is not None and wanted.name == "metric" and not metric:
        raise ConfigError("--target metric>=X needs --metric FILE.py:function")
    if cost not in COSTS:
        raise ConfigError(f"cost {cost!r} is unknown; use {' or '.join(COSTS)}")
    if not isinstance(metric, str):
        return Aims(chosen, limits, wanted, metric, b"", objective, cost)
    loaded = load_metric(metric)
    text = read_bytes(loaded.file) if isinstance(loaded, LoadedMetric) else metric.encode()
    from sgsdump.comparison.agreement import NONE

    return Aims(chosen, limits, wanted, loaded, text, objective, cost, metric != NONE)


def parse_rates(text: str) -> tuple[float, ...]:
    """Parse a list of rates, each above 0.5 and at most 1. Raises ConfigError."""
    from sgsdump.fixedpoint.tuning.search import check_rates

    try:
        rates = sorted({float(word) for word in text.split(",") if word.strip()})
    except ValueError as error:
        raise ConfigError(f"--rates {text!r} is not a list of numbers like 0.65,0.7") from error
    if not rates:
        raise ConfigError("--rates names no rate")
    check_rates(rates)
    return tuple(rates)


def parse_seconds(text: str) -> float:
    """Return a time (``60s``, ``5m``, ``1.5h``, or a number of seconds) in seconds. Raises ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match:
        raise ConfigError(f"--budget {text!r} is not a time; write 60s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def calibrated(network: OpenNetwork | Start, feeds: Feeds, run: Run) -> Calibrated:
    """Calibrate a model. Raises errors of calibration."""
    from sgsdump.fixedpoint.curing.ranges import with_int16_room
    from sgsdump.fixedpoint.quantisation.calibration import calibrate
    from sgsdump.fixedpoint.quantisation.fixed_model import rehearse
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.fixedpoint.tuning.unseen import Calibrating

    start = network if isinstance(network, Start) else None
    opened = network.opened if isinstance(network, Start) else network
    level = WITHOUT_BITS[run.quant_level]
    rehearse(opened.model, feeds[0], opened.config)
    found = calibrate(opened.model, feeds, opened.config, level, workers=run.workers, progress=run.progress)
    side, per_channel = side_ranges(found.statistics), run.quant_level != "L1"
    cured = None if start is None else start.cured

    def room(ranges: Mapping[str, Range], side: SideRanges, per_channel: bool) -> Mapping[str, Range]:
        if start is None:
            return with_int16_room(opened.model, ranges, side.channels, per_channel)
        return start.with_room(found.ranges, side, per_channel, ranges)

    how = Calibrating(opened.model, opened.config, level, room, run.workers)
    return Calibrated(opened, room(found.ranges, side, per_channel), side, found.ranges, how, cured)


def searched(network: Calibrated, feeds: JudgingFeeds, aims: Aims, run: Run) -> SmallestPlan:
    """Search the plans of a model and verify the best plans in integer arithmetic. Raises errors of the search."""
    from sgsdump.fixedpoint.quantisation.fixed_model import clipped_ranges
    from sgsdump.fixedpoint.quantisation.float_model import deployed
    from sgsdump.fixedpoint.quantisation.objective import watched_by_output
    from sgsdump.fixedpoint.quantisation.tensor_scales import INT16
    from sgsdump.fixedpoint.tuning.criteria import limits_target, parse_objective
    from sgsdump.fixedpoint.tuning.integer_choice import chosen, confirmed, within_limits
    from sgsdump.fixedpoint.tuning.integer_scores import EveryPicture, FoldScores, IntegerScores, fixed_of
    from sgsdump.fixedpoint.tuning.pareto import limits_of, pareto
    from sgsdump.fixedpoint.tuning.search import most_evaluations
    from sgsdump.fixedpoint.tuning.setup import Judging, set_up
    from sgsdump.fixedpoint.tuning.unseen import folds_for
    from sgsdump.models.feeds.by_content import PicturePairs

    model, config = network.opened.model, network.opened.config
    folds = None if feeds.unseen is not None else folds_for(network.how, feeds.calibrated, run.progress)
    judging = Judging(
        aims.metric,
        aims.metric_text,
        parse_objective(aims.objective, watched_by_output(deployed(model))),
        run.file,
        run.workers,
        aims.cost,
        network.side,
        feeds.validated() if folds is None else replace(feeds, held_out=folds.feeds).validated(),
    )
    setup = set_up(model, network.ranges, config, feeds.judged(), judging, run.progress)
    pool, trial, left = setup.pool, setup.trial, run.left
    most = most_evaluations(len(setup.sizes.domains), 0 if aims.target else len(aims.rates))
    spans = {name: each.at(INT16).high - each.at(INT16).low for name, each in network.seen.items()}
    exact = IntegerScores(pool, trial, run.progress, spans=spans)
    held = IntegerScores(pool, trial, run.progress, setup.held_out, spans) if setup.held_out else None
    if folds is not None:
        held = FoldScores(folds, pool, trial, run.progress, setup.held_out, spans)
    ending = _ending_of(exact, aims, len(setup.held_out))
    pairs = PicturePairs(feeds.judges)
    every = EveryPicture(trial, pairs, spans, run.progress) if len(pairs) > exact.pictures else None
    limits = None if aims.target else limits_of(aims.limits, model, exact, every, held)
    goal = None if limits is None else limits_target(aims.limits, pool.watched)
    run.begin(Beginning(len(setup.sizes.domains), most, len(pool.pictures), pool.resumed, ending, limits))
    search_goal = goal if limits is not None and limits.past else None
    found = _proposed(setup, aims, most, lambda: left() - ending.seconds, search_goal)
    if goal is not None:
        others = [judge for judge in (every, held) if judge is not None]
        found = within_limits(found, setup, exact, others, goal, lambda: left() - ending.report)
    found = chosen(found, pool, setup.sizes, exact, aims.target, lambda: left() - ending.report)
    if held is not None:
        if found.within is None:
            found = confirmed(found, setup.sizes, exact, held, aims.target, left)
        for plan in dict.fromkeys(proposed.plan for proposed in (*found.ends, found.taken)):
            held.score(plan)
        for proposed in (found.smallest, *found.plans):
            if left() > ending.report:
                held.score(proposed.plan)
    unseen = exact if held is None and feeds.unseen is not None else held
    result = pareto(found, setup, exact, held, limits, unseen)
    fixed = fixed_of(trial, result.taken.tensors)
    ini, level = network.opened.ini, WITHOUT_BITS[run.quant_level]
    clipped = clipped_ranges(fixed.plan, network.seen)
    return SmallestPlan(result, trial, fixed, ini, feeds.judges, level, network.cured, clipped, aims.counts_agreement)


def _proposed(setup: Setup, aims: Aims, most: int, left: Left, goal: Target | None) -> SearchResult:
    """Search plans for the rates or the target with at most ``most`` runs; ``goal`` defines the smallest plan."""
    from sgsdump.fixedpoint.tuning.search import search_rates, search_target

    setup.pool.expect(most * len(setup.pool.pictures))
    try:
        if aims.target is not None:
            return search_target(setup.pool, setup.sizes, aims.target, left)
        return search_rates(setup.pool, setup.sizes, aims.rates, left, goal)
    finally:
        setup.pool.close()


def _ending_of(exact: IntegerScores, aims: Aims, held_out: int) -> Ending:
    """Estimate the reserved time by running one plan in integer arithmetic: all INT8, which must run anyway."""
    begun = time.monotonic()
    exact.score(frozenset())
    plan = time.monotonic() - begun
    rates = 1 if aims.target else len(aims.rates)
    plans = 1 + rates + HALVED + (rates + 3) * held_out / exact.pictures
    return Ending(plan * plans, plan * COMPARED * REPORTED / exact.pictures)
