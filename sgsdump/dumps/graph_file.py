"""The graph file ``FILE.graph.onnx`` beside a dump: the graph of the dumped model, without weights.

The file is an ONNX model with nodes, names, types and attributes; weights have only names, types and shapes. Its
metadata holds sketches of the run's inputs (``run_inputs.py``) and, for a quantised model, the scales of the tensors as
JSON under ``sgsdump.quants``. JSON under ``sgsdump.dump`` ties the graph to one dump and to its own content::

    {"size": 1822340, "checksum": "9f…", "graph": "3c…"}

``size`` and ``checksum`` describe the dump's file (for a folder, its dump_info.json). The checksum is a BLAKE2b hash of
the whole file or, for a file over 4 MiB, of 64 blocks spread over the file. ``graph`` is the hash of the model's bytes
before this entry. A renamed dump therefore finds its graph in the same folder, and a graph is never used for another
run's dump.

The bytes are scanned without the onnx library, because importing it would delay comparisons.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps import run_inputs
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.onnx_network import SCOPES, SOURCE, STACK, OnnxNetwork, module_by_scopes, of_nodes, source_of_stack
from sgsdump.dumps.quantised_graph import DYNAMIC, Node, QuantisedGraph, dequantised, quants_in
from sgsdump.dumps.quantised_graph import KEY as KEY_OF_QUANTS
from sgsdump.errors import OutputError, SgsdumpError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import is_file, open_file, read_all
from sgsdump.files.json_yaml import json_of
from sgsdump.files.protobuf_wire import BYTES, Field, WireError, fields, read_varint, varint
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import Quant

ENDING = ".graph.onnx"
FOLDERS_FILE = "dump_info.json"
KEY = "sgsdump.dump"
MOST_BYTES = 64 << 20
_BLOCK, _BLOCKS = 64 << 10, 64
_TIE_BYTES = 512
_MOST_FILES = 200  # graph files that are searched for the graph of a renamed dump
_DEEPEST = 32  # nested subgraphs
_METADATA, _GRAPH = 14, 7  # field numbers of ModelProto


@dataclass(frozen=True)
class Tie:
    """Size and checksum of the dump that a graph belongs to."""

    size: int
    checksum: str


def with_graph(dump: Dump) -> Dump:
    """Return the dump with the network from its graph file, read on request.

    Adds a note about a graph file of the dump's name that belongs to another dump or is damaged.
    """
    file = tied_file(dump.path) if dump.path is not None else None
    if file is None or dump.network is not dict:
        return dump
    path, why, records = _path_of(file), "", dump.records
    if is_file(path):
        graph = _read(path)
        if isinstance(graph, str):
            why = graph
        elif not _is_tied(graph[0], file):
            why = "the graph belongs to another dump"
        else:
            records = _with_scales(records, graph[1])
    notes = [*dump.notes, f"{path.name} is ignored: {why}"] if why else dump.notes
    network = cache(partial(_network, file, records))
    return Dump(records, dump.format, dump.variant, dump.path, notes, network)


def _with_scales(records: tuple[Record, ...], graph: bytes) -> tuple[Record, ...]:
    """Return the records; integer tensors of a quantised model get constant scales, or are dequantised dynamically."""
    try:
        quants = quants_of(graph)
        dynamic = QuantisedGraph(nodes_of(graph)).dynamic if DYNAMIC.encode() in graph else {}
    except (WireError, struct.error):
        return records
    if not (quants or dynamic):
        return records
    named = {record.name: record.tensor for record in records}

    def scaled(record: Record) -> Record:
        tensor, quant = record.tensor, quants.get(record.name)
        if record.constant or tensor.info.quant is not None or not is_integer(tensor.dtype):
            return record
        found = [named[name] for name in dynamic.get(record.name, ()) if name in named]
        if len(found) == 2:
            info = replace(tensor.info, dtype=np.dtype(np.float32))
            return replace(record, tensor=Tensor(info, lambda: dequantised(*(t.stored() for t in (tensor, *found)))))
        if quant is None or quant.dtype != tensor.dtype:
            return record
        return replace(record, tensor=Tensor(replace(tensor.info, quant=quant), tensor.raw_view, tensor.statistics))

    return tuple(map(scaled, records))


def save_graph(graph: bytes, dump: Path) -> str:
    """Write the serialised model as graph of an existing dump; return the reason if it is not written, else ""."""
    file = tied_file(dump)
    if file is None:
        return ""
    path = _path_of(file)
    if len(graph) > MOST_BYTES:
        return f"the model's graph is not saved beside {dump}: too large ({len(graph):,} bytes)"
    if is_file(path) and not _is_own(path):
        return (
            f"the model's graph is not saved beside {dump}: {path} already exists and was not written by "
            "sgsdump, so it was not overwritten"
        )
    tie = tie_of(file)
    entry = json.dumps({"size": tie.size, "checksum": tie.checksum, "graph": _digest(graph)})
    try:
        with replacing(path) as out:
            out.write(graph + _field(_METADATA, _field(1, KEY.encode()) + _field(2, entry.encode())))
    except OutputError as error:
        return str(error)
    return ""


def graph_of(dump: Path) -> bytes | None:
    """Return the graph of a dump, without the tie; None if there is none."""
    file = tied_file(dump)
    found = _found(file) if file is not None else None
    return None if found is None else found[1]


def tied_file(dump: Path) -> Path | None:
    """Return the file whose checksum ties a graph to the dump; None if there is no file or the format has no tie."""
    return next(filter(is_file, (dump, dump / FOLDERS_FILE)), None)


def tie_of(file: Path) -> Tie:
    """Return size and checksum of a dump's file."""
    with open_file(file) as data:
        size = os.fstat(data.fileno()).st_size
        checksum = hashlib.blake2b(digest_size=16)
        last = max(size - _BLOCK, 0)
        offsets = range(0, size, _BLOCK)
        if len(offsets) > _BLOCKS:
            offsets = [last * i // (_BLOCKS - 1) for i in range(_BLOCKS)]  # type: ignore[assignment]
        for offset in offsets:
            data.seek(offset)
            checksum.update(data.read(_BLOCK))
    return Tie(size, checksum.hexdigest())


def nodes_of(graph: bytes) -> list[Node]:
    """Return the nodes of a serialised model. Raises WireError if the bytes are not a model."""
    nodes: list[Node] = []
    for field in fields(graph):
        if field.number == _GRAPH and field.wire_type == BYTES:
            nodes += _nodes_in(graph, field)
    return nodes


def quants_of(graph: bytes) -> dict[str, Quant]:
    """Return the quantisation parameters in a serialised model's metadata. Raises WireError."""
    quants: dict[str, Quant] = quants_in(_metadata(graph, KEY_OF_QUANTS))
    return quants


def with_inputs(graph: bytes, feed: Mapping[str, np.ndarray]) -> bytes:
    """Return the serialised model with sketches of the run's inputs in its metadata."""
    sketches = run_inputs.as_json({name: run_inputs.sketch_of(values) for name, values in feed.items()})
    entry = _field(1, run_inputs.KEY.encode()) + _field(2, json.dumps(sketches).encode())
    return graph + _field(_METADATA, entry)


def _metadata(graph: bytes, key: str) -> object:
    """Return the JSON document of a metadata entry of a serialised model; None if there is none."""
    for field in fields(graph):
        if field.number == _METADATA and field.wire_type == BYTES:
            name, *value = [_text(graph, part) for part in fields(graph, field.value, field.end)]
            if name == key and value:
                try:
                    return json.loads(value[0])
                except ValueError:
                    return None
    return None


def _path_of(file: Path) -> Path:
    return file.with_name(file.name + ENDING)


def _network(file: Path, records: Sequence[Record]) -> OnnxNetwork:
    try:
        found = _found(file)
        if found is None:
            return OnnxNetwork()
        graph = found[1]
        return of_nodes(records, nodes_of(graph), quants_of(graph), _metadata(graph, run_inputs.KEY))
    except (WireError, struct.error):
        return OnnxNetwork()


def _found(file: Path) -> tuple[Tie, bytes] | None:
    """Return the graph tied to a file: first by name, then any in the folder; None if there is none."""
    named = _path_of(file)
    try:
        size = b'"size": %d,' % file.stat().st_size
    except OSError:
        return None
    for path in (named, *_others(named)):
        graph = _read(path) if size in _end_of(path) else None
        if isinstance(graph, tuple) and _is_tied(graph[0], file):
            return graph
    return None


def _others(named: Path) -> Iterator[Path]:
    try:
        with os.scandir(named.parent) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(ENDING))
    except OSError:
        return
    yield from (named.with_name(name) for name in names[:_MOST_FILES] if name != named.name)


