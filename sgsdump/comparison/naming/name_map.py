"""A name map: which tensor of the benchmark is which of the sample, for dumps whose names do not tell.

JSON    one object, UTF-8: ``{"benchmark name": "sample name", …}``
YAML    ``benchmark name: sample name``, a line each (the extra ``yaml``)
CSV     two columns between ``,``, ``;`` or tabs, benchmark first; a first row ``sample,benchmark`` or
        ``benchmark,sample`` says so itself

Names stand exactly as in the dumps; a name that is not UTF-8 is escaped (JSON). Each name stands once on its side.
Tensors that are not in the map are paired by their names.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of, yaml_of

FORM = 'a name map is {"benchmark name": "sample name"}'
_SIDES = ("benchmark", "sample")


def read(path: Path | str) -> dict[str, str]:
    """Benchmark name -> sample name, by content. Raises FormatError for anything else, ConfigError when it cannot be
    read, MissingExtra for YAML without its library."""
    path = Path(path)
    return names_of(document_of(decode(read_bytes(path), path), path), path)


def document_of(text: str, path: Path) -> Any:
    """What a text is: an object of JSON or YAML, or that of a CSV's rows. Raises FormatError."""
    kind = kind_of(text)
    if kind == "csv":
        return _of_csv(text, path)
    return json_of(text, path, FORM) if kind == "json" else yaml_of(text, path, FORM)


def kind_of(text: str) -> str:
    """``json``, ``yaml``, ``csv``, or ``rules`` (lines ``PATTERN -> REPLACEMENT``), by the first line that says
    something."""
    line = next((line.strip() for line in text.removeprefix("\ufeff").splitlines() if _says(line)), "")
    if " -> " in f"{line} ":  # the replacement may be empty
        return "rules"
    if line.startswith(("{", "[")) or not line:
        return "json"
    if not line.startswith('"') and (": " in line or line.endswith(":") or line == "---"):
        return "yaml"
    return "csv" if any(mark in line for mark in ",;\t") else "json"


def names_of(document: Any, path: Path) -> dict[str, str]:
    """Benchmark name -> sample name of a parsed document. Raises FormatError for any other, and for names twice."""
    if not isinstance(document, dict):
        raise FormatError(f"{path}: {FORM}, not a {type(document).__name__}")
    owners: dict[str, str] = {}
    for benchmark, sample in document.items():
        if not isinstance(sample, str):
            raise FormatError(f"{path}: {quoted(benchmark)} must map to one name of the sample; {FORM}")
        if sample in owners:
            raise FormatError(
                f"{path}: the sample's {quoted(sample)} is given to {quoted(owners[sample])} and to {quoted(benchmark)}"
            )
        owners[sample] = benchmark
    return document


def write(names: Mapping[str, str], path: Path | str) -> None:
    """Write benchmark name -> sample name, whole or not at all. Raises OutputError."""
    with replacing(Path(path)) as file:
        # escapes keep names that are not UTF-8, which are surrogates here
        file.write((json.dumps(dict(names), indent=1, ensure_ascii=True) + "\n").encode())


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _of_csv(text: str, path: Path) -> dict[str, str]:
    lines = text.removeprefix("\ufeff").splitlines()
    first = next(filter(_says, lines))
    mark = next(mark for mark in "\t;," if mark in first)
    try:
        rows = [(number, row) for number, row in _rows(lines, mark) if any(row)]
    except csv.Error as error:
        raise FormatError(f"{path}: not valid CSV: {error}") from None
    if not rows:
        raise FormatError(f"{path}: no row has a name in it; {FORM}")
    order = [cell.lower() for cell in rows[0][1]]
    if sorted(order) == sorted(_SIDES):
        rows = rows[1:]
    else:
        order = list(_SIDES)
    names: dict[str, str] = {}
    for number, row in rows:
        if len(row) != 2 or not all(row):
            raise FormatError(f"{path}:{number}: a row of a name map has two names, not {len([c for c in row if c])}")
        pair = dict(zip(order, row))
        if pair["benchmark"] in names:
            raise FormatError(f"{path}:{number}: the benchmark's {quoted(pair['benchmark'])} stands in it twice")
        names[pair["benchmark"]] = pair["sample"]
    return names


def _rows(lines: Iterable[str], mark: str) -> Iterable[tuple[int, list[str]]]:
    for number, line in enumerate(lines, 1):
        if _says(line):
            # A line each: a quote that does not end must not swallow the file.
            yield (
                number,
                [
                    cell.strip()
                    for cell in next(csv.reader([line], delimiter=mark, skipinitialspace=True, strict=True), [])
                ],
            )
