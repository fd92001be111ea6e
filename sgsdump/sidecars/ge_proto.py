"""The operators of a graph as text, ``ge_proto_*.txt``, which ``DUMP_GE_GRAPH`` leaves on Ascend devices.

::

    graph {
      name: "online_0"
      op {
        name: "Add_1"
        type: "Add"
        input: "Add1_in_0:0"            operator and number of its output; "" where there is none, "NAME:-1" control
        attr {
          key: "OUTPUT_IS_VAR"
          value { list { b: false } }
        }
      }
    }

Protobuf's text form: fields in any order, ``name: value`` or ``name { … }``, a repeated field several times, ``#``
begins a comment. Fields of other names are read and left out, graphs inside others too. The graph's fields may stand
alone, without ``graph { }`` around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes

MOST_BYTES = 1 << 28
MOST_DEPTH = 64
Attribute = bool | int | float | str | list[Any]
Message = dict[str, list[Any]]
_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<word>[A-Za-z_][\w.]*|\[[\w./]+\])|(?P<number>-?(?:0[xX][0-9a-fA-F]+|[\d.]+(?:[eE][+-]?\d+)?f?|inf|nan))"""
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<sign>[{}<>:;,\[\]])""",
    re.ASCII,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11}


@dataclass(frozen=True)
class GraphOperator:
    """An operator: its inputs as the file names them, ``Add1_in_0:0``, without empty ones."""

    name: str
    op_type: str
    inputs: tuple[str, ...] = ()
    attributes: tuple[tuple[str, Attribute], ...] = ()


@dataclass(frozen=True)
class Graph:
    name: str
    operators: tuple[GraphOperator, ...]


def read(path: Path) -> list[Graph]:
    """The graphs of a file, in its order. Raises ConfigError when it cannot be read, FormatError when it is damaged or
    holds no graph."""
    text = decode(read_bytes(path, MOST_BYTES), path)
    try:
        document = _message(_tokens(text), "", 0)
    except _Damage as damage:
        raise FormatError(f"{path} is damaged at line {text.count(chr(10), 0, damage.at) + 1}: {damage}") from None
    messages = [one for one in document.get("graph", []) if isinstance(one, dict)] or [document]
    graphs = [_graph(one) for one in messages if any(isinstance(op, dict) for op in one.get("op", []))]
    if not graphs:
        raise FormatError(f"{path} holds no graph: no 'op {{' with a name in it")
    return graphs


def render(graph: str, operators: Iterable[GraphOperator]) -> str:
    """The text of one graph; attributes are texts, numbers, or lists of one kind of these."""
    lines = ["graph {", f"  name: {_quoted(graph)}"]
    for operator in operators:
        lines += ["  op {", f"    name: {_quoted(operator.name)}", f"    type: {_quoted(operator.op_type)}"]
        lines += [f"    input: {_quoted(name)}" for name in operator.inputs or ("",)]
        for key, value in operator.attributes:
            lines += ["    attr {", f"      key: {_quoted(key)}", "      value {", *_value(value)]
            lines += ["      }", "    }"]
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


class _Damage(Exception):
    def __init__(self, text: str, at: int):
        super().__init__(text)
        self.at = at


def _graph(message: Message) -> Graph:
    operators = tuple(_operator(one) for one in message.get("op", []) if isinstance(one, dict))
    return Graph(_text(message, "name"), operators)


def _operator(message: Message) -> GraphOperator:
    inputs = tuple(one for one in message.get("input", []) if isinstance(one, str) and one)
    attributes = [(_text(one, "key"), _attribute(one)) for one in message.get("attr", []) if isinstance(one, dict)]
    return GraphOperator(_text(message, "name"), _text(message, "type"), inputs, tuple(attributes))


def _text(message: Message, field: str) -> str:
    return next((one for one in message.get(field, []) if isinstance(one, str)), "")


def _attribute(message: Message) -> Attribute:
    """The value of ``value { i: 3 }``; of a list all that are in it, without the word for their kind."""
    value = next((one for one in message.get("value", []) if isinstance(one, dict)), {})
    inner = next((one for one in value.get("list", []) if isinstance(one, dict)), None)
    if inner is not None:
        return [_plain(one) for field, values in inner.items() if field != "val_type" for one in values]
    return next((_plain(one) for values in value.values() for one in values), "")


def _plain(value: Any) -> Any:
    """What a message within an attribute (a tensor, a graph) stands for: its fields, without their values' values."""
    if not isinstance(value, dict):
        return value
    return "{" + " ".join(f"{field}: {each[0]}" for field, each in value.items() if each and _is_plain(each)) + "}"