def _is_tied(tie: Tie, file: Path) -> bool:
    try:
        return tie.size == file.stat().st_size and tie == tie_of(file)
    except (OSError, SgsdumpError):
        return False


def _is_own(path: Path) -> bool:
    """Return whether sgsdump wrote the graph file, even if it is damaged now."""
    return KEY.encode() in _end_of(path)


def _end_of(path: Path) -> bytes:
    """Return the last bytes of a file, which hold the tie; b"" if the file cannot be read."""
    try:
        with open_file(path) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TIE_BYTES, 0))
            return file.read(_TIE_BYTES)
    except (OSError, SgsdumpError):
        return b""


def _read(path: Path) -> tuple[Tie, bytes] | str:
    """Return tie and model of a graph file, or the reason why the file is unusable."""
    try:
        data = read_all(path, MOST_BYTES + _TIE_BYTES, "a graph")
        *_, last = fields(data)
        key, value = (_text(data, field) for field in fields(data, last.value, last.end))
        if last.number != _METADATA or key != KEY:
            raise ValueError(key)
        tie, graph = json_of(value, path), data[: last.start]
        if tie["graph"] != _digest(graph):
            return "the file is damaged"
        return Tie(int(tie["size"]), str(tie["checksum"])), graph
    except (SgsdumpError, OSError, ValueError, TypeError, LookupError):
        return "the file is not a graph that sgsdump wrote"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def _text(data: bytes, field: Field) -> str:
    if field.wire_type != BYTES:
        raise WireError(f"text is expected at byte {field.start}")
    return data[field.value : field.end].decode("utf-8", "surrogateescape")


