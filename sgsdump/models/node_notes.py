"""Annotations of an ONNX model's nodes in ``metadata_props``, which viewers such as Netron show.

Netron shows the annotations of nodes and of graph outputs. The field came with version 10 of ONNX's IR. Nothing else of
the model changes, not even its IR version: readers that do not know the field skip it.
"""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.errors import ModelError, OutputError
from sgsdump.files.atomic_write import check_outputs, make_folder, replacing
from sgsdump.files.names import normalised
from sgsdump.models.external_data import external_files
from sgsdump.models.onnx_file import PROTOBUF_LIMIT, read_proto

if TYPE_CHECKING:
    import onnx

PREFIX = "sgsdump."


@dataclass(frozen=True)
class Note:
    """Text to write at the node that computes a tensor.

    names  names of the tensor; the first that the model has is used
    texts  text by key; keys get the prefix ``sgsdump.``; without lone surrogates
    rank   if a node has several outputs, the note with the highest rank is used for the node
    """

    names: tuple[str, ...]
    texts: Mapping[str, str]
    rank: float = 0.0


def annotate(source: Path, target: Path, notes: Sequence[Note]) -> tuple[Note, ...]:
    """Write the model at ``source`` with these notes to ``target`` and return the notes that found no node.

    Earlier notes are removed. Weights in external files stay there, or are copied to another folder. Raises ModelError
    if the source is not a valid ONNX file or has none of the tensors, and OutputError.
    """
    proto, external = read_proto(source)
    files = external_files(proto) if external else []
    check_outputs([target], [source, *(source.parent / file for file in files)])
    placed = _placed(proto, notes)
    if not placed:
        raise ModelError(
            f"no node of {source} computes a compared tensor ({_first(proto.graph)}); give the model "
            "from which these dumps were made"
        )
    _write_notes(proto, placed)
    size = proto.ByteSize()
    if size > PROTOBUF_LIMIT:
        raise ModelError(
            f"{source} would have {size} bytes with the annotations, more than the 2 GiB limit of an "
            "ONNX file; save the model with external data first"
        )
    for file in files:
        _take_along(source.parent / file, target.parent / file)
    with replacing(target) as out:
        out.write(proto.SerializeToString())
    written = {id(note) for note in placed.values()}
    return tuple(note for note in notes if id(note) not in written)


def _placed(proto: onnx.ModelProto, notes: Sequence[Note]) -> dict[str, Note]:
    """Return tensor -> note, by the exact name or by the only tensor with the same name in the SDK's tools."""
    outputs = dict.fromkeys(name for node in proto.graph.node for name in node.output if name)
    alike: dict[str, list[str]] = {}
    for name in outputs:
        alike.setdefault(normalised(name), []).append(name)
    placed: dict[str, Note] = {}
    for note in notes:
        candidates = [[name] for name in note.names if name in outputs]
        candidates += [alike.get(normalised(name), []) for name in note.names]
        tensor = next((names[0] for names in candidates if len(names) == 1), None)
        if tensor is not None:
            placed.setdefault(tensor, note)
    return placed


def _write_notes(proto: onnx.ModelProto, placed: Mapping[str, Note]) -> None:
    graph = proto.graph
    for node in graph.node:
        candidates = [(placed[name], name) for name in node.output if name in placed]
        note, name = max(candidates, key=lambda candidate: candidate[0].rank, default=(None, ""))
        _replace(node, {**({"tensor": name} if len(node.output) > 1 else {}), **note.texts} if note else {})
    for info in (*graph.value_info, *graph.output):
        _replace(info, placed[info.name].texts if info.name in placed else {})


def _replace(message: Any, texts: Mapping[str, str]) -> None:
    """Replace the notes of a node or value."""
    entries = message.metadata_props
    for index in range(len(entries) - 1, -1, -1):
        if entries[index].key.startswith(PREFIX):
            del entries[index]
    for key, value in texts.items():
        entries.add(key=PREFIX + key, value=value)


def _take_along(source: Path, target: Path) -> None:
    """Copy a weight file to where the written model expects it; raise OutputError if another file is there."""
    if target.exists():
        if target.samefile(source) or filecmp.cmp(source, target, shallow=False):
            return
        raise OutputError(
            f"cannot write the model's weights to {target}: a different file with this name exists; give another folder"
        )
    make_folder(target.parent)
    with open(source, "rb") as weights, replacing(target) as out:
        shutil.copyfileobj(weights, out, 1 << 20)


def _first(graph: onnx.GraphProto) -> str:
    names = [name for node in graph.node for name in node.output][:3]
    return f"the nodes of the model compute {', '.join(map(repr, names))} …"
