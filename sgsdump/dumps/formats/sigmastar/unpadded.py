"""The shapes that a parse_net text gives to a dump of its fixed model, and the way out of padded buffers.

A dump of integers tells neither shapes nor orders. Shape and order come from parse_net, the element size from the
dump's own header. With eliminateGarbage off every buffer is padded (``sdk_buffers``), with it on none is; where one
tensor's size allows both and the order makes a difference, the other tensors of the dump tell which it is.

Constants: a filter is the first n values, in the hardware's order, so it stays flat; biases and parameters get their
shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from sgsdump.dumps.dump import Dump, Record, with_tensors
from sgsdump.dumps.formats.sigmastar.net_tensors import net_tensor
from sgsdump.dumps.formats.sigmastar.padding_signs import without_padding_notes
from sgsdump.dumps.formats.sigmastar.true_scales import refuse
from sgsdump.errors import ConfigError, SgsdumpError, ValuesError
from sgsdump.sidecars.parse_net import NetTensor, ParseNet
from sgsdump.tensors.sdk_buffers import BUFFER_BYTES, is_row_major, padded_sizes, unpad
from sgsdump.tensors.tensor import Tensor, TensorInfo
from sgsdump.tensors.types import NHWC

Padded = Callable[[], bool | None]


def unpadded(dump: Dump, net: ParseNet) -> Dump:
    """The dump with the shapes of parse_net, its integer buffers unpadded when they are read.

    A tensor whose buffer fits neither its padded nor its plain size, or whose order in memory is not known, raises
    ValuesError when it is read. Tensors that parse_net does not list or whose type we do not know, floats of another
    size and float constants stay as they are. Raises ConfigError when it lists none of a dump of integers.
    """
    known = [(record, net_tensor(record, net)) for record in dump.records]
    integers = [record for record in dump.records if record.tensor.info.dtype.kind in "iu"]
    if integers and not any(facts for _, facts in known):
        raise ConfigError(
            f"{net.path} lists no tensor of {dump.path or 'the dump'}; it must be of the same fixed model"
        )
    padded = lru_cache(1)(partial(_is_padded, known))
    resolved = Dump(dump.records, dump.format, dump.variant, dump.path, without_padding_notes(dump.notes))
    return with_tensors(resolved, lambda record: _shaped(record, net_tensor(record, net), net, padded))


def _shaped(record: Record, facts: NetTensor | None, net: ParseNet, padded: Padded) -> Tensor:
    tensor = record.tensor
    info = tensor.info
    if info.dtype.kind not in "iu":
        return tensor if facts is None or record.constant else _shaped_floats(tensor, facts)
    if record.name in net.ambiguous:
        return Tensor(info, partial(refuse, f"{net.path.name} lists different tensors of the name {record.name!r}"))
    if facts is None or (info.quant is not None and info.quant.dtype is None):
        return tensor
    if info.shape is not None and _without_ones(info.shape) != _without_ones(facts.shape):
        shapes = f"the shape {list(info.shape or ())} in the dump and {list(facts.shape)} in {net.path.name}"
        return Tensor(info, partial(refuse, f"tensor {record.name!r} has {shapes}; are they of one model?"))
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
    answers = set()
    for record, facts in known:
        if facts is None or record.constant or record.tensor.info.dtype.kind not in "iu":
            continue
        size, count = _size(record.tensor), math.prod(facts.shape)
        itemsize = record.tensor.info.dtype.itemsize
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
