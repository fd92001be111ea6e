#!/usr/bin/env python3
"""Quantise a model by other tools, each in an environment of its own, for ``benchmarks/cure.py --quantised``.

    python benchmarks/cure.py MODEL.onnx -i pictures/ --judge faces/ --feeds feeds.npz
    ENVIRONMENT/bin/python benchmarks/cure_peers.py PEER MODEL.onnx feeds.npz PEER.onnx
    python benchmarks/cure.py MODEL.onnx -i pictures/ --judge faces/ --quantised PEER.onnx …

PEER: onnxsim, onnxsim-equalised, onnxsim-biases, onnxsim-adaround (pip install onnxsim>=0.8); nncf, nncf-accurate,
nncf-controlled (layers return to float until the answers are the float model's), nncf-minmax (no bias correction; pip
install nncf); ppq, ppq-equalised, ppq-lsq, ppq-minmax (pip install esp-ppq); aimet, aimet-equalised, aimet-adaround
(equalised too; pip install aimet-onnx). Weights and activations have 8 bits; feeds.npz are the normalised calibration
pictures. minmax: the ranges hold all that the pictures reach; the defaults of NNCF and esp-ppq clip.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import version_converter

Feeds = list[dict[str, np.ndarray]]
OLDEST = 13  # the tools leave a model of an older opset as it is


def by_onnxsim(model: Any, feeds: Feeds, how: str) -> Any:
    import onnxsim

    model = onnxsim.simplify(model)[0]
    start = onnxsim.cross_layer_equalize(model) if how == "equalised" else model
    quantised = onnxsim.quantize_static(start, feeds, method="minmax", per_channel=True)
    if how == "biases":
        return onnxsim.correct_bias(start, quantised, feeds)
    if how == "adaround":
        return onnxsim.apply_adaround(start, quantised, feeds)
    return quantised


def by_nncf(model: Any, feeds: Feeds, how: str) -> Any:
    import nncf

    more = {"preset": nncf.QuantizationPreset.MIXED, "fast_bias_correction": how != "accurate"}
    if any(node.op_type == "LayerNormalization" for node in model.graph.node):
        more["model_type"] = nncf.ModelType.TRANSFORMER
    if how == "minmax":
        ranges = nncf.quantization.range_estimator.RangeEstimatorParametersSet.MINMAX
        more["advanced_parameters"] = nncf.AdvancedQuantizationParameters(
            activations_range_estimator_params=ranges, disable_bias_correction=True
        )
    data = nncf.Dataset(feeds)
    if how != "controlled":
        return nncf.quantize(model, data, subset_size=len(feeds), **more)

    def agreement(made: Any, some: Any) -> tuple[float, list[float]]:
        same = (answers(made, some) == answers(model, some)).astype(float)
        return float(same.mean()), list(same)

    return nncf.quantize_with_accuracy_control(model, data, data, agreement, subset_size=len(feeds), **more)


def answers(model: Any, feeds: Iterable[dict[str, np.ndarray]]) -> np.ndarray:
    """Return the answer to each image, by the definition of the operators."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.array([session.run(None, feed)[0].argmax() for feed in feeds])


def by_ppq(model: Any, feeds: Feeds, how: str) -> Any:
    """A scale per output channel of the weights, one per tensor of the activations."""
    import tempfile

    import torch
    from esp_ppq import QuantizationSettingFactory, TargetPlatform
    from esp_ppq.api import export_ppq_graph, quantize_onnx_model

    setting = QuantizationSettingFactory.default_setting()
    setting.equalization, setting.lsq_optimization = how == "equalised", how == "lsq"
    setting.lsq_optimization_setting.collecting_device = "cpu"
    if how == "minmax":
        setting.quantize_activation_setting.calib_algorithm = "minmax"
    (given,) = feeds[0]
    opset = model.opset_import[0].version
    with tempfile.TemporaryDirectory() as folder:
        plain, quantised = Path(folder, "plain.onnx"), Path(folder, "quantised.onnx")
        onnx.save(model, plain)
        graph = quantize_onnx_model(
            onnx_import_file=str(plain),
            calib_dataloader=[torch.from_numpy(each[given]) for each in feeds],
            calib_steps=len(feeds),
            input_shape=list(feeds[0][given].shape),
            platform=TargetPlatform.PPL_CUDA_INT8,
            setting=setting,
            device="cpu",
            verbose=0,
        )
        export_ppq_graph(graph, TargetPlatform.ONNXRUNTIME, str(quantised), str(Path(folder, "settings.json")))
        return valid(onnx.load(quantised), opset)


def valid(model: Any, opset: int) -> Any:
    """Return what esp-ppq writes with its operators' opset instead of 13, and Swish (opset 24) as Sigmoid and Mul."""
    model.opset_import[0].version = opset
    nodes = []
    for node in model.graph.node:
        if node.op_type == "Swish":
            gate = f"{node.output[0]}_gate"
            nodes += [
                onnx.helper.make_node("Sigmoid", node.input, [gate]),
                onnx.helper.make_node("Mul", [node.input[0], gate], node.output),
            ]
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def by_aimet(model: Any, feeds: Feeds, how: str) -> Any:
    """Its default configuration but for a scale per output channel of the weights."""
    from aimet_onnx import QuantizationSimModel, apply_adaround
    from aimet_onnx.common.quantsim_config.utils import get_path_for_per_channel_config
    from aimet_onnx.cross_layer_equalization import equalize_model

    if how:
        equalize_model(model)
    sim = QuantizationSimModel(model, config_file=get_path_for_per_channel_config())
    if how == "adaround":
        apply_adaround(sim, feeds, 1000)
    sim.compute_encodings(feeds)
    return sim.to_onnx_qdq()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer")
    parser.add_argument("model", type=Path)
    parser.add_argument("feeds", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    name, _, how = args.peer.partition("-")
    model = onnx.load(args.model)
    if model.opset_import[0].version < OLDEST:
        model = version_converter.convert_version(model, OLDEST)
    with np.load(args.feeds) as file:
        every = file["feeds"]
    weights = {tensor.name for tensor in model.graph.initializer}
    given = next(each.name for each in model.graph.input if each.name not in weights)
    begun = time.perf_counter()
    quantised = {"onnxsim": by_onnxsim, "nncf": by_nncf, "ppq": by_ppq, "aimet": by_aimet}[name](
        model, [{given: each} for each in every], how
    )
    onnx.save(quantised, args.output)
    print(f"{args.peer}: {time.perf_counter() - begun:.0f} seconds")


if __name__ == "__main__":
    main()
