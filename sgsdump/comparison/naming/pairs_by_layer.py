"""Pair two msprobe dumps through a layer mapping, by msprobe's own rule and side files.

A place consists of a path of module names, the framework function that called the API, and the direction (forward,
backward, parameter gradients). The path leads down to an API or module; for APIs it comes from ``construct.json``
beside ``dump.json``. If a pipeline is split, one framework numbers the layers of a ParallelTransformer from 0 in each
part and the other numbers them throughout; both are therefore counted from their first layer. The mapping translates
the sample's path into the benchmark's, part by part, by the class of the module reached; the longest matching entry
wins. The k-th call at a place is paired with the k-th call there, and tensors of one call by the end of their names
(``.input.0``). As in msprobe, a tensor whose place is empty has no partner.

``stack.json`` gives the framework function (``dumps/formats/msprobe/stacks.py``). A user's ``x[i]`` runs
``Tensor.__add__`` inside MindSpore's ``__getitem__``; the user's own ``a + b`` is another ``Tensor.__add__``. Of the
lines between msprobe's wrapper and the running module, the leading lines in the framework count. The last of these is
the function that the user's code called. Calls and files of msprobe, MindSpeed and of modules name no function.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.naming.name_files import TOP, Layers
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.msprobe.stacks import CONSTRUCT, FRAMEWORK, STACK, Stacks, stacks_of
from sgsdump.errors import ConfigError
from sgsdump.files.bounded_read import decode, read_bytes, read_start
from sgsdump.files.json_yaml import json_of

_WRAPPER = "Template"
_MODULE_RUNS = {
    True: re.compile("construct"),
    False: re.compile(r"in (for|back)ward,"),
}  # key: whether the framework is MindSpore
_NO_FILES = ("msprobe", "MindSpeed")
_NO_FUNCTIONS = ("construct", "__call__")
_LINE = re.compile(r"(?P<file>[^,]*),[^,]*,\s*in (?P<function>[^,\s]+)")


def framework_function(lines: Sequence[str], is_mindspore: bool) -> str:
    """Return the name of the framework function that the user's code called, or "" if it called the API directly."""
    entered = ""
    for line in _inside_module(lines, _MODULE_RUNS[is_mindspore]):
        if not any(part in line.partition(",")[0] for part in FRAMEWORK):
            break
        entered = line
    match = _LINE.match(entered)
    if match is None or any(part in match["file"] for part in _NO_FILES):
        return ""
    return "" if any(part in match["function"] for part in _NO_FUNCTIONS) else match["function"]


def _inside_module(lines: Sequence[str], module_runs: re.Pattern[str]) -> Sequence[str]:
    """Return the lines after the last line of msprobe's wrapper, up to the running module.

    Without a wrapper, return all lines.
    """
    start = None
    for number, line in enumerate(lines):
        if _WRAPPER in line:
            start = number
        elif start is not None and module_runs.search(line):
            return lines[start + 1 : number]
    return lines if start is None else lines[start + 1 :]


RULE = "layer mapping"
_MOST_BYTES = 256 << 20
_TENSOR = re.compile(
    r"(?P<operator>.+\.(?:forward|backward)(?:\.\d+)?)(?P<end>\.(?:input|output|parameters)\..+)"
    r"|(?P<gradient>.+\.parameters_grad)(?:\.\d+)?(?P<of>\..+)",
    re.S,
)
_MODULES = ("Module", "Cell")
_GRADIENT = "parameters_grad"
_WITHOUT_STACK = ("Primitive", "Jit")
_MINDSPORE = re.compile(rb'"framework":\s*"mindspore"|"type":\s*"mindspore')
_HEAD_BYTES = 1 << 16
_RENUMBERED, _NUMBERED_PART = "ParallelTransformer", "layers"
_LAYER = re.compile(r"[0-9]{1,9}")

Scope = tuple[str, ...]


class Place(NamedTuple):
    """The position of an operator in the network."""

    scope: Scope
    direction: str


class Structure(NamedTuple):
    """Facts from a dump's side files: operator -> its module ("" at the top), and operator -> its call stack."""

    parents: Mapping[str, str]
    stacks: Stacks
    is_mindspore: bool


def pairs_by_layer(
    sample: Dump, sample_records: Iterable[Record], benchmark: Dump, benchmark_records: Iterable[Record], layers: Layers
) -> tuple[list[Pair], dict[int, str]]:
    """Return the pairs of the mapping, and reasons by ``id`` for sample records whose place in the benchmark is empty.

    Raises ConfigError if a dump is not msprobe's, or if its construct.json or stack.json is missing.
    """
    sample_calls, sample_classes = _calls(sample, sample_records)
    benchmark_calls, _ = _calls(benchmark, benchmark_records)
    pairs, empty = [], {}
    for place, calls in sample_calls.items():
        scope = _translated(place.scope, sample_classes, layers)
        others = benchmark_calls.get(Place(scope, place.direction), [])
        note = "" if len(calls) == len(others) else f"{len(calls)} calls here in sample, {len(others)} in benchmark"
        for sample_call, benchmark_call in zip(calls, others):
            pairs += [
                Pair(sample_call[end], benchmark_call[end], RULE, note) for end in sample_call if end in benchmark_call
            ]
        reason = f"the layer mapping leads to {'.'.join(scope)}, of which the benchmark has {_calls_text(len(others))}"
        empty.update({id(record): reason for call in calls[len(others) :] for record in call.values()})
    return pairs, empty


