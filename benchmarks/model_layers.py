"""How the time of the commands that run a model grows with its number of nodes.

    python benchmarks/model_layers.py [--short] [--only calibrate explain …]

Chains of 500, 2,000 and 8,000 nodes (50, 200 and 800 with --short) are made, 1x1 convolutions and Relus by turns over
48 values each. Each command runs in a fresh process, warmed up on a chain of ten; its processor time counts. A row's
figure is the exponent that ``layers.py`` explains.

``calibrate`` is L1: the levels above it try ranges and bits of each convolution by running the rest of the network.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from layers import measure

SIZES, SHORT = (500, 2000, 8000), (50, 200, 800)
CHANNELS, SIDE = 3, 4
INPUT = "-i random:1"
CONFIG = "--input-config input_config.ini"
CALIBRATE = f"calibrate -m net.onnx {INPUT} {CONFIG} --quant-level L1"
COMMANDS = {
    "dump": f"dump -m net.onnx {INPUT} -o dump.bin",
    "pipeline": "pipeline full -m net.onnx -o piped",
    "calibrate": f"{CALIBRATE} -o again/fixed.onnx",
    "simulate, float": f"simulate -m net.onnx {INPUT} -t Float {CONFIG}",
    "simulate, fixed": f"simulate -m fixed.onnx {INPUT} -t Fixed",
    "explain": f"tune --explain --ranges log/tensor_min_max.txt -m net.onnx {CONFIG}",
}
INI = """[INPUT_CONFIG]
inputs = x;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = {output};
dequantizations = TRUE;
"""
DEBUG_CONFIG = "dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n"


def chain(nodes: int) -> tuple[bytes, str]:
    """The model and the name of its output. Its convolutions turn and shift, so that values keep their size."""
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    made, weights, last = [], [], "x"
    for number in range(nodes):
        name = f"t{number}"
        if number % 2:
            made.append(helper.make_node("Relu", [last], [name], name=f"relu{number}"))
        else:
            turn, _ = np.linalg.qr(generator.standard_normal((CHANNELS, CHANNELS)))
            weights.append(numpy_helper.from_array(turn.astype(np.float32)[:, :, None, None], f"w{number}"))
            weights.append(numpy_helper.from_array(np.full(CHANNELS, 0.3, np.float32), f"b{number}"))
            reads = [last, f"w{number}", f"b{number}"]
            made.append(helper.make_node("Conv", reads, [name], name=f"conv{number}"))
        last = name
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, CHANNELS, SIDE, SIDE]) for n in ("x", last)]
    graph = helper.make_graph(made, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return model.SerializeToString(), last


def make(folder: Path, nodes: int) -> None:
    """The model with its configuration, and what calibration makes of it: the fixed model and the ranges."""
    folder.mkdir()
    model, output = chain(nodes)
    (folder / "net.onnx").write_bytes(model)
    (folder / "input_config.ini").write_text(INI.format(output=output))
    (folder / "DebugConfig.txt").write_text(DEBUG_CONFIG)
    (folder / "again").mkdir()
    command = [sys.executable, "-m", "sgsdump", *CALIBRATE.split(), "-o", "fixed.onnx"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    measure(__doc__, "nodes", (SIZES, SHORT), COMMANDS, make)
