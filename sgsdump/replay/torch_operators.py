"""Replay of torch's own operators: compute one again in float64 from its recorded inputs.

The operator is looked up by its recorded name and overload among those that torch itself registered. Nothing recorded
is evaluated as code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.errors import MissingExtra
from sgsdump.replay.bounds import OF_FLOAT32, TORCH, Bound, float_type, terms
from sgsdump.replay.formulas import FORMULAS
from sgsdump.replay.judgement import Reference

if TYPE_CHECKING:
    import torch

NAMESPACES = ("aten",)
_NARROW = {"bfloat16": "bfloat16", "float16": "float16"}  # torch converts them faster than numpy
_NAME = re.compile(r"\w{1,100}")
_VIEWS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8, "float8_e8m0fnu": np.uint8}
# The size of their result depends on their arguments.
SIZED = frozenset(
    "zeros ones full arange linspace eye repeat tile constant_pad_nd upsample_nearest1d upsample_nearest2d"
    " upsample_bilinear2d upsample_linear1d upsample_trilinear3d upsample_nearest3d new_zeros new_ones new_full"
    " tril_indices triu_indices reflection_pad1d reflection_pad2d replication_pad2d one_hot repeat_interleave"
    " _upsample_nearest_exact2d upsample_bicubic2d im2col".split()
)
_WITHOUT = frozenset("device layout pin_memory memory_format non_blocking generator".split())
# They copy input values bit by bit.
_MOVING = frozenset(
    "view _unsafe_view reshape _reshape_copy t transpose permute expand slice select unsqueeze squeeze split"
    " split_with_sizes unsafe_split chunk unbind unfold diagonal clone contiguous detach alias cat stack index_select"
    " gather embedding flip roll repeat movedim".split()
)
_BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
# Scalar arguments that are used in the computation.
_SCALARS = frozenset(
    "self other exponent value alpha beta lambd negative_slope min max min_val max_val threshold".split()
)
# Their second output holds positions: of equal values, any position is right.
_PLACES = {"max", "min", "sort", "topk", "argmax", "argmin", "median"}
_POOLING = {"max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d"}
# A transposed convolution adds overlapping values in their own type.
_OVERLAPPING = 9
_ADDING = {"sub": "add", "rsub": "add"}


class NotReplayed(Exception):
    """The reason why an operator cannot be computed again, or has no bound."""


@dataclass(frozen=True, eq=False)
class Call:
    """A recorded operator.

    kind       ``aten.addmm``.
    overload   of the schema, "" for the default one.
    tensors    inputs by argument name; of a list by name and index, ``tensors.1``.
    arguments  other arguments by name.
    outputs    recorded results, in order.
    """

    kind: str
    overload: str
    tensors: Mapping[str, np.ndarray]
    arguments: Mapping[str, Any]
    outputs: Sequence[np.ndarray]

    @property
    def name(self) -> str:
        """The name without namespace and without the underscore of in-place operators."""
        return plain_name(self.kind)


def plain_name(kind: str) -> str:
    name = kind.partition(".")[2]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def library() -> Any:
    """Return torch. Raises MissingExtra."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("recomputing the operators of torch needs torch: pip install 'sgsdump[torch]'") from None
    return torch


def is_moved(call: Call) -> bool:
    """Return whether an operator that only moves values returned exact copies of its inputs.

    False only means that the operator has to be computed.
    """
    arrays = [*call.tensors.values(), *call.outputs]
    floats = {array.dtype for array in arrays if _is_float(array)}
    if call.name not in _MOVING or len(floats) != 1 or not all(_is_float(output) for output in call.outputs):
        return False
    bits = np.dtype(_BITS[floats.pop().itemsize])
    tensors = {name: array.view(bits) if _is_float(array) else array for name, array in call.tensors.items()}
    outputs = [array.view(bits) for array in call.outputs]
    torch = library()
    try:
        function, values = bound_call(replace(call, tensors=tensors, outputs=outputs))
        if call.name in SIZED:
            check_size(call, function, values)
        with torch.no_grad():
            results = outputs_of(function, values)
    except Exception:  # the error is reported when the operator is computed
        return False
    made = [_array(result) for result in results]
    return len(made) == len(outputs) and all(map(_are_same, made, outputs))


def _are_same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.size == other.size and bool(np.array_equal(one.reshape(-1), other.reshape(-1)))


