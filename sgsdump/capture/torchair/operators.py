"""The operators of a captured graph: lowering to aten, names, types, origin, and the choice of operators to dump.

``lowered`` traces the graph to aten operators, ``operators_of`` lists them, ``chosen`` selects operators, and
``left_out`` applies blacklists.

An operator has the name of its graph node (``add``, ``add_1``). TorchAir's spelling is accepted too: the type, with the
number of earlier operators of that type (``Add``, ``Add_1``). Types are aten's names in TorchAir's spelling (``mul_``
is ``Mul``, ``batch_norm`` is ``BatchNorm``); types of collective communication begin with ``Hcom``. Inputs and weights
of the graph are nodes of type Data with the program's own names (``x``, ``conv1.weight``); ``arg0_1``, ``arg1_1`` … are
accepted too.

The graph is traced above autograd and is not functionalised: gradients flow through the operators as in the program,
and in-place writes stay in place, also through views. The trace runs on fake tensors and computes nothing. A graph that
cannot be traced (autocast blocks, user-defined autograd functions, checkpoints, conditions) runs as captured: its
operators are then torch functions instead of aten operators.

A blacklist item names operators by type, or one operator by name, and positions, ``input0`` or ``output1``. An item
without name or position omits nothing. An item of an entry with ``model_name`` applies to that graph only, all others
to every graph. Both lists apply together. Source: the vendor's table of acl.json.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from unittest.mock import patch

from sgsdump.capture.programs.acl_json import Entry
from sgsdump.capture.programs.control import DumpControl
from sgsdump.capture.torchair.scope import is_marked
from sgsdump.errors import hint

DATA = "Data"
COLLECTIVE = "Hcom"
_COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd")
_NO_OPERATOR = ("getitem", "_set_grad_enabled", "_enter_autocast", "_exit_autocast")
_SOURCE = re.compile(r"\['([^']*)'\]|\.(\w+)|\[(\d+)\]")
_STORES = frozenset("_modules _parameters _buffers".split())
_PROGRAM_LINE = re.compile(r'File "([^"]*)", line (\d+)')
# Reports requests that could not be fulfilled; TorchAir also offers a logger.
logger = logging.getLogger("sgsdump.torchair")
_MOST_IN_LIST = 64
_NOT_TRACED = ("_enter_autocast", "_exit_autocast")
_SLOT = re.compile(r"(input|output)([0-9]{1,9})")
Slots = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Call:
    """A call of an operator: ``source`` is the program's line, ``param`` its numbers and texts by argument name."""

    source: str = ""
    param: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Operator:
    """A node that computes, or provides data.

    node      node name in the graph; ``name``: name in the dump.
    number    position in the graph, from 1.
    reads     nodes that it reads; ``inputs``: the same as operator outputs, ``conv2d:0``.
    module    module in the program's network, ``layer1.0.conv``; ``call``: the program's call.
    writes    True if the operator may write to its inputs.
    marked    True inside a ``scope.data_dump()`` block.
    weight    True for a weight or a buffer of the network.
    """

    node: str
    name: str
    op_type: str
    number: int
    reads: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    module: str = ""
    call: Call = Call()
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


def lowered(captured: Any, examples: Sequence[Any]) -> Any:
    """Return a GraphModule of aten operators with the same inputs and results; the captured graph if lowering fails."""
    import torch

    targets = [node.target for node in captured.graph.nodes if node.op == "call_function"]
    calls = torch._ops.HigherOrderOperator
    if any(isinstance(target, calls) or getattr(target, "__name__", "") in _NOT_TRACED for target in targets):
        return captured
    try:
        module = _traced(captured, examples)
    except Exception as error:  # the program must run on, whatever the tracer raises
        logger.info("the graph runs as captured; it cannot be lowered: %s", str(error).splitlines()[:1])
        return captured
    same = len(_inputs(module)) == len(_inputs(captured))
    return module if same and isinstance(module, torch.fx.GraphModule) else captured


