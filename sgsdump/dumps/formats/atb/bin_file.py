"""Reader and writer of a single ATB (Ascend Transformer Boost) tensor file, as msit and msprobe write it.

The ``.bin`` file has a text header and a payload (``tensor.py``), little-endian, in C order of ``dims``. The reader
accepts all forms seen so far and notes irregularities:

- the usual form, also without ``$Version`` or with ``$END``;
- statistics without payload;
- an alias, whose values are in another file of the same dump;
- a length in elements instead of bytes (the shape counts);
- several tensors appended to each other (the first is read).

A shape that needs more bytes than the file has, and an unknown type number, are errors. For undocumented types, the
reader returns raw bytes.

The file names neither tensor nor operator. The tensor is named after the file without ``.bin``, as an output of
operator 0. The writer produces the same bytes as the vendor's probe. The target of an alias is searched only in the
folders that the alias names, below the folder of the execution. This folder has a number as name and lies directly
above the operators (``{id}_{Operator}``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.format import HEAD_BYTES, Format, Lost
from sgsdump.dumps.formats.atb import tensor
from sgsdump.dumps.formats.atb.location import (
    ENDING,
    Alias,
    alias_of,
    followed,
    is_operator,
    location_of,
    targets_of,
)
from sgsdump.dumps.formats.atb.survey import chosen
from sgsdump.dumps.formats.atb.tensor import Content
from sgsdump.dumps.formats.shared.ascend_types import format_number, layout_of
from sgsdump.errors import FormatError, OutputError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.folder import MOST, leads_out

_MOST_FILES = 1000
_WHEN = ("before", "after")


def followed_alone(path: Path, content: Content) -> tuple[Content, str]:
    """Return the content of the alias at ``path`` with its target's values, or the reason why there are none."""
    path = path.resolve()
    root = _execution_of(path)
    if root is None:
        return content, f"its values are in {content.alias[:60]} of the same run. Open the folder of the whole dump"
    name_of_alias = path.relative_to(root).as_posix()
    contents, locations = {name_of_alias: content}, {name_of_alias: location_of(name_of_alias)}
    waiting = [content.alias]
    while waiting and len(contents) < _MOST_FILES:
        named = alias_of(waiting.pop())
        for name in _meant(root, named) if named else ():
            if name in contents:
                continue
            try:
                contents[name] = tensor.examine(root / name)
            except FormatError:
                continue
            locations[name] = location_of(name)
            waiting.append(contents[name].alias)
    return followed(name_of_alias, contents, targets_of(chosen(locations, [])), locations)


def recognises(path: Path, head: bytes) -> bool:
    return tensor.begins(head, len(head) < HEAD_BYTES)


def read(path: Path) -> Dump:
    """Read a dump of one tensor; values are loaded on request. Raises FormatError."""
    content, missing = tensor.examine(path), ""
    notes = [f"{path.name} {note}" for note in content.notes]
    if content.alias:
        content, missing = followed_alone(path, content)
        notes.extend([f"{path.name} has no values: {missing}"] if missing else [])
    record = Record("out", 0, 0, "", content.tensor(path.name.removesuffix(ENDING), missing=missing))
    return Dump([record], FORMAT.name, None, path, notes)


def write(records: Iterable[Record], path: Path, variant: Any = None) -> None:
    """Write a single tensor. Raises OutputError for none or several, ValuesError for types without an ACL number."""
    stream = iter(records)
    with replacing(Path(path)) as file:
        record = next(stream, None)
        if record is None:
            raise OutputError(f"cannot write {path}: there is no tensor to write")
        tensor.write(file, record)
        del record
        if next(stream, None) is not None:
            raise OutputError(
                f"cannot write {path}: a .bin file holds one tensor. Select one tensor, or write the format atb_tree"
            )


def loses(records: Sequence[Record], variant: Any = None) -> Iterator[Lost]:
    for number, record in enumerate(records):
        info = record.tensor.info
        if number:
            yield Lost(record, "is not the first tensor; a .bin file holds only one", True)
        yield from tensor.lost(record)
        rank = 1 if info.shape is None else len(info.shape)
        place = record.io, record.slot, record.op_index, record.op_type, record.constant
        for what, is_lost in (
            ("has a name, which becomes the file name", True),
            ("has a position in its model, which is left out", place != ("out", 0, 0, "", False)),
            ("has a scale, which is left out", info.quant is not None),
            ("has no shape and is kept flat", info.shape is None),
            (
                f"has layout {info.layout}, which is left out",
                layout_of(format_number(info.layout), rank) != info.layout,
            ),
            ("has an operator type, which is left out", bool(info.op_type)),
            ("has an original shape, which is left out", info.origin is not None),
        ):
            if is_lost:
                yield Lost(record, what)


def _execution_of(path: Path) -> Path | None:
    """Return the folder of a file's execution; None if the folders have other names."""
    root = path.parent.parent if path.parent.name in _WHEN else path.parent
    while is_operator(root.name):
        root = root.parent
    return root if root.name.isdecimal() else None


def _meant(root: Path, named: Alias) -> Iterator[str]:
    """Yield the files below ``root`` that an alias may refer to."""
    folders = [""]
    for number in named.ids:
        folders = [
            f"{folder}{name}/"
            for folder in folders
            for name in _names(root / folder)
            if is_operator(name) and int(name.partition("_")[0]) == number
        ]
    for folder in folders:
        for inner in ("", *(f"{when}/" for when in _WHEN)):
            for name in _names(root / folder / inner):
                file = f"{folder}{inner}{name}"
                location = location_of(file)
                if not name.endswith(ENDING) or location.stem or (location.io, location.slot) != (named.io, named.slot):
                    continue
                if not leads_out(root / file, root):
                    yield file


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, MOST))
    except OSError:
        return []


FORMAT = Format("atb_bin", recognises, read, write, loses)
