"""Vendors' mapping files of operators, which link an operator's output in one run to an output in the other run.

The files name operators, dumps name tensors. ``operator_keys`` lists the ways in which a tensor's name can refer to its
operator; ``/``, ``.``, ``:`` and blanks equal ``_``, because tools replace them in file names. msit's dumps of torch
prefix module names with ``root.``; mapping files do not.

**A GE graph** as JSON (``atc --mode=1 --om=model.om --json=model.json``), for the original names of its operators::

    {"graph": [{"name": "g", "op": [{
        "name": "conv1conv1_relu", "type": "Conv2D",
        "attr": [{"key": "_datadump_original_op_names", "value": {"list": {"s": ["conv1", "conv1_relu"]}}}],
        "output_desc": [{"attr": [{"key": "_datadump_origin_name", "value": {"s": "conv1_relu"}},
                                  {"key": "_datadump_origin_output_index", "value": {"i": 0}}]}]}]}]}

An output that names its origin equals that origin. Without an origin, the outputs of an operator with a single original
are the original's outputs. For an operator fused from several originals without an origin, the output is unknown. The
rule states the relation: OneToOne, MultiToOne (fused), OneToMulti (split), MultiToMulti, or L1Fusion.

**MindIE-Torch**: the TorchScript node of each device operator::

    mindie_torch_op_mapping.json  [{"jit_node": "%input.9 : Float(…) = aten::_convolution(…), scope: __module.layer1/
                                     __module.layer1.0.conv1 # conv.py:456:0", "rt_layer": "CONVOLUTION_5"}, …]
    mindie_rt_op_mapping.json     [{"id": 4, "ge_op": "Conv2D_5", "rt_layer": "CONVOLUTION_5",
                                     "fusion_op": "Conv2D_5Relu_8", "fusion_ops": ["Conv2D_5", "Relu_8"]}, …]

The files are joined on rt_layer in the order of id. Among consecutive rows with one fusion_op, the last node counts,
because its output is the fused operator's. On the device side (the sample) the operator is named fusion_op, or ge_op
without fusion. On torch's side its output is that of the last module in the scope, or the value before the colon. Newer
files have ``fx_node`` instead of jit_node. ``op_map_updated.json``, which msit derives from both (``{fusion_op:
{"jit_node": …, "id": …, "fuse_path": […]}}``), is read alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of

_ODD = re.compile(r"[/.:\\\s]")
_LONGEST = 4096
_ROOT = "root."
_OUTPUT = (
    # npu:output:0, torch.output.0, /conv1/Conv_output_0, conv1/Relu:0
    re.compile(r"(?P<operator>.+?)(?::output:|\.output\.|_output_|:)(?P<slot>\d{1,6})", re.DOTALL),
    # a golden file's name: {operator}.{output}.{time}
    re.compile(r"(?P<operator>.+)\.(?P<slot>\d{1,6})\.\d{16,17}", re.DOTALL),
    # torch dumps of msit and sgsdump: {module}/output, or output_1 if there are several
    re.compile(r"(?P<operator>.+)/output(?:_(?P<slot>\d{1,6}))?", re.DOTALL),
    # msprobe: Module.{path}.{class}.forward.{call}.output.{number}
    re.compile(r"(?:Module|Cell)\.(?P<operator>.+)\.[^.]+\.forward\.\d+\.output\.(?P<slot>\d{1,6})", re.DOTALL),
)

Key = tuple[str, int]


@dataclass(frozen=True)
class Output:
    """Output ``slot`` of an operator with one of these names, or a tensor with such a name."""

    names: tuple[str, ...]
    slot: int = 0

    def keys(self) -> Iterator[Key]:
        return ((plain(name), self.slot) for name in self.names)

    def __str__(self) -> str:
        return " or ".join(map(repr, self.names)) + (f" output {self.slot}" if self.slot else "")


@dataclass(frozen=True)
class Link:
    """Equality of a sample output and a benchmark output; ``rule`` is a short name of the file kind.

    If the file does not state the output, ``unknown`` gives the reason.
    """

    sample: Output
    benchmark: Output
    rule: str
    unknown: str = ""

    def swapped(self) -> Link:
        return Link(self.benchmark, self.sample, self.rule, self.unknown)


def plain(name: str) -> str:
    """Return a name as in file names of dump tools: ``layer1_0_conv1`` for ``layer1.0/conv1``."""
    return _ODD.sub("_", name)


def operator_keys(name: str, slot: int) -> set[Key]:
    """Return the operators and outputs that a tensor with this name and output slot may be."""
    if name.startswith(_ROOT) and name != _ROOT:
        return operator_keys(name.removeprefix(_ROOT), slot) | _keys(name, slot)
    return _keys(name, slot)


def _keys(name: str, slot: int) -> set[Key]:
    keys = {(plain(name), slot)}
    for pattern in _OUTPUT if len(name) <= _LONGEST else ():
        match = pattern.fullmatch(name)
        if match:
            keys.add((plain(match["operator"]), int(match["slot"] or 0)))
    return keys


GE_GRAPH = "GE graph"
MOST_BYTES = 256 << 20
_ORIGINALS = "_datadump_original_op_names"
_NAME, _INDEX = "_datadump_origin_name", "_datadump_origin_output_index"
_OUTPUTS = "output_desc"
_L1 = "_L1_fusion_sub_graph_no"
_MOST_OUTPUTS = 10_000


def read_ge_graph(path: Path | str) -> list[Link]:
    """Return the links of sample outputs (offline model) to benchmark outputs (framework). Raises FormatError."""
    path = Path(path)
    return links_of_ge_graph(json_of(decode(read_bytes(path, MOST_BYTES), path), path), path)


def is_ge_graph(document: Any) -> bool:
    """Return whether a JSON document is a GE graph."""
    graphs = document.get("graph") if isinstance(document, dict) else None
    return isinstance(graphs, list) and all(isinstance(graph, dict) and "op" in graph for graph in graphs)


def links_of_ge_graph(document: Any, path: Path) -> list[Link]:
    """Return the links in a document. Raises FormatError."""
    if not is_ge_graph(document):
        raise FormatError(f"{path} is not a GE graph: it has no graph with operators")
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
    rule = f"{GE_GRAPH} {relation}"
    for slot, output in enumerate(_objects(op.get(_OUTPUTS), path) or [{}]):
        origin, index = _origin(output, path)
        result = Output((name,), slot)
        if origin:
            if type(index) is not int or not 0 <= index < _MOST_OUTPUTS:
                raise FormatError(
                    f"{path}: the origin of operator {quoted(name)} has the invalid output number {str(index)[:20]}"
                )
            yield Link(result, Output((origin,), index), rule)
        elif originals and relation == "OneToOne":
            yield Link(result, Output((originals[0],), slot), rule)
        elif originals:
            of = ", ".join(map(quoted, originals[:3])) + (" …" if len(originals) > 3 else "")
            unknown = f"the GE graph builds it from {of} ({relation}) and does not state which output it is"
            yield Link(result, Output(tuple(originals)), rule, unknown)


def _relation(op: Mapping[str, Any], originals: list[str], shared: Counter[str]) -> str:
    if any(isinstance(attr, Mapping) and attr.get("key") == _L1 for attr in op.get("attr") or ()):
        return "L1Fusion"
    several = any(shared[name] > 1 for name in originals)
    return f"{'Multi' if len(originals) > 1 else 'One'}To{'Multi' if several else 'One'}"


def _originals(op: Mapping[str, Any], path: Path) -> list[str]:
    """Return the listed original operators, else those that the outputs name."""
    listed = _attributes(op, path).get(_ORIGINALS, {}).get("list")
    names = listed.get("s", []) if isinstance(listed, Mapping) else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FormatError(f"{path}: {_ORIGINALS} of {quoted(str(op.get('name'))[:80])} is not a list of names")
    names = [name for name in names if name] or [
        _origin(output, path)[0] for output in _objects(op.get(_OUTPUTS), path)
    ]
    return list(dict.fromkeys(filter(None, names)))


def _origin(output: Mapping[str, Any], path: Path) -> tuple[str, Any]:
    """Return the name and output index of an output's origin; "" if none is given."""
    attributes = _attributes(output, path)
    name = attributes.get(_NAME, {}).get("s")
    return name if isinstance(name, str) else "", attributes.get(_INDEX, {}).get("i", 0)


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
        raise FormatError(f'{path}: in a GE graph, the keys "op", "attr" and "output_desc" must hold lists of objects')
    return items


