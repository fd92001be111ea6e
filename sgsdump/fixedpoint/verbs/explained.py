"""The result of ``tune --explain``: contributions of convolutions to the output error, and inputs to raise to INT16."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump import plugins
from sgsdump.fixedpoint.verbs.tuned import CONTRIBUTIONS, LOG, REPORT, RESULTS_ALONE, Proposal, Written
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgsdump.comparison.finding import Finding
    from sgsdump.comparison.row import Row
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.comparison.verdict import Verdict
    from sgsdump.fixedpoint.tuning.advice import Advice
    from sgsdump.fixedpoint.tuning.causes import Exact
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import Measurement
    from sgsdump.fixedpoint.verbs.calibrate import FixedModel


@dataclass(frozen=True, eq=False)
class Explained(Proposal):
    """The contribution of each convolution to the output error: the result of ``tune(explain=True)``.

    Attributes
    ----------
    advice : tuple of Advice
        One entry per convolution, worst first: ``verdict`` (yes, maybe, no), ``reason`` and measured figures.
    names : tuple of str
        Entries to write into ``tensor_arrays`` of input_config.ini.
    limits : Thresholds
        Limits of the outputs.
    measurement : Measurement or None
        Error caused by each convolution alone; None without images.
    exact : Exact or None
        Outputs of the fixed model, computed in the hardware's integer arithmetic; None without images.
    findings : tuple of Finding
        Errors of the outputs and their causes, as in ``diagnose``.
    rows : tuple of Row
        Compared layers, if both dumps were given.
    notes : tuple of str
        Further inputs that the entries in ``names`` raise to INT16, and the effect of an existing [CONV_CONFIG].
    first : tuple of str
        Notes to read before the table.
    ini : bytes
        Your input_config.ini, or the inferred one.
    calibration : FixedModel or None
        Fixed model, calibrated on your images; None if ranges were given.
    """

    advice: tuple[Advice, ...]
    names: tuple[str, ...]
    limits: Thresholds
    measurement: Measurement | None = None
    exact: Exact | None = None
    findings: tuple[Finding, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    ini: bytes = b""
    calibration: FixedModel | None = None

    @property
    def raised(self) -> tuple[str, ...]:
        """Entries to write into ``tensor_arrays`` of input_config.ini."""
        return self.names

    @property
    def conclusion(self) -> Verdict:
        """Verdict on the model with all convolutions at INT8, as a ``Verdict`` object."""
        from sgsdump.fixedpoint.reports.tune_verdict import verdict_of_contributions

        return verdict_of_contributions(self.exact, self.findings, self.advice, self.names, self.limits)

    @property
    def details(self) -> list[str]:
        """Sentences on the output errors, on the convolutions' contributions, and on the inputs to raise to INT16."""
        from sgsdump.fixedpoint.reports.advice_reports import advice_verdict

        text = advice_verdict(self.advice, self.names, self.limits, self.measurement, self.exact, self.rows)
        return text.splitlines()

    def lines(self) -> list[str]:
        """Return the lines that the command prints: verdict, table of the convolutions, details, notes."""
        from sgsdump.fixedpoint.reports.advice_reports import advice_table
        from sgsdump.fixedpoint.reports.cause_sentences import further_lines

        causes = [finding for finding in self.findings if finding.kind in ("cause", "part", "spread")]
        texts = [*self.verdict, *self.first, *further_lines(causes), advice_table(self.advice)]
        return [*texts, *self.details, *self.notes]

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the error that each convolution causes at INT8.

        If the result was made without images, draw the width of each convolution's input range.
        """
        drawn: Axes = plugins.ask("plot of contributions", self.advice, axes)
        return drawn

    def to_html(self, path: str | Path) -> Path:
        """Write the report as a single self-contained HTML file. Raises OutputError."""
        plugins.ask("page of a card", self, Path(path))
        return Path(path)

    def to_pandas(self) -> Any:
        """Return all convolutions as a DataFrame. Raises MissingExtra without pandas."""
        from sgsdump.fixedpoint.tuning.advice import to_pandas

        return to_pandas(self.advice)

    def save(self, folder: str | Path, what: Written = RESULTS_ALONE) -> Path:
        """Write the same files as ``sgsdump tune --explain -o`` to a folder.

        If the path ends in ``.json``, only the contributions are written. Raises OutputError.
        """
        return self.save_json(folder) if Path(folder).suffix == ".json" else super().save(folder, what)

    def save_json(self, path: str | Path) -> Path:
        """Write the contributions as JSON. Raises OutputError."""
        from sgsdump.files.atomic_write import replace_text
        from sgsdump.fixedpoint.reports.advice_reports import advice_json

        text = advice_json(self.advice, self.names, self.measurement, self.exact, self.findings)
        replace_text(Path(path), text)
        return Path(path)

    def write(self, folder: Path, what: Written = RESULTS_ALONE, progress: Progress = SILENT) -> None:
        """Fill a folder. Raises OutputError."""
        from sgsdump.files.atomic_write import make_folder, replace_text, replacing
        from sgsdump.fixedpoint.reports.advice_reports import advice_csv
        from sgsdump.sidecars.input_config import with_tensor_arrays

        self.save_json(folder / CONTRIBUTIONS)
        replace_text(folder / "contributions.csv", advice_csv(self.advice))
        self.to_html(folder / REPORT)
        with replacing(folder / "input_config.ini") as file:
            file.write(with_tensor_arrays(self.ini, self.names) if self.names else self.ini)
        if self.calibration is not None:
            self.calibration.write_log(make_folder(folder / LOG))

    def _repr_html_(self) -> str | None:
        return plugins.as_html("explained", self)
