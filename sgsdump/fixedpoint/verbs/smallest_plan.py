"""The result of ``tune`` in its default mode: the smallest plan within the limits, and the table of all plans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump import plugins
from sgsdump.fixedpoint.verbs.cured_ways import CURED
from sgsdump.fixedpoint.verbs.tuned import REPORT, RESULTS_ALONE, Tuned, Written, write_plan
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgsdump.comparison.verdict import Verdict
    from sgsdump.fixedpoint.curing.cure import Cured
    from sgsdump.fixedpoint.quantisation.fixed_model import ClippedRange, FixedModel
    from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
    from sgsdump.fixedpoint.tuning.pareto import Pareto, Row
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.reports.report import Report

# The layers of the recommended plan are compared on this many images.
COMPARED = 4


@dataclass(frozen=True, eq=False)
class SmallestPlan(Tuned):
    """The smallest plan within the limits, with the table of all plans: the default result of ``tune``.

    Attributes
    ----------
    result : Pareto
        All plans with their costs and errors in ``result.rows``; ``result.taken`` is the recommended plan.
    trial : PlanTrial
        Model that the plans apply to.
    fixed : FixedModel
        Fixed model of the recommended plan.
    ini : bytes
        Your input_config.ini.
    judges : Feeds
        Images on which the plans were judged.
    quant_level : str
        Calibration level at which ``calibrate`` makes the same fixed model.
    cured : Cured or None
        Cured model to which the plans apply; None without ``cure``.
    clipped : tuple of ClippedRange
        Ranges of the recommended plan that clip values of the calibration images.
    counts_agreement : bool
        True if the verdict counts the answers that agree with the float model.
    """

    result: Pareto
    trial: PlanTrial
    fixed: FixedModel
    ini: bytes
    judges: Feeds
    quant_level: str
    cured: Cured | None = None
    clipped: tuple[ClippedRange, ...] = ()
    counts_agreement: bool = True

    @property
    def passes(self) -> bool:
        """True if the recommended plan reaches the target or, without a target, keeps its outputs within the limits."""
        return self.result.limits is None or self.result.limits.taken

    within_limits = passes

    @property
    def taken(self) -> Row:
        """Row of the recommended plan."""
        return self.result.taken

    @property
    def raised(self) -> tuple[str, ...]:
        """Entries of ``tensor_arrays`` of the recommended plan."""
        return self.taken.tensors

    @cached_property
    def conclusion(self) -> Verdict:
        """Verdict on the recommended plan, as data."""
        from sgsdump.fixedpoint.reports.tune_verdict import verdict_of_search
        from sgsdump.fixedpoint.tuning.worth import agreement
        from sgsdump.models.feeds.by_content import PicturePairs

        counted = None
        if self.counts_agreement:
            counted = agreement(self.trial.model, self.fixed.proto, PicturePairs(self.judges))
        return verdict_of_search(self.result, self.passes, counted)

    @property
    def details(self) -> list[str]:
        """Number of plans tried and accuracy of the float approximation, one sentence per item."""
        from sgsdump.fixedpoint.reports.tuned import search_details

        return search_details(self.result)

    def lines(self) -> list[str]:
        """Return the verdict, the table and the closing notes, as lines."""
        return [*self.verdict, *self.table()]

    def table(self) -> list[str]:
        """Return the table and the closing notes, as lines."""
        from sgsdump.fixedpoint.reports.pareto_reports import ending_lines, pareto_table

        return [*pareto_table(self.result).splitlines(), *ending_lines(self.result)]

    def to_pandas(self) -> Any:
        """Return all plans as a DataFrame with the columns of ``pareto.csv``.

        Raises MissingExtra without pandas.
        """
        return self.result.to_pandas()

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the error of every plan against its bytes, with the recommended plan marked."""
        drawn: Axes = plugins.ask("plot of plans", self.result, axes)
        return drawn

    def write(self, folder: Path, what: Written = RESULTS_ALONE, progress: Progress = SILENT) -> None:
        """Fill a folder. Raises OutputError."""
        from sgsdump.files.atomic_write import replace_text, replacing
        from sgsdump.fixedpoint.quantisation.float_model import serialise
        from sgsdump.fixedpoint.reports.pareto_chart import pareto_png
        from sgsdump.fixedpoint.reports.pareto_reports import pareto_csv, pareto_json
        from sgsdump.fixedpoint.tuning.integer_scores import fixed_of
        from sgsdump.fixedpoint.tuning.pareto import optimized, stem
        from sgsdump.sidecars.input_config import with_tensor_arrays

        def write(name: str, data: bytes) -> None:
            with replacing(folder / name) as file:
                file.write(data)

        trial = self.trial
        asked = [row for row in self.result.rows if row.asked is not None]
        names = [f"_{stem(index, row.asked or row.rate)}" for index, row in enumerate(asked)]
        for name, row in [*zip(names, asked), ("", self.taken)]:
            proto = fixed_of(trial, row.tensors).proto
            params, ini = optimized(trial.model, proto, trial.ranges, trial.analysis), self.ini
            write_plan(folder, name, params, with_tensor_arrays(ini, row.tensors), what.pickles or row is self.taken)
            if what.fixed_models:
                write(f"optimized{name}.onnx", serialise(proto))
        write("pareto.csv", pareto_csv(self.result).encode())
        write("pareto.json", pareto_json(self.result).encode())
        write("pareto.png", pareto_png(self.result))
        replace_text(folder / REPORT, self._page(folder, what.facts, progress))
        if self.cured is not None:
            self.cured.save(folder / CURED)

    def _report(self, folder: Path, progress: Progress) -> Report:
        """Return the contents of the report. Layers of the recommended plan are compared on a few judging images."""
        from sgsdump.fixedpoint.quantisation.diagnosis.compared_pictures import PictureComparer, each_compared, over_all
        from sgsdump.fixedpoint.reports.command_reports import bits_by
        from sgsdump.fixedpoint.reports.tuned import RAISED_BY, report_of_plan, tradeoff_of
        from sgsdump.models.feeds.by_content import PicturePairs
        from sgsdump.reports.made_by import versions
        from sgsdump.reports.report import Context
        from sgsdump.reports.tensors.views import BUDGET

        model, pairs = self.trial.model, PicturePairs(self.judges, COMPARED)
        fixed = replace(model, proto=self.fixed.proto)
        comparer = PictureComparer(model, fixed, folder)
        compared = over_all(each_compared(comparer, pairs), pairs.labels, progress)
        shown = [
            ("float model", str(model.path)),
            ("judged on", f"{self.result.effort.pictures} pictures"),
            ("calibrated at", f"level {self.quant_level}"),
            ("layers compared on", ", ".join(pairs.labels)),
            versions(),
        ]
        title = f"{model.path.name} with the tuned INT16 convolutions"
        dumps, bits = (compared.sample, compared.benchmark), bits_by(model, fixed, RAISED_BY)
        context = Context(
            title, shown, (), self.trial.ranges, *dumps, bits=bits, page_budget=BUDGET, picture=compared.label
        )
        conclusion = (self.verdict, self.details, self.raised)
        return report_of_plan(compared.comparison, model, context, conclusion, tradeoff=tradeoff_of(self.result))

    def _repr_html_(self) -> str | None:
        return plugins.as_html("plans", self.result)
