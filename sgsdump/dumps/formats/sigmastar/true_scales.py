"""The true scales of an integer dump, from the calibrated ranges.

A dump's header rounds its scale to six decimals, up to 1.6 % off for 16-bit tensors, so it can only *check* a scale.
The rules (seen in the SDK's fixed models): 8 bits, s = (hi - lo) / 255 and z = round(-lo / s) with the range extended
to include 0; 16 bits, s = max(|lo|, |hi|) / 32767 and z = 0; a softmax puts out 1/32768 and a sigmoid 1/32767
(both print 0.000031); a softmax input's range includes -10. Tensors around an operator that only moves or selects
values (pooling, concat, reshape …) share one domain when their headers agree: the union of their ranges.
A derived scale is taken only if it prints as the header's does and the zero point is equal; otherwise it is refused.
A header's 1.000000 is exact by itself (indices, as ARG_MAX puts out): its six decimals are those of single precision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from sgsdump.dumps.dump import Dump, Record, with_tensors
from sgsdump.errors import ValuesError
from sgsdump.tensors.tensor import Quant, Tensor
from sgsdump.tensors.types import Range

Ranges = Mapping[str, Range]

_POOLS = {"MAX_POOL_2D", "AVERAGE_POOL_2D"}
_MOVES = {"RESHAPE", "Reshape_Alias", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "PAD", "SLICE", "STRIDED_SLICE", "GATHER"}
_SHARING = _POOLS | _MOVES | {"CONCATENATION", "SPLIT", "SPLIT_V", "PACK", "UNPACK"}
_FIXED = {"SOFTMAX": 1 / 32768, "LOGISTIC": 1 / 32767}
_SOFTMAX_LOWEST = -10.0
_NONE: Mapping[str, str] = MappingProxyType({})


def true_scales(dump: Dump, ranges: Ranges) -> tuple[dict[str, Quant], dict[str, str]]:
    """Exact quantisation by tensor name for an integer dump, and by name the reason where it was refused.

    Constants and tensors of exact scale are left out of both.
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
                    f"the ranges give scale {tried[0].scale:.6f} and zero point {tried[0].zero_point}, the dump's "
                    f"header says {header.scale:.6f} and {header.zero_point}; are they of this very model?"
                )
            else:
                refused[name] = "the ranges file has no range for it, nor for what shares its domain"
    return quants, refused


def with_scales(dump: Dump, ranges: Ranges) -> Dump:
    """The dump with ``true_scales`` in its integer tensors, so that ``real`` gives float32 of the exact scale.

    A tensor whose scale was refused raises ValuesError with the reason when its values are read. Constants, tensors of
    exact scale and everything that is not integers stay as they are.
    """
    return rescaled(dump, *true_scales(dump, ranges))


def rescaled(dump: Dump, scales: Mapping[str, Quant], refused: Mapping[str, str] = _NONE) -> Dump:
    """The dump whose coarse tensors (see ``true_scales``) have these scales, by name; reading those in ``refused``, by
    name with the reason, raises ValuesError. Coarse tensors in neither keep the scale of their header."""

    def tensor_of(record: Record) -> Tensor:
        tensor, name = record.tensor, record.name
        if record.constant or not _coarse(record):
            return tensor
        if name in refused:
            return Tensor(tensor.info, partial(refuse, f"no true scale for tensor {name!r}: {refused[name]}"))
        return Tensor(replace(tensor.info, quant=scales[name]), tensor.raw) if name in scales else tensor

    return with_tensors(dump, tensor_of)


def refuse(reason: str) -> np.ndarray:
    """What a tensor that cannot be read loads by. Raises ValuesError."""
    raise ValuesError(reason)


def _coarse(record: Record) -> bool:
    quant = record.tensor.info.quant
    return record.tensor.info.dtype.kind in "iu" and quant is not None and quant.dtype is not None and not quant.exact


def _domains(dump: Dump, headers: Mapping[str, Quant | None]) -> list[list[str]]:
    """Names grouped by shared domain: neighbours of a sharing operator whose headers agree."""
    operators: dict[int, list[Record]] = defaultdict(list)
    for record in dump.records:
        if record.name in headers and not record.constant:
            operators[record.op_index].append(record)
    domain = {name: [name] for name in headers}
    for around in operators.values():
        if not any(r.op_type in _SHARING for r in around):
            continue
        for one, other in ((around[i], r) for i in range(len(around)) for r in around[i + 1 :]):
            left, right = domain[one.name], domain[other.name]
            if left is not right and _same(headers[one.name], headers[other.name]):
                left += right
                domain.update(dict.fromkeys(right, left))
    return list({id(members): members for members in domain.values()}.values())


def _same(a: Quant | None, b: Quant | None) -> bool:
    return a is not None and b is not None and (a.dtype, a.scale, a.zero_point) == (b.dtype, b.scale, b.zero_point)


def _candidates(dump: Dump, members: list[str], ranges: Ranges, header: Quant) -> Iterator[Quant]:
    """Scales the rules allow for a domain, the most telling first."""
    inside = set(members)
    makers = {r.op_type for r in dump.records if r.io == "out" and r.name in inside}
    if header.dtype == np.int16:
        for op_type in _FIXED.keys() & makers:
            yield replace(header, scale=_FIXED[op_type], zero_point=0, exact=True)
    yield from _from_ranges(dump, members, ranges, header)
    if header.scale == 1:
        yield replace(header, exact=True)


def _from_ranges(dump: Dump, members: list[str], ranges: Ranges, header: Quant) -> Iterator[Quant]:
    inside = set(members)
    known = [(ranges[n].low, ranges[n].high) for n in members if n in ranges]
    if not known:
        return
    union = (min(lo for lo, _ in known), max(hi for _, hi in known))
    if any(r.io == "in" and r.op_type == "SOFTMAX" and r.name in inside for r in dump.records):
        yield _from_range(min(union[0], _SOFTMAX_LOWEST), union[1], header)
    for lo, hi in dict.fromkeys([union, *known]):
        yield _from_range(lo, hi, header)


def _from_range(lo: float, hi: float, header: Quant) -> Quant:
    """The scale of a range, in single precision throughout: only so it is the SDK's to the last bit."""
    dtype = header.dtype or np.dtype(np.int16)
    low, high = np.float32(min(lo, 0.0)), np.float32(max(hi, 0.0))
    if dtype == np.uint8:
        scale = (high - low) / np.float32(255)
        zero = float(-low / scale) if scale else 0.0
        # six decimals of a range do not tell which way a half was rounded; the header does
        halfway = abs(zero - header.zero_point) < 0.501
        return replace(header, scale=float(scale), zero_point=header.zero_point if halfway else round(zero), exact=True)
    scale = max(-low, high) / np.float32(np.iinfo(dtype).max)
    return replace(header, scale=float(scale), zero_point=0, exact=True)


def _prints_as(quant: Quant, header: Quant) -> bool:
    return f"{quant.scale:.6f}" == f"{header.scale:.6f}" and quant.zero_point == header.zero_point
