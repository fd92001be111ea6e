"""Exact scales and shapes of SigmaStar dumps, from calibration ranges and from the parse_net text of the model.

**Scales.** A dump's header has only six decimals of the scale, with an error of up to 1.6 % for 16-bit tensors. So the
header can only *check* a scale. Exact scales come from the calibration ranges or from the ranges of a parse_net text.
parse_net's Scaler is not used: it has six decimals and is 41 % off for the output of a softmax. The rules, observed in
fixed models of the SDK:

- 8 bits: s = (hi - lo) / 255 and z = round(-lo / s), with the range extended to include 0.
- 16 bits: s = max(|lo|, |hi|) / 32767 and z = 0.
- The output of a softmax has s = 1/32768, of a sigmoid 1/32767 (both print 0.000031).
- The range of a softmax's input includes -10.
- Tensors around an operator that only moves or selects values (pooling, concat, reshape …) share one domain, the union
  of their ranges, if their headers agree.
- A derived scale is used only if it prints like the header's scale and the zero points are equal. Otherwise it is
  refused.
- A header scale of 1.000000 is exact (indices of ARG_MAX).

**Shapes.** An integer dump has neither shapes nor memory orders. Both come from parse_net; the element size comes from
the dump's header. With eliminateGarbage off, all buffers are padded (``tensors/sdk_buffers.py``); with eliminateGarbage
on, none is. If the size of a tensor fits both cases and the order matters, the other tensors of the dump decide.

**Constants.** A filter is the first n values in hardware order, so it stays flat. Biases and parameters are reshaped.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from sgsdump.dumps.dump import Dump, Record, with_tensors
from sgsdump.dumps.formats.sigmastar.binary import without_padding_notes
from sgsdump.errors import ConfigError, SgsdumpError, ValuesError
from sgsdump.tensors.sdk_buffers import BUFFER_BYTES, has_padded_channels, is_row_major, padded_sizes, unpad
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo
from sgsdump.tensors.types import NHWC, Range

if TYPE_CHECKING:
    from sgsdump.sidecars.parse_net import NetTensor, ParseNet

Ranges = Mapping[str, Range]
_POOLS = {"MAX_POOL_2D", "AVERAGE_POOL_2D"}
_MOVES = {"RESHAPE", "Reshape_Alias", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "PAD", "SLICE", "STRIDED_SLICE", "GATHER"}
_SHARING = _POOLS | _MOVES | {"CONCATENATION", "SPLIT", "SPLIT_V", "PACK", "UNPACK"}
_FIXED = {"SOFTMAX": 1 / 32768, "LOGISTIC": 1 / 32767}
_SOFTMAX_LOWEST = -10.0
Padded = Callable[[], bool | None]


def true_scales(dump: Dump, ranges: Ranges) -> tuple[dict[str, Quant], dict[str, str]]:
    """Return exact quantisation parameters by tensor name for an integer dump, and the reasons of refusals by name.

    Constants and tensors with exact scale are in neither result.
    """
    headers = {r.name: r.tensor.info.quant for r in dump.records if not r.constant and _coarse(r)}
    quants: dict[str, Quant] = {}
    refused: dict[str, str] = {}
    for members in _domains(dump, headers):
        for name in members:
            header = headers[name]
            assert header is not None
            tried = list(_candidates(dump, members, ranges, header))
            fitting = [quant for quant in tried if _prints_as(quant, header)]
            if fitting:
                quants[name] = fitting[0]
            elif tried:
                refused[name] = (
                    f"the ranges give scale {tried[0].scale:.6f} and zero point {tried[0].zero_point}, but the dump's "
                    f"header has {header.scale:.6f} and {header.zero_point}. Check that both are of the same model"
                )
            else:
                refused[name] = "the ranges file has no range for the tensor or for tensors of the same domain"
    return quants, refused


def with_scales(dump: Dump, ranges: Ranges) -> Dump:
    """Return the dump with exact scales from ``true_scales``, so that ``real`` returns exact float32 values.

    Reading a tensor whose scale was refused raises ValuesError with the reason. Constants, tensors with exact scale and
    tensors without integers stay unchanged.
    """
    return rescaled(dump, *true_scales(dump, ranges))


def rescaled(dump: Dump, scales: Mapping[str, Quant], refused: Mapping[str, str]) -> Dump:
    """Return the dump with new scales for tensors that have only a rounded scale.

    Reading a tensor in ``refused`` raises ValuesError with the reason. Tensors in neither mapping keep the scale of the
    header.
    """

    def tensor_of(record: Record) -> Tensor:
        tensor, name = record.tensor, record.name
        if record.constant or not _coarse(record):
            return tensor
        if name in refused:
            return _refused(tensor.info, f"no true scale for tensor {name!r}: {refused[name]}")
        return Tensor(replace(tensor.info, quant=scales[name]), tensor.raw) if name in scales else tensor

    return with_tensors(dump, tensor_of)


def net_tensor(record: Record, net: ParseNet) -> NetTensor | None:
    """Return the parse_net facts of a record; for a name that was cut, of the only name with this prefix."""
    if not record.cut:
        return net.tensors.get(record.name)
    tensors = [tensor for name, tensor in net.tensors.items() if name.startswith(record.name)]
    return tensors[0] if len(tensors) == 1 else None


def scales_of(dump: Dump, net: ParseNet) -> tuple[dict[str, Quant], dict[str, str]]:
    """Return the result of ``true_scales`` from parse_net's ranges.

    A range is used only if the element types in parse_net and dump are equal. The ranges of two conversions of a model
    may differ by less than the header's six decimals show.
    """
    quants, refused = true_scales(dump, _ranges(dump, net))
    for record in dump.records:
        facts = net_tensor(record, net)
        own = _exact(record, facts)
        if own is not None:
            quants[record.name] = own
            refused.pop(record.name, None)
        if record.name not in refused:
            continue
        if record.name in net.ambiguous:
            refused[record.name] = f"{net.path.name} lists different tensors of this name"
        elif facts is None:
            refused[record.name] = f"{net.path.name} does not list the tensor"
        elif facts.dtype != record.tensor.info.dtype:
            refused[record.name] = (
                f"the tensor is {facts.type_name} in {net.path.name}, but {record.tensor.info.dtype} in the dump: "
                f"they come from different conversions"
            )
    return quants, refused


def _exact(record: Record, facts: NetTensor | None) -> Quant | None:
    """Return the scale in fixed.sim if it prints like the dump's header (not so for Softmax); else None."""
    header = record.tensor.info.quant
    if facts is None or not facts.exact or facts.scale is None or header is None or not _coarse(record):
        return None
    own = replace(header, scale=facts.scale, zero_point=facts.zero_point or 0, exact=True)
    return own if _prints_as(own, header) and facts.dtype == record.tensor.info.dtype else None


