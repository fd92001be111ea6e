"""Readers of the dump of TVM's debug executor, and of a single file of TVM parameters.

::

    _tvmdbg_device_CPU_0/output_tensors.params        result of each node of the graph
    _tvmdbg_device_CPU_0/_tvmdbg_graph_dump.json      nodes of the graph

    params := F7E58D4F05049CB7 u64 | 0 u64 | count u64 | (length u64, name)* | count u64 | tensor*
    tensor := DD5E40F096B4A13F u64 | 0 u64 | device type, device id i32 | rank i32
              | type code, bits u8, lanes u16 | sizes i64* | bytes i64 | values

All numbers are little-endian. Type codes are 0 (int), 1 (uint), 2 (float), 4 (bfloat) and 6 (bool). The names in a dump
are ``NODE____topo-index:I____output-num:J``; a node's name may occur several times. The JSON lists the nodes in the
order of the graph::

    {"nodes": [{"op": "param", "name": "data", "inputs": [], "attrs": {"T": "type: float32"}, "shape": [1, 3, 2, 2]},
               {"op": "tvmgen_default_fused_nn_relu", "name": …, "inputs": ["data"], "attrs": {…}, "shape": […]}], …}

A tensor is named ``NODE``, or ``NODE:J`` for output J > 0; a repeated name gets the index of its node,
``NODE#I``. ``Dump.network`` has the nodes with their inputs. Nodes of type ``param`` are inputs and weights, which the
dump does not distinguish: they are outputs here, so they are compared. In a file without such names, as of trained
weights, the tensors keep their names.

Sources: the params file, of TVM 0.27 (``tvm.runtime.save_param_dict``); names and JSON, of the published sources of TVM
(python/tvm/contrib/debugger/debug_result.py). The debug executor itself, which TVM 0.27 no longer has, was not run.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Operator, Record, Value
from sgsdump.dumps.format import Format, checked_shape, json_object
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import is_file, read_all
from sgsdump.files.folder import inside, leads_out
from sgsdump.files.mapped import MappedFile, loader, map_file
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.tensor import Tensor, TensorInfo

MAGIC, TENSOR_MAGIC = struct.pack("<Q", 0xF7E58D4F05049CB7), 0xDD5E40F096B4A13F
PARAMS, GRAPH = "output_tensors.params", "_tvmdbg_graph_dump.json"
MOST_BESIDE, MOST_TENSORS, MOST_NAME, MOST_RANK, MOST_JSON = 1000, 1_000_000, 1 << 16, 32, 256 << 20
_NODE = re.compile(r"(.*)____topo-index:(\d{1,9})____output-num:(\d{1,9})", re.DOTALL)
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}


class Node(NamedTuple):
    """Place of a tensor: node name, number of the node in the graph, and number of the output."""

    name: str
    number: int
    output: int


def recognises(path: Path, head: bytes) -> bool:
    return path.is_dir() and _folder_of(path) is not None


def read(path: Path) -> Dump:
    """Read the folder of a debug executor; values are loaded on request. Raises FormatError."""
    folder = _folder_of(path)
    if folder is None:
        raise FormatError(f"{path} has no {PARAMS}")
    notes: list[str] = []
    graph = _nodes(folder, notes)
    return _dump(inside(folder, PARAMS), graph, FORMAT.name, path, notes)


def _recognises_file(path: Path, head: bytes) -> bool:
    return head.startswith(MAGIC)


def _read_file(path: Path) -> Dump:
    """Read a file of parameters, with the graph beside it if there is one. Raises FormatError."""
    notes: list[str] = []
    graph = _nodes(path.parent, notes) if path.name == PARAMS else []
    return _dump(path, graph, FILE.name, path, notes)


def _folder_of(path: Path) -> Path | None:
    """Return the folder with the tensors: the path, or the only folder ``_tvmdbg_*`` in it."""
    if is_file(path / PARAMS):
        return path
    with suppress(OSError), os.scandir(path) as entries:
        names = [entry.name for entry in islice(entries, MOST_BESIDE) if entry.name.startswith("_tvmdbg_")]
        found = [path / name for name in names[:100] if is_file(path / name / PARAMS)]
        return found[0] if len(found) == 1 and not leads_out(found[0], path) else None
    return None


def _dump(file: Path, graph: list[Any], format: str, path: Path, notes: list[str]) -> Dump:
    tensors = list(_tensors(file))
    if not tensors:
        raise FormatError(f"{path} has no tensor")
    nodes = [_node(name, index) for index, (name, _) in enumerate(tensors)]
    repeated = Counter((node.name, node.output) for node in nodes)
    order = sorted(range(len(tensors)), key=lambda i: (nodes[i].number, nodes[i].output))
    records = []
    for i in order:
        node, info = nodes[i], tensors[i][1].info
        kind = _kind(graph, node)
        name = f"{node.name}:{node.output}" if node.output else node.name
        name += f"#{node.number}" if repeated[node.name, node.output] > 1 else ""
        tensor = Tensor(TensorInfo(name, info.shape, info.dtype, op_type=kind), tensors[i][1].raw_view)
        records.append(Record("out", node.output, node.number, kind, tensor))
    if graph and not any(_kind(graph, node) for node in nodes):
        notes.append(Damage(f"{GRAPH} describes other nodes than {PARAMS}; it is ignored"))
        graph = []
    return Dump(records, format, None, path, notes, partial(_network, graph, nodes) if graph else dict)


def _node(name: str, index: int) -> Node:
    match = _NODE.fullmatch(name)
    return Node(match[1], int(match[2]), int(match[3])) if match else Node(name, index, 0)


def _kind(graph: list[Any], node: Node) -> str:
    """Return the operator type of a node; "" if the graph has no such node."""
    entry = graph[node.number] if node.number < len(graph) else None
    if not isinstance(entry, dict) or entry.get("name") != node.name or not isinstance(entry.get("op"), str):
        return ""
    kind: str = entry["op"]
    return kind


def _network(graph: list[Any], nodes: list[Node]) -> dict[int, Operator]:
    """Return the nodes with their inputs; a repeated name is the latest node of this name before the reader."""
    dumped = {node.number: node for node in nodes}
    makers: dict[str, int] = {}
    operators: dict[int, Operator] = {}
    outputs = Counter(node.number for node in nodes)
    for index, entry in enumerate(graph):
        if not isinstance(entry, dict) or index not in dumped:
            continue
        values: dict[Value, Hashable] = {("out", slot): (index, slot) for slot in range(outputs[index])}
        inputs = entry.get("inputs")
        for slot, name in enumerate(inputs if isinstance(inputs, list) else ()):
            if isinstance(name, str) and name in makers:
                values["in", slot] = (makers[name], 0)
        operators[index] = Operator("", _kind(graph, dumped[index]), values=values)
        makers[dumped[index].name] = index
    return operators


def _nodes(folder: Path, notes: list[str]) -> list[Any]:
    """Return the nodes of the graph beside the tensors; [] with a note if they cannot be read."""
    if not is_file(folder / GRAPH):
        return []
    try:
        document = json_object(read_all(inside(folder, GRAPH), MOST_JSON, "a graph")) or {}
    except FormatError as error:
        notes.append(Damage(str(error)))
        return []
    nodes = document.get("nodes")
    if not isinstance(nodes, list):
        notes.append(Damage(f"{GRAPH} is damaged: it lists no nodes"))
        return []
    return nodes


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a file in its order. Raises FormatError if the file is damaged."""
    data = map_file(path)
    position = len(MAGIC) + 8

    def number(form: str = "<Q") -> Any:
        nonlocal position
        size = struct.calcsize(form)
        if position + size > len(data):
            raise FormatError(f"{path} is cut off at byte {position}")
        values = struct.unpack_from(form, data, position)
        position += size
        return values[0] if len(values) == 1 else values

    count = number()
    if count > MOST_TENSORS:
        raise FormatError(f"{path} is damaged: its tensor count is {count}")
    names = []
    for _ in range(count):
        length = number()
        if length > min(MOST_NAME, len(data) - position):
            raise FormatError(f"{path} is damaged or cut off: the length of a tensor name is {length} bytes")
        names.append(bytes(data[position : position + length]).decode("utf-8", "replace"))
        position += length
    if number() != count:
        raise FormatError(f"{path} is damaged: the number of tensors differs from the number of names")
    for name in names:
        magic, _, _, _, rank = number("<QQiii")
        code, size, lanes = number("<BBH")
        if magic != TENSOR_MAGIC or not 0 <= rank <= MOST_RANK:
            raise FormatError(f"{path} is damaged before byte {position}: tensor {name[:80]!r} does not begin there")
        sizes = [number("<q") for _ in range(rank)]
        nbytes = number("<q")
        tensor = _tensor(data, position, name, sizes, nbytes, _dtype(code, size, lanes), path)
        position += nbytes
        yield name, tensor


