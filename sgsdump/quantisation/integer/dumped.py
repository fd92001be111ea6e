"""An operator of the fixed model as the simulators dump it."""

from __future__ import annotations

from collections.abc import Container, Mapping

from sgsdump.models.graph import Graph
from sgsdump.quantisation.fixed_facts import DumpedOperator
from sgsdump.quantisation.fusion import Operator, is_convolution, sdk_name


def dumped(
    graph: Graph, operator: Operator, convolutions: Mapping[str, tuple[str, str]], kept: Container[str]
) -> DumpedOperator:
    """``convolutions``: a convolution's output -> the names of its stored weights and of its bias rows; ``kept``: the
    constants that are in the fixed model.

    The constants of a fused chain's further operators stand in no dump of the SDK's.
    """
    head = operator.head
    own = convolutions.get(head.output[0])
    constants = own or tuple(name for name in head.input if name in graph.constants and name in kept)
    return DumpedOperator(
        sdk_name(graph, head), out_name(graph, operator), operator.inputs, constants, operator.outputs
    )


def out_name(graph: Graph, operator: Operator) -> str:
    """The type a fused operator puts out under: that of its last part; a convolution's own where only its limits
    follow."""
    last = operator.last
    if len(operator.nodes) == 2 and is_convolution(graph, operator.head) and last.op_type in ("Relu", "Clip"):
        last = operator.head
    return sdk_name(graph, last)