def with_net_scales(dump: Dump, net: ParseNet) -> Dump:
    """Return the dump with the scales of ``scales_of``; refused tensors keep the rounded scale of the header."""
    return rescaled(dump, scales_of(dump, net)[0], {})


def unpadded(dump: Dump, net: ParseNet) -> Dump:
    """Return the dump with the shapes of parse_net; integer buffers are unpadded when they are read.

    Reading a tensor raises ValuesError if its size fits neither the padded nor the plain size, or if its memory order
    is unknown. Unchanged are: tensors that parse_net does not list, unknown types, floats of another size, and float
    constants. Raises ConfigError if parse_net lists no tensor of an integer dump.
    """
    facts = [(record, net_tensor(record, net)) for record in dump.records]
    if any(map(_has_integers, dump.records)) and not any(tensor for _, tensor in facts):
        raise ConfigError(
            f"{net.path} lists no tensor of {dump.path or 'the dump'}. Give the parse_net text of the same fixed model"
        )
    padded = lru_cache(1)(partial(_is_padded, facts))
    resolved = Dump(dump.records, dump.format, dump.variant, dump.path, without_padding_notes(dump.notes))
    return with_tensors(resolved, lambda record: _shaped(record, net_tensor(record, net), net, padded))


def with_side_files(dump: Dump, ranges: Ranges | None = None, net: ParseNet | None = None) -> Dump:
    """Return the dump with the facts from calibration ranges and from the parse_net text of its model, if given.

    Buffers are unpadded. Integers get the exact scale from parse_net's ranges, else from the calibration ranges.
    Reading a tensor without an exact scale raises ValuesError with the reason.
    """
    if net is None:
        dump = without_blocks(dump)
        return dump if ranges is None else with_scales(dump, ranges)
    dump = unpadded(dump, net)
    quants, refused = ({}, {}) if ranges is None else true_scales(dump, ranges)
    net_quants, net_refused = scales_of(dump, net)
    quants = quants | net_quants
    return rescaled(dump, quants, {n: why for n, why in (refused | net_refused).items() if n not in quants})


