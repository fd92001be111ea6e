"""Write other ``tensor_arrays`` into an input_config.ini and leave every other byte of it as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sgsdump.errors import ConfigError
from sgsdump.files.escaping import quoted


def with_tensor_arrays(data: bytes, names: Sequence[str]) -> bytes:
    """The file's bytes with ``tensor_arrays`` of [CONV_CONFIG] naming these tensors; the section and the key are added
    where they are missing, and nothing is when there is no name to write.

    data  a file that ``input_config.read`` takes. Raises ConfigError for a name that the file's dialect cannot hold.
    """
    for name in names:
        if re.search(r"""[,'"\n\r]""", name) or name != name.strip():
            raise ConfigError(f"input_config.ini cannot name the tensor {quoted(name)}: it has a comma or quote")
    value = b"'" + ",".join(names).encode("utf-8", "surrogateescape") + b"';"
    newline = b"\r\n" if b"\r\n" in data else b"\n"
    lines = data.splitlines(keepends=True)
    start, stop = _section(lines)
    for index in range(start, stop):
        if lines[index].partition(b"=")[0].strip().lower() == b"tensor_arrays":
            last = _last_line(lines, index, stop)
            head = re.match(rb"[^=]*=[ \t]*", lines[index])
            assert head
            lines[index : last + 1] = [head[0] + value + _behind(lines[last])]
            return b"".join(lines)
    if not names:
        return data
    if start < stop:
        if not lines[start].endswith((b"\n", b"\r")):
            lines[start] += newline
        lines.insert(start + 1, b"tensor_arrays=" + value + newline)
        return b"".join(lines)
    gap = b"" if not data or data.endswith((b"\n", b"\r")) else newline
    return data + gap + newline + b"[CONV_CONFIG]" + newline + b"tensor_arrays=" + value + newline


def _section(lines: Sequence[bytes]) -> tuple[int, int]:
    """Line numbers [start, stop) of [CONV_CONFIG], its header first; stop == start when there is none."""
    heads = [i for i, line in enumerate(lines) if re.match(rb"(\xef\xbb\xbf)?\s*\[[^\]]*\]", line)]
    for place, index in enumerate(heads):
        if re.match(rb"(\xef\xbb\xbf)?\s*\[\s*CONV_CONFIG\s*\]", lines[index]):
            return index, heads[place + 1] if place + 1 < len(heads) else len(lines)
    return len(lines), len(lines)


def _last_line(lines: Sequence[bytes], index: int, stop: int) -> int:
    """Where a list that runs on over indented lines ends."""
    while not _ended(lines[index]) and index + 1 < stop:
        follow = lines[index + 1]
        if not (follow[:1] in (b" ", b"\t") and follow.strip() and b"=" not in follow):
            break
        index += 1
    return index


def _ended(line: bytes) -> bool:
    """Whether a ``;`` outside quotes ends the value on this line."""
    return b";" in re.sub(rb"'[^']*'|\"[^\"]*\"", b"", line)


def _behind(line: bytes) -> bytes:
    """What follows the value: a comment behind its ``;``, and the line's end."""
    match = re.match(rb"(?:'[^']*'|\"[^\"]*\"|[^;])*;", line)
    ending = re.search(rb"[\r\n]*$", line)
    return line[match.end() :] if match else ending[0] if ending else b""
