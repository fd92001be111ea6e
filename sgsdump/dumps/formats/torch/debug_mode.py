"""Reader of the text of ``DebugMode.debug_string()`` (``torch.utils._debug_mode``) in a file.

::

    # File: net.py:8 in forward, code: return self.fc(self.norm(x))
    [nn.Mod] Net
      [nn.Mod] Net.norm
        aten::native_layer_norm(t$0: f32[2, 8], [8], t$1: f32[8], t$2: f32[8], 1e-05)  ->  ('t$3: f32[2, 8]', …)
          # {'input_hash': ((3.43, [None], 8.0, 0.0, None), {}), 'hash': (38.1, 0.206, 80.1)}      (on the same line)

Everything but the lines of operators is optional: modules (``record_nn_module``), numbers of tensors (``record_ids``),
source lines (``record_stack_trace``), hashes (``DebugMode.log_tensor_hashes``).

An operator is named after its module, without the outermost module's class, with a counter for each operator of the
module: ``layers.0.fc1/addmm_0``. Its tensors are ``layers.0.fc1/addmm_0/input.0`` and ``…/output.0``. Inputs are listed
if their hash is known: logged, or that of the output with the same number. Lines of torch functions, Triton kernels,
annotations and redistributions have no hashes and are skipped.

There are no values. A hash with a decimal point is taken for the kind ``norm``: the L1 norm, computed in float64
(``Statistics.l1norm``). An integer is taken for the kind ``hash_tensor`` and becomes a checksum, as do texts of own
hash functions. Memory that an ``empty`` operator returned, and memory that an operator overwrites, is marked as
unwritten.

``Dump.network`` has the module, the source line, the other arguments by keyword or position, and the identity of each
value: its number and how often operators wrote to it before. An operator that changes a tensor through a view leaves
the number of the viewed tensor unchanged.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from sgsdump.dumps.dump import Damage, Dump, Operator, Record, Value
from sgsdump.dumps.format import Format
from sgsdump.dumps.formats.torch.debug_mode_lines import UNKNOWN, Hash, OperatorLine, Seen, parsed
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import read_text
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

MOST_BYTES = 256 << 20
NO_HASH = "DebugMode recorded no hash. Record the run within DebugMode.log_tensor_hashes()"
NOT_WRITTEN = "its memory had not been written yet"
_STEP = 2  # spaces of a level
_MODULE = re.compile(r"( *)\[nn\.Mod\] (\S+)\s*")
_SOURCE = re.compile(r" *# File: (.+?):(\d{1,9}) in ")
_BEGIN = re.compile(
    rb"^ *(?:\[nn\.Mod\] \S|[A-Za-z_]\w*::\w[\w.]*\(.*?(?:(?<![\w$.])[df]?t(?:\$\d+)?: [a-z]\w*\[|\)  ->  ))",
    re.MULTILINE,
)
# Names of positional arguments that often explain a difference, by operator.
_NAMES = {
    "native_layer_norm": {1: "normalized_shape", 4: "eps"},
    "native_group_norm": {6: "group", 7: "eps"},
    "native_batch_norm": {5: "training", 6: "momentum", 7: "eps"},
    "_fused_rms_norm": {1: "normalized_shape", 3: "eps"},
    "_softmax": {1: "dim", 2: "half_to_float"},
    "_log_softmax": {1: "dim", 2: "half_to_float"},
    "convolution": {3: "stride", 4: "padding", 5: "dilation", 6: "transposed", 7: "output_padding", 8: "groups"},
    **{name: {1: "size"} for name in ("view", "_unsafe_view", "reshape", "expand")},
}
# Operators that ignore the previous values of their first argument.
_OVERWRITING = frozenset("fill_ zero_ copy_ normal_ uniform_ random_ exponential_ bernoulli_ arange_ set_".split())
_VIEWS = frozenset(
    "view reshape _unsafe_view _reshape_alias t transpose permute expand slice select narrow as_strided alias detach "
    "unsqueeze squeeze split unbind view_as_real view_as_complex lift_fresh".split()
)


def recognises(path: Path, head: bytes) -> bool:
    return b"\0" not in head and _BEGIN.search(head) is not None


def read(path: Path) -> Dump:
    """Read the text. Raises FormatError if it has no operator."""
    text = read_text(path, MOST_BYTES, "the text of DebugMode")
    run = _Run()
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        run.add(number, line, is_last=number == len(lines))
    if not run.records:
        raise FormatError(f"{path} has no operator{f' ({run.notes[0]})' if run.notes else ''}")
    return Dump(run.records, FORMAT.name, None, path, [*run.notes, *run.further_notes()], lambda: run.operators)


class _Run:
    """Operators and records of a run, collected line by line."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.operators: dict[int, Operator] = {}
        self.notes: list[str] = []
        self._modules: list[tuple[int, str]] = []
        self._root = ""
        self._source = ""
        self._counts: Counter[str] = Counter()
        self._versions: dict[str, int] = {}
        self._hashes: dict[str, tuple[Hash, ...]] = {}
        self._unwritten: set[str] = set()
        self._without_hash = self._kernels = 0
        self._has_hashes = False

    def add(self, number: int, line: str, is_last: bool = False) -> None:
        """Add a line; note it if it is cut or damaged."""
        try:
            self._add(line, is_last)
        except FormatError as error:
            self.notes.append(Damage(f"line {number} is left out: {error}"))

    def _add(self, line: str, is_last: bool) -> None:
        if module := _MODULE.fullmatch(line):
            self._enter(len(module[1]), module[2])
        elif source := _SOURCE.match(line):
            self._source = f"{PurePath(source[1].replace(chr(92), '/')).name}:{source[2]}"
        elif (operator := parsed(line)) is not None:
            if is_last and self._has_hashes and operator.outputs and not operator.output_hashes:
                raise FormatError("the line has no hash; the file is possibly cut off")
            self._add_operator(operator)
        else:
            self._kernels += line.lstrip().startswith("[triton] ")
            self._leave(line)

    def further_notes(self) -> Iterator[str]:
        if not self._has_hashes:
            yield f"the tensors cannot be compared: {NO_HASH}"
        elif self._without_hash:
            yield f"{self._without_hash} outputs have no hash"
        if self._kernels:
            yield f"left out: {self._kernels} Triton kernels"

    def _enter(self, depth: int, path: str) -> None:
        self._modules = _around(self._modules, depth - 1)
        self._root = self._root or path
        if path == self._root:
            path = ""
        self._modules.append((depth, path.removeprefix(f"{self._root}.")))

    def _leave(self, line: str) -> None:
        """Leave the modules that a line of a torch function or an annotation shows to be done."""
        depth = len(line) - len(line.lstrip(" "))
        if depth and not line.isspace() and not line.lstrip().startswith("#"):  # column 0: text of the line before
            self._modules = _around(self._modules, depth)

    def _module_of(self, line: OperatorLine) -> str:
        """Return the module. Operators are one level deeper than functions and operators of DTensors."""
        self._modules = _around(self._modules, line.depth - (0 if line.of_dtensors else _STEP))
        return self._modules[-1][1] if self._modules else ""

    def _add_operator(self, line: OperatorLine) -> None:
        module = self._module_of(line)
        place = f"{module}/{line.name}" if module else line.name
        number = self._counts[place]
        self._counts[place] += 1
        index, kind, name = len(self.operators), f"{line.namespace.strip('_')}.{line.name}", f"{place}_{number}"
        values: dict[Value, Hashable] = {}
        read = [tensor.number for _, tensor in line.inputs]
        for slot, (_, tensor) in enumerate(line.inputs):
            values |= {("in", slot): identity} if (identity := self._identity(tensor)) else {}
            hashes = line.input_hashes[slot] if line.input_hashes else self._hashes.get(tensor.number, ())
            is_unwritten = tensor.number in self._unwritten or (slot == 0 and line.name in _OVERWRITING)
            if hashes:
                self._add_record("in", slot, index, kind, f"{name}/input.{slot}", tensor, hashes, is_unwritten)
        outputs = line.outputs or [Seen("", UNKNOWN, None)] * len(line.output_hashes)
        is_unwritten = line.name.startswith(("empty", "new_empty")) or (
            line.name in _VIEWS and bool(self._unwritten.intersection(filter(None, read)))
        )
        for slot, tensor in enumerate(outputs):
            hashes = line.output_hashes[slot] if line.output_hashes else ()
            self._write(tensor.number, hashes, is_unwritten)
            values |= {("out", slot): identity} if (identity := self._identity(tensor)) else {}
            self._without_hash += not hashes and not is_unwritten
            self._add_record("out", slot, index, kind, f"{name}/output.{slot}", tensor, hashes, is_unwritten)
        arguments = {_argument_name(line.name, key): _as_json(value) for key, value in line.arguments}
        self.operators[index] = Operator(module, kind, values=values, arguments=arguments, source=self._source)

    def _identity(self, tensor: Seen) -> Hashable:
        return (tensor.number, self._versions.get(tensor.number, 0)) if tensor.number else None

    def _write(self, number: str, hashes: tuple[Hash, ...], is_unwritten: bool) -> None:
        if not number:
            return
        self._versions[number] = self._versions.get(number, 0) + 1
        self._hashes[number] = hashes
        (self._unwritten.add if is_unwritten else self._unwritten.discard)(number)

    def _add_record(
        self,
        io: Any,
        slot: int,
        index: int,
        kind: str,
        name: str,
        tensor: Seen,
        hashes: Sequence[Hash],
        is_unwritten: bool,
    ) -> None:
        info = TensorInfo(name, tensor.shape, tensor.dtype, op_type=kind)
        self._has_hashes = self._has_hashes or bool(hashes)
        if is_unwritten:
            stored = Tensor.without_values(info, NOT_WRITTEN)
        elif hashes:
            stored = Tensor.of_statistics(info, _statistics(hashes, tensor.shape))
        else:
            stored = Tensor.without_values(info, NO_HASH)
        self.records.append(Record(io, slot, index, kind, stored, unwritten=is_unwritten))


def _around(modules: list[tuple[int, str]], depth: int) -> list[tuple[int, str]]:
    return [(other, name) for other, name in modules if other <= depth]


def _statistics(hashes: Sequence[Hash], shape: tuple[int, ...] | None) -> Statistics:
    norm = next((value for value in hashes if isinstance(value, float)), None)
    others = [value for value in hashes if not isinstance(value, float)]
    kind = "hash_tensor" if all(isinstance(value, int) for value in others) else "hash"
    checksum = f"{kind}:{' '.join(map(str, others))}" if others else None
    return Statistics(count=None if shape is None else math.prod(shape), checksum=checksum, l1norm=norm)


def _argument_name(operator: str, key: str) -> str:
    return _NAMES.get(operator.removesuffix("_"), {}).get(int(key), key) if key.isdecimal() else key


def _as_json(text: str) -> str:
    """Return the text of an argument as JSON: numbers, booleans and lists of these as such, all else as text."""
    plain = re.sub(r"\b(True|False|None)\b", lambda word: {"None": "null"}.get(word[0], word[0].lower()), text)
    try:
        json.loads(plain)
    except (ValueError, RecursionError):
        return json.dumps(text)
    return plain


FORMAT = Format("torch_debug_mode", recognises, read, own_inputs=True)