def without_blocks(dump: Dump) -> Dump:
    """Return the dump; in a dump of padded buffers, reading tensors of unknown order raises ValuesError.

    These are tensors that may be stored in blocks of channels although their size fits their shape.
    """
    integers = [r for r in dump.records if _has_integers(r) and r.tensor.info.shape and not r.constant]
    if not any(map(_has_padded_channels, integers)):
        return dump
    shaped = {id(record) for record in integers if len(record.tensor.info.shape or ()) == 4}

    def tensor_of(record: Record) -> Tensor:
        info = record.tensor.info
        if id(record) not in shaped or is_row_major("NHWX", info.shape or (), info.dtype.itemsize):
            return record.tensor
        why = "is a padded hardware buffer of unknown order"
        return _refused(info, f"{why}. Give --parse-net, or dump again with eliminateGarbage", record.name)

    return with_tensors(dump, tensor_of)


def _refused(info: TensorInfo, reason: str, tensor: str | None = None) -> Tensor:
    """Return a tensor whose values raise ValuesError when they are read."""

    def load() -> np.ndarray:
        raise ValuesError(reason, tensor)

    return Tensor(info, load)


def _has_integers(record: Record) -> bool:
    return record.tensor.info.dtype.kind in "iu"


def _coarse(record: Record) -> bool:
    quant = record.tensor.info.quant
    return _has_integers(record) and quant is not None and quant.dtype is not None and not quant.exact


def _domains(dump: Dump, headers: Mapping[str, Quant | None]) -> list[list[str]]:
    """Group names by shared domain: tensors of a value-moving operator whose headers agree."""
    operators: dict[int, list[Record]] = defaultdict(list)
    for record in dump.records:
        if record.name in headers and not record.constant:
            operators[record.op_index].append(record)
    domain = {name: [name] for name in headers}
    for records in operators.values():
        if not any(record.op_type in _SHARING for record in records):
            continue
        for first, second in combinations([record.name for record in records], 2):
            if domain[first] is not domain[second] and _same(headers[first], headers[second]):
                domain[first] += domain[second]
                domain.update(dict.fromkeys(domain[second], domain[first]))
    return list({id(members): members for members in domain.values()}.values())


def _same(a: Quant | None, b: Quant | None) -> bool:
    return a is not None and b is not None and (a.dtype, a.scale, a.zero_point) == (b.dtype, b.scale, b.zero_point)


def _candidates(dump: Dump, members: list[str], ranges: Ranges, header: Quant) -> Iterator[Quant]:
    """Yield the scales that the rules allow for a domain, the most specific first."""
    names = set(members)
    records = [record for record in dump.records if record.name in names]
    if header.dtype == np.int16:
        for op_type in _FIXED.keys() & {record.op_type for record in records if record.io == "out"}:
            yield replace(header, scale=_FIXED[op_type], zero_point=0, exact=True)
    bounds = [(ranges[name].low, ranges[name].high) for name in members if name in ranges]
    if bounds:
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
        if any(record.io == "in" and record.op_type == "SOFTMAX" for record in records):
            yield _from_range(min(low, _SOFTMAX_LOWEST), high, header)
        for ends in dict.fromkeys([(low, high), *bounds]):
            yield _from_range(*ends, header)
    if header.scale == 1:
        yield replace(header, exact=True)


def _from_range(lo: float, hi: float, header: Quant) -> Quant:
    """Return the scale of a range, computed in single precision to match the SDK to the last bit."""
    dtype = header.dtype or np.dtype(np.int16)
    low, high = np.float32(min(lo, 0.0)), np.float32(max(hi, 0.0))
    if dtype == np.uint8:
        scale = (high - low) / np.float32(255)
        zero = float(-low / scale) if scale else 0.0
        # The six decimals of a range do not show how a half was rounded, but the header does.
        halfway = abs(zero - header.zero_point) < 0.501
        return replace(header, scale=float(scale), zero_point=header.zero_point if halfway else round(zero), exact=True)
    scale = max(-low, high) / np.float32(np.iinfo(dtype).max)
    return replace(header, scale=float(scale), zero_point=0, exact=True)


def _prints_as(quant: Quant, header: Quant) -> bool:
    return f"{quant.scale:.6f}" == f"{header.scale:.6f}" and quant.zero_point == header.zero_point


def _ranges(dump: Dump, net: ParseNet) -> Ranges:
    ranges: dict[str, Range] = {}
    for record in dump.records:
        facts = net_tensor(record, net)
        if facts is None or record.constant or facts.dtype != record.tensor.info.dtype:
            continue
        if facts.low is not None and facts.high is not None and facts.low <= facts.high:
            ranges[record.name] = Range.of(facts.low, facts.high)
    return ranges


