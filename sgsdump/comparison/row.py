"""Row of a comparison. Separate records hold the place, errors, counts, context and extras of the layer."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.details import Channels, Details
from sgsdump.comparison.metrics import NO_COUNTS, Counts, Sums, cos, mse, rmse
from sgsdump.comparison.stored_integers import StoredIntegers
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.formats.sigmastar.record_header import word_of
from sgsdump.tensors.dtypes import KNOWN, is_float, name_of
from sgsdump.tensors.tensor import TensorInfo

SURE = 1e-3  # RMSE below which two tensors are surely the same; float runtimes agree to 1e-5
LEAST = sys.float_info.min  # error of a difference of unknown size
EQUAL, DIFFER = "equal", "differ"
PRECISE = 1e-4  # smallest scale for which six decimals are precise enough
_LAST_DIGITS = 1e-12  # rounding of statistics, which are float64 or text
UNITS_OF_16_BITS, _UNITS = 4, 128
SAME = 1e-6  # relative error of two float64 runs of one formula: scalars may be passed as float32
COARSE = 10  # factor above the rounding that the other side or the type explains
T = TypeVar("T")


@dataclass(frozen=True)
class Misnamed:
    """Tensor whose values match one side of a pair better than the tensor of the same name; ``side`` is its dump."""

    side: str
    name: str
    op_index: int
    op_type: str
    cos: float
    rmse: float

    def __str__(self) -> str:
        return (
            f"sample and benchmark use this name for different tensors; the tensor with matching values is {self.found}"
        )

    @property
    def found(self) -> str:
        """The matching tensor: ``conv1_xx of the sample, the output of PRELU (COS 1.000000, RMSE 0.000001)``."""
        of = "" if self.side == "benchmark" else " of the sample"
        after = f", the output of {self.op_type}" if self.op_type and self.op_type != self.name else ""
        return f"{self.name}{of}{after} (COS {self.cos:f}, RMSE {self.rmse:f})"


@dataclass(frozen=True)
class OverRuns:
    """Layer compared in several runs.

    count                number of runs that contain the layer.
    worst                run with the largest error ("" if no run has an error); worst_rmse and worst_cos are its
                         metrics.
    mean_rmse, mean_cos  means over the runs. The metrics of the row itself are computed over the values of all runs.
    """

    count: int
    worst: str
    worst_rmse: float
    worst_cos: float
    mean_rmse: float
    mean_cos: float

    def __str__(self) -> str:
        runs = f"{self.count} runs" if self.count > 1 else "1 run"
        return (
            f"{runs}, worst in run {self.worst} (COS {self.worst_cos:f}, RMSE {self.worst_rmse:f})"
            if self.worst
            else runs
        )


@dataclass(frozen=True, slots=True)
class Place:
    """Tensor that a row describes; name, io, slot, op_index, op_type and type_name are the benchmark record's.

    paired   how the two tensors were paired: ``Pair.how``.
    stage    name in the SDK if one tensor is a stage of a Caffe blob (``Pair.stage``); else "".
    *_dtype  stored element types.
    source   source line that called the operator in the sample's program, or else in the benchmark's program; "" if
             unknown.
    """

    name: str
    io: str
    slot: int
    op_index: int
    op_type: str
    type_name: str
    sample_name: str
    paired: str
    stage: str = ""
    sample_dtype: str = ""
    benchmark_dtype: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Exact:
    """Relative errors of a tensor from recomputing both programs in float64 (``exact_differences.py``).

    difference         between the recomputed values of both programs.
    sample, benchmark  between the recorded and the recomputed values of one program: its rounding error.
    rounding           error that rounding to the element type of the programs explains.
    """

    difference: float
    sample: float
    benchmark: float
    rounding: float

    @property
    def differs(self) -> bool:
        """True if the programs compute different values up to this tensor."""
        return not self.difference <= SAME

    @property
    def is_coarser(self) -> bool:
        """True if the rounding error of one program is far above that of the other program and of its element type."""
        less, more = sorted((self.sample, self.benchmark))
        return not more <= COARSE * max(less, self.rounding)


@dataclass(frozen=True, slots=True)
class Errors:
    """Difference between both sides over ``count`` values.

    mse cos rmse results of the formulas; NaN or infinite for all-zero or non-finite values.
    sums         sums from which mse, cos and rmse are computed.
    equal        both tensors are empty, or hold the same values; the row then passes. Equal -Inf values are allowed,
                 because masks contain them. +Inf and NaN are faults even if both sides agree.
    statistics   relative errors of the statistics if a side has no values (see ``pair_result.py``). mse, cos and rmse
                 are then NaN, and the limit on rmse applies to the largest of these errors.
    checksums    EQUAL or DIFFER if both sides have statistics with a checksum of the same kind.
    exact        errors of both programs recomputed in float64, or None.
    """

    count: int
    mse: float
    cos: float
    rmse: float
    equal: bool = False
    statistics: Mapping[str, float] = field(default_factory=dict, hash=False)
    sums: Sums | None = field(default=None, repr=False)
    checksums: str = ""
    exact: Exact | None = None

    @property
    def hold_equal(self) -> bool:
        """True if no value differs (Σ|a-b| is 0); squares of differences below 1e-162 underflow to 0."""
        return (self.mse if self.sums is None else self.sums.d1) == 0


@dataclass(frozen=True, slots=True)
class Context:
    """Relations of a row to the other rows of its network, and remarks on the comparison.

    dtype_note   the element types differ although neither side is quantised.
    sources      names of the nearest compared layers that feed this layer.
    by_flow      True if the sources feed this layer; False if the source is only the layer before it in the dump.
    rise         rmse minus the highest rmse among the sources (0 at the network's input).
    module       path of the layer's module in the program's network; "" if unknown.
    origin       origin of an operator input that no compared operator produced, if known.
    misnamed     tensor of another name that matches better, or None. The metrics compare the two tensors of the same
                 name, and the row never passes.
    retried      True if the layouts differ and only the values showed this.
    rearranged   True if both sides hold the same values in a different order.
    step         scale of the quantised sample if the benchmark is not quantised; else 0.
    cancelled    True if both sides hold only the rounding error of a gradient that is zero in theory.
    """

    note: str = ""
    dtype_note: str = ""
    sources: tuple[str, ...] = ()
    by_flow: bool = False
    rise: float = 0.0
    module: str = ""
    origin: str = ""
    misnamed: Misnamed | None = None
    retried: bool = False
    step: float = 0.0
    rearranged: bool = False
    cancelled: bool = False

    def with_rise(self, sources: tuple[str, ...], rise: float) -> Context:
        """Return a copy with these values; ``dataclasses.replace`` is several times slower."""
        return Context(
            self.note,
            self.dtype_note,
            sources,
            self.by_flow,
            rise,
            self.module,
            self.origin,
            self.misnamed,
            self.retried,
            self.step,
            self.rearranged,
            self.cancelled,
        )


@dataclass(frozen=True, slots=True)
class Extras:
    """Optional figures of a row.

    extra        additional metrics on request, by name.
    left_out     number of values that an additional metric skipped, by metric.
    vendor       metrics of a vendor tool as the tool prints them; ``vendor_message`` is the remark of the tool.
    integers     counts of differing integers between two runs of a fixed model (``stored_integers.py``), or None.
    indices      counts of differing indices, classes or mask values (integers that are not quantised values), or None.
    channels     error of each channel if the layer has channels and differs, or None.
    runs         differences between runs if the row covers several runs (``merge.py``), or None.
    details      histograms and other data for charts (``details.py``), or None.
    """

    extra: Mapping[str, float] = field(default_factory=dict, hash=False)
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)
    vendor: Mapping[str, str] = field(default_factory=dict, hash=False)
    vendor_message: str = ""
    integers: StoredIntegers | None = None
    indices: StoredIntegers | None = None
    channels: Channels | None = None
    runs: OverRuns | None = None
    details: Details | None = field(default=None, repr=False, compare=False)


NO_EXTRAS = Extras()
_RECORDS = {"place": Place, "errors": Errors, "counts": Counts, "context": Context, "extras": Extras}
_RECORD_OF = {fact.name: record for record, kind in _RECORDS.items() for fact in fields(kind)}
# Fields of a row in the order of the result files, without sums and details.
FACTS = (
    *"name io slot op_index op_type type_name sample_name paired count mse cos rmse".split(),
    *"sample_nan sample_inf benchmark_nan benchmark_inf note sources by_flow module origin rise misnamed".split(),
    *"sample_dtype benchmark_dtype dtype_note sample_minus_inf benchmark_minus_inf odd_apart".split(),
    *"extra left_out vendor vendor_message statistics equal checksums integers indices channels".split(),
    *"step rearranged retried runs stage cancelled source exact".split(),
)


def _fact(read: Callable[[Row], T]) -> T:
    """Return a read-only property with the type of its value."""
    return property(read)  # type: ignore[return-value]


@dataclass(frozen=True)
class Row:
    """Compared layer. The fields of its five records are also attributes of the row (``row.name``, ``row.rmse`` …)."""

    place: Place
    errors: Errors
    counts: Counts = NO_COUNTS
    context: Context = field(default_factory=Context)
    extras: Extras = NO_EXTRAS

    name = _fact(lambda row: row.place.name)
    io = _fact(lambda row: row.place.io)
    slot = _fact(lambda row: row.place.slot)
    op_index = _fact(lambda row: row.place.op_index)
    op_type = _fact(lambda row: row.place.op_type)
    type_name = _fact(lambda row: row.place.type_name)
    sample_name = _fact(lambda row: row.place.sample_name)
    paired = _fact(lambda row: row.place.paired)
    stage = _fact(lambda row: row.place.stage)
    sample_dtype = _fact(lambda row: row.place.sample_dtype)
    benchmark_dtype = _fact(lambda row: row.place.benchmark_dtype)
    source = _fact(lambda row: row.place.source)
    count = _fact(lambda row: row.errors.count)
    mse = _fact(lambda row: row.errors.mse)
    cos = _fact(lambda row: row.errors.cos)
    rmse = _fact(lambda row: row.errors.rmse)
    equal = _fact(lambda row: row.errors.equal)
    checksums = _fact(lambda row: row.errors.checksums)
    statistics = _fact(lambda row: row.errors.statistics)
    sums = _fact(lambda row: row.errors.sums)
    sample_nan = _fact(lambda row: row.counts.sample_nan)
    sample_inf = _fact(lambda row: row.counts.sample_inf)
    benchmark_nan = _fact(lambda row: row.counts.benchmark_nan)
    benchmark_inf = _fact(lambda row: row.counts.benchmark_inf)
    sample_minus_inf = _fact(lambda row: row.counts.sample_minus_inf)
    benchmark_minus_inf = _fact(lambda row: row.counts.benchmark_minus_inf)
    odd_apart = _fact(lambda row: row.counts.odd_apart)
    note = _fact(lambda row: row.context.note)
    dtype_note = _fact(lambda row: row.context.dtype_note)
    sources = _fact(lambda row: row.context.sources)
    by_flow = _fact(lambda row: row.context.by_flow)
    rise = _fact(lambda row: row.context.rise)
    module = _fact(lambda row: row.context.module)
    origin = _fact(lambda row: row.context.origin)
    misnamed = _fact(lambda row: row.context.misnamed)
    retried = _fact(lambda row: row.context.retried)
    cancelled = _fact(lambda row: row.context.cancelled)
    exact = _fact(lambda row: row.errors.exact)
    extra = _fact(lambda row: row.extras.extra)
    left_out = _fact(lambda row: row.extras.left_out)
    vendor = _fact(lambda row: row.extras.vendor)
    vendor_message = _fact(lambda row: row.extras.vendor_message)
    integers = _fact(lambda row: row.extras.integers)
    runs = _fact(lambda row: row.extras.runs)
    indices = _fact(lambda row: row.extras.indices)
    channels = _fact(lambda row: row.extras.channels)
    rearranged = _fact(lambda row: row.context.rearranged)
    step = _fact(lambda row: row.context.step)
    details = _fact(lambda row: row.extras.details)

    @classmethod
    def of(cls, **facts: Any) -> Row:
        """Return a row with these fields, given by name."""
        return cls(**{name: _RECORDS[name](**of_record) for name, of_record in _by_record(facts).items()})

    def replaced(self, **facts: Any) -> Row:
        """Return a copy with new values for these fields."""
        return replace(
            self, **{name: replace(getattr(self, name), **changed) for name, changed in _by_record(facts).items()}
        )

    def with_rise(self, sources: tuple[str, ...], rise: float) -> Row:
        """Return a copy with these values; ``replaced`` is several times slower."""
        return Row(self.place, self.errors, self.counts, self.context.with_rise(sources, rise), self.extras)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layer: the name in the benchmark and, for a Caffe blob, the name of the stage."""
        return (self.name, self.stage) if self.stage else (self.name,)

    @property
    def is_resolution(self) -> bool:
        """True if the error is at most half a quantisation step of the sample, which is the resolution of its type."""
        sums, step = self.errors.sums, self.context.step
        return bool(step and sums and sums.d1 and sums.dd / sums.count <= (step / 2) ** 2) and self.finite

    @property
    def is_by_statistics(self) -> bool:
        """True if only statistics were compared, because values and checksums are missing."""
        return bool(self.statistics) and not self.checksums

    @property
    def finite(self) -> bool:
        """True if neither side holds NaN or infinite values."""
        return self.counts.are_none

    @property
    def error(self) -> float:
        """Error that ranks the rows: the RMSE, infinite for NaN and Inf, 0 if both tensors are all zeros."""
        errors = self.errors
        if errors.equal:
            return 0.0
        if not self.counts.are_none:
            return float("inf")
        if errors.checksums == EQUAL:
            return 0.0
        if errors.checksums or errors.statistics:
            # equal statistics do not show by how much the values differ
            return max(errors.statistics.values(), default=math.inf) or (LEAST if errors.checksums else 0.0)
        if self.extras.indices is not None:
            return self.extras.indices.share
        return 0.0 if errors.hold_equal else errors.rmse

    def passes(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        return not self.misnamed and self.is_within(thresholds)

    def is_within(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        """Return whether the metrics are within the limits; a misnamed row may be within them but never passes."""
        if self.equal:
            return True
        thresholds = thresholds.of_layer(*self.names)
        if self.statistics or self.checksums or self.indices is not None:
            limit = DOCUMENTED.max_rmse if thresholds.max_rmse is None else thresholds.max_rmse
            return self.finite and self.error <= (limit or 0.0)
        if self.channels is not None and thresholds.past_channel(self.channels.worst_rmse):
            return False
        if self.is_resolution:
            return True
        return self.finite and thresholds.hold(self.cos, self.rmse, self.mse, self.extra)

    def verdict(self, thresholds: Thresholds = DOCUMENTED) -> str:
        """Return ``fail``, ``warn`` or ``pass``.

        ``fail``: a limit is exceeded, or a side holds NaN or Inf (except for ``equal`` rows). ``warn``: there is a
        remark, such as different types, values left out, another layout, an ambiguous name or another tensor.
        """
        if not self.is_within(thresholds):
            return "fail"
        has_lost = self.channels is not None and self.channels.lost
        return "warn" if self.dtype_note or self.left_out or self.note or self.misnamed or has_lost else "pass"


@dataclass(frozen=True)
class Failed:
    """Pair of tensors that cannot be compared, with the reason.

    unlike   how the quantisation of the two sides differs, or "".
    damaged  the values of a side exist but cannot be read.
    """

    pair: Pair
    reason: str
    unlike: str = ""
    damaged: bool = False


def is_suspicious(result: Row | Failed) -> bool:
    """Return whether the two sides may be different tensors."""
    return isinstance(result, Failed) or (result.error > SURE and result.counts.are_none)


def row_of(pair: Pair, sums: Sums, note: str, extras: Extras = NO_EXTRAS, equal: bool = False) -> Row:
    """Return the row of a measured pair."""
    record = pair.benchmark
    sample, benchmark = pair.sample.tensor.info, record.tensor.info
    dtypes = name_of(sample.dtype), name_of(benchmark.dtype)
    differ = dtypes[0] != dtypes[1] and sample.quant is None and benchmark.quant is None
    return Row(
        Place(
            benchmark.name,
            record.io,
            record.slot,
            record.op_index,
            record.op_type,
            _type_name(benchmark),
            sample.name,
            pair.how,
            pair.stage,
            *dtypes,
        ),
        Errors(sums.count, mse(sums), cos(sums), rmse(sums), equal, sums=sums),
        sums.odd,
        Context(
            note,
            f"dtypes differ: sample {dtypes[0]}, benchmark {dtypes[1]}" if differ else "",
            step=step_of(pair),
        ),
        extras,
    )


def step_of(pair: Pair) -> float:
    """Return the scale of the quantised sample if the benchmark is not quantised, else 0.

    A scale that is not known precisely enough counts as 0.
    """
    quant = pair.sample.tensor.info.quant
    if quant is None or pair.benchmark.tensor.info.quant is not None or np.ndim(quant.scale) or quant.dtype is None:
        return 0.0
    scale = float(quant.scale)
    return scale if math.isfinite(scale) and (quant.exact or scale >= PRECISE) else 0.0


def _by_record(facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Group the fields by their record. Raises KeyError for an unknown field."""
    records: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in facts.items():
        records[_RECORD_OF[name]][name] = value
    return records


def _type_name(info: TensorInfo) -> str:
    """Return the element type as in the SDK's headers; for dequantised values, the type before dequantisation."""
    if info.quant is not None and info.quant.dtype is None:
        return info.quant.type_name or "unknown"
    dtype = info.dtype if info.quant is None or info.quant.dtype is None else info.quant.dtype
    return word_of(dtype) or dtype.name


def place_by_error(row: Row) -> tuple[float, float]:
    """Return the sort key that ranks rows: largest error first, then lowest COS."""
    return -row.error, -math.inf if math.isnan(row.cos) else row.cos


def differs(row: Row) -> bool:
    """Return whether the sides differ; NaN and Inf at the same places count as equal."""
    return bool(row.error and (row.finite or row.odd_apart))


def is_rounding(row: Row) -> bool:
    """Return whether rounding explains the difference between the two sides.

    For 16-bit types, the limit is a few units in the last place. For wider types, the limit is the loss of two decimal
    digits, because sums may be added in another order. The error after cancellation counts as rounding. If both
    programs were recomputed in float64, the recomputed values decide.
    Of statistics, the narrower type of both sides sets the limit: a conversion between the types cannot be seen.
    """
    if row.cancelled:
        return True
    if row.exact is not None and row.finite:
        return not (row.exact.differs or row.exact.is_coarser)
    if row.statistics and row.error <= _LAST_DIGITS:
        return not row.checksums or row.error > LEAST
    bound = rounding_bound(row) if row.statistics else bound_of(row.benchmark_dtype)
    return row.finite and bool(bound) and row.error <= bound


def rounding_bound(row: Row) -> float:
    """Return the largest error that rounding to the narrower of the two float types explains; 0 for integers."""
    return max(bound_of(row.sample_dtype), bound_of(row.benchmark_dtype))


def bound_of(name: str) -> float:
    """Return the relative error that rounding to an element type explains; 0 for types that are not floats."""
    dtype = KNOWN.get(name)
    if dtype is None or not is_float(dtype):
        return 0.0
    units = UNITS_OF_16_BITS if dtype.itemsize <= 2 else _UNITS
    return units * float(ml_dtypes.finfo(dtype).eps)


def is_narrow(name: str) -> bool:
    """Return whether an element type is a float type narrower than float32."""
    dtype = KNOWN.get(name)
    return dtype is not None and is_float(dtype) and dtype.itemsize < 4
