"""Bytes, statistics and overflow of torch tensors; tracking of unwritten tensors.

The memory of ``torch.empty`` is unwritten until an operator writes to it. ``Watch`` sees such writes in torch's own
operators below those of the graph, whatever the graph calls them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from sgsdump.capture.programs.hook.for_torch.sgsdump_torch_tensors import plain
from sgsdump.capture.programs.hook.for_torch.sgsdump_torch_unwritten import GIVING, RESIZING, SCRATCH, Unwritten
from sgsdump.capture.programs.one_pass import sums_of
from sgsdump.dumps.formats.ascend.operator_dump import Payload
from sgsdump.tensors.statistics import Statistics, summarise

_ALLOCATING = ("empty", "resize", "rnn")


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in an operator's arguments or result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def payload(tensor: torch.Tensor) -> Payload:
    """Return the tensor as a dump file stores it; a quantised tensor as its integers.

    Raises RuntimeError or NotImplementedError for a tensor without plain values.
    """
    plain = _plain(tensor)
    data = memoryview(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else memoryview(b"")  # type: ignore[arg-type]
    return Payload(dtype_name(plain), tuple(map(int, plain.shape)), data, _address(tensor))


def facts(tensor: torch.Tensor) -> Payload:
    """Return type, shape and address, without values."""
    return Payload(dtype_name(tensor), tuple(map(int, tensor.shape)), b"", _address(tensor))


def statistics(tensor: torch.Tensor) -> Statistics | None:
    """Return the statistics; None for complex numbers and bool, which have no order."""
    plain = _plain(tensor)
    if plain.dtype.is_complex or plain.dtype == torch.bool:
        return None
    sums = sums_of(plain)
    if sums is not None and math.isfinite(sums[3]):  # a finite sum of squares: all elements are finite
        least, most, total, squares = sums
        mean = min(max(total / plain.numel(), least), most)
        return Statistics(least, most, mean, math.sqrt(squares), plain.numel(), 0, 0, 0)
    try:
        array = plain.numpy()
    except TypeError:
        array = plain.to(torch.float32).numpy()
    return summarise(array)


class KnownStatistics:
    """Cache of statistics, valid while a tensor is unchanged: outputs become inputs, and weights stay the same."""

    def __init__(self) -> None:
        self._known: Any = WeakIdKeyDictionary()

    def of(self, tensor: torch.Tensor | Before) -> Statistics | None:
        if isinstance(tensor, Before):
            return tensor.summary
        now = state(tensor)
        before, summary = self._known.get(tensor, (None, None))
        if now is None or before != now:
            summary = statistics(tensor)
            self._known[tensor] = now, summary
        return summary  # type: ignore[no-any-return]

    def before(self, tensor: torch.Tensor) -> Before:
        """Return the facts and statistics of a tensor that an operator is about to write to."""
        return Before(tensor, self.of(tensor))


class Before:
    """Facts and statistics of a tensor before an operator wrote to it; a copy of its values is not needed."""

    def __init__(self, tensor: torch.Tensor, summary: Statistics | None):
        self.dtype, self.shape, self.summary = tensor.dtype, tensor.shape, summary
        self._count, self._size, self._address = tensor.numel(), tensor.element_size(), _address(tensor)

    def numel(self) -> int:
        return self._count

    def element_size(self) -> int:
        return self._size

    def data_ptr(self) -> int:
        return self._address


def state(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return address and version, which change with any write to the values; None if torch keeps no version."""
    try:
        return tensor.data_ptr(), tensor._version
    except RuntimeError:
        return None


def overflows(tensor: torch.Tensor) -> bool:
    """Return whether a float tensor holds NaN, Inf or its type's largest number, which saturating units return."""
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
    except RuntimeError:  # the tensor has no memory of its own
        return 0


@dataclass(frozen=True)
class NotWritten:
    """Placeholder for a tensor that has no values yet."""

    tensor: torch.Tensor
    _unwritten: Unwritten

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(int, self.tensor.shape))

    def now(self) -> torch.Tensor | NotWritten:
        """Return the tensor if it has values by now, else this placeholder."""
        return self if self._unwritten.holds(self.tensor) else self.tensor


class Watch:
    """Unwritten tensors of a run; ``running`` is a context in which the run's operators execute."""

    def __init__(self, module: Any) -> None:
        self._unwritten = Unwritten()
        self._mode = _Mode(self._unwritten) if _may_give_memory(module) else None

    def running(self) -> Any:
        return self._mode or nullcontext()

    def told(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors, with ``NotWritten`` for each that nothing has written to."""
        return [self._told(tensor) for tensor in tensors] if self._unwritten else list(tensors)

    def _told(self, tensor: Any) -> Any:
        if not _has_memory(tensor) or not self._unwritten.holds(tensor):
            return tensor
        return NotWritten(tensor, self._unwritten)


class _Mode(TorchDispatchMode):
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self, unwritten: Unwritten) -> None:
        super().__init__()
        self._unwritten = unwritten

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not all(map(_has_memory, tensors_in((args, kwargs)))):
            return NotImplemented if types else func(*args, **kwargs)
        kind = _kind_of(func)
        before = args[0].untyped_storage().nbytes() if kind in RESIZING else 0
        marked = self._unwritten.marked(kind, args, kwargs)
        result = func(*args, **kwargs)
        self._unwritten.unmark(marked)
        outputs = tensors_in(result)
        if not all(map(_has_memory, outputs)):
            return result
        if kind in RESIZING:
            self._unwritten.grown(args[0], before)
        elif kind in GIVING:
            for tensor in outputs:
                self._unwritten.allocated(tensor)
        elif not marked:
            self._unwritten.ran(kind, func, args, kwargs, result, _written(func, args, kwargs))
        for slot in SCRATCH.get(kind, ()):
            self._unwritten.allocated(result[slot])
        return result


def _may_give_memory(module: Any) -> bool:
    """Return whether a graph may allocate unwritten memory; True if it was not lowered to torch's own operators."""
    targets = [node.target for node in module.graph.nodes if node.op in ("call_function", "call_method", "call_module")]
    lowered = all(
        isinstance(target, torch._ops.OpOverload) or target.__class__.__name__ == "builtin_function_or_method"
        for target in targets
    )
    return not lowered or any(word in str(target) for target in targets for word in _ALLOCATING)


def _kind_of(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return "" if schema is None else schema.name.replace("::", ".")


def _written(func: Any, args: Sequence[Any], kwargs: Any) -> list[Any]:
    schema = getattr(func, "_schema", None)
    arguments = [] if schema is None else schema.arguments
    values = [
        args[index] if index < len(args) else kwargs.get(argument.name)
        for index, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return tensors_in(values)


def _has_memory(value: Any) -> bool:
    return bool(plain(value))