def _dtype(code: int, size: int, lanes: int) -> np.dtype | None:
    kind = _CODES.get(code)
    return KNOWN.get("bool" if kind == "bool" else f"{kind}{size}") if lanes == 1 else None


def _tensor(
    data: MappedFile, position: int, name: str, sizes: list[int], nbytes: int, dtype: np.dtype | None, path: Path
) -> Tensor:
    where = f"{path}: tensor {name[:80]!r}"
    if dtype is None:
        raise FormatError(f"{where} has an unknown element type")
    if min(sizes, default=0) < 0:
        raise FormatError(f"{where} has an impossible shape")
    try:
        shape = checked_shape(sizes)
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from None
    count = math.prod(shape)
    if nbytes != count * dtype.itemsize:
        raise FormatError(f"{where} is damaged: {nbytes} bytes do not fit its shape {list(shape)}")
    if position + nbytes > len(data):
        raise FormatError(f"{where} is cut off: the file holds only {len(data) - position} of {nbytes} bytes")
    return Tensor(TensorInfo(name, shape, dtype), loader(data, dtype.newbyteorder("<"), count, position))


FORMAT = Format("tvm_debug", recognises, read, looks_for=f"{PARAMS} of TVM")
FILE = Format("tvm_params", _recognises_file, _read_file)
