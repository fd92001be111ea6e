"""Split a module that is several modules in the other dump: qkv of q, k and v, gate_up of gate and up.

A name map contains the entry, with the axis along which the parts are concatenated::

    {"layers.*.attn.qkv_proj": {"parts": ["layers.*.attn.q_proj", "layers.*.attn.k_proj", "layers.*.attn.v_proj"],
                                "axis": -1}}

The key is the path of a module of either dump, the parts belong to the other dump. ``*`` stands for one part of a path,
equal in all paths. The module's tensors (inputs, operators and outputs, in order) are cut into pieces as long as the
parts' tensors, along the stated axis. For a weight with other axes, the only axis on which the lengths add up is used.
Tensors of one shape everywhere, such as a common input, are compared as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sgsdump.comparison.alignment import Pair
from sgsdump.dumps.dump import Dump, Network, Record
from sgsdump.errors import ConfigError, listed
from sgsdump.files.mapped import in_memory
from sgsdump.tensors.tensor import Tensor

SIDES = ("sample", "benchmark")
WHOLE = "whole, beside its parts"
_Key = tuple[bool, str, str, int]


@dataclass(frozen=True)
class Fused:
    """Module and its parts by path, in their order along ``axis``."""

    name: str
    parts: tuple[str, ...]
    axis: int


def split_fused(
    dumps: tuple[Dump, Dump], networks: tuple[Network, Network], fused: Sequence[Fused]
) -> tuple[tuple[Dump, Dump], tuple[Pair, ...]]:
    """Return both dumps with the tensors of fused modules in pieces, and the pairs of pieces and parts.

    Raises ConfigError for a module that neither dump has, and for parts that the other dump lacks.
    """
    pieces: tuple[dict[int, list[Record]], dict[int, list[Record]]] = ({}, {})
    pairs: list[Pair] = []
    tensors = [_by_module(dump, network) for dump, network in zip(dumps, networks)]
    for one in fused:
        found = [(side, path, parts) for side in (0, 1) for path, parts in _fitting(one, tensors[side])]
        found = [each for each in found if any(part in tensors[1 - each[0]] for part in each[2])]
        if not found:
            raise ConfigError(
                f"the name map splits module {one.name} into parts, but the dumps do not match this entry: one dump "
                f"must contain this module, and the other dump its parts ({listed(one.parts, 3)})"
            )
        for side, path, parts in found:
            missing = [part for part in parts if part not in tensors[1 - side]]
            if missing:
                raise ConfigError(
                    f"the name map splits module {path} of the {SIDES[side]} into parts, but the "
                    f"{SIDES[1 - side]} does not contain the part {missing[0]}"
                )
            of_parts = [tensors[1 - side][part] for part in parts]
            for how, record, cut, part in _taken_apart(one.axis, path, tensors[side][path], of_parts):
                pieces[side].setdefault(id(record), []).append(cut)
                pair = (cut, part) if side == 0 else (part, cut)
                note = f"{how[1]} of {path}"
                pairs.append(Pair(*pair, how[0], note))
    cut_dumps = [
        dump.with_records([piece for record in dump.records for piece in of.get(id(record), [record])], dump.variant)
        for dump, of in zip(dumps, pieces)
    ]
    return (cut_dumps[0], cut_dumps[1]), tuple(pairs)


def fused_of(name: str, entry: Mapping[str, Any]) -> Fused | None:
    """Return the entry of a name map, or None if its form differs."""
    parts, axis = entry.get("parts"), entry.get("axis")
    if not isinstance(parts, list) or len(parts) < 2 or not all(isinstance(part, str) for part in parts):
        return None
    return Fused(name, tuple(parts), axis) if type(axis) is int and set(entry) == {"parts", "axis"} else None


def _by_module(dump: Dump, network: Network) -> dict[str, list[tuple[_Key, Record]]]:
    """Return the tensors of each module in order, each with its role."""
    found: dict[str, list[tuple[_Key, Record]]] = {}
    for record in dump.records:
        operator = network.get(record.op_index)
        if operator is not None and operator.module:
            key = (operator.is_module, "" if operator.is_module else operator.kind, record.io, record.slot)
            found.setdefault(operator.module, []).append((key, record))
    return found


def _fitting(fused: Fused, modules: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules that match a key, each with its parts."""
    pattern = re.compile("([^.]*)".join(map(re.escape, fused.name.split("*"))))
    for path in modules:
        match = pattern.fullmatch(path)
        if match is not None:
            yield path, [_filled(part, match.groups()) for part in fused.parts]


