"""Everything a user gives to say how names belong together: mapping files of several kinds, and rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sgsdump.comparison.naming import ge_graph, layer_mapping, mindie_map, name_map, name_rules
from sgsdump.comparison.naming.layer_mapping import Layers
from sgsdump.comparison.naming.link import Link
from sgsdump.comparison.naming.name_rules import Rule
from sgsdump.errors import ConfigError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted


@dataclass(frozen=True)
class NameSources:
    """What is known of names, the surest first.

    names    benchmark name -> sample name, tensor by tensor.
    links    outputs of operators, as vendors' files say them.
    layers   msprobe's layer mapping.
    rules    what makes benchmark names of sample names.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    layers: Layers | None = None
    rules: tuple[Rule, ...] = ()


def read_name_sources(files: Iterable[Path | str] = (), rules: Iterable[str] = ()) -> NameSources:
    """Read files, each of a kind recognised by its content, and rules ``PATTERN=REPLACEMENT``.

    Raises FormatError for a file of no known kind, ConfigError for a name that two files map, for one of MindIE-Torch's
    files without the other, and for two layer mappings.
    """
    names: dict[str, str] = {}
    mindie: dict[Path, Any] = {}
    links: list[Link] = []
    layers: Layers | None = None
    read_rules: list[Rule] = []
    for file in files:
        path = Path(file)
        text = decode(read_bytes(path, ge_graph.MOST_BYTES), path)
        if name_map.kind_of(text) == "rules":
            read_rules += name_rules.rules_of(text, path)
            continue
        document = name_map.document_of(text, path)
        if ge_graph.recognises(document):
            links += ge_graph.links_of(document, path)
        elif mindie_map.recognises(document):
            mindie[path] = document
        elif layer_mapping.recognises(document):
            if layers is not None:
                raise ConfigError(f"{path} is a second layer mapping; put both into one file")
            layers = layer_mapping.layers_of(document, path)
        else:
            _add(names, name_map.names_of(document, path), path)
    if mindie:
        links += mindie_map.links_of(mindie)
    read_rules += [name_rules.rule_of(rule) for rule in rules]
    return NameSources(names, tuple(links), layers, tuple(read_rules))


def _add(names: dict[str, str], more: Mapping[str, str], path: Path) -> None:
    taken = set(names.values())
    for benchmark, sample in more.items():
        if names.get(benchmark, sample) != sample or (benchmark not in names and sample in taken):
            raise ConfigError(f"{path}: {quoted(benchmark)} or {quoted(sample)} is in an earlier name map too")
        names[benchmark] = sample
