#!/usr/bin/env python3
"""One piece of work of one tool, run by the Python of that tool's environment for ``benchmarks/peers.py``.

    ENVIRONMENT/bin/python benchmarks/peers_work.py WORK FOLDER

FOLDER holds ``net.onnx`` (opset 13 or later, one input) and ``samples/*.npy`` (float32, NCHW, one image each); for the
works that compare also ``sample/*.npz`` and ``benchmark/*.npz``, one file per image with every tensor. ``prepare``
writes all of these. WORK is a key of ``WORKS``; files go to the current folder. The last line printed says how many
ranges, errors or layers the work gave.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

# Each function imports what it needs: the time of imports belongs to the work.
Feeds = list[dict[str, np.ndarray]]
ULTRAFACE = "ultraface/version-RFB-320_without_postprocessing.onnx"
OLDEST = 13  # scales per channel need this opset


class Net:
    """The float model and the images that every tool is given."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "net.onnx"
        self.files = sorted((folder / "samples").glob("*.npy"))

    @cached_property
    def samples(self) -> list[np.ndarray]:
        return [np.load(file) for file in self.files]

    @cached_property
    def model(self) -> Any:
        import onnx

        return onnx.load(self.path)

    @cached_property
    def feeds(self) -> Feeds:
        name: str = self.model.graph.input[0].name
        return [{name: sample} for sample in self.samples]


# Preparation: the same files for all tools.


def prepare(folder: Path, data: Path | None, images: int, dumps: int, width: int) -> None:
    """Write the model, the images and two dumps of ``dumps`` images; ``width``: channels of the ResNet-like model."""
    import onnx

    (folder / "samples").mkdir()
    if data is not None and (data / ULTRAFACE).is_file():
        model = onnx.load(data / ULTRAFACE)
        samples = list(faces(data, images))
    else:
        from resnet_like import resnet_like

        model, random = resnet_like(width), np.random.default_rng(0)
        samples = [random.standard_normal((1, 3, 224, 224), np.float32) for _ in range(images)]
    model = modern(model)
    onnx.save(model, folder / "net.onnx")
    for number, sample in enumerate(samples):
        np.save(folder / "samples" / f"{number:02}.npy", sample)
    write_dumps(folder, model, samples[:dumps])
    print(f"{len(model.graph.node)} nodes, {len(samples)} images of {samples[0].shape}")


def faces(data: Path, most: int) -> Iterator[np.ndarray]:
    from PIL import Image

    for path in sorted((data / "images").glob("*.jpg"))[:most]:
        pixels = np.asarray(Image.open(path).convert("RGB").resize((320, 240)), np.float32)
        yield np.ascontiguousarray(((pixels - 127) / 128).transpose(2, 0, 1)[None])


def modern(model: Any) -> Any:
    """Return the model in opset 13 or later and for one image; weights are no inputs, and unused ones are left out."""
    import onnx
    from onnx import version_converter

    if model.opset_import[0].version < OLDEST:
        model = version_converter.convert_version(model, OLDEST)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in weights]
    read = {name for node in model.graph.node for name in node.input}
    used = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(used)
    for each in (*inputs, *model.graph.output):
        each.type.tensor_type.shape.dim[0].dim_value = 1
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 8)
    onnx.checker.check_model(model)
    return model


def write_dumps(folder: Path, model: Any, samples: Iterable[np.ndarray]) -> None:
    """Write every float tensor of the float model, and the same tensors rounded to 8 bits."""
    import onnx

    marked = onnx.shape_inference.infer_shapes(model)
    outputs = {each.name for each in marked.graph.output}
    inner = [name for node in marked.graph.node for name in node.output if name and name not in outputs]
    marked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    session = plain_session(marked.SerializeToString())
    names = [each.name for each in session.get_outputs() if each.type == "tensor(float)"]
    for side in ("sample", "benchmark"):
        (folder / side).mkdir()
    for number, sample in enumerate(samples):
        tensors = dict(zip(names, session.run(names, {model.graph.input[0].name: sample}), strict=True))
        np.savez(folder / "benchmark" / f"{number:02}.npz", **tensors)  # type: ignore[arg-type]
        np.savez(folder / "sample" / f"{number:02}.npz", **{name: rounded(each) for name, each in tensors.items()})


def rounded(values: np.ndarray) -> np.ndarray:
    step = np.float32(max(float(np.abs(values).max(initial=0)) / 127, 1e-20))
    result: np.ndarray = np.rint(values / step) * step
    return result.astype(np.float32)


