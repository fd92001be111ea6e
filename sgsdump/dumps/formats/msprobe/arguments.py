"""The arguments of an operator in msprobe's ``dump.json`` (``folder.py`` has its form), and the tensors among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sgsdump.dumps.formats.ascend.slot import checked_shape
from sgsdump.dumps.formats.msprobe.values import UNKNOWN, Values
from sgsdump.errors import FormatError
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

DEEPEST = 20
_PARTS = {
    "input_args": "input",
    "input_kwargs": "input",
    "input": "input",
    "parameters": "parameters",
    "output": "output",
}
# Entries that hold tensors without saying whether they go in or out: gradients, and what users asked to be saved.
_WHOLE = ("parameters_grad", "debug")
_TYPE_PLACE = -3
_GRADIENT = _WHOLE[0]


class Leaf(NamedTuple):
    """An argument of the JSON, a tensor or not; ``slot`` counts those of its side."""

    name: str
    io: str
    slot: int
    facts: Any


def leaves(operator: str, entry: Any, path: Path) -> Iterator[Leaf]:
    """The arguments of an operator, in the JSON's order."""
    if not isinstance(entry, Mapping):
        raise FormatError(f"{path}: {operator[:80]!r} is not an object")
    kind = _without_call(operator).rpartition(".")[2]
    if kind in _WHOLE:
        for slot, (name, facts) in enumerate(_flat(entry, operator, kind == _GRADIENT)):
            yield Leaf(name, "out", slot, facts)
        return
    slots = {"in": 0, "out": 0}
    for part, word in _PARTS.items():
        io = "out" if word == "output" else "in"
        for name, facts in _flat(entry.get(part, ()), f"{operator}.{word}"):
            yield Leaf(name, io, slots[io], facts)
            slots[io] += 1
    for part in [key for key in entry if key not in _PARTS]:
        for name, facts in _flat(entry[part], f"{operator}.{part}"):
            if _describes_tensor(facts):
                yield Leaf(name, "in", slots["in"], facts)
                slots["in"] += 1


def _without_call(operator: str) -> str:
    """``Module.conv1.Conv2d.parameters_grad`` of itself and of ``Module.conv1.Conv2d.parameters_grad.0``."""
    name, dot, last = operator.rpartition(".")
    return name if dot and last.isdecimal() and name.rpartition(".")[2] in _WHOLE else operator


def type_of(operator: str) -> str:
    """The API's name or the module's class, "" for a name that has neither."""
    parts = operator.split(".")
    if _without_call(operator) == operator and parts[-1] == _GRADIENT:
        parts.append("0")
    return parts[_TYPE_PLACE] if len(parts) >= -_TYPE_PLACE else ""


def _describes_tensor(facts: Any) -> bool:
    return isinstance(facts, Mapping) and isinstance(facts.get("shape"), list) and "dtype" in facts


def _flat(value: Any, name: str, without_number: bool = False, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """What is in nested lists and objects, by the names msprobe gives; a gradient's list of one adds no number."""
    if isinstance(value, Mapping) and value.get("class_type") == "torch.distributed.P2POp":
        value = value.get("tensor")
    is_leaf = isinstance(value, Mapping) and isinstance(value.get("type"), str)
    if is_leaf or depth > DEEPEST or not isinstance(value, (Mapping, list, tuple)):
        yield name, value
        return
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, inner in items:
        drop = without_number and isinstance(value, list)
        yield from _flat(inner, name if drop else f"{name}.{key}", without_number, depth + 1)


def tensor_of(leaf: Leaf, op_type: str, values: Values) -> Tensor | None:
    """The tensor an argument is, None for one that is none. Raises FormatError for a shape that cannot be."""
    facts = leaf.facts
    if not _describes_tensor(facts):
        return None
    shape = facts["shape"]
    if not all(type(size) is int and size >= 0 for size in shape):
        raise FormatError(f"tensor {leaf.name[:80]!r} has no possible shape: {str(shape)[:80]}")
    word = str(facts["dtype"]).rpartition(".")[2].lower()
    dtype = KNOWN.get(word, UNKNOWN)
    if dtype == UNKNOWN:
        values.say(f"are of a type that is not known, {word[:40]!r}", leaf.name)
    info = TensorInfo(leaf.name, checked_shape(shape), dtype, op_type=op_type if leaf.io == "out" else "")
    return values.tensor(info, facts.get("data_name"), _statistics(facts))


def _statistics(facts: Mapping[str, Any]) -> Statistics:
    def figure(name: str) -> float | None:
        try:
            return float(facts[name])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    return Statistics(figure("Min"), figure("Max"), figure("Mean"), figure("Norm"))
