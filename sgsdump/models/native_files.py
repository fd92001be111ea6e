"""How the models that only their own framework runs are told apart. What reads them is imported when there is one to
read: every model file is looked at here, and few are of these kinds."""

from __future__ import annotations

from pathlib import Path

from sgsdump.models.model import Model, ModelReader

# Of a TFLite file, after four bytes.
MARK = b"TFL3"


def _is_tflite(path: Path, head: bytes) -> bool:
    return head[4:8] == MARK or path.suffix.lower() == ".tflite"


def _is_openvino(path: Path, head: bytes) -> bool:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return path.suffix.lower() == ".xml" or (start.startswith((b"<?xml", b"<net")) and b"<net" in start)


def _read_tflite(path: Path) -> Model:
    from sgsdump.models.tflite import read

    return read(path)


def _read_openvino(path: Path) -> Model:
    from sgsdump.models.openvino_ir import read

    return read(path)


TFLITE = ModelReader("tflite", _is_tflite, _read_tflite)
OPENVINO = ModelReader("openvino", _is_openvino, _read_openvino)
