"""The operators of a graph: names, types, and where in the program they stand.

An operator is called as its graph node (``add``, ``add_1``) and answers to TorchAir's spelling too: its type, with the
number of those of its type before it (``Add``, ``Add_1``). Types are aten's names in TorchAir's spelling (``mul_`` is
``Mul``, ``batch_norm`` is ``BatchNorm``), those of collective communication begin with ``Hcom``. Inputs and weights of
the graph are nodes of type Data, named after what they are in the program (``x``, ``conv1.weight``); they answer to
``arg0_1``, ``arg1_1`` … too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from sgsdump.torchair.scope import is_marked

DATA = "Data"
COLLECTIVE = "Hcom"
_COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd")
_NO_OPERATOR = ("getitem", "_set_grad_enabled", "_enter_autocast", "_exit_autocast")
_SOURCE = re.compile(r"\['([^']*)'\]|\.(\w+)|\[(\d+)\]")
_STORES = frozenset("_modules _parameters _buffers".split())
_PLACE = re.compile(r'File "([^"]*)", line (\d+)')


@dataclass(frozen=True)
class Operator:
    """A node that computes, or brings data.

    node      its name in the graph; ``name`` what it is called by in the dump.
    number    its place in the graph, from 1.
    reads     the nodes it reads; ``inputs`` the same as outputs of operators, ``conv2d:0``.
    module    where it stands in the program's network, ``layer1.0.conv``; ``source`` the line that calls it.
    writes    it may write into its inputs.
    marked    it stands in a ``scope.data_dump()`` block.
    weight    it brings a weight or a buffer of the network.
    """

    node: str
    name: str
    op_type: str
    number: int
    reads: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    module: str = ""
    source: str = ""
    writes: bool = False
    marked: bool = False
    weight: bool = False

    @property
    def is_data(self) -> bool:
        return self.op_type == DATA

    @property
    def is_collective(self) -> bool:
        return self.op_type.startswith(COLLECTIVE)

    def answers_to(self, name: str) -> bool:
        return name == self.name or name in self.aliases


def operators_of(module: Any, captured: Any) -> list[Operator]:
    """The operators of a graph in its order; ``captured`` is the compiler's graph, which knows the inputs' sources."""
    taken: set[str] = {node.name for node in module.graph.nodes}
    per_type: Counter[str] = Counter()
    sources = [_source_of(node) for node in captured.graph.nodes if node.op == "placeholder"]
    outputs: dict[str, str] = {}
    operators: list[Operator] = []
    for node in module.graph.nodes:
        number = len(operators) + 1
        if node.op == "placeholder":
            text = sources[sum(one.is_data for one in operators)]
            operators.append(_data(node, text, number, taken))
        elif node.op in ("call_function", "call_method", "call_module"):
            op_type = _type_of(node, module)
            if not op_type:
                outputs[node.name] = _picked(node, outputs)
                continue
            before = per_type[op_type]
            per_type[op_type] += 1
            alias = f"{op_type}_{before}" if before else op_type
            inputs = tuple(outputs[read.name] for read in node.all_input_nodes if outputs.get(read.name))
            operators.append(_operator(node, op_type, number, inputs, alias))
        else:
            continue
        outputs[node.name] = f"{operators[-1].name}:0"
    return operators


def _picked(node: Any, outputs: Mapping[str, str]) -> str:
    """Whose output a node is that picks one of several; "" for a node of another kind."""
    if getattr(node.target, "__name__", "") != "getitem" or not isinstance(node.args[1], int):
        return ""
    return f"{outputs.get(node.args[0].name, '').rpartition(':')[0]}:{node.args[1]}"


def _operator(node: Any, op_type: str, number: int, inputs: tuple[str, ...], alias: str) -> Operator:
    return Operator(
        node.name,
        node.name,
        op_type,
        number,
        tuple(read.name for read in node.all_input_nodes),
        inputs,
        (alias,),
        _module_of(node.meta),
        _place_of(node.meta),
        _writes(node),
        is_marked(node.meta),
    )


def _data(node: Any, text: str, number: int, taken: set[str]) -> Operator:
    parts = [next(filter(None, groups)) for groups in _SOURCE.findall(text)]
    weight = any(part in _STORES for part in parts)
    words = [part for part in parts if part not in _STORES]
    if weight and len(words) > 1:
        words = words[1:]  # the program's name of the network itself
    name = ".".join(words) or node.name
    while name in taken:
        name += "_"
    taken.add(name)
    return Operator(node.name, name, DATA, number, (), (), (f"arg{number - 1}_1",), weight=weight)


def _source_of(node: Any) -> str:
    """What an input is in the program, as ``L['self']._modules['fc']._parameters['weight']``; "" when not known."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def _type_of(node: Any, module: Any) -> str:
    """The operator's type; "" for a node that computes nothing."""
    import torch

    target = node.target
    if node.op == "call_module":
        return type(module.get_submodule(target)).__name__
    if isinstance(target, torch._ops.OpOverload):
        space, _, word = target._schema.name.partition("::")
        return f"{COLLECTIVE}{_camel(word)}" if space in _COLLECTIVES else _camel(word)
    word = target if isinstance(target, str) else getattr(target, "__name__", "") or str(target)
    return "" if word in _NO_OPERATOR else _camel(word)


def _camel(word: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"\W+|_", word) if part) or "Operator"


def _writes(node: Any) -> bool:
    """By the operator's schema; of one without a schema it is not known, so it may."""
    schema = getattr(node.target, "_schema", None)
    return True if schema is None else bool(schema.is_mutable)


def _module_of(meta: Any) -> str:
    stack = list((meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    parts = [next(filter(None, groups)) for groups in _SOURCE.findall(str(stack[-1][0]))]
    return ".".join(part for part in parts[1:] if part not in _STORES)


def _place_of(meta: Any) -> str:
    """``net.py:28``, the innermost line of the program."""
    places: Sequence[tuple[str, str]] = _PLACE.findall(meta.get("stack_trace") or "")
    if not places:
        return ""
    file, line = places[-1]
    return f"{PurePath(file).name}:{line}"
