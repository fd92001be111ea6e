"""What a report is made of: ``Report`` and its parts, frozen records. ``document.render`` makes the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sgsdump.comparison.details import Details


@dataclass(frozen=True)
class Step:
    """What to do next: a sentence, and the text to copy for it ("" for none)."""

    text: str
    copy: str = ""


@dataclass(frozen=True)
class Layer:
    """One compared layer; numbers as in ``comparison.row.Row``, NaN and infinity among them.

    index          the operator's place in the net.
    sqnr           in dB.
    rise           rmse less the highest rmse among the sources.
    own_error      measured: the rmse with this layer's convolution alone quantised, and ``inherited`` that with all
                   others quantised; None where it was not measured.
    rises          the layer is among those where the error rises most (``Comparison.jumps``).
    verdict        pass, warn or fail.
    note           remarks on the comparison.
    sources        names of the nearest compared layers that feed this one.
    shape          None where it is not known.
    scale          of the quantised sample; None where there is none, several where there is one per channel.
    attributes     of the operator, as text by name.
    worst_picture  the picture with the largest error, "" for one picture; ``mean_rmse`` the mean over all pictures.
    """

    name: str
    op_type: str
    index: int
    mse: float
    cos: float
    rmse: float
    sqnr: float
    rise: float = 0.0
    own_error: float | None = None
    inherited: float | None = None
    rises: bool = False
    verdict: str = "pass"
    note: str = ""
    sources: tuple[str, ...] = ()
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    scale: float | tuple[float, ...] | None = None
    zero_point: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    worst_picture: str = ""
    mean_rmse: float | None = None
    details: Details | None = None


@dataclass(frozen=True)
class LeftOut:
    """A layer that was not compared, and why. ``side`` is where it stands: sample, benchmark or both; ``expected``: the
    other side cannot have it."""

    name: str
    reason: str
    side: str = ""
    op_type: str = ""
    expected: bool = False


@dataclass(frozen=True)
class Plan:
    """A plan of tune: ``rate`` is bytes of the weights over those with all at 16 bits, ``error`` the outputs'."""

    label: str
    rate: float
    error: float
    asked: float | None = None
    copy: str = ""


@dataclass(frozen=True)
class Tradeoff:
    """Tune's plans: ``tried`` holds (rate, error) of every one, ``plans`` those it tells of, ``taken`` the one to take.

    what  what the error is of, for the axis.
    """

    tried: tuple[tuple[float, float], ...]
    plans: tuple[Plan, ...]
    taken: Plan
    what: str = "error of the outputs"


@dataclass(frozen=True)
class Report:
    """The whole report.

    verdict      sentences, the first two of which say it all.
    assumptions  what had to be assumed; shown first.
    layers       in depth order.
    limits       thresholds by metric (``cos``, ``rmse``, ``mse``, ``sqnr``), for the lines in the chart.
    facts        (what, value) of the run: files, pictures, versions.
    """

    title: str
    verdict: tuple[str, ...]
    next_steps: tuple[Step, ...] = ()
    assumptions: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    tradeoff: Tradeoff | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    facts: Sequence[tuple[str, str]] = ()
