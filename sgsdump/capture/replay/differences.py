"""Replayed outputs that are not the program's own: how far they are from it, and whether its own way of running the
model explains that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.capture.replay.agreement import Agreement, agreement
from sgsdump.capture.replay.captured import CapturedModel, CapturedRun, Value
from sgsdump.errors import InputError, ModelError

if TYPE_CHECKING:
    from sgsdump.executors.runner import Layer


def compared(layers: Iterator[Layer], program: Mapping[str, Value], agreements: list[Agreement]) -> Iterator[Layer]:
    """The layers as they come; ``agreements`` gets one for each that the program kept as an output."""
    for layer in layers:
        value = program.get(layer.name)
        if value is not None and value.file is not None:
            agreements.append(agreement(layer.name, layer.array, value.array()))
        yield layer


class Differences:
    """Of all models; ``agrees`` as long as no output is further from the program's than rounding explains."""

    def __init__(self) -> None:
        self.agrees = True
        self._unequal: defaultdict[str, list[Agreement]] = defaultdict(list)
        self._reasons: dict[str, str] = {}

    def __iter__(self) -> Iterator[str]:
        """A sentence for each model whose outputs are not the program's."""
        for model, outputs in self._unequal.items():
            worst = _worst(outputs)
            yield f"{model}: the outputs differ from the program's ({worst.name}): {_how(worst)}{self._reasons[model]}"

    def add(
        self,
        captured: CapturedModel,
        feed: Mapping[str, np.ndarray],
        run: CapturedRun,
        agreements: Sequence[Agreement],
    ) -> list[str]:
        """Take note of a run; returns a sentence on it, where rounding does not explain it, in a list.

        A model's first difference has it run once more as the program ran it.
        """
        unequal = [each for each in agreements if not each.equal]
        if not unequal:
            return []
        model = f"{captured.name} of process {captured.pid}"
        if model not in self._reasons:
            self._reasons[model] = _reason(captured, feed, run)
        self._unequal[model] += unequal
        if not any(each.is_large for each in unequal):
            return []
        self.agrees = False
        worst = _worst(unequal)
        return [f"output {worst.name} differs from the program's: {_how(worst)}{self._reasons[model]}"]


def _worst(outputs: Sequence[Agreement]) -> Agreement:
    return max(outputs, key=lambda each: (bool(each.why), each.relative or 0.0))


def _how(output: Agreement) -> str:
    return output.why or f"by at most {output.max_abs:.3g}, {output.relative or 0:.3g} of the largest value"


def _reason(captured: CapturedModel, feed: Mapping[str, np.ndarray], run: CapturedRun) -> str:
    """Whether the model gives the program's outputs when it runs as the program ran it; "" when it does not run."""
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
        return f"; run as the program did ({level}), the model gives the program's own outputs again"
    return f"; run as the program did ({level}), the model does not give its outputs again either"
