#!/usr/bin/env python3
"""Known architectures with drawn weights through calibrate (every level), simulate, compare and tune (at L1 and
L5); no range is clipped in silence.

    python tools/light_architectures.py                        all models and levels: most of an hour
    python tools/light_architectures.py --short                a small MobileNet and a small U-Net at level L1
    python tools/light_architectures.py --only resnet --level L5

DenseNet, Inception, ResNet and ShuffleNet lie without weights in the onnx package; MobileNet and U-Net are built here.
Weights are He's, pictures drawn. A line for each model and level (INT16 is L1 with ALL_INT16): the worst output, or
Softmax's input, of the fixed model against the float model's, and the tensors that the fixed model clips by more than a
step, as the float values on the calibration pictures say. One that calibrate or tune did not name, a command that
fails, and an output that is not finite are findings; with one the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from architectures.built import mobilenet, unet
from architectures.drawn import light
from PIL import Image

Build = Callable[[], onnx.ModelProto]
LIGHT = ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet")
MODELS: dict[str, Build] = {name: partial(light, name) for name in LIGHT} | {"mobilenet": mobilenet, "unet": unet}
SMALL: dict[str, Build] = {"mobilenet": partial(mobilenet, 64, 3), "unet": partial(unet, 32, 8, 2)}
LEVELS = ("L1", "L2", "L3", "L4", "L5", "INT16")
# tune measures with weights of one scale, or of one per channel; it looks for bits, whatever proposed some.
JUDGED = ("L1", "L5")
PICTURES = 4
INI = """[INPUT_CONFIG]
inputs = {name};
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 64;
[OUTPUT_CONFIG]
outputs = {outputs};
dequantizations = {true};
"""


class Finding(Exception):
    """The fault of a model at a level, in a line."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="run only small models, at level L1")
    parser.add_argument("--only", default="", metavar="WORD", help="only models whose name contains WORD")
    parser.add_argument("--level", choices=LEVELS, help="run only this level")
    args = parser.parse_args(argv)
    from sgsdump.files.process import working_in

    levels = (args.level,) if args.level else LEVELS[:1] if args.short else LEVELS
    findings = 0
    for name, build in (SMALL if args.short else MODELS).items():
        if args.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder, working_in(folder):
            proto = build()
            lay_out(proto)
            for level in levels:
                found, text = outcome(proto, level)
                findings += found
                print(f"{name} {level}: {text}", flush=True)
    return int(findings > 0)


def outcome(proto: onnx.ModelProto, level: str) -> tuple[bool, str]:
    """Whether a model at a level is a finding, and the line about it."""
    try:
        return False, through(proto, level)
    except Finding as finding:
        return True, f"FINDING: {finding}"


