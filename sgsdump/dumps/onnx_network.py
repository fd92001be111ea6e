"""Where the operators of an ONNX model's run stand: by the model's nodes, or by the names that torch.onnx gives."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from sgsdump.dumps.dump import Operator, Record, Value
from sgsdump.dumps.quantised_graph import Node, QuantisedGraph
from sgsdump.tensors.types import Quant

FUSED = "fused_activation"
"""Attribute of a node: the activation that its operator has inside."""
INITIALIZER = "initializer "
"""Beginning of the name of an argument, the slot after it: the initializer that is read there, [name, type, what its
values are known by] as JSON."""
SCOPES = "pkg.torch.onnx.name_scopes"
_QUOTED = re.compile(r"'([^']*)'")
_NUMBERED = re.compile(r"(.+?)(?:_\d{1,6})?", re.DOTALL)


class OnnxNetwork(dict[int, Operator]):
    """The operators of a model's run. ``reads``: of each tensor that a node of the model makes, dumped or not, what it
    is made from, by name. ``quantised``: the tensors of the model that are one, where it is quantised. ``fed``: what
    the run was fed, as ``run_inputs.as_json`` gives it; None where that is not known."""

    def __init__(
        self,
        operators: Mapping[int, Operator] = MappingProxyType({}),
        nodes: Iterable[Node] = (),
        quants: Mapping[str, Quant] = MappingProxyType({}),
        fed: object = None,
    ):
        super().__init__(operators)
        self.fed = fed
        self.quantised = QuantisedGraph(nodes, quants)
        nodes = self.quantised.nodes
        self.reads = {name: tuple(filter(None, node[2])) for node in nodes for name in node[3] if name}


def of_nodes(
    records: Iterable[Record],
    nodes: Sequence[Node],
    quants: Mapping[str, Quant] = MappingProxyType({}),
    fed: object = None,
) -> OnnxNetwork:
    """The operators of a model's run from the model's nodes: name, type, names of what they read and make, the module
    ("" for the one that the name tells), and the attributes.

    quants  of its tensors, where the model is quantised.
    fed     what the run was fed (``OnnxNetwork``)."""
    makers = {name: node for node in nodes for name in node[3] if name}
    operators: dict[int, Operator] = {}
    for record in records:
        node = makers.get(record.name)
        if record.io == "out" and node is not None:
            name, kind, reads, makes, module, attributes = node
            values: dict[Value, Hashable] = {("in", slot): read for slot, read in enumerate(reads) if read}
            values |= {("out", slot): output for slot, output in enumerate(makes) if output}
            if values.get(("out", record.slot)) != record.name:  # a dump that numbers tensors, not nodes
                values = {value: made for value, made in values.items() if value[0] == "in"}
                values["out", record.slot] = record.name
            where = module or module_of(name)[0]
            operators[record.op_index] = Operator(where, kind, values=values, arguments=attributes)
    return OnnxNetwork(operators, nodes, quants, fed)


def module_by_scopes(scopes: str, reads: Iterable[str], weights: Set[str]) -> str:
    """``layer1.0.conv1`` from a node's metadata as torch's exporter writes them; "" for the outermost module, and where
    they do not say."""
    names = _QUOTED.findall(scopes)
    if not names:
        return ""
    owners = (name.rpartition(".")[0] for name in reads if name in weights)
    return next(filter(None, owners), names[-2] if len(names) > 1 else "")


def of_names(records: Iterable[Record]) -> dict[int, Operator]:
    """The operators whose names say where they stand as torch.onnx's do, ``/layer1/layer1.0/conv1/Conv``."""
    operators: dict[int, Operator] = {}
    for record in records:
        name = next((text for text in (record.op_type, record.name) if text.startswith("/")), "")
        if record.io == "out" and name:
            operators[record.op_index] = Operator(*module_of(name.partition("_output_")[0]))
    return operators


def module_of(node: str) -> tuple[str, str]:
    """The path of modules in a node's name, and the operator: ``layer1.0.conv1`` and ``Conv``; a child that was called
    through its list or Sequential repeats the list's name."""
    *parts, last = node.strip("/").split("/")
    path: list[str] = []
    for part in parts:
        if path and part.startswith(f"{path[-1]}."):
            path.pop()
        path.append(part)
    match = _NUMBERED.fullmatch(last)
    return ".".join(path) if node.startswith("/") else "", match[1] if match else last
