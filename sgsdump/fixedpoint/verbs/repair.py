"""``repair``: convolutions raised to INT16, round by round, until the model's outputs hold the thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump import plugins
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.verbs.judges import JudgedBy, Judges, judges_of
from sgsdump.fixedpoint.verbs.network import OpenNetwork, open_network
from sgsdump.models.network import Beside, Network, beside_of, named_network

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from typing_extensions import Unpack

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.fixedpoint.quantisation.calibration import Calibration
    from sgsdump.fixedpoint.tuning.dump_trial import Calibrated
    from sgsdump.fixedpoint.tuning.repair import Repair, Round
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import LabelledPictureFeed
    from sgsdump.fixedpoint.tuning.worth import Worths
    from sgsdump.fixedpoint.verbs.cured_ways import Start
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.models.network import Data
    from sgsdump.progress import Progress
    from sgsdump.reports.report import Report

ROUNDS, JUDGING = 10, 4
CURED, REPAIRED = "cured.onnx", "repaired"
# What the rounds leave in their folder.
LEFT = ("fixed.onnx", "fixed.bin", "float.bin")
Tell = Callable[[Iterable[str]], None]


@dataclass(frozen=True)
class Task:
    """What to repair.

    limits  of every output; without any the documented ones are the aim, and nothing fails.
    rounds  at most so many.
    cure    start from the cured model.
    """

    network: Network
    judges: Judges
    quant_level: str
    limits: Thresholds
    rounds: int = ROUNDS
    cure: bool = False

    @property
    def aim(self) -> Thresholds:
        from sgsdump.comparison.thresholds import DOCUMENTED

        return self.limits or DOCUMENTED


@dataclass(frozen=True, eq=False)
class Basis:
    """What a repair began with: the network, cured where that was asked, its calibration, the pictures that judge with
    their names, and how many calibrated it."""

    opened: OpenNetwork
    calibration: Calibration
    judging: PicturePairs
    names: tuple[str, ...]
    pictures: int
    start: Start | None = None


@dataclass(frozen=True, eq=False)
class Repaired:
    """Convolutions that were raised to INT16, round by round.

    result  how it ended: ``result.best`` the last round kept, ``result.ended`` why there was no further one.
    rounds  every round: what was raised, the outputs then, and whether it was kept.
    folder  holds the fixed model and the dumps of the first picture.
    worths  by your metric and on pictures held out, where these were given.
    """

    task: Task
    basis: Basis
    result: Repair
    rounds: tuple[Round, ...]
    folder: Path
    worths: Worths | None = None

    @property
    def passes(self) -> bool:
        """Whether the outputs hold the limits, on pictures held out too."""
        worths, best = self.worths, self.result.best
        if not best.holds or worths is None:
            return best.holds
        return worths.holds if best is self.rounds[0] else not worths.beyond

    @property
    def raised(self) -> tuple[str, ...]:
        """The words of ``tensor_arrays``, your own among them."""
        return self.result.config_names(self.result.best.tensor_arrays)

    @property
    def to_copy(self) -> str:
        """``[CONV_CONFIG]`` of input_config.ini; empty where nothing is raised."""
        from sgsdump.fixedpoint.reports.cause_sentences import conv_config

        return conv_config(self.raised) if self.raised else ""

    @property
    def comparison(self) -> Comparison:
        """Every layer of the repaired fixed model against the float one, on the first picture that judges."""
        return self.result.best.run.layers

    @cached_property
    def report(self) -> Report:
        """The page's record."""
        from sgsdump.dumps.io import open_dump
        from sgsdump.fixedpoint.reports.command_reports import bits_by, report_of_repair
        from sgsdump.fixedpoint.reports.worth import not_recommended, worth_lines
        from sgsdump.models.model import open_model
        from sgsdump.reports.made_by import versions
        from sgsdump.reports.report import Context

        shown = [
            ("float model", str(self.task.network.model)),
            ("calibrated on", f"{self.basis.pictures} pictures, level {self.task.quant_level}"),
            ("layers of", self.basis.names[0]),
            versions(),
        ]
        title, opened = f"{self.task.network.model.name}, repaired", self.basis.opened
        with open_dump(self.folder / "fixed.bin") as sample, open_dump(self.folder / "float.bin") as benchmark:
            bits = bits_by(
                opened.model, open_model(self.folder / "fixed.onnx"), "this repair", self.rounds[0].tensor_arrays
            )
            context = Context(title, shown, sample=sample, benchmark=benchmark, bits=bits)
            page = report_of_repair(self.result, self.rounds, opened.model, self.task.aim, context)
        if self.worths is None:
            return page
        refused = not_recommended(self.worths)
        return replace(page, verdict=(*filter(None, [refused]), *page.verdict[:1], *worth_lines(self.worths, REPAIRED),
                                      *page.verdict[1:]))  # fmt: skip

    def head(self) -> list[str]:
        """On what it was done, and what is wanted."""
        return _head(self.task, self.basis)

    def tail(self) -> list[str]:
        """How it ended."""
        from sgsdump.fixedpoint.reports.repair_reports import end_lines
        from sgsdump.fixedpoint.reports.worth import not_recommended, worth_lines

        lines = list(end_lines(self.result, self.task.aim))
        if self.worths is None:
            return lines
        lines += worth_lines(self.worths, REPAIRED)
        refused = not_recommended(self.worths)
        return [*lines, f"warning: {refused}"] if refused else lines

    def plot(self, axes: Axes | None = None, metric: str = "rmse") -> Axes:
        """Draw the error of every layer over depth, as ``Comparison.plot``. Raises ConfigError."""
        return self.comparison.plot(axes, metric)

    def to_html(self, path: str | Path) -> Path:
        """Write the page, one file that fetches nothing. Raises OutputError."""
        from sgsdump.reports.html.document import render

        _write(Path(path), render(self.report))
        return Path(path)

    def to_pandas(self) -> Any:
        """Every round as a DataFrame, with the columns of ``rounds.json`` that are figures; needs the extra
        ``pandas``."""
        from sgsdump.fixedpoint.reports.repair_reports import rounds_frame

        return rounds_frame(self.rounds, self.task.aim)

    def save(self, folder: str | Path) -> Path:
        """Write the folder of ``sgsdump repair``; an older one is moved aside. Raises OutputError."""
        import shutil

        from sgsdump.files.atomic_write import replacing_folder

        with replacing_folder(Path(folder)) as new:
            for name in LEFT:
                shutil.copyfile(self.folder / name, new / name)
            self.write(new)
        return Path(folder)

    def write(self, folder: Path, more: Sequence[tuple[str, str]] = ()) -> None:
        """What stands beside the files that the rounds leave; ``more`` end the page. Raises OutputError."""
        from sgsdump.files.atomic_write import make_folder
        from sgsdump.fixedpoint.quantisation.calibration_log import LogOptions, write_log
        from sgsdump.fixedpoint.reports.repair_reports import render_round, repair_json, repair_log
        from sgsdump.reports.html.document import render
        from sgsdump.sidecars.input_config import with_tensor_arrays

        aim, best, opened, start = self.task.aim, self.result.best, self.basis.opened, self.basis.start
        texts = [render_round(turn, aim, self.result) for turn in self.rounds]
        _write(folder / "rounds.txt", repair_log(self.head(), texts, self.tail()))
        facts = {
            "model": str(self.task.network.model),
            "quant_level": self.task.quant_level,
            "calibration_pictures": self.basis.pictures,
            "debug_pictures": list(self.basis.names),
        }
        _write(folder / "rounds.json", repair_json(facts, self.rounds, self.result, aim, self.worths))
        page = replace(self.report, facts=(*self.report.facts, *more))
        _write(folder / "report.html", render(page))
        if start is not None:
            start.cured.save(folder / CURED)
        ini = opened.ini
        if best.tensor_arrays != opened.config.tensor_arrays:
            ini = with_tensor_arrays(ini, self.raised)
        (folder / "input_config.ini").write_bytes(ini)
        options = LogOptions(weights=self.task.quant_level != "L1")
        write_log(make_folder(folder / "log"), opened.model, self.basis.calibration, best.run.plan, options)

    def __str__(self) -> str:
        return "\n".join(filter(None, [*self.tail(), self.to_copy]))

    def _repr_html_(self) -> str | None:
        return plugins.as_html("diagnosed", (self.report, self.comparison))


