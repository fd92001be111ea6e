"""What a parse_net text adds to a dump of its fixed model: shapes, the way out of padded buffers, and true scales.

A dump of integers tells neither shapes nor orders. Shape and order come from parse_net, the element size from the
dump's own header. With eliminateGarbage off every buffer is padded (``padding.py``), with it on none is; where one
tensor's size allows both and the order makes a difference, the other tensors of the dump tell which it is.

Constants: a filter is the first n values, in the hardware's order, so it stays flat; biases and parameters get their
shape. Scales come from parse_net's ranges by the rules of ``dequantise.py``, never from its Scaler, which has six
decimals and is 41 % off for a softmax's output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.sigmastar.padding_signs import without_padding_notes
from sgsdump.dumps.formats.sigmastar.true_scales import Ranges, rescaled, true_scales, with_scales
from sgsdump.errors import ConfigError, SgsdumpError, ValuesError
from sgsdump.sidecars.parse_net import NetTensor, ParseNet
from sgsdump.sidecars.tensor_min_max import Range
from sgsdump.tensors.layout import NHWC
from sgsdump.tensors.sdk_padding import BUFFER_BYTES, has_padded_channels, is_row_major, padded_sizes, unpad
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo

Padded = Callable[[], bool | None]


def unpadded(dump: Dump, net: ParseNet) -> Dump:
    """The dump with the shapes of parse_net, its integer buffers unpadded when they are read.

    A tensor whose buffer fits neither its padded nor its plain size, or whose order in memory is not known, raises
    ValuesError when it is read. Tensors that parse_net does not list or whose type we do not know, floats of another
    size and float constants stay as they are. Raises ConfigError when it lists none of a dump of integers.
    """
    known = [(record, _listed(record, net)) for record in dump.records]
    integers = [record for record in dump.records if record.tensor.info.dtype.kind in "iu"]
    if integers and not any(facts for _, facts in known):
        raise ConfigError(
            f"{net.path} lists no tensor of {dump.path or 'the dump'}; it must be of the same fixed model"
        )
    padded = lru_cache(1)(partial(_is_padded, known))
    told = Dump(dump.records, dump.format, dump.variant, dump.path, without_padding_notes(dump.notes))
    return _mapped(told, lambda record: _shaped(record, _listed(record, net), net, padded))


def scales_of(dump: Dump, net: ParseNet) -> tuple[dict[str, Quant], dict[str, str]]:
    """As ``true_scales``, from parse_net's ranges: exact quantisation by name, and by name why there is none.

    A range is used only for a tensor that has the same element type in both: of two conversions of one network the
    ranges differ by less than the header's six decimals show.
    """
    quants, refused = true_scales(dump, _ranges(dump, net))
    for record in dump.records:
        facts = _listed(record, net)
        if record.name not in refused:
            continue
        if record.name in net.ambiguous:
            refused[record.name] = f"{net.path.name} lists different tensors of this name"
        elif facts is None:
            refused[record.name] = f"{net.path.name} does not list it"
        elif facts.dtype != record.tensor.info.dtype:
            refused[record.name] = (
                f"{net.path.name} has it as {facts.type_name}, the dump as {record.tensor.info.dtype}: "
                f"they are of different conversions"
            )
    return quants, refused


def with_net_scales(dump: Dump, net: ParseNet) -> Dump:
    """The dump with ``scales_of`` in its tensors; those refused keep the inexact scale of their header."""
    return rescaled(dump, scales_of(dump, net)[0])


def with_side_files(dump: Dump, ranges: Ranges | None = None, net: ParseNet | None = None) -> Dump:
    """The dump as the calibrated ranges and the parse_net text of its model describe it; None is no such file.

    It is unpadded, and its integers have the exact scale that parse_net's ranges give, else the calibrated ones.
    A tensor for which neither gives one raises ValuesError with the reason when its values are read.
    """
    if net is None:
        dump = without_blocks(dump)
        return dump if ranges is None else with_scales(dump, ranges)
    dump = unpadded(dump, net)
    quants, refused = ({}, {}) if ranges is None else true_scales(dump, ranges)
    net_found, net_refused = scales_of(dump, net)
    quants = quants | net_found
    return rescaled(dump, quants, {n: why for n, why in (refused | net_refused).items() if n not in quants})


def without_blocks(dump: Dump) -> Dump:
    """The dump, but of a dump of padded buffers those tensors raise ValuesError when they are read that may lie in
    blocks of channels and have the size of their shape: nothing in the dump tells their order."""
    integers = [r for r in dump.records if r.tensor.info.dtype.kind in "iu" and r.tensor.info.shape and not r.constant]
    if not any(map(_has_padded_channels, integers)):
        return dump
    unsure = {
        id(r) for r in integers if not is_row_major("NHWX", r.tensor.info.shape or (), r.tensor.info.dtype.itemsize)
    }

    def tensor_of(record: Record) -> Tensor:
        if id(record) not in unsure or len(record.tensor.info.shape or ()) != 4:
            return record.tensor
        why = f"tensor {record.name!r} is a padded hardware buffer, whose order the dump does not tell"
        return Tensor(
            record.tensor.info, partial(_refuse, f"{why}; give --parse-net, or dump it with eliminateGarbage")
        )

    return _mapped(dump, tensor_of)


def _has_padded_channels(record: Record) -> bool:
    """Whether a payload has padded channels; a tensor without values is told when it is its turn to be read."""
    try:
        return has_padded_channels(record.tensor.raw(), record.tensor.info.shape or ())
    except SgsdumpError:
        return False


def _mapped(dump: Dump, tensor_of: Callable[[Record], Tensor]) -> Dump:
    records = [replace(record, tensor=tensor_of(record)) for record in dump.records]
    return Dump(records, dump.format, dump.variant, dump.path, dump.notes)


def _ranges(dump: Dump, net: ParseNet) -> Ranges:
    ranges: dict[str, Range] = {}
    for record in dump.records:
        facts = _listed(record, net)
        if facts is None or record.constant or facts.dtype != record.tensor.info.dtype:
            continue
        if facts.low is not None and facts.high is not None and facts.low <= facts.high:
            ranges[record.name] = Range.of(facts.low, facts.high)
    return ranges


def _listed(record: Record, net: ParseNet) -> NetTensor | None:
    """What parse_net says of a record; of a name that the dump cut, what begins so when it is only one."""
    if not record.cut:
        return net.tensors.get(record.name)
    tensors = [tensor for name, tensor in net.tensors.items() if name.startswith(record.name)]
    return tensors[0] if len(tensors) == 1 else None


def _shaped(record: Record, facts: NetTensor | None, net: ParseNet, padded: Padded) -> Tensor:
    tensor = record.tensor
    info = tensor.info
    if info.dtype.kind not in "iu":
        return tensor if facts is None or record.constant else _shaped_floats(tensor, facts)
    if record.name in net.ambiguous:
        return Tensor(info, partial(_refuse, f"{net.path.name} lists different tensors of the name {record.name!r}"))
    if facts is None or (info.quant is not None and info.quant.dtype is None):
        return tensor
    if info.shape is not None and _without_ones(info.shape) != _without_ones(facts.shape):
        shapes = f"the shape {list(info.shape or ())} in the dump and {list(facts.shape)} in {net.path.name}"
        return Tensor(info, partial(_refuse, f"tensor {record.name!r} has {shapes}; are they of one model?"))
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
    """Dequantised values have no padding; only a picture may be over-allocated, which ``stored`` crops."""
    if tensor.info.shape is not None:
        return tensor
    count, size = math.prod(facts.shape), _size(tensor)
    if size != count and not (facts.order in ("RGB", "BGR") and size in padded_sizes(facts.order, facts.shape, 1)):
        return tensor
    return Tensor(_in_shape(tensor.info, facts), tensor.raw)


def _values(tensor: Tensor, facts: NetTensor, constant: bool, padded: Padded) -> np.ndarray:
    """The stored values in parse_net's shape. Raises ValuesError."""
    flat = tensor.raw().reshape(-1)
    name, shape, order, itemsize = facts.name, facts.shape, facts.order, flat.itemsize
    count, sizes = math.prod(shape), padded_sizes(order, shape, itemsize, constant)
    if flat.size == count and order in ("RGBA", "BGRA") and shape[-1] == 3:
        raise ValuesError(
            f"tensor {name!r} holds the first three quarters of an {order} picture (an error of the SDK with "
            f"eliminateGarbage); dump it again without eliminateGarbage"
        )
    if flat.size == count and (constant or is_row_major(order, shape, itemsize) or padded() is False):
        return flat.reshape(shape)
    if flat.size == count and (not sizes or padded() is None):
        raise ValuesError(
            f"tensor {name!r} ({facts.ddr_type}, {list(shape)}) fits its shape with and without padding, and nothing "
            f"in the dump tells which it is; dump it again with eliminateGarbage"
        )
    if not sizes:
        raise ValuesError(
            f"tensor {name!r} is a buffer of {flat.size} values in an order that is not known ({facts.ddr_type}, "
            f"{list(shape)}); dump it again with eliminateGarbage"
        )
    if flat.size not in sizes:
        wanted = " or ".join(str(size) for size in dict.fromkeys(sizes))
        raise ValuesError(
            f"tensor {name!r} holds {flat.size} values; {facts.ddr_type} {list(shape)} has {wanted} padded and {count} "
            f"without padding: the parse_net text is of another model"
        )
    return unpad(flat, order, shape)


def _filter(tensor: Tensor, facts: NetTensor) -> np.ndarray:
    flat, count = tensor.raw().reshape(-1), math.prod(facts.shape)
    if flat.size < count:
        raise ValuesError(
            f"filter {facts.name!r} holds {flat.size} values, its shape {list(facts.shape)} needs {count}"
        )
    return flat[:count]


def _is_padded(known: list[tuple[Record, NetTensor | None]]) -> bool | None:
    """Whether the dump's variable buffers are padded: what every size that allows only one says; None for no answer."""
    said = set()
    for record, facts in known:
        if facts is None or record.constant or record.tensor.info.dtype.kind not in "iu":
            continue
        size, count = _size(record.tensor), math.prod(facts.shape)
        itemsize = record.tensor.info.dtype.itemsize
        fits_padded = size in padded_sizes(facts.order, facts.shape, itemsize)
        if size == count and not fits_padded and size * itemsize % BUFFER_BYTES:
            said.add(False)
        elif size != count and fits_padded:
            said.add(True)
    return said.pop() if len(said) == 1 else None


def _size(tensor: Tensor) -> int:
    try:
        return tensor.raw().size
    except SgsdumpError:
        return -1


def _refuse(reason: str) -> np.ndarray:
    raise ValuesError(reason)
