"""The hardware's integer arithmetic: ``walk`` processes the operators of a plan, ``RULES`` has one rule per operator.

To add an operator, write a function of one ``Call`` wrapped in a ``Rule``, in a module of this folder, and register it
here. An operator without a rule is computed in float32 between dequantised inputs and a requantised output.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sgsdump.registry import Registry

if TYPE_CHECKING:
    from sgsdump.fixedpoint.quantisation.integer.emitter import Rule

_RULES = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul"), "convolution:CONVOLUTION"),
    "Add": "arithmetic:ADD",
    "Sub": "arithmetic:SUBTRACT",
    "Mul": "arithmetic:MULTIPLY",
    "Max": "arithmetic:MAXIMUM",
    "Abs": "arithmetic:ABSOLUTE",
    **dict.fromkeys(("Greater", "GreaterOrEqual"), "arithmetic:THRESHOLD"),
    "Relu": "arithmetic:RELU",
    "Clip": "arithmetic:CLIP",
    "LeakyRelu": "arithmetic:LEAKY_RELU",
    "PRelu": "arithmetic:PRELU",
    "Sigmoid": "curves:SIGMOID",
    "Tanh": "curves:TANH",
    "Exp": "curves:EXP",
    "Softmax": "curves:SOFTMAX",
    "MaxPool": "pooling:MAX_POOL",
    "GlobalMaxPool": "pooling:MAX_POOL",
    "AveragePool": "pooling:AVERAGE_POOL",
    "GlobalAveragePool": "pooling:GLOBAL_AVERAGE_POOL",
    "ReduceMean": "pooling:MEAN",
    "ReduceMax": "pooling:MAXIMUM_ALONG",
    "ReduceSum": "pooling:SUM_ALONG",
    **dict.fromkeys(("Resize", "Upsample"), "pooling:INTERPOLATION"),
}
# Elementwise functions of one tensor and constants with one element.
_FUNCTIONS = (
    "Ceil Celu Cos Elu Erf Floor Gelu HardSigmoid HardSwish Log Mish Neg Pow Reciprocal Round Selu Sin "
    "Softplus Softsign Sqrt Swish ThresholdedRelu".split()
)
RULES = Registry(
    "integer rule",
    {name: f"{__name__}.{rule}" for name, rule in (_RULES | dict.fromkeys(_FUNCTIONS, "curves:FUNCTION")).items()},
)


@cache
def rule_of(op_type: str) -> Rule | None:
    """Return the rule for an operator type; None if it has none."""
    return RULES[op_type] if op_type in RULES else None  # noqa: SIM401
