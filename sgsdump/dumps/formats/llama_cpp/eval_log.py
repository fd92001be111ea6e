"""Reader of the log of llama.cpp's ``llama-eval-callback``, which prints each operator's result while a prompt runs.

::

    common_debug_cb_eval:     embd = (f32)   GET_ROWS(token_embd.weight{32, 259, 1, 1}, inp_tokens{9, 1, 1, 1}}) = {32, 9, 1, 1}
        [
            [
                [     -0.1730,      -0.1430,       0.1875,    ...,      -0.0819,       0.0225,      -0.2099  ],
                ...,
                [      0.0168,      -0.0502,      -0.2459,    ...,      -0.1469,      -0.0485,      -0.4498  ],
            ],
        ]
        sum = -4.353276

Older versions print ``ggml_debug:``, and may leave out the type or the sum. Sizes are listed from the innermost axis to
the outermost; axes of size 1 at the end are dropped. Of an axis longer than six, the first and the last three values
are printed, with four decimals. The sum is that of all values, in float32. Quantised tensors are not printed.

A tensor that is printed completely has its values. Any other tensor has the mean (sum divided by the number of values)
as its only statistic; the printed values are a second tensor, ``NAME/shown``. Results with the name of an earlier
result are ``Qcur-0/ROPE`` and ``Qcur-0/ROPE.1``. ``Dump.network`` has the operators and their inputs. Lines of other
kinds are skipped.

Source: logs of llama.cpp of October 2026, and its ``examples/eval-callback/README.md``.
"""  # noqa: E501

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from sgsdump.dumps.dump import Damage, Dump, Operator, Record, Value
from sgsdump.dumps.format import Format, checked_shape
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import open_file, reading
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Tensor, TensorInfo

MOST_LINE, MOST_HEAD, SHOWN_ENDS = 1 << 16, 1000, 3
UNKNOWN = np.dtype("V1")
_TYPES = {
    **{"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"},
    **{"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"},
}
_MARK = re.compile(rb"(?:common_debug_cb_eval|ggml_debug): ")
_LINE = re.compile(
    r".*?(?:common_debug_cb_eval|ggml_debug): +(?P<name>.*?) = +(?:\((?P<type>\w{1,20})\))? *(?P<op>\w{1,60})"
    r"\((?P<inputs>.*)\}\) = \{(?P<sizes>\d{1,18}(?:, \d{1,18}){3})\} *"
)
_SUM = re.compile(r"\s*sum = +(\S{1,60})\s*")
_COPY = re.compile(r"\w+#(.*)#\d+")
_BLOCK = re.compile(r".*-(\d{1,6})(?: \(.*\))?")


class Result(NamedTuple):
    """One printed result: the head's fields, the printed values, and the printed sum."""

    name: str
    op: str
    kind: str
    inputs: tuple[str, ...]
    sizes: tuple[int, ...]
    values: array[float]
    total: list[str]


def recognises(path: Path, head: bytes) -> bool:
    if not path.is_file():
        return False
    match = _MARK.search(head)
    if match:
        return _LINE.fullmatch(_line_at(head, match.start())) is not None
    # The log of loading the model comes first if both streams went into one file.
    return head.startswith(_STARTS) and _mark_follows(path)


_STARTS = (b"build:", b"main:", b"llama_", b"load_backend:", b"ggml_", b"0.00.", b"system_info:", b"print_info:")
_SEARCHED = 1 << 20


def _line_at(data: bytes, start: int) -> str:
    return data[start : start + MOST_HEAD].partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")


def _mark_follows(path: Path) -> bool:
    try:
        with open_file(path) as file:
            data = file.read(_SEARCHED)
    except OSError:
        return False
    match = _MARK.search(data)
    return match is not None and _LINE.fullmatch(_line_at(data, match.start())) is not None


def read(path: Path) -> Dump:
    """Read a log; the printed values are kept in memory. Raises FormatError if it has no result."""
    notes: list[str] = []
    records: list[Record] = []
    operators: dict[int, Operator] = {}
    makers: dict[str, Hashable] = {}
    taken: set[str] = set()
    truncated = 0
    has_sums, last = False, ""
    for index, result in enumerate(_results(path, notes)):
        has_sums, last = has_sums or bool(result.total), "" if result.total else result.name
        name = _unique(result, taken)
        found = list(_tensors(name, result, notes))
        truncated += len(found) > 1
        records += [Record("out", slot, index, result.op, tensor) for slot, tensor in enumerate(found)]
        operators[index] = _operator(index, result, makers)
        makers[result.name] = index
    if not records:
        raise FormatError(f"{path} contains no operator result{f' ({notes[0]})' if notes else ''}")
    if has_sums and last and records[-1].tensor.info.dtype != UNKNOWN:
        notes.append(Damage(f"the log is cut off: it ends within the values of {last[:80]!r}, before their sum"))
    if truncated:
        notes.append(
            f"{truncated} of {len(operators)} tensors are printed in part: they have their mean and, as NAME/shown, "
            f"the first and last {SHOWN_ENDS} values of each axis"
        )
    return Dump(records, FORMAT.name, None, path, notes, partial(dict, operators))


