"""Table of layers (``LayerTable`` of ``Entry``) from two dumps or a golden comparison, and selection of entries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from sgsdump.comparison.account import Account, NotCompared
from sgsdump.comparison.row import Row
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.reports.remarks import why
from sgsdump.reports.text import number
from sgsdump.reports.three_lines import verdict_block
from sgsdump.reports.verdict import UNWRITTEN, details

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.golden import GoldenComparison, GoldenPlace, GoldenRow
    from sgsdump.comparison.verdict import Verdict

Figure = float | int | str | bool
Status = Literal[
    "compared", "failed", "only in benchmark", "only in sample", "without counterpart", "excluded", "missing"
]
NOT_COMPARABLE = "not comparable"
BESIDE = ("run", "share", "file")  # kinds of missing or damaged items other than layers
DECADES = 5  # powers of ten below the largest error that a bar shows


@dataclass(frozen=True)
class Entry:
    """Layer of either dump.

    sample_name  the sample's name for the layer.
    verdict      pass, warn or fail; "not comparable" if the status is not "compared".
    passes       whether the layer is within the limits; False for another tensor of the same name.
    figures      figures by metric name, in display order; empty if not compared.
    error        sort key; infinite for NaN or Inf.
    limits       limits of the figures, as text.
    remark       how the layer was compared, or why not.
    """

    name: str
    verdict: str
    op_type: str = ""
    op_index: int | None = None
    sample_name: str = ""
    status: Status = "compared"
    figures: Mapping[str, Figure] = field(default_factory=dict)
    error: float = 0.0
    limits: str = ""
    remark: str = ""
    passes: bool = True

    @property
    def bad(self) -> bool:
        return self.verdict == "fail" or not self.passes

    @property
    def expected(self) -> bool:
        """True if the layer was not compared because the other side cannot have it."""
        return self.status == "without counterpart"

    @property
    def number(self) -> str:
        """Number of the operator in the model; "" if unknown."""
        return "" if self.op_index is None else str(self.op_index)

    def text(self, figure: str) -> str:
        """Return a figure as text; "" if the entry does not have it."""
        return as_text(self.figures[figure]) if figure in self.figures else ""


@dataclass(frozen=True)
class LayerTable:
    """Comparison as a table of layers.

    verdict  first lines of the verdict (``three_lines.verdict_block``).
    entries  compared layers in the benchmark's order, then layers that were not compared.
    lacking  missing items other than layers: runs, most of the layers, unreadable files.
    suite    name of the test suite on a CI server; "" for the title.
    seconds  duration of the comparison.
    details  further sentences below the table.
    """

    title: str
    verdict: tuple[str, ...]
    entries: tuple[Entry, ...]
    lacking: tuple[Entry, ...] = ()
    suite: str = ""
    seconds: float = 0.0
    details: tuple[str, ...] = ()

    @cached_property
    def compared(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.status == "compared")

    @cached_property
    def left_out(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.status != "compared")


@dataclass(frozen=True)
class Listing:
    """Selection and order of the layers in a table.

    sort  "depth": order of the model; "worst": largest error first.
    top   number of layers with the largest errors to list; None for all.
    """

    sort: Literal["depth", "worst"] = "depth"
    top: int | None = None
    only_bad: bool = False

    def places(self, entries: Sequence[Entry]) -> list[int]:
        """Return the indices of the listed entries, in listing order."""
        some = [index for index, entry in enumerate(entries) if entry.bad or not self.only_bad]
        ranked = sorted(some, key=lambda index: -_rank(entries[index]))[: self.top]
        return ranked if self.sort == "worst" else sorted(ranked)

    def listed(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the listed entries, in listing order."""
        return [entries[index] for index in self.places(entries)]


EVERY = Listing()


def table_of(
    comparison: Comparison,
    thresholds: Thresholds = DOCUMENTED,
    title: str = "Comparison",
    conclusion: Verdict | None = None,
) -> LayerTable:
    """Return a table of all layers of either dump, with the verdict in sentences."""
    concluded = comparison.verdict() if conclusion is None else conclusion
    compared = (_entry(row, thresholds) for row in comparison.rows)
    return LayerTable(
        title,
        tuple(verdict_block(concluded)),
        (*compared, *left_out_of(comparison.account)),
        tuple(_left_out(one) for one in comparison.account.left_out if one.kind in BESIDE),
        details=details(comparison, thresholds, concluded),
    )


def left_out_of(account: Account) -> Iterator[Entry]:
    """Return all layers that were not compared, with the reason."""
    return (_left_out(one) for one in account.left_out if one.kind not in BESIDE)


