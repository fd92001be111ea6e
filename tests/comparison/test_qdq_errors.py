"""What onnxruntime's qdq_loss_debug tells of a QDQ model over several inputs, by ``compare`` and ``merge``.

That is the SQNR of each activation against the float model's, the own error of each pair of QuantizeLinear and
DequantizeLinear, and that of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from onnxruntime.quantization.qdq_loss_debug import (
    collect_activations,
    compute_activation_error,
    compute_weight_error,
    create_activation_matching,
    create_weight_matching,
    modify_model_output_intermediate_tensors,
)
from small_nets import residual_net, run_all

import sgsdump
from sgsdump.comparison.merge import merge
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor

INPUTS = [np.random.default_rng(i).standard_normal((1, 3, 8, 8)).astype(np.float32) * (i + 1) for i in range(4)]
QUANTISED, BEFORE = "_quantized", "_QuantizeLinear_Input"  # onnxruntime's endings


class Inputs(CalibrationDataReader):
    def __init__(self) -> None:
        self.left: Iterator[np.ndarray] = iter(INPUTS)

    def get_next(self) -> dict[str, np.ndarray] | None:
        array = next(self.left, None)
        return None if array is None else {"data": array}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A float model, and onnxruntime's QDQ model of it."""
    folder = tmp_path_factory.mktemp("qdq")
    onnx.save(residual_net().proto, folder / "float.onnx")
    quantize_static(folder / "float.onnx", folder / "qdq.onnx", Inputs(), quant_format=QuantFormat.QDQ)
    return folder / "float.onnx", folder / "qdq.onnx"


def dumped(arrays: dict[str, np.ndarray]) -> Dump:
    return Dump([Record("out", 0, i, "", Tensor.of(name, array)) for i, (name, array) in enumerate(arrays.items())])


def activation_pairs(qdq_model: onnx.ModelProto) -> dict[str, str]:
    """What goes into each QuantizeLinear -> what comes out of the DequantizeLinear behind it."""
    into = {node.output[0]: node.input[0] for node in qdq_model.graph.node if node.op_type == "QuantizeLinear"}
    nodes = [node for node in qdq_model.graph.node if node.op_type == "DequantizeLinear"]
    return {into[node.input[0]]: node.output[0] for node in nodes if node.input[0] in into}


def weight_pairs(qdq_model: onnx.ModelProto) -> dict[str, str]:
    """The float model's weights -> what the DequantizeLinear of the stored ones gives."""
    stored = {one.name for one in qdq_model.graph.initializer}
    nodes = [node for node in qdq_model.graph.node if node.op_type == "DequantizeLinear"]
    return {node.input[0].removesuffix(QUANTISED): node.output[0] for node in nodes if node.input[0] in stored}


def theirs(models: tuple[Path, Path], folder: Path) -> dict[str, dict[str, float]]:
    """qdq_loss_debug's errors of all activations, by name: qdq_err and xmodel_err."""
    collected = []
    for model in models:
        modify_model_output_intermediate_tensors(model, folder / model.name)
        collected.append(collect_activations(str(folder / model.name), Inputs()))
    return compute_activation_error(create_activation_matching(collected[1], collected[0]))


def sqnr(runs: list[sgsdump.Comparison]) -> dict[str, float]:
    return {row.name: row.extra["sqnr"] for row in merge({str(i): run for i, run in enumerate(runs)})}


def test_the_activations(models: tuple[Path, Path], tmp_path: Path) -> None:
    float_model, qdq_model = map(onnx.load, models)
    pairs = activation_pairs(qdq_model)
    own, against_float = [], []
    for array in INPUTS:
        floats, values = ({"data": array, **run_all(model, {"data": array})} for model in (float_model, qdq_model))
        after = dumped({name.removesuffix(BEFORE): values[real] for name, real in pairs.items()})
        before = dumped({name.removesuffix(BEFORE): values[name] for name in pairs})
        own.append(sgsdump.compare(after, before, metrics=["sqnr"]))
        against_float.append(sgsdump.compare(after, dumped(floats), metrics=["sqnr"]))
    expected = theirs(models, tmp_path)
    assert len(expected) >= 8
    qdq_errors, xmodel_errors = sqnr(own), sqnr(against_float)
    for name, errors in expected.items():
        # where a pair changes nothing they print the dB of an epsilon
        error = errors["qdq_err"] if errors["qdq_err"] < 300 else math.inf
        assert qdq_errors[name] == pytest.approx(error, rel=1e-4), name
        if "xmodel_err" in errors:
            assert xmodel_errors[name] == pytest.approx(errors["xmodel_err"], rel=1e-4), name


def test_the_weights(models: tuple[Path, Path]) -> None:
    float_model, qdq_model = map(onnx.load, models)
    floats = {one.name: numpy_helper.to_array(one) for one in float_model.graph.initializer}
    values = run_all(qdq_model, {"data": INPUTS[0]})
    real = {name: values[after] for name, after in weight_pairs(qdq_model).items()}
    comparison = sgsdump.compare(dumped(real), dumped(floats), metrics=["sqnr"])
    expected = compute_weight_error(create_weight_matching(*map(str, models)))
    assert len(expected) >= 8
    for name, error in expected.items():
        assert comparison[name].extra["sqnr"] == pytest.approx(error, rel=1e-4), name
