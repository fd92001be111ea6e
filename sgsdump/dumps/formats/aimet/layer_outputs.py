"""Reader of the folders that AIMET's ``LayerOutputUtil`` writes.

::

    layer_output_name_order.json               {"layer_output_names": ["data", "_conv1_Conv_output_0", …]}
    inputs/input_0.raw                         input of the first call; not read
    outputs/layer_outputs_0/_conv1_Conv_output_0.raw
                                               float32 values of the first call, without a header

Each folder ``layer_outputs_N`` is a run with step N, and can be opened directly. In the names, each row of characters
other than letters, digits and ``_`` is one ``_``. Shapes and element types are not recorded: tensors are flat, and all
values are read as float32. The order is that of the list, which AIMET shuffles for quantised models.

Source: files of aimet-onnx 2.42.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format, json_object
from sgsdump.dumps.runs import Run
from sgsdump.errors import FormatError, listed
from sgsdump.files.bounded_read import is_file, open_file, read_all, reading
from sgsdump.files.folder import in_order, inside, leads_out
from sgsdump.files.mapped import Source, source_of
from sgsdump.tensors.tensor import Tensor, TensorInfo

LIST, OUTPUTS, ENDING, KEY = "layer_output_name_order.json", "outputs", ".raw", "layer_output_names"
MOST_BYTES, MOST_FILES = 16 << 20, 100_000
_RUN = re.compile(r"layer_outputs_([0-9]{1,9})")
_DTYPE = np.dtype("<f4")


def recognises(path: Path, head: bytes) -> bool:
    root = _root_of(path) if path.is_dir() else None
    return root is not None and (_is_run(path) or any(_runs(root)))


def runs(path: Path, notes: list[str]) -> list[Run]:
    """Return the folders ``layer_outputs_N``; none for the folder of a run."""
    root = _root_of(path)
    if root is None or _is_run(path):
        return []
    return [Run(os.path.relpath(folder, path), step=step) for step, folder in sorted(_runs(root))]


def read(path: Path) -> Dump:
    """Read the folder of a run; values are loaded on request. Raises FormatError if it has no tensor."""
    root = _root_of(path)
    if root is None or not _is_run(path):
        found = [] if root is None else sorted(_runs(root))
        if len(found) != 1:
            raise FormatError(f"{path} holds {len(found)} runs. Name one run")
        path = found[0][1]
    assert root is not None
    notes: list[str] = []
    names = _names(inside(root, LIST))
    files = {name.removesuffix(ENDING): name for name in _files(path)}
    absent = [name for name in names if name not in files]
    if absent:
        notes.append(Damage(f"{LIST} lists {len(absent)} layers without a file: {listed(absent)}"))
    order = [*(name for name in names if name in files), *sorted(files.keys() - set(names), key=in_order)]
    records: list[Record] = []
    for index, name in enumerate(order):
        try:
            tensor = _tensor(inside(path, files[name]), name)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        records.append(Record("out", 0, index, "", tensor))
    if not records:
        raise FormatError(f"{path} has no tensor{f' ({notes[-1]})' if notes else ''}")
    return Dump(records, FORMAT.name, None, path, notes)


def _is_run(path: Path) -> bool:
    return _RUN.fullmatch(path.absolute().name) is not None


def _root_of(path: Path) -> Path | None:
    """Return the folder with the list: the folder itself, or one of the two above it."""
    place = path.absolute()
    above = place.parents[:2] if _is_run(place) else place.parents[:1] if place.name == OUTPUTS else ()
    return next((folder for folder in (path, *above) if is_file(folder / LIST)), None)


def _runs(root: Path) -> Iterator[tuple[int, Path]]:
    """Yield the number and the folder of each run; links are skipped."""
    folder = root / OUTPUTS
    if not folder.is_dir() or folder.is_symlink():
        return
    for place in islice(folder.iterdir(), MOST_FILES):
        match = _RUN.fullmatch(place.name)
        if match is not None and place.is_dir() and not place.is_symlink():
            yield int(match[1]), place


def _names(path: Path) -> list[str]:
    document = json_object(read_all(path, MOST_BYTES, "a list of layers"))
    names = None if document is None else document.get(KEY)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FormatError(f"{path} is damaged: it has no list {KEY!r}. Write the layer outputs again")
    return list(dict.fromkeys(names))


def _files(folder: Path) -> list[str]:
    with reading(folder), os.scandir(folder) as entries:
        return [
            entry.name
            for entry in islice(entries, MOST_FILES)
            if entry.name.endswith(ENDING) and not (entry.is_symlink() and leads_out(Path(entry.path), folder))
        ]


def _tensor(path: Path, name: str) -> Tensor:
    with reading(path), open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
    if not size or size % _DTYPE.itemsize:
        raise FormatError(f"{path} has {size} bytes, which are not float32 values. Write the layer outputs again")
    shape = (size // _DTYPE.itemsize,)
    return Tensor(TensorInfo(name, None, _DTYPE), partial(_load, source_of(path), shape[0]))


def _load(source: Source, count: int) -> np.ndarray:
    return source.read(0, count * _DTYPE.itemsize).view(_DTYPE)


FORMAT = Format("aimet_outputs", recognises, read, looks_for=f"a {LIST} of AIMET", runs=runs)
