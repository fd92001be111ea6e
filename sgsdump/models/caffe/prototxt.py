"""Parser of prototxt files: untrusted text -> message and layers, each layer with its line number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from sgsdump.errors import ModelError
from sgsdump.files.bounded_read import read_start, reading
from sgsdump.models.caffe.schema import enum_label, messages

# Real files have a thousandth of this size; parsing takes about a second per megabyte.
LIMIT_BYTES = 16 << 20
V1_TYPES = {
    **{"ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "BNLL": "BNLL", "LRN": "LRN", "MVN": "MVN", "RELU": "ReLU"},
    **{"TANH": "TanH", "SOFTMAX_LOSS": "SoftmaxWithLoss", "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output"},
}
_TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}<>\n]|[A-Za-z_]\w*""")
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1f]")


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer as in the prototxt; ``message`` has its parameters, ``where`` begins messages about it."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    message: Any
    where: str


def read_prototxt(path: Path) -> tuple[Any, list[Layer]]:
    """Return the NetParameter message and all its layers, in either form (``layer``, ``layers``). Raises ModelError."""
    text = _text(path)
    message = _parsed(path, text)
    return message, _layers(path, text, message)


def _text(path: Path) -> str:
    """Return the prototxt's text; comments in encodings other than UTF-8 are common, and accepted."""
    with reading(path, ModelError):
        data = read_start(path, LIMIT_BYTES + 1)
    if len(data) > LIMIT_BYTES or _BINARY.search(data):
        raise ModelError(
            f"{path} is not a prototxt, because it is not text; give the .prototxt as the model and the .caffemodel "
            f"with --weight-file"
        )
    return data.decode("utf-8-sig", "replace")


def _parsed(path: Path, text: str) -> Any:
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, messages()["NetParameter"](), allow_unknown_field=True)
    except text_format.ParseError as error:
        line = f" line {error.GetLine()}" if error.GetLine() else ""
        reason = str(error).splitlines()[-1].rpartition("': ")[2]
        raise ModelError(f"{path}{line} is not a prototxt of a Caffe net: {reason}") from None
    except (RecursionError, ValueError) as error:
        reason = "braces are nested too deep" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise ModelError(f"{path} is not a prototxt of a Caffe net: {reason}") from None


def _layers(path: Path, text: str, message: Any) -> list[Layer]:
    if message.layer and message.layers:
        raise ModelError(f"{path} mixes 'layer' and 'layers'; use only one of the two forms")
    old = not message.layer
    lines = _lines(text, "layers" if old else "layer")
    layers = []
    # A list, layer: [{...}, {...}], has one line number for all layers.
    for item, line in zip(message.layers if old else message.layer, chain(lines, repeat(lines[-1] if lines else 1))):
        if old and item.HasField("layer"):
            raise ModelError(
                f"{path} line {line} uses the prototxt format of 2013; upgrade the file with upgrade_net_proto_text"
            )
        kind = _v1_type(enum_label(item, "type")) if old else item.type
        where = f"{path} line {line}: layer {item.name!r} ({repr(kind)[1:-1] or 'no type'})"
        if not kind or kind == "None":
            raise ModelError(f"{where} has no type")
        layers.append(Layer(item.name, kind, tuple(item.bottom), tuple(item.top), item, where))
    return layers


def _v1_type(label: str) -> str:
    return V1_TYPES.get(label) or "".join(word.capitalize() for word in label.split("_"))


def _lines(text: str, field: str) -> list[int]:
    """Return the line numbers of top-level messages of a name, which the protobuf parser does not keep."""
    begins, depth, line = [], 0, 1
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == "\n":
            line += 1
        elif token in "{<":
            depth += 1
        elif token in "}>":
            depth -= 1
        elif depth == 0 and token == field:
            begins.append(line)
    return begins
