"""``tune``: the cheapest set of INT16 convolutions that repairs a model, chosen in integers, and its folder."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump import plugins
from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.verbs.cured_ways import CURED, Start, start_cured
from sgsdump.fixedpoint.verbs.judges import JudgedBy, JudgingFeeds, judges_of
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.network import Beside, beside_of, named_network
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.curing.cure import Cured
    from sgsdump.fixedpoint.quantisation.fixed_model import ClippedRange, FixedModel
    from sgsdump.fixedpoint.quantisation.ranges.statistics import SideRanges
    from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
    from sgsdump.fixedpoint.tuning.criteria import Target, UserMetric
    from sgsdump.fixedpoint.tuning.integer_scores import IntegerScores
    from sgsdump.fixedpoint.tuning.pareto import Limits, Pareto, Row
    from sgsdump.fixedpoint.tuning.search import SearchResult
    from sgsdump.fixedpoint.tuning.setup import Setup
    from sgsdump.fixedpoint.tuning.unseen import Calibrating
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.network import Data
    from sgsdump.tensors.types import Range

Left = Callable[[], float]
BUDGET = "10m"
# Plans run in integers to find the smallest that does, about; a picture of the report takes as long as so many.
HALVED, REPORTED = 4, 4
PROGRESS = "progress.json"
RESULTS = re.compile(
    r"optimized(_\d+_[\d.]+)?\.onnx|optimized_quant_info(_\d+_[\d.]+)?\.(json|pkl)|"
    r"input_config(_\d+_[\d.]+)?\.ini|pareto\.(csv|json|png)|report\.html|cured\.(onnx|quant\.json|quant\.pkl)"
)
# The layers of the plan to take are compared on this many pictures.
COMPARED = 4


def is_kept(name: str) -> bool:
    """Whether a file of an older folder stays: progress.json and the user's own, but no result of an earlier run."""
    return not RESULTS.fullmatch(name)


@dataclass(frozen=True)
class Written:
    """What is written beside the table: ``fixed_models``, and quant parameters as ``pickles`` too; ``facts`` more lines
    of the page's footer."""

    fixed_models: bool = False
    pickles: bool = False
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Tuned:
    """Which convolutions to give 16 bits.

    result  every plan of the table with what it costs and gives: ``result.rows``, ``result.taken`` the one to take.
    trial   the network whose plans they are; ``fixed`` the fixed model of the one to take.
    ini     the user's input_config.ini.
    judges  the pictures that plans were judged by.
    quant_level  to calibrate with, so that the fixed model is this one.
    cured   the model that all of it is for, where it was cured.
    clipped  values seen while calibrating that the plan to take does not hold.
    """

    result: Pareto
    trial: PlanTrial
    fixed: FixedModel
    ini: bytes
    judges: Feeds
    quant_level: str
    cured: Cured | None = None
    clipped: tuple[ClippedRange, ...] = ()

    @property
    def within_limits(self) -> bool:
        """Whether the outputs of the plan to take are within the limits; true with a target, which has been reached."""
        return self.result.limits is None or self.result.limits.taken

    @property
    def taken(self) -> Row:
        """The plan to take."""
        return self.result.taken

    @property
    def to_copy(self) -> str:
        """``[CONV_CONFIG]`` of input_config.ini for it; empty where nothing has to be raised."""
        from sgsdump.fixedpoint.reports.cause_sentences import conv_config

        return conv_config(self.taken.tensors) if self.taken.tensors else ""

    def to_pandas(self) -> Any:
        """Every plan of the table as a DataFrame, the columns of ``pareto.csv``; needs the extra ``pandas``."""
        return self.result.to_pandas()

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the error of every plan against its bytes, and the one to take."""
        drawn: Axes = plugins.ask("plot of plans", self.result, axes)
        return drawn

    def to_html(self, path: str | Path) -> Path:
        """Write the page, one file that fetches nothing: the trade-off, and every layer of the plan to take, which is
        compared for it. Raises OutputError."""
        from tempfile import TemporaryDirectory

        from sgsdump.files.atomic_write import replace_text
        from sgsdump.progress import bars

        with TemporaryDirectory(prefix="sgsdump_") as folder:
            replace_text(Path(path), self._page(Path(folder), (), bars()))
        return Path(path)

    def save(self, folder: str | Path, what: Written = Written()) -> Path:
        """Write the folder of ``sgsdump tune``; of an older one the user's own files stay. Raises OutputError."""
        from sgsdump.files.atomic_write import replacing_folder

        with replacing_folder(Path(folder), keep=is_kept) as newer:
            self.write(newer, what)
        return Path(folder)

    def write(self, folder: Path, what: Written = Written(), progress: Progress = SILENT) -> None:
        """Fill a folder. Raises OutputError."""
        from sgsdump.files.atomic_write import replace_text, replacing
        from sgsdump.fixedpoint.quantisation.float_model import serialise
        from sgsdump.fixedpoint.reports.pareto_chart import pareto_png
        from sgsdump.fixedpoint.reports.pareto_reports import pareto_csv, pareto_json
        from sgsdump.fixedpoint.tuning.integer_scores import fixed_of
        from sgsdump.fixedpoint.tuning.pareto import optimized, stem
        from sgsdump.sidecars import quant_param
        from sgsdump.sidecars.input_config import with_tensor_arrays

        def write(name: str, data: bytes) -> None:
            with replacing(folder / name) as file:
                file.write(data)

        asked = [row for row in self.result.rows if row.asked is not None]
        names = [f"_{stem(index, row.asked or row.rate)}" for index, row in enumerate(asked)]
        for name, row in [*zip(names, asked), ("", self.taken)]:
            fixed = fixed_of(self.trial, row.tensors)
            params = optimized(self.trial, fixed, self.trial.model.path)
            quant_param.write(params, folder / f"optimized_quant_info{name}.json")
            if what.pickles or row is self.taken:
                quant_param.write(params, folder / f"optimized_quant_info{name}.pkl", "pickle")
            if what.fixed_models:
                write(f"optimized{name}.onnx", serialise(fixed.proto))
            write(f"input_config{name}.ini", with_tensor_arrays(self.ini, row.tensors))
        write("pareto.csv", pareto_csv(self.result).encode())
        write("pareto.json", pareto_json(self.result).encode())
        write("pareto.png", pareto_png(self.result))
        replace_text(folder / "report.html", self._page(folder, what.facts, progress))
        if self.cured is not None:
            self.cured.save(folder / CURED)

    def _page(self, folder: Path, more: tuple[tuple[str, str], ...], progress: Progress) -> str:
        """Of the plan to take, compared on a few of the pictures that judge plans; ``folder`` is for their values."""
        from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import PictureComparer, each_compared, over_all
        from sgsdump.fixedpoint.reports.command_reports import bits_by, report_of_tuning
        from sgsdump.models.feeds.by_content import PicturePairs
        from sgsdump.reports.html.document import render
        from sgsdump.reports.made_by import versions
        from sgsdump.reports.report import Context

        model, pairs = self.trial.model, PicturePairs(self.judges, COMPARED)
        fixed = replace(model, proto=self.fixed.proto)
        comparer = PictureComparer(model, fixed, folder)
        compared = over_all(each_compared(comparer, pairs), pairs.labels, progress)
        facts = [
            ("float model", str(model.path)),
            ("judged on", f"{self.result.effort.pictures} pictures"),
            ("calibrated at", f"level {self.quant_level}"),
            ("layers compared on", ", ".join(pairs.labels)),
            versions(),
            *more,
        ]
        title = f"{model.path.name} with the tuned INT16 convolutions"
        context = Context(title, facts, ranges=self.trial.ranges, bits=bits_by(model, fixed, "the plan of tune"))
        return render(report_of_tuning(self.result, compared, model, context))

    def __str__(self) -> str:
        from sgsdump.fixedpoint.reports.pareto_reports import ending_lines, limits_line, pareto_table

        first = "" if self.result.limits is None else f"{limits_line(self.result.limits)}\n"
        return first + pareto_table(self.result) + "\n".join(ending_lines(self.result))

    def _repr_html_(self) -> str | None:
        return plugins.as_html("plans", self.result)


