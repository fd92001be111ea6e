"""Caffe models (https://caffe.berkeleyvision.org): a prototxt with the net, a caffemodel with its weights.

A prototxt is known by its ending, or by being text with a layer in it. A caffemodel given in its place is known by its
ending, so that the message can say what to give instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sgsdump.errors import ConfigError
from sgsdump.models.caffe.net import read_net
from sgsdump.models.caffe.onnx_graph import to_onnx, to_staged_onnx
from sgsdump.models.caffe.weights import read_weights
from sgsdump.models.model import Model, ModelReader

ENDINGS = (".prototxt", ".caffemodel")
_LAYER = re.compile(rb"(^|\n)\s*layers?\s*:?\s*\{")


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix in ENDINGS or (b"\0" not in head and _LAYER.search(head) is not None)


def _read(path: Path, weights: Path | None) -> Model:
    """The net with the weights of ``weights``; None does for a net without any. Raises ModelError."""
    net = read_net(path)
    made = to_onnx(net, read_weights(weights) if weights else None)
    return Model(made.proto, path, blobs=made.blobs, overwritten=made.overwritten, cut=net.cut)


def _read_staged(path: Path, weights: Path | None, outputs: Sequence[str]) -> Model:
    """Raises ConfigError for an output that only post-processing makes."""
    net = read_net(path)
    for name in outputs:
        if net.cut is not None and name in net.cut.blobs:
            layer, kind = net.cut.first
            raise ConfigError(
                f"input_config: outputs names {name!r}, but {path} is cut before its post-processing, {layer!r} "
                f"({kind}); write outputs = {','.join(net.cut.outputs)};"
            )
    proto = to_staged_onnx(net, read_weights(weights) if weights else None, outputs)
    return Model(proto, path, cut=net.cut, repeated_layers=net.repeated_names)


READER = ModelReader("caffe", _recognises, _read, takes_weights=True, read_staged=_read_staged)
