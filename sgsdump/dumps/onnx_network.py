"""Positions of dumped operators in an ONNX model, from the model's nodes or from the names that torch.onnx assigns."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from pathlib import PureWindowsPath
from types import MappingProxyType

from sgsdump.dumps.dump import Operator, Record, Value
from sgsdump.dumps.quantised_graph import Node, QuantisedGraph
from sgsdump.tensors.types import Quant

FUSED = "fused_activation"
"""Node attribute: the fused activation of the operator."""
FURTHER_OUTPUT = "output"
"""Argument of an operator that only a tensor's name implies: the number of the output, unless the first."""
INITIALIZER = "initializer "
"""Prefix of an argument name, followed by the input slot: the initializer at this slot as JSON [name, type, identity of
its values]."""
SCOPES, STACK = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"
SOURCE = "_source"
"""Node attribute: the line of the PyTorch program that called the operator, ``net.py:28``."""
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_LIBRARIES = re.compile(r"[/\\](site-packages|dist-packages)[/\\]torch[/\\]")
_QUOTED = re.compile(r"'([^']*)'")
DEEPEST = 100
"""Depth of modules from which a path is not taken for one."""
FEWEST_PATHS = 2
"""Fewest names that must be paths of modules of the other dump, so that all names are read as paths."""
_NUMBERED = re.compile(r"(.+?)(?:_\d{1,6})?", re.DOTALL)


class OnnxNetwork(dict[int, Operator]):
    """Operators of a model's run by op_index.

    reads      input names of the node that produces a tensor, by tensor name, dumped or not.
    quantised  groups of tensors of a quantised model.
    fed        sketches of the run's inputs in the form of ``run_inputs.as_json``; None if unknown.
    """

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
    """Return the operators of a model's run from the model's nodes.

    nodes   nodes of the model; an empty module means that the node's name holds the module.
    quants  quantisation parameters of a quantised model's tensors.
    fed     sketches of the run's inputs (``OnnxNetwork``).
    """
    makers = {name: node for node in nodes for name in node[3] if name}
    operators: dict[int, Operator] = {}
    for record in records:
        node = makers.get(record.name)
        if record.io == "out" and node is not None:
            name, kind, reads, makes, module, attributes = node
            values: dict[Value, Hashable] = {("in", slot): read for slot, read in enumerate(reads) if read}
            values |= {("out", slot): output for slot, output in enumerate(makes) if output}
            if values.get(("out", record.slot)) != record.name:  # some dumps number tensors instead of nodes
                values = {value: made for value, made in values.items() if value[0] == "in"}
                values["out", record.slot] = record.name
            where = module or module_of(name)[0]
            arguments = {name: value for name, value in attributes.items() if name != SOURCE}
            source = attributes.get(SOURCE, "")
            operators[record.op_index] = Operator(where, kind, values=values, arguments=arguments, source=source)
    return OnnxNetwork(operators, nodes, quants, fed)


def source_of_stack(stack: str) -> str:
    """Return the innermost line of the program, ``net.py:28``, from a node's stack trace as torch's exporter writes it.

    Lines of torch itself count only if there are no others. Return "" if there is no line.
    """
    frames = _FRAME.findall(stack)
    own = [frame for frame in frames if not _LIBRARIES.search(frame[0])] or frames
    if not own:
        return ""
    file, line = own[-1]
    return f"{PureWindowsPath(file).name}:{line}"


def module_by_scopes(scopes: str, reads: Iterable[str], weights: Set[str]) -> str:
    """Return the module path (``layer1.0.conv1``) from a node's metadata, as torch's exporter writes them.

    Return "" for the outermost module, and if the metadata name no module.
    """
    names = _QUOTED.findall(scopes)
    if not names:
        return ""
    owners = (name.rpartition(".")[0] for name in reads if name in weights)
    return next(filter(None, owners), names[-2] if len(names) > 1 else "")


def of_names(records: Iterable[Record]) -> dict[int, Operator]:
    """Return the operators whose names have the form of torch.onnx, ``/layer1/layer1.0/conv1/Conv``."""
    operators: dict[int, Operator] = {}
    for record in records:
        name = next((text for text in (record.op_type, record.name) if text.startswith("/")), "")
        if record.io == "out" and name:
            node, _, slot = name.partition("_output_")
            arguments = {FURTHER_OUTPUT: slot} if slot.isdecimal() and int(slot[:9]) else {}
            operators[record.op_index] = Operator(*module_of(node), arguments=arguments)
    return operators


def of_paths(records: Iterable[Record], others: Mapping[int, Operator]) -> dict[int, Operator]:
    """Return a module for each output that is named after one, ``block1.conv``.

    The modules are those of ``others``. All names may begin with the same part, ``model.block1.conv``. Plain numbers
    are no evidence, because some exporters number tensors.
    """
    paths: set[str] = set()
    for operator in others.values():
        path = operator.module if operator.module.count(".") < DEEPEST else ""
        while path and path not in paths:
            paths.add(path)
            path = path.rpartition(".")[0]
    named = {record.op_index: record.name for record in records if record.io == "out" and not record.constant}
    firsts = {name.partition(".")[0] for name in named.values()}
    prefix = f"{firsts.pop()}." if len(firsts) == 1 else ""
    whole = {index: name for index, name in named.items() if name in paths}
    cut = {index: name.removeprefix(prefix) for index, name in named.items() if name.removeprefix(prefix) in paths}
    found = max(whole, cut, key=len)
    if sum(not path.isdecimal() for path in found.values()) < FEWEST_PATHS:
        return {}
    known = {
        index: found.get(index, name.removeprefix(prefix if found is cut else "")) for index, name in named.items()
    }
    return {index: Operator(path, path.rpartition(".")[2], is_module=True) for index, path in known.items()}


def module_of(node: str) -> tuple[str, str]:
    """Return module path and operator from a node name: ``layer1.0.conv1`` and ``Conv``.

    A child of a ModuleList or Sequential repeats the name of its parent; the repetition is removed.
    """
    *parts, last = node.strip("/").split("/")
    path: list[str] = []
    for part in parts:
        if path and part.startswith(f"{path[-1]}."):
            path.pop()
        path.append(part)
    match = _NUMBERED.fullmatch(last)
    return ".".join(path) if node.startswith("/") else "", match[1] if match else last
