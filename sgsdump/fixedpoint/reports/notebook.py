"""HTML of diagnoses, contributions and plans for notebooks (``_repr_html_``)."""

from __future__ import annotations

import html
from typing import Protocol

from sgsdump.comparison.comparison import Comparison
from sgsdump.fixedpoint.reports.advice_reports import advice_cells
from sgsdump.fixedpoint.reports.cause_sentences import conv_config
from sgsdump.fixedpoint.reports.pareto_reports import ending_lines, pareto_cells
from sgsdump.fixedpoint.tuning.advice import Advice
from sgsdump.fixedpoint.tuning.pareto import Pareto
from sgsdump.reports.card import card, paragraph, short_name, table, text
from sgsdump.reports.layers.table import Listing, table_of
from sgsdump.reports.notebook import WORST, depth_chart, worst_layers
from sgsdump.reports.report import Report
from sgsdump.reports.text import number
from sgsdump.reports.worst_picture import WorstPicture


class Explained(Protocol):
    """The result of ``tune(explain=True)``."""

    @property
    def advice(self) -> tuple[Advice, ...]: ...
    @property
    def first(self) -> tuple[str, ...]: ...
    @property
    def verdict(self) -> list[str]: ...
    @property
    def to_copy(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def show_diagnosed(found: tuple[Report, Comparison]) -> str:
    """Return the verdict, the next steps, the error over depth, and the worst layers."""
    report, comparison = found
    entries = table_of(comparison).compared
    steps = [
        paragraph(step.text) + (f"<pre>{html.escape(step.copy)}</pre>" if step.copy else "")
        for step in report.next_steps
    ]
    return card(
        *map(paragraph, report.verdict),
        *steps,
        _said(report.view.worst) if report.view.worst is not None else "",
        depth_chart(entries) if entries else "",
        worst_layers(Listing("worst", WORST).listed(entries)) if entries else "",
    )


def _said(worst: WorstPicture) -> str:
    """Return the worst input (a thumbnail if it is an image), and the largest outputs of both models."""
    image = ""
    if worst.image is not None:
        size = f'width="{worst.image.width}" height="{worst.image.height}"'
        alt = f"Image {text(worst.label)}"
        kind = ' class="pixelated"' if worst.image.pixelated else ""
        image = f'<img{kind} {size} alt="{alt}" src="{worst.image.source}">'
    rows = [[text(one.output), text(one.place), number(one.benchmark), number(one.sample)] for one in worst.said]
    head = ["output", "place", "float model", f"{worst.kind} model"]
    what = "image" if worst.image is not None else "input"
    return paragraph(f"Worst {what}: {worst.label}") + image + table(head, rows, range(1, 4))


def show_explained(found: Explained) -> str:
    """Return the inputs to raise, and the convolutions that contribute most."""
    head, *rows = advice_cells(found.advice)
    named = [
        [short_name(cell) if title in ("convolution", "input") else text(cell) for title, cell in zip(head, row)]
        for row in rows[:WORST]
    ]
    more = len(rows) > WORST
    return card(
        *map(paragraph, [*found.verdict, *found.first]),
        f"<pre>{html.escape(found.to_copy)}</pre>" if found.to_copy else "",
        *map(paragraph, found.notes),
        table(head, named, range(4, len(head) - 1)),
        paragraph(f"{WORST} of {len(rows)} convolutions; to_pandas() has all", small=True) if more else "",
    )


def show_plans(result: Pareto) -> str:
    """Return the ending of the search, the recommended plan, and every plan of the table."""
    head, *rows = pareto_cells(result)
    copy = conv_config(result.taken.tensors) if result.taken.tensors else ""
    return card(
        *map(paragraph, ending_lines(result)),
        f"<pre>{html.escape(copy)}</pre>" if copy else "",
        table(head, ([text(cell) for cell in row] for row in rows), range(2, len(head))),
    )
