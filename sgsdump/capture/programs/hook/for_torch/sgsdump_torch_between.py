"""Operators that a program runs outside any module, between two rounds: sampling, masks, bookkeeping (``Between``).

They compute the next round's inputs. The index of that round has one line for them, without values::

    {"step": 1, "event": "between", "after": 0, "operators": [
        {"type": "aten.div", "source": "net.py:28", "param": {"other": 0.7}, "in": [TENSOR], "out": [TENSOR]}, …]}

TENSOR is ``[dtype, shape, checksum, [max, min, mean, l2norm]]``. Equal checksums mean equal values. The statistics are
null for an empty tensor, bool and complex; both are null for more than ``MOST_ELEMENTS`` elements.

A dispatch mode is active on the main thread from the end of a dumped round to the beginning of the next, if both rounds
are dumped, gradients are off, and no other mode is active. At most ``MOST_OPERATORS`` operators are recorded.
"""

import math
import threading
import zlib
from typing import Any

import torch
from sgsdump_records import encode
from sgsdump_torch_devices import Reader, wait_for_copy
from sgsdump_torch_round import is_no_step
from sgsdump_torch_source import line_of_program
from sgsdump_torch_statistics import statistics
from sgsdump_torch_tensors import (
    in_c_order,
    outside_transforms,
    payload,
    plain,
    shape_of,
    tensors_in,
    type_word,
    unreadable,
)
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

MOST_OPERATORS = 200
MOST_ELEMENTS = 1 << 22
_is_compiling = torch.compiler.is_compiling
_modes_on_stack = getattr(torch._C, "_len_torch_dispatch_stack", None)


class Between:
    """Recorder of operators between rounds; ``steps`` belongs to the hook (``sgsdump_hook_torch``)."""

    def __init__(self, steps):
        self._steps = steps
        self._mode: Any = None
        self._after = None
        self._operators: list = []
        self._reader = Reader()
        self._waiting: list = []  # functions that add what was read from devices

    def begin(self, step):
        """Begin recording after a dumped round."""
        if _modes_on_stack is None or (self._mode is None and _modes_on_stack()) or torch.is_grad_enabled():
            return
        if threading.current_thread() is not threading.main_thread() or not self._steps.session.wants_step(step + 1):
            return
        self._after, self._operators = step, []
        if self._mode is None:
            self._mode = _Mode(self)
            self._mode.__enter__()

    def end(self):
        """Remove the mode, unless another one is above it: a round begins, or torch runs modules itself."""
        top = _get_current_dispatch_mode()
        if top is not None and top is self._mode:
            top.__exit__(None, None, None)
            self._mode = None

    def line(self, step):
        """Return the index's line for the round that begins, or ""."""
        if threading.current_thread() is not threading.main_thread():
            return ""
        self._guard(self._fetch)
        after, operators = self._after, self._operators
        self._after, self._operators = None, []
        if after is None or after + 1 != step:
            return ""
        return encode({"step": step, "event": "between", "after": after, "operators": operators}) + "\n"

    def dispatched(self, mode, func, types, args, kwargs):
        thread = self._steps.thread
        is_seen = not (types or thread.inside or thread.round or _is_compiling() or is_no_step())
        is_seen = is_seen and not self._steps.taking.devices.are_capturing()
        if not is_seen or self._after is None or len(self._operators) >= MOST_OPERATORS:
            return func(*args, **kwargs)
        facts = self._steps.facts.get(func) or self._steps.known(func)
        args = facts.with_tensors(args)
        if facts.skipped or facts.body is not None:
            return func(*args, **kwargs)
        inputs = facts.inputs(args, kwargs)
        if facts.is_made_of_others(inputs):
            with mode:
                return facts.by_others(args, kwargs)
        told = self._guard(self._told, facts, args, kwargs, inputs)
        result = func(*args, **kwargs)
        if told is not None:
            outputs = tensors_in(facts.written(args, kwargs) if result is None else result)
            if facts.is_late(args, kwargs):
                self._guard(wait_for_copy, inputs, outputs)
            told["out"] = self._guard(self._described, outputs)
            self._operators.append(told)
        return result

    def _told(self, facts, args, kwargs, inputs):
        return {
            "type": facts.kind,
            "source": line_of_program(),
            "param": facts.param(args, kwargs),
            "in": self._described(inputs),
        }

    def _described(self, tensors):
        return [self._facts_of(tensor) for tensor in tensors if plain(tensor)]

    def _facts_of(self, tensor):
        facts = [type_word(tensor.dtype), list(shape_of(tensor)), None, None]
        if tensor.numel() > MOST_ELEMENTS or unreadable(tensor):
            return facts
        if tensor.is_cpu:
            _add_values(facts, in_c_order(tensor))
            return facts
        self._steps.taking.devices.meet(tensor)
        coming = self._reader.elements(tensor)
        self._waiting.append(lambda dtype=tensor.dtype: _add_values(facts, coming.data.view(dtype)))
        if self._reader.is_full():
            self._fetch()
        return facts

    def _fetch(self):
        self._reader.fetch()
        for add in self._waiting:
            add()
        self._waiting = []

    def _guard(self, function, *args):
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), outside_transforms():
                return function(*args)
        except Exception as error:
            self._steps.session.trouble(f"torch, after step {self._after}: {type(error).__name__}: {error}")
            return None


class _Mode(TorchDispatchMode):
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # see ``Dispatch``

    def __init__(self, between):
        super().__init__()
        self._between = between

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self._between.dispatched(self, func, types, args, kwargs or {})


def _add_values(facts, lying):
    """Add checksum and statistics of a tensor that lies in C order on the host."""
    values = statistics(lying)
    facts[2] = zlib.crc32(payload(lying))
    facts[3] = None if values is None else [_number(value) for value in values]


def _number(value):
    """Return a value for JSON; infinities and NaN become text."""
    return value if math.isfinite(value) else str(float(value))
