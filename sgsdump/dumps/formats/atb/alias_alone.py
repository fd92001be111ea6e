"""An alias file opened alone: its values lie in another file of the same execution, some folders away.

The execution's folder is the one above the operators' (``{id}_{Operator}``) whose name is a number, as in every tree
that is written. Only the folders that the alias names are looked into, not the whole dump.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sgsdump.dumps.formats.atb import tensor
from sgsdump.dumps.formats.atb.alias import followed, targets_of
from sgsdump.dumps.formats.atb.place import ENDING, Alias, alias_of, is_operator, place_of
from sgsdump.dumps.formats.atb.survey import chosen
from sgsdump.dumps.formats.atb.tensor import Content
from sgsdump.errors import FormatError
from sgsdump.files.folder import MOST, leads_out

_MOST_FILES = 1000
_WHEN = ("before", "after")


def followed_alone(path: Path, content: Content) -> tuple[Content, str]:
    """The content of the alias at ``path`` with the values of its target, or why it has none."""
    path = path.resolve()
    root = _execution_of(path)
    if root is None:
        return content, f"its values are in {content.alias[:60]} of the same run; open the dump's whole folder"
    own = path.relative_to(root).as_posix()
    contents, places = {own: content}, {own: place_of(own)}
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
            places[name] = place_of(name)
            waiting.append(contents[name].alias)
    return followed(own, contents, targets_of(chosen(places, [])), places)


def _execution_of(path: Path) -> Path | None:
    """The folder of the execution that a file is of; None where the folders are not those of such a dump."""
    root = path.parent.parent if path.parent.name in _WHEN else path.parent
    while is_operator(root.name):
        root = root.parent
    return root if root.name.isdecimal() else None


def _meant(root: Path, named: Alias) -> Iterator[str]:
    """The files below ``root`` that an alias may mean."""
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
                place = place_of(file)
                if not name.endswith(ENDING) or place.stem or (place.io, place.slot) != (named.io, named.slot):
                    continue
                if not leads_out(root / file, root):
                    yield file


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, MOST))
    except OSError:
        return []