def _filled(part: str, words: Sequence[str]) -> str:
    pieces = part.split("*")
    return pieces[0] + "".join(word + piece for word, piece in zip(words, pieces[1:]))


def _taken_apart(
    axis: int, path: str, whole: Sequence[tuple[_Key, Record]], parts: Sequence[Sequence[tuple[_Key, Record]]]
) -> Iterator[tuple[tuple[str, str], Record, Record, Record]]:
    """Yield for each tensor of the module and each part: how, the tensor, its piece, and the part's tensor."""
    if any([key for key, _ in part] != [key for key, _ in whole] for part in parts):
        whole, parts = _of_modules(whole), [_of_modules(part) for part in parts]  # different operators inside
    if any(len(part) != len(whole) for part in parts):
        return
    for number, (_, record) in enumerate(whole):
        others = [part[number][1] for part in parts]
        shapes = [other.tensor.shape for other in others]
        cut = _axis(axis, record.tensor.shape, shapes)
        if cut is None or record.tensor.info.quant is not None:
            continue
        starts = np.cumsum([0, *(0 if cut < 0 else shape[cut] for shape in shapes if shape is not None)]).tolist()
        for place, other in enumerate(others):
            which = f"part {place + 1} of {len(others)}"
            if cut < 0:
                yield (WHOLE, which), record, _piece(record, f"{record.name} for {which}", None), other
            elif record.tensor.statistics is None:
                index = (slice(None),) * cut + (slice(starts[place], starts[place + 1]),)
                yield (f"part on axis {cut}", which), record, _piece(record, f"{record.name} {which}", index), other


def _of_modules(tensors: Sequence[tuple[_Key, Record]]) -> list[tuple[_Key, Record]]:
    return [(key, record) for key, record in tensors if key[0]]


def _axis(stated: int, whole: tuple[int, ...] | None, parts: Sequence[tuple[int, ...] | None]) -> int | None:
    """Return the axis along which the parts' lengths add up to the whole: the stated axis, else the only one.

    -1 if all shapes are equal, None if nothing fits.
    """
    shapes = [shape for shape in parts if shape is not None]
    if whole is None or len(shapes) < len(parts) or any(len(shape) != len(whole) for shape in shapes):
        return None
    if all(shape == whole for shape in shapes):
        return -1
    fitting = [
        axis
        for axis in range(len(whole))
        if sum(shape[axis] for shape in shapes) == whole[axis]
        and all(shape[:axis] + shape[axis + 1 :] == whole[:axis] + whole[axis + 1 :] for shape in shapes)
    ]
    wanted = stated + len(whole) if stated < 0 else stated
    return wanted if wanted in fitting else fitting[0] if len(fitting) == 1 else None


def _piece(record: Record, name: str, index: tuple[slice, ...] | None) -> Record:
    tensor = record.tensor
    if index is None:
        info = replace(tensor.info, name=name)
        return replace(record, tensor=Tensor(info, tensor.raw_view, tensor.statistics))
    shape = tensor.shape or ()
    axis = len(index) - 1
    length = index[axis].stop - index[axis].start
    info = replace(tensor.info, name=name, shape=(*shape[:axis], length, *shape[axis + 1 :]))
    return replace(record, tensor=Tensor(info, partial(_loaded, tensor, index)))


def _loaded(tensor: Tensor, index: tuple[slice, ...]) -> np.ndarray:
    return np.ascontiguousarray(in_memory(tensor.stored_view()[index]))
