"""A row of a comparison: one layer's metrics, and remarks on how it was compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sgsdump.comparison.details.details import Details
from sgsdump.comparison.metrics.base import Sums
from sgsdump.comparison.metrics.cos import cos
from sgsdump.comparison.metrics.mse import mse
from sgsdump.comparison.metrics.rmse import rmse
from sgsdump.comparison.pairing.alignment import Pair
from sgsdump.comparison.stored_integers import StoredIntegers
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.dumps.formats.sigmastar.record_header import word_of
from sgsdump.tensors.dtypes import name_of
from sgsdump.tensors.tensor import TensorInfo


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


@dataclass(frozen=True)
class Row:
    """One compared layer. name, io, slot, op_index, op_type and type_name are the benchmark record's.

    paired       how the pair was made: ``Pair.how``.
    mse cos rmse NaN and infinity where the formula gives them (all-zero or non-finite values), never replaced.
    *_nan *_inf  NaN and infinite values on either side; a row that has any never passes.
    sources      names of the nearest compared layers that feed this one.
    by_flow      the sources are operators that feed this one, not only the layer before it.
    module       the path of the module in the program's network that it stands in, "" where that is not known.
    origin       of an operator's input that no compared operator made, what it is, where that is known.
    rise         rmse less the highest rmse among the sources (0 at the network's input).
    misnamed     where only the name made the pair, the tensor that agrees where this one does not, or None; the
                 figures are those of the pair by name, and no threshold passes it.
    *_dtype      the stored element types; a pair whose types differ though neither is quantised has a dtype_note.
    *_minus_inf  the negative ones of the infinite values.
    odd_apart    where one side is NaN, +Inf or -Inf and the other is not the same.
    extra        further metrics that were asked for, by name.
    left_out     by name of such a metric, how many values it left out, where there are any.
    vendor       a vendor's metrics as it prints them, and what it says beside them.
    equal        both sides are empty, or hold the same values with -Inf among them, as masks do; such a row passes.
                 +Inf and NaN are faults even where they agree.
    statistics   where a side has statistics only, the relative error of each (see ``statistics_only.py``); mse, cos
                 and rmse are NaN then, and the limit on rmse applies to the largest.
    sums         what mse, cos and rmse are made of.
    integers     of two runs of a fixed model, how many integers differ (``stored_integers.py``); else None.
    runs         where the row is several runs' (``merge.py``), what tells them apart; else None.
    stage        what the SDK calls it, where one side is a stage of a Caffe blob (``Pair.stage``); else "".
    details      histograms and the like, where they were asked for (``details/``); else None.
    """

    name: str
    io: str
    slot: int
    op_index: int
    op_type: str
    type_name: str
    sample_name: str
    paired: str
    count: int
    mse: float
    cos: float
    rmse: float
    sample_nan: int
    sample_inf: int
    benchmark_nan: int
    benchmark_inf: int
    note: str = ""
    sources: tuple[str, ...] = ()
    by_flow: bool = False
    module: str = ""
    origin: str = ""
    rise: float = 0.0
    misnamed: Misnamed | None = None
    sample_dtype: str = ""
    benchmark_dtype: str = ""
    dtype_note: str = ""
    sample_minus_inf: int = 0
    benchmark_minus_inf: int = 0
    odd_apart: int = 0
    extra: Mapping[str, float] = field(default_factory=dict, hash=False)
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)
    vendor: Mapping[str, str] = field(default_factory=dict, hash=False)
    vendor_message: str = ""
    statistics: Mapping[str, float] = field(default_factory=dict, hash=False)
    equal: bool = False
    sums: Sums | None = field(default=None, repr=False)
    integers: StoredIntegers | None = None
    runs: OverRuns | None = None
    stage: str = ""
    details: Details | None = field(default=None, repr=False, compare=False)

    def with_rise(self, sources: tuple[str, ...], rise: float) -> Row:
        """The row with these; ``replace`` goes through all fields, which takes ten times as long."""
        row = object.__new__(Row)
        row.__dict__.update(self.__dict__, sources=sources, rise=rise)
        return row

    @property
    def names(self) -> tuple[str, ...]:
        """What the layer is called: the benchmark's name and, of a Caffe blob, its stage's."""
        return (self.name, self.stage) if self.stage else (self.name,)

    @property
    def finite(self) -> bool:
        """True when neither side holds NaN or infinite values."""
        return not (self.sample_nan or self.sample_inf or self.benchmark_nan or self.benchmark_inf)

    @property
    def error(self) -> float:
        """What rows are ranked by: the rmse, infinite for non-finite values, 0 for two tensors of zeros."""
        if self.equal:
            return 0.0
        if not self.finite:
            return float("inf")
        if self.statistics:
            return max(self.statistics.values())
        return 0.0 if self.mse == 0 else self.rmse

    def passes(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        return not self.misnamed and self.is_within(thresholds)

    def is_within(self, thresholds: Thresholds = DOCUMENTED) -> bool:
        """Whether the figures are within; those of another tensor of the same name may be, but do not pass."""
        if self.equal:
            return True
        thresholds = thresholds.of_layer(*self.names)
        if self.statistics:
            limit = DOCUMENTED.max_rmse if thresholds.max_rmse is None else thresholds.max_rmse
            return self.finite and self.error <= (limit or 0.0)
        return self.finite and thresholds.hold(self.cos, self.rmse, self.mse, self.extra)

    def verdict(self, thresholds: Thresholds = DOCUMENTED) -> str:
        """``fail`` past a threshold or with NaN or Inf on any side (but see ``equal``); else ``warn`` where
        there is a remark: types that differ, values left out, another layout, an ambiguous name, another tensor; else
        ``pass``."""
        if not self.is_within(thresholds):
            return "fail"
        return "warn" if self.dtype_note or self.left_out or self.note or self.misnamed else "pass"


@dataclass(frozen=True)
class Failed:
    """A pair that exists but cannot be compared, and the reason."""

    pair: Pair
    reason: str


def row_of(pair: Pair, sums: Sums, note: str) -> Row:
    """The row of a measured pair."""
    record = pair.benchmark
    infos = pair.sample.tensor.info, record.tensor.info
    dtypes = [name_of(info.dtype) for info in infos]
    differ = dtypes[0] != dtypes[1] and all(info.quant is None for info in infos)
    return Row(
        name=record.name,
        io=record.io,
        slot=record.slot,
        op_index=record.op_index,
        op_type=record.op_type,
        type_name=_type_name(record.tensor.info),
        sample_name=pair.sample.name,
        paired=pair.how,
        count=sums.count,
        mse=mse(sums),
        cos=cos(sums),
        rmse=rmse(sums),
        sample_nan=sums.sample_nan,
        sample_inf=sums.sample_inf,
        benchmark_nan=sums.benchmark_nan,
        benchmark_inf=sums.benchmark_inf,
        note=note,
        sample_dtype=dtypes[0],
        benchmark_dtype=dtypes[1],
        dtype_note=f"dtypes differ: sample {dtypes[0]}, benchmark {dtypes[1]}" if differ else "",
        sample_minus_inf=sums.sample_minus_inf,
        benchmark_minus_inf=sums.benchmark_minus_inf,
        odd_apart=sums.odd_apart,
        sums=sums,
        stage=pair.stage,
    )


def _type_name(info: TensorInfo) -> str:
    """The element type as the SDK's headers call it, of the quantised values where the stored ones are dequantised."""
    if info.quant is not None and info.quant.dtype is None:
        return info.quant.type_name or "unknown"
    dtype = info.dtype if info.quant is None or info.quant.dtype is None else info.quant.dtype
    return word_of(dtype) or dtype.name
