"""Reader of the snapshot folders that ``accuracy_analysis`` of RKNN-Toolkit2 writes.

::

    snapshot/map_name_to_file.txt      layer name and file name, in the order of the model
    snapshot/error_analysis.txt        operator type of each layer, and the errors of the tool
    snapshot/golden/conv1.txt          float model: a value per line, six decimals
    snapshot/golden/npy/conv1.npy      the same with shape and full precision
    snapshot/simulator/npy/conv1.npy   quantised model on the PC, dequantised
    snapshot/runtime/npy/conv1.npy     quantised model on the device, with ``target``

Both tables have columns of fixed width::

    layer_name                         file_name
    ----------------------------------------------------------------------
    /block/relu1                       _block_relu1.txt

    layer_name                                  simulator_error
                                            entire              single
                                         cos      euc        cos      euc
    ---------------------------------------------------------------------------
    [Conv] conv1
    [Relu] /block/relu1                0.99994 | 0.31845   0.99994 | 0.31845

Each folder is a run; its graph is ``golden``, ``simulator`` or ``runtime``. The folder of a run, and its ``npy``, can
be opened directly. The values of ``simulator`` are those of a run of the whole model (the columns ``entire``). Values
of the columns ``single``, for which each layer read golden inputs, are not written. Tensors have the layer's name, and
the type ``[Input]`` makes them inputs. A layer without a .npy file has the values of its text file, without a shape.

Source: files of RKNN-Toolkit2 2.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.shared import npy_file
from sgsdump.dumps.formats.shared.text_numbers import floats
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import is_file, read_all, read_text
from sgsdump.files.folder import inside, leads_out
from sgsdump.tensors.tensor import Tensor, TensorInfo

MAP, ERRORS, NPY, TEXT = "map_name_to_file.txt", "error_analysis.txt", "npy", ".txt"
MOST_BYTES, MOST_TEXT, MOST_FOLDERS = 16 << 20, 1 << 30, 100
_HEAD = re.compile(r"layer_name\s+file_name\s*")


def recognises(path: Path, head: bytes) -> bool:
    root = _root_of(path) if path.is_dir() else None
    return root is not None and (root != path or any(_folders(root)))


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the folders of a snapshot; none for the folder of a run."""
    return [Run(folder.name, graph=folder.name) for folder in _folders(path)] if _root_of(path) == path else []


def read(path: Path) -> Dump:
    """Read the folder of a run; values are loaded on request. Raises FormatError if it has no tensor."""
    root = _root_of(path)
    if root is None or root == path:
        folders = list(_folders(path))
        if root is None or len(folders) != 1:
            raise FormatError(f"{path} holds {len(folders)} runs. Give the folder of one run")
        path = folders[0]
    folder = path.absolute().parent if path.absolute().name == NPY else path
    notes: list[str] = []
    kinds = _kinds(root, notes)
    records: list[Record] = []
    for index, (name, file) in enumerate(_layers(inside(root, MAP), notes)):
        try:
            tensor = _tensor(folder, name, file, notes)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        kind = kinds.get(name, "")
        records.append(Record("in" if kind == "Input" else "out", 0, index, kind, tensor))
    if not records:
        raise FormatError(f"{path} has no tensor{f' ({notes[0]})' if notes else ''}")
    return Dump(records, FORMAT.name, None, path, notes)


def _root_of(path: Path) -> Path | None:
    """Return the snapshot that contains a folder: the folder itself, its parent, or the parent of that for ``npy``."""
    above = path.absolute().parents[: 2 if path.absolute().name == NPY else 1]
    return next((folder for folder in (path, *above) if is_file(folder / MAP)), None)


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders of a snapshot that hold values; links are skipped."""
    for folder in sorted(islice(root.iterdir(), MOST_FOLDERS)):
        if folder.is_dir() and not folder.is_symlink() and _has_values(folder):
            yield folder


def _has_values(folder: Path) -> bool:
    return (folder / NPY).is_dir() or next(folder.glob(f"*{TEXT}"), None) is not None


def _layers(path: Path, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the file name of each layer. Raises FormatError if the file is not such a table."""
    head, *lines = read_text(path, MOST_BYTES, "a table of layers").split("\n")
    if not _HEAD.fullmatch(head):
        raise FormatError(f"{path} is damaged: its first line is not 'layer_name file_name'")
    column = head.index("file_name")
    if lines and lines[-1]:
        notes.append(Damage(f"{path.name} is cut off in its last line"))
    seen: set[str] = set()
    for number, line in enumerate(lines, 2):
        if not line.strip() or not line.strip("-"):
            continue
        # A name may be longer than its column.
        fits = line[column - 1 : column] == " " and line[column : column + 1].strip()
        name, file = (line[:column], line[column:]) if fits else (line.rpartition(" ")[0], line.rpartition(" ")[2])
        name, file = name.strip(), file.strip()
        if not name or not file.endswith(TEXT) or name in seen:
            notes.append(Damage(f"{path.name}: line {number} is left out: {line[:60]!r} names no layer with a file"))
            continue
        seen.add(name)
        yield name, file


def _kinds(root: Path, notes: list[str]) -> dict[str, str]:
    """Return the operator type of each layer; {} without a table of errors."""
    path = root / ERRORS
    if not is_file(path):
        return {}
    if leads_out(path, root):
        notes.append(f"{ERRORS} is a link out of the folder; it is not read")
        return {}
    lines = read_all(path, MOST_BYTES, "a table of errors").decode("utf-8", "replace").split("\n")
    kinds: dict[str, str] = {}
    for line in lines:
        kind, closed, rest = line.partition("] ")
        if not line.startswith("[") or not closed or not kind[1:].isalnum():
            continue
        name, bar, _ = rest.partition(" | ")
        # The first figure stands between the name and the first bar.
        kinds[(name.rstrip().rpartition(" ")[0] if bar else name).strip()] = kind[1:]
    return kinds


def _tensor(folder: Path, name: str, file: str, notes: list[str]) -> Tensor:
    array = f"{file.removesuffix(TEXT)}.npy"
    if is_file(folder / NPY / array):
        return npy_file.plain_tensor(inside(folder / NPY, array), name, notes)
    path = inside(folder, file)
    return Tensor(TensorInfo(name, None, np.dtype(np.float32)), partial(_values, path))


def _values(path: Path) -> np.ndarray:
    """Return the numbers of a text file. Raises FormatError if it holds anything else."""
    try:
        return floats(read_all(path, MOST_TEXT, "the values of a layer"))
    except ValueError:
        raise FormatError(f"{path} is damaged: it must contain only numbers") from None


FORMAT = Format("rknn_snapshot", recognises, read, looks_for=f"{MAP} of RKNN-Toolkit2", runs=runs)