def _results(path: Path, notes: list[str]) -> Iterator[Result]:
    result: Result | None = None
    number = 0
    with reading(path), open_file(path) as file:
        for data in _lines(file):
            number += 1
            line = data.decode("utf-8", "replace").rstrip("\r\n")
            match = _LINE.fullmatch(line) if len(line) < MOST_HEAD and ") = {" in line else None
            if match is not None:
                if result is not None:
                    yield result
                inputs = tuple(part.rpartition("{")[0] for part in match["inputs"].split("}, ") if "{" in part)
                sizes = tuple(map(int, match["sizes"].split(", ")))
                result = Result(match["name"], match["op"], match["type"] or "f32", inputs, sizes, array("d"), [])
            elif _MARK.search(data):
                notes.append(Damage(f"line {number} is left out: {line[:60]!r} does not describe a result"))
                if result is not None:
                    yield result
                result = None
            elif result is not None:
                _add_line(result, line)
        if number and not data.endswith(b"\n"):
            notes.append(Damage("the log is cut off in its last line"))
    if result is not None:
        yield result


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MOST_LINE):
        yield line


def _add_line(result: Result, line: str) -> None:
    """Add the values or the sum of a line; ignore other lines."""
    text = line.strip()
    if text.startswith("[") and len(text) > 1:
        try:
            values = [float(cell) for cell in text.strip("[], ").split(",") if cell.strip() not in ("...", "")]
        except ValueError:
            return
        result.values.extend(values)
    elif (match := _SUM.fullmatch(line)) is not None:
        result.total[:] = [match[1]]


def _unique(result: Result, taken: set[str]) -> str:
    name, number = result.name, 0
    while name in taken:
        name = f"{result.name}/{result.op}{f'.{number}' if number else ''}"
        number += 1
    taken.add(name)
    return name


def _tensors(name: str, result: Result, notes: list[str]) -> Iterator[Tensor]:
    """Yield the tensor of a result and, if it is printed in part, the tensor of its printed values."""
    sizes = result.sizes
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes = sizes[:-1]
    try:
        shape = checked_shape(reversed(sizes))
    except FormatError as error:
        notes.append(Damage(f"{name[:80]}: {error}"))
        return
    dtype = KNOWN.get(_TYPES.get(result.kind, ""), UNKNOWN)
    info = TensorInfo(name, shape, dtype, op_type=result.op)
    if dtype == UNKNOWN:
        yield Tensor.without_values(info, f"llama.cpp prints no values of type {result.kind}")
        return
    printed = tuple(size if axis == 3 else min(size, 2 * SHOWN_ENDS) for axis, size in enumerate(result.sizes))
    count, shown = math.prod(shape), math.prod(printed)
    values = _as_type(result.values, dtype) if len(result.values) == shown else None
    if values is not None and shown == count:
        yield Tensor(info, partial(np.reshape, values, shape))
        return
    yield Tensor.of_statistics(info, _statistics(result, count))
    if values is None and result.values and result.total:
        notes.append(Damage(f"{name[:80]} has {len(result.values)} printed values instead of {shown}"))
    if values is not None:
        short = tuple(reversed(printed[: len(shape)]))
        yield Tensor(TensorInfo(f"{name}/shown", short, dtype, op_type=result.op), partial(np.reshape, values, short))


def _as_type(values: array[float], dtype: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


def _statistics(result: Result, count: int) -> Statistics:
    """Return the mean from the printed sum; its digits are those that the sum has."""
    text = result.total[0] if result.total else ""
    try:
        total = float(text)
    except ValueError:
        return Statistics(count=count)
    digits = len(re.sub(r"\D", "", text).lstrip("0"))
    return Statistics(mean=total / count if count else None, count=count, digits=max(1, min(digits, 6)))


def _operator(index: int, result: Result, makers: dict[str, Hashable]) -> Operator:
    """Return the operator with the identities of its inputs; a result that several operators name is the latest."""
    values: dict[Value, Hashable] = {("out", 0): index}
    weights: dict[Value, str] = {}
    for slot, name in enumerate(result.inputs):
        copied = _COPY.fullmatch(name)
        name = copied[1] if copied else name
        values["in", slot] = makers.get(name, name)
        if name not in makers and name.endswith((".weight", ".bias")):
            weights["in", slot] = name
    block = _BLOCK.fullmatch(result.name)
    return Operator(f"blk.{block[1]}" if block else "", result.op, values=values, weights=weights)


FORMAT = Format("llama_eval_log", recognises, read)