def _inputs(module: Any) -> list[Any]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _traced(captured: Any, examples: Sequence[Any]) -> Any:
    import torch
    from torch._guards import TracingContext, detect_fake_mode
    from torch._subclasses import FakeTensor, FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    context = TracingContext.try_get()
    mode = (context.fake_mode if context else None) or detect_fake_mode(examples)
    mode = mode or FakeTensorMode(allow_non_fake_inputs=True)

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        return mode.from_tensor(value, static_shapes=True)

    with ExitStack() as stack:
        stack.enter_context(preserve_node_meta())
        stack.enter_context(mode)
        stack.enter_context(patch.object(mode, "allow_scalar_outputs", True))
        if mode.shape_env is not None:
            stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
        return make_fx(torch.fx.Interpreter(captured).run, pre_dispatch=True)(*map(fake, examples))


def operators_of(module: Any, captured: Any) -> list[Operator]:
    """Return the operators in graph order; ``captured`` is the compiler's graph, which knows the inputs' sources."""
    names: set[str] = {node.name for node in module.graph.nodes}
    per_type: Counter[str] = Counter()
    sources = [_source_of(node) for node in captured.graph.nodes if node.op == "placeholder"]
    outputs: dict[str, str] = {}
    operators: list[Operator] = []
    for node in module.graph.nodes:
        number = len(operators) + 1
        if node.op == "placeholder":
            text = sources[sum(operator.is_data for operator in operators)]
            operators.append(_data(node, text, number, names))
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
    """Return the output that a getitem node selects, or "" for any other node."""
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
        Call(_line_of(node.meta), _param(node)),
        _writes(node),
        is_marked(node.meta),
    )


def _param(node: Any) -> dict[str, Any]:
    """Return the simple arguments by schema name; by position if the operator has no schema."""
    schema = getattr(node.target, "_schema", None)
    arguments = list(schema.arguments) if schema is not None else []
    values = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    names = [*(argument.name for argument in arguments), *map(str, range(len(arguments), len(node.args)))]
    values |= {**dict(zip(names, node.args)), **node.kwargs}
    return {name: value for name, value in values.items() if _is_simple(value)}


