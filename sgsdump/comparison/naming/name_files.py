r"""Files and rules in which a user maps the names of one dump to those of the other.

**A name map**, for dumps whose names do not match:

JSON    one object, UTF-8: ``{"benchmark name": "sample name", …}``
YAML    ``benchmark name: sample name``, one line each (the extra ``yaml``)
CSV     two columns separated by ``,``, ``;`` or tabs, benchmark first; a first row ``sample,benchmark`` or
        ``benchmark,sample`` sets the order

A JSON or YAML entry with the value ``{"parts": ["path", …], "axis": -1}`` splits a fused module (``fused_parts.py``).

Names are written exactly as in the dumps; a name that is not UTF-8 is escaped (JSON). Each name occurs once per side.
Tensors outside the map are paired by name.

**Rules** that rewrite the sample's names into the benchmark's names: regular expressions, one per line::

    # comments and empty lines are skipped
    ^npu_ ->
    /(\d+)/conv -> .\1.conv

The pattern is a Python regular expression that matches anywhere in a name; ``\1`` in the replacement is the first
group. All rules are applied in order, each to the result of the previous rule. A user's pattern may take exponential
time, so names of more than 1000 characters are not rewritten.

**msprobe's layer mapping**: names of one framework's modules in the other framework, by the module's class::

    TopLayer:                                  # or Cell
      network_with_loss: module
    ParallelAttention:
      flash_attention_score: core_attention_flash.npu_fusion_attention

YAML (the extra ``yaml``) or JSON. In this example, flash_attention_score inside a ParallelAttention of the sample is
npu_fusion_attention inside core_attention_flash in the benchmark. Names without an entry are equal on both sides.

``operator_maps`` reads the vendors' files that link operators.
"""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.comparison.naming.fused_parts import Fused, fused_of
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of, yaml_of

FORM = 'a name map is {"benchmark name": "sample name"}'
_SIDES = ("benchmark", "sample")


def read_name_map(path: Path | str) -> dict[str, str]:
    """Return benchmark name -> sample name; the format is detected from the content.

    Raises FormatError for other content, ConfigError if the file cannot be read, MissingExtra for YAML without its
    library.
    """
    path = Path(path)
    return names_of_map(document_of(decode(read_bytes(path), path), path), path)


def document_of(text: str, path: Path) -> Any:
    """Return the object in a JSON, YAML or CSV text. Raises FormatError."""
    kind = kind_of(text)
    if kind == "csv":
        return _of_csv(text, path)
    return json_of(text, path, FORM) if kind == "json" else yaml_of(text, path, FORM)


def kind_of(text: str) -> str:
    """Return ``json``, ``yaml``, ``csv`` or ``rules`` (``PATTERN -> REPLACEMENT``), by the first line with content."""
    line = next((line.strip() for line in text.removeprefix("\ufeff").splitlines() if _says(line)), "")
    if " -> " in f"{line} ":  # the replacement may be empty
        return "rules"
    if line.startswith(("{", "[")) or not line:
        return "json"
    if not line.startswith('"') and (": " in line or line.endswith(":") or line == "---"):
        return "yaml"
    return "csv" if any(mark in line for mark in ",;\t") else "json"


def fused_of_map(document: Any) -> tuple[Fused, ...]:
    """Return the modules that a parsed document splits."""
    entries = document.items() if isinstance(document, dict) else ()
    found = (fused_of(str(name), entry) for name, entry in entries if isinstance(entry, dict))
    return tuple(fused for fused in found if fused is not None)


def names_of_map(document: Any, path: Path) -> dict[str, str]:
    """Return benchmark name -> sample name of a parsed document, without split modules.

    Raises FormatError for other documents, and for repeated names.
    """
    if not isinstance(document, dict):
        raise FormatError(f"{path}: the file holds a {type(document).__name__}, but {FORM}")
    apart = {fused.name for fused in fused_of_map(document)}
    document = {name: entry for name, entry in document.items() if name not in apart}
    owners: dict[str, str] = {}
    for benchmark, sample in document.items():
        if not isinstance(sample, str):
            what = "must map to one name of the sample, or to its parts and their axis"
            raise FormatError(f"{path}: {quoted(benchmark)} {what}; {FORM}")
        if sample in owners:
            raise FormatError(
                f"{path}: two benchmark names map to {quoted(sample)} of the sample: {quoted(owners[sample])} and "
                f"{quoted(benchmark)}"
            )
        owners[sample] = benchmark
    return document


def write_name_map(names: Mapping[str, str], path: Path | str) -> None:
    """Write benchmark name -> sample name, completely or not at all. Raises OutputError."""
    with replacing(Path(path)) as file:
        # escapes preserve names that are not UTF-8, stored as surrogates here
        file.write((json.dumps(dict(names), indent=1, ensure_ascii=True) + "\n").encode())


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _of_csv(text: str, path: Path) -> dict[str, str]:
    lines = [(n, line) for n, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1) if _says(line)]
    mark = next(mark for mark in "\t;," if mark in lines[0][1])
    try:
        rows = [(number, row) for number, line in lines if any(row := _cells(line, mark))]
    except csv.Error as error:
        raise FormatError(f"{path}: not valid CSV: {error}") from None
    if not rows:
        raise FormatError(f"{path}: no row contains a name; {FORM}")
    order = [cell.lower() for cell in rows[0][1]]
    if sorted(order) == sorted(_SIDES):
        rows = rows[1:]
    else:
        order = list(_SIDES)
    names: dict[str, str] = {}
    for number, row in rows:
        if len(row) != 2 or not all(row):
            raise FormatError(
                f"{path}:{number}: a row of a name map must have two names, not {len([c for c in row if c])}"
            )
        pair = dict(zip(order, row))
        if pair["benchmark"] in names:
            raise FormatError(
                f"{path}:{number}: the benchmark name {quoted(pair['benchmark'])} is already in another row"
            )
        names[pair["benchmark"]] = pair["sample"]
    return names


