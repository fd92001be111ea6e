"""Additional error of onnxruntime's integer kernels on this processor, beyond the error of the quantised model.

By default onnxruntime replaces QuantizeLinear and DequantizeLinear by integer kernels. On x86 processors without VNNI,
the kernels for uint8 by int8 (VPMADDUBSW) add two products in 16 bits, which saturate: 2 · 255 · 127 = 64,770 becomes
32,767. The entry ``session.x64quantprecision`` selects kernels that do not saturate. Sources: onnxruntime's page
"Quantize ONNX models" ("When and why do I need to try U8U8?"), and ``onnxruntime_session_options_config_keys.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sgsdump.comparison.thresholds import Thresholds
from sgsdump.executors.onnx_runtime.program_session import ProgramSession
from sgsdump.fixedpoint.quantisation.objective import output_error
from sgsdump.fixedpoint.tuning.exclusions import ExclusionTrial, Totals, is_good
from sgsdump.models.model import Model

WORSE = 1.5  # ratio to the error as defined; different rounding of fused kernels stays below
GIVEN_BACK = 0.5  # share of the additional error that precise kernels remove in case of saturation
AS_USUAL: dict[str, Any] = {}
PRECISE = {"entries": {"session.x64quantprecision": "1"}}
AS_DEFINED = {"level": "ORT_DISABLE_ALL"}


@dataclass(frozen=True)
class KernelLoss:
    """The output error (``objective.output_error``) of onnxruntime's kernels.

    as_run   by default.
    precise  with kernels that do not saturate.
    defined  operator by operator, without fusing.
    good     whether the outputs are within the limits in one of the last two.
    """

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
    """Return the loss of the model's file on the inputs of ``trial``.

    None if the outputs of the default kernels are within the limits, or about as good as defined. Raises ModelError if
    onnxruntime does not run the file, and ValuesError if its outputs contain NaN or infinity.
    """
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