def _calls_text(count: int) -> str:
    return f"only {count} call{'' if count == 1 else 's'}" if count else "no call"


def _calls(dump: Dump, records: Iterable[Record]) -> tuple[dict[Place, list[dict[str, Record]]], dict[Scope, str]]:
    """Return the calls at each place, as tensors by name ending, and the class of each module."""
    structure = _structure(dump)
    classes = {
        scope: kind for name in (*structure.parents, *structure.parents.values()) for scope, kind in _module(name)
    }
    operators: dict[str, dict[str, Record]] = {}
    for record in records:
        match = _TENSOR.fullmatch(record.name)
        if match:
            operator, end = match["operator"] or match["gradient"], match["end"] or match["of"]
            operators.setdefault(operator, {}).setdefault(end, record)
    classes.update(known for operator in operators for known in _module(operator))
    places = {operator: place for operator in operators if (place := _place(operator, structure)) is not None}
    renumbered = _renumbering([place.scope for place in places.values()], classes)
    calls: defaultdict[Place, list[dict[str, Record]]] = defaultdict(list)
    for operator, place in places.items():
        calls[place._replace(scope=renumbered(place.scope))].append(operators[operator])
    return dict(calls), {renumbered(scope): kind for scope, kind in classes.items()}


def _place(operator: str, structure: Structure) -> Place | None:
    """Return a module's own path; for an API its parent's path, the calling framework function, and its name."""
    parts = operator.split(".")
    if parts[0] in _MODULES:
        direction = _GRADIENT if parts[-1] == _GRADIENT else parts[-2]
        return next((Place(scope, direction) for scope, _ in _module(operator)), None)
    if len(parts) < 4:
        return None
    # A backward call has the place of its forward call.
    forward = ".".join([*parts[:-1], "forward"])
    recorded = next((name for name in (forward, operator) if name in structure.parents), "")
    above = next((scope for scope, _ in _module(structure.parents.get(recorded, ""))), ())
    lines = structure.stacks.get(forward) or structure.stacks.get(operator) or ()
    function = "" if parts[0] in _WITHOUT_STACK else framework_function(lines, structure.is_mindspore)
    return Place((*above, *filter(None, [function]), parts[-3]), parts[-1])


def _module(name: str) -> Iterator[tuple[Scope, str]]:
    """Yield path and class of a module's name, or nothing for other names.

    Names are ``Module.{path}.{class}.{direction}.{call}`` and ``Module.{path}.{class}.parameters_grad``.
    """
    parts = name.split(".")
    if parts[-1] == _GRADIENT:
        parts.append("0")
    if parts[0] in _MODULES and len(parts) >= 5:
        yield tuple(parts[1:-3]), parts[-3]


def _renumbering(scopes: Iterable[Scope], classes: Mapping[Scope, str]) -> Callable[[Scope], Scope]:
    """Return a function that numbers the layers of each ParallelTransformer from the first layer in ``scopes``."""
    numbered = [(*scope, _NUMBERED_PART) for scope, kind in classes.items() if kind == _RENUMBERED]

    def layer_of(scope: Scope) -> tuple[Scope, int] | None:
        """Return the list of layers that a path passes, and the layer's number in it."""
        for above in numbered:
            below = scope[len(above) :]
            if below and scope[: len(above)] == above and _LAYER.fullmatch(below[0]):
                return above, int(below[0])
        return None

    lowest: dict[Scope, int] = {}
    for above, number in filter(None, map(layer_of, scopes)):
        lowest[above] = min(lowest.get(above, number), number)

    def renumbered(scope: Scope) -> Scope:
        layer = layer_of(scope)
        if layer is None or layer[0] not in lowest:
            return scope
        above, number = layer
        return (*above, str(number - lowest[above]), *scope[len(above) + 1 :])

    return renumbered


def _translated(scope: Scope, classes: Mapping[Scope, str], layers: Layers) -> Scope:
    """Return the benchmark's path for a path of the sample."""
    translated: list[str] = []
    depth = 0
    while depth < len(scope):
        names = layers.get(classes.get(scope[:depth], "") if depth else TOP, {})
        fitting = [old for old in names if scope[depth : depth + old.count(".") + 1] == tuple(old.split("."))]
        old = max(fitting, key=lambda name: name.count("."), default=scope[depth])
        translated += names[old].split(".") if fitting else [old]
        depth += old.count(".") + 1 if fitting else 1
    return tuple(translated)


def _structure(dump: Dump) -> Structure:
    if not isinstance(dump.variant, Path):
        raise ConfigError(
            f"a layer mapping requires msprobe dumps, but the format of {dump.path} is {dump.format or 'unknown'}"
        )
    construct, stack = (_document(dump.variant.with_name(name)) for name in (CONSTRUCT, STACK))
    parents = {name: _parent(parent) for name, parent in construct.items()}
    is_mindspore = _MINDSPORE.search(read_start(dump.variant, _HEAD_BYTES)) is not None
    return Structure(parents, stacks_of(stack), is_mindspore)


def _document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"a layer mapping needs {CONSTRUCT} and {STACK} beside dump.json; {path} is missing")
    document = json_of(decode(read_bytes(path, _MOST_BYTES), path), path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a file of msprobe: it holds no JSON object")
    return document


def _parent(recorded: object) -> str:
    """Return a parent's name; newer files store a list that begins with it."""
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    return first if isinstance(first, str) else ""
