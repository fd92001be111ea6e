"""Read several name files and rules into one record; the kind of each file is detected from its content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgsdump.comparison.naming import operator_maps
from sgsdump.comparison.naming.fused_parts import Fused
from sgsdump.comparison.naming.name_files import (
    Layers,
    Rule,
    document_of,
    fused_of_map,
    is_layer_mapping,
    kind_of,
    layers_of,
    names_of_map,
    rule_of,
    rules_of,
)
from sgsdump.comparison.naming.operator_maps import Link
from sgsdump.errors import ConfigError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted


@dataclass(frozen=True)
class NameSources:
    """The user's name maps and rules, most reliable first.

    names    benchmark name -> sample name, per tensor.
    links    linked outputs of operators from vendors' files.
    layers   msprobe's layer mapping.
    rules    rules that turn sample names into benchmark names.
    fused    modules that are several modules in the other dump.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    layers: Layers | None = None
    rules: tuple[Rule, ...] = ()
    fused: tuple[Fused, ...] = ()

    @property
    def names_pairs(self) -> bool:
        """True if it pairs names, besides splitting fused modules."""
        return bool(self.names or self.links or self.layers is not None or self.rules)


def read_name_sources(files: Iterable[Path | str] = (), rules: Iterable[str] = ()) -> NameSources:
    """Read files, whose kind is detected from the content, and rules ``PATTERN=REPLACEMENT``.

    Raises FormatError for a file of unknown kind. Raises ConfigError for a name in two maps, for one of MindIE-Torch's
    two files without the other, and for two layer mappings.
    """
    names: dict[str, str] = {}
    mindie: dict[Path, Any] = {}
    links: list[Link] = []
    layers: Layers | None = None
    read_rules: list[Rule] = []
    fused: list[Fused] = []
    for file in files:
        path = Path(file)
        text = decode(read_bytes(path, operator_maps.MOST_BYTES), path)
        if kind_of(text) == "rules":
            read_rules += rules_of(text, path)
            continue
        document = document_of(text, path)
        if operator_maps.is_ge_graph(document):
            links += operator_maps.links_of_ge_graph(document, path)
        elif operator_maps.is_mindie_map(document):
            mindie[path] = document
        elif is_layer_mapping(document):
            if layers is not None:
                raise ConfigError(f"{path} is a second layer mapping; merge both into one file")
            layers = layers_of(document, path)
        else:
            fused += fused_of_map(document)
            _add(names, names_of_map(document, path), path)
    if mindie:
        links += operator_maps.links_of_mindie_map(mindie)
    read_rules += [rule_of(rule) for rule in rules]
    return NameSources(names, tuple(links), layers, tuple(read_rules), tuple(fused))


def _add(names: dict[str, str], more: Mapping[str, str], path: Path) -> None:
    taken = set(names.values())
    for benchmark, sample in more.items():
        if names.get(benchmark, sample) != sample or (benchmark not in names and sample in taken):
            raise ConfigError(f"{path}: {quoted(benchmark)} or {quoted(sample)} is already in an earlier name map")
        names[benchmark] = sample
