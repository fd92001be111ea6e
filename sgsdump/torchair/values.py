"""A torch tensor's bytes, statistics and overflow."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils.weak import WeakIdKeyDictionary

from sgsdump.capture.one_pass import sums_of
from sgsdump.dumps.formats.ascend.operator_dump import Payload
from sgsdump.tensors.statistics import Statistics, summarise


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of an operator's arguments or result, in order."""
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def payload(tensor: torch.Tensor) -> Payload:
    """The tensor as a dump file holds it; that of a quantised tensor are its integers. Raises RuntimeError,
    NotImplementedError for one that has no plain values."""
    plain = _plain(tensor)
    data = memoryview(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else memoryview(b"")
    return Payload(dtype_name(plain), tuple(map(int, plain.shape)), data, _address(tensor))


def facts(tensor: torch.Tensor) -> Payload:
    """Type, shape and address, without values."""
    return Payload(dtype_name(tensor), tuple(map(int, tensor.shape)), b"", _address(tensor))


def statistics(tensor: torch.Tensor) -> Statistics | None:
    """None for complex numbers and bool, which have no order."""
    plain = _plain(tensor)
    if plain.dtype.is_complex or plain.dtype == torch.bool:
        return None
    sums = sums_of(plain)
    if sums is not None and math.isfinite(sums[3]):  # so all elements are
        least, most, total, squares = sums
        mean = min(max(total / plain.numel(), least), most)
        return Statistics(least, most, mean, math.sqrt(squares), plain.numel(), 0, 0, 0)
    try:
        array = plain.numpy()
    except TypeError:
        array = plain.to(torch.float32).numpy()
    return summarise(array)


class KnownStatistics:
    """``statistics`` of tensors, computed once as long as one does not change: what an operator gives, others take,
    and weights stay."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def of(self, tensor: torch.Tensor) -> Statistics | None:
        now = state(tensor)
        before, known = self._known.get(tensor, (None, None))
        if now is None or before != now:
            known = statistics(tensor)
            self._known[tensor] = now, known
        return known  # type: ignore[no-any-return]

    def copy_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, of which is known what is known of the tensor."""
        copy = tensor.detach().clone()
        before, known = self._known.get(tensor, (None, None))
        if before is not None and before == state(tensor):
            self._known[copy] = state(copy), known
        return copy


def state(tensor: torch.Tensor) -> tuple[int, int] | None:
    """What changes whenever the tensor's values may have changed; None where torch does not count."""
    try:
        return tensor.data_ptr(), tensor._version
    except RuntimeError:
        return None


def overflows(tensor: torch.Tensor) -> bool:
    """Whether a tensor of floats holds NaN, Inf, or the largest number of its type, which saturating units leave."""
    plain = tensor.detach()
    if plain.dtype.is_complex:
        plain = torch.view_as_real(plain.resolve_conj())
    if not plain.dtype.is_floating_point or not plain.numel():
        return False
    most = torch.finfo(plain.dtype).max
    if plain.dtype.itemsize == 1:
        plain = plain.to(torch.float32)
    low, high = (float(end) for end in torch.aminmax(plain))
    return not (low > -most and high < most)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach()
    if plain.is_quantized:
        plain = plain.int_repr()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    return plain.resolve_conj().resolve_neg().cpu().contiguous()


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a tensor without memory of its own
        return 0
