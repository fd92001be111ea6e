"""The integer types of a .sim model's convolutions, like Tensor_qtype.txt of the SDK's show_conv_qtype_info.py::

    //[qtype_INT16]:tensorNum:2,opNum:1
    IbName:[relu1],Qtype:[INT16],KbName:[conv2_filter],Qtype:[INT16]

Ib is the input of a convolution, Kb its weights. The block of 8 bits has UINT8 inputs with INT8 weights. Its word INT8
and the single count of a tensor with two convolutions are sgsdump's choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sgsdump.errors import ModelError
from sgsdump.fixedpoint.sim.file import SimFile, SimTensor
from sgsdump.fixedpoint.sim.plan import CONVOLUTIONS

LEVELS: dict[str, tuple[int, ...]] = {"16": (16,), "8": (8,), "4": (4,), "ALL": (16, 8, 4)}


def qtype_text(sim: SimFile, level: str) -> str:
    """Return the blocks of these bits, a key of LEVELS. Raises ModelError for a model without planned types."""
    pairs = [
        tuple(sim.tensors[index] for index in operator.inputs[:2])
        for operator in sim.operators
        if operator.kind in CONVOLUTIONS and len(operator.inputs) > 1 and min(operator.inputs[:2]) >= 0
    ]
    untyped = next((tensor.name for pair in pairs for tensor in pair if _type(tensor).kind == "f"), None)
    if untyped is not None:
        raise ModelError(
            f"{sim.path}: the tensor {untyped!r} has no integer type. Pass cmodel_float.sim, float.sim or fixed.sim"
        )
    return "".join(f"{line}\n" for bits in LEVELS[level] for line in _block(pairs, bits))


def _block(pairs: Sequence[tuple[SimTensor, ...]], bits: int) -> Iterator[str]:
    chosen = [pair for pair in pairs if 8 * _type(pair[0]).itemsize == bits]
    names = {tensor.name for pair in chosen for tensor in pair}
    yield f"//[qtype_INT{bits}]:tensorNum:{len(names)},opNum:{len(chosen)}"
    for ib, kb in chosen:
        yield f"IbName:[{ib.name}],Qtype:[{_word(ib)}],KbName:[{kb.name}],Qtype:[{_word(kb)}]"


def _type(tensor: SimTensor) -> np.dtype:
    """Return the planned type, or a fixed model's own type."""
    return tensor.planned if tensor.dtype.kind == "f" and tensor.planned is not None else tensor.dtype


def _word(tensor: SimTensor) -> str:
    return str(_type(tensor)).upper()