MINDIE_MAP = "MindIE map"
_NODE = ("jit_node", "fx_node")
_VALUE = re.compile(r"\s*%([^\s:=,()]+)")
_SCOPE = re.compile(r"scope:\s*([^\s#]+)")
_MODULE = "__module."


def read_mindie_map(path: Path | str, other: Path | str | None = None) -> list[Link]:
    """Return the links of both files in any order, or of ``op_map_updated.json`` alone.

    Raises FormatError for other documents, ConfigError if one of the two files is missing.
    """
    paths = [Path(path)] if other is None else [Path(path), Path(other)]
    return links_of_mindie_map({path: json_of(decode(read_bytes(path), path), path) for path in paths})


def is_mindie_map(document: Any) -> bool:
    """Return whether a JSON document is one of these files."""
    if isinstance(document, dict):
        return bool(document) and all(isinstance(v, dict) and _node(v) is not None for v in document.values())
    rows = document if isinstance(document, list) else []
    return bool(rows) and all(isinstance(row, dict) and "rt_layer" in row for row in rows)


def links_of_mindie_map(documents: Mapping[Path, Any]) -> list[Link]:
    """Return the links in these documents. Raises FormatError, ConfigError."""
    nodes: dict[str, str] = {}
    layers: list[dict[str, Any]] = []
    links: list[Link] = []
    for path, document in documents.items():
        if not is_mindie_map(document):
            raise FormatError(f"{path} is not a mapping file of MindIE-Torch")
        if isinstance(document, dict):
            links += [_link(operator, _node(row) or "") for operator, row in document.items()]
            continue
        for row in document:
            _check(row, path)
            if _node(row) is not None:
                nodes[row["rt_layer"]] = _node(row) or ""
            else:
                layers.append(row)
    if bool(nodes) != bool(layers):
        name = "mindie_rt_op_mapping.json" if nodes else "mindie_torch_op_mapping.json"
        raise ConfigError(
            f"{next(iter(documents))} is one of two required files; also give {name} with a second --name-map"
        )
    return [*links, *_joined(nodes, layers)]


