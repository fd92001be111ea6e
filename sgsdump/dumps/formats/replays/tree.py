"""A folder with ``runs.json`` (``index.py``), or with ``onnxruntime/runs.json`` in it; read only.

A tree that the hooks filled but that was never replayed (the dump was stopped before) is recognised too, to report
that. Beside the runs a folder ``tensors`` may have executions of the same program in ATB's files (``atb_tree``): they
are runs of the tree too. What a run is dumped as, its own format reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.formats.replays import index
from sgsdump.dumps.formats.replays.index import Entry, Index
from sgsdump.dumps.onnx_network import of_nodes
from sgsdump.dumps.runs.run import Run
from sgsdump.errors import FormatError, ValuesError
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.tensor import Tensor, TensorInfo

FOLDER = "onnxruntime"
TENSORS = "tensors"
NOT_COMPLETE = "the program did not come to its end, or not all its runs are here"


def recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and (_folder(path) is not None or _is_not_computed(path))


def owns(path: Path) -> bool:
    return _run_at(path) is not None


def runs(path: Path, notes: list[str]) -> Sequence[Run]:
    listed: list[Run] = []
    folder = _folder(path)
    if folder is not None:
        known = index.read_index(path / folder / index.NAME)
        notes.extend(_notes(known))
        listed = [_below(folder, entry.run) for entry in known.entries]
    if (path / TENSORS).is_dir():
        listed += [_below(TENSORS, run) for run in FORMATS["atb_tree"].runs(path / TENSORS, notes)]
    return listed


def read(path: Path) -> Dump:
    """A run's dump, or the only run of a tree. Raises FormatError."""
    folder = _folder(path) if path.is_dir() else None
    if folder is not None:
        known = index.read_index(path / folder / index.NAME)
        if len(known.entries) != 1:
            raise FormatError(f"{path} holds no run; was anything of the program to be dumped?")
        return _dump_of(path / folder, known, known.entries[0])
    if path.is_dir() and _is_not_computed(path):
        raise FormatError(
            f"{path} holds what a program fed to onnxruntime, its tensors were not computed: the dump was stopped "
            f"before its end; start it again"
        )
    run = _run_at(path)
    if run is None:
        raise FormatError(f"{path} is no run of a tree with an {index.NAME}")
    return _dump_of(*run)


def _run_at(path: Path) -> tuple[Path, Index, Entry] | None:
    """The run whose dump is at a path: the folder of its index, the index, and the run's line in it."""
    for above in path.parents:
        if (above / index.NAME).is_file():
            try:
                known = index.read_index(above / index.NAME)
            except FormatError:
                return None
            place = path.relative_to(above).as_posix()
            return next(((above, known, entry) for entry in known.entries if entry.run.place == place), None)
    return None


def _dump_of(folder: Path, known: Index, entry: Entry) -> Dump:
    path = folder / entry.run.place
    dump = _described(entry, path) if entry.tensors else _plain(path)
    notes = [*dump.notes, *entry.notes, *_notes(known)]
    nodes = known.graphs.get(entry.run.graph, ())
    return Dump(dump.records, dump.format, dump.variant, dump.path, notes, partial(of_nodes, dump.records, nodes))


def _plain(path: Path) -> Dump:
    from sgsdump.dumps.runs.trees import format_of

    dump: Dump = format_of(path).read(path)
    return dump


def _described(entry: Entry, path: Path) -> Dump:
    records = []
    for number, (name, op_type, dtype, shape) in enumerate(entry.tensors):
        info = TensorInfo(name, shape, KNOWN.get(dtype, np.dtype(np.uint8)), op_type=op_type)
        records.append(Record("out", 0, number, op_type, Tensor(info, _no_values)))
    return Dump(records, "replays", None, path)


def _no_values() -> np.ndarray:
    raise ValuesError("the tensor has no values: only its description was dumped")


def _notes(known: Index) -> list[str]:
    return [*known.notes, *([] if known.complete else [NOT_COMPLETE])]


def _folder(path: Path) -> str | None:
    return next((folder for folder in ("", FOLDER) if (path / folder / index.NAME).is_file()), None)


def _is_not_computed(path: Path) -> bool:
    return any(path.glob(f"processes/*/{FOLDER}")) and not (path / TENSORS).exists()


def _below(folder: str, run: Run) -> Run:
    return replace(run, place="/".join(filter(None, (folder, run.place))))


FORMAT = Format("replays", recognises, read, looks_for=f"a {index.NAME}", runs=runs, owns=owns)
