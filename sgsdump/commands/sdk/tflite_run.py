"""A TFLite model run by LiteRT, its tensors as records in the order of its operators; apart, for it needs an extra.

LiteRT (ai-edge-litert) is optional: the extra ``tflite``. Delegates are off and every tensor is kept, so that the
operators are those of the file. Operator names and indexes are the interpreter's; a quantised tensor's scales too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sgsdump.dumps.dump import Record
from sgsdump.errors import InputError, MissingExtra, ModelError
from sgsdump.files.bounded_read import open_file
from sgsdump.models.input_spec import InputSpec
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo
from sgsdump.tensors.types import NHWC

MAGIC = b"TFL3"  # after four bytes of the root's offset


class TfliteRun:
    """One model; ``inputs`` (None for a size that is not fixed) take NHWC; ``skipped`` names what no array can hold.

    Raises MissingExtra without LiteRT, ModelError for a file that LiteRT cannot read.
    """

    def __init__(self, path: Path):
        self.path = path
        self.skipped: dict[str, str] = {}
        self._interpreter = _interpreter(path)
        self.inputs = tuple(
            InputSpec(
                d["name"], tuple(n if n >= 0 else None for n in d["shape_signature"].tolist()), np.dtype(d["dtype"])
            )
            for d in self._interpreter.get_input_details()
        )

    def records(self, feed: Mapping[str, np.ndarray]) -> Iterator[Record]:
        """Run on one feed, then give every operator's outputs. Raises ModelError for an operator that fails."""
        run = self._interpreter
        try:
            for details in run.get_input_details():
                array = feed[details["name"]]
                if tuple(details["shape"]) != array.shape:
                    run.resize_tensor_input(details["index"], array.shape)
            run.allocate_tensors()
            for details in run.get_input_details():
                run.set_tensor(details["index"], feed[details["name"]])
            run.invoke()
        except KeyError as error:
            raise InputError(f"no values for the input {error.args[0]!r} of {self.path}") from None
        except (ValueError, RuntimeError) as error:
            raise ModelError(f"{self.path} cannot run: {_line(error)}") from error
        facts = {details["index"]: details for details in run.get_tensor_details()}
        for operator in run._get_ops_details():
            for slot, index in enumerate(operator["outputs"].tolist()):
                if index in facts:
                    tensor = self._tensor(facts[index], operator["op_name"])
                    if tensor is not None:
                        yield Record("out", slot, operator["index"], operator["op_name"], tensor)

    def _tensor(self, facts: Mapping[str, Any], op_type: str) -> Tensor | None:
        name = facts["name"]
        try:
            array = self._interpreter.get_tensor(facts["index"])
        except (ValueError, RuntimeError) as error:
            self.skipped[name] = _line(error)
            return None
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
            self.skipped[name] = "its values are not numbers"
            return None
        layout = NHWC if array.ndim == 4 else None
        return Tensor(TensorInfo(name, array.shape, array.dtype, layout, _quant(facts, array), op_type), lambda: array)


def _interpreter(path: Path) -> Any:
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except ImportError as error:
        raise MissingExtra("a TFLite model needs LiteRT (ai-edge-litert): pip install 'sgsdump[tflite]'") from error
    try:
        with open_file(path) as file:
            head = file.read(8)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    if head[4:] != MAGIC:
        raise ModelError(f"{path} is not a TFLite model; its mark TFL3 is missing")
    try:
        return Interpreter(
            model_path=str(path),
            experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"{path} cannot be read: {_line(error)}") from error


def _quant(facts: Mapping[str, Any], array: np.ndarray) -> Quant | None:
    params = facts["quantization_parameters"]
    scales = params["scales"]
    if array.dtype.kind == "f" or not scales.size:
        return None
    zero_point = int(params["zero_points"][0]) if params["zero_points"].size else 0
    if scales.size == 1:
        return Quant(array.dtype, float(scales[0]), zero_point, exact=True)
    return Quant(array.dtype, scales, zero_point, int(params["quantized_dimension"]), exact=True)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
