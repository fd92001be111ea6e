"""Three-way comparison: judge a sample and an accepted run (the benchmark) by a golden run.

The sample passes if its error against the golden run is at most ``tag`` times the benchmark's error. Source of the
formulas: the dump tools of the SDAA ONNX pipeline. With e the sample, c the benchmark and g the golden values::

    diff2                     sqrt(Σ(e-c)² / Σc²), in float32
    diff3(x, g)               for each value  |g| > th1:  |x-g| / (|g| + 1e-9),  else  |x-g|
    diff3_max_sw, _mean_sw    maximum and mean of diff3(e, g)
    diff3_max_g, _mean_g      maximum and mean of diff3(c, g)
    pass                      sw <= g * tag, for the maximum and for the mean; with g = 0 only sw = 0 passes, and a
                              benchmark error that is infinite or NaN never passes

Without a golden run, the comparison has diff2 and ``all_close``: every |e-c| <= th1 + th1 |c|, NaN equal to NaN.

diff2 and all_close are computed in float32, and diff3 in the wider of both dtypes (at least float32), over whole
arrays. The digits therefore match those of the SDAA tool. Integers are computed in float64, with exact differences for
64-bit integers. A complex value counts as two values.

If the benchmark is all zeros and the sample is not, the benchmark tensor was probably never written. The row does not
pass, whatever the figures are (``diff2`` is infinite; ``tag`` times the benchmark's error is large).

``compare_files`` pairs files with equal names, and ``compare_golden`` pairs tensors of dumps in any format.
``reports/golden/log.py`` prints both results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.comparison.account import Account, NotCompared, Status
from sgsdump.comparison.align import align_names
from sgsdump.comparison.alignment import Pair, Unpaired
from sgsdump.comparison.dataflow import known_sources, nearest_sources
from sgsdump.comparison.evidence import Evidence, JudgedLayer
from sgsdump.comparison.finding import Finding
from sgsdump.comparison.layout_match import Layouts, match_layouts, match_shapes
from sgsdump.comparison.metrics import EPSILON
from sgsdump.comparison.pair_result import compared_as_stored, layouts
from sgsdump.comparison.rules import findings_of
from sgsdump.comparison.verdict import Verdict, judged_verdict
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.tables import data_frame
from sgsdump.errors import ConfigError, FileChanged, SgsdumpError, ValuesError
from sgsdump.files.mapped import in_memory
from sgsdump.progress import SILENT, Progress, each
from sgsdump.tensors.tensor import values_of

if TYPE_CHECKING:
    import pandas

Load = Callable[[], np.ndarray]


@dataclass(frozen=True)
class GoldenSettings:
    """Settings of a three-way comparison.

    tag     largest allowed ratio of the sample's error to the benchmark's error.
    th1     diff3: magnitude of golden values above which the error is relative; tolerance of all_close.
    th2     diff2 above which a row is listed; it does not affect the verdict.
    titles  names of sample, benchmark and golden in reports.

    Raise ConfigError if the tag or a threshold is negative or NaN.
    """

    tag: float = 10.0
    th1: float = 1e-6
    th2: float = 1e-3
    titles: tuple[str, str, str | None] = ("sample", "benchmark", "golden")

    def __post_init__(self) -> None:
        for name, value in (("input tag", self.tag), ("th1", self.th1), ("th2", self.th2)):
            if not value >= 0:
                raise ConfigError(f"the {name} must be 0 or more, not {value:g}")


DEFAULTS = GoldenSettings()


@dataclass(frozen=True)
class GoldenPlace:
    """Operator that computes a row's tensor: its number in the network, its type, and the rows that feed it."""

    order: int = 0
    op_type: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class GoldenRow:
    """Figures of one tensor.

    ``max_*`` and ``mean_*`` are NaN without a golden run; ``all_close`` is None with a golden run.

    file      name that reports print and sort by; ``name`` is the tensor's name.
    nan_inf   whether any side has NaN or Inf.
    reason    why the tensor could not be compared; the figures are NaN then.
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
    def zeros(self) -> bool:
        """True if the benchmark is all zeros and the sample is not."""
        return math.isinf(self.diff2) and not self.nan_inf

    @property
    def close(self) -> bool:
        """The SDAA tool's verdict: all_close without a golden run; with a golden run, the error is within the tag."""
        if self.reason:
            return False
        return self.max_passes and self.mean_passes if self.all_close is None else self.all_close

    @property
    def passes(self) -> bool:
        """True if ``close``, unless the benchmark is all zeros and the sample is not."""
        return self.close and not self.zeros

    @property
    def verdict(self) -> str:
        """The verdict: ``pass``, ``warn`` (passes with NaN, Inf or a note), ``fail`` or ``not comparable``."""
        if self.reason:
            return "not comparable"
        if not self.passes:
            return "fail"
        return "warn" if self.nan_inf or self.note else "pass"


