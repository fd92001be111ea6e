"""The contract of a graph pass: a pure function of a graph. ``passes/`` holds the family, one file per idea.

A pass takes a ModelProto (or its nodes) and gives a new one; it never changes what it was given, and it never copies
weights it does not need. A pass that reshapes a whole model is a ``GraphPass``; the others say what they return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import onnx

GraphPass: TypeAlias = "Callable[[onnx.ModelProto], onnx.ModelProto]"
