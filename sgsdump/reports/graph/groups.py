"""Groups of operators for the drawing of a network: modules from paths, and runs of operators where a path is flat."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MOST = 40  # children of a group; a group with more is divided into runs
DOTS = " … "
_SEPARATORS = re.compile(r"[/.:]+")


@dataclass(frozen=True)
class Group:
    """Group of operators.

    Attributes
    ----------
    name : str
        Path of the module below the enclosing group, such as ``layers.0``; first and last operator for a run.
    children : list of Group or int
        Groups, and numbers of operators, in execution order.
    """

    name: str = ""
    children: list[Group | int] = field(default_factory=list)

    def members(self) -> Iterable[int]:
        """Yield the operators of the group and of the groups in it."""
        for child in self.children:
            if isinstance(child, Group):
                yield from child.members()
            else:
                yield child

    @property
    def first(self) -> int:
        """First operator of the group."""
        return min(self.members())


def path_of(name: str) -> tuple[str, ...]:
    """Return the parts of a name before its last part.

    >>> path_of("/layers.0/conv/Conv_output_0")
    ('layers', '0', 'conv')
    """
    return tuple(part for part in _SEPARATORS.split(name) if part)[:-1]


def groups_of(paths: Sequence[Sequence[str]], labels: Sequence[str]) -> Group:
    """Return the outermost group.

    Parameters
    ----------
    paths : sequence of sequence of str
        Path of the module of each operator, from the outermost module, in execution order.
    labels : sequence of str
        Short name of each operator.
    """
    root = Group()
    modules: dict[tuple[str, ...], Group] = {(): root}
    for operator, path in enumerate(paths):
        for depth in range(1, len(path) + 1):
            key = tuple(path[:depth])
            if key not in modules:
                modules[key] = Group(path[depth - 1])
                modules[key[:-1]].children.append(modules[key])
        modules[tuple(path)].children.append(operator)
    return _in_runs(Group("", _without_single(root).children), labels)


def _without_single(group: Group) -> Group:
    """Return the group without groups that have a single child."""
    children: list[Group | int] = []
    for child in group.children:
        if isinstance(child, Group):
            child = _without_single(child)
            if len(child.children) == 1:
                children.append(child.children[0])
                continue
        children.append(child)
    if len(children) == 1 and isinstance(children[0], Group):
        only = children[0]
        return Group(f"{group.name}.{only.name}".strip("."), only.children)
    return Group(group.name, children)


def _in_runs(group: Group, labels: Sequence[str]) -> Group:
    """Return the group, with runs of children where it has more than ``MOST``."""
    children = [_in_runs(child, labels) if isinstance(child, Group) else child for child in group.children]
    children.sort(key=lambda child: child.first if isinstance(child, Group) else child)
    while len(children) > MOST:
        size = max(math.ceil(math.sqrt(len(children))), math.ceil(len(children) / MOST))
        runs = [children[at : at + min(size, MOST)] for at in range(0, len(children), min(size, MOST))]
        children = [run[0] if len(run) == 1 else Group(_name_of(run, labels), run) for run in runs]
    return Group(group.name, children)


def _name_of(run: Sequence[Group | int], labels: Sequence[str]) -> str:
    first, last = (labels[child] if isinstance(child, int) else child.name for child in (run[0], run[-1]))
    return f"{first.partition(DOTS)[0]}{DOTS}{last.rpartition(DOTS)[2]}"
