"""Quantise a network whose weights lie in a file beside it, larger than one would hold in memory several times.

    python benchmarks/large.py [--short] [--blocks N] [--keep FOLDER]

The network is a row of 3 x 3 convolutions, each with a Relu, of 132 MB of weights each: 24 of them are 3.2 GB; --short
makes a small one, whose figures say little (the program's own start weighs most), and leaves its weights outside all
the same. ``calibrate`` at L1 and ``simulate -t Fixed`` run as a user runs them, each in a process of its own.

Time: the processor's seconds of ``calibrate`` over those of onnxruntime alone, which runs as many pictures in one
session; the aim is 3. Memory: the peak over 400 MB + 1.3 times the largest segment (what a dozen nodes of the model
that is run read of weights and make) + the largest weight; the aim is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from PIL import Image
from rows import Row, show

from sgsdump.models.external_data import MANY_BYTES
from sgsdump.models.graph import infer_types, sorted_nodes, weight_names
from sgsdump.models.passes.segment import cut, tensor_bytes

MB = 1 << 20
PICTURES = 8
SIZE = 48
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RGB;
input_formats = RGB;
quantizations = TRUE;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = y;
dequantizations = TRUE;
"""
FLOAT_RUN = """
import sys, numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
for number in range(int(sys.argv[2])):
    shape = 1, 3, int(sys.argv[3]), int(sys.argv[3])
    picture = np.random.default_rng(number).standard_normal(shape).astype(np.float32)
    session.run(None, {"data": picture})
"""


def large_network(path: Path, blocks: int, channels: int) -> None:
    """Input ``data`` [1, 3, 48, 48], output ``y``. Its weights are written one by one."""
    generator = np.random.default_rng(0)
    sample = generator.standard_normal(1 << 22, np.float32)
    nodes, tensors = [], []
    beside = path.with_suffix(".weights")
    with beside.open("wb") as file:

        def weight(name: str, shape: tuple[int, ...], gain: float) -> str:
            count = int(np.prod(shape))
            start = int(generator.integers(1 << 20))
            values = np.resize(sample[start:], count) * np.float32(gain)
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in {"location": beside.name, "offset": file.tell(), "length": values.nbytes}.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(values.data)
            tensors.append(tensor)
            return name

        last, inputs = "data", 3
        for number in range(blocks):
            gain = (2 / (inputs * 9)) ** 0.5
            operands = [
                last,
                weight(f"w{number}", (channels, inputs, 3, 3), gain),
                weight(f"b{number}", (channels,), 0.1),
            ]
            stride = 4 if number == 0 else 1
            nodes.append(
                helper.make_node("Conv", operands, [f"c{number}"], f"c{number}", pads=[1] * 4, strides=[stride] * 2)
            )
            nodes.append(helper.make_node("Relu", [f"c{number}"], [last := f"r{number}"], f"r{number}"))
            inputs = channels
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"], "y"))
    ends = (
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, 1, 1])],
    )
    graph = helper.make_graph(nodes, "large", *ends, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """The processor's seconds of a process, and its peak of memory in MB."""
    process = subprocess.Popen(command, cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def largest(path: Path) -> tuple[float, float]:
    """MB of the largest segment and of the largest weight of a model."""
    proto = onnx.load(path, load_external_data=False)
    names, nodes = weight_names(proto.graph), sorted_nodes(proto.graph)
    sizes = tensor_bytes(infer_types(proto))
    segments = [
        sum(sizes.get(name, 0) for name in (*part.weights, *part.reads, *part.makes))
        for part in cut(nodes, names, sizes)
    ]
    return max(segments) / MB, max(sizes.get(name, 0) for name in names) / MB


def rows(folder: Path, blocks: int, channels: int) -> list[Row]:
    model = folder / "net.onnx"
    large_network(model, blocks, channels)
    pictures = folder / "pictures"
    pictures.mkdir()
    for number in range(PICTURES):
        pixels = np.random.default_rng(number).integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(pictures / f"{number}.png")
    (folder / "input_config.ini").write_text(INI)
    (folder / "DebugConfig.txt").write_text("dumpTensor\npath=.\n")
    few = ("import sgsdump.models.external_data as e; import sgsdump.fixedpoint.quantisation.float_model as f; "
           "f.MANY_BYTES = 1; ")  # fmt: skip
    start = [sys.executable, "-c", f"{few if folder.joinpath('net.weights').stat().st_size < MANY_BYTES else ''}"
             "import sys; from sgsdump.cli import main; sys.exit(main())"]  # fmt: skip
    floor, _ = measured([sys.executable, "-c", FLOAT_RUN, str(model), str(PICTURES), str(SIZE)], folder)
    common = ["--input-config", "input_config.ini"]
    seconds, peak = measured(
        [*start, "calibrate", "-m", "net.onnx", "-i", "pictures", *common, "--quant-level", "L1", "-o", "fixed.onnx"],
        folder,
    )
    simulating, peak_of_simulate = measured(
        [*start, "simulate", "-m", "fixed.onnx", "-i", "pictures/0.png", "-t", "Fixed"], folder
    )
    _, weight = largest(model)
    bounds = [
        400 + 1.3 * max(largest(path)[0] for path in paths) + weight
        for paths in ([model, folder / "fixed.onnx"], [folder / "fixed.onnx"])
    ]
    return [
        Row("calibrate L1, time over one float run", seconds, floor, 3),
        Row("calibrate L1, peak of memory", peak, bounds[0], 1, "MB"),
        Row("simulate -t Fixed, time over one float run", simulating, floor),
        Row("simulate -t Fixed, peak of memory", peak_of_simulate, bounds[1], 1, "MB"),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--blocks", type=int, default=25)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        where = options.keep or Path(temporary)
        where.mkdir(exist_ok=True)
        show(rows(where, 4, 128) if options.short else rows(where, options.blocks, 1920))
