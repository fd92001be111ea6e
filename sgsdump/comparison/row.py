"""A row of a comparison: one layer's place, errors, counts, context and extras, each a record of its own."""

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

SURE = 1e-3  # an RMSE that no two different tensors have; other float runtimes agree to 1e-5
LEAST = sys.float_info.min  # what is known of an error that is not 0
EQUAL, DIFFER = "equal", "differ"
PRECISE = 1e-4  # a scale from which six decimals are precise enough
_LAST_DIGITS = 1e-12  # of statistics, which are float64 or text
UNITS_OF_16_BITS, _UNITS = 4, 128
SAME = 1e-6  # relative error of float64 values of one formula: scalars may be handed on as float32
COARSE = 10  # times the rounding that the other side or the type explains
T = TypeVar("T")


@dataclass(frozen=True)
class Misnamed:
    """The tensor that one side of a pair really agrees with, and how well; ``side`` is the dump that holds it."""

    side: str
    name: str
    op_index: int
    op_type: str
    cos: float
    rmse: float

    def __str__(self) -> str:
        return f"same name, another tensor: matches {self.found}"

    @property
    def found(self) -> str:
        """``conv1_xx of the sample after PRELU (COS 1.000000, RMSE 0.000001)``"""
        of = "" if self.side == "benchmark" else " of the sample"
        after = f" after {self.op_type}" if self.op_type and self.op_type != self.name else ""
        return f"{self.name}{of}{after} (COS {self.cos:f}, RMSE {self.rmse:f})"


@dataclass(frozen=True)
class OverRuns:
    """A layer in several runs: in how many it was compared, in which one its error is largest ("": it has none), and
    means over them.

    mean_rmse, mean_cos  the means of each run's; the row's own are those of all runs' values laid end to end.
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
    """Which tensor a row is of. name, io, slot, op_index, op_type and type_name are the benchmark record's.

    paired   how the pair was made: ``Pair.how``.
    stage    what the SDK calls it, where one side is a stage of a Caffe blob (``Pair.stage``); else "".
    *_dtype  the stored element types.
    source   the line of the sample's program, else of the benchmark's, that called the operator; "" where unknown.
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
    """What both programs compute again in float64 says of a tensor (``exact_differences.py``); relative errors.

    difference  of the two sides' exact values.
    sample      of the sample's recorded values to its own exact ones: the rounding of its run; ``benchmark`` likewise.
    rounding    what rounding to the type that the programs compute in explains.
    """

    difference: float
    sample: float
    benchmark: float
    rounding: float

    @property
    def differs(self) -> bool:
        """Whether the programs compute different things up to here."""
        return not self.difference <= SAME

    @property
    def is_coarser(self) -> bool:
        """Whether one side's rounding is far more than the other's, and than that of its type."""
        less, more = sorted((self.sample, self.benchmark))
        return not more <= COARSE * max(less, self.rounding)


