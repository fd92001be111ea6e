"""The SDK's model files of this project's networks, and what its simulators dumped of them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np

from sgsdump.dumps.io import open_dump
from sgsdump.models.model import Model, graph_inputs
from sgsdump.tensors.types import to_nchw

GOLDEN = ("att", "cat_flat", "two_pictures", "yv3")


def unpacked(source: Path, target: Path) -> Path:
    """Write a file without its .xz into the folder ``target``."""
    path = target / source.name.removesuffix(".xz")
    path.write_bytes(lzma.decompress(source.read_bytes()) if source.suffix == ".xz" else source.read_bytes())
    return path


def dump_of(source: Path, target: Path):
    """The dump in a file, which may be compressed."""
    return open_dump(unpacked(source, target))


def raw_inputs(folder: Path, model: Model) -> dict[str, np.ndarray]:
    """What the fixed model of a folder was run on: a picture's rounded bytes, or numbers as they are."""
    specs, norm = graph_inputs(model.proto), json.loads((folder / "meta.json").read_text())["norm"]
    feed = {}
    for index, spec in enumerate(specs):
        name = "input.npy" if len(specs) == 1 else f"input_{index}.npy"
        values = np.load(folder / name)
        values = values[None] if values.ndim == len(spec.shape) - 1 else values
        feed[spec.name] = to_nchw(np.clip(np.round(values), 0, 255) if norm[spec.name] else values).astype(np.float32)
    return feed


def float_inputs(model: Model, dump) -> dict[str, np.ndarray]:
    """What a float dump says that its model was run on."""
    first = {record.name: record for record in reversed(dump.records) if record.io == "in"}
    feed = {}
    for spec in graph_inputs(model.proto):
        values = first[spec.name].tensor.raw().reshape(-1)
        n, *sizes = spec.shape
        shape = (n, *sizes[1:], sizes[0]) if len(sizes) == 3 else spec.shape
        values = values[: int(np.prod(shape))].reshape(shape)
        feed[spec.name] = np.ascontiguousarray(to_nchw(values) if len(shape) == 4 else values)
    return feed
