"""What a golden comparison says of one tensor, and of all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sgsdump.dumps.data_frame import data_frame

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class GoldenRow:
    """One tensor. ``max_*`` and ``mean_*`` are NaN in a comparison of two, ``all_close`` is None in one of three.

    file      the name that reports print and sort by; name is the tensor's.
    nan_inf   True when any side holds NaN or infinite values.
    reason    why nothing could be compared; the numbers are NaN then.
    note      remarks on a compared row: dtypes that differ, a transposed layout.
    """

    file: str
    name: str
    tag: float
    nan_inf: bool = False
    diff2: float = math.nan
    all_close: bool | None = None
    max_sw: float = math.nan
    max_g: float = math.nan
    mean_sw: float = math.nan
    mean_g: float = math.nan
    reason: str = ""
    note: str = ""

    @property
    def max_passes(self) -> bool:
        return self.max_sw <= self.max_g * self.tag < math.inf

    @property
    def mean_passes(self) -> bool:
        return self.mean_sw <= self.mean_g * self.tag < math.inf

    @property
    def passes(self) -> bool:
        """True when close (two) or as good as the benchmark within the tag (three)."""
        if self.reason:
            return False
        return self.max_passes and self.mean_passes if self.all_close is None else self.all_close

    @property
    def verdict(self) -> str:
        """``pass``, ``warn`` (passes, with NaN or Inf or a note), ``fail`` or ``not comparable``."""
        if self.reason:
            return "not comparable"
        if not self.passes:
            return "fail"
        return "warn" if self.nan_inf or self.note else "pass"


@dataclass(frozen=True)
class GoldenComparison:
    """Rows by file name, and the file names that stand on one side only.

    titles          what reports call sample, benchmark and golden (None: a comparison of two).
    only_in_golden  golden's that the sample lacks; not_in_golden what the other two share and golden lacks.
    th2             the diff2 past which a row is listed; it decides nothing.
    """

    rows: tuple[GoldenRow, ...]
    titles: tuple[str, str, str | None]
    tag: float
    th1: float
    th2: float
    only_in_sample: tuple[str, ...] = ()
    only_in_benchmark: tuple[str, ...] = ()
    only_in_golden: tuple[str, ...] = ()
    not_in_golden: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        """True when every row passes."""
        return all(row.passes for row in self.rows)

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas DataFrame with one line per row: its fields, ``max_passes``, ``mean_passes`` and the verdict.

        Raises MissingExtra when pandas is not installed.
        """
        columns = [*(field.name for field in fields(GoldenRow)), "max_passes", "mean_passes", "verdict"]
        frame: pandas.DataFrame = data_frame([[getattr(row, name) for name in columns] for row in self.rows], columns)
        return frame

    def apart(self) -> Iterator[tuple[str, str]]:
        """Every file that is not on all sides, and where it is."""
        sample, benchmark, golden = self.titles
        yield from ((file, f"only in {sample}, not in {benchmark}") for file in self.only_in_sample)
        yield from ((file, f"only in {benchmark}, not in {sample}") for file in self.only_in_benchmark)
        yield from ((file, f"in {golden}, not in {sample}") for file in self.only_in_golden)
        yield from ((file, f"not in {golden}") for file in self.not_in_golden)
