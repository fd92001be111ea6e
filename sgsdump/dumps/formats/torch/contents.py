"""The tensors in what a torch file holds: dicts, lists and objects within one another, named by the way to them.

``{"model": {"conv.weight": …}, "steps": [{…}]}`` has ``model.conv.weight`` and ``steps.0.…``; a module that was saved
whole has its tensors under the names of its state dict; a tensor alone has the file's name. What is no tensor is
counted, what stands in several places is named where it comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sgsdump.dumps.formats.torch.rebuild import LeftOut, View
from sgsdump.files.pickles import Global, Object

DEEPEST, SHOWN = 64, 3
LONGEST_NAME = 2000
# The dicts of a module in which its tensors and its parts stand.
_OF_MODULE = ("_parameters", "_buffers", "_modules")


def tensors(content: Any, alone: str, notes: list[str]) -> Iterator[tuple[str, View]]:
    """Every tensor under its name, in the file's order; ``alone`` names one that is all there is.

    ``notes`` gets a line on what is not among them.
    """
    others, deep, seen = 0, 0, set[int]()
    waiting: list[tuple[str, Any, int]] = [("", content, 0)]
    while waiting:
        name, value, depth = waiting.pop()
        if isinstance(value, View):
            yield name or alone, value
        elif isinstance(value, LeftOut):
            notes.append(f"{(name or alone)[:200]!r} is {value.why}; it is left out")
        elif isinstance(value, dict | list | tuple | Object):
            if id(value) in seen and value != ():
                continue
            seen.add(id(value))
            inner = _inside(value)
            if inner and (depth >= DEEPEST or len(name) > LONGEST_NAME):
                deep += 1
                continue
            named = [(f"{name}.{part}" if name and part else name or part, one, depth + 1) for part, one in inner]
            waiting.extend(reversed(named))
        elif value is not None and not isinstance(value, Global):
            others += 1
    if others:
        notes.append(f"{others} values are no tensors (numbers, texts …); they are left out")
    if deep:
        notes.append(f"{deep} values lie more than {DEEPEST} deep, or under endless names; they are left out")


def _inside(value: Any) -> list[tuple[str, Any]]:
    """What is directly in a container, each with its part of the name."""
    if isinstance(value, dict):
        return [("" if key in _OF_MODULE else _word(key), one) for key, one in value.items()]
    if isinstance(value, Object):
        states = value.state if isinstance(value.state, tuple) else (value.state,)
        inner = [pair for state in states if isinstance(state, dict) for pair in _inside(state)]
        return [*inner, *_inside(value.items), *_inside(value.elements), *_inside(_containers(value.arguments))]
    return [(str(number), one) for number, one in enumerate(value)]


def _containers(arguments: Any) -> list[Any]:
    """Of what an object is made with, what tensors may be in."""
    kinds = (dict, list, tuple, Object, View, LeftOut)
    return [one for one in arguments if isinstance(one, kinds)] if isinstance(arguments, tuple) else []


def _word(key: Any) -> str:
    return str(key)[:LONGEST_NAME]