def _cells(line: str, mark: str) -> list[str]:
    """Split one line; the file is parsed line by line so that an unclosed quote cannot swallow it."""
    rows = csv.reader([line], delimiter=mark, skipinitialspace=True, strict=True)
    return [cell.strip() for cell in next(rows, [])]


LONGEST_NAME, LONGEST_RULE = 1000, 1000
_ARROW = "->"


@dataclass(frozen=True)
class Rule:
    """Rule to rewrite names; ``text`` is the rule as given, for messages."""

    pattern: re.Pattern[str]
    replacement: str
    text: str


def read_rules(path: Path | str) -> tuple[Rule, ...]:
    """Return the rules of a file. Raises FormatError with the line number."""
    path = Path(path)
    return rules_of(decode(read_bytes(path), path), path)


def rules_of(text: str, path: Path) -> tuple[Rule, ...]:
    """Return the rules in a text. Raises FormatError with the line number."""
    rules = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        if not _says(line):
            continue
        pattern, arrow, replacement = line.rpartition(_ARROW)
        if not arrow:
            raise FormatError(f"{path}:{number}: a rule must have the form PATTERN -> REPLACEMENT")
        try:
            rules.append(_rule(pattern.strip(), replacement.strip(), line.strip()))
        except ConfigError as error:
            raise FormatError(f"{path}:{number}: {error}") from None
    return tuple(rules)


def rule_of(text: str) -> Rule:
    """Return the rule of an option ``PATTERN=REPLACEMENT``, split at the last ``=``. Raises ConfigError."""
    pattern, sign, replacement = text.rpartition("=")
    if not sign:
        raise ConfigError(f"the name rule {quoted(text)} is not PATTERN=REPLACEMENT")
    return _rule(pattern, replacement, text)


def renamed(name: str, rules: Sequence[Rule]) -> tuple[str, tuple[Rule, ...]]:
    """Return the rewritten name, and the rules that changed it."""
    used = []
    for rule in rules:
        if len(name) > LONGEST_NAME:
            break
        changed = rule.pattern.sub(rule.replacement, name)
        if changed != name:
            used.append(rule)
            name = changed
    return name, tuple(used)


def described(rules: Iterable[Rule]) -> str:
    """Return the text for these rules in ``Pair.how``."""
    texts = [rule.text for rule in rules]
    return f"rule {' then '.join(texts)}" if len(texts) < 2 else f"rules {' then '.join(texts)}"


def _rule(pattern: str, replacement: str, text: str) -> Rule:
    if not pattern or len(text) > LONGEST_RULE:
        raise ConfigError(f"the name rule {quoted(text)} has {'no pattern' if not pattern else 'too long a pattern'}")
    try:
        with warnings.catch_warnings():
            # warns about patterns whose meaning may change in a later Python
            warnings.simplefilter("ignore", FutureWarning)
            compiled = re.compile(pattern)
        compiled.sub(replacement, "")
    except (re.error, IndexError, OverflowError, RecursionError) as error:
        raise ConfigError(f"the name rule {quoted(text)} is not a regular expression: {error}") from None
    return Rule(compiled, replacement, text)


TOP = "TopLayer"
_OLD_TOP = "Cell"

Layers = Mapping[str, Mapping[str, str]]


def read_layers(path: Path | str) -> Layers:
    """Return class -> sample name -> benchmark name, with dots between parts. Raises FormatError."""
    path = Path(path)
    text = decode(read_bytes(path), path)
    return layers_of(json_of(text, path) if text.lstrip().startswith("{") else yaml_of(text, path), path)


def is_layer_mapping(document: Any) -> bool:
    """Return whether a document is a layer mapping: an object of objects of strings."""
    classes = list(document.values()) if isinstance(document, dict) else []
    return bool(classes) and all(
        isinstance(names, dict) and names and all(isinstance(name, str) for name in names.values()) for names in classes
    )


def layers_of(document: Any, path: Path) -> Layers:
    """Return the mapping in a document. Raises FormatError."""
    if not is_layer_mapping(document):
        raise FormatError(f"{path} is not a layer mapping; a layer mapping has the form {{class: {{name: name}}}}")
    for old, new in (item for names in document.values() for item in names.items()):
        if not all((*old.split("."), *new.split("."))):
            raise FormatError(
                f"{path}: in the entry {quoted(old)}: {quoted(new)}, one of the names has an empty part "
                "(dots separate the parts)"
            )
    return {TOP if key == _OLD_TOP else key: names for key, names in document.items()}