def _joined(nodes: Mapping[str, str], layers: Iterable[dict[str, Any]]) -> Iterable[Link]:
    paired = [row for row in sorted(layers, key=lambda row: row["id"]) if row["rt_layer"] in nodes]
    for operator, rows in groupby(paired, key=_operator):
        yield _link(operator, nodes[[*rows][-1]["rt_layer"]])


def _link(operator: str, node: str) -> Link:
    node = node.strip()
    value, scope = _VALUE.match(node), _SCOPE.search(node)
    module = scope[1].rpartition("/")[2].removeprefix(_MODULE) if scope else ""
    path = [part for part in node.split("/") if part]
    if node.startswith("/") and path:
        module = ".".join(path[:-1] or path)
    names = dict.fromkeys(filter(None, (module, value[1] if value else "")))
    return Link(Output((operator,)), Output(tuple(names) or (node,)), MINDIE_MAP)


def _operator(row: Mapping[str, Any]) -> str:
    return row.get("fusion_op") or row["ge_op"]


def _node(row: Mapping[str, Any]) -> str | None:
    return next((row[key] for key in _NODE if isinstance(row.get(key), str)), None)


def _check(row: Mapping[str, Any], path: Path) -> None:
    named = _node(row) is not None or (isinstance(row.get("ge_op"), str) and type(row.get("id")) is int)
    if not named or not isinstance(row["rt_layer"], str) or not isinstance(row.get("fusion_op") or "", str):
        raise FormatError(f'{path}: {quoted(str(row)[:80])} needs the key "jit_node", or the keys "ge_op" and "id"')
