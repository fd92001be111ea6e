"""Lists of shapes and element types beside files without a header.

A list may have any name; its lines or entries name files or tensors::

    shapes.json              {"conv1": {"shape": [1, 8], "dtype": "float32"}}, {"conv1": [1, 8]}, or a list of entries
    list.txt                 conv1 1x8 float32
    manifest.csv             a header with name or file, shape (or dims) and dtype (or type), and a row for each file
    execution_metadata.yaml  of qnn-net-run, beside its folders Result_N: tensor_name, datatype and dimensions

qnn-net-run lists the type of the tensor on the device, and writes float32 by default; the size of the file decides.

Sources: the files of qnn-net-run, and lists that users write.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.formats.shared.raw_facts import Facts, shape_of, type_of
from sgsdump.errors import FormatError, SgsdumpError
from sgsdump.files.bounded_read import decode, is_file, read_bytes
from sgsdump.files.folder import files_below, in_order
from sgsdump.files.json_yaml import json_of
from sgsdump.files.names import word

ENDINGS = (".json", ".txt", ".csv", ".tsv", ".yaml", ".yml", ".list", ".lst")
MOST_BYTES, MOST_LISTS, MOST_DEPTH = 4 << 20, 20, 12
_NAMES = ("name", "tensor_name", "tensor", "file", "filename", "file_name", "path", "output", "layer")
_SHAPES = ("shape", "dims", "dimensions", "dim")
_TYPES = ("dtype", "type", "data_type", "datatype", "element_type")
_FIRST = re.compile(r"\s*[\"']?([^\s,;\"']+)[\"']?[\s,;:]+(.*)", re.DOTALL)
_WORD = re.compile(r"<?[A-Za-z][\w.]*")
_YAML = re.compile(r"\s*(?:-\s+)?(\w+)\s*:\s*(.*?)\s*")
_ITEM = re.compile(r"\s*-\s*([0-9]+)\s*")
_REST = re.compile(r"[\s\d,;:x()\[\]\"'X-]*")
Entry = tuple[str, list[int], str]


class ShapeLists:
    """Facts from all lists in a folder. ``of`` finds the facts of a file by its path."""

    def __init__(self, facts: Mapping[str, Facts]):
        self._facts = dict(facts)
        by_word: dict[str, list[Facts]] = {}
        for name, fact in facts.items():
            by_word.setdefault(word(name), []).append(fact)
        self._by_word = {name: found[0] for name, found in by_word.items() if len(found) == 1}

    def __bool__(self) -> bool:
        return bool(self._facts)

    def of(self, file: str, size: int) -> Facts | None:
        """Return the facts of a file, by its path with or without ending, or by its file name; None if not listed."""
        stem = file.rpartition(".")[0]
        names = (file, stem, file.rpartition("/")[2], stem.rpartition("/")[2])
        listed = next((self._facts[name] for name in names if name in self._facts), None)
        listed = listed or self._by_word.get(word(stem))
        if listed is None:
            return None
        as_floats = listed._replace(dtype=np.dtype(np.float32))
        return as_floats if not listed.fits(size) and as_floats.fits(size) and listed.dtype is not None else listed

    @property
    def order(self) -> list[str]:
        """The listed names, in the order of the lists."""
        return list(self._facts)


def read_lists(root: Path) -> ShapeLists:
    """Return the facts of all lists in a folder, and of the lists beside a folder ``Result_N``.

    Other files are ignored, because a folder may contain any text.
    """
    found: dict[str, Facts] = {}
    try:
        names = sorted(files_below(root, ENDINGS, []), key=lambda name: (name.count("/"), in_order(name)))
    except FormatError:
        names = []
    paths = [(root / name, name.rpartition("/")[0]) for name in names if name.rpartition("/")[2] != "sgsdump.json"]
    above = root.resolve()
    if above.name.startswith("Result_"):
        beside = [path for path in sorted(above.parent.glob("*")) if path.suffix in ENDINGS and not path.is_symlink()]
        paths = [*((path, "") for path in beside if is_file(path)), *paths]
    for path, folder in paths[:MOST_LISTS]:
        for name, sizes, dtype in _entries_of(path):
            shape = shape_of(sizes)
            if shape is None:
                continue
            for key in dict.fromkeys((f"{folder}/{name}" if folder else name, name)):
                found.setdefault(key, Facts(name, shape, type_of(dtype) if dtype else None))
    return ShapeLists(found)


def _entries_of(path: Path) -> list[Entry]:
    """Return the entries of a list; [] for any other file."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return []
        text = decode(read_bytes(path, MOST_BYTES), path)
        if path.suffix == ".json":
            return list(_json_entries(json_of(text, path), "", 0))
        if path.suffix in (".yaml", ".yml"):
            return list(_yaml_entries(text))
        return _table(text) or _lines(text)
    except (SgsdumpError, OSError, csv.Error):
        return []


