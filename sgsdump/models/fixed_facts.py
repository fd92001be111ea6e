"""Metadata of a fixed model: the facts of its creation, with their writer and reader.

The facts are JSON in the ONNX file's metadata under ``sgsdump.fixed``:

    {"version": 1,
     "tensors": {NAME: {"dtype", "scale", "zero_point", "stored", "real", "picture", "model_order"}},
     "weights": {STORED NAME: {"name", "dtype", "scale", "axis"}},
     "convolutions": {OUTPUT NAME: STORED NAME},
     "biases": {STORED NAME: NAME},
     "operators": [{"in", "out", "inputs", "constants", "outputs", "reads"}],
     "inputs": [the fields of ModelInput], "ranges", "channels": {NAME: [[min …], [max …]]},
     "decided": {NAME: WHO}, "raised_by": {NAME: RULE, CONFIG, QUANT_FILE or LEVEL of quant_plan},
     "masks": {NAME: [LOW, HIGH]} (null for an infinite end)}

``model_order`` is omitted if false, ``reads`` if the constants are last, and ``masks`` if there are none. Models are
untrusted input: every type is checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.models.graph import SIM_FACTS
from sgsdump.sidecars.input_config import INPUT_FORMATS, TRAINING_FORMATS, ModelInput
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.models.model import Model

METADATA_KEY = "sgsdump.fixed"
VERSION = 1
TENSOR_TYPES = ("uint8", "int16")
WEIGHT_TYPES = ("int8", "int16")
Item = TypeVar("Item")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that the hardware stores as integers.

    dtype        uint8 or int16
    stored       name of the integers in the fixed model's graph
    real         name of the float32 values, if they are in the graph
    picture      whether the tensor is an image input, which takes raw bytes
    model_order  whether a 4-D tensor is dumped in the model's own order of axes
    """

    dtype: np.dtype
    scale: float
    zero_point: int
    stored: str
    real: str | None
    picture: bool = False
    model_order: bool = False

    @property
    def quant(self) -> Quant:
        return Quant(self.dtype, self.scale, self.zero_point, exact=True)


@dataclass(frozen=True)
class StoredWeights:
    """Weights of a convolution.

    name   name of the float weights
    dtype  int8 or int16
    scale  one step, or one per index of ``axis``
    """

    name: str
    dtype: np.dtype
    scale: float | tuple[float, ...]
    axis: int | None

    @classmethod
    def of(cls, name: str, quant: Quant) -> StoredWeights:
        """Return the record of float weights and their quantisation."""
        assert quant.dtype is not None, "a plan has every type"
        steps = np.asarray(quant.scale, np.float64).tolist()
        return cls(name, quant.dtype, tuple(steps) if isinstance(steps, list) else steps, quant.axis)

    @property
    def quant(self) -> Quant:
        return Quant(self.dtype, np.asarray(self.scale, np.float32), 0, self.axis, exact=True)


