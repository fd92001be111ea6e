"""A GE graph as JSON (``atc --mode=1 --om=model.om --json=model.json``), for the names its operators had before::

    {"graph": [{"name": "g", "op": [{
        "name": "conv1conv1_relu", "type": "Conv2D",
        "attr": [{"key": "_datadump_original_op_names", "value": {"list": {"s": ["conv1", "conv1_relu"]}}}],
        "output_desc": [{"attr": [{"key": "_datadump_origin_name", "value": {"s": "conv1_relu"}},
                                  {"key": "_datadump_origin_output_index", "value": {"i": 0}}]}]}]}]}

An output that names its origin is that; without, the outputs of an operator that came of one original alone are the
original's. Of an operator fused of several that names no origin, it is not known which output it has. The rule says how
they came about: OneToOne, MultiToOne (fused), OneToMulti (split), MultiToMulti, or L1Fusion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sgsdump.comparison.naming.link import Link, Output
from sgsdump.errors import FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of

RULE = "GE graph"
MOST_BYTES = 256 << 20
_ORIGINALS = "_datadump_original_op_names"
_NAME, _INDEX = "_datadump_origin_name", "_datadump_origin_output_index"
_OUTPUTS = "output_desc"
_L1 = "_L1_fusion_sub_graph_no"
_MOST_OUTPUTS = 10_000


def read(path: Path | str) -> list[Link]:
    """Which output of the sample (offline model) is which of the benchmark (framework). Raises FormatError."""
    path = Path(path)
    return links_of(json_of(decode(read_bytes(path, MOST_BYTES), path), path), path)


def recognises(document: Any) -> bool:
    """Whether a JSON document is a GE graph."""
    graphs = document.get("graph") if isinstance(document, dict) else None
    return isinstance(graphs, list) and all(isinstance(graph, dict) and "op" in graph for graph in graphs)


def links_of(document: Any, path: Path) -> list[Link]:
    """The links of a recognised document. Raises FormatError."""
    if not recognises(document):
        raise FormatError(f"{path} is no GE graph: it has no graph with operators")
    operators = [op for graph in document["graph"] for op in _objects(graph.get("op"), path)]
    originals = [_originals(op, path) for op in operators]
    shared = Counter(name for names in originals for name in set(names))
    return [
        link
        for op, names in zip(operators, originals)
        for link in _links(op, names, _relation(op, names, shared), path)
    ]


def _links(op: Mapping[str, Any], originals: list[str], relation: str, path: Path) -> Iterator[Link]:
    name = op.get("name")
    if not isinstance(name, str) or not name:
        raise FormatError(f"{path}: an operator has no name")
    rule = f"{RULE} {relation}"
    for slot, output in enumerate(_objects(op.get(_OUTPUTS), path) or [{}]):
        origin, index = _origin(output, path)
        mine = Output((name,), slot)
        if origin:
            if type(index) is not int or not 0 <= index < _MOST_OUTPUTS:
                raise FormatError(f"{path}: {quoted(name)} has an origin output {str(index)[:20]}")
            yield Link(mine, Output((origin,), index), rule)
        elif originals and relation == "OneToOne":
            yield Link(mine, Output((originals[0],), slot), rule)
        elif originals:
            of = ", ".join(map(quoted, originals[:3])) + (" …" if len(originals) > 3 else "")
            unknown = f"the GE graph makes it of {of} ({relation}) and does not say which output it is"
            yield Link(mine, Output(tuple(originals)), rule, unknown)


def _relation(op: Mapping[str, Any], originals: list[str], shared: Counter[str]) -> str:
    if any(isinstance(attr, Mapping) and attr.get("key") == _L1 for attr in op.get("attr") or ()):
        return "L1Fusion"
    several = any(shared[name] > 1 for name in originals)
    return f"{'Multi' if len(originals) > 1 else 'One'}To{'Multi' if several else 'One'}"


def _originals(op: Mapping[str, Any], path: Path) -> list[str]:
    """The operators it came of, as listed, else those its outputs name."""
    listed = _attributes(op, path).get(_ORIGINALS, {}).get("list")
    names = listed.get("s", []) if isinstance(listed, Mapping) else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FormatError(f"{path}: {_ORIGINALS} of {quoted(str(op.get('name'))[:80])} is not a list of names")
    names = [name for name in names if name] or [
        _origin(output, path)[0] for output in _objects(op.get(_OUTPUTS), path)
    ]
    return list(dict.fromkeys(filter(None, names)))


def _origin(output: Mapping[str, Any], path: Path) -> tuple[str, Any]:
    """The name and output of an output's origin; "" where none is given."""
    own = _attributes(output, path)
    name = own.get(_NAME, {}).get("s")
    return name if isinstance(name, str) else "", own.get(_INDEX, {}).get("i", 0)


def _attributes(of: Mapping[str, Any], path: Path) -> dict[str, Mapping[str, Any]]:
    attributes = {}
    for attribute in _objects(of.get("attr"), path):
        value = attribute.get("value")
        if isinstance(attribute.get("key"), str) and isinstance(value, Mapping):
            attributes[attribute["key"]] = value
    return attributes


def _objects(items: Any, path: Path) -> list[Mapping[str, Any]]:
    if items is None:
        return []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise FormatError(f"{path}: op, attr and output_desc of a GE graph are lists of objects")
    return items
