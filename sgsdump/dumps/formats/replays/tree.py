"""Reader of trees of replayed runs: runs of a program that sgsdump recomputed from the program's models and inputs.

Such a tree has ``runs.json`` or ``onnxruntime/runs.json``. It holds one dump per run, in any format. ``runs.json`` is
written after all runs::

    {"sgsdump_runs": 1, "complete": true, "notes": [text …],
     "runs": [{"place": "0_4711/net/0/3.bin", "step": 3, "rank": 0, "graph": "net/0", "fed": "5f0c21a7", "thread": 0,
               "notes": [text …],
               "outputs": [{"name": "prob", "equal": false, "max_abs": 3e-8, "relative": 1e-7}],
               "tensors": [["conv1", "Conv", "float32", [1, 8, 32, 32]] …]}],
     "graphs": {"net/0": [["conv1", "Conv", ["data", "conv1.weight"], ["conv1"], "layer1.0", {"group": "1"}] …]}}

place    path of the run's dump, relative to the index; the format of the dump reads it.
tensors  for a run without a dump: name, type, dtype and shape of each tensor.
fed      CRC-32 of the run's inputs (absent in older files).
thread   number of the run's thread (absent in older files).
outputs  comparison of the run's outputs with the program's own outputs.
graphs   nodes of each model: name, type, input names, output names, module (if not part of the name), attributes as
         JSON. Older files have neither module nor attributes.

If the dump was stopped before the replay, the tree has inputs but no results; it is recognised to report this. Folders
``rounds`` and ``tensors`` beside the runs hold what torch computed in the same program (formats ``rounds`` and
``atb_tree``); they are runs of the tree too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.onnx_network import Node, of_nodes
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError, ValuesError
from sgsdump.files.bounded_read import read_all
from sgsdump.files.json_yaml import json_of
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.tensor import Tensor, TensorInfo

NAME = "runs.json"
MARK = "sgsdump_runs"
MOST_BYTES = 256 << 20
FOLDER = "onnxruntime"
TENSORS, ROUNDS = "tensors", "rounds"
NOT_COMPLETE = "the program did not finish, or some of its runs are missing"


@dataclass(frozen=True)
class Entry:
    """One run; ``tensors`` has name, operator type, dtype and shape of each tensor if the run has no dump."""

    run: Run
    notes: tuple[str, ...] = ()
    outputs: tuple[Mapping[str, Any], ...] = ()
    tensors: tuple[tuple[str, str, str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Index:
    """Content of ``runs.json``; ``complete`` if the program finished and all requested runs are present."""

    entries: tuple[Entry, ...]
    complete: bool = True
    notes: tuple[str, ...] = ()
    graphs: Mapping[str, tuple[Node, ...]] = field(default_factory=dict, hash=False)


def text_of(index: Index) -> str:
    runs = [
        {
            **{"place": entry.run.place, "step": entry.run.step, "rank": entry.run.rank, "graph": entry.run.graph},
            **{"fed": entry.run.fed, "thread": entry.run.thread, "notes": entry.notes, "outputs": entry.outputs},
            **({"tensors": entry.tensors} if entry.tensors else {}),
        }
        for entry in index.entries
    ]
    document = {MARK: 1, "complete": index.complete, "notes": index.notes, "runs": runs, "graphs": index.graphs}
    return json.dumps(document, indent=1) + "\n"


def read_index(path: Path) -> Index:
    """Read an index that ``text_of`` wrote. Raises FormatError for any other file."""
    data = read_all(path, MOST_BYTES, "an index of runs")
    try:
        document = json_of(data.decode("utf-8"), path)
        if document[MARK] != 1:
            raise FormatError(f"{path} was written by a newer version of sgsdump. Update sgsdump")
        entries = tuple(_entry(entry_json) for entry_json in document["runs"])
        graphs = {_text(name): tuple(map(_node, nodes)) for name, nodes in dict(document.get("graphs", {})).items()}
        return Index(entries, document["complete"] is True, _texts(document["notes"]), graphs)
    except (UnicodeDecodeError, LookupError, TypeError, ValueError, OverflowError):
        raise FormatError(f"{path} is damaged: it is not an index of runs") from None


def recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and (_folder(path) is not None or _is_not_computed(path))


def owns(path: Path) -> bool:
    return _run_at(path) is not None


def runs(path: Path, notes: list[str]) -> Sequence[Run]:
    listed: list[Run] = []
    folder = _folder(path)
    if folder is not None:
        tree_index = read_index(path / folder / NAME)
        notes.extend(_notes(tree_index))
        listed = [_below(folder, entry.run) for entry in tree_index.entries]
    if (path / ROUNDS).is_dir():
        listed += FORMATS["rounds"].runs(path, [])
    if (path / TENSORS).is_dir():
        listed += [_below(TENSORS, run) for run in FORMATS["atb_tree"].runs(path / TENSORS, notes)]
    return listed


def read(path: Path) -> Dump:
    """Read the dump of a run, or of the only run of a tree. Raises FormatError."""
    folder = _folder(path) if path.is_dir() else None
    if folder is not None:
        tree_index = read_index(path / folder / NAME)
        if len(tree_index.entries) != 1:
            raise FormatError(
                f"{path} holds no run. Check that the options of the dump select steps and operators that "
                "the program ran"
            )
        return _dump_of(path / folder, tree_index, tree_index.entries[0])
    if path.is_dir() and _is_not_computed(path):
        raise FormatError(
            f"{path} holds only the inputs that a program passed to onnxruntime: the dump was stopped "
            "before the tensors were computed. Run the dump again"
        )
    run = _run_at(path)
    if run is None:
        raise FormatError(f"{path} is not a run of a dump tree: no {NAME} in a parent folder lists this path")
    return _dump_of(*run)


def _entry(entry_json: Mapping[str, Any]) -> Entry:
    place = PurePosixPath(_text(entry_json["place"]))
    if place.is_absolute() or ".." in place.parts:
        raise ValueError(place)
    step, rank = (None if entry_json[name] is None else int(entry_json[name]) for name in ("step", "rank"))
    tensors = tuple(
        (_text(name), _text(kind), _text(dtype), tuple(map(int, shape)))
        for name, kind, dtype, shape in entry_json.get("tensors", ())
    )
    outputs = tuple(dict(output) for output in entry_json["outputs"])
    thread, fed = entry_json.get("thread"), _text(entry_json.get("fed", ""))
    run = Run(
        str(place), rank, step, _text(entry_json["graph"]), fed=fed, thread=None if thread is None else int(thread)
    )
    return Entry(run, _texts(entry_json["notes"]), outputs, tensors)


def _node(node: Sequence[Any]) -> Node:
    name, kind, reads, makes = node[:4]
    module = node[4] if len(node) > 4 else ""
    attributes = node[5] if len(node) > 5 else {}
    of_name = {_text(key): _text(value) for key, value in dict(attributes).items()}
    return _text(name), _text(kind), list(_texts(reads)), list(_texts(makes)), _text(module), of_name


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _run_at(path: Path) -> tuple[Path, Index, Entry] | None:
    """Return the run whose dump is at a path: folder of the index, index, and the run's entry; else None."""
    for above in path.parents:
        if (above / NAME).is_file():
            try:
                tree_index = read_index(above / NAME)
            except FormatError:
                return None
            place = path.relative_to(above).as_posix()
            return next(((above, tree_index, entry) for entry in tree_index.entries if entry.run.place == place), None)
    return None


