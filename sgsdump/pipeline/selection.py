"""Select tensors to dump: a range, every n-th tensor, a name pattern, operator types.

Tensors are numbered by the topological index of the SDAA dump tool: their position among the outputs of all nodes.
Every named output of every node counts, in file order. Constant nodes do not count, except those that compute a model
output, which come last.

Start and end are names or topological indices (0 is the first). Tensors in the range are filtered first, then every
step-th remaining tensor is taken. The last one is always taken, as are a given start and end, whatever the filters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError, hint

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class NodeOutput:
    """Output of a node: topological ``index``, ``name``, and the ``node`` (name or "") that computes it."""

    index: int
    name: str
    node: str
    op_type: str
    inputs: tuple[str, ...]


def node_outputs(graph: onnx.GraphProto) -> tuple[NodeOutput, ...]:
    """Return every indexed tensor of a graph, in index order."""
    ends = {info.name for info in graph.output}
    every = [(node, name) for node in graph.node for name in node.output if name]
    outputs = [(node, name) for node, name in every if node.op_type != "Constant"]
    outputs += [(node, name) for node, name in every if node.op_type == "Constant" and name in ends]
    return tuple(
        NodeOutput(index, name, node.name, node.op_type, tuple(filter(None, node.input)))
        for index, (node, name) in enumerate(outputs)
    )


def with_indexes(
    outputs: Mapping[str, NodeOutput], names: Sequence[str], indexes: Sequence[int]
) -> dict[str, NodeOutput]:
    """Return the named tensors with the caller's indices, one each; ``outputs`` are those of the model.

    Raises ConfigError if the numbers of indices and names differ.
    """
    if len(indexes) != len(names):
        raise ConfigError(
            f"{len(indexes)} topological indices are given for {len(names)} outputs; give one index for each output"
        )
    empty = NodeOutput(0, "", "", "", ())
    return {n: replace(outputs.get(n, empty), name=n, index=index) for n, index in zip(names, indexes)}


Position = str | int


def select(
    outputs: Sequence[NodeOutput],
    start: Position | None = None,
    end: Position | None = None,
    step: int = 1,
    pattern: str | None = None,
    op_types: Collection[str] = (),
) -> tuple[NodeOutput, ...]:
    """Return the tensors to dump, in index order.

    start, end  a tensor's name or index (a number, or digits that are no tensor's name); None means first and last.
    step        1 takes all.
    pattern     shell-style: ``*`` any characters, ``?`` one, ``[ab]`` one of these; case-sensitive.
    op_types    operators as spelled in the model, such as ``Conv``; empty takes all.

    Raises ConfigError for an unknown name or index, a start after the end, a step below 1, and filters that match
    nothing.
    """
    if not outputs:
        raise ConfigError("the model has no tensors to dump: all its nodes are constants")
    if not isinstance(step, int) or step < 1:
        raise ConfigError(f"the step is {step!r}; the step must be an integer of at least 1 (1 dumps every tensor)")
    first = 0 if start is None else position(outputs, start)
    last = len(outputs) - 1 if end is None else position(outputs, end)
    if first > last:
        raise ConfigError(
            f"the start {outputs[first].name!r} (topology index {first}) comes after the end "
            f"{outputs[last].name!r} ({last}); exchange start and end"
        )
    between = [output for output in outputs[first : last + 1] if _matches(output, pattern, op_types)]
    if not between:
        raise ConfigError(_nothing_left(outputs, pattern, op_types))
    taken = {*between[::step], between[-1]}
    taken |= {outputs[index] for index, bound in ((first, start), (last, end)) if bound is not None}
    return tuple(sorted(taken, key=lambda output: output.index))


def position(outputs: Sequence[NodeOutput], where: Position) -> int:
    """Return the index of a tensor given by name or index. Raises ConfigError with the nearest names."""
    if isinstance(where, str):
        indexes = {output.name: output.index for output in outputs}
        if where in indexes:
            return indexes[where]
        if not re.fullmatch(r"[+-]?\d+", where):
            raise ConfigError(f"the model has no tensor {where!r}{hint(where, indexes)}")
        where = int(where)
    if not 0 <= where < len(outputs):
        raise ConfigError(f"there is no topology index {where}; the model's indices are 0 to {len(outputs) - 1}")
    return where


def by_name(outputs: Sequence[NodeOutput], names: Sequence[str]) -> tuple[NodeOutput, ...]:
    """Return the named tensors, each once, in index order. Raises ConfigError for an unknown name."""
    named = {output.name: output for output in outputs}
    for name in names:
        if name not in named:
            raise ConfigError(f"the model has no tensor {name!r}{hint(name, named)}")
    return tuple(sorted({named[name] for name in names}, key=lambda output: output.index))


def check_list(names: Sequence[str]) -> None:
    """Raise ConfigError for anything but a list of names; a single string would be read character by character."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"tensor names must be a list of strings, not {names!r}")


def _matches(output: NodeOutput, pattern: str | None, op_types: Collection[str]) -> bool:
    return (not op_types or output.op_type in op_types) and (pattern is None or fnmatchcase(output.name, pattern))


def _nothing_left(outputs: Sequence[NodeOutput], pattern: str | None, op_types: Collection[str]) -> str:
    present = sorted({output.op_type for output in outputs})
    for op_type in op_types:
        if op_type not in present:
            return f"the model has no operator {op_type!r}{hint(op_type, present)}"
    filters = [f"the name pattern {pattern!r}"] if pattern is not None else []
    filters += [f"the operator {' or '.join(op_types)}"] if op_types else []
    return f"no tensor between start and end matches {' and '.join(filters)}; change the filter, or use * for all names"