def _json_entries(node: Any, key: str, depth: int) -> Iterator[Entry]:
    """Yield the entries of a document: objects with a shape, named by a field or by their key; or shapes by name."""
    if depth > MOST_DEPTH:
        return
    if isinstance(node, list):
        if key and node and all(type(size) is int for size in node):
            yield key, node, ""
            return
        for item in node:
            yield from _json_entries(item, "", depth + 1)
    elif isinstance(node, dict):
        fields = {str(name).lower(): value for name, value in node.items()}
        sizes = next((_sizes(fields[name]) for name in _SHAPES if name in fields), None)
        if sizes is not None:
            name = next((fields[name] for name in _NAMES if isinstance(fields.get(name), str)), key)
            dtype = next((fields[name] for name in _TYPES if isinstance(fields.get(name), str)), "")
            if name:
                yield name, sizes, dtype
            return
        for name, value in node.items():
            if isinstance(value, (dict, list)):
                yield from _json_entries(value, str(name), depth + 1)


def _sizes(value: Any) -> list[int] | None:
    """Return the sizes of a shape: a list of numbers, or a text such as ``1x8``, ``[1, 8]``; None for anything else."""
    if isinstance(value, str):
        return [int(size) for size in re.findall("[0-9]{1,15}", value)] if _REST.fullmatch(value) else None
    if isinstance(value, list) and all(type(size) is int for size in value):
        return value
    return None


def _yaml_entries(text: str) -> Iterator[Entry]:
    """Yield the entries of qnn-net-run's list, without a YAML library: its lines are ``key: value``."""
    entry: dict[str, Any] = {}
    for line in [*text.splitlines(), "- tensor_name: end"]:
        match, item = _YAML.fullmatch(line), _ITEM.fullmatch(line)
        if match is not None:
            name, value = match[1].lower(), match[2].strip("\"'")
            if name in ("tensor_name", "name"):
                if "name" in entry and entry.get("sizes"):
                    yield entry["name"], entry["sizes"], entry.get("dtype", "")
                entry = {"name": value}
            elif name in _SHAPES:
                entry["sizes"] = _sizes(value) or []
            elif name in _TYPES:
                entry["dtype"] = value
        elif item is not None and "sizes" in entry:
            entry["sizes"].append(int(item[1][:15]))


def _table(text: str) -> list[Entry]:
    """Return the entries of a CSV file whose header names the columns; [] without such a header."""
    lines = text.splitlines()
    if not lines or len(lines) < 2:
        return []
    delimiter = next((sign for sign in "\t;," if sign in lines[0]), ",")
    header = [field.strip().lower() for field in next(csv.reader(lines[:1], delimiter=delimiter))]
    columns = [next((header.index(name) for name in of if name in header), None) for of in (_NAMES, _SHAPES, _TYPES)]
    name, shape, dtype = columns
    if name is None or shape is None:
        return []
    entries: list[Entry] = []
    for row in csv.reader(lines[1:], delimiter=delimiter):
        sizes = _sizes(row[shape].strip()) if len(row) == len(header) else None
        if sizes:
            entries.append((row[name].strip(), sizes, "" if dtype is None else row[dtype].strip()))
    return entries


def _lines(text: str) -> list[Entry]:
    """Return the entries of lines ``name shape dtype``; [] if another line is not a comment."""
    entries: list[Entry] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "//")):
            continue
        match = _FIRST.fullmatch(line)
        words = [] if match is None else _WORD.findall(re.sub(r"(?<=\d)[xX](?=\d)", " ", match[2]))
        types = [name for name in words if type_of(name) is not None]
        rest = "" if match is None else re.sub(r"(?<=\d)[xX](?=\d)", " ", match[2])
        for name in types:
            rest = rest.replace(name, " ", 1)
        if match is None or len(types) > 1 or not _REST.fullmatch(rest):
            return []
        sizes = [int(size) for size in re.findall("[0-9]{1,15}", rest)]
        if sizes:
            entries.append((match[1].rstrip(":"), sizes, types[0] if types else ""))
    return entries
