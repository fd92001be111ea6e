"""The operator types that the installed onnxruntime knows: ONNX's, and its own of other domains."""

from __future__ import annotations

import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as binding


def operator_types() -> frozenset[str]:
    own = getattr(binding, "get_all_operator_schema", list)  # builds for small devices go without
    return frozenset(schema.name for schema in (*onnx.defs.get_all_schemas(), *own()))
