"""What onnxruntime raises when it will not load or run a graph, and its message in one line."""

from __future__ import annotations

import re

from onnxruntime.capi import onnxruntime_pybind11_state as state

# These kinds share no base class of their own.
REFUSALS = (
    *(state.Fail, state.InvalidArgument, state.InvalidGraph, state.InvalidProtobuf, state.NotImplemented),
    *(state.RuntimeException, state.NoSuchFile, state.EPFail, RuntimeError),
)


def plain(error: Exception) -> str:
    """The first line of onnxruntime's message, without its error code."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error).strip())
    return text.splitlines()[0] if text else type(error).__name__
