"""The function of the framework that an API was called in, as msprobe's ``stack.json`` tells.

A user's ``x[i]`` runs ``Tensor.__add__`` inside MindSpore's ``__getitem__``; the user's own ``a + b`` is another
``Tensor.__add__``. msprobe tells the two apart in its layer mapping: of the lines between its own wrapper and the
module that runs, the first ones that are the framework's count, and of these the last, the door by which the user's
code came in. Calls and files of msprobe, MindSpeed and of modules themselves name no function.

``stack.json`` is ``{operator: [line, …]}``, newer ones ``{"0": [[operator, …], [line, …]], …}``, the innermost line
first: ``File PATH, line N, in FUNCTION, \\n CODE``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_WRAPPER = "Template"
_MODULE_RUNS = {True: re.compile("construct"), False: re.compile(r"in (for|back)ward,")}  # by: is it MindSpore
_FRAMEWORK = ("site-packages/torch", "package/torch", "site-packages/mindspore", "package/mindspore")
_NO_FILES = ("msprobe", "MindSpeed")
_NO_FUNCTIONS = ("construct", "__call__")
_LINE = re.compile(r"(?P<file>[^,]*),[^,]*,\s*in (?P<function>[^,\s]+)")

Stacks = Mapping[str, Sequence[str]]


def stacks_of(document: Any) -> Stacks:
    """Operator -> lines, of either form of ``stack.json``; entries that are neither are left out."""
    if not isinstance(document, dict):
        return {}
    stacks: dict[str, Sequence[str]] = {}
    for name, entry in document.items():
        if _is_shared(entry):
            stacks.update(dict.fromkeys(filter(lambda operator: isinstance(operator, str), entry[0]), entry[1]))
        elif _are_lines(entry):
            stacks[name] = entry
    return stacks


def framework_function(lines: Sequence[str], is_mindspore: bool) -> str:
    """The name of the framework's function that the user's code called, "" where it called the API itself."""
    entered = ""
    for line in _inside_module(lines, _MODULE_RUNS[is_mindspore]):
        if not any(part in line.partition(",")[0] for part in _FRAMEWORK):
            break
        entered = line
    match = _LINE.match(entered)
    if match is None or any(part in match["file"] for part in _NO_FILES):
        return ""
    return "" if any(part in match["function"] for part in _NO_FUNCTIONS) else match["function"]


def _inside_module(lines: Sequence[str], module_runs: re.Pattern[str]) -> Sequence[str]:
    """The lines behind the last of msprobe's wrapper, up to the module that runs; all where there is no wrapper."""
    start = None
    for place, line in enumerate(lines):
        if _WRAPPER in line:
            start = place
        elif start is not None and module_runs.search(line):
            return lines[start + 1 : place]
    return lines if start is None else lines[start + 1 :]


def _is_shared(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list) and _are_lines(entry[1])


def _are_lines(entry: Any) -> bool:
    return isinstance(entry, list) and all(isinstance(line, str) for line in entry)
