"""How far an output that was computed again is from what the program itself got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sgsdump.tensors.dtypes import is_integer, is_number, name_of

# Beyond it the difference is not explained by the order of float32 sums.
LARGE = 1e-3


@dataclass(frozen=True)
class Agreement:
    """equal     bit for bit.
    max_abs   the largest difference of finite values; None where there is none to take.
    relative  that, by the largest absolute value of the program's.
    why       what cannot be compared, or which values are not finite on one side only; or "".
    """

    name: str
    equal: bool
    max_abs: float | None = None
    relative: float | None = None
    why: str = ""

    @property
    def is_large(self) -> bool:
        return not self.equal and (bool(self.why) or self.relative is None or self.relative > LARGE)

    def as_json(self) -> Mapping[str, Any]:
        return asdict(self)


def agreement(name: str, replayed: np.ndarray, program: np.ndarray) -> Agreement:
    """Of values of one shape; types of one size are taken for the replayed one (float8 comes as uint8 from run)."""
    if replayed.shape != program.shape:
        return Agreement(name, False, why=f"the program's has the shape {program.shape}, not {replayed.shape}")
    if (
        replayed.dtype != program.dtype
        and replayed.dtype.itemsize == program.dtype.itemsize
        and is_integer(program.dtype)
    ):
        program = program.view(replayed.dtype)
    if replayed.dtype != program.dtype:
        return Agreement(name, False, why=f"the program's is {name_of(program.dtype)}, not {name_of(replayed.dtype)}")
    if np.ascontiguousarray(replayed).tobytes() == np.ascontiguousarray(program).tobytes():
        return Agreement(name, True)
    if not is_number(replayed.dtype) or replayed.dtype.kind == "c":
        return Agreement(name, False, why=f"the {name_of(replayed.dtype)} values differ")
    one, other = (array.astype(np.float64) for array in (replayed, program))
    finite = np.isfinite(one) & np.isfinite(other)
    apart = np.count_nonzero(~finite & ~((one == other) | (np.isnan(one) & np.isnan(other))))
    with np.errstate(invalid="ignore"):
        most = float(np.where(finite, np.abs(one - other), 0.0).max(initial=0.0))
    scale = float(np.where(finite, np.abs(other), 0.0).max(initial=0.0))
    why = f"{apart} values are NaN or Inf on one side only" if apart else ""
    return Agreement(name, False, most, most / scale if scale else None if most else 0.0, why)
