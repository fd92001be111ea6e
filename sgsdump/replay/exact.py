"""The exact values of a run: every operator computed again in float64 from the results of the operators before it.

``check.py`` judges one operator from its recorded inputs. Here no rounding propagates. Two programs with the same
function therefore give the same values to about 1e-15, whatever types, order and memory they use. Memory is shared as
in the program: a view stays a view, and all readers see what is written into memory.

A value that cannot be computed again is taken as recorded. It carries the rounding of its run, and so do all values
computed from it (``ExactRun.loose``). Weights, integers and random numbers carry none.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sgsdump.dumps.dump import Dump, Network, Operator, Record
from sgsdump.errors import FileChanged, SgsdumpError
from sgsdump.replay import torch_operators
from sgsdump.replay.bounds import COLLECTIVE, OF_MEMORY, RANDOM
from sgsdump.replay.formulas import FORMULAS
from sgsdump.replay.torch_operators import NotReplayed

if TYPE_CHECKING:
    import torch

MOST = 1 << 25  # limit for the elements that the operators of a run make
MOST_WORK = 1 << 34  # limit for the products of two elements
_GIVING_MEMORY = frozenset("empty empty_like empty_strided new_empty new_empty_strided".split())
_DROPOUT = frozenset("native_dropout dropout _fused_dropout alpha_dropout feature_dropout".split())
_RESHAPING = frozenset("view _unsafe_view reshape".split())
_BY_ROWS = frozenset("mm bmm addmm baddbmm addbmm mv addmv linear matmul".split())
_BY_WINDOWS = frozenset("convolution _convolution mkldnn_convolution conv1d conv2d".split())


@dataclass(frozen=True, eq=False)
class ExactRun:
    """The values of a run by their number.

    values   float64 tensors (integers and booleans in their own type), each as it was when made.
    loose    values that carry the rounding of the run.
    outside  values that no operator of the run made, in the order in which they were first read.
    refused  kinds of operators that could not be computed again, with the reason.
    """

    values: dict[Hashable, torch.Tensor] = field(default_factory=dict)
    loose: set[Hashable] = field(default_factory=set)
    outside: dict[Hashable, Record] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)


def is_small(dump: Dump, network: Network) -> bool:
    """Return whether a run can be computed again in seconds and in little memory."""
    made = work = 0
    shapes = {(record.op_index, record.io, record.slot): record.tensor.shape or () for record in dump.records}
    for (index, io, _), shape in shapes.items():
        operator = network.get(index)
        if io != "out" or operator is None or operator.is_module:
            continue
        made += math.prod(shape)
        name = torch_operators.plain_name(operator.kind)
        if name in _BY_ROWS:
            factor = shapes.get((index, "in", int(name.startswith(("add", "badd")))), ())
            work += math.prod(shape) * (factor[-1] if factor else 1)
        elif name in _BY_WINDOWS:
            work += math.prod(shape) * math.prod(shapes.get((index, "in", 1), ())[1:])
    return made <= MOST and work <= MOST_WORK


def exact_run(
    dump: Dump,
    network: Network,
    outside: Mapping[Hashable, torch.Tensor] | None = None,
    loose: Iterable[Hashable] = (),
) -> ExactRun:
    """Compute a torch program's run again.

    Parameters
    ----------
    dump, network
        The run, with the values of its tensors and the form of its operators.
    outside
        Values by number that replace those that no operator of the run made. Others are taken as recorded and carry
        rounding. None: all are taken as recorded and carry none.
    loose
        The numbers in ``outside`` that carry rounding.

    Returns
    -------
    ExactRun
        The values by number.

    Raises
    ------
    MissingExtra
        If torch is not installed.
    FileChanged
        If a file is missing or changed.
    """
    return _Replay(dump, network, outside, loose).run()


class _Replay:
    """The state of a run: current tensors by number (``living``), and tensors by memory address (``memories``)."""

    def __init__(
        self, dump: Dump, network: Network, outside: Mapping[Hashable, torch.Tensor] | None, loose: Iterable[Hashable]
    ):
        self._torch = torch_operators.library()
        self._network, self._given, self._given_loose = network, outside or {}, set(loose)
        self._is_first = outside is None
        self._records: defaultdict[int, list[Record]] = defaultdict(list)
        for record in dump.records:
            self._records[record.op_index].append(record)
        operators = [operator for operator in network.values() if not operator.is_module]
        self._writes = any(operator.kind.endswith("_") for operator in operators)
        self._living: dict[Hashable, torch.Tensor] = {}
        self._memories: defaultdict[int, list[torch.Tensor]] = defaultdict(list)
        self._made = ExactRun()

    def run(self) -> ExactRun:
        with self._torch.no_grad():
            for index in sorted(self._network):
                if not self._network[index].is_module:
                    self._operator(self._network[index], self._records[index])
        return self._made

    def _operator(self, operator: Operator, records: Sequence[Record]) -> None:
        inputs, outputs = (
            sorted((record for record in records if record.io == io), key=lambda record: record.slot)
            for io in ("in", "out")
        )
        reads = [self._read(operator, record) for record in inputs]
        numbers = [operator.values.get(("in", record.slot)) for record in inputs]
        is_loose = any(number in self._made.loose for number in numbers)
        try:
            results = self._computed(operator, reads, outputs)
        except NotReplayed as error:
            self._made.refused[operator.kind, str(error)] += 1
            results = self._recorded(operator, reads, outputs)
            is_loose = not (_draws(operator) and all(_tensor(record)[1] for record in outputs))
        for record, result in zip(outputs, results):
            number = operator.values.get(("out", record.slot))
            if number is not None:
                computed = _tensor(record)[0] if result is None else result
                self._keep(number, computed, (is_loose or result is None) and computed.dtype.is_floating_point)

    def _computed(
        self, operator: Operator, reads: Sequence[torch.Tensor], outputs: Sequence[Record]
    ) -> Sequence[torch.Tensor | None]:
        """Return the results of an operator; None for an output without a formula. Raises NotReplayed."""
        name = torch_operators.plain_name(operator.kind)
        if name in _GIVING_MEMORY:
            return [self._torch.zeros(record.tensor.shape or (), dtype=_dtype(record)) for record in outputs]
        if name in RANDOM or name in OF_MEMORY or operator.kind.partition(".")[0] in COLLECTIVE:
            raise NotReplayed("the operator's result depends on more than its inputs")
        if operator.call is None or len(operator.call.inputs) != len(reads):
            raise NotReplayed("the operator's call was not recorded completely")
        arguments = {key: json.loads(text) for key, text in operator.arguments.items()}
        stands_for = [_Unread(record) for record in outputs]
        call = torch_operators.Call(operator.kind, operator.call.overload, {}, arguments, stands_for)  # type: ignore[arg-type]
        function, values = torch_operators.bound_call(call, dict(zip(operator.call.inputs, reads)))
        try:
            results = self._results(call, function, values)
        except NotReplayed:
            raise
        except Exception as error:  # torch raises all kinds of errors for arguments that do not fit
            if call.name not in FORMULAS:
                raise NotReplayed(type(error).__name__) from None
            made = FORMULAS[call.name]({**values, "narrow": 0.0})
            results = [None if one is None else one[0] for one in made]
        sizes = [math.prod(record.tensor.shape or ()) for record in outputs]
        if len(results) < len(sizes) or any(r is not None and r.numel() != size for r, size in zip(results, sizes)):
            raise NotReplayed("the recomputed result of the operator differs in size from the recorded result")
        return results

    def _results(
        self, call: torch_operators.Call, function: object, values: dict[str, object]
    ) -> Sequence[torch.Tensor | None]:
        if call.name in torch_operators.SIZED:
            torch_operators.check_size(call, function, values)
        if call.name == "_to_copy":
            source = values["self"]
            return [source.to(torch_operators.wide_type(call.outputs[0]), copy=True)]  # type: ignore[attr-defined]
        if call.name in _RESHAPING:  # memory may be laid out differently than in the program
            return [values["self"].reshape(values["size"] if "size" in values else values["shape"])]  # type: ignore[attr-defined]
        return torch_operators.outputs_of(function, values, in_place=True)

    def _recorded(
        self, operator: Operator, reads: Sequence[torch.Tensor], outputs: Sequence[Record]
    ) -> Sequence[torch.Tensor | None]:
        """Return the recorded outputs. If the operator works in place, also write its output into its memory."""
        results = [_tensor(record)[0] for record in outputs]
        if operator.kind.endswith("_") and reads and results and reads[0].shape == results[0].shape:
            results[0] = reads[0].copy_(results[0])
        return results

    def _read(self, operator: Operator, record: Record) -> torch.Tensor:
        key = record.io, record.slot
        number = operator.values.get(key)
        if number is not None and number in self._living:
            return self._living[number]
        if number is not None and (found := self._in_memory(operator.parts.get(key, ()), record)) is not None:
            self._keep(number, found, any(part in self._made.loose for part in operator.parts[key]))
            return found
        is_given = number is not None and number in self._given
        tensor, is_readable = (self._given[number].clone(), True) if is_given else _tensor(record)  # type: ignore[index]
        if number is not None:
            self._made.outside.setdefault(number, record)
            is_exact = is_readable and (self._is_first or key in operator.weights)
            is_loose = number in self._given_loose if is_given else not is_exact
            self._keep(number, tensor, is_loose and tensor.dtype.is_floating_point)
        return tensor

    def _in_memory(self, parts: Sequence[Hashable], record: Record) -> torch.Tensor | None:
        """Return the tensor into whose memory these parts were written; of several, the one most like the record."""
        addresses = {self._address(self._living[part]) for part in parts if part in self._living}
        shape = tuple(record.tensor.shape or ())
        alike = [tensor for address in addresses for tensor in self._memories[address] if tuple(tensor.shape) == shape]
        if len(alike) > 1:
            recorded, _ = _tensor(record)
            alike.sort(key=lambda tensor: float((tensor - recorded).abs().sum()))
        return alike[0] if alike else None

    def _keep(self, number: Hashable, tensor: torch.Tensor, is_loose: bool) -> None:
        self._living[number] = tensor
        self._made.values[number] = tensor.clone() if self._writes else tensor
        self._memories[self._address(tensor)].append(tensor)
        if is_loose:
            self._made.loose.add(number)

    def _address(self, tensor: torch.Tensor) -> int:
        return int(tensor.untyped_storage().data_ptr())


class _Unread:
    """A placeholder for a recorded output of which only type and size are needed."""

    def __init__(self, record: Record):
        self.dtype, self.size = record.tensor.dtype, math.prod(record.tensor.shape or ())


def _draws(operator: Operator) -> bool:
    """Return whether an operator returns the random numbers themselves."""
    name = torch_operators.plain_name(operator.kind)
    return name in RANDOM and name not in _DROPOUT


def _dtype(record: Record) -> torch.dtype:
    return torch_operators.wide_type(_Unread(record))  # type: ignore[arg-type]


def _tensor(record: Record) -> tuple[torch.Tensor, bool]:
    """Return the recorded values and whether they are known: zeros replace a file that cannot be read.

    Memory that was not written yet is also zeros, and known: it is written before it counts.
    """
    torch = torch_operators.library()
    try:
        if not record.unwritten:
            return torch_operators.wide(record.tensor.stored_view()), True
    except FileChanged:
        raise
    except (SgsdumpError, NotReplayed):
        pass
    return torch.zeros(record.tensor.shape or (), dtype=torch.float64), record.unwritten
