"""The result of a comparison: its rows, what was not compared, and both as a pandas DataFrame."""

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
from sgsdump.dumps.dump import Damage, Record
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
    """One line per row; further metrics have columns of their names, a vendor's ``vendor NAME``. Where a layer has
    statistics only, ``statistics_error`` is their largest relative error; of several runs there are ``runs``,
    ``worst_run``, ``worst_cos``, ``worst_rmse``, ``mean_cos`` and ``mean_rmse``, as in the CSV.

    Raises MissingExtra when pandas is not installed.
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


JUMP_SHARE = 0.1


@dataclass(frozen=True)
class Comparison:
    """The result: rows in the benchmark's file order, everything that was not compared, and the dumps' notes.
    ``unwritten`` are the names of tensors that were, on either side, memory to which nothing had been written yet;
    ``causes`` what the operators were called with that differs, and what differs first, as ``causes.py`` has it;
    ``environment`` in what the runs of two programs differ beside their tensors (``environment.py``).

    ``failed`` are the pairs that could not be measured, with the reason; layers past a limit are ``past()``.

    It is a collection of its rows: ``len(comparison)``, ``for row in comparison``, ``comparison["conv1"]``,
    ``comparison[0]``, ``comparison[:3]``, ``"conv1" in comparison``.
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
        """What was compared, and all that was not."""
        whole = self.completeness
        of = max(whole.of, len(self.rows))
        beside = (*_runs(whole), *less_than_half(len(self.rows), whole.of), *_files(self))
        return Account(len(self.rows), of, (*_layers(self), *beside))

    @property
    def is_complete(self) -> bool:
        """True when no output, other layer or run of the benchmark is missing, as what fused operators hold is not,
        nothing is damaged, and at least half of its layers were compared."""
        return self.account.is_complete

    @property
    def damaged(self) -> tuple[str, ...]:
        """What is there but cannot be read, a line each: files and tensors of either dump."""
        return self.account.damaged

    @property
    def of(self) -> int:
        """The number of benchmark layers to compare: fused and excluded layers do not count."""
        return self.account.of

    def evidence(self, limits: Thresholds = DOCUMENTED) -> Evidence:
        """Return all that is known, for the rules of conclusion."""
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
        """Return what there is to say, the most important first: the rules of conclusion, one after the other."""
        if limits not in self._known:
            self._known[limits] = findings_of(self.evidence(limits))
        return self._known[limits]

    def verdict(self, limits: Thresholds | None = None, allow_missing: bool = False) -> Verdict:
        """Return the verdict as data.

        Parameters
        ----------
        limits
            Those that decide whether it passes; None: it neither passes nor fails, and findings are of the documented
            limits.
        allow_missing
            Whether what the sample lacks is allowed.
        """
        held = limits or DOCUMENTED
        verdict = verdict_of(self.evidence(held), self.findings(held), bool(limits), allow_missing)
        return replace(verdict, agreement=self.agreement)

    @cached_property
    def _known(self) -> dict[Thresholds, tuple[Finding, ...]]:
        return {}

    @property
    def other_input(self) -> Finding | None:
        """The finding that the two models' runs are of different inputs, as far as the dumps tell."""
        return next((finding for finding in self.environment if "likeness" in finding.figures), None)

    @property
    def suspects(self) -> tuple[Row, ...]:
        """Rows whose names agree although they are different tensors; no threshold passes them."""
        return tuple(row for row in self.rows if row.misnamed)

    @property
    def alike(self) -> tuple[Row, ...]:
        """Rows of one and the same tensor: all but the suspects."""
        return tuple(row for row in self.rows if not row.misnamed)

    @property
    def worst(self) -> Row | None:
        """The row of the largest error (Σ|a-b|/Σ|b|; NaN and Inf first), suspects included."""
        return next(iter(self.worst_first(1)), None)

    def worst_first(self, count: int | None = None) -> tuple[Row, ...]:
        """The rows (``count`` of them) by falling error; of equal errors the one of lower COS, then the earlier one."""
        return tuple(sorted(self.rows, key=place_by_error)[:count])

    @property
    def jumps(self) -> tuple[Row, ...]:
        """Where the error arises: the rows whose error rises over the layers that feed them, steepest first; not the
        suspects, whose error is of another tensor.

        Rises below a tenth of the steepest finite one are left out.
        """
        rising = sorted((row for row in self.alike if row.rise > 0), key=lambda row: -row.rise)
        steepest = next((row.rise for row in rising if math.isfinite(row.rise)), 0.0)
        return tuple(row for row in rising if row.rise >= JUMP_SHARE * steepest)

    def past(self, thresholds: Thresholds = DOCUMENTED) -> tuple[Row, ...]:
        """The rows past the thresholds, and all suspects, which none passes."""
        return tuple(row for row in self.rows if not row.passes(thresholds))

    def passes(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        """True when something was compared, nothing failed to be, every row is within, and none is a suspect. What is
        missing of the benchmark is another question: ``is_complete``."""
        return bool(self.rows) and not self.failed and all(row.passes(thresholds) for row in self.rows)

    def check_layers(self, thresholds: Thresholds) -> None:
        """Raises ConfigError where a layer that has limits of its own is not among those compared."""
        names = [name for row in self.rows for name in row.names] + [
            failed.pair.benchmark.name for failed in self.failed
        ]
        for pattern, _, _ in thresholds.layers:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(f"the limit on {pattern!r} is of no compared layer{hint(pattern, names)}")

    @overload
    def __getitem__(self, name: str | int) -> Row: ...

    @overload
    def __getitem__(self, name: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, name: str | int | slice) -> Row | tuple[Row, ...]:
        """The row of the benchmark's tensor of this name, the first one in file order when several bear it; of a Caffe
        blob the name of its stage will do too. By a number, the row at that place; by a slice, those rows.

        Raises KeyError with the nearest names, or with the reason why the tensor was not compared; IndexError.
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
        """True for a row and for a row's name."""
        return any(item in row.names or row is item for row in self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        """The verdict in words, without limits."""
        return "\n".join(ask("text of a verdict", self.verdict()))

    def _repr_html_(self) -> str | None:
        """The verdict, the error over depth and the worst rows, for a notebook."""
        return as_html("comparison", self)

    def plot(self, axes: Axes | None = None, metric: str = "rmse") -> Axes:
        """Draw the error of every layer over the network's depth, the documented limit, and where the error rises.

        axes    of matplotlib; None: new ones of ``pyplot``, which a notebook shows.
        metric  rmse, cos (as 1 - COS), mse or sqnr.

        Raises ConfigError for another metric.
        """
        drawn: Axes = ask("plot of a comparison", self, axes, metric)
        return drawn

    def save(self, path: str | Path) -> Path:
        """Write it as the file's ending says: ``.html`` (the page of ``sgsdump report``), ``.json``, ``.csv``, ``.md``
        or ``.xml`` (JUnit), as the options of ``sgsdump compare`` do. Raises ConfigError, OutputError."""
        saved: Path = ask("file of a comparison", self, Path(path))
        return saved

    def to_html(self, path: str | Path) -> Path:
        """Write the page of ``sgsdump report``, one file that fetches nothing. Layers show their histograms where they
        were compared with ``details=True``. Raises OutputError."""
        saved: Path = ask("file of a comparison", self, Path(path), ".html")
        return saved

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas DataFrame with one line per row: names, counts, metrics, further metrics by name, and the remarks.

        Raises MissingExtra when pandas is not installed.
        """
        return frame_of(self.rows)

    def _why_not_compared(self, name: str) -> str:
        uncompared = [(failed.pair.benchmark.name, failed.reason) for failed in self.failed]
        uncompared += [
            (unpaired.record.name, unpaired.reason) for unpaired in self.only_in_benchmark + self.only_in_sample
        ]
        return next((f"{name!r} was not compared: {reason}" for other, reason in uncompared if other == name), "")


def _layers(comparison: Comparison) -> Iterator[NotCompared]:
    """Every layer that was not compared, and why."""
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
        yield NotCompared(name, "missing", "a run that the sample lacks", "run")


def _files(comparison: Comparison) -> Iterator[NotCompared]:
    """Every file of either dump that cannot be read."""
    for side, notes in (("sample", comparison.sample_notes), ("benchmark", comparison.benchmark_notes)):
        for note in notes:
            if isinstance(note, Damage):
                yield NotCompared(f"a file of the {side}", "failed", note, "file", side, damaged=True)
