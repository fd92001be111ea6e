"""Metadata of a model read from a .sim file: the facts kept from that file, with their writer and reader.

The facts are JSON in the ONNX file's metadata under ``sgsdump.sim``::

    {"version": 1,
     "operators": as in a fixed model (``fixed_facts``),
     "constants": {NAME: {"initializer", "axes", "shape", "ones"} or {"values", "shape"}},
     "types": {NAME: "uint8" or "int16"}}

In the SDK's dumps, every 4-D tensor of such a model is N, H, W, C. Models are untrusted input: every type is checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.models.fixed_facts import METADATA_KEY, DumpedOperator, operator_entry, operator_of
from sgsdump.models.graph import SIM_FACTS

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.models.graph import Graph

VERSION = 1


@dataclass(frozen=True)
class ShownConstant:
    """A constant as the SDK dumps it: an initializer, or integers.

    initializer  name of the initializer; "" for integers, which are in ``values``
    axes, shape  order of the axes and shape in which the initializer is dumped
    ones         whether a row of ones follows
    values       the integers, of type ``dtype``
    """

    initializer: str
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    ones: bool = False
    values: tuple[int, ...] = ()
    dtype: str = "int32"

    @property
    def is_parameter(self) -> bool:
        return not self.initializer

    def array(self, graph: Graph) -> np.ndarray:
        """Return the values as float32, or integers in their type."""
        if self.is_parameter:
            return np.array(self.values, self.dtype).reshape(self.shape)
        stored = graph.value(self.initializer).astype(np.float32, copy=False)
        if self.axes:
            stored = stored.transpose(self.axes)
        if self.ones:
            stored = np.stack([stored.reshape(-1), np.ones(stored.size, np.float32)])
        return stored.reshape(self.shape)


@dataclass(frozen=True)
class SimFacts:
    """Facts of a .sim file: ``operators`` in execution order, ``constants`` by name, planned ``types`` by tensor."""

    operators: tuple[DumpedOperator, ...]
    constants: Mapping[str, ShownConstant]
    types: Mapping[str, np.dtype]


def write_facts(facts: SimFacts, proto: ModelProto) -> None:
    """Add the facts to a model's metadata."""
    document = {
        "version": VERSION,
        "operators": [operator_entry(op) for op in facts.operators],
        "constants": {name: asdict(constant) for name, constant in facts.constants.items()},
        "types": {name: str(dtype) for name, dtype in facts.types.items()},
    }
    proto.metadata_props.add(key=SIM_FACTS, value=json.dumps(document, ensure_ascii=False))


def read_facts(proto: ModelProto) -> SimFacts | None:
    """Return the facts of a model, or None if the model does not come from a .sim file.

    For a fixed model, the weights that it stores in another form are omitted. Raises ModelError for metadata that are
    damaged or do not fit the model's graph.
    """
    text = _text_of(proto)
    if text is None:
        return None
    try:
        facts = _facts(json.loads(text))
        if any(entry.key == METADATA_KEY for entry in proto.metadata_props):
            facts = SimFacts((), {name: each for name, each in facts.constants.items() if each.is_parameter}, {})
        _check(facts, proto)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)[:200]
        raise ModelError(
            f"the model's metadata {SIM_FACTS!r} are damaged ({reason}); convert the .sim file again"
        ) from None
    return facts


def _text_of(proto: ModelProto) -> str | None:
    return next((entry.value for entry in proto.metadata_props if entry.key == SIM_FACTS), None)


def _facts(document: Any) -> SimFacts:
    if document["version"] != VERSION:
        raise ValueError(
            f"the version is {document['version']!r} instead of {VERSION}, because another version of "
            "sgsdump wrote the metadata"
        )
    operators = tuple(map(operator_of, document["operators"]))
    constants = {
        _text(name): ShownConstant(
            _text(entry["initializer"]),
            tuple(map(_whole, entry["axes"])),
            tuple(map(_whole, entry["shape"])),
            entry["ones"] is True,
            tuple(map(_whole, entry["values"])),
            str(np.dtype(_text(entry.get("dtype", "int32")))),
        )
        for name, entry in document["constants"].items()
    }
    types = {_text(name): np.dtype(_text(word)) for name, word in document["types"].items()}
    return SimFacts(operators, constants, types)


def _check(facts: SimFacts, proto: ModelProto) -> None:
    """Check that every constant exists and has as many values as its shape."""
    dims = {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer}
    for name, constant in facts.constants.items():
        if not constant.is_parameter and constant.initializer not in dims:
            raise ValueError(f"the model has no constant {constant.initializer!r}")
        stored = dims.get(constant.initializer, (len(constant.values),))
        size = int(np.prod(stored, dtype=np.int64)) * (2 if constant.ones else 1)
        if size != int(np.prod(constant.shape, dtype=np.int64)) or (
            constant.axes and sorted(constant.axes) != list(range(len(stored)))
        ):
            raise ValueError(
                f"constant {name!r} of shape {list(constant.shape)} does not fit the stored shape {list(stored)}"
            )
    for op in facts.operators:
        for name in op.constants:
            if name not in facts.constants:
                raise ValueError(
                    f"operator {op.out_type} reads the constant {name!r}, which the metadata do not describe"
                )


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"text expected, not {str(value)[:50]!r}")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) > 1 << 62:
        raise TypeError(f"found {str(value)[:50]!r} instead of an integer")
    return value
