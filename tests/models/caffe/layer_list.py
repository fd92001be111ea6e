"""Caffe nets as lists of layers: the prototxt, and random weights of the shapes that a list names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from models.caffe.nets import inputs_text

from sgsdump.models.caffe.net import Net, read_net


class Layer(NamedTuple):
    """``shapes``: of its blobs in the caffemodel."""

    type: str
    name: str
    bottoms: Sequence[str]
    tops: Sequence[str]
    params: str = ""
    shapes: Sequence[Sequence[int]] = ()

    def __str__(self) -> str:
        bottoms = " ".join(f'bottom: "{_quoted(name)}"' for name in self.bottoms)
        tops = " ".join(f'top: "{_quoted(name)}"' for name in self.tops)
        return f'layer {{ name: "{_quoted(self.name)}" type: "{self.type}" {bottoms} {tops} {self.params} }}'


def parsed(line: str) -> Layer:
    """``Convolution conv1: data -> conv1``, or ``ReLU relu1: conv1``, which is in place; a Scale+ has an offset."""
    kind, _, rest = line.partition(" ")
    name, _, blobs = rest.partition(":")
    bottoms, arrow, tops = blobs.partition("->")
    params = "scale_param { bias_term: true }" if kind == "Scale+" else ""
    return Layer(kind.rstrip("+"), name, bottoms.split(), (tops if arrow else bottoms).split(), params)


def text_of(inputs: Mapping[str, tuple[int, ...]], layers: Iterable[Layer]) -> str:
    return inputs_text(inputs) + "\n".join(map(str, layers))


def net_of(folder: Path, lines: Sequence[str]) -> Net:
    """A net of ``parsed`` lines that is only looked at: its layers have no weights and no parameters."""
    path = folder / "net.prototxt"
    path.write_text(text_of({"data": (1, 8, 16, 16)}, map(parsed, lines)), encoding="utf-8")
    return read_net(path)


def random_weights(layers: Iterable[Layer], seed: int = 0) -> dict[str, list[np.ndarray]]:
    """What a BatchNorm reads is positive."""
    rng = np.random.default_rng(seed)
    return {
        layer.name: [
            np.ones(1, np.float32)
            if layer.type == "BatchNorm" and index == 2
            else rng.uniform(0.2, 1.0, shape).astype(np.float32)
            if layer.type in ("BatchNorm", "Scale")
            else (rng.normal(0, 0.5, shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)
            for index, shape in enumerate(layer.shapes)
        ]
        for layer in layers
        if layer.shapes
    }


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