def _nodes_in(data: bytes, graph: Field) -> Iterator[Node]:
    members = list(fields(data, graph.value, graph.end))
    weights = {name for field in members if field.number == 5 for name in _texts(data, field, 8)}
    for field in members:
        if field.number == 1:
            yield _node(data, field, weights)


def _texts(data: bytes, message: Field, number: int) -> list[str]:
    return [_text(data, field) for field in fields(data, message.value, message.end) if field.number == number]


def _node(data: bytes, message: Field, weights: set[str]) -> Node:
    reads: list[str] = []
    makes: list[str] = []
    texts = {3: "", 4: ""}
    scopes, attributes, outer = "", dict[str, str](), dict[str, None]()
    for field in fields(data, message.value, message.end):
        if field.number == 1:
            reads.append(_text(data, field))
        elif field.number == 2:
            makes.append(_text(data, field))
        elif field.number in texts:
            texts[field.number] = _text(data, field)
        elif field.number == 5:
            name, value, is_body = _attribute(data, field)
            if value is not None:
                attributes[name] = json.dumps(value)
            if is_body:
                outer.update(dict.fromkeys(_captured(data, field)))
        elif field.number == 9:
            key, *value = [_text(data, part) for part in fields(data, field.value, field.end)]
            scopes = "".join(value) if key == SCOPES else scopes
            if key == STACK and (source := source_of_stack("".join(value))):
                attributes[SOURCE] = source
    module = module_by_scopes(scopes, reads, weights)
    return texts[3], texts[4], [*reads, *(name for name in outer if name not in reads)], makes, module, attributes


def _attribute(data: bytes, message: Field) -> tuple[str, Any, bool]:
    """Return an attribute's name, its value (numbers or text, else None), and whether it holds subgraphs."""
    name, value, many, is_body = "", None, list[Any](), False
    for field in fields(data, message.value, message.end):
        if field.number == 1:
            name = _text(data, field)
        elif field.number in (2, 3, 7, 8):
            many += _numbers(data, field)
            value = many if field.number > 3 else many[-1]
        elif field.number == 4:
            value = data[field.value : field.end].decode("utf-8", "replace")
        elif field.number in (6, 11):
            is_body = True
    return name, value, is_body


def _numbers(data: bytes, field: Field) -> list[float] | list[int]:
    """Return the numbers of a field: one, or several packed ones."""
    if field.number in (2, 7):
        floats = struct.unpack(f"<{(field.end - field.value) // 4}f", data[field.value : field.end])
        return [float(f"{number:.9g}") for number in floats]
    values, offset = [], field.value
    while offset < field.end:
        number, offset = read_varint(data, offset, field.end)
        values.append(number - (1 << 64) if number >> 63 else number)
    return values


def _captured(data: bytes, attribute: Field, depth: int = 0) -> Iterator[str]:
    """Yield tensor names that an attribute's subgraphs read from the outer graph."""
    if depth > _DEEPEST:
        raise WireError(f"subgraphs are nested more than {_DEEPEST} levels deep")
    for body in fields(data, attribute.value, attribute.end):
        if body.number not in (6, 11):
            continue
        members = list(fields(data, body.value, body.end))
        local = {name for field in members if field.number == 5 for name in _texts(data, field, 8)}
        local.update(name for field in members if field.number == 11 for name in _texts(data, field, 1))
        nodes = [field for field in members if field.number == 1]
        local.update(name for node in nodes for name in _texts(data, node, 2))
        used = [name for field in members if field.number == 12 for name in _texts(data, field, 1)]
        for node in nodes:
            used += _texts(data, node, 1)
            for inner in fields(data, node.value, node.end):
                if inner.number == 5:
                    used += _captured(data, inner, depth + 1)
        yield from (name for name in dict.fromkeys(used) if name and name not in local)