@dataclass(frozen=True)
class DumpedOperator:
    """One operator as simulators dump it.

    in_type, out_type  type in the records of its inputs and of its outputs: a fused operator has two
    inputs, outputs    variable tensors by the float model's names
    constants          initializers; weights of convolutions by their stored names
    reads              inputs and constants in dump order, if the constants are not last
    """

    in_type: str
    out_type: str
    inputs: tuple[str, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Origin of a fixed model.

    inputs     inputs of input_config.ini
    ranges     range of every stored tensor and weight; a range cut for a mask has the ends of the values as ``uncut``
    channels   ranges of the output channels of convolutions
    decided    who or what decided a tensor's type
    raised_by  who raised a tensor to INT16
    """

    inputs: tuple[ModelInput, ...] = ()
    ranges: Mapping[str, Range] = field(default_factory=dict)
    channels: Mapping[str, Range] = field(default_factory=dict)
    decided: Mapping[str, str] = field(default_factory=dict)
    raised_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FixedFacts:
    """Facts of a fixed model.

    weights       stored name -> weights
    convolutions  output name of a convolution -> stored name of its weights
    biases        stored name of bias and multiplier rows -> name of the bias
    """

    tensors: Mapping[str, StoredTensor]
    weights: Mapping[str, StoredWeights]
    convolutions: Mapping[str, str]
    operators: tuple[DumpedOperator, ...]
    origin: Origin | None = None
    biases: Mapping[str, str] = field(default_factory=dict)


def is_fixed(model: Model) -> bool:
    """Return whether ``calibrate`` made the model."""
    return _text_of(model.proto) is not None


def write_facts(facts: FixedFacts, proto: ModelProto) -> None:
    """Add the facts to a model's metadata."""
    document: dict[str, Any] = {
        "version": VERSION,
        "tensors": {name: _tensor_entry(tensor) for name, tensor in facts.tensors.items()},
        "weights": {name: {**vars(weights), "dtype": str(weights.dtype)} for name, weights in facts.weights.items()},
        "convolutions": facts.convolutions,
        "biases": facts.biases,
        "operators": [operator_entry(op) for op in facts.operators],
    }
    if facts.origin is not None:
        document["inputs"] = [asdict(entry) for entry in facts.origin.inputs]
        for key, ranges in (("ranges", facts.origin.ranges), ("channels", facts.origin.channels)):
            document[key] = {name: (r.min.tolist(), r.max.tolist()) for name, r in ranges.items()}
        document["decided"] = dict(facts.origin.decided)
        document["raised_by"] = dict(facts.origin.raised_by)
        masks = {name: r.uncut for name, r in facts.origin.ranges.items() if r.uncut is not None}
        if masks:
            document["masks"] = {
                name: [end if math.isfinite(end) else None for end in ends] for name, ends in masks.items()
            }
    entry = proto.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, json.dumps(document)


def operator_entry(op: DumpedOperator) -> dict[str, Any]:
    """Return an operator for metadata, without ``reads`` if the constants are last."""
    entry = {"in": op.in_type, "out": op.out_type}
    entry |= {key: getattr(op, key) for key in ("inputs", "constants", "outputs")}
    return entry | ({"reads": op.reads} if op.reads else {})


def replace_facts(facts: FixedFacts, proto: ModelProto) -> None:
    """Replace the facts of a model."""
    kept = [entry for entry in proto.metadata_props if entry.key != METADATA_KEY]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    write_facts(facts, proto)


def _tensor_entry(tensor: StoredTensor) -> dict[str, Any]:
    """Return a tensor for metadata, without ``model_order`` if false."""
    entry = {**vars(tensor), "dtype": str(tensor.dtype)}
    if not tensor.model_order:
        del entry["model_order"]
    return entry


def read_facts(model: Model) -> FixedFacts | None:
    """Return the facts of a fixed model, or None for a float model.

    Raises ModelError for metadata that are damaged or do not fit the model's graph.
    """
    text = _text_of(model.proto)
    if text is None:
        return None
    try:
        facts = _facts(json.loads(text))
        _check_constants(facts, model.proto)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)[:200]
        raise ModelError(
            f"{model.path}: its metadata {METADATA_KEY!r} are damaged ({reason}); create the fixed model again"
        ) from None
    return facts


def _text_of(proto: ModelProto) -> str | None:
    return next((entry.value for entry in proto.metadata_props if entry.key == METADATA_KEY), None)


def _facts(document: Any) -> FixedFacts:
    version = _of(dict, document)["version"]
    if version != VERSION:
        raise ValueError(
            f"the version is {version!r} instead of {VERSION}, because another version of sgsdump wrote the metadata"
        )
    inputs = tuple(_model_input(entry) for entry in _of(list, document.get("inputs", [])))
    ranges, channels = (_each(_range, document.get(key, {})) for key in ("ranges", "channels"))
    for name, ends in _each(_ends, document.get("masks", {})).items():
        if name in ranges:
            ranges[name] = replace(ranges[name], uncut=ends)
    return FixedFacts(
        tensors=_each(_tensor, document["tensors"]),
        weights=_each(_weights, document["weights"]),
        convolutions=_each(_name, document["convolutions"]),
        operators=tuple(operator_of(entry) for entry in _of(list, document["operators"])),
        origin=Origin(inputs, ranges, channels, *(_each(_name, document.get(k, {})) for k in ("decided", "raised_by"))),
        biases=_each(_name, document["biases"]),
    )


def _tensor(entry: Any) -> StoredTensor:
    dtype = _dtype(entry["dtype"], TENSOR_TYPES)
    real = None if entry["real"] is None else _name(entry["real"])
    zero_point, picture = _of(int, entry["zero_point"]), _of(bool, entry["picture"])
    if not np.iinfo(dtype).min <= zero_point <= np.iinfo(dtype).max:
        raise ValueError(f"zero point {zero_point} is out of range of {dtype}")
    turned = _of(bool, entry.get("model_order", False))
    return StoredTensor(dtype, _step(entry["scale"]), zero_point, _name(entry["stored"]), real, picture, turned)