def _dump_of(folder: Path, tree_index: Index, entry: Entry) -> Dump:
    path = folder / entry.run.place
    if path == folder and not entry.tensors:
        raise FormatError(f"{folder / NAME} is damaged: the entry of a run has neither tensors nor a separate folder")
    dump = _described(entry, path) if entry.tensors else _plain(path)
    notes = [*dump.notes, *entry.notes, *_notes(tree_index)]
    nodes = tree_index.graphs.get(entry.run.graph, ())
    return Dump(dump.records, dump.format, dump.variant, dump.path, notes, partial(of_nodes, dump.records, nodes))


def _plain(path: Path) -> Dump:
    from sgsdump.dumps.trees import format_of

    dump: Dump = format_of(path).read(path)
    return dump


def _described(entry: Entry, path: Path) -> Dump:
    records = []
    for number, (name, op_type, dtype, shape) in enumerate(entry.tensors):
        info = TensorInfo(name, shape, KNOWN.get(dtype, np.dtype(np.uint8)), op_type=op_type)
        records.append(Record("out", 0, number, op_type, Tensor(info, _no_values)))
    return Dump(records, "replays", None, path)


def _no_values() -> np.ndarray:
    raise ValuesError("the tensor has no values: only its name, type and shape were dumped")


def _notes(tree_index: Index) -> list[str]:
    return [*tree_index.notes, *([] if tree_index.complete else [NOT_COMPLETE])]


def _folder(path: Path) -> str | None:
    return next((folder for folder in ("", FOLDER) if (path / folder / NAME).is_file()), None)


def _is_not_computed(path: Path) -> bool:
    return any(path.glob(f"processes/*/{FOLDER}")) and not any((path / each).exists() for each in (TENSORS, ROUNDS))


def _below(folder: str, run: Run) -> Run:
    return replace(run, place="/".join(filter(None, (folder, run.place))))


FORMAT = Format("replays", recognises, read, looks_for=f"a {NAME}", runs=runs, owns=owns)