class RepairOptions(Beside, JudgedBy, total=False):
    """What a repair is asked for; see also ``JudgedBy``.

    rounds   at most so many (10).
    min_cos, max_rmse  what every output must hold; without both the documented limits, 0.99 and 0.1.
    cure     start from the cured model, which is then the one to convert.
    """

    rounds: int
    min_cos: float | None
    max_rmse: float | None
    cure: bool


def repair(model: str | Path, data: Data, *, quant_level: str = "L5", **options: Unpack[RepairOptions]) -> Repaired:
    """Convolutions raised to INT16, round by round, until the model's outputs hold the limits; as ``sgsdump repair``.

    model, data  see ``calibrate``; ``data`` may be pairs of a feed and a label.
    options      see ``RepairOptions``; and what stands beside a model, see ``calibrate``.

    Raises SgsdumpError: what cannot be read, fed, run or compared.
    """
    import shutil
    import tempfile
    import weakref

    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.progress import bars

    network = named_network(model, data, beside_of(options, RepairOptions))
    limits = Thresholds(options.get("min_cos"), options.get("max_rmse"))
    task = Task(
        network, judges_of(options), quant_level, limits, options.get("rounds", ROUNDS), options.get("cure", False)
    )
    folder = Path(tempfile.mkdtemp(prefix="sgsdump_"))
    try:
        found = repaired_in(folder, opened_for(task), bars())
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found


