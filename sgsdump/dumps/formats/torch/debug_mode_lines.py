"""Lines of ``DebugMode.debug_string()`` as data: depth, operator, tensors, other arguments and hashes.

A line of an operator is ``NAMESPACE::NAME(ARGUMENTS)  ->  RESULT  # {LOG}``. A tensor is ``t$4: f32[2, 4]``: its number
(with ``record_ids``), element type and shape; attributes follow in braces, the placement of a DTensor after ``|``. LOG
repeats the nesting of the arguments and of the result, with a hash for each tensor and ``None`` for everything else.

Nothing is evaluated: tensors and hashes are found by patterns, and brackets are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sgsdump.dumps.format import checked_shape
from sgsdump.errors import FormatError
from sgsdump.tensors.dtypes import KNOWN

UNKNOWN = np.dtype("V1")
_ARROW, _LOG = ")  ->  ", "  # {"
_OPERATOR = re.compile(r"( *)([A-Za-z_]\w*)::(\w+)(?:\.(\w+))?\(", re.ASCII)
_TENSOR = re.compile(r"(?<![\w$.])(?:d|f)?t(?:\$(\d{1,18}))?: ([a-z]\w{0,15})\[([^\[\]]*)\]", re.ASCII)
_CUT_TENSOR = re.compile(r"[(\['\s]*[df]?t(?:\$\d*)?(?::\s*\w*)?", re.ASCII)
_NUMBER = r"[-+]?(?:\d{1,400}(?:\.\d{0,400})?(?:e[-+]?\d{1,4})?|inf|nan)"
_TOKEN = re.compile(
    rf"[\[({{]|[\])}}]|'([^']*)'(:?)|tensor\(({_NUMBER})[^()]*\)|(?<![\w.])({_NUMBER})(?![\w.])", re.ASCII
)
_PART = re.compile(r"[\[({]|[\])}]|'[^']*'|, ")
_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_TYPES = {
    **{f"f{size}": f"float{size}" for size in (16, 32, 64)},
    **{f"i{size}": f"int{size}" for size in (8, 16, 32, 64)},
    **{f"u{size}": f"uint{size}" for size in (8, 16, 32, 64)},
    **{f"c{size}": f"complex{size}" for size in (32, 64, 128)},
    "bf16": "bfloat16",
    "b8": "bool",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
}
Hash = float | int | str


class Seen(NamedTuple):
    """A tensor that a line names.

    number  id of the tensor, "" if the log has no ids.
    shape   None if the shape is symbolic.
    """

    number: str
    dtype: np.dtype
    shape: tuple[int, ...] | None


class OperatorLine(NamedTuple):
    """One operator: its tensors, other arguments by position or keyword, and the hashes of each tensor.

    ``depth`` counts spaces. ``inputs`` has the argument of each tensor. The hashes are () where none was logged.
    """

    depth: int
    namespace: str
    name: str
    overload: str
    inputs: tuple[tuple[str, Seen], ...]
    outputs: tuple[Seen, ...]
    arguments: tuple[tuple[str, str], ...]
    input_hashes: tuple[tuple[Hash, ...], ...]
    output_hashes: tuple[tuple[Hash, ...], ...]
    of_dtensors: bool


def parsed(line: str) -> OperatorLine | None:
    """Return the operator of a line; None for any other line. Raises FormatError if the line is cut or damaged."""
    match = _OPERATOR.match(line)
    if match is None:
        return None
    text, log = line[match.end() :], ""
    if _LOG in text:
        text, _, log = text.rpartition(_LOG)
        log = "{" + log
    arguments, arrow, result = text.rpartition(_ARROW)
    if not arrow:
        arguments, result = text[:-1], ""
    if (not arrow and not text.endswith(")")) or not all(map(_is_balanced, (arguments, result, log))):
        raise FormatError("the line is cut off")
    if result.endswith((" ", "#")) or _CUT_TENSOR.fullmatch(result):
        raise FormatError("the line is cut off")
    inputs: list[tuple[str, Seen]] = []
    others: list[tuple[str, str]] = []
    for position, part in enumerate(_parts(arguments)):
        keyword = _KEYWORD.match(part)
        name, value = (keyword[1], keyword[2]) if keyword else (str(position), part)
        tensors = [_seen(found) for found in _TENSOR.finditer(value)]
        inputs += [(name, tensor) for tensor in tensors]
        others += [] if tensors else [(name, value)]
    outputs = tuple(_seen(found) for found in _TENSOR.finditer(result))
    hashes = dict(_hashes(log))
    return OperatorLine(
        len(match[1]),
        match[2],
        match[3],
        match[4] or "",
        tuple(inputs),
        outputs,
        tuple(others),
        _per_tensor(hashes.get("input_hash", []), len(inputs)),
        _per_tensor(hashes.get("hash", []), len(outputs)),
        "dt: " in arguments or "dt$" in arguments,
    )


def _is_balanced(text: str) -> bool:
    return all(text.count(opening) == text.count(closing) for opening, closing in ("()", "[]", "{}"))


def _parts(text: str) -> Iterator[str]:
    """Yield the arguments, split at the commas outside brackets and quotes."""
    depth = start = 0
    for match in _PART.finditer(text):
        token = match[0]
        if token == ", " and not depth:
            yield text[start : match.start()]
            start = match.end()
        depth += (token in "[({") - (token in "])}") if len(token) == 1 else 0
    if text[start:]:
        yield text[start:]


def _seen(match: re.Match[str]) -> Seen:
    number, abbreviation, text = match.groups()
    dtype = KNOWN.get(_TYPES.get(abbreviation, ""), UNKNOWN)
    sizes = text.split(", ") if text else []
    are_numbers = all(size.isdecimal() and len(size) < 16 for size in sizes)
    return Seen(number or "", dtype, checked_shape(map(int, sizes)) if are_numbers else None)


def _hashes(log: str) -> Iterator[tuple[str, list[Hash]]]:
    """Yield each key of the log with its hashes in order, without ``None``."""
    depth, found = 0, list[Hash]()
    for match in _TOKEN.finditer(log):
        quoted, colon, of_tensor, number = match.groups()
        if quoted is None and of_tensor is None and number is None:
            depth += 1 if match[0] in "[({" else -1
        elif colon:
            if depth == 1:
                found = []
                yield quoted, found
        else:
            found.append(quoted if quoted is not None else _number(of_tensor or number))


def _number(text: str) -> float | int:
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def _per_tensor(hashes: list[Hash], tensors: int) -> tuple[tuple[Hash, ...], ...]:
    """Return the hashes of each tensor, several if several functions were used; () if they do not fit the tensors.

    Without a recorded result (``record_output=False``), each hash is that of a tensor.
    """
    each, rest = divmod(len(hashes), tensors) if tensors else (1, 0)
    if not hashes or rest:
        return ()
    return tuple(tuple(hashes[start : start + each]) for start in range(0, len(hashes), each))