def lay_out(proto: onnx.ModelProto) -> None:
    """The model, its pictures and side files in the current folder."""
    onnx.save(proto, "net.onnx")
    entry = proto.graph.input[0]
    outputs = [output.name for output in proto.graph.output]
    ini = INI.format(name=entry.name, outputs=",".join(outputs), true=",".join(["TRUE"] * len(outputs)))
    Path("input_config.ini").write_text(ini)
    Path("int16.ini").write_text(ini + "[CONV_CONFIG]\ninput_format = ALL_INT16;\n")
    Path("DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n")
    Path("pictures").mkdir()
    size = entry.type.tensor_type.shape.dim[2].dim_value
    rng = np.random.default_rng(1)
    for index in range(PICTURES):
        patches = np.kron(rng.uniform(0, 255, (8, 8, 3)), np.ones((size // 8, size // 8, 1)))
        pixels = np.clip(patches + rng.normal(0, 20, patches.shape), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(f"pictures/{index}.png")


def through(proto: onnx.ModelProto, level: str) -> str:
    """All commands at one level; what came of it. Raises Finding."""
    common = f"-m net.onnx --input-config {'int16.ini' if level == 'INT16' else 'input_config.ini'} -i"
    at = f"--quant-level {'L1' if level == 'INT16' else level}"
    said = run(f"calibrate {common} pictures -o fixed.onnx {at}")
    run(f"simulate {common} pictures/0.png -t Float")
    Path("sigma_outtensor_dump.bin").replace("float.bin")
    run("simulate -m fixed.onnx -i pictures/0.png -t Fixed")
    Path("sigma_outtensor_dump.bin").replace("fixed.bin")
    run("compare fixed.bin float.bin", 0, 1)
    clipped = clipped_tensors("fixed.onnx")
    _find_silent("calibrate", clipped, said)
    if level in JUDGED:
        dumps = "--dump float.bin --fixed fixed.bin"
        run(f"tune --explain --ranges log/tensor_min_max.txt {common} pictures/0.png {dumps} {at}")
        said = run(f"tune {common} pictures --evaluate pictures/0.png -o tuned --budget 10s {at} --fixed-model")
        _find_silent("tune", clipped_tensors("tuned/optimized.onnx"), said)
    return f"{agreement(proto)}; clipped: {', '.join(clipped) or 'none'}"


def _find_silent(command: str, clipped: list[str], said: str) -> None:
    silent = [name for name in clipped if not named(name, said)]
    if silent:
        raise Finding(f"{command} clipped without a warning:  {', '.join(silent)}")


def run(command: str, *statuses: int) -> str:
    """The output of a command. Raises Finding when it ends with another status than these (0)."""
    from sgsdump.cli import main as sgsdump

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = sgsdump(command.split())
        except Exception as error:
            raise Finding(f"{command.split()[0]}: {type(error).__name__}: {error}") from error
    if status not in (statuses or (0,)):
        raise Finding(f"{command}: status {status}: {err.getvalue().strip().splitlines()[-1:]}")
    return out.getvalue()


def clipped_tensors(fixed: str) -> list[str]:
    """The tensors whose float values on the calibration pictures go beyond what the fixed model holds by a step."""
    from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
    from sgsdump.fixedpoint.verbs.network import open_float_model
    from sgsdump.models.feeds.feeds import PictureFeeds
    from sgsdump.models.fixed_facts import read_facts
    from sgsdump.models.model import graph_inputs, open_model
    from sgsdump.sidecars import input_config

    config = input_config.read("input_config.ini")
    model = open_float_model("net.onnx", None, config)
    feeds = PictureFeeds("pictures", None, tuple(graph_inputs(model.proto)), config)
    measured = measure_ranges(model, feeds)
    facts = read_facts(open_model(fixed))
    assert facts is not None
    clipped = []
    for name, tensor in facts.tensors.items():
        limits = np.iinfo(tensor.dtype)
        low, high = ((limit - tensor.zero_point) * tensor.scale for limit in (limits.min, limits.max))
        if measured[name].low < low - tensor.scale or measured[name].high > high + tensor.scale:
            clipped.append(name)
    return clipped


def named(name: str, text: str) -> bool:
    """Whether a text holds the name as a word of its own."""
    return re.search(rf"(?<![^\s,]){re.escape(name)}(?![^\s,:;])", text) is not None


def agreement(proto: onnx.ModelProto) -> str:
    """RMSE and COS of the worst output; a Softmax is judged by its input."""
    import sgsdump
    from sgsdump.fixedpoint.quantisation.objective import watched_tensors

    names = set(watched_tensors(proto))
    rows = [row for row in sgsdump.compare("fixed.bin", "float.bin").rows if row.name in names]
    if len(rows) < len(names):
        raise Finding("not all outputs were compared")
    worst = max(rows, key=lambda row: row.rmse)
    if not np.isfinite(worst.rmse):
        raise Finding(f"output {worst.name} is not finite")
    return f"RMSE {worst.rmse:.4g} COS {worst.cos:.6f}"


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed
    sys.exit(main())