@dataclass(frozen=True, eq=False)
class Opened:
    """A network to repair, its feeds, and the pictures that judge: those given, else a few of the calibration's, evenly
    chosen; as the models take them, too; those held out; and those that tell what to expect on others."""

    task: Task
    network: OpenNetwork
    calibrated: Feeds
    judging: PicturePairs
    pictures: tuple[LabelledPictureFeed, ...]
    held: PicturePairs | None
    coverage: Feeds


def opened_for(task: Task) -> Opened:
    """Raises what reading the model, the files beside it and the pictures raises."""
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
    """In Python the result says it."""


def repaired_in(
    folder: Path, ready: Opened, progress: Progress, tell: Tell = _untold, round_done: Tell = _untold
) -> Repaired:
    """``folder`` gets the fixed model and the dumps; ``tell`` what is done on what, before the rounds, and
    ``round_done`` the lines of every round."""
    from sgsdump.fixedpoint.quantisation.calibration import calibrate
    from sgsdump.fixedpoint.quantisation.fixed_model import rehearse
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.fixedpoint.reports.repair_reports import render_round
    from sgsdump.fixedpoint.tuning.dump_trial import Calibrated
    from sgsdump.fixedpoint.tuning.repair import Repair
    from sgsdump.fixedpoint.verbs.cured_ways import start_cured

    task, opened, feeds = ready.task, ready.network, ready.calibrated
    level = WITHOUT_BITS[task.quant_level]  # raising to INT16 is what the rounds do
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
    result = Repair(calibrated, ready.pictures, task.aim, folder, progress)
    rounds = []
    for turn in result.rounds(task.rounds):
        rounds.append(turn)
        round_done(render_round(turn, task.aim, result).splitlines())
    found = Repaired(task, basis, result, tuple(rounds), folder)
    if task.judges.metric is None and ready.held is None:
        return found
    return replace(found, worths=_worths(found, calibrated, ready.held, progress))


def _worths(found: Repaired, calibrated: Calibrated, held: PicturePairs | None, progress: Progress) -> Worths:
    """Of the first round, of the last one kept, and of every convolution at 16 bits."""
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
        f"sgsdump repair {task.network.model}, calibrated on {basis.pictures} pictures, weights {one} "
        f"(--quant-level {task.quant_level})",
        f"Judged on {listed(list(basis.names), 4)}, together; the layers on the first.",
        f"Wanted: no output with {task.aim}{'' if task.limits else ' (the default)'}.",
    ]
    return lines + (basis.start.lines() if basis.start is not None else [])


def _write(path: Path, text: str) -> None:
    # names that are not UTF-8 come from the model as surrogates, and go back as the bytes they were
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
