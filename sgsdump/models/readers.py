"""Recognition of model files other than ONNX, and lazy loading of their readers.

Every model file is checked here, and few have these formats, so a reader is imported only when needed. A Caffe prototxt
is recognised by its ending, or by text with a layer. A caffemodel given in its place is recognised by its ending, so
that the message can name the right file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sgsdump.models.model import Model, ModelReader

CAFFE_ENDINGS = (".prototxt", ".caffemodel")
_LAYER = re.compile(rb"(^|\n)\s*layers?\s*:?\s*\{")
# Identifier of a TFLite file, at byte 4.
MARK = b"TFL3"


def _is_caffe(path: Path, head: bytes) -> bool:
    return path.suffix in CAFFE_ENDINGS or (b"\0" not in head and _LAYER.search(head) is not None)


def _is_tflite(path: Path, head: bytes) -> bool:
    return head[4:8] == MARK or path.suffix.lower() == ".tflite"


def _is_openvino(path: Path, head: bytes) -> bool:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return path.suffix.lower() == ".xml" or (start.startswith((b"<?xml", b"<net")) and b"<net" in start)


def _read_caffe(path: Path, weights: Path | None) -> Model:
    from sgsdump.models.caffe.onnx_graph import read

    return read(path, weights)


def _read_staged_caffe(path: Path, weights: Path | None, outputs: Sequence[str]) -> Model:
    from sgsdump.models.caffe.onnx_graph import read_staged

    return read_staged(path, weights, outputs)


def _read_tflite(path: Path) -> Model:
    from sgsdump.models.tflite import read

    return read(path)


def _read_openvino(path: Path) -> Model:
    from sgsdump.models.openvino_ir import read

    return read(path)


CAFFE = ModelReader("caffe", _is_caffe, _read_caffe, takes_weights=True, read_staged=_read_staged_caffe)
TFLITE = ModelReader("tflite", _is_tflite, _read_tflite)
OPENVINO = ModelReader("openvino", _is_openvino, _read_openvino)