def plain_session(model: bytes) -> Any:
    """Return a session without graph optimisation."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


# The score for tools that ask for one: the error of the outputs.


def outputs(model: Any, feeds: Iterable[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    session = plain_session(model.SerializeToString())
    return [session.run(None, feed) for feed in feeds]


def output_error(values: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """Return sum((y - r)^2) / sum(r^2) of one image, summed over the outputs."""
    return sum(float(((y - r) ** 2).sum() / (r**2).sum()) for y, r in zip(values, exact, strict=True))


# onnxruntime.quantization


def reader(net: Net) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(net.feeds)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)  # type: ignore[return-value]

    return Reader()


def onnxruntime_minmax(net: Net) -> str:
    from onnxruntime.quantization.calibrate import create_calibrator

    calibrator = create_calibrator(net.path, augmented_model_path="augmented.onnx")
    calibrator.collect_data(reader(net))
    return f"{len(list(calibrator.compute_data().keys()))} ranges"


def onnxruntime_static(net: Net) -> str:
    import onnx
    from onnxruntime.quantization import quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(str(net.path), "plain.onnx", skip_symbolic_shape=True)
    quantize_static("plain.onnx", "quantised.onnx", reader(net), per_channel=True)
    return f"{quantised_tensors(onnx.load('quantised.onnx'))} ranges"


def onnxruntime_loss(net: Net) -> str:
    """The errors of ``quantised.onnx``, which ``onnxruntime_static`` wrote here."""
    from onnxruntime.quantization import qdq_loss_debug as debug

    activations = {}
    for model in ("plain", "quantised"):
        debug.modify_model_output_intermediate_tensors(f"{model}.onnx", f"{model}_all.onnx")
        activations[model] = debug.collect_activations(f"{model}_all.onnx", reader(net))
    pairs = debug.create_activation_matching(activations["quantised"], activations["plain"])
    layers = debug.compute_activation_error({name: pair for name, pair in pairs.items() if "float" in pair})
    weights = debug.compute_weight_error(debug.create_weight_matching("plain.onnx", "quantised.onnx"))
    return f"{len(layers)} activations, {len(weights)} weights"


def quantised_tensors(model: Any) -> int:
    """Return how many activations a model with QuantizeLinear quantises."""
    weights = {tensor.name for tensor in model.graph.initializer}
    given = {node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    return len(given - weights)


# NNCF


def nncf_ranges(net: Net) -> str:
    import nncf
    import onnx

    ranges = nncf.quantization.range_estimator.RangeEstimatorParametersSet.MINMAX
    more = nncf.AdvancedQuantizationParameters(activations_range_estimator_params=ranges, disable_bias_correction=True)
    made = nncf.quantize(net.model, nncf.Dataset(net.feeds), subset_size=len(net.feeds), advanced_parameters=more)
    onnx.save(made, "quantised.onnx")
    return f"{quantised_tensors(made)} ranges"


def nncf_ranking(net: Net) -> str:
    """Rank the groups of quantisers by the output error that each causes, and keep the worst group in float."""
    import nncf
    from nncf.quantization.algorithms.accuracy_control.ranker import Ranker

    groups = []
    rank = Ranker.rank_groups_of_quantizers
    exact = {id(feed): values for feed, values in zip(net.feeds, outputs(net.model, net.feeds), strict=True)}

    def counted(self: Any, some: Any, *rest: Any, **named: Any) -> Any:
        groups.extend(some)
        return rank(self, some, *rest, **named)

    Ranker.rank_groups_of_quantizers = counted

    def agreement(model: Any, feeds: Iterable[dict[str, np.ndarray]]) -> tuple[float, list[float]]:
        some = list(feeds)
        scores = [
            1 - output_error(each, exact[id(feed)]) for feed, each in zip(some, outputs(model, some), strict=True)
        ]
        return sum(scores) / len(scores), scores

    data = nncf.Dataset(net.feeds)
    more = nncf.AdvancedAccuracyRestorerParameters(max_num_iterations=1)
    nncf.quantize_with_accuracy_control(
        net.model,
        data,
        data,
        agreement,
        max_drop=0,
        subset_size=len(net.feeds),
        advanced_accuracy_restorer_parameters=more,
    )
    return f"{len(groups)} groups of layers"


# esp-ppq


def ppq_graph(net: Net) -> tuple[Any, list[Any]]:
    """Return the quantised graph with MinMax ranges, and the images as it takes them."""
    import torch
    from esp_ppq import QuantizationSettingFactory, TargetPlatform
    from esp_ppq.api import quantize_onnx_model

    setting = QuantizationSettingFactory.default_setting()
    setting.quantize_activation_setting.calib_algorithm = "minmax"
    samples = [torch.from_numpy(each) for each in net.samples]
    graph = quantize_onnx_model(
        onnx_import_file=str(net.path),
        calib_dataloader=samples,
        calib_steps=len(samples),
        input_shape=list(net.samples[0].shape),
        platform=TargetPlatform.PPL_CUDA_INT8,
        setting=setting,
        device="cpu",
        verbose=0,
    )
    return graph, samples


def ppq_ranges(net: Net) -> str:
    from esp_ppq.core import QuantizationStates
    from esp_ppq.IR import QuantableOperation

    graph, _ = ppq_graph(net)
    ranges = {
        id(config.dominated_by)
        for operation in graph.operations.values()
        if isinstance(operation, QuantableOperation)
        for config, variable in operation.config_with_variable
        if config.dominated_by.state == QuantizationStates.ACTIVATED and not variable.is_parameter
    }
    return f"{len(ranges)} ranges"


def ppq_graphwise(net: Net) -> str:
    """The error of each layer in the quantised graph."""
    from esp_ppq.quantization.analyse import graphwise_error_analyse

    graph, samples = ppq_graph(net)
    return f"{len(graphwise_error_analyse(graph, 'cpu', samples, steps=len(samples), verbose=False))} layers"


def ppq_layerwise(net: Net) -> str:
    """The error of the outputs with one layer quantised at a time."""
    from esp_ppq.quantization.analyse import layerwise_error_analyse

    graph, samples = ppq_graph(net)
    errors = layerwise_error_analyse(graph, samples, running_device="cpu", steps=len(samples), verbose=False)
    return f"{len(errors)} layers alone"


# AIMET


def aimet_sim(net: Net) -> Any:
    from aimet_onnx import QuantizationSimModel
    from aimet_onnx.batch_norm_fold import fold_all_batch_norms_to_weight
    from aimet_onnx.common.quantsim_config.utils import get_path_for_per_channel_config

    fold_all_batch_norms_to_weight(net.model)
    sim = QuantizationSimModel(net.model, config_file=get_path_for_per_channel_config())
    sim.compute_encodings(net.feeds)
    return sim


def aimet_ranges(net: Net) -> str:
    sim = aimet_sim(net)
    ranges = [name for name in sim.activation_names if sim.qc_quantize_op_dict[name].enabled]
    return f"{len(ranges)} ranges"


def aimet_sensitivity(net: Net) -> str:
    """The error of the outputs with one layer quantised at a time."""
    from aimet_onnx import analyze_per_layer_sensitivity

    exact = outputs(net.model, net.feeds)

    def error(session: Any) -> float:
        values = (session.run(None, feed) for feed in net.feeds)
        return sum(map(output_error, values, exact)) / len(exact)

    return f"{len(analyze_per_layer_sensitivity(aimet_sim(net), error))} layers alone"


# RKNN-Toolkit2


def rknn_errors(net: Net) -> str:
    """The simulator's tensors and the float model's of the first image, which is all that it takes."""
    from rknn.api import RKNN

    Path("images.txt").write_text("".join(f"{file}\n" for file in net.files))
    tool = RKNN(verbose=False)
    tool.config(target_platform="rk3588", quantized_algorithm="normal")
    steps = (
        lambda: tool.load_onnx(str(net.path)),
        lambda: tool.build(do_quantization=True, dataset="images.txt"),
        lambda: tool.accuracy_analysis([str(net.files[0])], output_dir="snapshot"),
    )
    for step in steps:
        if step() != 0:
            raise SystemExit("rknn failed")
    lines = Path("snapshot/error_analysis.txt").read_text().splitlines()
    return f"{sum(line.startswith('[') for line in lines)} layers"


# Comparing two dumps


def polygraphy_save(net: Net) -> str:
    """Write both dumps as Polygraphy saves the outputs of a run: a folder of one file per image."""
    from polygraphy.comparator import RunResults

    for side in ("sample", "benchmark"):
        folder = net.path.parent / f"{side}_polygraphy"
        folder.mkdir()
        for number, file in enumerate(sorted((net.path.parent / side).glob("*.npz"))):
            results = RunResults()
            with np.load(file) as tensors:
                results.add([dict(tensors)], runner_name=side)
            results.save(str(folder / f"{number}.json"))
    return "saved"


def numpy_compare(net: Net) -> str:
    errors = {}
    for file in sorted((net.path.parent / "sample").glob("*.npz")):
        with np.load(file) as ours, np.load(net.path.parent / "benchmark" / file.name) as theirs:
            for name in ours:
                errors[file.name, name] = float(np.mean((ours[name].astype(np.float64) - theirs[name]) ** 2))
    return f"{len(errors)} errors"


WORKS = {
    "onnxruntime-minmax": onnxruntime_minmax,
    "onnxruntime-static": onnxruntime_static,
    "onnxruntime-loss": onnxruntime_loss,
    "nncf-ranges": nncf_ranges,
    "nncf-ranking": nncf_ranking,
    "ppq-ranges": ppq_ranges,
    "ppq-graphwise": ppq_graphwise,
    "ppq-layerwise": ppq_layerwise,
    "aimet-ranges": aimet_ranges,
    "aimet-sensitivity": aimet_sensitivity,
    "rknn-errors": rknn_errors,
    "polygraphy-save": polygraphy_save,
    "numpy-compare": numpy_compare,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["prepare", *WORKS])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="prepare: folder with the face detector")
    parser.add_argument("--images", type=int, default=24, help="prepare: so many images")
    parser.add_argument("--dumps", type=int, default=4, help="prepare: dumps of so many images")
    parser.add_argument("--width", type=int, default=64, help="prepare: channels of the ResNet-like model")
    args = parser.parse_args()
    if args.work == "prepare":
        prepare(args.folder, args.data, args.images, args.dumps, args.width)
    else:
        print(WORKS[args.work](Net(args.folder)))


if __name__ == "__main__":
    main()
