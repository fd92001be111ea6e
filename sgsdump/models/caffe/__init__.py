"""Caffe models (https://caffe.berkeleyvision.org): a prototxt with the net, a caffemodel with its weights.

A prototxt is known by its ending, or by being text with a layer in it. A caffemodel given in its place is known by its
ending, so that the message can say what to give instead. What reads them is imported when there is one to read:

prototxt.py       text -> layers, with their lines
net.py            what of them is there in the TEST phase, up to the post-processing, and the inputs
weights.py        the caffemodel's blobs as arrays; schema.py the messages of both files, as far as they are used
stages.py         the SDK's names of the tensors
layers/           one function per layer type, grouped by idea; layer_builder.py is what they write ONNX nodes with
onnx_graph.py     net + weights -> ModelProto
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sgsdump.models.model import Model, ModelReader

ENDINGS = (".prototxt", ".caffemodel")
_LAYER = re.compile(rb"(^|\n)\s*layers?\s*:?\s*\{")


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix in ENDINGS or (b"\0" not in head and _LAYER.search(head) is not None)


def _read(path: Path, weights: Path | None) -> Model:
    from sgsdump.models.caffe.onnx_graph import read

    return read(path, weights)


def _read_staged(path: Path, weights: Path | None, outputs: Sequence[str]) -> Model:
    from sgsdump.models.caffe.onnx_graph import read_staged

    return read_staged(path, weights, outputs)


READER = ModelReader("caffe", _recognises, _read, takes_weights=True, read_staged=_read_staged)
