"""``ge_proto_*.txt``: operators of a graph as text, written by Ascend devices with ``DUMP_GE_GRAPH``.

::

    graph {
      name: "online_0"
      op {
        name: "Add_1"
        type: "Add"
        input: "Add1_in_0:0"            operator and output number; "" for none, "NAME:-1" for control
        attr {
          key: "OUTPUT_IS_VAR"
          value { list { b: false } }
        }
      }
    }

The format is protobuf text. Protobuf's tokenizer splits it without a schema, so attributes of any kind are kept. Fields
with other names are skipped, and so are nested graphs. The fields of the graph may also occur without the enclosing
``graph { }``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes

MOST_BYTES = 1 << 28
_MANY_BACKSLASHES = 256 * "\\"
MOST_DEPTH = 64
Attribute = bool | int | float | str | list[Any]
Message = dict[str, list[Any]]


@dataclass(frozen=True)
class GraphOperator:
    """An operator; inputs are named as in the file, such as ``Add1_in_0:0``, without empty ones."""

    name: str
    op_type: str
    inputs: tuple[str, ...] = ()
    attributes: tuple[tuple[str, Attribute], ...] = ()


@dataclass(frozen=True)
class Graph:
    name: str
    operators: tuple[GraphOperator, ...]


def read(path: Path) -> list[Graph]:
    """Return the graphs of a file in file order.

    Raises ConfigError if the file cannot be read, and FormatError if it is damaged or holds no graph.
    """
    from google.protobuf.text_format import ParseError, Tokenizer

    text = decode(read_bytes(path, MOST_BYTES), path)
    escaped = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")  # names in another encoding
    if _MANY_BACKSLASHES in escaped:  # protobuf needs quadratic time to read them
        raise FormatError(f"{path} is damaged: it has {len(_MANY_BACKSLASHES)} backslashes in a row")
    tokens = Tokenizer(escaped.split("\n"))
    try:
        document = _message(tokens, "", 0)
    except ParseError as error:
        reason = str(error).rpartition("': ")[2]  # the text before it quotes the line
        raise FormatError(f"{path} is damaged at line {error.GetLine()}: {reason}") from None
    messages = [graph for graph in document.get("graph", []) if isinstance(graph, dict)] or [document]
    graphs = [_graph(graph) for graph in messages if any(isinstance(op, dict) for op in graph.get("op", []))]
    if not graphs:
        raise FormatError(f"{path} holds no graph: the file contains no 'op {{' block")
    return graphs


def render(graph: str, operators: Iterable[GraphOperator]) -> str:
    """Return the text of one graph; attributes are texts, numbers, or lists of one kind."""
    lines = ["graph {", f"  name: {_quoted(graph)}"]
    for operator in operators:
        lines += ["  op {", f"    name: {_quoted(operator.name)}", f"    type: {_quoted(operator.op_type)}"]
        lines += [f"    input: {_quoted(name)}" for name in operator.inputs or ("",)]
        for key, value in operator.attributes:
            lines += ["    attr {", f"      key: {_quoted(key)}", "      value {", *_lines(value)]
            lines += ["      }", "    }"]
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def _graph(message: Message) -> Graph:
    operators = tuple(_operator(op) for op in message.get("op", []) if isinstance(op, dict))
    return Graph(_text(message, "name"), operators)


def _operator(message: Message) -> GraphOperator:
    inputs = tuple(name for name in message.get("input", []) if isinstance(name, str) and name)
    attributes = [(_text(attr, "key"), _attribute(attr)) for attr in message.get("attr", []) if isinstance(attr, dict)]
    return GraphOperator(_text(message, "name"), _text(message, "type"), inputs, tuple(attributes))


def _text(message: Message, field: str) -> str:
    return next((text for text in message.get(field, []) if isinstance(text, str)), "")


def _attribute(message: Message) -> Attribute:
    """Return the value of ``value { i: 3 }``; for a list all items, without the name of their kind."""
    value = next((item for item in message.get("value", []) if isinstance(item, dict)), {})
    inner = next((item for item in value.get("list", []) if isinstance(item, dict)), None)
    if inner is not None:
        return [_plain(item) for field, values in inner.items() if field != "val_type" for item in values]
    return next((_plain(item) for values in value.values() for item in values), "")


def _plain(value: Any) -> Any:
    """Format a message within an attribute (a tensor, a graph) as text: its fields, without nested messages."""
    if not isinstance(value, dict):
        return value
    first = {field: values[0] for field, values in value.items() if values}
    return "{" + " ".join(f"{field}: {item}" for field, item in first.items() if not isinstance(item, dict)) + "}"


def _message(tokens: Any, end: str, depth: int) -> Message:
    """Parse the fields up to ``end``; "" is the end of the file."""
    if depth > MOST_DEPTH:
        raise tokens.ParseError(f"messages are nested more than {MOST_DEPTH} levels deep")
    fields: Message = {}
    while not tokens.TryConsume(end):
        if not (tokens.TryConsume(";") or tokens.TryConsume(",")):
            fields.setdefault(_name(tokens), []).extend(_values(tokens, depth))
    return fields


def _name(tokens: Any) -> str:
    """Parse the name of a field, or of an extension: ``[package.name]``."""
    parts = [_word(tokens, "a field's name", "[")]
    while parts[0] == "[" and parts[-1] != "]":
        parts.append(_word(tokens, "an extension's name", "./]"))
    return "".join(parts)


def _word(tokens: Any, expected: str, signs: str) -> str:
    """Consume the next token, which must be a word or one of the signs."""
    token: str = tokens.token
    if not token or not (token in signs or (token.isascii() and token[0].isidentifier())):
        raise tokens.ParseError(f"{token[:40]!r} where {expected} should be" if token else "it ends too early")
    tokens.NextToken()
    return token


def _values(tokens: Any, depth: int) -> list[Any]:
    """Parse the values after a field's name: one, or several in brackets."""
    tokens.TryConsume(":")
    if not tokens.TryConsume("["):
        return [_value(tokens, depth)]
    values = []
    while not tokens.TryConsume("]"):
        if not tokens.TryConsume(","):
            values.append(_value(tokens, depth))
    return values


def _value(tokens: Any, depth: int) -> Any:
    from google.protobuf.text_format import ParseFloat

    token: str = tokens.token
    if token in ("{", "<"):
        tokens.NextToken()
        return _message(tokens, "}" if token == "{" else ">", depth + 1)
    if token[:1] in ("'", '"'):
        return tokens.ConsumeByteString().decode("utf-8", "surrogateescape")
    if token[:1].isdigit() or token[:1] in ("-", "+", "."):
        try:
            is_float = set(token) & set(".eEfFn") and "x" not in token.lower()
            number = ParseFloat(token) if is_float else int(token, 0)
        except ValueError:
            raise tokens.ParseError(f"{token[:40]!r} is not a number") from None
        tokens.NextToken()
        return number
    word = _word(tokens, "a value", "")
    return {"true": True, "false": False}.get(word, word)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _lines(value: Attribute) -> list[str]:
    if isinstance(value, list):
        return ["        list {", *(f"    {line}" for item in value for line in _lines(item)), "        }"]
    if isinstance(value, bool):
        return [f"        b: {str(value).lower()}"]
    if isinstance(value, int):
        return [f"        i: {value}"]
    return [f"        f: {value!r}" if isinstance(value, float) else f"        s: {_quoted(value)}"]