def references(call: Call, bound: Bound) -> list[list[Reference] | None]:
    """Return what each recorded output may be compared with; None if it is not judged. Raises NotReplayed."""
    torch = library()
    function, values = bound_call(call)
    with torch.no_grad():
        try:
            return list(_all_references(call, bound, function, values))
        except NotReplayed:
            raise
        except Exception as error:  # torch raises all kinds of errors for arguments that do not fit
            raise NotReplayed(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from None


def _all_references(
    call: Call, bound: Bound, function: Any, values: dict[str, Any]
) -> Iterator[list[Reference] | None]:
    if call.name in SIZED:
        check_size(call, function, values)
    first = _references(call, bound, function, values)
    second = None
    rounded = _with_rounded_scalars(call, values)
    if rounded is not None:
        second = _references(call, bound, function, rounded)
    for slot in range(len(call.outputs)):
        found = first[slot] if slot < len(first) else None
        other = second[slot] if second is not None and slot < len(second) else None
        yield None if found is None else [found] if other is None else [found, other]


def _references(call: Call, bound: Bound, function: Any, values: dict[str, Any]) -> list[Reference | None]:
    if bound.magnitude == "formula" and call.name in FORMULAS:
        made = FORMULAS[call.name]({**values, "narrow": _narrow(call)})
        return [
            None
            if output is None
            else Reference(
                _array(output[0]),
                None if output[1] is None else _array(output[1]),
                bound.units,
                bound.roundings,
            )
            for output in made
        ]
    results = outputs_of(function, values)
    if call.name in _PLACES or call.name in _POOLING:
        return _with_places(call, values, results)
    if bound.magnitude == "exact":
        return [Reference(_array(result)) for result in results]
    if bound.magnitude == "result":
        return [Reference(_array(result), None, bound.units, bound.roundings) for result in results]
    units = bound.units
    if bound.length:
        units = terms(_length(bound.length, call, results[0])) + units
    if call.arguments.get("transposed"):
        units += _OVERLAPPING * _narrow(call)
    if not any(result.dtype.is_floating_point or result.dtype.is_complex for result in results):
        return [Reference(_array(result)) for result in results]
    is_wide = any(array.dtype.name in ("float64", "complex128") for array in (*call.tensors.values(), *call.outputs))
    of_sizes = {name: _size(value, name, is_wide) for name, value in values.items()}
    sizes = outputs_of(_on_sizes(call, function), of_sizes)
    return [
        Reference(_array(result), _array(size.abs()), units, bound.roundings) for result, size in zip(results, sizes)
    ]


def _narrow(call: Call) -> float:
    """Return how much coarser than float32 the type of the inputs is; 0 if it is not."""
    coarsest = max((float_type(array.dtype).u for array in call.tensors.values() if _is_float(array)), default=0.0)
    return coarsest / OF_FLOAT32 if coarsest > OF_FLOAT32 else 0.0


def bound_call(call: Call, tensors: Mapping[str, torch.Tensor] | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the overload and its arguments by name: tensors in float64, missing arguments with the schema's defaults.

    Parameters
    ----------
    call
        The operator as recorded.
    tensors
        Its inputs by argument name; None: the recorded tensors.
    """
    function = overload_of(call.kind, call.overload)
    tensors = {name: wide(array) for name, array in call.tensors.items()} if tensors is None else tensors
    schema = function._schema
    values: dict[str, Any] = {}
    result = call.outputs[0] if call.outputs else None
    for argument in schema.arguments:
        name, kind = argument.name, str(argument.type)
        if getattr(argument, "is_out", False):
            values[name] = _empty(result)
        elif name in tensors:
            values[name] = tensors[name]
        elif any(key.startswith(f"{name}.") for key in tensors):
            values[name] = _list_of(tensors, name)
        elif name == "dtype":
            values[name] = None if result is None else wide_type(result)
        elif name == "half_to_float":
            values[name] = False
        elif name in _WITHOUT:
            continue
        elif name in call.arguments:
            values[name] = _argument(call.arguments[name], kind)
        elif argument.has_default_value():
            values[name] = argument.default_value
        else:
            raise NotReplayed(f"the operator's argument {name} was not recorded")
    return function, values


def overload_of(kind: str, overload: str) -> Any:
    """Return torch's overload. Raises NotReplayed for a name that is none of torch's own operators."""
    torch = library()
    namespace, _, name = kind.partition(".")
    if namespace not in NAMESPACES or not _NAME.fullmatch(name):
        raise NotReplayed("the operator is not one of torch's own operators")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise NotReplayed("this version of torch does not have this operator")
    overload = overload or "default"
    if overload not in packet.overloads():
        raise NotReplayed("this version of torch does not have this overload of the operator")
    return getattr(packet, overload)


def _list_of(tensors: Mapping[str, torch.Tensor], name: str) -> list[torch.Tensor | None]:
    """Return a list of tensors; None for an index that was omitted."""
    numbered = {int(key.rpartition(".")[2]): key for key in tensors if key.startswith(f"{name}.")}
    if max(numbered) > 10_000:
        raise NotReplayed("the operator reads a list of more than 10000 tensors")
    return [tensors[numbered[index]] if index in numbered else None for index in range(max(numbered) + 1)]


def _argument(value: Any, kind: str) -> Any:
    if kind == "Tensor" and isinstance(value, (bool, int, float)):
        torch = library()
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return value


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in _VIEWS


def wide(array: np.ndarray) -> torch.Tensor:
    """Return a copy of an array as a torch tensor, floats as float64."""
    torch = library()
    if _is_float(array):
        narrow = _NARROW.get(array.dtype.name)
        if narrow is None:
            return torch.from_numpy(array.astype(np.float64))
        bits = torch.from_numpy(np.array(array.view(_BITS[array.dtype.itemsize]), copy=True, order="C"))
        return bits.view(getattr(torch, narrow)).to(torch.float64)
    if array.dtype.kind == "c":
        return torch.from_numpy(array.astype(np.complex128))
    if array.dtype.kind not in "biu":
        raise NotReplayed(f"the operator reads a tensor of the unsupported type {array.dtype}")
    return torch.from_numpy(np.array(array, copy=True, order="C"))


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values in order as float64, a complex one as two."""
    torch = library()
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.reshape(-1).to(torch.float64)


def wide_type(result: np.ndarray) -> torch.dtype:
    """Return the type to compute a recorded result in."""
    torch = library()
    if _is_float(result):
        return torch.float64
    if result.dtype.kind == "c":
        return torch.complex128
    return getattr(torch, result.dtype.name)


def _empty(result: np.ndarray | None) -> torch.Tensor:
    torch = library()
    return torch.empty(0, dtype=torch.float64 if result is None else wide_type(result))


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().resolve_conj().resolve_neg().contiguous().numpy()


def outputs_of(function: Any, values: Mapping[str, Any], in_place: bool = False) -> list[Any]:
    """Return the tensors that an operator returns, in order; if it only writes, the tensors that it wrote to.

    With ``in_place`` it writes into the tensors themselves, otherwise into copies.
    """
    torch = library()
    positional, named = [], {}
    for argument in function._schema.arguments:
        if argument.name not in values:
            continue
        if argument.kwarg_only:
            named[argument.name] = values[argument.name]
        else:
            positional.append(values[argument.name])
    positional = (
        [value.clone() if isinstance(value, torch.Tensor) else value for value in positional]
        if _writes(function) and not in_place
        else positional
    )
    result = function(*positional, **named)
    results = result if isinstance(result, (list, tuple)) else [result]
    return [value for value in _flat(results) if isinstance(value, torch.Tensor)]


def _writes(function: Any) -> bool:
    return any(
        argument.alias_info is not None and argument.alias_info.is_write for argument in function._schema.arguments
    )


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def check_size(call: Call, function: Any, values: Mapping[str, Any]) -> None:
    """Raise NotReplayed if the result would be larger than what was recorded: the arguments may be damaged."""
    recorded = sum(output.size for output in call.outputs)
    if call.name == "arange":  # on no tensor: torch would load its compiler to answer this
        begin, end, step = (values.get(name, default) for name, default in (("start", 0), ("end", 0), ("step", 1)))
        if not step or math.ceil((end - begin) / step) != recorded:
            raise NotReplayed("the size of the recorded result does not match the operator's arguments")
        return
    torch = library()
    on_meta = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in values.items()}
    if any(argument.name == "device" for argument in function._schema.arguments):
        on_meta["device"] = torch.device("meta")
    if sum(result.numel() for result in outputs_of(function, on_meta)) != recorded:
        raise NotReplayed("the size of the recorded result does not match the operator's arguments")


def _with_rounded_scalars(call: Call, values: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments with each scalar rounded to a narrow type, as some kernels use them.

    None if nothing changes.
    """
    torch = library()
    narrow = [array.dtype for array in call.tensors.values() if _is_float(array) and array.dtype.itemsize < 4]
    if not narrow:
        return None
    changed = dict(values)
    for name, given in call.arguments.items():
        if type(given) not in (int, float) or values.get(name) is None or not math.isfinite(given):
            continue
        if name in _SCALARS:
            near = float(np.float64(given).astype(narrow[0]))
            if near != given and math.isfinite(near):
                is_tensor = isinstance(values[name], torch.Tensor)
                changed[name] = torch.tensor(near, dtype=torch.float64) if is_tensor else near
    return changed if any(changed[name] is not values[name] for name in values) else None


def _with_places(call: Call, values: Mapping[str, Any], results: Sequence[Any]) -> list[Reference | None]:
    """Return values and positions; positions are compared by the values there, because equal values have several."""
    torch = library()
    found: list[Reference | None] = []
    for slot, result in enumerate(results[: len(call.outputs)]):
        recorded = call.outputs[slot]
        if _is_float(recorded) or (recorded.dtype.kind != "i" or recorded.dtype.itemsize != 8):
            found.append(Reference(_array(result)))
            continue
        source, dim = values.get("self"), values.get("dim")
        if call.name in _POOLING or source is None or not source.is_floating_point():
            found.append(None if call.name in _POOLING else Reference(_array(result)))
            continue
        places = torch.from_numpy(np.array(recorded, copy=True))
        found.append(_same_place(source, dim, places, result))
    return found


def _same_place(source: Any, dim: int | None, places: Any, result: Any) -> Reference:
    """Return the recorded positions where they hold the same values as the right ones, otherwise the right ones."""
    torch = library()
    if dim is None:
        source, dim, places, result = source.reshape(-1), 0, places.reshape(1), result.reshape(1)
    if not source.ndim or not ((places >= 0) & (places < source.shape[dim])).all():
        return Reference(_array(result))
    if places.ndim < source.ndim:
        places, result = places.unsqueeze(dim), result.unsqueeze(dim)
    equal = source.gather(dim, places) == source.gather(dim, result)
    return Reference(_array(torch.where(equal, places, result)))


def _length(how: str, call: Call, result: Any) -> int:
    """Return the number of terms of a sum."""
    shapes = [array.shape for array in call.tensors.values()]
    if how == "product":
        factors = [call.tensors.get(name) for name in ("mat1", "batch1", "mat", "vec1")]
        first = next((array.shape for array in factors if array is not None), None)
        return (first or shapes[0] or (1,))[-1]
    if how == "convolution":
        weight = call.tensors.get("weight")
        return math.prod((weight.shape if weight is not None else shapes[-1])[1:]) * (
            2 if call.arguments.get("transposed") else 1
        ) + (max(weight.shape[0], 1) if weight is not None and call.arguments.get("transposed") else 0)
    sizes = [array.size for array in call.tensors.values()]
    if how == "axis":
        return max([1, *(length for shape in shapes for length in shape)])
    return max(1, math.ceil(max(sizes, default=1) / max(result.numel(), 1)))


def _on_sizes(call: Call, function: Any) -> Any:
    """Return the operator that adds absolute values where this one subtracts."""
    name = call.name
    if name not in _ADDING:
        return function
    return overload_of(
        f"aten.{_ADDING[name]}", call.overload.replace("_out", "") if "_out" in call.overload else call.overload
    )


def _size(value: Any, name: str, is_wide: bool) -> Any:
    """Return an argument's absolute value, of a tensor in float32 unless ``is_wide``.

    Integers that count something stay.
    """
    torch = library()
    if isinstance(value, torch.Tensor):
        if value.dtype.is_floating_point:
            return (value if is_wide else value.to(torch.float32)).abs()
        return value.abs() if value.dtype.is_complex else value
    if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
        return [_size(inner, name, is_wide) for inner in value]
    if isinstance(value, (int, float)) and name in ("alpha", "beta", "value", "other", "weight"):
        return abs(value) if not isinstance(value, bool) else value
    return value


def bound_of(name: str) -> Bound | None:
    """Return the bound of an operator by its name without namespace."""
    found = TORCH.get(name)
    return replace(found) if found is not None else None
