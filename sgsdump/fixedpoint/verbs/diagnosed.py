"""The result of ``diagnose``, of whatever kind of model: what is said, every layer, and the folder that holds it."""

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
    from sgsdump.reports.report import Report


def _nothing(folder: Path) -> None:
    """No files besides the texts."""


@dataclass(frozen=True, eq=False)
class Diagnosed:
    """Where a network loses accuracy in fixed point.

    report      the page's record: ``report.verdict`` in sentences, ``report.next_steps`` with what to copy.
    comparison  every layer, over the pictures that were compared.
    passes      whether every output and layer is within the limits.
    agrees      whether input_config.ini describes the pictures that the fixed model gets.
    conclusion  the verdict as data: the state, what decided, the cause, the one recommendation.
    texts       the files of the folder by name, without the page.
    paste       lines for input_config.ini where the network was cut before its post-processing.
    columns     by layer what is known besides the comparison: the bits of a convolution and who raised it, what was
                measured of it, and its figures with what is advised.
    pictures    the indices of the runs that layers were compared on.
    graph       the float network, whose graph is written beside the page.
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
        """The first lines of the verdict: outcome, cause, recommendation, then completeness and assumptions."""
        from sgsdump.reports.three_lines import verdict_block

        return verdict_block(self.conclusion)

    @property
    def to_copy(self) -> list[str]:
        """What the next steps ask to be copied, such as ``[CONV_CONFIG]`` of input_config.ini."""
        return [step.copy for step in self.report.next_steps if step.copy]

    def plot(self, axes: Axes | None = None, metric: str = "rmse") -> Axes:
        """Draw the error of every layer over depth, as ``Comparison.plot``. Raises ConfigError."""
        return self.comparison.plot(axes, metric)

    def to_html(self, path: str | Path) -> Path:
        """Write the page, one file that fetches nothing. Raises OutputError."""
        from sgsdump.files.atomic_write import replace_text
        from sgsdump.reports.html.document import render

        replace_text(Path(path), render(self.report))
        return Path(path)

    def to_pandas(self) -> Any:
        """Every compared layer as a DataFrame; needs the extra ``pandas``."""
        frame = self.comparison.to_pandas()
        names = list(dict.fromkeys(name for row in self.columns.values() for name in row))
        for name in names:
            frame[name] = [self.columns.get(layer, {}).get(name) for layer in frame["name"]]
        return frame

    def save(self, folder: str | Path) -> Path:
        """Write the folder of ``sgsdump diagnose``; an older one is moved aside. Raises OutputError."""
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
