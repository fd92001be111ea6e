"""Detection of operators that overwrite the output of another operator, from a watcher's dump.

A watcher's dump holds snapshots of the same output at several moments. ``C:output:0`` was taken after C ran,
``A_To_C:output:0`` after A ran. Each snapshot is compared bit by bit with the one before. A change is reported once, at
the first snapshot that differs. The cause is A, or an unlisted operator that ran between the two snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ValuesError
from sgsdump.tensors.tensor import Tensor

_LINK = "_To_"


class Change(NamedTuple):
    """A watched output whose values changed.

    name       name of the output, ``C:output:0``.
    operator   first listed operator after which the output differs.
    op_type    type of that operator.
    unchanged  operator after which the previous snapshot was taken: C itself or a listed operator.
    values     number of differing values; 0 if only statistics were dumped.
    total      number of values.
    largest    largest difference of finite values; None if there is none, or if no values were dumped.
    """

    name: str
    operator: str
    op_type: str
    unchanged: str
    values: int
    total: int
    largest: float | None


class WatchedChanges(NamedTuple):
    """Changes in time order, the number of watched outputs, and the number of snapshots after other operators."""

    changes: tuple[Change, ...]
    outputs: int
    looks: int

    @property
    def first(self) -> Change | None:
        return self.changes[0] if self.changes else None


def watched_changes(dump: Dump) -> WatchedChanges:
    """Return the changes in a watcher's dump. Raises ValuesError for any other dump."""
    outputs = [record for record in dump.records if record.io == "out" and not record.constant]
    names = {record.name for record in outputs}
    last: dict[str, tuple[str, Tensor]] = {}
    changes: list[Change] = []
    looks = 0
    for record in outputs:
        listed, name = _split(record.name, names)
        before = last.get(name)
        operator = listed or name.rpartition(":output:")[0]
        last[name] = operator, record.tensor
        if not listed or before is None:
            continue
        looks += 1
        changes.extend(_changed(name, listed, record, *before))
    if not looks:
        raise ValuesError(
            f"{dump.path} is not a watcher dump: no output was dumped again after a later "
            "operator. To compare two dumps, also give the reference dump"
        )
    return WatchedChanges(tuple(changes), len({_split(name, names)[1] for name in names}), looks)


def _split(name: str, names: set[str]) -> tuple[str, str]:
    """Split ``A_To_C:output:0`` into A and ``C:output:0`` if C itself was dumped; else return "" and the name."""
    at = name.find(_LINK)
    while at > 0:
        if name[at + len(_LINK) :] in names:
            return name[:at], name[at + len(_LINK) :]
        at = name.find(_LINK, at + 1)
    return "", name


def _changed(name: str, listed: str, record: Record, unchanged: str, before: Tensor) -> Iterator[Change]:
    now = record.tensor
    try:
        arrays: Sequence[np.ndarray] = [np.ascontiguousarray(tensor.stored()) for tensor in (before, now)]
    except ValuesError:
        if before.statistics != now.statistics:
            yield Change(name, listed, record.op_type, unchanged, 0, 0, None)
        return
    old, new = arrays
    total = new.size
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        yield Change(name, listed, record.op_type, unchanged, total, total, None)
        return
    size = old.dtype.itemsize
    apart = (old.reshape(-1).view(np.uint8) != new.reshape(-1).view(np.uint8)).reshape(-1, size).any(axis=1)
    if apart.any():
        values = int(np.count_nonzero(apart))
        yield Change(name, listed, record.op_type, unchanged, values, total, _largest(old, new, apart))


def _largest(old: np.ndarray, new: np.ndarray, apart: np.ndarray) -> float | None:
    with np.errstate(invalid="ignore", over="ignore"):
        kind = np.complex128 if old.dtype.kind == "c" else np.float64
        distances = np.abs(new.reshape(-1)[apart].astype(kind) - old.reshape(-1)[apart].astype(kind))
    finite = distances[np.isfinite(distances)]
    return float(finite.max()) if finite.size else None
