"""Location of a tensor in an ATB dump, derived from its path; tensor names; aliases of other tensors.

::

    [tensors/ or atb_dump_data/data/]{device}_{pid}/{execution}/{id}_{Operator}[/{id}_{Operator or kernel}]…
        /{before|after}/{intensor|outtensor}{slot}[_{parameter}].bin

The tensor name consists of the operators and the slot, ``1_DecoderLayer/1_LinearOperation/input.0``. It contains
neither process nor execution, so dumps of different runs can be paired. Each execution is a run of the tree: its step
is the number of the execution, its rank the device.

An alias is a file without values that names another file with the values. ``data=1_2_outtensor0.bin`` means output 0 of
child 2 of layer 1 in the same execution. If several layers have this number, the alias's own layer is meant. The target
may be an alias too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from sgsdump.dumps.formats.atb.tensor import Content
from sgsdump.dumps.runs import Run

ENDING = ".bin"
_ROOTS = (("tensors",), ("atb_dump_data", "data"))
_TENSOR = re.compile(r"(in|out)tensor(0|[1-9][0-9]{0,8})((?:_.*)?)", re.DOTALL)
_ALIAS = re.compile(r"((?:[0-9]{1,9}_)*)(in|out)tensor(0|[1-9][0-9]{0,8})((?:_.*)?)\.bin", re.DOTALL)
_NAME = re.compile(
    r"((?:[0-9]{1,9}_[A-Za-z][\w.-]{0,99}/){1,20})(in|out)put\.(0|[1-9][0-9]{0,8})((?:_\w{1,60})?)", re.ASCII
)
_DEVICE = re.compile(r"([0-9]{1,9})_[0-9]+")
_IS_DEVICE = re.compile(r"-?[0-9]{1,9}_[0-9]+")
_ID = re.compile(r"([0-9]{1,9})_(.*)", re.DOTALL)
_DIGITS = re.compile(r"[0-9]{1,18}")
_NO_ID = 10**9
_LONGEST_CHAIN = 100


class Execution(NamedTuple):
    """Part of a path before the operators: root, ``device_process``, number of the execution; "" if absent."""

    root: str = ""
    device: str = ""
    number: str = ""

    def as_run(self) -> Run:
        device = _DEVICE.fullmatch(self.device)
        rank = None if device is None else int(device[1])
        return Run("/".join(filter(None, self)), rank, int(self.number) if self.number else None)


@dataclass(frozen=True)
class Location:
    """Location of a tensor.

    operators  folder names from the layer down.
    label      text after the slot in the file name.
    when       "before", "after" or "".
    stem       name of a file that does not follow the vendor's naming; such a file is an output of slot 0.
    """

    execution: Execution
    operators: tuple[str, ...]
    io: Literal["in", "out"]
    slot: int
    label: str = ""
    when: str = ""
    stem: str = ""

    @property
    def key(self) -> tuple:
        """Identity of the tensor, equal for its copies from before and after the operator."""
        return self.execution, self.operators, self.io, self.slot, self.label, self.stem

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(_id(operator)[0] for operator in self.operators)

    @property
    def op_type(self) -> str:
        return _id(self.operators[-1])[1] if self.operators else ""

    @property
    def meant(self) -> bool:
        """Whether this is the relevant copy: an input from before the operator, or an output from after it."""
        return self.when == ("before" if self.io == "in" else "after")

    @property
    def order(self) -> tuple:
        """Sort key by execution order: a layer's inputs, its children, its outputs."""
        levels = [(1, *_id(operator), "") for operator in self.operators]
        last = (0 if self.io == "in" else 2, self.slot, self.label, self.stem)
        return (*map(_natural, self.execution), (*levels, last))

    @property
    def name(self) -> str:
        return "/".join([*self.operators, self.stem or f"{self.io}put.{self.slot}{self.label}"])


Targets = Mapping[tuple[Execution, tuple[int, ...], str, int], Sequence[str]]


class Alias(NamedTuple):
    """Target of an alias: ``data=1_2_outtensor0.bin`` is output 0 of child 2 of layer 1."""

    ids: tuple[int, ...]
    io: str
    slot: int
    label: str


def location_of(path: str) -> Location:
    """Return the location of a file from its path relative to the opened folder, with ``/``."""
    *folders, file = path.split("/")
    stem = file.removesuffix(ENDING)
    when = folders.pop() if folders and folders[-1] in ("before", "after") else ""
    execution, operators = split(folders)
    match = _TENSOR.fullmatch(stem)
    if not match:
        return Location(execution, operators, "out", 0, "", when, stem)
    return Location(execution, operators, "in" if match[1] == "in" else "out", int(match[2]), match[3], when)


