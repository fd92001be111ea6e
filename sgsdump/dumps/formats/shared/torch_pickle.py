"""The pickle in a torch file: storages, tensors as views, their names.

``torch.save`` writes a tensor as a call of ``torch._utils._rebuild_tensor_v2(storage, offset, size, stride, …)``, and a
storage as a reference outside of the pickle, ``("storage", torch.FloatStorage, key, location, elements)``. The calls
that are known here give records; any other is refused. (torch/_utils.py and torch/serialization.py are the source.)

Tensors lie in dicts, lists and objects within one another and are named by the way to them: ``{"model": {"conv.weight":
…}, "steps": [{…}]}`` has ``model.conv.weight`` and ``steps.0.…``; a module that was saved whole has its tensors under
the names of its state dict; a tensor alone has the file's name. Values that are not tensors are counted; what stands in
several places is named where it comes first.
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
# The element types of typed storages, by torch's names of the classes.
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
# The dicts of a module in which its tensors and its parts stand.
_OF_MODULE = ("_parameters", "_buffers", "_modules")


class Storage(NamedTuple):
    """A run of bytes beside the pickle, of which tensors are views.

    dtype     of its elements; None for bytes, and for types that are not known.
    elements  of ``dtype``; bytes where it is None.
    first     the element that counts as its first (views of older files).
    """

    key: str
    type_name: str
    dtype: np.dtype | None
    elements: int
    first: int = 0


@dataclass(frozen=True)
class Scaled:
    """The scale and zero point of a quantised tensor; arrays per channel are tensors of the file themselves."""

    scale: Any
    zero_point: Any
    axis: int | None = None


@dataclass(frozen=True)
class View:
    """A tensor: ``shape`` elements of a storage, ``strides`` apart (in elements), from element ``offset``.

    dtype        None where the type is not known; ``type_name`` keeps torch's word.
    conjugated, negated   what torch does with the values when it is asked for them.
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
        """The elements of the storage from the first to the last one that are the tensor's."""
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
    """A tensor that has no values here, and why."""

    why: str


def referred(reference: Any) -> Storage | Global:
    """The storage that a reference outside of the pickle is of, or the class, beside whose name the older form keeps
    its source text. Raises FormatError for any other reference."""
    match reference:
        case ("module", Global() as of, *_):
            return of
        case ("storage", Global() as of, str() as key, _, int() as elements, *rest) if 0 <= elements < MOST_BYTES:
            word = of.name.rpartition(".")[2]
            dtype = KNOWN.get(_STORAGES.get(word, ""))
            first = rest[0][1] if rest and isinstance(rest[0], tuple) and len(rest[0]) == 3 else 0
            if len(key) <= 200 and type(first) is int and 0 <= first < MOST_BYTES:
                return Storage(key, word, dtype, elements, first)
    raise FormatError("refused: the pickle points at something outside of itself that is not a storage")


def rebuilt(function: Global, arguments: tuple[Any, ...]) -> Any:
    """The result of a call in a torch file: a View, LeftOut, or plain data. Raises FormatError."""
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
        raise FormatError(f"a damaged call of {function} ({' '.join(str(error).split())[:80]})") from None


def tensors_in(content: Any, alone: str, notes: list[str]) -> Iterator[tuple[str, View]]:
    """Every tensor under its name, in the file's order; ``alone`` names one that is all there is.

    ``notes`` gets a line on what is not among them.
    """
    others, deep, visited = 0, 0, set[int]()
    waiting: list[tuple[str, Any, int]] = [("", content, 0)]
    while waiting:
        name, value, depth = waiting.pop()
        if isinstance(value, View):
            yield name or alone, value
        elif isinstance(value, LeftOut):
            notes.append(f"{(name or alone)[:200]!r} is {value.why}; it is left out")
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
        notes.append(f"{others} values are not tensors (numbers, texts …); they are left out")
    if deep:
        notes.append(f"{deep} values lie more than {DEEPEST} deep, or under endless names; they are left out")


def _tensor(of: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> View:
    """``_rebuild_tensor`` and ``_v2``; the last argument of the latter may be a dict of flags."""
    return _view(of, offset, size, stride, rest[-1] if rest else None)


def _tensor_v3(of: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> View:
    """A tensor of a type that has no storage of its own: the storage is of bytes. The flags may be absent."""
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
        raise FormatError("the pickle makes a tensor of something that is not a storage")
    shape, strides = (_whole_numbers(numbers) for numbers in (size, stride))
    if len(shape) != len(strides) or len(shape) > MOST_RANK or type(offset) is not int or not 0 <= offset < MOST_BYTES:
        raise FormatError(f"the pickle makes a tensor of a shape that cannot be: {str(list(shape))[:80]}")
    if math.prod(max(1, size) for size in shape) > MOST_BYTES:
        raise FormatError(f"the pickle makes a tensor beyond any memory: {str(list(shape))[:80]}")
    flags = flags if isinstance(flags, dict) else {}
    conjugated, negated = (flags.get(name) is True for name in ("conj", "neg"))
    return View(of, of.first + offset, shape, strides, of.dtype, of.type_name, None, conjugated, negated)


def _whole_numbers(numbers: Any) -> tuple[int, ...]:
    if not isinstance(numbers, tuple | list) or any(type(n) is not int or not 0 <= n < MOST_BYTES for n in numbers):
        raise FormatError("the pickle makes a tensor of a shape or strides that cannot be")
    return tuple(numbers)


def _first(data: Any, *_rest: Any) -> Any:
    """Parameters, and values with a type beside them."""
    return data


def _of_type(function: Any, _type: Any, arguments: Any, _state: Any = None) -> Any:
    """A tensor of a class of the user's."""
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        raise FormatError("a tensor of a class of its own, made by something that is not a name")
    if (function.module, function.name) == ("torch._tensor", "_rebuild_from_type_v2"):
        raise FormatError("a tensor of a class within a class")
    return rebuilt(function, arguments)


def _without(why: str) -> Callable[..., LeftOut]:
    return lambda *arguments: LeftOut(why)


def _mapping(items: Any = (), *_rest: Any) -> dict[Any, Any]:
    """OrderedDict, defaultdict, Counter: what is in them follows."""
    return items if isinstance(items, dict) else {}


def _inside(value: Any) -> list[tuple[str, Any]]:
    """The items directly in a container, each with its part of the name."""
    if isinstance(value, dict):
        return [("" if key in _OF_MODULE else str(key)[:LONGEST_NAME], item) for key, item in value.items()]
    if isinstance(value, Object):
        states = value.state if isinstance(value.state, tuple) else (value.state,)
        inner = [pair for state in states if isinstance(state, dict) for pair in _inside(state)]
        return [*inner, *_inside(value.items), *_inside(value.elements), *_inside(_containers(value.arguments))]
    return [(str(number), item) for number, item in enumerate(value)]


def _containers(arguments: Any) -> list[Any]:
    """The arguments that an object is made with in which tensors may be."""
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