@dataclass(frozen=True, slots=True)
class Errors:
    """How far the two sides differ, over ``count`` values.

    mse cos rmse NaN and infinity where the formula gives them (all-zero or non-finite values), never replaced.
    sums         what mse, cos and rmse are made of.
    equal        both sides are empty, or hold the same values with -Inf among them, as masks do; such a row passes.
                 +Inf and NaN are faults even where they agree.
    statistics   where a side has statistics only, the relative error of each (see ``statistics_only.py``); mse, cos
                 and rmse are NaN then, and the limit on rmse applies to the largest.
    checksums    where both sides have one of a kind beside their statistics, whether they are EQUAL or DIFFER.
    exact        both programs computed again in float64, where that was done; else None.
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
        """Whether no value differs: Σ|a-b| is 0. The squares of differences below 1e-162 are 0 too."""
        return (self.mse if self.sums is None else self.sums.d1) == 0


@dataclass(frozen=True, slots=True)
class Context:
    """A row among the others of its network, and remarks on how it was compared.

    dtype_note   the types differ though neither side is quantised.
    sources      names of the nearest compared layers that feed this one.
    by_flow      the sources are operators that feed this one, not only the layer before it.
    rise         rmse less the highest rmse among the sources (0 at the network's input).
    module       the path of its module in the program's network, "" where that is not known.
    origin       of an operator's input that no compared operator made, what it is, where that is known.
    misnamed     where only the name made the pair, the tensor that agrees where this one does not, or None; the
                 figures are those of the pair by name, and no threshold passes it.
    retried      only the values showed that the layouts differ.
    rearranged   both sides hold the same values, in another order.
    step         the scale of the quantised sample, where the benchmark has values of its own; 0 where there is none.
    cancelled    both sides hold what rounding left of a gradient that is zero in theory.
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
        """The same with these; ``dataclasses.replace`` takes several times as long."""
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
    """Figures that were asked for, or that some comparisons only have.

    extra        further metrics that were asked for, by name.
    left_out     by name of such a metric, how many values it left out, where there are any.
    vendor       a vendor's metrics as it prints them, and what it says beside them.
    integers     of two runs of a fixed model, how many integers differ (``stored_integers.py``); else None.
    indices      of whole numbers that mean themselves (indices, classes, masks), how many differ; else None.
    channels     where the layer has channels and differs, how these do; else None.
    runs         where the row is several runs' (``merge.py``), what tells them apart; else None.
    details      histograms and the like (``details.py``); else None.
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
# The facts of a row in the order in which files list them, but for its sums and details.
FACTS = (
    *"name io slot op_index op_type type_name sample_name paired count mse cos rmse".split(),
    *"sample_nan sample_inf benchmark_nan benchmark_inf note sources by_flow module origin rise misnamed".split(),
    *"sample_dtype benchmark_dtype dtype_note sample_minus_inf benchmark_minus_inf odd_apart".split(),
    *"extra left_out vendor vendor_message statistics equal checksums integers indices channels".split(),
    *"step rearranged retried runs stage cancelled source exact".split(),
)


def _fact(read: Callable[[Row], T]) -> T:
    """A read-only property, of the type of what it reads."""
    return property(read)  # type: ignore[return-value]


@dataclass(frozen=True)
class Row:
    """One compared layer: five records, whose facts are attributes of the row too (``row.name``, ``row.rmse`` …)."""

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
        """A row of these facts, by their names."""
        return cls(**{name: _RECORDS[name](**of_record) for name, of_record in _by_record(facts).items()})

    def replaced(self, **facts: Any) -> Row:
        """The row with other values for these facts, by their names."""
        return replace(
            self, **{name: replace(getattr(self, name), **changed) for name, changed in _by_record(facts).items()}
        )

    def with_rise(self, sources: tuple[str, ...], rise: float) -> Row:
        """The row with these; ``replaced`` takes several times as long."""
        return Row(self.place, self.errors, self.counts, self.context.with_rise(sources, rise), self.extras)

    @property
    def names(self) -> tuple[str, ...]:
        """The layer's names: the benchmark's and, of a Caffe blob, its stage's."""
        return (self.name, self.stage) if self.stage else (self.name,)

    @property
    def is_resolution(self) -> bool:
        """Whether the error is within half a step of the quantised sample, which cannot tell such values apart."""
        sums, step = self.errors.sums, self.context.step
        return bool(step and sums and sums.d1 and sums.dd / sums.count <= (step / 2) ** 2) and self.finite

    @property
    def is_by_statistics(self) -> bool:
        """Whether statistics of the values were compared, for want of the values and of checksums."""
        return bool(self.statistics) and not self.checksums

    @property
    def finite(self) -> bool:
        """True when neither side holds NaN or infinite values."""
        return self.counts.are_none

    @property
    def error(self) -> float:
        """The figure that ranks rows: the rmse, infinite for non-finite values, 0 for two tensors of zeros."""
        errors = self.errors
        if errors.equal:
            return 0.0
        if not self.counts.are_none:
            return float("inf")
        if errors.checksums == EQUAL:
            return 0.0
        if errors.checksums or errors.statistics:
            # where the statistics are equal, by how much the values differ cannot be told
            return max(errors.statistics.values(), default=math.inf) or (LEAST if errors.checksums else 0.0)
        if self.extras.indices is not None:
            return self.extras.indices.share
        return 0.0 if errors.hold_equal else errors.rmse

    def passes(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        return not self.misnamed and self.is_within(thresholds)

    def is_within(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        """Whether the figures are within; those of another tensor of the same name may be, but do not pass."""
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
        """``fail`` past a threshold or with NaN or Inf on any side (but see ``equal``); else ``warn`` where
        there is a remark: types that differ, values left out, another layout, an ambiguous name, another tensor; else
        ``pass``."""
        if not self.is_within(thresholds):
            return "fail"
        has_lost = self.channels is not None and self.channels.lost
        return "warn" if self.dtype_note or self.left_out or self.note or self.misnamed or has_lost else "pass"


@dataclass(frozen=True)
class Failed:
    """A pair that exists but cannot be compared, and the reason; ``unlike``: how its sides are quantised, where that is
    not alike; ``damaged``: the values of a side are there but cannot be read."""

    pair: Pair
    reason: str
    unlike: str = ""
    damaged: bool = False


def is_suspicious(result: Row | Failed) -> bool:
    """Whether a pair may be of different tensors."""
    return isinstance(result, Failed) or (result.error > SURE and result.counts.are_none)


def row_of(pair: Pair, sums: Sums, note: str, extras: Extras = NO_EXTRAS, equal: bool = False) -> Row:
    """The row of a measured pair."""
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
    """The scale of the quantised sample of a pair, where the benchmark has values of its own, and it is one that is
    known well enough; else 0."""
    quant = pair.sample.tensor.info.quant
    if quant is None or pair.benchmark.tensor.info.quant is not None or np.ndim(quant.scale) or quant.dtype is None:
        return 0.0
    scale = float(quant.scale)
    return scale if math.isfinite(scale) and (quant.exact or scale >= PRECISE) else 0.0


def _by_record(facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By the name of the record, its facts. Raises KeyError for a fact that no record has."""
    records: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in facts.items():
        records[_RECORD_OF[name]][name] = value
    return records


def _type_name(info: TensorInfo) -> str:
    """The element type as the SDK's headers call it, of the quantised values where the stored ones are dequantised."""
    if info.quant is not None and info.quant.dtype is None:
        return info.quant.type_name or "unknown"
    dtype = info.dtype if info.quant is None or info.quant.dtype is None else info.quant.dtype
    return word_of(dtype) or dtype.name


def place_by_error(row: Row) -> tuple[float, float]:
    """Return what ranks rows: the largest error first; of equal errors the lower COS."""
    return -row.error, -math.inf if math.isnan(row.cos) else row.cos


def differs(row: Row) -> bool:
    """Whether both sides are not equal; NaN and Inf in the same places are."""
    return bool(row.error and (row.finite or row.odd_apart))


def is_rounding(row: Row) -> bool:
    """Whether the two sides differ by no more than two ways of computing the same: a few units in the last place of a
    16-bit type, two decimal digits of a wider one, whose sums were added up in another order. What cancellation
    leaves is rounding. Where both programs were computed again in float64, their exact values tell."""
    if row.cancelled:
        return True
    if row.exact is not None and row.finite:
        return not (row.exact.differs or row.exact.is_coarser)
    if row.statistics and row.error <= _LAST_DIGITS:
        return not row.checksums or row.error > LEAST
    bound = bound_of(row.benchmark_dtype)
    return row.finite and bool(bound) and row.error <= bound


def rounding_bound(row: Row) -> float:
    """Return the largest error that rounding explains: that of the narrower of the two float types, 0 for integers."""
    return max(bound_of(row.sample_dtype), bound_of(row.benchmark_dtype))


def bound_of(name: str) -> float:
    """Return the relative error that rounding to an element type explains; 0 for what is no float."""
    dtype = KNOWN.get(name)
    if dtype is None or not is_float(dtype):
        return 0.0
    units = UNITS_OF_16_BITS if dtype.itemsize <= 2 else _UNITS
    return units * float(ml_dtypes.finfo(dtype).eps)


def is_narrow(name: str) -> bool:
    """Whether an element type is one of floats narrower than float32."""
    dtype = KNOWN.get(name)
    return dtype is not None and is_float(dtype) and dtype.itemsize < 4
