"""Pairing two msprobe dumps by the place of their tensors in the network, through a layer mapping.

A place is the path of module names down to an API or module, which ``construct.json`` beside ``dump.json`` tells of
APIs, and the direction (forward, backward). The mapping turns the sample's path into the benchmark's, part by part, by
the class of the module it has come to; the longest entry that fits counts. The k-th call at a place is paired with
the k-th there, tensors of one call by what follows the operator in their names (``.input.0``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from sgsdump.comparison.alignment import Pair
from sgsdump.comparison.naming.layer_mapping import TOP, Layers
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError
from sgsdump.files.json_yaml import json_of
from sgsdump.files.text_file import decode, read_bytes

RULE = "layer mapping"
_CONSTRUCT, _MOST_BYTES = "construct.json", 256 << 20
_TENSOR = re.compile(
    r"(?P<operator>.+\.(?:forward|backward)(?:\.\d+)?)(?P<end>\.(?:input|output|parameters)\..+)", re.S
)
_MODULES = ("Module", "Cell")

Scope = tuple[str, ...]


class Place(NamedTuple):
    """Where an operator is in the network."""

    scope: Scope
    direction: str


def pairs_by_layer(
    sample: Dump, sample_records: Iterable[Record], benchmark: Dump, benchmark_records: Iterable[Record], layers: Layers
) -> list[Pair]:
    """The pairs the mapping makes. Raises ConfigError when a dump is not msprobe's or its construct.json is missing."""
    sample_calls, sample_classes = _calls(sample, sample_records)
    benchmark_calls, _ = _calls(benchmark, benchmark_records)
    pairs = []
    for place, calls in sample_calls.items():
        others = benchmark_calls.get(Place(_translated(place.scope, sample_classes, layers), place.direction), [])
        note = "" if len(calls) == len(others) else f"{len(calls)} calls here in sample, {len(others)} in benchmark"
        for left, right in zip(calls, others):
            pairs += [Pair(left[end], right[end], RULE, note) for end in left if end in right]
    return pairs


def _calls(dump: Dump, records: Iterable[Record]) -> tuple[dict[Place, list[dict[str, Record]]], dict[Scope, str]]:
    """The calls at each place, as tensors by the ends of their names; and the class of each module."""
    parents = _parents(dump)
    classes = {scope: kind for name in (*parents, *parents.values()) for scope, kind in _module(name)}
    operators: dict[str, dict[str, Record]] = {}
    for record in records:
        match = _TENSOR.fullmatch(record.name)
        if match:
            operators.setdefault(match["operator"], {}).setdefault(match["end"], record)
    calls: defaultdict[Place, list[dict[str, Record]]] = defaultdict(list)
    for operator, tensors in operators.items():
        classes.update(_module(operator))
        place = _place(operator, parents)
        if place is not None:
            calls[place].append(tensors)
    return dict(calls), classes


def _place(operator: str, parents: Mapping[str, str]) -> Place | None:
    """Of a module its own path; of an API its parent's and its name."""
    parts = operator.split(".")
    if parts[0] in _MODULES:
        return next((Place(scope, parts[-2]) for scope, _ in _module(operator)), None)
    if len(parts) < 4:
        return None
    # What ran backward stands in the network where it ran forward.
    parent = parents.get(".".join([*parts[:-1], "forward"]), parents.get(operator, ""))
    above = next((scope for scope, _ in _module(parent)), ())
    return Place((*above, parts[-3]), parts[-1])


def _module(name: str) -> Iterable[tuple[Scope, str]]:
    """The path and class in ``Module.{path}.{class}.{direction}.{call}``; nothing for another name."""
    parts = name.split(".")
    if parts[0] in _MODULES and len(parts) >= 5:
        yield tuple(parts[1:-3]), parts[-3]


def _translated(scope: Scope, classes: Mapping[Scope, str], layers: Layers) -> Scope:
    """The path in the benchmark that a path of the sample is."""
    made: list[str] = []
    place = 0
    while place < len(scope):
        names = layers.get(classes.get(scope[:place], "") if place else TOP, {})
        fitting = [old for old in names if scope[place : place + old.count(".") + 1] == tuple(old.split("."))]
        old = max(fitting, key=lambda name: name.count("."), default=scope[place])
        made += names[old].split(".") if fitting else [old]
        place += old.count(".") + 1 if fitting else 1
    return tuple(made)


def _parents(dump: Dump) -> dict[str, str]:
    """Operator -> the module it ran in, "" at the top."""
    if not isinstance(dump.variant, Path):
        raise ConfigError(
            f"a layer mapping pairs dumps of msprobe; {dump.path} is of the format {dump.format or 'none'}"
        )
    path = dump.variant.with_name(_CONSTRUCT)
    document = json_of(decode(read_bytes(path, _MOST_BYTES), path), path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not what msprobe writes: no object")
    return {name: _parent(parent) for name, parent in document.items()}


def _parent(recorded: object) -> str:
    """A parent's name; newer files give a list that begins with it."""
    first = recorded[0] if isinstance(recorded, list) and recorded else recorded
    return first if isinstance(first, str) else ""
