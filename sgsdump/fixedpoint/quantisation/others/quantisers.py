"""Identify the tool that quantised a model, and write its options for leaving operators in float.

| tool | identified by | option |
|---|---|---|
| onnxruntime | producer ``onnx.quantize`` | ``quantize_static(…, nodes_to_exclude=[…])`` |
| ModelOpt | a domain ``trt``, or that producer without onnxruntime's metadata | ``nodes_to_exclude``, patterns |
| NNCF | tensors named ``dq_output_X_1`` | ``nncf.IgnoredScope(names=[…])`` |
| AIMET | domain ``aimet.customop``, operator QcQuantizeOp | disabled quantisers of tensors |
| Quark | producer, or AMD's domains | ``QConfig(…, exclude=[…])`` |

Sources: the named functions of onnxruntime 1.32, nvidia-modelopt 0.47 and nncf 3.4; the documentation of aimet-onnx and
amd-quark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto

ONNXRUNTIME = "onnxruntime"
# Options for 7-bit weights, whose products with 8 bits never saturate.
SEVEN_BITS: Mapping[str, str] = MappingProxyType(
    {
        ONNXRUNTIME: "quantize_static(..., reduce_range=True)",
        "NNCF": "advanced = nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE)\n"
        "nncf.quantize(..., advanced_parameters=advanced)",
    }
)
_AMD = ("com.amd.quark", "com.vai.quantize")


@dataclass(frozen=True)
class LeftFloat:
    """What is to stay float: node names, operator types whose nodes are all among them, tensors and weights."""

    nodes: tuple[str, ...]
    op_types: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()


def quantiser_of(proto: ModelProto) -> str:
    """Return a key of ``WORDS``; "" if the tool is unknown."""
    producer = proto.producer_name.lower()
    domains = {entry.domain for entry in proto.opset_import}
    nodes = proto.graph.node
    if any(node.op_type == "QcQuantizeOp" for node in nodes) or "aimet.customop" in domains or "aimet" in producer:
        return "AIMET"
    if "quark" in producer or domains.intersection(_AMD):
        return "Quark"
    made = [output for node in nodes if node.op_type == "DequantizeLinear" for output in node.output]
    if made and all(name.startswith("dq_output_") for name in made):
        return "NNCF"
    if "modelopt" in producer or "trt" in domains or any(node.op_type.startswith("TRT_") for node in nodes):
        return "ModelOpt"
    if producer == "onnx.quantize" and not any(entry.key == "onnx.infer" for entry in proto.metadata_props):
        return "ModelOpt"
    return ONNXRUNTIME if producer == "onnx.quantize" else ""


def words(quantiser: str, left: LeftFloat) -> str:
    """Return Python code to paste; onnxruntime's if the tool is unknown."""
    return WORDS.get(quantiser, _onnxruntime)(left)


def _onnxruntime(left: LeftFloat) -> str:
    text = f"quantize_static(..., nodes_to_exclude={_listed(left.nodes)})"
    if left.op_types:
        types = _listed(left.op_types)
        text += f"\n# the same by type: get_qdq_config(..., op_types_to_exclude={types})"
    return text


def _modelopt(left: LeftFloat) -> str:
    text = f"modelopt.onnx.quantization.quantize(..., nodes_to_exclude={_listed([_pattern(n) for n in left.nodes])})"
    if left.op_types:
        text += f"\n# the same by type: quantize(..., op_types_to_exclude={_listed(left.op_types)})"
    return text


def _nncf(left: LeftFloat) -> str:
    text = f"nncf.quantize(..., ignored_scope=nncf.IgnoredScope(names={_listed(left.nodes)}))"
    if left.op_types:
        text += f"\n# the same by type: nncf.IgnoredScope(types={_listed(left.op_types)})"
    return text


def _aimet(left: LeftFloat) -> str:
    return (
        f"for name in {_listed(left.tensors)}:\n"
        f"    if name in sim.qc_quantize_op_dict:\n"
        f"        sim.qc_quantize_op_dict[name].enabled = False"
    )


def _quark(left: LeftFloat) -> str:
    return f"QConfig(..., exclude={_listed(left.nodes)})"


WORDS: Mapping[str, Callable[[LeftFloat], str]] = MappingProxyType(
    {ONNXRUNTIME: _onnxruntime, "ModelOpt": _modelopt, "NNCF": _nncf, "AIMET": _aimet, "Quark": _quark}
)


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(map(repr, names))}]"


def _pattern(name: str) -> str:
    """Return a regular expression that matches only this name."""
    return f"^{re.escape(name)}$"
