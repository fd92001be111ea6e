"""Reader of a folder of layer traces of TI's TIDL (``debug_level`` 3 or 4).

::

    tidl_trace0072_00001_00256_00010x00014.y                  data id, batch, channels, width x height
    tidl_trace_subgraph_0_0072_…_00256_00010x00014.y          with the number of the subgraph, and further axes
    onnx_tidl_infer.txt_0029_00512_00007x00007_float.bin      older versions: data id, channels, width x height
    subgraph_0_tidl_net.bin.layer_info.txt                    layer id, data id and tensor name in each line

``.y`` files hold the integers of the fixed-point model, or float32 for ``tensor_bits`` 32; ``_float.bin`` files, of
``debug_level`` 4, the same values as float32. If a trace has both, the float32 values are read. The size of the file
gives the bits of the integers; their scale and sign are not recorded. They are read as signed integers without a
scale, which is enough to compare a device with the emulation on the PC.

Tensors are in the order of their data ids, in NCHW. They have the names of ``layer_info.txt``, which the user copies
from ``tempDir`` of the model's artifacts into the folder of the traces (or the folder above). A tensor without a name
is ``data72``, or ``subgraph1/data72``. Traces of several cores (``C7x_1_``) are refused: TI's script
``stitch_multicore_traces.py`` joins them.

Source: the documentation of https://github.com/TexasInstruments/edgeai-tidl-tools (docs/tidl_osr_debug.md) and its
debug scripts. No files of TIDL were available.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Record
from sgsdump.dumps.format import Format, checked_shape
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import is_file, read_all
from sgsdump.files.folder import inside, leads_out
from sgsdump.files.mapped import Source, source_of
from sgsdump.tensors.tensor import Tensor, TensorInfo

MOST_BYTES, MOST_FILES, TRIED = 64 << 20, 200_000, 100
_TRACE = re.compile(
    r"(?P<start>.*?)(?:subgraph_(?P<graph>\d{1,4})_|(?<=trace)|_)(?P<data>\d{4})_(?P<axes>(?:\d{4,6}_){1,4})"
    r"(?P<width>\d{5})x(?P<height>\d{5})(?P<ending>\.y|_float\.bin)",
    re.ASCII,
)
_CORE = re.compile(r"c7x_\d+_", re.ASCII | re.IGNORECASE)
_INFO = re.compile(r"(?:.*subgraph_(\d{1,4})_.*|.*)layer_info\.txt", re.ASCII)
_FLOAT = "_float.bin"


class Trace(NamedTuple):
    """Facts of a file name; ``axes`` are the sizes before height and width, ending in the channels."""

    graph: int
    data: int
    axes: tuple[int, ...]
    height: int
    width: int
    is_float: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape without axes of size 1 before batch and channels."""
        axes = self.axes if len(self.axes) > 1 else (1, *self.axes)
        while len(axes) > 2 and axes[1] == 1:
            axes = (axes[0], *axes[2:])
        return (*axes, self.height, self.width)


def recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and next(_traces(path, TRIED), None) is not None


def read(path: Path) -> Dump:
    """Read a folder of traces; values are loaded on request. Raises FormatError if it has no trace."""
    notes: list[str] = []
    chosen: dict[tuple[int, int], tuple[Trace, str]] = {}
    for trace, name in sorted(_traces(path, MOST_FILES), key=lambda item: (not item[0].is_float, item[1])):
        if _CORE.match(name):
            raise FormatError(f"{path} has traces of several cores. Join them with TI's stitch_multicore_traces.py")
        key = trace.graph, trace.data
        if key in chosen and chosen[key][0].is_float == trace.is_float:
            notes.append(f"{name} is left out: {chosen[key][1]} has the same data id")
        chosen.setdefault(key, (trace, name))
    names = _names(path, notes)
    several = len({graph for graph, _ in chosen}) > 1
    records: list[Record] = []
    integers = 0
    for index, (key, (trace, file)) in enumerate(sorted(chosen.items())):
        name = names.get(key) or f"{f'subgraph{key[0]}/' if several else ''}data{key[1]}"
        try:
            tensor = _tensor(inside(path, file), name, trace)
        except FormatError as error:
            notes.append(Damage.left_out(error))
            continue
        integers += tensor.dtype.kind == "i"
        records.append(Record("out", 0, index, "", tensor))
    if not records:
        raise FormatError(f"{path} has no trace{f' ({notes[-1]})' if notes else ''}")
    if integers:
        notes.append(
            f"{integers} traces are integers without a scale: their sign and scale are not recorded. For real values, "
            "run with debug_level 4"
        )
    return Dump(records, FORMAT.name, None, path, notes)


def _traces(folder: Path, most: int) -> Iterator[tuple[Trace, str]]:
    with os.scandir(folder) as entries:
        for entry in islice(entries, most):
            match = _TRACE.fullmatch(entry.name)
            if match and entry.is_file() and not (entry.is_symlink() and leads_out(Path(entry.path), folder)):
                axes = tuple(int(size) for size in match["axes"].rstrip("_").split("_"))
                sizes = int(match["height"]), int(match["width"])
                graph, is_float = int(match["graph"] or 0), match["ending"] == _FLOAT
                yield Trace(graph, int(match["data"]), axes, *sizes, is_float), entry.name


def _names(folder: Path, notes: list[str]) -> dict[tuple[int, int], str]:
    """Return the tensor name of each subgraph and data id, from the tables beside or above the traces."""
    names: dict[tuple[int, int], str] = {}
    tables = [*_tables(folder)] or [*_tables(folder.absolute().parent)]
    for path, graph in tables:
        for line in read_all(path, MOST_BYTES, "a table of layers").decode("utf-8", "replace").splitlines():
            words = line.split()
            if len(words) > 2 and words[1].isdecimal() and len(words[1]) < 10:
                names.setdefault((graph, int(words[1])), words[2])
    if not names:
        notes.append("no layer_info.txt beside the traces: the tensors are named by their data ids")
    repeated = len(names) - len(set(names.values()))
    if repeated:
        notes.append(f"{repeated} names in layer_info.txt belong to several data ids")
    return names


def _tables(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in sorted(islice(folder.glob("*layer_info.txt"), 100)):
        match = _INFO.fullmatch(path.name)
        if match and is_file(path) and not leads_out(path, folder):
            yield path, int(match[1] or 0)


def _tensor(path: Path, name: str, trace: Trace) -> Tensor:
    source = source_of(path)
    try:
        shape = checked_shape(trace.shape)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    count, size = math.prod(shape), path.stat().st_size
    each = size // count if count and size % count == 0 else 0
    if each not in ((4,) if trace.is_float else (1, 2, 4)):
        raise FormatError(f"{path} has {size} bytes, which do not fit the shape {list(shape)} in its name")
    dtype = np.dtype("<f4" if each == 4 else f"<i{each}")
    return Tensor(TensorInfo(name, shape, dtype), partial(_load, source, dtype, shape))


def _load(source: Source, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    return source.read(0, math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


FORMAT = Format("tidl_traces", recognises, read, looks_for="tidl_trace files of TIDL")
