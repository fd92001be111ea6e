"""Result of a comparison: compared layers, layers that were not compared, findings, verdict and pandas DataFrame."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from sgsdump.comparison.account import Account, Completeness, Kind, NotCompared, Status, less_than_half
from sgsdump.comparison.agreement import Agreement
from sgsdump.comparison.alignment import Unpaired
from sgsdump.comparison.evidence import Evidence
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.row import Failed, Row, place_by_error
from sgsdump.comparison.rules import findings_of
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.comparison.verdict import Verdict, verdict_of
from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.tables import data_frame
from sgsdump.errors import ConfigError, hint
from sgsdump.plugins import as_html, ask

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


_FACTS = ("name", "op_index", "op_type", "io", "slot", "type_name", "sample_name", "paired", "count")
_NUMBERS = ("mse", "cos", "rmse", "rise")
_COUNTS = ("sample_nan", "sample_inf", "benchmark_nan", "benchmark_inf")
_DTYPES = ("sample_dtype", "benchmark_dtype")


def frame_of(rows: Sequence[Row]) -> pandas.DataFrame:
    """Return a DataFrame with one line per compared layer and the columns of the CSV file.

    Each additional metric has a column with the name of the metric. For the metric NAME of a vendor tool, the column is
    ``vendor NAME``. For layers whose dumps hold statistics instead of values, the column ``statistics_error`` is the
    largest relative error of the statistics. A comparison of several runs also has the columns ``runs``, ``worst_run``,
    ``worst_cos``, ``worst_rmse``, ``mean_cos`` and ``mean_rmse``. Raise MissingExtra if pandas is not installed.
    """
    columns = [*_FACTS, *_NUMBERS, *dict.fromkeys(name for row in rows for name in _further(row))]
    columns += [*_COUNTS, *_DTYPES, "misnamed", "note"]
    frame: pandas.DataFrame = data_frame([_line_of(row) for row in rows], columns)
    return frame


def _line_of(row: Row) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in (*_FACTS, *_NUMBERS, *_COUNTS, *_DTYPES)}
    return facts | _further(row) | {"misnamed": str(row.misnamed or ""), "note": row.note}


def _further(row: Row) -> dict[str, Any]:
    further = {**row.extra, **{f"vendor {name}": value for name, value in row.vendor.items()}}
    further |= {"statistics_error": row.error} if row.statistics else {}
    if row.runs:
        further |= {"runs": row.runs.count, "worst_run": row.runs.worst}
        further |= {name: getattr(row.runs, name) for name in ("worst_cos", "worst_rmse", "mean_cos", "mean_rmse")}
    return further


JUMP_SHARE = 0.1  # share of the largest rise below which rises are not jumps


@dataclass(frozen=True)
class Comparison:
    """Result of ``compare``: one row per compared layer, and the tensors that were not compared.

    A comparison is a collection of its rows. A ``Comparison`` supports ``len``, iteration, ``in``, and indexing by
    name, number or slice.

    Attributes
    ----------
    rows : tuple of Row
        Compared layers, in the file order of the benchmark.
    only_in_sample, only_in_benchmark : tuple of Unpaired
        Tensors without a partner in the other dump, with the reason.
    failed : tuple of Failed
        Pairs of tensors that could not be compared, with the reason. For layers that exceed limits, see ``past``.
    sample_notes, benchmark_notes : tuple of str
        Notes from reading the dumps, such as damaged files.
    excluded : tuple of str
        Names of tensors that ``exclude`` left out.
    unwritten : tuple of str
        Names of tensors that were dumped, in either program, before the program had written their memory.
    completeness : Completeness
        Outputs, layers and runs that are missing from the sample.
    causes : tuple of Finding
        Operator arguments, types and weights that differ, and the first operator that differs.
    environment : tuple of Finding
        Differences between the environments of the two runs, such as versions and settings.
    agreement : Agreement or None
        Number of answers (top-1 class, detections, pixels) that agree; None if sgsdump cannot interpret the outputs.

    Examples
    --------
    ::

        comparison = sgsdump.compare("sample.bin", "benchmark.bin")
        comparison.worst.name          # layer with the largest error
        comparison["conv1"].cos
        comparison.save("report.html")
    """

    rows: tuple[Row, ...]
    only_in_sample: tuple[Unpaired, ...]
    only_in_benchmark: tuple[Unpaired, ...]
    failed: tuple[Failed, ...]
    sample_notes: tuple[str, ...] = ()
    benchmark_notes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()
    completeness: Completeness = field(default_factory=Completeness)
    causes: tuple[Finding, ...] = ()
    environment: tuple[Finding, ...] = ()
    agreement: Agreement | None = None

    @cached_property
    def account(self) -> Account:
        """Number of compared layers, and a list of the layers that were not compared."""
        whole = self.completeness
        of = max(whole.of, len(self.rows))
        beside = (*_runs(whole), *less_than_half(len(self.rows), whole.of), *_files(self))
        return Account(len(self.rows), of, (*_layers(self), *beside))

    @property
    def is_complete(self) -> bool:
        """True if no output, layer, run or file is missing or damaged, and at least half of the layers were compared.

        Layers inside fused operators do not count as missing.
        """
        return self.account.is_complete

    @property
    def damaged(self) -> tuple[str, ...]:
        """Files and tensors of either dump that exist but cannot be read, one line each."""
        return self.account.damaged

    @property
    def of(self) -> int:
        """Number of layers of the benchmark, without fused and excluded layers."""
        return self.account.of

    def evidence(self, limits: Thresholds = DOCUMENTED) -> Evidence:
        """Return the evidence from which the rules derive the findings.

        Parameters
        ----------
        limits : Thresholds
            Limits on the errors of the layers.

        Returns
        -------
        Evidence
        """
        whole = self.completeness
        return Evidence(
            self.account,
            self.rows,
            self.failed,
            whole.outputs,
            whole.by_flow,
            self.environment,
            self.causes,
            limits,
        )

    def findings(self, limits: Thresholds = DOCUMENTED) -> tuple[Finding, ...]:
        """Return the findings, most important first.

        Parameters
        ----------
        limits : Thresholds
            Limits on the errors of the layers.

        Returns
        -------
        tuple of Finding
        """
        if limits not in self._known:
            self._known[limits] = findings_of(self.evidence(limits))
        return self._known[limits]

    def verdict(self, limits: Thresholds | None = None, allow_missing: bool = False) -> Verdict:
        """Return the verdict as a ``Verdict`` object.

        Parameters
        ----------
        limits : Thresholds, optional
            Limits that decide whether the comparison passes. If None, the comparison neither passes nor fails, and the
            documented limits (``DOCUMENTED``) apply to the findings.
        allow_missing : bool
            If True, outputs, layers and runs that are missing from the sample do not make the comparison fail.

        Returns
        -------
        Verdict
        """
        held = limits or DOCUMENTED
        verdict = verdict_of(self.evidence(held), self.findings(held), bool(limits), allow_missing)
        return replace(verdict, agreement=self.agreement)

    @cached_property
    def _known(self) -> dict[Thresholds, tuple[Finding, ...]]:
        return {}

    @property
    def other_input(self) -> Finding | None:
        """Finding that the two runs had different inputs; None if the inputs are equal or unknown."""
        return next((finding for finding in self.environment if "likeness" in finding.figures), None)

    @property
    def suspects(self) -> tuple[Row, ...]:
        """Rows that compare two unrelated tensors that have the same name by chance. These rows never pass."""
        return tuple(row for row in self.rows if row.misnamed)

    @property
    def alike(self) -> tuple[Row, ...]:
        """Rows that compare the same tensor in both dumps: all rows except ``suspects``."""
        return tuple(row for row in self.rows if not row.misnamed)

    @property
    def worst(self) -> Row | None:
        """Row with the largest error (Σ|a-b| / Σ|b|); None if there are no rows.

        NaN and Inf count as the largest error. Suspects are included.
        """
        return next(iter(self.worst_first(1)), None)

    def worst_first(self, count: int | None = None) -> tuple[Row, ...]:
        """Return the rows sorted by error, largest first.

        Rows of equal error are sorted by COS (lowest first), then by file order.

        Parameters
        ----------
        count : int, optional
            Number of rows to return. If ``count`` is None, return all rows.

        Returns
        -------
        tuple of Row
        """
        return tuple(sorted(self.rows, key=place_by_error)[:count])

    @property
    def jumps(self) -> tuple[Row, ...]:
        """Rows of the layers whose error is larger than the error of their input layers, largest rise first.

        Rows in ``suspects`` are left out: each of them compares two different tensors that have the same name, so its
        error says nothing about a layer. Rows whose rise is below a tenth of the largest finite rise are left out too.
        """
        rising = sorted((row for row in self.alike if row.rise > 0), key=lambda row: -row.rise)
        steepest = next((row.rise for row in rising if math.isfinite(row.rise)), 0.0)
        return tuple(row for row in rising if row.rise >= JUMP_SHARE * steepest)

    def past(self, thresholds: Thresholds = DOCUMENTED) -> tuple[Row, ...]:
        """Return the rows that exceed the limits, and all rows in ``suspects``.

        Parameters
        ----------
        thresholds : Thresholds
            Limits on the errors of the layers.

        Returns
        -------
        tuple of Row
        """
        return tuple(row for row in self.rows if not row.passes(thresholds))

    def passes(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        """Return whether all rows are within the limits, ``suspects`` is empty, and all pairs could be compared.

        Missing layers do not affect the result of this method; ``is_complete`` checks for missing layers. A comparison
        without rows does not pass.

        Parameters
        ----------
        thresholds : Thresholds
            Limits on the errors of the layers.

        Returns
        -------
        bool
        """
        return bool(self.rows) and not self.failed and all(row.passes(thresholds) for row in self.rows)

    def check_layers(self, thresholds: Thresholds) -> None:
        """Check that every layer-specific limit matches a compared layer.

        Parameters
        ----------
        thresholds : Thresholds
            Limits on the errors of the layers.

        Raises
        ------
        ConfigError
            If the pattern of a limit matches no compared layer.
        """
        names = [name for row in self.rows for name in row.names] + [
            failed.pair.benchmark.name for failed in self.failed
        ]
        for pattern, _, _ in thresholds.layers:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(f"the limit on {pattern!r} matches no compared layer{hint(pattern, names)}")

    @overload
    def __getitem__(self, name: str | int) -> Row: ...

    @overload
    def __getitem__(self, name: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, name: str | int | slice) -> Row | tuple[Row, ...]:
        """Return the row of a layer by name or number, or several rows by slice.

        Parameters
        ----------
        name : str, int or slice
            The benchmark's tensor name, or the name of a stage of a Caffe blob. If several rows have this name, the
            first row in file order is returned.

        Returns
        -------
        Row or tuple of Row

        Raises
        ------
        KeyError
            If no row has this name. The error message lists similar names, or gives the reason why the tensor was not
            compared.
        IndexError
            If ``name`` is a number, and no row has this number.
        """
        if isinstance(name, int | slice):
            return self.rows[name]
        named = (row for row in self.rows if row.name == name)
        of_stage = (row for row in self.rows if name and row.stage == name)
        for row in chain(named, of_stage):
            return row
        reason = self._why_not_compared(name) or f"no compared layer {name!r}"
        raise KeyError(f"{reason}{hint(str(name), {row.name: row for row in self.rows})}")

    def __contains__(self, item: object) -> bool:
        """Return whether the comparison contains this row, or a row with this name."""
        return any(item in row.names or row is item for row in self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        """Return the text of ``verdict()``, called without limits."""
        return "\n".join(ask("text of a verdict", self.verdict()))

    def _repr_html_(self) -> str | None:
        """Return the verdict, a chart of the error of each layer, and the worst rows, as HTML for a notebook."""
        return as_html("comparison", self)

    def plot(self, axes: Axes | None = None, metric: str = "rmse") -> Axes:
        """Plot the error of each layer against its depth, with the documented limit and the largest rises of the error.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Axes to draw on. If None, create a figure with ``pyplot``; notebooks display this figure.
        metric : {"rmse", "cos", "mse", "sqnr"}
            Metric to plot; "cos" plots 1 - COS.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ConfigError
            If the metric is unknown.
        """
        drawn: Axes = ask("plot of a comparison", self, axes, metric)
        return drawn

    def save(self, path: str | Path) -> Path:
        """Write the comparison to a file in the format that the file extension selects.

        Parameters
        ----------
        path : str or Path
            File to write. Extensions: ``.html`` (page of ``sgsdump report``), ``.json``, ``.csv``, ``.md`` and ``.xml``
            (JUnit). ``sgsdump compare`` writes the same files.

        Returns
        -------
        Path
            The written file.

        Raises
        ------
        ConfigError
            If the extension is unknown.
        OutputError
            If the file cannot be written.
        """
        saved: Path = ask("file of a comparison", self, Path(path))
        return saved

    def page(self, sample: Dump | None = None, benchmark: Dump | None = None, height: int = 900) -> Any:
        """Return the page of ``sgsdump report``, which a notebook shows in a frame.

        Parameters
        ----------
        sample, benchmark : Dump, optional
            Dumps that were compared. If both are given, the page shows the tensors of the worst layers.
        height : int
            Height of the frame in pixels.

        Returns
        -------
        Page
            Page with ``save(path)``; its ``text`` is the HTML.
        """
        return ask("page of a comparison", self, sample, benchmark, height)

    def to_html(self, path: str | Path) -> Path:
        """Write the HTML page that ``sgsdump report`` writes, as a single self-contained file.

        The page shows the histograms of layers if the dumps were compared with ``details=True``.

        Parameters
        ----------
        path : str or Path
            File to write.

        Returns
        -------
        Path
            The written file.

        Raises
        ------
        OutputError
            If the file cannot be written.
        """
        saved: Path = ask("file of a comparison", self, Path(path), ".html")
        return saved

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with one line per compared layer.

        Returns
        -------
        pandas.DataFrame
            Columns: names, counts, metrics, additional metrics and notes.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        return frame_of(self.rows)

    def _why_not_compared(self, name: str) -> str:
        uncompared = [(failed.pair.benchmark.name, failed.reason) for failed in self.failed]
        uncompared += [
            (unpaired.record.name, unpaired.reason) for unpaired in self.only_in_benchmark + self.only_in_sample
        ]
        return next((f"{name!r} was not compared: {reason}" for other, reason in uncompared if other == name), "")


def _layers(comparison: Comparison) -> Iterator[NotCompared]:
    """Yield every layer that was not compared, with the reason."""
    whole = comparison.completeness
    for failed in comparison.failed:
        pair = failed.pair
        yield _of_record(pair.benchmark, "failed", failed.reason, sample_name=pair.sample.name, damaged=failed.damaged)
    lacking: dict[str, Kind] = dict.fromkeys(whole.missing, "layer")
    lacking |= dict.fromkeys(whole.missing_outputs, "output")
    for unpaired in comparison.only_in_benchmark:
        record, fused = unpaired.record, unpaired.record.name in whole.fused
        status: Status = "without counterpart" if unpaired.expected or fused else "only in benchmark"
        kind: Kind = "input" if record.io == "in" else "layer"
        if record.io == "out" and record.name in lacking:
            status, kind = "missing", lacking[record.name]
        yield _of_record(record, status, unpaired.reason, kind, fused=fused, compiled=unpaired.compiled)
    for unpaired in comparison.only_in_sample:
        status = "without counterpart" if unpaired.expected else "only in sample"
        name = unpaired.record.name
        compiled = unpaired.compiled
        yield _of_record(unpaired.record, status, unpaired.reason, side="sample", sample_name=name, compiled=compiled)
    for name in comparison.unwritten:
        yield NotCompared(name, "unwritten", "")
    for name in comparison.excluded:
        yield NotCompared(name, "excluded", "")


def _of_record(record: Record, status: Status, reason: str, kind: Kind = "layer", **facts: Any) -> NotCompared:
    known = {"op_type": record.op_type, "op_index": record.op_index, **facts}
    return NotCompared(record.name, status, reason, kind, **known)


def _runs(completeness: Completeness) -> Iterator[NotCompared]:
    for name in completeness.runs:
        yield NotCompared(name, "missing", "run missing from the sample", "run")


def _files(comparison: Comparison) -> Iterator[NotCompared]:
    """Yield every file of either dump that cannot be read."""
    for side, notes in (("sample", comparison.sample_notes), ("benchmark", comparison.benchmark_notes)):
        for note in notes:
            if isinstance(note, Damage):
                yield NotCompared(f"a file of the {side}", "failed", note, "file", side, damaged=True)
