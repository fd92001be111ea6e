"""Comparison of replayed outputs with the program's own outputs.

If they differ, the model runs once more with the program's session options, which shows whether the options explain the
difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sgsdump.capture.programs.captured_models import CapturedModel, CapturedRun, Value
from sgsdump.errors import InputError, ModelError
from sgsdump.executors.runner import Layer
from sgsdump.tensors.dtypes import is_integer, is_number, name_of

# Largest relative difference that the order of float32 sums can explain.
LARGE = 1e-3


@dataclass(frozen=True)
class Agreement:
    """Comparison of one output.

    equal     bit-identical.
    max_abs   largest difference of finite values; None if there are none.
    relative  max_abs divided by the largest absolute value of the program's output.
    why       reason why values cannot be compared, or which are finite on one side only; "".
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
    """Compare values of one shape; types of equal size count as the replayed type (run returns float8 as uint8)."""
    if replayed.shape != program.shape:
        return Agreement(
            name, False, why=f"the program's output has shape {program.shape}, the model's {replayed.shape}"
        )
    if (
        replayed.dtype != program.dtype
        and replayed.dtype.itemsize == program.dtype.itemsize
        and is_integer(program.dtype)
    ):
        program = program.view(replayed.dtype)
    if replayed.dtype != program.dtype:
        return Agreement(
            name,
            False,
            why=f"the program's output has type {name_of(program.dtype)}, the model's {name_of(replayed.dtype)}",
        )
    if np.ascontiguousarray(replayed).tobytes() == np.ascontiguousarray(program).tobytes():
        return Agreement(name, True)
    if not is_number(replayed.dtype) or replayed.dtype.kind == "c":
        return Agreement(name, False, why=f"the {name_of(replayed.dtype)} values differ")
    computed, expected = (array.astype(np.float64) for array in (replayed, program))
    finite = np.isfinite(computed) & np.isfinite(expected)
    unmatched = np.count_nonzero(~finite & ~((computed == expected) | (np.isnan(computed) & np.isnan(expected))))
    with np.errstate(invalid="ignore"):
        most = float(np.where(finite, np.abs(computed - expected), 0.0).max(initial=0.0))
    scale = float(np.where(finite, np.abs(expected), 0.0).max(initial=0.0))
    why = f"{unmatched} values are NaN or Inf on one side only" if unmatched else ""
    return Agreement(name, False, most, most / scale if scale else None if most else 0.0, why)


def compared(layers: Iterator[Layer], program: Mapping[str, Value], agreements: list[Agreement]) -> Iterator[Layer]:
    """Yield the layers, and append an Agreement for each output that the program kept."""
    for layer in layers:
        value = program.get(layer.name)
        if value is not None and value.file is not None:
            agreements.append(agreement(layer.name, layer.array, value.array()))
        yield layer


class Differences:
    """Differences of all models; ``agrees`` is True while rounding explains every difference from the program."""

    def __init__(self) -> None:
        self.agrees = True
        self._unequal: defaultdict[str, list[Agreement]] = defaultdict(list)
        self._reasons: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield a sentence for each model whose outputs differ from the program's."""
        for model, outputs in self._unequal.items():
            worst = _worst(outputs)
            yield (
                f"{model}: the recomputed outputs differ from the program's outputs. The largest "
                f"difference is in output {worst.name}: {_how(worst)}{self._reasons[model]}"
            )

    def add(
        self,
        captured: CapturedModel,
        feed: Mapping[str, np.ndarray],
        run: CapturedRun,
        agreements: Sequence[Agreement],
    ) -> list[str]:
        """Record a run; return a list with a sentence if rounding does not explain a difference.

        At a model's first difference, the model runs once more with the program's options.
        """
        unequal = [output for output in agreements if not output.equal]
        if not unequal:
            return []
        model = f"{captured.name} of process {captured.pid}"
        if model not in self._reasons:
            self._reasons[model] = _reason(captured, feed, run)
        self._unequal[model] += unequal
        if not any(output.is_large for output in unequal):
            return []
        self.agrees = False
        worst = _worst(unequal)
        return [f"output {worst.name} differs from the program's: {_how(worst)}{self._reasons[model]}"]


def _worst(outputs: Sequence[Agreement]) -> Agreement:
    return max(outputs, key=lambda output: (bool(output.why), output.relative or 0.0))


def _how(output: Agreement) -> str:
    return output.why or f"by at most {output.max_abs:.3g}, {output.relative or 0:.3g} of the largest value"


def _reason(captured: CapturedModel, feed: Mapping[str, np.ndarray], run: CapturedRun) -> str:
    """Return whether the model reproduces the program's outputs with the program's options; "" if it cannot run."""
    from sgsdump.executors.onnx_runtime.program_session import ProgramSession

    assert captured.file is not None
    kept = [value for value in run.outputs or () if value.file is not None]
    try:
        again = ProgramSession(captured.file, captured.options).run(feed, [value.name for value in kept])
        same = all(agreement(v.name, again[v.name], v.array()).equal for v in kept if v.name in again)
    except (ModelError, InputError):
        return ""
    level = captured.options.get("level", "")
    if same:
        return f"; with the program's session options ({level}), the model reproduces the program's outputs"
    return f"; with the program's session options ({level}), the model does not reproduce the program's outputs either"
