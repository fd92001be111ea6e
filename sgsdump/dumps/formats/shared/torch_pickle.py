"""Interpretation of the pickle in a torch file: storages, tensors as views of storages, and tensor names.

``torch.save`` writes a tensor as a call of ``torch._utils._rebuild_tensor_v2(storage, offset, size, stride, …)``. A
storage is a persistent reference, ``("storage", torch.FloatStorage, key, location, elements)``. Known calls become
plain records; all other calls are refused. Sources: torch/_utils.py, torch/serialization.py.

Tensors may be nested in dicts, lists and objects. The path to a tensor is its name: ``{"model": {"conv.weight": …},
"steps": [{…}]}`` holds ``model.conv.weight`` and ``steps.0.…``. A saved module has the names of its state dict; a
single tensor has the name of the file. Values that are not tensors are counted. A tensor that occurs several times gets
the name of its first occurrence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sgsdump.errors import FormatError
from sgsdump.files.pickles import Global, Object, refused
from sgsdump.tensors.dtypes import KNOWN

MOST_RANK, MOST_BYTES = 32, 2**60
BYTES = "UntypedStorage"
# Element types of torch's typed storage classes.
_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
}
DEEPEST, _SHOWN = 64, 3
LONGEST_NAME = 2000
# Attributes of a module with its tensors and submodules.
_OF_MODULE = ("_parameters", "_buffers", "_modules")


class Storage(NamedTuple):
    """A contiguous buffer outside the pickle; tensors are views of it.

    dtype     element type; None for bytes and unknown types.
    elements  number of elements; bytes if ``dtype`` is None.
    first     index of the first element (views of older files).
    """

    key: str
    type_name: str
    dtype: np.dtype | None
    elements: int
    first: int = 0


@dataclass(frozen=True)
class Scaled:
    """Scale and zero point of a quantised tensor; per-channel arrays are views of the file."""

    scale: Any
    zero_point: Any
    axis: int | None = None


@dataclass(frozen=True)
class View:
    """A tensor as a view of a storage; ``offset`` and ``strides`` are in elements.

    dtype       element type; None if unknown. ``type_name`` keeps torch's name.
    conjugated  torch conjugates the values on access (lazy flag).
    negated     torch negates the values on access (lazy flag).
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype | None
    type_name: str
    scaled: Scaled | None = None
    conjugated: bool = False
    negated: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Number of storage elements from the first to the last element of the tensor."""
        if not self.elements:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))

    @property
    def is_contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


class LeftOut(NamedTuple):
    """The reason why a tensor has no readable values."""

    why: str


def referred(reference: Any) -> Storage | Global:
    """Return the storage or class of a persistent reference; the older form keeps source text beside a class name.

    Raises FormatError for any other reference.
    """
    match reference:
        case ("module", Global() as of, *_):
            return of
        case ("storage", Global() as of, str() as key, _, int() as elements, *rest) if 0 <= elements < MOST_BYTES:
            word = of.name.rpartition(".")[2]
            dtype = KNOWN.get(_STORAGES.get(word, ""))
            first = rest[0][1] if rest and isinstance(rest[0], tuple) and len(rest[0]) == 3 else 0
            if len(key) <= 200 and type(first) is int and 0 <= first < MOST_BYTES:
                return Storage(key, word, dtype, elements, first)
    raise FormatError("refused: the pickle has a persistent reference that is not a storage")


def rebuilt(function: Global, arguments: tuple[Any, ...]) -> Any:
    """Return the result of a call in a torch file: a View, LeftOut or plain data. Raises FormatError."""
    build = _CALLS.get((function.module, function.name))
    if build is None and function.module.startswith("torch_npu.") and function.name == "_rebuild_npu_tensor":
        build = _tensor
    if build is None and function.module.startswith("__torch__"):
        return Object(function, arguments)
    if build is None:
        raise refused(function)
    try:
        return build(*arguments)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise FormatError(
            f"the pickle has a damaged call of {function} ({' '.join(str(error).split())[:80]})"
        ) from None


def tensors_in(content: Any, alone: str, notes: list[str]) -> Iterator[tuple[str, View]]:
    """Yield name and view of each tensor in file order; ``alone`` is the name of a single tensor.

    Skipped values are reported in ``notes``.
    """
    others, deep, visited = 0, 0, set[int]()
    waiting: list[tuple[str, Any, int]] = [("", content, 0)]
    while waiting:
        name, value, depth = waiting.pop()
        if isinstance(value, View):
            yield name or alone, value
        elif isinstance(value, LeftOut):
            notes.append(f"left out: {(name or alone)[:200]!r} is {value.why}")
        elif isinstance(value, dict | list | tuple | Object):
            if id(value) in visited and value != ():
                continue
            visited.add(id(value))
            inner = _inside(value)
            if inner and (depth >= DEEPEST or len(name) > LONGEST_NAME):
                deep += 1
                continue
            named = [(f"{name}.{part}" if name and part else name or part, item, depth + 1) for part, item in inner]
            waiting.extend(reversed(named))
        elif value is not None and not isinstance(value, Global):
            others += 1
    if others:
        notes.append(f"left out: {others} values that are not tensors (numbers, strings …)")
    if deep:
        notes.append(f"left out: {deep} values nested more than {DEEPEST} deep or with names that are too long")


def _tensor(of: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> View:
    """Interpret ``_rebuild_tensor`` and ``_v2``; the last argument of the latter may be a dict of flags."""
    return _view(of, offset, size, stride, rest[-1] if rest else None)


def _tensor_v3(of: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> View:
    """Interpret ``_rebuild_tensor_v3``: a type without a typed storage, stored as bytes. The flags may be absent."""
    _gradient, _hooks, dtype, flags = rest if len(rest) == 4 else (*rest, None)
    view = _view(of, offset, size, stride, flags)
    return replace(view, dtype=KNOWN.get(dtype.name), type_name=dtype.name)


def _quantised(of: Any, offset: Any, size: Any, stride: Any, how: Any, *_rest: Any) -> View:
    view = _view(of, offset, size, stride)
    match how:
        case (Global(_, "per_tensor_affine"), float() | int() as scale, int() as zero_point):
            return replace(view, scaled=Scaled(float(scale), zero_point))
        case (Global(_, "per_channel_affine"), View() as scales, View() as zero_points, int() as axis):
            if 0 <= axis < len(view.shape):
                return replace(view, scaled=Scaled(scales, zero_points, axis))
    return replace(view, dtype=None, type_name=f"quantised {of.type_name}")


def _view(of: Any, offset: Any, size: Any, stride: Any, flags: Any = None) -> View:
    if not isinstance(of, Storage):
        raise FormatError("the pickle has a tensor without a storage")
    shape, strides = (_whole_numbers(numbers) for numbers in (size, stride))
    if len(shape) != len(strides) or len(shape) > MOST_RANK or type(offset) is not int or not 0 <= offset < MOST_BYTES:
        raise FormatError(f"the pickle has a tensor of an impossible shape: {str(list(shape))[:80]}")
    if math.prod(max(1, size) for size in shape) > MOST_BYTES:
        raise FormatError(f"the pickle has a tensor that is too large for any memory: {str(list(shape))[:80]}")
    flags = flags if isinstance(flags, dict) else {}
    conjugated, negated = (flags.get(name) is True for name in ("conj", "neg"))
    return View(of, of.first + offset, shape, strides, of.dtype, of.type_name, None, conjugated, negated)


def _whole_numbers(numbers: Any) -> tuple[int, ...]:
    if not isinstance(numbers, tuple | list) or any(type(n) is not int or not 0 <= n < MOST_BYTES for n in numbers):
        raise FormatError("the pickle has a tensor of impossible shape or strides")
    return tuple(numbers)


def _first(data: Any, *_rest: Any) -> Any:
    """Return the first argument: the data of a parameter, or a value that is stored with its type."""
    return data


def _of_type(function: Any, _type: Any, arguments: Any, _state: Any = None) -> Any:
    """Interpret a tensor of a user-defined class."""
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        raise FormatError(
            "the pickle has a tensor of a user-defined class, but does not name the function that rebuilds the tensor"
        )
    if (function.module, function.name) == ("torch._tensor", "_rebuild_from_type_v2"):
        raise FormatError(
            "the pickle has a tensor whose user-defined class wraps another user-defined class, which cannot be read"
        )
    return rebuilt(function, arguments)


def _without(why: str) -> Callable[..., LeftOut]:
    return lambda *arguments: LeftOut(why)


def _mapping(items: Any = (), *_rest: Any) -> dict[Any, Any]:
    """Create an OrderedDict or Counter; the pickle adds the items afterwards."""
    return items if isinstance(items, dict) else {}


def _inside(value: Any) -> list[tuple[str, Any]]:
    """Return the direct items of a container, each with its part of the name."""
    if isinstance(value, dict):
        return [("" if key in _OF_MODULE else str(key)[:LONGEST_NAME], item) for key, item in value.items()]
    if isinstance(value, Object):
        states = value.state if isinstance(value.state, tuple) else (value.state,)
        inner = [pair for state in states if isinstance(state, dict) for pair in _inside(state)]
        return [*inner, *_inside(value.items), *_inside(value.elements), *_inside(_containers(value.arguments))]
    return [(str(number), item) for number, item in enumerate(value)]


def _containers(arguments: Any) -> list[Any]:
    """Return the constructor arguments of an object that may contain tensors."""
    kinds = (dict, list, tuple, Object, View, LeftOut)
    return [argument for argument in arguments if isinstance(argument, kinds)] if isinstance(arguments, tuple) else []


_CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    ("torch._utils", "_rebuild_qtensor"): _quantised,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_parameter_with_state"): _first,
    ("torch._tensor", "_rebuild_from_type_v2"): _of_type,
    ("torch._utils", "_rebuild_sparse_tensor"): _without("a sparse tensor"),
    ("torch._utils", "_rebuild_nested_tensor"): _without("a nested tensor"),
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _without("a tensor without values, of the device meta"),
    ("torch.nn.parameter", "Parameter"): _first,
    ("torch.serialization", "_get_layout"): lambda *arguments: None,
    ("torch.jit._pickle", "restore_type_tag"): _first,
    **{("torch.jit._pickle", f"build_{kind}list"): _first for kind in ("int", "double", "bool", "tensor")},
    ("torch", "Size"): _first,
    ("torch", "device"): lambda *arguments: None,
    ("collections", "OrderedDict"): _mapping,
    ("collections", "defaultdict"): lambda *arguments: {},
    ("collections", "Counter"): _mapping,
    **{(module, "set"): _first for module in ("builtins", "__builtin__")},
    ("_codecs", "encode"): _first,
    ("builtins", "slice"): lambda *arguments: None,
    ("builtins", "complex"): lambda *arguments: None,
    ("datetime", "datetime"): lambda *arguments: None,
    ("pathlib", "PosixPath"): lambda *arguments: None,
    ("argparse", "Namespace"): lambda *arguments: Object(None),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _without("a numpy array") for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): lambda *arguments: None for core in ("core", "_core")},
    ("numpy", "dtype"): lambda *arguments: None,
    ("copy_reg", "_reconstructor"): lambda of, *arguments: Object(of, arguments),
    ("copyreg", "_reconstructor"): lambda of, *arguments: Object(of, arguments),
}
