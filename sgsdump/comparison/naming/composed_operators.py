"""Rules for operators that one library computes as one operator or module and another as several.

``ends_of_modules``: a module without recorded operators (torch's hooks record only modules) is paired with the last
operator that the other side runs in it. Examples: a Linear with three dimensions is MatMul and Add in ONNX, a GELU is
five nodes. As a last resort, modules with entirely different operators are paired in the same way, such as a GRU, which
is one operator in ONNX.

``ends_of_operators``: an operator of ``SIGNATURES`` is paired with the last of the operators that compute it. They are
found from the operator that no other function contains.

``moved``: operators that only move values (Reshape, Transpose) are paired if they move the same values to the same
positions.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sgsdump.comparison.naming.network import Node, Nodes, plain
from sgsdump.tensors.types import nchw_shape

MOVING = frozenset(("reshape", "transpose"))
_UNCHANGED = "identity"
# Operator -> kinds of which one occurs among the operators that compute it.
SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "gelu": ("erf", "tanh"),
    "layer_norm": ("sqrt",),
    "scaled_dot_product_attention": ("softmax",),
    "silu": ("sigmoid",),
}
# Moves of larger tensors are not followed.
MOST_VALUES = 1 << 22


class ModuleEnd(NamedTuple):
    """Module of one side, and the other side's operators in it; ``last`` has the module's output."""

    module: Node
    last: Node
    members: tuple[Node, ...]


def ends_of_modules(modules: Nodes, operators: Nodes, outer: bool = False) -> list[ModuleEnd]:
    """Return the modules that ran once and contain no operators, with their end on the other side.

    With ``outer``, return the modules that contain operators instead.
    """
    inside: defaultdict[str, list[Node]] = defaultdict(list)
    for node in operators.inner:
        path = "" if node.is_module else node.module
        while path:
            inside[path].append(node)
            path = path.rpartition(".")[0]
    calls: defaultdict[str, list[Node]] = defaultdict(list)
    for node in modules:
        if node.is_module:
            calls[node.module].append(node)
    ends = []
    for path, (module, *more) in calls.items():
        last = operators.exit(inside.get(path, ()))
        if not more and module.is_outer == outer and last is not None:
            ends.append(ModuleEnd(module, last, tuple(inside[path])))
    return ends


def ends_of_operators(side: Nodes, other: Nodes, paired: Collection[Node]) -> list[tuple[Node, Node]]:
    """Return unpaired operators of ``side`` that the other side splits, with the last of its parts."""
    ends = []
    for kind, signature in SIGNATURES.items():
        one, several = (
            _by_module(node for node in nodes.inner if node not in paired and node.kind in kinds)
            for nodes, kinds in ((side, (kind,)), (other, signature))
        )
        for module, nodes in one.items():
            starts = several.get(module, ())
            if len(nodes) != len(starts):
                continue
            for node, start in zip(nodes, starts):
                last = _last_from(other, start, paired)
                if last is not None and last is not start and _shape(last) == _shape(node):
                    ends.append((node, last))
    return ends


def moved(sides: tuple[Nodes, Nodes], ends: Sequence[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
    """Return pairs of operators that move values of paired tensors to the same positions; ``ends`` are all pairs."""
    found = []
    for index, nodes in enumerate(sides):
        sources = {pair[index]: number for number, pair in enumerate(ends)}
        by_key: defaultdict[tuple, list[Node]] = defaultdict(list)
        for node in nodes.inner:
            key = _arrangement(nodes, node, sources) if node.kind in MOVING and node not in sources else None
            if key is not None:
                by_key[key].append(node)
        found.append(by_key)
    mine, theirs = found
    return [pair for key, nodes in mine.items() for pair in zip(nodes, theirs.get(key, ()))]


def _by_module(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    groups: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        groups[node.module].append(node)
    return groups


def _last_from(nodes: Nodes, start: Node, paired: Collection[Node]) -> Node | None:
    """Return the exit of the operators computed from ``start``, up to paired operators."""
    members, following = {start: None}, {start}
    for node in nodes.inner[nodes.inner.index(start) + 1 :]:
        makers = {maker for maker in nodes.feeding[node.place] if maker in following}
        if not makers:
            continue
        following.add(node)
        if makers <= members.keys() and node not in paired and node.kind not in MOVING:
            members[node] = None
    return nodes.exit(members)


def _shape(node: Node) -> tuple[int, ...] | None:
    """Return the shape of the first output in the model's order of axes."""
    record = node.outputs.get(0)
    shape = record.tensor.shape if record is not None else None
    if record is None or shape is None or len(shape) != 4 or record.tensor.info.layout != "NHWC":
        return shape
    return nchw_shape(shape)


def _arrangement(nodes: Nodes, node: Node, sources: Mapping[Node, int]) -> tuple | None:
    """Return the source of moved values, their shape and the position of each value; None if unknown."""
    chain: list[Node] = []
    at: Node | None = node
    while at is not None and at not in sources:
        if at.kind not in (*MOVING, _UNCHANGED):
            return None
        chain.append(at)
        makers = nodes.feeding.get(at.place, ())
        at = makers[0] if makers else None
    shape = _shape(at) if at is not None else None
    if at is None or shape is None or math.prod(shape) > MOST_VALUES:
        return None
    positions = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    for step in reversed(chain):
        made = _shape(step)
        if step.kind == "transpose":
            axes = _axes(step, positions.ndim)
            if axes is None:
                return None
            positions = positions.transpose(axes)
        elif step.kind == "reshape":
            if made is None or math.prod(made) != positions.size:
                return None
            positions = positions.reshape(made)
    order = hashlib.blake2b(np.ascontiguousarray(positions).data, digest_size=16).digest()
    return sources[at], positions.shape, order


def _axes(node: Node, rank: int) -> list[int] | None:
    """Return the permutation of a transposition from its ONNX or torch arguments."""
    arguments = node.arguments
    try:
        if "dim0" in arguments:
            axes = list(range(rank))
            first, second = (int(arguments[name]) % rank for name in ("dim0", "dim1"))
            axes[first], axes[second] = axes[second], axes[first]
            return axes
        given = arguments.get("perm") or arguments.get("dims")
        if given is not None:
            axes = [int(axis) % rank for axis in json.loads(str(given))]
            return axes if sorted(axes) == list(range(rank)) else None
    except (ValueError, TypeError, KeyError, ZeroDivisionError, RecursionError):
        return None
    return list(range(rank))[::-1] if plain(node.word) in ("t", "transpose") and not arguments else None
