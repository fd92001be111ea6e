"""The operators of a fixed model made from a .sim file, as the SDK dumps them.

They have the names and types of the file, whatever nodes compute them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sgsdump.fixedpoint.quantisation.integer.emitter import Requantisation, StoredConvolution
from sgsdump.fixedpoint.quantisation.type_rules import Operator
from sgsdump.models.fixed_facts import DumpedOperator
from sgsdump.models.graph import Graph
from sgsdump.models.sim_facts import SimFacts, read_facts


@dataclass(frozen=True, eq=False)
class Given:
    """What a file of the SDK stores about its fixed model.

    numbers    by output of a convolution node, its biases, multipliers and shifts.
    operators  the operators as they are dumped.
    """

    numbers: Mapping[str, Requantisation] = field(default_factory=dict)
    operators: tuple[DumpedOperator, ...] = ()


def given_operators(
    operators: Sequence[DumpedOperator],
    graph: Graph,
    convolutions: Mapping[str, StoredConvolution],
    present: Container[str],
) -> tuple[DumpedOperator, ...]:
    """Return the operators with the names under which the fixed model stores weights and biases.

    Constants that the fixed model stores in another form are left out.

    convolutions  by output of a convolution node, what it stores.
    present       the constants in the fixed model.
    """
    facts = read_facts(graph.proto)
    listed = {name for name, each in facts.constants.items() if each.is_parameter} if facts else set()
    names: dict[str, str] = {}
    for output, stored in convolutions.items():
        names |= dict(zip(graph.producer[output].input[1:3], (stored.kernel, stored.rows)))

    def kept(op: DumpedOperator) -> DumpedOperator:
        there = {n for n in op.constants if n in names or n in present or n in listed}
        there.update(op.inputs)
        constants, reads = (tuple(names.get(n, n) for n in of if n in there) for of in (op.constants, op.reads))
        return replace(op, constants=constants, reads=reads)

    return tuple(map(kept, operators))


def dumped_operators(facts: SimFacts, operators: Sequence[Operator]) -> tuple[DumpedOperator, ...]:
    """Return the operators of the dump: a fused one has the inputs of its first part and the outputs of its last.

    Nodes that only reorder values before the output belong to the operator.
    """
    makers = {name: op for op in facts.operators for name in op.outputs}
    dumped = []
    for operator in operators:
        last = makers.get(operator.outputs[0]) if operator.outputs else None
        if last is None:
            continue
        made = (makers.get(name) for node in operator.nodes for name in node.output)
        first = next((op for op in made if op is not None), last)
        dumped.append(replace(first, out_type=last.out_type, outputs=last.outputs))
    return tuple(dumped)