@dataclass(frozen=True)
class Aims:
    """The goal of a search: the best plan of each rate, or with a target the cheapest that reaches it.

    limits       what the outputs of the plan to take must be within, without a target.
    objective    which outputs' error is made small, as typed; ``cost`` what is to be cheap: ``bytes`` or ``macs``.
    metric_text  the file of the user's metric.
    """

    rates: tuple[float, ...]
    limits: Thresholds
    target: Target | None = None
    metric: UserMetric | None = None
    metric_text: bytes = b""
    objective: str = "mean"
    cost: str = "bytes"


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A network that is open, and what calibration found of it.

    ranges  with room where values are stored in INT16.
    seen    how far values go on the pictures.
    how     it was calibrated, for doing so again without some of the pictures.
    """

    opened: OpenNetwork
    ranges: Mapping[str, Range]
    side: SideRanges
    seen: Mapping[str, Range]
    how: Calibrating
    cured: Cured | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """How a search runs.

    file   where every plan tried is kept, to go on from; None: nowhere.
    left   the seconds left.
    begin  gets how much there is to do, before the work.
    """

    quant_level: str
    workers: Workers
    left: Left
    progress: Progress = SILENT
    file: Path | None = None
    begin: Callable[[Beginning], None] = lambda beginning: None


@dataclass(frozen=True)
class Beginning:
    """How much a search has to do: ``most`` plans of ``groups`` of convolutions on ``pictures``; ``resumed`` are known
    already. ``ending``: the seconds that are kept for what follows it; ``limits``: whether INT8 is within them."""

    groups: int
    most: int
    pictures: int
    resumed: int
    ending: Ending
    limits: Limits | None = None


@dataclass(frozen=True)
class Ending:
    """The seconds that are kept for what follows the search: verifying plans in integers, and the report."""

    verify: float
    report: float

    @property
    def seconds(self) -> float:
        return self.verify + self.report


class TuneOptions(Beside, JudgedBy, total=False):
    """What a search is asked for; see also ``JudgedBy``.

    rates      of bytes, or of multiplications with ``cost="macs"``: 0.5 all INT8, 1 all INT16 (0.65, 0.7 … 0.95).
    target     the cheapest plan that reaches it, in place of rates: ``output-cos>=0.99``, ``metric>=0.97``.
    min_cos, max_rmse  limits on the outputs: the plan to take is the cheapest within them, which may be INT8 as it is;
               without both the documented limits, 0.99 and 0.1.
    objective  which outputs' error is made small: ``mean`` (of all), ``worst``, or outputs by name.
    cost       what is to be small: ``bytes`` of weights, or ``macs``, the multiplications at 16 bits.
    budget     time: ``60s``, ``10m``.
    cure       start from the cured model, which is then the one to convert.
    """

    rates: Sequence[float]
    target: str | None
    min_cos: float | None
    max_rmse: float | None
    objective: str
    cost: str
    budget: str
    cure: bool


def tune(model: str | Path, data: Data, *, quant_level: str = "L5", **options: Unpack[TuneOptions]) -> Tuned:
    """The cheapest sets of INT16 convolutions that repair a model; as ``sgsdump tune``.

    model, data  see ``calibrate``; ``data`` may be pairs of a feed and a label.
    options      see ``TuneOptions``; and what stands beside a model, see ``calibrate``.

    Raises SgsdumpError: what cannot be read, fed or tuned, and a target that no plan reaches.
    """
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.fixedpoint.tuning.proposals import check_solver
    from sgsdump.progress import bars

    begun = time.monotonic()
    check_solver()
    network = named_network(model, data, beside_of(options, TuneOptions))
    typed = ",".join(map(str, options.get("rates", ()))) or None
    aims = aims_of(
        typed,
        options.get("target"),
        options.get("metric"),
        options.get("objective", "mean"),
        options.get("cost", "bytes"),
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
    """What is typed; ``limits`` none: the documented ones. Raises ConfigError for an invalid rate or target and for
    options that do not go together, InputError for a metric that cannot be loaded."""
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.files.bounded_read import read_bytes
    from sgsdump.fixedpoint.tuning.criteria import load_metric, parse_target
    from sgsdump.fixedpoint.tuning.plan_costs import BYTES, MACS
    from sgsdump.fixedpoint.tuning.search import RATES

    chosen = parse_rates(rates) if rates else RATES
    wanted = parse_target(target) if target else None
    if target and rates:
        raise ConfigError("--rates and --target exclude each other: a target finds its own rate")
    if target and limits:
        raise ConfigError("--target and --min-cos, --max-rmse exclude each other: each says when a plan is good enough")
    limits = limits or DOCUMENTED
    if wanted is not None and wanted.name == "metric" and not metric:
        raise ConfigError("--target metric>=X needs --metric FILE.py:function")
    if cost not in (BYTES, MACS):
        raise ConfigError(f"cost {cost!r} is not {BYTES} or {MACS}")
    if not isinstance(metric, str):
        return Aims(chosen, limits, wanted, metric, b"", objective, cost)
    loaded = load_metric(metric)
    return Aims(chosen, limits, wanted, loaded, read_bytes(loaded.file), objective, cost)


def parse_rates(text: str) -> tuple[float, ...]:
    """Raises ConfigError for anything but a list of rates above 0.5 and at most 1."""
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
    """``60s``, ``5m``, ``1.5h``, or a number of seconds. Raises ConfigError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match:
        raise ConfigError(f"--budget {text!r} is not a time; write 60s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def calibrated(network: OpenNetwork | Start, feeds: Feeds, run: Run) -> Calibrated:
    """The network with the ranges of its tensors. Raises what calibrating raises."""
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


def searched(network: Calibrated, feeds: JudgingFeeds, aims: Aims, run: Run) -> Tuned:
    """The plans of a network, the promising ones run in integers. Raises what a search raises."""
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
    return Tuned(result, trial, fixed, ini, feeds.judges, level, network.cured, clipped)


def _proposed(setup: Setup, aims: Aims, most: int, left: Left, goal: Target | None) -> SearchResult:
    """The plans for the rates, or for the target, of ``most`` that are run; ``goal``: of the smallest plan."""
    from sgsdump.fixedpoint.tuning.search import search_rates, search_target

    setup.pool.expect(most * len(setup.pool.pictures))
    try:
        if aims.target is not None:
            return search_target(setup.pool, setup.sizes, aims.target, left)
        return search_rates(setup.pool, setup.sizes, aims.rates, left, goal)
    finally:
        setup.pool.close()


def _ending_of(exact: IntegerScores, aims: Aims, held_out: int) -> Ending:
    """Of how long one plan takes in integers: that of all at 8 bits, which must be run anyway."""
    begun = time.monotonic()
    exact.score(frozenset())
    plan = time.monotonic() - begun
    rates = 1 if aims.target else len(aims.rates)
    plans = 1 + rates + HALVED + (rates + 3) * held_out / exact.pictures
    return Ending(plan * plans, plan * COMPARED * REPORTED / exact.pictures)
