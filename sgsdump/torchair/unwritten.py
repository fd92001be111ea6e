"""Tensors of a running graph to whose memory nothing has been written yet: what ``torch.empty`` gives, until an
operator writes to it. By torch's own operators below the graph's, whatever these are called."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from sgsdump.capture.hook.for_torch.sgsdump_torch_tensors import plain
from sgsdump.capture.hook.for_torch.sgsdump_torch_unwritten import GIVING, RESIZING, SCRATCH, Unwritten

_WORDS = ("empty", "resize")


@dataclass(frozen=True)
class NotWritten:
    """Stands for a tensor that has no values yet."""

    tensor: torch.Tensor
    _unwritten: Unwritten

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(int, self.tensor.shape))

    def now(self) -> torch.Tensor | NotWritten:
        """The tensor, once it has values."""
        return self if self._unwritten.holds(self.tensor) else self.tensor


class Watch:
    """What is unwritten in a run; ``running`` is a context in which its operators run."""

    def __init__(self, module: Any) -> None:
        self._unwritten = Unwritten()
        self._mode = _Mode(self._unwritten) if _may_give_memory(module) else None

    def running(self) -> Any:
        return self._mode or nullcontext()

    def told(self, tensors: Sequence[Any]) -> list[Any]:
        """The tensors, ``NotWritten`` in the place of those that hold what nothing has written."""
        return [self._told(one) for one in tensors] if self._unwritten else list(tensors)

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
        if not all(map(_has_memory, _tensors((args, kwargs)))):
            return NotImplemented if types else func(*args, **kwargs)
        kind = _kind_of(func)
        before = args[0].untyped_storage().nbytes() if kind in RESIZING else 0
        result = func(*args, **kwargs)
        outputs = _tensors(result)
        if not all(map(_has_memory, outputs)):
            return result
        if kind in RESIZING:
            self._unwritten.grown(args[0], before)
        elif kind in GIVING:
            for one in outputs:
                self._unwritten.given(one)
        else:
            self._unwritten.ran(kind, func, args, kwargs, result, _written(func, args, kwargs))
        for slot in SCRATCH.get(kind, ()):
            self._unwritten.given(result[slot])
        return result


def _may_give_memory(module: Any) -> bool:
    """Whether a graph may hold an operator that gives memory; one that was not lowered to torch's own does not say."""
    targets = [node.target for node in module.graph.nodes if node.op in ("call_function", "call_method", "call_module")]
    own = [
        isinstance(one, torch._ops.OpOverload) or one.__class__.__name__ == "builtin_function_or_method"
        for one in targets
    ]
    return not all(own) or any(word in str(one) for one in targets for word in (*_WORDS, "rnn"))


def _kind_of(func: Any) -> str:
    schema = getattr(func, "_schema", None)
    return "" if schema is None else schema.name.replace("::", ".")


def _written(func: Any, args: Sequence[Any], kwargs: Any) -> list[Any]:
    schema = getattr(func, "_schema", None)
    arguments = [] if schema is None else schema.arguments
    values = [
        args[place] if place < len(args) else kwargs.get(argument.name)
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return _tensors(values)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _has_memory(value: Any) -> bool:
    return bool(plain(value))
