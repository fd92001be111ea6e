"""The parameters of an ATB operation as ONNX attributes, for viewers.

A parameter inside another is named ``outer.inner``. Whole numbers and booleans (0 or 1) are INT, fractions FLOAT, texts
STRING, lists of one of these kinds INTS, FLOATS or STRINGS. What ONNX has no kind for is its JSON text: null, {},
lists of several kinds, numbers beyond int64 or float32, and anything nested deeper than 20 objects.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

DEEPEST = 20
_INT64 = range(-(2**63), 2**63)


def attributes(param: Any) -> Iterator[onnx.AttributeProto]:
    """An attribute for each parameter; none for ``""`` and None, which operations without parameters have."""
    if param in ("", None, {}):
        return
    taken: dict[str, int] = {}
    for path, value in _flat(param if isinstance(param, Mapping) else {"param": param}):
        name = free(path, taken)
        yield _attribute(name, value)


def text_of(text: str) -> str:
    """A text that protobuf can hold: without lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def free(name: str, taken: dict[str, int]) -> str:
    """``name``, or ``name#2``, ``name#3`` … when it is taken already; it is now. ``taken`` counts."""
    unused = name
    while unused in taken:
        taken[name] += 1
        unused = f"{name}#{taken[name]}"
    taken[unused] = 1
    return unused


def _flat(param: Mapping[str, Any], path: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    for key, value in param.items():
        name = f"{path}.{key}" if path else text_of(key)
        if isinstance(value, Mapping) and value and depth < DEEPEST:
            yield from _flat(value, text_of(name), depth + 1)
        else:
            yield text_of(name), value


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    from onnx import AttributeProto, helper

    kind = _kind(value)
    if kind is not None:
        return helper.make_attribute(name, text_of(value) if kind == "STRING" else value)
    if isinstance(value, list):
        kinds = {_kind(item) for item in value}
        if not kinds:
            return helper.make_attribute(name, [], attr_type=AttributeProto.INTS)
        if kinds <= {"INT", "FLOAT"}:
            return helper.make_attribute(
                name, [float(x) for x in value] if "FLOAT" in kinds else [int(x) for x in value]
            )
        if kinds == {"STRING"}:
            return helper.make_attribute(name, [text_of(item) for item in value])
    return helper.make_attribute(name, text_of(json.dumps(value)))


def _kind(value: Any) -> str | None:
    """The ONNX kind of a single value; None where there is none that keeps it."""
    if isinstance(value, (bool, int)):
        return "INT" if value in _INT64 else None
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            return "FLOAT" if math.isfinite(np.float32(value)) or not math.isfinite(value) else None
    return "STRING" if isinstance(value, str) else None
