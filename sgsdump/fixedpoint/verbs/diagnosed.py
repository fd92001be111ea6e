"""The result of ``diagnose`` for every kind of model: verdict, report, errors of all layers, and files to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump import plugins

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.verdict import Verdict
    from sgsdump.fixedpoint.reports.graph_files import NetworkGraph
    from sgsdump.reports.html.frame import Page
    from sgsdump.reports.report import Report


def _nothing(folder: Path) -> None:
    """Write no further files."""


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """The result of ``diagnose``: where a model loses accuracy in fixed point, and how to reduce the loss.

    Attributes
    ----------
    report : Report
        Contents of the HTML report; ``report.verdict`` and ``report.next_steps`` hold its main sentences.
    comparison : Comparison
        Errors of every layer over all compared images.
    passes : bool
        True if every output and layer is within the limits.
    texts : mapping of str to str
        Contents of the text files that ``save`` writes in addition to the report, by file name.
    conclusion : Verdict
        Verdict as data: state, deciding figure, cause and recommendation.
    paste : tuple of str
        Lines for input_config.ini if the model was cut before its post-processing.
    columns : mapping
        Additional columns of the layer table: bits, source of the bits, measured contribution, and errors with the
        advice.
    pictures : tuple of int
        Indices of the images on which layers were compared.
    graph : NetworkGraph or None
        Graph of the float model, which is written next to the report.
    agrees : bool
        True if input_config.ini normalises images in the same way as the preprocess file and the fixed model.
    """

    report: Report
    comparison: Comparison
    passes: bool
    texts: Mapping[str, str]
    conclusion: Verdict
    paste: tuple[str, ...] = ()
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pictures: tuple[int, ...] = ()
    graph: NetworkGraph | None = None
    agrees: bool = True
    _write_more: Callable[[Path], None] = field(default=_nothing, repr=False)

    @property
    def verdict(self) -> list[str]:
        """Lines of the verdict: state, cause, recommendation, completeness, assumptions."""
        from sgsdump.reports.three_lines import verdict_block

        return verdict_block(self.conclusion)

    @property
    def to_copy(self) -> list[str]:
        """Texts that the user can copy for the next steps, such as ``[CONV_CONFIG]`` of input_config.ini."""
        return [step.copy for step in self.report.next_steps if step.copy]

    def plot(self, axes: Axes | None = None, metric: str = "rmse") -> Axes:
        """Draw the error of every layer against its depth; see ``Comparison.plot``. Raises ConfigError."""
        return self.comparison.plot(axes, metric)

    def to_html(self, path: str | Path) -> Path:
        """Write the report as a single self-contained HTML file. Raises OutputError."""
        from sgsdump.files.atomic_write import replace_text
        from sgsdump.reports.html.document import render

        replace_text(Path(path), render(self.report))
        return Path(path)

    def page(self, height: int = 900) -> Page:
        """Return the report as a page for notebooks. ``height`` is the height of its frame in pixels."""
        from sgsdump.reports.html.document import render
        from sgsdump.reports.html.frame import Page

        return Page(render(self.report), height)

    def to_pandas(self) -> Any:
        """Return every compared layer as a DataFrame. Raises MissingExtra without pandas."""
        frame = self.comparison.to_pandas()
        names = list(dict.fromkeys(name for row in self.columns.values() for name in row))
        for name in names:
            frame[name] = [self.columns.get(layer, {}).get(name) for layer in frame["name"]]
        return frame

    def save(self, folder: str | Path) -> Path:
        """Write the files of ``sgsdump diagnose``. An existing folder is kept under a new name. Raises OutputError."""
        from sgsdump.files.atomic_write import replacing_folder

        with replacing_folder(Path(folder)) as new:
            self.write(new)
        return Path(folder)

    def write(self, folder: Path) -> None:
        """Fill an empty folder. Raises OutputError."""
        from sgsdump.files.atomic_write import replace_text, replacing
        from sgsdump.reports.html.document import render

        files = {} if self.graph is None else self.graph.files(self.report)
        report = replace(self.report, view=replace(self.report.view, graph=tuple(files)))
        replace_text(folder / "report.html", render(report))
        for name, text in self.texts.items():
            replace_text(folder / name, text)
        for name, data in files.items():
            with replacing(folder / name) as file:
                file.write(data)
        self._write_more(folder)

    def __str__(self) -> str:
        steps = [line for step in self.report.next_steps for line in (step.text, *step.copy.splitlines())]
        return "\n".join([*self.verdict, *self.report.details, *steps])

    def _repr_html_(self) -> str | None:
        return plugins.as_html("diagnosed", (self.report, self.comparison))