def split(folders: Sequence[str]) -> tuple[Execution, tuple[str, ...]]:
    """Split the folders above a tensor into execution and operators."""
    begin = 0
    for root in _ROOTS:
        for end in range(len(root), len(folders) + 1):
            if tuple(folders[end - len(root) : end]) == root:
                begin = max(begin, end)
    rest = folders[begin:]
    index = next((i for i, folder in enumerate(rest) if _DIGITS.fullmatch(folder)), None)
    if index is None:
        device = rest[0] if rest and _IS_DEVICE.fullmatch(rest[0]) else ""
        return Execution("/".join(folders[:begin]), device), tuple(rest[bool(device) :])
    root_end = begin + max(0, index - 1)
    device = rest[index - 1] if index else ""
    return Execution("/".join(folders[:root_end]), device, rest[index]), tuple(rest[index + 1 :])


def is_operator(folder: str) -> bool:
    """Return whether a folder is an operator, ``1_DecoderLayer``, and not a device and process, ``0_4711``."""
    return bool(_ID.fullmatch(folder)) and not _IS_DEVICE.fullmatch(folder)


def alias_of(text: str) -> Alias | None:
    """Parse the target of an alias; return None for any other text."""
    match = _ALIAS.fullmatch(text) if len(text) <= 1000 else None
    if match is None:
        return None
    ids = tuple(map(int, filter(None, match[1].split("_"))))
    return Alias(ids, match[2], int(match[3]), match[4])


def path_of(name: str, io: str) -> str | None:
    """Return the path below ``{device}_{pid}/{execution}`` for a tensor name of the form ``Location.name``, else None.

    The path contains only letters, digits, ``_``, ``-`` and ``.``.
    """
    match = _NAME.fullmatch(name)
    if match is None or match[2] != io:
        return None
    return f"{match[1]}{_folder(io)}/{io}tensor{match[3]}{match[4]}{ENDING}"


def made_path(operator: str, io: str, slot: int) -> str:
    """Return the path of a tensor in its own operator folder."""
    return f"{operator}/{_folder(io)}/{io}tensor{slot}{ENDING}"


def targets_of(chosen: Mapping[Location, str]) -> Targets:
    """Return the paths that an alias may refer to, by execution, ids, io and slot."""
    targets: defaultdict[tuple[Execution, tuple[int, ...], str, int], list[str]] = defaultdict(list)
    for location, path in chosen.items():
        targets[location.execution, location.ids, location.io, location.slot].append(path)
    return targets


def followed(
    path: str, contents: Mapping[str, Content], targets: Targets, locations: Mapping[str, Location]
) -> tuple[Content, str]:
    """Return the content of a file and, for an alias without values, the reason. Aliases get their target's values."""
    last = content = contents[path]
    chain = [path]
    while content.alias:
        target, why = _target(content.alias, locations[chain[-1]], targets, locations)
        if target in chain or len(chain) > _LONGEST_CHAIN:
            target, why = "", "its aliases form a cycle"
        if not target:
            return last, why
        chain.append(target)
        content = contents[target]
    if content is last:
        return last, ""
    if content.statistics is None and last.coding.size(last.count) != content.coding.size(content.count):
        return last, f"it is an alias of {chain[-1]}, which has another size"
    return replace(last, path=content.path, offset=content.offset, alias="", statistics=content.statistics), ""


def _folder(io: str) -> str:
    return "before" if io == "in" else "after"


def _id(operator: str) -> tuple[int, str]:
    match = _ID.fullmatch(operator)
    return (int(match[1]), match[2]) if match else (_NO_ID, operator)


def _natural(part: str) -> tuple[int, str]:
    match = re.match(r"[0-9]{1,18}", part)
    return (int(match[0]) if match else -1, part)


def _target(alias: str, location: Location, targets: Targets, locations: Mapping[str, Location]) -> tuple[str, str]:
    """Return the path that an alias refers to, or "" and the reason."""
    named = alias_of(alias)
    if named is None:
        return "", f"{alias[:60]!r} is not an alias"
    candidates = targets.get((location.execution, named.ids, named.io, named.slot), ())
    same = [path for path in candidates if locations[path].operators[:1] == location.operators[:1]] or list(candidates)
    if len(same) > 1:
        same = [path for path in same if locations[path].label == named.label] or same
    if not same:
        return "", f"it is an alias of {alias[:60]}, which is missing. Check that the dump was copied completely"
    if len(same) > 1:
        return "", f"it is an alias of {alias[:60]}, which matches {len(same)} files"
    return same[0], ""
