"""Which tensors to dump: from one to another, every so many, by a name pattern, by operator type.

Start and end are names or topological indices (0 is the first). What is between them is filtered first, then every
step-th of what is left is taken; the last of it is always taken, and start and end when they were named, whatever the
filters say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from sgsdump.errors import ConfigError
from sgsdump.pipeline.topology_index import NodeOutput
from sgsdump.registry import hint

Place = str | int


def select(
    outputs: Sequence[NodeOutput],
    start: Place | None = None,
    end: Place | None = None,
    step: int = 1,
    pattern: str | None = None,
    op_types: Collection[str] = (),
) -> tuple[NodeOutput, ...]:
    """The tensors to dump, in the order of their index.

    start, end  a tensor's name, or its index (a number, or text that is one and no tensor's name); None for the first
                and the last.
    step        1 takes all.
    pattern     shell-style: ``*`` any characters, ``?`` one, ``[ab]`` one of these; case counts.
    op_types    operators as the model spells them, ``Conv``; empty takes all.

    Raises ConfigError for an unknown name or index, a start after the end, a step below 1, and filters that leave
    nothing.
    """
    if not outputs:
        raise ConfigError("the model has no tensors to dump: all its nodes are constants")
    if not isinstance(step, int) or step < 1:
        raise ConfigError(f"the step is {step!r}; it is 1 (every tensor) or more, a whole number")
    first = 0 if start is None else place(outputs, start)
    last = len(outputs) - 1 if end is None else place(outputs, end)
    if first > last:
        raise ConfigError(
            f"the start {outputs[first].name!r} (topology index {first}) comes after the end {outputs[last].name!r} "
            f"({last}); give them the other way round"
        )
    between = [each for each in outputs[first : last + 1] if _matches(each, pattern, op_types)]
    if not between:
        raise ConfigError(_nothing_left(outputs, pattern, op_types))
    taken = {*between[::step], between[-1]}
    taken |= {outputs[index] for index, named in ((first, start), (last, end)) if named is not None}
    return tuple(sorted(taken, key=lambda each: each.index))


def place(outputs: Sequence[NodeOutput], where: Place) -> int:
    """The index of a tensor given by name or index. Raises ConfigError, with the nearest names."""
    if isinstance(where, str):
        known = {each.name: each.index for each in outputs}
        if where in known:
            return known[where]
        if not re.fullmatch(r"[+-]?\d+", where):
            raise ConfigError(f"the model has no tensor {where!r}{hint(where, known)}")
        where = int(where)
    if not 0 <= where < len(outputs):
        raise ConfigError(f"there is no topology index {where}; the model's go from 0 to {len(outputs) - 1}")
    return where


def by_name(outputs: Sequence[NodeOutput], names: Sequence[str]) -> tuple[NodeOutput, ...]:
    """The named tensors, each once, in the order of their index. Raises ConfigError for an unknown one."""
    known = {each.name: each for each in outputs}
    for name in names:
        if name not in known:
            raise ConfigError(f"the model has no tensor {name!r}{hint(name, known)}")
    return tuple(sorted({known[name] for name in names}, key=lambda each: each.index))


def check_list(names: Sequence[str]) -> None:
    """Raises ConfigError for anything but a list of names: a single string would be read letter by letter."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"tensor names are given as a list of texts, not as {names!r}")


def _matches(each: NodeOutput, pattern: str | None, op_types: Collection[str]) -> bool:
    return (not op_types or each.op_type in op_types) and (pattern is None or fnmatchcase(each.name, pattern))


def _nothing_left(outputs: Sequence[NodeOutput], pattern: str | None, op_types: Collection[str]) -> str:
    present = sorted({each.op_type for each in outputs})
    for op_type in op_types:
        if op_type not in present:
            return f"the model has no operator {op_type!r}{hint(op_type, present)}"
    wanted = [f"the name pattern {pattern!r}"] if pattern is not None else []
    wanted += [f"the operator {' or '.join(op_types)}"] if op_types else []
    return f"no tensor between start and end fits {' and '.join(wanted)}; give another, or * for all names"