def _is_simple(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= _MOST_IN_LIST and all(map(_is_simple, value))
    return value is None or isinstance(value, bool | int | float | str)


def _data(node: Any, text: str, number: int, names: set[str]) -> Operator:
    parts = [next(filter(None, groups)) for groups in _SOURCE.findall(text)]
    weight = any(part in _STORES for part in parts)
    words = [part for part in parts if part not in _STORES]
    if weight and len(words) > 1:
        words = words[1:]  # skip the program's name of the network itself
    name = ".".join(words) or node.name
    while name in names:
        name += "_"
    names.add(name)
    return Operator(node.name, name, DATA, number, (), (), (f"arg{number - 1}_1",), weight=weight)


def _source_of(node: Any) -> str:
    """Return the program's name of an input, ``L['self']._modules['fc']._parameters['weight']``; "" if unknown."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def _type_of(node: Any, module: Any) -> str:
    """Return the operator's type; "" for a node that computes nothing."""
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
    """Return whether the schema allows writes to inputs; True without a schema."""
    schema = getattr(node.target, "_schema", None)
    return True if schema is None else bool(schema.is_mutable)


def _module_of(meta: Any) -> str:
    stack = list((meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    parts = [next(filter(None, groups)) for groups in _SOURCE.findall(str(stack[-1][0]))]
    return ".".join(part for part in parts[1:] if part not in _STORES)


def _line_of(meta: Any) -> str:
    """Return the innermost line of the program, ``net.py:28``."""
    lines: Sequence[tuple[str, str]] = _PROGRAM_LINE.findall(meta.get("stack_trace") or "")
    if not lines:
        return ""
    file, line = lines[-1]
    return f"{PurePath(file).name}:{line}"


class Names:
    """Requested operator names across graphs; names without a match are reported at the end."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, str], str] = {}
        self._existing: dict[str, dict[str, None]] = {}

    def find(self, operators: Sequence[Operator], names: Sequence[str], option: str) -> frozenset[str]:
        """Return the nodes with these names; ``option`` is the option that named them."""
        self._ask(
            option,
            names,
            "an operator",
            (word for operator in operators for word in (operator.name, *operator.aliases)),
        )
        return frozenset(operator.node for operator in operators if any(map(operator.answers_to, names)))

    def find_type(self, operators: Sequence[Operator], types: Sequence[str], option: str) -> frozenset[str]:
        """Return the nodes of these types."""
        self._ask(option, types, "an operator of type", (operator.op_type for operator in operators))
        return frozenset(operator.node for operator in operators if operator.op_type in types)

    def _ask(self, option: str, names: Sequence[str], noun: str, words: Iterable[str]) -> None:
        existing = self._existing.setdefault(option, {})
        self._asked |= {(option, name): noun for name in names if name not in existing}
        existing |= dict.fromkeys(words)

    def tell(self) -> None:
        """Report each name that no graph has so far, with similar names; once."""
        for (option, name), noun in self._asked.items():
            existing = self._existing[option]
            if name not in existing:
                logger.warning("%s: no graph has %s %r%s", option, noun, name, hint(name, list(existing)))
        self._asked.clear()


def chosen(
    operators: Sequence[Operator],
    control: DumpControl,
    ranges: Sequence[tuple[str, str, str]],
    graphs: Collection[str],
    names: Names,
) -> frozenset[str]:
    """Return the nodes to dump: named nodes, ranges and with-blocks, with the Data nodes that they read.

    All nodes if nothing is named. ``ranges`` are (graph, first, last). ``graphs`` are the names by which a
    configuration may refer to this graph.
    """
    nodes = {operator.node for operator in operators if operator.marked}
    if not (control.operators.names or control.operators.models or ranges or nodes):
        return frozenset(operator.node for operator in operators)
    nodes |= names.find(operators, control.operators.names, "dump_layer")
    for model, layers in control.operators.models:
        if not model or model in graphs:
            nodes |= names.find(operators, layers, "layer") if layers else {operator.node for operator in operators}
    for model, first, last in ranges:
        if model in graphs:
            nodes |= _between(operators, first, last, names)
    data = {operator.node for operator in operators if operator.is_data}
    along = {read for operator in operators if operator.node in nodes for read in operator.reads if read in data}
    return frozenset(nodes | along)


def _between(operators: Sequence[Operator], first: str, last: str, names: Names) -> set[str]:
    """Return the nodes from operator ``first`` to ``last``, both included, in execution order."""
    ends = [names.find(operators, [name], "opname_range") for name in (first, last)]
    indices = [[index for index, operator in enumerate(operators) if operator.node in nodes] for nodes in ends]
    if not all(indices):
        return set()
    begin, end = indices[0][0], indices[1][0]
    if begin > end:
        logger.warning("opname_range: %r runs before %r; the range is empty", last, first)
    return {operator.node for operator in operators[begin : end + 1] if not operator.is_data}


def left_out(
    operators: Sequence[Operator], entries: Iterable[Entry], graphs: Collection[str], names: Names
) -> dict[str, Slots]:
    """Return the inputs and outputs that are not dumped, by node: ``("input", 0)``.

    ``graphs`` are the names by which an entry may refer to this graph; ``names`` records the requested operators.
    """
    slots: dict[str, Slots] = {}
    for entry in entries:
        if entry.model_name and entry.model_name not in graphs:
            continue
        for name, texts in entry.op_type_blacklist:
            for node in names.find_type(operators, [name] if name else [], "optype_blacklist"):
                slots[node] = slots.get(node, Slots()) | _slots(texts)
        for name, texts in entry.op_name_blacklist:
            for node in names.find(operators, [name] if name else [], "opname_blacklist"):
                slots[node] = slots.get(node, Slots()) | _slots(texts)
    return slots


def idle_items(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield a sentence for each item that omits nothing, and for each invalid position."""
    for entry in entries:
        lists = {"optype_blacklist": entry.op_type_blacklist, "opname_blacklist": entry.op_name_blacklist}
        for option, items in lists.items():
            for name, texts in items:
                if not (name and texts):
                    yield f"{option}: an item without {'pos' if name else 'name'} has no effect"
                for text in texts:
                    if not _SLOT.fullmatch(text):
                        yield f"{option}: {text[:40]!r} is not a position of {name[:80]!r}; write input0 or output0"


def _slots(texts: Iterable[str]) -> Slots:
    matches = filter(None, map(_SLOT.fullmatch, texts))
    return frozenset((match[1], int(match[2])) for match in matches)
