"""Pairing two msprobe dumps through a layer mapping. Apart: msprobe's own rule, with side files of its own.

A place is the path of module names down to an API or module, which ``construct.json`` beside ``dump.json`` tells of
APIs, the framework's function that an API was called in, and the direction (forward, backward, the gradients of
parameters). Where a pipeline is split, one framework numbers the layers of a ParallelTransformer from 0 in each part
and the other through, so both count from the first that is there. The mapping turns the sample's path into the
benchmark's, part by part, by the class of the module it has come to; the longest entry that fits counts. The k-th call
at a place is paired with the k-th there, tensors of one call by what follows the operator in their names
(``.input.0``). All this is msprobe's own rule, and so is that a tensor whose place is empty has no partner.

The framework's function is told by ``stack.json`` (``dumps/formats/msprobe/stacks.py``). A user's ``x[i]`` runs
``Tensor.__add__`` inside MindSpore's ``__getitem__``; the user's own ``a + b`` is another ``Tensor.__add__``. Of the
lines between msprobe's wrapper and the module that runs, the first ones that are the framework's count, and of these
the last, by which the user's code came in. Calls and files of msprobe, MindSpeed and of modules themselves name no
function.
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
_MODULE_RUNS = {True: re.compile("construct"), False: re.compile(r"in (for|back)ward,")}  # by: is it MindSpore
_NO_FILES = ("msprobe", "MindSpeed")
_NO_FUNCTIONS = ("construct", "__call__")
_LINE = re.compile(r"(?P<file>[^,]*),[^,]*,\s*in (?P<function>[^,\s]+)")


def framework_function(lines: Sequence[str], is_mindspore: bool) -> str:
    """The name of the framework's function that the user's code called, "" where it called the API itself."""
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
    """The lines after the last of msprobe's wrapper, up to the module that runs; all where there is no wrapper."""
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
    """Where an operator is in the network."""

    scope: Scope
    direction: str


class Structure(NamedTuple):
    """The facts of a dump's side files: operator -> the module it ran in ("" at the top), and -> its call stack."""

    parents: Mapping[str, str]
    stacks: Stacks
    is_mindspore: bool


def pairs_by_layer(
    sample: Dump, sample_records: Iterable[Record], benchmark: Dump, benchmark_records: Iterable[Record], layers: Layers
) -> tuple[list[Pair], dict[int, str]]:
    """The pairs the mapping makes, and by ``id`` of the sample's records whose place in the benchmark is empty, why.

    Raises ConfigError when a dump is not msprobe's, and when its construct.json or stack.json is missing.
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
    """The calls at each place, as tensors by the ends of their names; and the class of each module."""
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
    """Of a module its own path; of an API its parent's, the framework's function it was called in, and its name."""
    parts = operator.split(".")
    if parts[0] in _MODULES:
        direction = _GRADIENT if parts[-1] == _GRADIENT else parts[-2]
        return next((Place(scope, direction) for scope, _ in _module(operator)), None)
    if len(parts) < 4:
        return None
    # What ran backward stands in the network where it ran forward.
    forward = ".".join([*parts[:-1], "forward"])
    recorded = next((name for name in (forward, operator) if name in structure.parents), "")
    above = next((scope for scope, _ in _module(structure.parents.get(recorded, ""))), ())
    lines = structure.stacks.get(forward) or structure.stacks.get(operator) or ()
    function = "" if parts[0] in _WITHOUT_STACK else framework_function(lines, structure.is_mindspore)
    return Place((*above, *filter(None, [function]), parts[-3]), parts[-1])


def _module(name: str) -> Iterator[tuple[Scope, str]]:
    """The path and class in ``Module.{path}.{class}.{direction}.{call}`` and ``Module.{path}.{class}.parameters_grad``;
    nothing for another name."""
    parts = name.split(".")
    if parts[-1] == _GRADIENT:
        parts.append("0")
    if parts[0] in _MODULES and len(parts) >= 5:
        yield tuple(parts[1:-3]), parts[-3]


def _renumbering(scopes: Iterable[Scope], classes: Mapping[Scope, str]) -> Callable[[Scope], Scope]:
    """A function that counts the layers of each ParallelTransformer from the first of ``scopes`` that is among them."""
    numbered = [(*scope, _NUMBERED_PART) for scope, kind in classes.items() if kind == _RENUMBERED]

    def layer_of(scope: Scope) -> tuple[Scope, int] | None:
        """The list of layers that a path goes through, and the layer's number in it."""
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
    """The path in the benchmark that a path of the sample is."""
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
            f"a layer mapping pairs dumps of msprobe; {dump.path} is of the format {dump.format or 'none'}"
        )
    construct, stack = (_document(dump.variant.with_name(name)) for name in (CONSTRUCT, STACK))
    parents = {name: _parent(parent) for name, parent in construct.items()}
    is_mindspore = _MINDSPORE.search(read_start(dump.variant, _HEAD_BYTES)) is not None
    return Structure(parents, stacks_of(stack), is_mindspore)


def _document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"a layer mapping needs {CONSTRUCT} and {STACK} beside dump.json; there is no {path}")
    document = json_of(decode(read_bytes(path, _MOST_BYTES), path), path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not what msprobe writes: no object")
    return document


def _parent(recorded: object) -> str:
    """A parent's name; newer files give a list that begins with it."""
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    return first if isinstance(first, str) else ""
