"""``tune --first``: raise convolutions to INT16 round by round, until the outputs are within the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump import plugins
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.verbs.cured_ways import CURED
from sgsdump.fixedpoint.verbs.judges import JUDGING, JudgedBy, Judges, judges_of
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.fixedpoint.verbs.tuned import (
    FIXED_DUMP,
    FLOAT_DUMP,
    LOG,
    OPTIMIZED,
    REPORT,
    RESULTS_ALONE,
    ROUNDS,
    Tuned,
    Written,
    write_plan,
)
from sgsdump.models.network import Beside, Network, beside_of, named_network
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.comparison.verdict import Verdict
    from sgsdump.fixedpoint.quantisation.calibration import Calibration
    from sgsdump.fixedpoint.tuning.dump_trial import Calibrated
    from sgsdump.fixedpoint.tuning.rounds import Round, RoundSearch
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import LabelledPictureFeed
    from sgsdump.fixedpoint.tuning.worth import Worths
    from sgsdump.fixedpoint.verbs.cured_ways import Start
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.network import Data
    from sgsdump.reports.report import Report

MOST_ROUNDS = 10
PLANNED = "with the plan"
# The files that the rounds leave in their folder.
LEFT = (OPTIMIZED, FIXED_DUMP, FLOAT_DUMP)
Tell = Callable[[Iterable[str]], None]


@dataclass(frozen=True)
class Task:
    """A model to tune, with limits and options.

    limits  limits of every output; empty: the documented limits, with exit status 0 even if an output exceeds them
    rounds  maximum number of rounds
    cure    start from the cured model
    """

    network: Network
    judges: Judges
    quant_level: str
    limits: Thresholds
    rounds: int = MOST_ROUNDS
    cure: bool = False

    @property
    def aim(self) -> Thresholds:
        """Given limits, or else the documented limits."""
        from sgsdump.comparison.thresholds import DOCUMENTED

        return self.limits or DOCUMENTED


@dataclass(frozen=True, eq=False)
class Basis:
    """The start of the rounds: the model (cured with --cure), its calibration, and the judging images.

    pictures  number of calibration images
    """

    opened: OpenNetwork
    calibration: Calibration
    judging: PicturePairs
    names: tuple[str, ...]
    pictures: int
    start: Start | None = None


@dataclass(frozen=True, eq=False)
class FirstPlan(Tuned):
    """The first plan within the limits, found round by round: the result of ``tune(first=True)``.

    Attributes
    ----------
    result : RoundSearch
        Search result; ``result.best`` is the last round that was kept, ``result.ended`` the reason why the rounds
        ended.
    rounds : tuple of Round
        Every round: raised convolutions, errors of the outputs, and whether the round was kept.
    folder : Path
        Folder with the fixed model and the dumps of the first image. Deleted with this object.
    worths : Worths or None
        Your metric and the errors on held-out images, if you gave a metric or held-out images.
    """

    task: Task
    basis: Basis
    result: RoundSearch
    rounds: tuple[Round, ...]
    folder: Path
    worths: Worths | None = None

    @property
    def passes(self) -> bool:
        """True if the outputs are within the limits, also on held-out images."""
        worths, best = self.worths, self.result.best
        if not best.holds or worths is None:
            return best.holds
        return worths.holds if best is self.rounds[0] else not worths.beyond

    @property
    def raised(self) -> tuple[str, ...]:
        """Entries of ``tensor_arrays``, including your own."""
        return self.result.config_names(self.result.best.tensor_arrays)

    @cached_property
    def conclusion(self) -> Verdict:
        """Verdict on the plan, as data."""
        from sgsdump.fixedpoint.reports.tune_verdict import verdict_of_rounds
        from sgsdump.fixedpoint.tuning.worth import agreement
        from sgsdump.models.model import open_model

        counted = None
        if self.task.judges.counts_agreement:
            fixed = open_model(self.folder / OPTIMIZED).proto
            counted = agreement(self.basis.opened.model, fixed, self.basis.judging)
        aim, images = self.task.aim, len(self.basis.judging)
        return verdict_of_rounds(self.rounds, self.result.best, aim, self.raised, images, self.passes, counted)

    @property
    def details(self) -> list[str]:
        """Reason why the rounds ended, metric and held-out errors, one sentence per item."""
        from sgsdump.fixedpoint.reports.tuned import rounds_details
        from sgsdump.fixedpoint.reports.worth import not_recommended, worth_lines

        found = rounds_details(self.result)
        if self.worths is None:
            return [found]
        return [*filter(None, [not_recommended(self.worths)]), found, *worth_lines(self.worths, PLANNED)]

    @property
    def comparison(self) -> Comparison:
        """Errors of every layer of the fixed model against the float model, on the first judging image."""
        return self.result.best.run.layers

    @cached_property
    def report(self) -> Report:
        """Contents of the report."""
        from sgsdump.comparison.compare import compare
        from sgsdump.dumps.io import open_dump
        from sgsdump.fixedpoint.reports.command_reports import bits_by
        from sgsdump.fixedpoint.reports.tuned import RAISED_BY, first_round, report_of_plan
        from sgsdump.models.model import open_model
        from sgsdump.reports.made_by import versions
        from sgsdump.reports.report import Context
        from sgsdump.reports.tensors.views import BUDGET

        shown = [
            ("float model", str(self.task.network.model)),
            ("calibrated on", f"{self.basis.pictures} images, level {self.task.quant_level}"),
            ("layers of", self.basis.names[0]),
            versions(),
        ]
        model, conclusion = self.basis.opened.model, (self.verdict, self.details, self.raised)
        bits = bits_by(model, open_model(self.folder / OPTIMIZED), RAISED_BY, self.rounds[0].tensor_arrays)
        with open_dump(self.folder / FIXED_DUMP) as sample, open_dump(self.folder / FLOAT_DUMP) as benchmark:
            comparison = compare(sample, benchmark, details=True)
            title = f"{self.task.network.model.name} with the tuned INT16 convolutions"
            context = Context(title, shown, (), self.result.ranges, sample, benchmark, bits=bits, page_budget=BUDGET)
            other = first_round(self.rounds)
            return report_of_plan(comparison, model, context, conclusion, self.task.aim, other)

    def _report(self, folder: Path, progress: Progress) -> Report:
        return self.report

    def head(self) -> list[str]:
        """Return the model, the images and the limits, as lines."""
        return _head(self.task, self.basis)

    def tail(self) -> list[str]:
        """Return the closing notes, as lines."""
        from sgsdump.fixedpoint.reports.rounds import end_lines
        from sgsdump.fixedpoint.reports.worth import not_recommended, worth_lines

        lines = list(end_lines(self.result, self.task.aim))
        if self.worths is None:
            return lines
        lines += worth_lines(self.worths, PLANNED)
        refused = not_recommended(self.worths)
        return [*lines, f"warning: {refused}"] if refused else lines

    def lines(self) -> list[str]:
        """Return the verdict, the closing notes and the [CONV_CONFIG] to copy, as lines."""
        return [*self.verdict, *self.tail(), *self.to_copy.splitlines()]

    def plot(self, axes: Axes | None = None, metric: str = "rmse") -> Axes:
        """Draw the error of every layer over depth, see ``Comparison.plot``. Raises ConfigError."""
        return self.comparison.plot(axes, metric)

    def to_pandas(self) -> Any:
        """Return all rounds as a DataFrame with the figures of ``rounds.json``. Raises MissingExtra without pandas."""
        from sgsdump.fixedpoint.reports.rounds import rounds_frame

        return rounds_frame(self.rounds, self.task.aim)

    def write(self, folder: Path, what: Written = RESULTS_ALONE, progress: Progress = SILENT) -> None:
        """Fill a folder, and copy the files LEFT from the folder of the rounds. Raises OutputError."""
        import shutil

        from sgsdump.files.atomic_write import make_folder, replace_text
        from sgsdump.fixedpoint.quantisation.calibration_log import LogOptions, write_log
        from sgsdump.fixedpoint.reports.rounds import render_round, rounds_json, rounds_log
        from sgsdump.fixedpoint.tuning.pareto import optimized
        from sgsdump.models.model import open_model
        from sgsdump.sidecars.input_config import with_tensor_arrays

        for name in LEFT if folder != self.folder else ():
            shutil.copyfile(self.folder / name, folder / name)
        aim, best, opened, start = self.task.aim, self.result.best, self.basis.opened, self.basis.start
        texts = [render_round(turn, aim, self.result) for turn in self.rounds]
        replace_text(folder / "rounds.txt", rounds_log(self.head(), texts, self.tail()))
        facts = {
            "model": str(self.task.network.model),
            "quant_level": self.task.quant_level,
            "calibration_pictures": self.basis.pictures,
            "debug_pictures": list(self.basis.names),
        }
        replace_text(folder / ROUNDS, rounds_json(facts, self.rounds, self.result, aim, self.worths))
        replace_text(folder / REPORT, self._page(folder, what.facts, progress))
        if start is not None:
            start.cured.save(folder / CURED)
        ini = opened.ini
        if best.tensor_arrays != opened.config.tensor_arrays:
            ini = with_tensor_arrays(ini, self.raised)
        fixed = open_model(self.folder / OPTIMIZED).proto
        params = optimized(opened.model, fixed, self.result.ranges, self.result.analysis)
        write_plan(folder, "", params, ini, what.pickles)
        options = LogOptions(weights=self.task.quant_level != "L1")
        write_log(make_folder(folder / LOG), opened.model, self.basis.calibration, best.run.plan, options)

    def _repr_html_(self) -> str | None:
        return plugins.as_html("diagnosed", (self.report, self.comparison))


class FirstPlanOptions(Beside, JudgedBy, total=False):
    """Options of ``tune(first=True)``, in addition to those of ``JudgedBy``.

    Attributes
    ----------
    rounds : int
        Maximum number of rounds. Default: 10.
    min_cos, max_rmse : float, optional
        Limits for every output. If both are None, the documented limits 0.99 and 0.1 apply.
    cure : bool
        If True, start from the cured model. The plan then applies to the cured model only.
    """

    rounds: int
    min_cos: float | None
    max_rmse: float | None
    cure: bool


def first_plan(model: str | Path, data: Data, quant_level: str, options: FirstPlanOptions) -> FirstPlan:
    """Find the first plan within the limits; see ``tune``."""
    import shutil
    import tempfile
    import weakref

    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.progress import bars

    network = named_network(model, data, beside_of(options, FirstPlanOptions))
    limits = Thresholds(options.get("min_cos"), options.get("max_rmse"))
    rounds, cure = options.get("rounds", MOST_ROUNDS), options.get("cure", False)
    task = Task(network, judges_of(options), quant_level, limits, rounds, cure)
    folder = Path(tempfile.mkdtemp(prefix="sgsdump_"))
    try:
        found = first_plan_in(folder, opened_for(task), bars())
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found


@dataclass(frozen=True, eq=False)
class Opened:
    """A task with its open model and images.

    calibrated  calibration images
    judging     images that judge: images given by the user, or else a few of the calibration images
    pictures    the same images as the models read them
    held        held-out images
    coverage    images that were used to find the plan
    """

    task: Task
    network: OpenNetwork
    calibrated: Feeds
    judging: PicturePairs
    pictures: tuple[LabelledPictureFeed, ...]
    held: PicturePairs | None
    coverage: Feeds


def opened_for(task: Task) -> Opened:
    """Open the model and the images of a task. Raises errors of the files."""
    from sgsdump.models.feeds.by_content import PicturePairs

    task.judges.loaded()
    opened = open_network(task.network, task.quant_level)
    feeds = task.judges.feeds(opened)
    count = len(feeds.judges)
    few = count if feeds.evaluated is not None else min(JUDGING, count)
    chosen = tuple(number * (count - 1) // max(1, few - 1) for number in range(few))
    held = None if feeds.held_out is None else PicturePairs(feeds.held_out)
    pictures = tuple(feeds.judges.both(index) for index in chosen)
    return Opened(
        task, opened, feeds.calibrated, PicturePairs(feeds.judges, chosen=chosen), pictures, held, feeds.coverage
    )


def _untold(lines: Iterable[str]) -> None:
    """Unused in Python; the result carries these lines."""


def first_plan_in(
    folder: Path, ready: Opened, progress: Progress, tell: Tell = _untold, round_done: Tell = _untold
) -> FirstPlan:
    """Run the rounds; write the fixed model and the dumps into ``folder``.

    ``tell`` receives the first lines before the rounds, ``round_done`` the lines of every round.
    """
    from sgsdump.fixedpoint.quantisation.calibration import calibrate
    from sgsdump.fixedpoint.quantisation.fixed_model import rehearse
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.fixedpoint.reports.rounds import render_round
    from sgsdump.fixedpoint.tuning.dump_trial import Calibrated
    from sgsdump.fixedpoint.tuning.rounds import RoundSearch
    from sgsdump.fixedpoint.verbs.cured_ways import start_cured

    task, opened, feeds = ready.task, ready.network, ready.calibrated
    level = WITHOUT_BITS[task.quant_level]  # the rounds raise to INT16
    start = start_cured(task.network, opened, level, progress) if task.cure else None
    if start is not None:
        opened = start.opened
    rehearse(opened.model, feeds[0], opened.config)
    calibration = calibrate(opened.model, feeds, opened.config, level, progress=progress)
    names = tuple(name for name, _, _ in ready.pictures)
    basis = Basis(opened, calibration, ready.judging, names, len(feeds), start)
    tell(_head(task, basis))
    side = side_ranges(calibration.statistics)
    ranges = calibration.ranges if start is None else start.with_room(calibration.ranges, side, level != "L1")
    calibrated = Calibrated(opened.model, ranges, opened.config, side)
    result = RoundSearch(calibrated, ready.pictures, task.aim, folder, progress)
    rounds = []
    for turn in result.rounds(task.rounds):
        rounds.append(turn)
        round_done(render_round(turn, task.aim, result).splitlines())
    found = FirstPlan(task, basis, result, tuple(rounds), folder)
    if task.judges.metric is None and ready.held is None:
        return found
    return replace(found, worths=_worths(found, calibrated, ready.held, progress))


def _worths(found: FirstPlan, calibrated: Calibrated, held: PicturePairs | None, progress: Progress) -> Worths:
    """Return the metric and errors of the first round, of the last kept round, and of all convolutions at INT16."""
    from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
    from sgsdump.fixedpoint.tuning.advice import holds
    from sgsdump.fixedpoint.tuning.worth import ALL_16, AS_IT_IS, PLAN, Weighed, worths_of

    first, best, limits = found.rounds[0], found.result.best, found.task.aim
    config = calibrated.config
    configs = {AS_IT_IS: replace(config, tensor_arrays=first.tensor_arrays)}
    if best is not first:
        configs[PLAN] = replace(config, tensor_arrays=best.tensor_arrays)
    configs[ALL_16] = replace(config, conv_format="ALL_INT16", tensor_arrays=())
    fixed = {
        kind: make_fixed(calibrated.model, found.result.ranges, each, side=calibrated.side).proto
        for kind, each in configs.items()
    }
    metric = found.task.judges.loaded()
    weighed = Weighed(calibrated.model, fixed, lambda outputs: holds(outputs.sums, limits), metric)
    return worths_of(weighed, found.basis.judging, held, found.raised, progress)


def _head(task: Task, basis: Basis) -> list[str]:
    from sgsdump.errors import listed

    one = "one scale per tensor" if task.quant_level == "L1" else "per channel"
    lines = [
        f"sgsdump tune --first {task.network.model}, calibrated on {basis.pictures} images, weights {one} "
        f"(--quant-level {task.quant_level})",
        f"Outputs judged on {listed(list(basis.names), 4)} together; layers judged on the first image.",
        f"Goal: no output with {task.aim}{'' if task.limits else ' (the default)'}.",
    ]
    return lines + (basis.start.lines() if basis.start is not None else [])
