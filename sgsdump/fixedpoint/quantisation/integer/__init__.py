"""The hardware's own integers: ``walk`` goes through the operators of a plan, ``RULES`` says how each is computed.

A new operator is a function of one ``Call`` with a ``Rule`` around it, beside its like or in a file of its own, and a
line here. What has no line is computed in float32 between dequantised inputs and a requantised output.
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
# Element by element, of one tensor and constants of one element.
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
    """The rule for a kind of operator; None when it has none."""
    return RULES[op_type] if op_type in RULES else None  # noqa: SIM401