def _left_out(one: NotCompared) -> Entry:
    status: Status = "excluded" if one.status == "unwritten" else one.status
    remark = one.reason or {"unwritten": UNWRITTEN, "excluded": "excluded"}.get(one.status, "")
    return Entry(one.name, NOT_COMPARABLE, one.op_type, one.op_index, one.sample_name, status=status, remark=remark)


def golden_table_of(comparison: GoldenComparison, allow_missing: bool = False) -> LayerTable:
    """Return a table of the tensors of a sample and a benchmark that a third run judges."""
    sample, benchmark, golden = comparison.titles
    limits = f"{benchmark}'s error times {comparison.tag:g}" if golden else f"all_close at {comparison.th1:g}"
    entries = [_golden_entry(comparison.places.get(row.name), row, limits) for row in comparison.rows]
    unmatched = (one for one in comparison.account.left_out if one.status != "failed")
    entries += map(_left_out, unmatched)
    title = f"{sample} against {benchmark}" + (f", judged by {golden}" if golden else "")
    return LayerTable(title, tuple(verdict_block(comparison.verdict(allow_missing))), tuple(entries))


def figure_names(entries: Iterable[Entry]) -> list[str]:
    """Return the names of all figures of the entries, in display order."""
    return list(dict.fromkeys(name for entry in entries for name in entry.figures))


def as_text(figure: Figure) -> str:
    """Return a figure as text: floats as in ``text.number``."""
    return number(float(figure)) if isinstance(figure, float) else str(figure)


def title_of(figure: str) -> str:
    """Return the heading of a figure's column."""
    return figure.upper() if figure in ("rmse", "cos", "mse") else figure


def bar_shares(errors: Sequence[float]) -> list[float]:
    """Return the lengths of logarithmic bars: 1 for the largest finite error, for NaN and for infinity."""
    top = max(filter(math.isfinite, errors), default=0.0)
    return [_bar_share(error, top) for error in errors]


def _bar_share(error: float, top: float) -> float:
    if not math.isfinite(error):
        return 1.0
    if error <= 0 or top <= 0:
        return 0.0
    return max(1 + math.log10(error / top) / DECADES, 0.02)


def _rank(entry: Entry) -> float:
    return math.inf if math.isnan(entry.error) else entry.error


def _entry(row: Row, thresholds: Thresholds) -> Entry:
    return Entry(
        name=row.name,
        verdict=row.verdict(thresholds),
        op_type=row.op_type,
        op_index=row.op_index,
        sample_name=row.sample_name,
        figures=_figures(row),
        error=row.error,
        limits=str(thresholds.of_layer(*row.names)),
        remark=why(row),
        passes=row.passes(thresholds),
    )


def _figures(row: Row) -> dict[str, Figure]:
    """Return RMSE, COS and MSE, or the error of statistics; then further and vendor metrics, and figures over runs."""
    main: dict[str, Figure] = {"rmse": row.rmse, "cos": row.cos, "mse": row.mse}
    if row.statistics:
        main = {"statistics_error": row.error}
    over_runs: dict[str, Figure] = {}
    if row.runs:
        over_runs = {"mean_rmse": row.runs.mean_rmse, "worst_rmse": row.runs.worst_rmse, "worst_run": row.runs.worst}
    return {**main, **row.extra, **{f"vendor {name}": text for name, text in row.vendor.items()}, **over_runs}


def _golden_entry(place: GoldenPlace | None, row: GoldenRow, limits: str) -> Entry:
    entry = Entry(row.file, row.verdict, op_index=place.order if place else None, sample_name=row.name)
    if row.reason:
        return replace(entry, status="failed", remark=row.reason)
    # diff3 against golden in the reports: sw is the sample's, g the benchmark's.
    names = ("max_sw", "max_g", "mean_sw", "mean_g", "diff2") if row.all_close is None else ("diff2", "all_close")
    figures = {name: getattr(row, name) for name in names}
    remark = "; ".join(filter(None, ["contains NaN or Inf" if row.nan_inf else "", row.note]))
    return replace(entry, figures=figures, error=_golden_error(row), limits=limits, remark=remark)


def _golden_error(row: GoldenRow) -> float:
    """Return the error-to-limit ratio; diff2 without a golden run."""
    if row.all_close is not None:
        return row.diff2
    return max(_ratio(row.max_sw, row.max_g * row.tag), _ratio(row.mean_sw, row.mean_g * row.tag))


def _ratio(error: float, allowed: float) -> float:
    if math.isnan(error) or math.isnan(allowed):
        return math.inf
    return error / allowed if allowed else math.inf if error else 0.0