def _is_plain(values: Sequence[Any]) -> bool:
    return not isinstance(values[0], dict)


def _message(tokens: Iterator[tuple[str, str, int]], end: str, depth: int) -> Message:
    """The fields up to ``end``, "" for the end of the file."""
    if depth > MOST_DEPTH:
        raise _Damage(f"messages lie more than {MOST_DEPTH} deep", next(tokens, ("", "", 0))[2])
    fields: Message = {}
    for kind, token, at in tokens:
        if token == end and kind in ("sign", "end"):
            return fields
        if kind == "sign" and token in ";,":
            continue
        if kind != "word":
            raise _Damage(f"{token[:40]!r} where a field's name should be" if token else "it ends too early", at)
        fields.setdefault(token, []).extend(_field(tokens, depth))
    return fields


def _field(tokens: Iterator[tuple[str, str, int]], depth: int) -> list[Any]:
    kind, token, at = next(tokens)
    if token == ":" and kind == "sign":
        kind, token, at = next(tokens)
    if kind == "sign" and token in "{<":
        return [_message(tokens, "}" if token == "{" else ">", depth + 1)]
    if kind == "sign" and token == "[":
        return list(_listed(tokens))
    return [_scalar(kind, token, at)]


def _listed(tokens: Iterator[tuple[str, str, int]]) -> Iterator[Any]:
    for kind, token, at in tokens:
        if kind == "sign" and token == "]":
            return
        if not (kind == "sign" and token == ","):
            yield _scalar(kind, token, at)


def _scalar(kind: str, token: str, at: int) -> Any:
    if kind == "text":
        return _unquoted(token)
    if kind == "word":
        return {"true": True, "false": False}.get(token, token)
    if kind == "number":
        try:
            return (
                int(token, 0) if not set(token) & set(".ef") or token[:2].lower() == "0x" else float(token.rstrip("f"))
            )
        except ValueError:
            return token
    raise _Damage(f"{token[:40]!r} where a value should be" if token else "it ends too early", at)


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _Damage(f"{text[at : at + 20]!r} is no word, number or text", at)
        if match.lastgroup:
            yield match.lastgroup, match[0], at
        at = match.end()
    yield "end", "", len(text)
    while True:
        yield "end", "", len(text)


def _unquoted(token: str) -> str:
    """A text's characters; escaped bytes are UTF-8."""
    if "\\" not in token:
        return token[1:-1]
    out, at, inner = bytearray(), 0, token[1:-1]
    for match in _ESCAPE.finditer(inner):
        out += inner[at : match.start()].encode("utf-8", "surrogateescape")
        out += _escaped(match[1])
        at = match.end()
    return (bytes(out) + inner[at:].encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def _escaped(code: str) -> bytes:
    if code[0] == "x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    if code[0] in "01234567":
        return bytes([int(code, 8) & 0xFF])
    return bytes([_LETTERS[code]]) if code in _LETTERS else code.encode("utf-8", "surrogateescape")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _value(value: Attribute) -> list[str]:
    if isinstance(value, list):
        return ["        list {", *(f"    {line}" for one in value for line in _value(one)), "        }"]
    if isinstance(value, bool):
        return [f"        b: {str(value).lower()}"]
    if isinstance(value, int):
        return [f"        i: {value}"]
    return [f"        f: {value!r}" if isinstance(value, float) else f"        s: {_quoted(value)}"]