def _weights(entry: Any) -> StoredWeights:
    scale = entry["scale"]
    steps = tuple(map(_step, scale)) if isinstance(scale, list) else _step(scale)
    axis = None if entry["axis"] is None else _of(int, entry["axis"])
    if (axis is None) == isinstance(steps, tuple):
        raise ValueError(f"invalid axis {axis} for the scales of {_name(entry['name'])!r}")
    return StoredWeights(_name(entry["name"]), _dtype(entry["dtype"], WEIGHT_TYPES), steps, axis)


def operator_of(entry: Any) -> DumpedOperator:
    """Read an operator from metadata. Raises KeyError, TypeError and ValueError."""
    inputs, constants, outputs = (tuple(map(_name, _of(list, entry[k]))) for k in ("inputs", "constants", "outputs"))
    reads = tuple(map(_name, _of(list, entry.get("reads", []))))
    if reads and sorted(reads) != sorted((*inputs, *constants)):
        raise ValueError(
            f"the field 'reads' of an operator lists {list(reads)[:4]}, not the operator's inputs and constants"
        )
    return DumpedOperator(_name(entry["in"]), _name(entry["out"]), inputs, constants, outputs, reads)


def _model_input(entry: Any) -> ModelInput:
    _name(entry["name"])
    for name, formats in (("training_format", TRAINING_FORMATS), ("input_format", INPUT_FORMATS)):
        if _name(entry[name]) not in formats:
            raise ValueError(f"unknown {name} {entry[name][:40]!r}")
    for name, kind in (("layout", str), ("quantised", bool), ("width_alignment", int), ("height_alignment", int)):
        _of(kind, entry.get(name, getattr(ModelInput, name)))
    mean, std = (tuple(map(_number, _of(list, entry[key]))) for key in ("mean", "std"))
    return ModelInput(**{**entry, "mean": mean, "std": std})


def _range(entry: Any) -> Range:
    low, high = (np.array([_number(end) for end in _of(list, ends)], np.float64) for ends in entry)
    if low.size != high.size or not low.size:
        raise ValueError(f"a range has {low.size} minima but {high.size} maxima")
    return Range(low, high)


def _ends(entry: Any) -> tuple[float, float]:
    low, high = _of(list, entry)
    return -math.inf if low is None else _number(low), math.inf if high is None else _number(high)


def _check_constants(facts: FixedFacts, proto: ModelProto) -> None:
    """Check that every constant of an operator is in the graph, with as many scales as the length of its axis."""
    dims = {tensor.name: tensor.dims for tensor in proto.graph.initializer}
    listed = _listed_constants(proto)
    for name in (name for op in facts.operators for name in op.constants):
        if name not in dims and name not in listed:
            raise ValueError(f"the model has no constant {name!r}")
    for name, weights in facts.weights.items():
        if not isinstance(weights.scale, tuple) or name not in dims:
            continue
        axis = weights.axis or 0
        if not 0 <= axis < len(dims[name]) or len(weights.scale) not in (1, dims[name][axis]):
            raise ValueError(
                f"{len(weights.scale)} scales along axis {axis} do not fit {name!r} of shape {list(dims[name])}"
            )


def _listed_constants(proto: ModelProto) -> frozenset[str]:
    """Return the constants of a .sim file that are only in its facts (``sim_facts``)."""
    text = next((entry.value for entry in proto.metadata_props if entry.key == SIM_FACTS), None)
    constants = _of(dict, json.loads(text)["constants"]) if text is not None else {}
    return frozenset(name for name, entry in constants.items() if not entry["initializer"])


def _each(reader: Callable[[Any], Item], entries: Any) -> dict[str, Item]:
    return {name: reader(entry) for name, entry in _of(dict, entries).items()}


def _of(kind: type[Item], value: Any) -> Item:
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} expected, not {str(value)[:50]!r}")
    return value


def _name(value: Any) -> str:
    return _of(str, value)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"found {str(value)[:50]!r} instead of a number")
    return value


def _step(value: Any) -> float:
    if not _number(value) > 0:
        raise ValueError(f"the scale {value} is not positive")
    return float(value)


def _dtype(value: Any, types: tuple[str, ...]) -> np.dtype:
    if value not in types:
        raise ValueError(f"the type is {str(value)[:50]!r} instead of {' or '.join(types)}")
    return np.dtype(value)
