"""One run of a model as one dump: in SigmaStar's container as ``sgsdump dump`` writes it, or in any other format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.capture.control import Content
from sgsdump.capture.replay.selection import Selection
from sgsdump.dumps.dump import Record
from sgsdump.dumps.io import save_dump
from sgsdump.executors.runner import Layer
from sgsdump.files.atomic_write import make_folder
from sgsdump.tensors.dtypes import is_float, is_integer, name_of
from sgsdump.tensors.statistics import Statistics, summarise
from sgsdump.tensors.tensor import Tensor
from sgsdump.tensors.types import NCHW

if TYPE_CHECKING:
    from onnx import GraphProto

SIGMASTAR = "sigmastar_bin"
ENDINGS = {SIGMASTAR: ".bin", "sigmastar_text": ".txt", "npz": ".npz", "safetensors": ".safetensors"}
STATISTICS_FORMAT = "atb_tree"
Described = tuple[str, str, str, tuple[int, ...]]


@dataclass
class Written:
    """What went into a dump. ``described``: the facts of each tensor where nothing else was to be kept."""

    tensors: int = 0
    notes: list[str] = field(default_factory=list)
    described: list[Described] = field(default_factory=list)


def write_run(
    path: Path,
    content: Content,
    format: str,
    graph: GraphProto,
    feed: Mapping[str, np.ndarray],
    layers: Iterable[Layer],
    chosen: Selection,
) -> tuple[Path, Written]:
    """Write the chosen ones of ``layers``, all of which are taken; returns where the dump is, which has the format's
    ending behind ``path``. Raises OutputError and what comes out of ``layers``."""
    written = Written()
    records = _records(graph, feed, layers, chosen, written)
    if content in ("description", "structure"):
        for record in records:
            info = record.tensor.info
            written.described.append((info.name, info.op_type, name_of(info.dtype), record.tensor.shape or ()))
        return path, written
    if content == "stats":
        format, records = STATISTICS_FORMAT, _statistics(records, written)
    path = path.with_name(path.name + ENDINGS.get(format, ""))
    make_folder(path.parent)
    first = next(records, None)
    if first is None:
        written.notes.append("nothing of this run was to be dumped")
        return path, written
    whole = _with_first(first, records)
    if format == SIGMASTAR:
        from sgsdump.dumps.formats.sigmastar import binary

        # The form of framework dumps has outputs only.
        binary.write(whole, path, binary.SIM_SHAPED if chosen.feeds else binary.FRAMEWORK)
    else:
        save_dump(whole, path, format, on_loss="ignore")
    return path, written


def _records(
    graph: GraphProto,
    feed: Mapping[str, np.ndarray],
    layers: Iterable[Layer],
    chosen: Selection,
    written: Written,
) -> Iterator[Record]:
    slots = {name: slot for node in graph.node for slot, name in enumerate(node.output) if name}
    readers = {name: node for node in reversed(graph.node) for name in node.input}
    for name, array in feed.items():
        if name in chosen.feeds and name in readers:
            node = readers[name]
            slot = list(node.input).index(name)
            yield _counted(
                Record("in", slot, 0, node.name or node.op_type, _tensor(name, array, node.op_type)), written
            )
    number = 0
    for layer in layers:
        if layer.name in chosen.tensors:
            tensor = _tensor(layer.name, layer.array, layer.op_type)
            label = layer.node or layer.op_type
            yield _counted(Record("out", slots.get(layer.name, 0), number, label, tensor), written)
            number += 1


def _tensor(name: str, array: np.ndarray, op_type: str) -> Tensor:
    return Tensor.of(name, array, layout=NCHW if array.ndim == 4 else None, op_type=op_type)


def _counted(record: Record, written: Written) -> Record:
    written.tensors += 1
    array = record.tensor.raw()
    if is_float(array.dtype):
        with np.errstate(all="ignore"):
            if not np.isfinite(array.sum()):
                nan, inf = np.count_nonzero(np.isnan(array)), np.count_nonzero(np.isinf(array))
                if nan or inf:
                    written.notes.append(f"not finite: {record.name}: {nan} NaN, {inf} Inf of {array.size} values")
    return record


def _statistics(records: Iterable[Record], written: Written) -> Iterator[Record]:
    """The records with msit's statistics in the place of their values, those of numbers."""
    for record in records:
        info = record.tensor.info
        if not (is_float(info.dtype) or is_integer(info.dtype)):
            written.notes.append(f"no statistics of {info.name}: it is {name_of(info.dtype)}")
            continue
        known = summarise(record.tensor.raw())
        # NaN where no value is finite, so that the file says so.
        low, high, mean, norm = (
            math.nan if value is None else value for value in (known.min, known.max, known.mean, known.l2norm)
        )
        stated = Statistics(low, high, mean, norm)
        yield Record(record.io, record.slot, record.op_index, record.op_type, Tensor.of_statistics(info, stated))


def _with_first(first: Record, rest: Iterator[Record]) -> Iterator[Record]:
    yield first
    yield from rest
