"""The tensors in what torch's modules and functions take and give, as they are dumped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sgsdump.capture.one_pass import sums_of

_DEEPEST = 20


def tensors_in(
    torch: Any, value: Any, keys: tuple[Any, ...] = (), without: list[str] | None = None
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The tensors with values in tuples, lists and dicts within one another, with the way to each; ``without`` gets why
    others have none."""
    if isinstance(value, torch.Tensor):
        why = _why_without_values(value)
        if not why:
            yield keys, value
        elif without is not None:
            without.append(why)
    elif len(keys) < _DEEPEST and isinstance(value, tuple | list | Mapping):
        inner = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in inner:
            yield from tensors_in(torch, one, (*keys, key), without)


def plain_tensor(torch: Any, tensor: Any) -> Any:
    """The tensor alone on the CPU (which waits for the device), without the rest of a storage it is a view of."""
    plain = tensor.detach().to("cpu").resolve_conj().resolve_neg()
    if plain.is_quantized:
        return plain.clone()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    whole = plain.is_contiguous() and plain.untyped_storage().nbytes() == plain.numel() * plain.element_size()
    return plain if whole else plain.clone(memory_format=torch.contiguous_format)


def statistics_of(torch: Any, tensor: Any) -> dict[str, float] | None:
    """max, min, mean and l2norm as torch computes them, NaN where there is one; None for what has none."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if not tensor.numel() or tensor.dtype == torch.bool or tensor.is_complex():
        return None
    sums = sums_of(tensor)
    if sums is not None:
        least, most, total, squares = sums
        return {"max": most, "min": least, "mean": total / tensor.numel(), "l2norm": math.sqrt(squares)}
    values = tensor.double()
    return {
        "max": float(values.max()),
        "min": float(values.min()),
        "mean": float(values.mean()),
        "l2norm": float(torch.linalg.vector_norm(values)),
    }


def _why_without_values(tensor: Any) -> str:
    """Why a tensor has no values that could be saved; "" where it has. Those of a quantised one are its integers."""
    # torch is there: a program that has none has no tensors
    from sgsdump.capture.hook.for_torch.sgsdump_torch_tensors import unreadable, why_not_plain

    if tensor.is_quantized:
        return ""
    return why_not_plain(tensor) or unreadable(tensor)


@contextmanager
def by_itself(torch: Any) -> Iterator[None]:
    """What is computed here is seen by nothing of the program: no gradients, no modes, no transforms of torch.func."""
    from sgsdump.capture.hook.for_torch.sgsdump_torch_tensors import outside_transforms

    with torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), outside_transforms():
        yield
