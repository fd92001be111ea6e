"""Modules that one program has fused, found by their weights: the rows of ``qkv_proj`` are those of q, k and v.

Tensors of such a module have no partner until a name map splits the module (``naming/fused_parts.py``). The findings
contain the required entry of the name map.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sgsdump.comparison.finding import Finding
from sgsdump.dumps.dump import Dump, Network, Record
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.files.mapped import in_memory

FUSED = "fused"
_WEIGHT = ".weight"
_ROUNDED = 0.01  # relative error of a weight after rounding to 16 bits
_MOST_PARTS, _LARGEST = 16, 1 << 26
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def fused_modules(dumps: tuple[Dump, Dump], networks: tuple[Network, Network]) -> Iterator[Finding]:
    """Yield each module whose weight is composed of weights of several modules on the other side.

    A finding holds the entry of a name map that splits the module. Layers of one name pattern are reported once.
    """
    weights = [dict(_weights(dump, network)) for dump, network in zip(dumps, networks)]
    told: set[str] = set()
    for side, name in ((0, "sample"), (1, "benchmark")):
        own, other = weights[side], weights[1 - side]
        free = {module: record for module, record in other.items() if module not in own}
        for module, record in own.items():
            if module in other or (pattern := _NUMBER.sub("*", module)) in told:
                continue
            parts = _parts(record, {path: part for path, part in free.items() if _parent(path) == _parent(module)})
            if len(parts) > 1:
                told.add(pattern)
                entry = {pattern: {"parts": [_NUMBER.sub("*", part) for part in parts], "axis": -1}}
                facts = {"what": FUSED, "side": name, "map": json.dumps(entry)}
                yield Finding("not comparable", module, names=tuple(parts), facts=facts)


def _weights(dump: Dump, network: Network) -> Iterator[tuple[str, Record]]:
    """Yield the path of each module with a two-dimensional weight, and the first record of the weight."""
    told: set[str] = set()
    for record in dump.records:
        operator = network.get(record.op_index)
        name = operator.weights.get((record.io, record.slot), "") if operator is not None else ""
        shape = record.tensor.shape
        if record.io == "in" and name.endswith(_WEIGHT) and name not in told and shape is not None and len(shape) == 2:
            told.add(name)
            yield name.removesuffix(_WEIGHT), record


def _parts(whole: Record, candidates: Mapping[str, Record]) -> list[str]:
    """Return the modules whose weights, one after another, form ``whole``; [] if they do not fill it."""
    if len(candidates) > _MOST_PARTS or not candidates:
        return []
    if (values := _values(whole)) is None:
        return []
    for lying in (values, values.T):
        found: list[str] = []
        start = 0
        while start < len(lying):
            left = (path for path in candidates if path not in found)
            part = next((path for path in left if _rows_alike(lying[start:], candidates[path])), None)
            if part is None:
                break
            found.append(part)
            start += _rows_alike(lying[start:], candidates[part])
        if start == len(lying):
            return found
    return []


def _rows_alike(rows: np.ndarray, part: Record) -> int:
    """Return the number of first rows that equal the part: all rows of the part, or 0."""
    values = _values(part)
    for lying in () if values is None else (values, values.T):
        if 0 < len(lying) <= len(rows) and lying.shape[1] == rows.shape[1]:
            apart = np.linalg.norm(rows[: len(lying)] - lying)
            if apart <= _ROUNDED * np.linalg.norm(lying):
                return len(lying)
    return 0


def _values(record: Record) -> np.ndarray | None:
    shape: Sequence[int] = record.tensor.shape or ()
    if record.tensor.statistics is not None or np.prod(shape) > _LARGEST:
        return None
    try:
        return in_memory(record.tensor.stored_view()).astype(np.float32)
    except FileChanged:
        raise
    except SgsdumpError:
        return None


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