def _judged(row: GoldenRow, place: GoldenPlace) -> JudgedLayer:
    """Return a row for the rules. Its error is the mean diff3 against golden; without golden, diff2."""
    error = row.diff2 if row.all_close is not None else row.mean_sw
    figures = {"diff2": row.diff2}
    deciding: tuple[str, float, float | None] = ("diff2", row.diff2, None)
    if row.all_close is None:
        figures = {"max_sw": row.max_sw, "max_g": row.max_g}
        is_mean = row.max_passes and not row.mean_passes
        value, accepted = (row.mean_sw, row.mean_g) if is_mean else (row.max_sw, row.max_g)
        deciding = ("mean diff3" if is_mean else "max diff3", value, accepted * row.tag)
    return JudgedLayer(
        row.name,
        row.passes,
        math.inf if math.isnan(error) else error,
        figures,
        deciding,
        row.diff2 == 0,
        not row.zeros,
        not row.nan_inf,
        place.op_type,
        place.order,
        place.sources,
    )


@dataclass(frozen=True)
class GoldenComparison:
    """Result of a three-way comparison: rows in the order of their file names, and files that are not on all sides.

    titles          names of sample, benchmark and golden in reports; golden is None for a comparison of two.
    only_in_golden  files of golden that the sample lacks; ``not_in_golden``: files of both others that golden lacks.
    th2             diff2 above which a row is listed; it does not affect the verdict.
    left_out        files that an option excluded or that the other side cannot have; they are not missing.
    places          places of the tensors in the network by row name, if the dumps record them.
    own_errors      findings from recomputing each operator from its recorded inputs; None if not recomputed.
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
    left_out: frozenset[str] = frozenset()
    places: Mapping[str, GoldenPlace] = field(default_factory=dict)
    own_errors: tuple[Finding, ...] | None = None

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """Missing files, each with a text that says where the file is and is not.

        With a golden run, files are missing if the sample lacks a file of golden, or if golden lacks a file of both
        others. Without it, files are missing if the sample lacks a file of the benchmark.
        """
        golden = self.titles[2]
        lacked = {*self.only_in_golden, *self.not_in_golden} if golden else {*self.only_in_benchmark}
        found = {file: reason for file, reason in self.unmatched() if file in lacked - self.left_out}
        return tuple(found.items())

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings: missing files, then the places where errors arise.

        Errors arise at operators whose recomputed result differs; else at failing tensors whose sources pass.
        """
        return findings_of(self.evidence)

    def verdict(self, allow_missing: bool = False) -> Verdict:
        """Return the verdict as data; with ``allow_missing``, files that the sample lacks do not fail."""
        return judged_verdict(self.evidence, self.findings, allow_missing)

    @cached_property
    def account(self) -> Account:
        """Number of compared tensors, and everything that was not compared."""
        compared = sum(not row.reason for row in self.rows)
        failed = [NotCompared(row.file, "failed", row.reason, sample_name=row.name) for row in self.rows if row.reason]
        missing = {*self.missing}
        for file, reason in self.unmatched():
            status: Status = "only in sample" if file in self.only_in_sample else "only in benchmark"
            status = "missing" if (file, reason) in missing else status
            failed.append(NotCompared(file, status, reason, sample_name=file))
        return Account(compared, len(self.rows) + len(missing), tuple(failed))

    @property
    def evidence(self) -> Evidence:
        """Evidence for the rules."""
        by_flow = any(place.sources for place in self.places.values())
        judged = tuple(_judged(row, self.places.get(row.name, GoldenPlace())) for row in self.rows if not row.reason)
        return Evidence(self.account, by_flow=by_flow, judged=judged, recomputed=self.own_errors)

    @property
    def passes(self) -> bool:
        """True if every row passes."""
        return all(row.passes for row in self.rows)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with one line per row: its fields, ``max_passes``, ``mean_passes`` and the verdict.

        Raise MissingExtra if pandas is not installed.
        """
        columns = [*(field.name for field in fields(GoldenRow)), "max_passes", "mean_passes", "verdict"]
        frame: pandas.DataFrame = data_frame([[getattr(row, name) for name in columns] for row in self.rows], columns)
        return frame

    def unmatched(self) -> Iterator[tuple[str, str]]:
        """Yield every file that is not on all sides, with a text that says where the file is and is not."""
        sample, benchmark, golden = self.titles
        yield from ((file, f"only in {sample}, not in {benchmark}") for file in self.only_in_sample)
        yield from ((file, f"only in {benchmark}, not in {sample}") for file in self.only_in_benchmark)
        yield from ((file, f"in {golden}, not in {sample}") for file in self.only_in_golden)
        yield from ((file, f"not in {golden}") for file in self.not_in_golden)


def compare_files(
    sample: Mapping[str, Load],
    benchmark: Mapping[str, Load],
    golden: Mapping[str, Load] | None = None,
    settings: GoldenSettings = DEFAULTS,
    progress: Progress = SILENT,
) -> GoldenComparison:
    """Compare files that have the same name on every side; ``sample["relu.npy"]()`` loads the array.

    If a loader raises SgsdumpError, its row is not comparable. Raise ValuesError if no name is on every side.
    """
    both = sample.keys() & benchmark.keys()
    names = sorted(both if golden is None else both & golden.keys())
    if not names:
        counts = _counts(settings, sample, benchmark, golden)
        raise ValuesError(f"no file in common: {counts}. Check that the files belong to the same model")
    sides = [side for side in (sample, benchmark, golden) if side is not None]
    rows = (golden_row(name, name, [side[name] for side in sides], settings) for name in names)
    return _comparison(
        each(progress, rows, "compare", "tensor", len(names)),
        settings,
        tuple(sorted(sample.keys() - benchmark.keys())),
        tuple(sorted(benchmark.keys() - sample.keys())),
        None if golden is None else (tuple(sorted(golden.keys() - sample.keys())), tuple(sorted(both - golden.keys()))),
    )


def compare_golden(
    sample: Dump,
    benchmark: Dump,
    golden: Dump | None = None,
    settings: GoldenSettings = DEFAULTS,
    *,
    inputs: bool = False,
    progress: Progress = SILENT,
) -> GoldenComparison:
    """Compare dumps of any format. ``compare`` pairs the tensors; the file names are ``NAME.npy``.

    ``inputs`` and ``progress`` are as in ``compare``. Raise ValuesError if no tensor is on every side.
    """
    paired = align_names(sample, benchmark, inputs)
    joined: list[tuple[Record, ...]] = [pair.records for pair in paired.pairs]
    pair_notes = {id(pair.benchmark): pair.note for pair in paired.pairs}
    one_sided = None
    left_out = _expected(paired.only_in_benchmark)
    if golden is not None:
        partner = {id(pair.sample): pair.benchmark for pair in align_names(benchmark, golden, inputs).pairs}
        not_in_golden = _files(b for _, b in joined if id(b) not in partner)
        joined = [(a, b, partner[id(b)]) for a, b in joined if id(b) in partner]
        unpaired = align_names(sample, golden, inputs).only_in_benchmark
        fed = {record.name for record in sample.records if record.io == "in"}
        left_out |= _expected(unpaired) | frozenset(_files(u.record for u in unpaired if u.record.name in fed))
        only_in_golden = _files(u.record for u in unpaired)
        one_sided = only_in_golden, not_in_golden
    if not joined:
        counts = _counts(settings, sample, benchmark, golden)
        raise ValuesError(f"no tensor in common: {counts}. Check that the dumps belong to the same model")

    flow = known_sources((sample, benchmark), paired.pairs)
    flow = flow or nearest_sources(benchmark, {records[1].name for records in joined})
    places = {
        b.name: GoldenPlace(b.op_index, b.tensor.info.op_type or b.op_type, flow.get(b.name, ())) for _, b, *_ in joined
    }

    def row(records: tuple[Record, ...]) -> GoldenRow:
        name = records[1].name
        pairs = [Pair(record, records[-1], "") for record in records]
        as_stored = all(map(compared_as_stored, pairs))
        sides = [partial(_real, record, as_stored) for record in records]
        return golden_row(
            f"{name}.npy", name, sides, settings, pair_notes[id(records[1])], _known_layouts(pairs, as_stored)
        )

    joined.sort(key=lambda records: f"{records[1].name}.npy")
    comparison = _comparison(
        each(progress, map(row, joined), "compare", "layer", len(joined)),
        settings,
        _files(u.record for u in paired.only_in_sample),
        _files(u.record for u in paired.only_in_benchmark),
        one_sided,
    )
    return replace(comparison, left_out=left_out, places=places)


def _comparison(
    rows: Iterable[GoldenRow],
    settings: GoldenSettings,
    only_in_sample: tuple[str, ...],
    only_in_benchmark: tuple[str, ...],
    golden: tuple[tuple[str, ...], tuple[str, ...]] | None,
) -> GoldenComparison:
    """Return the comparison; ``golden``: files that only golden has, and files that it lacks; None without golden."""
    titles = settings.titles if golden is not None else (*settings.titles[:2], None)
    only, lacking = golden or ((), ())
    sides = only_in_sample, only_in_benchmark, only, lacking
    return GoldenComparison(tuple(rows), titles, settings.tag, settings.th1, settings.th2, *sides)


def _expected(unpaired: Iterable[Unpaired]) -> frozenset[str]:
    """Return the files that the other side cannot have."""
    return frozenset(_files(each.record for each in unpaired if each.expected))


def _counts(settings: GoldenSettings, *sides: Mapping | None) -> str:
    """Return how many names each side has: ``a has 3, b has 4``."""
    return ", ".join(f"{title} has {len(side)}" for title, side in zip(settings.titles, sides) if side is not None)


def _real(record: Record, as_stored: bool) -> np.ndarray:
    values = values_of(record.tensor if as_stored else record.tensor.logical())
    array = in_memory(values.array)
    return array if values.to_real is None else values.to_real(array)


def _known_layouts(pairs: Sequence[Pair], as_stored: bool) -> list[Layouts]:
    """Return each side's layout and the last side's; unknown if a device layout cannot be decoded.

    Loading the values reports such a layout.
    """
    try:
        return [layouts(pair, as_stored) for pair in pairs]
    except FileChanged:
        raise
    except SgsdumpError:
        return [(None, None)] * len(pairs)


def _files(records: Iterable[Record]) -> tuple[str, ...]:
    return tuple(sorted(f"{record.name}.npy" for record in records))


def golden_row(
    file: str,
    name: str,
    sides: Sequence[Load],
    settings: GoldenSettings,
    pair_note: str = "",
    known: Sequence[Layouts] = (),
) -> GoldenRow:
    """Return the row of two or three sides.

    The last side determines the shape; ``known`` has each side's layout and the layout of the last side.
    """
    tag, th1 = settings.tag, settings.th1
    try:
        stored = [load() for load in sides]
        fitted, notes = _fitted(stored, known or [(None, None)] * len(sides))
    except FileChanged:
        raise
    except SgsdumpError as error:
        return GoldenRow(file, name, tag, reason=str(error))
    arrays = [_computable(array) for array in fitted]
    nan_inf = not all(np.isfinite(array).all() for array in arrays)
    if stored[0].dtype != stored[1].dtype:
        notes.append(f"dtypes differ: sample {stored[0].dtype}, benchmark {stored[1].dtype}")
    note = "; ".join(filter(None, [pair_note, *notes]))
    are_floats = all(array.dtype.kind not in "iub" for array in stored)
    with np.errstate(over="ignore"):
        e, c = (array.astype(np.float32, copy=False) if are_floats else array for array in arrays[:2])
    difference = exact_difference(fitted[0], fitted[1])
    distance = diff2(e, c, difference)
    if len(arrays) == 2:
        close = bool(np.allclose(e, c, rtol=th1, atol=th1, equal_nan=True))
        if difference is not None:
            close = bool((difference <= th1 + th1 * np.abs(c)).all())
        return GoldenRow(file, name, tag, nan_inf, distance, close, note=note)
    sw, accepted = (diff3(arrays[i], arrays[2], th1, exact_difference(fitted[i], fitted[2])) for i in (0, 1))
    figures = sw[0], accepted[0], sw[1], accepted[1]
    return GoldenRow(file, name, tag, nan_inf, distance, None, *figures, note=note)


def _fitted(arrays: list[np.ndarray], known: Sequence[Layouts]) -> tuple[list[np.ndarray], list[str]]:
    """Return all arrays in the shape of the last array, with notes. Raise ValuesError if an array does not fit."""
    names = ("sample", "benchmark", "golden")[: len(arrays)]
    last, notes, fitted = arrays[-1], [], []
    for name, array, (layout, last_layout) in zip(names, arrays, known):
        matched = match_layouts(last, array, (last_layout, layout))
        if matched is not None:
            fitted.append(matched.b.reshape(last.shape))
            notes.extend([f"{name} transposed {layout} to {last_layout}"] if matched.turn else [])
            continue
        if array.shape == last.shape:
            fitted.append(array)
            continue
        try:
            view = match_shapes(last, array).b
        except ValuesError:
            shapes = ", ".join(f"{side} {array.shape}" for side, array in zip(names, arrays))
            raise ValuesError(f"shape mismatch: {shapes}") from None
        fitted.append(view.reshape(last.shape))
        notes.append(f"{name} reshaped from {list(array.shape)} to {list(last.shape)}")
    return fitted, notes


def _computable(array: np.ndarray) -> np.ndarray:
    """Return float16 and smaller floats as float32, integers and bool as float64, complex values as two values."""
    if array.dtype.kind == "c":
        return np.ascontiguousarray(array).view(array.real.dtype)
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def diff2(e: np.ndarray, b: np.ndarray, difference: np.ndarray | None = None) -> float:
    """Return sqrt(Σ(e-b)² / Σb²) of two arrays of equal shape; infinite if only b is all zeros, NaN if both are.

    difference  |e-b|, if it cannot be computed exactly from the arrays.
    """
    with np.errstate(all="ignore"):
        e, b = e.reshape(-1), b.reshape(-1)
        return math.sqrt(float(np.sum((e - b if difference is None else difference.reshape(-1)) ** 2) / np.sum(b**2)))


def diff3(e: np.ndarray, b: np.ndarray, th1: float, difference: np.ndarray | None = None) -> tuple[float, float]:
    """Return the maximum and the mean of diff3(e, b) of two arrays of equal shape; 0 and 0 for empty arrays.

    difference  |e-b|, if it cannot be computed exactly from the arrays.
    """
    if not e.size:
        return 0.0, 0.0
    with np.errstate(all="ignore"):
        error = np.abs(e - b) if difference is None else difference
        base = np.abs(b)
        error = np.where(base > np.float64(th1), error / (base + EPSILON), error)
        return float(error.max()), float(error.mean())


def exact_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Return |a-b| of 64-bit integers, rounded once; None for other types.

    Different 64-bit integers may be equal as float64.
    """
    if a.dtype != b.dtype or a.dtype.kind not in "iu" or a.dtype.itemsize != 8:
        return None
    # larger minus smaller is exact modulo 2**64
    u, v = a.astype(np.uint64), b.astype(np.uint64)
    return np.where(a >= b, u - v, v - u).astype(np.float64)
