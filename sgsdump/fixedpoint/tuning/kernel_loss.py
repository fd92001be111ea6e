"""What onnxruntime's integer kernels lose on this processor beyond what a quantised model says.

By default onnxruntime puts integer kernels in place of QuantizeLinear and DequantizeLinear. On x86 processors without
VNNI those of uint8 by int8 (VPMADDUBSW) add two products in 16 bits, which saturate: 2 · 255 · 127 = 64,770 becomes
32,767. With the entry ``session.x64quantprecision`` kernels that do not are taken. Sources: onnxruntime's page
"Quantize ONNX models" ("When and why do I need to try U8U8?"), its ``onnxruntime_session_options_config_keys.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sgsdump.comparison.thresholds import Thresholds
from sgsdump.executors.onnx_runtime.program_session import ProgramSession
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.tuning.exclusions import ExclusionTrial, Totals, is_good
from sgsdump.models.model import Model

WORSE = 1.5  # times the error that the operators define; what fused kernels round otherwise stays below
GIVEN_BACK = 0.5  # of the difference: then it is saturation
AS_USUAL: dict[str, Any] = {}
PRECISE = {"entries": {"session.x64quantprecision": "1"}}
AS_DEFINED = {"level": "ORT_DISABLE_ALL"}


@dataclass(frozen=True)
class KernelLoss:
    """The outputs' error (of ``objective.output_error``) as onnxruntime runs the model by default, with kernels that do
    not saturate, and operator by operator without fusing; ``good``: in the best of these they are within the limits."""

    as_run: float
    precise: float
    defined: float
    good: bool

    @property
    def least(self) -> float:
        return min(self.precise, self.defined)

    @property
    def saturating(self) -> bool:
        return self.as_run - self.precise >= GIVEN_BACK * (self.as_run - self.least)


def kernel_loss(quantised: Model, trial: ExclusionTrial, limits: Thresholds) -> KernelLoss | None:
    """Of the model's file on the inputs of ``trial``; None where its outputs as they are run are within the limits, or
    no further off than its operators make them. Raises ModelError where onnxruntime does not run the file, and
    ValuesError where its outputs hold NaN or infinity."""
    as_usual = _totals(quantised, trial, AS_USUAL)
    if not as_usual or is_good(as_usual, limits):
        return None
    precise, defined = (_totals(quantised, trial, options) for options in (PRECISE, AS_DEFINED))
    good = is_good(precise, limits) or is_good(defined, limits)
    loss = KernelLoss(output_error(as_usual), output_error(precise), output_error(defined), good)
    return None if loss.as_run < WORSE * loss.least else loss


def _totals(quantised: Model, trial: ExclusionTrial, options: dict[str, Any]) -> Totals:
    session = ProgramSession(quantised.path, options)
    given = {info.name for info in quantised.proto.graph.output}
    names = [name for name in trial.outputs if name in given]
    return trial.totals_of(session.run(feed, names) for feed in trial.feeds)