def _shaped(record: Record, facts: NetTensor | None, net: ParseNet, padded: Padded) -> Tensor:
    tensor = record.tensor
    info = tensor.info
    if not _has_integers(record):
        return tensor if facts is None or record.constant else _shaped_floats(tensor, facts)
    if record.name in net.ambiguous:
        return _refused(info, f"{net.path.name} lists different tensors with the name {record.name!r}")
    if facts is None or (info.quant is not None and info.quant.dtype is None):
        return tensor
    if info.shape is not None and _without_ones(info.shape) != _without_ones(facts.shape):
        shapes = f"the shape {list(info.shape or ())} in the dump and {list(facts.shape)} in {net.path.name}"
        return _refused(info, f"has {shapes}. Check that both are of the same model", record.name)
    if record.constant and facts.order == "KB":
        return Tensor(info, partial(_filter, tensor, facts))
    shaped = _in_shape(info, facts)
    return Tensor(shaped, lambda: _values(tensor, facts, record.constant, padded).reshape(shaped.shape or ()))


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [length for length in shape if length != 1]


def _in_shape(info: TensorInfo, facts: NetTensor) -> TensorInfo:
    if info.shape is not None:
        return info
    return replace(info, shape=facts.shape, layout=NHWC if len(facts.shape) == 4 else None)


def _shaped_floats(tensor: Tensor, facts: NetTensor) -> Tensor:
    """Add the shape to dequantised values. They have no padding; ``stored`` crops over-allocated images."""
    if tensor.info.shape is not None:
        return tensor
    count, size = math.prod(facts.shape), _size(tensor)
    if size != count and not (facts.order in ("RGB", "BGR") and size in padded_sizes(facts.order, facts.shape, 1)):
        return tensor
    return Tensor(_in_shape(tensor.info, facts), tensor.raw)


def _values(tensor: Tensor, facts: NetTensor, constant: bool, padded: Padded) -> np.ndarray:
    """Return the stored values in parse_net's shape. Raises ValuesError."""
    flat = tensor.raw().reshape(-1)
    name, shape, order, itemsize = facts.name, facts.shape, facts.order, flat.itemsize
    count, sizes = math.prod(shape), padded_sizes(order, shape, itemsize, constant)
    if flat.size == count and order in ("RGBA", "BGRA") and shape[-1] == 3:
        raise ValuesError(
            f"holds only the first three quarters of an {order} image (an SDK bug with eliminateGarbage). "
            f"Dump again without eliminateGarbage",
            tensor=name,
        )
    if flat.size == count and (constant or is_row_major(order, shape, itemsize) or padded() is False):
        return flat.reshape(shape)
    if flat.size == count and (not sizes or padded() is None):
        raise ValuesError(
            f"({facts.ddr_type}, {list(shape)}) has a size that fits its shape both with and without "
            "padding. Dump again with eliminateGarbage",
            tensor=name,
        )
    if not sizes:
        raise ValuesError(
            f"is a buffer of {flat.size} values in unknown order ({facts.ddr_type}, {list(shape)}). Dump again with "
            f"eliminateGarbage",
            tensor=name,
        )
    if flat.size not in sizes:
        expected = " or ".join(map(str, dict.fromkeys(sizes)))
        raise ValuesError(
            f"holds {flat.size} values, but {facts.ddr_type} {list(shape)} needs {expected} values "
            f"with padding or {count} values without padding. The parse_net text belongs to another "
            "model",
            tensor=name,
        )
    return unpad(flat, order, shape)


def _filter(tensor: Tensor, facts: NetTensor) -> np.ndarray:
    flat, count = tensor.raw().reshape(-1), math.prod(facts.shape)
    if flat.size < count:
        raise ValuesError(
            f"filter {facts.name!r} holds {flat.size} values, but its shape {list(facts.shape)} needs {count} values"
        )
    return flat[:count]


def _is_padded(records: list[tuple[Record, NetTensor | None]]) -> bool | None:
    """Return whether the dump's variable buffers are padded, from all unambiguous sizes; None if unclear."""
    answers = set()
    for record, facts in records:
        if facts is None or record.constant or not _has_integers(record):
            continue
        size, count, itemsize = _size(record.tensor), math.prod(facts.shape), record.tensor.info.dtype.itemsize
        fits_padded = size in padded_sizes(facts.order, facts.shape, itemsize)
        if size == count and not fits_padded and size * itemsize % BUFFER_BYTES:
            answers.add(False)
        elif size != count and fits_padded:
            answers.add(True)
    return answers.pop() if len(answers) == 1 else None


def _size(tensor: Tensor) -> int:
    try:
        return tensor.raw().size
    except SgsdumpError:
        return -1


def _has_padded_channels(record: Record) -> bool:
    """Return whether a payload has padded channels. A tensor without values raises later, when it is read."""
    try:
        return has_padded_channels(record.tensor.raw(), record.tensor.info.shape or ())
    except SgsdumpError:
        return False
