"""The two mapping files of MindIE-Torch: which operator of the device came of which node of the TorchScript.

::

    mindie_torch_op_mapping.json  [{"jit_node": "%input.9 : Float(…) = aten::_convolution(…), scope: __module.layer1/
                                     __module.layer1.0.conv1 # conv.py:456:0", "rt_layer": "CONVOLUTION_5"}, …]
    mindie_rt_op_mapping.json     [{"id": 4, "ge_op": "Conv2D_5", "rt_layer": "CONVOLUTION_5",
                                     "fusion_op": "Conv2D_5Relu_8", "fusion_ops": ["Conv2D_5", "Relu_8"]}, …]

Joined on rt_layer in the order of id; of rows that follow each other with one fusion_op the last node counts, whose
output the fused operator's is. On the device's side (the sample) the operator is called fusion_op, or ge_op where
nothing was fused; on torch's side its output is that of the module named last in the scope, or the value named before
the colon. ``fx_node`` stands in place of jit_node in newer files. ``op_map_updated.json``, which msit makes of both
(``{fusion_op: {"jit_node": …, "id": …, "fuse_path": […]}}``), is read alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from sgsdump.comparison.naming.link import Link, Output
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of

RULE = "MindIE map"
_NODE = ("jit_node", "fx_node")
_VALUE = re.compile(r"\s*%([^\s:=,()]+)")
_SCOPE = re.compile(r"scope:\s*([^\s#]+)")
_MODULE = "__module."


def read(path: Path | str, other: Path | str | None = None) -> list[Link]:
    """What both files say together, in either order, or ``op_map_updated.json`` alone.

    Raises FormatError for other documents, ConfigError when one of the two is not there.
    """
    paths = [Path(path)] if other is None else [Path(path), Path(other)]
    return links_of({path: json_of(decode(read_bytes(path), path), path) for path in paths})


def recognises(document: Any) -> bool:
    """Whether a JSON document is one of these files."""
    if isinstance(document, dict):
        return bool(document) and all(isinstance(v, dict) and _node(v) is not None for v in document.values())
    rows = document if isinstance(document, list) else []
    return bool(rows) and all(isinstance(row, dict) and "rt_layer" in row for row in rows)


def links_of(documents: Mapping[Path, Any]) -> list[Link]:
    """The links of recognised documents. Raises FormatError, ConfigError."""
    nodes: dict[str, str] = {}
    layers: list[dict[str, Any]] = []
    links: list[Link] = []
    for path, document in documents.items():
        if not recognises(document):
            raise FormatError(f"{path} is no mapping file of MindIE-Torch")
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
        raise ConfigError(f"{next(iter(documents))} is one of two files; give {name} too, with a second --name-map")
    return [*links, *_joined(nodes, layers)]


def _joined(nodes: Mapping[str, str], layers: Iterable[dict[str, Any]]) -> Iterable[Link]:
    known = [row for row in sorted(layers, key=lambda row: row["id"]) if row["rt_layer"] in nodes]
    for operator, rows in groupby(known, key=_operator):
        yield _link(operator, nodes[[*rows][-1]["rt_layer"]])


def _link(operator: str, node: str) -> Link:
    node = node.strip()
    value, scope = _VALUE.match(node), _SCOPE.search(node)
    module = scope[1].rpartition("/")[2].removeprefix(_MODULE) if scope else ""
    path = [part for part in node.split("/") if part]
    if node.startswith("/") and path:
        module = ".".join(path[:-1] or path)
    names = dict.fromkeys(filter(None, (module, value[1] if value else "")))
    return Link(Output((operator,)), Output(tuple(names) or (node,)), RULE)


def _operator(row: Mapping[str, Any]) -> str:
    return row.get("fusion_op") or row["ge_op"]


def _node(row: Mapping[str, Any]) -> str | None:
    return next((row[key] for key in _NODE if isinstance(row.get(key), str)), None)


def _check(row: Mapping[str, Any], path: Path) -> None:
    named = _node(row) is not None or (isinstance(row.get("ge_op"), str) and type(row.get("id")) is int)
    if not named or not isinstance(row["rt_layer"], str) or not isinstance(row.get("fusion_op") or "", str):
        raise FormatError(f"{path}: {quoted(str(row)[:80])} names neither a jit_node nor a ge_op with its id")
