"""Run the whole loop (calibrate, simulate, compare, tune) on a built-in model.

examples:
  sgsdump demo
  sgsdump demo -o sgsdump_demo

the sample:
  The sample is a small model that recognises handwritten digits. The input
  channels of two convolutions have very different scales on purpose: the float
  results stay the same, but INT8 loses accuracy. The demo prints each command
  and runs the command in the demo folder, so that you can repeat the command
  there. No files and no internet connection are needed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import add_output

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.models.model import Model

SAMPLES = Path(__file__).parents[2] / "samples"
INPUT, OUTPUT = "image", "prob"
MEAN, STD = 127.0, 128.0
TUNED = "fixed, tuned"
INPUT_CONFIG = f"""\
[INPUT_CONFIG]
inputs = {INPUT};
training_input_formats = GRAY;
input_formats = GRAY;
quantizations = TRUE;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;

[OUTPUT_CONFIG]
outputs = prob,logits;
dequantizations = TRUE,TRUE;
"""
DEBUG_CONFIG = "dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "folder to write (default: %(default)s)", "DIR", Path("sgsdump_demo"))


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import check_folder, make_folder, set_aside
    from sgsdump.files.process import working_in
    from sgsdump.models.model import open_model

    check_folder(args.output)
    aside = set_aside(args.output)
    if aside:
        print(f"moved the older {args.output} aside to {aside}")
    make_folder(args.output)
    digits = _digits()
    with working_in(args.output):
        _lay_out(digits)
        _type("calibrate -m digits.onnx -i pictures --input-config input_config.ini --quant-level L1 -o fixed.onnx")
        models = _models()
        answers = {kind: _answers(model, digits.images, raw=kind != "float") for kind, model in models.items()}
        picked = _first_spoilt(answers, digits.labels)
        _save_picture(Path("digit.png"), digits.images[picked])
        _dump("simulate -m digits.onnx -t Float -i digit.png --input-config input_config.ini", "float.bin")
        _dump("simulate -m fixed.onnx -t Fixed -i digit.png", "fixed.bin")
        _type("compare fixed.bin float.bin")
        _type("report fixed.bin float.bin --ranges log/tensor_min_max.txt")
        _type("histogram float.bin log/tensor_min_max.txt")
        _type("tune --first -m digits.onnx -i pictures --input-config input_config.ini -o tuned")
        answers[TUNED] = _answers(open_model("tuned/optimized.onnx"), digits.images, raw=True)
    print(f"\nAccuracy on {len(digits.labels)} digits")
    for kind, answer in answers.items():
        print(f"  {kind:26} {(answer == digits.labels).mean():.2f}")
    planted = _planted(models["float"])
    print(f"Made hard to quantise on purpose: {', '.join(planted.values())} (read by {' and '.join(planted)})")
    print(f"Rounds of tune: {args.output / 'tuned' / 'rounds.txt'}")
    print(f"Reports: {args.output / 'report.html'}, and after tuning {args.output / 'tuned' / 'report.html'}")
    print(f"Charts: {args.output / 'Histograms'}; begin with {args.output / 'Histograms' / 'overview.png'}")
    return 0


@dataclass(frozen=True, eq=False)
class Digits:
    """Test images (uint8 [N, 8, 8]) with their digits ``labels``, and calibration images."""

    images: np.ndarray
    labels: np.ndarray
    calibration: np.ndarray


def _digits() -> Digits:
    import numpy as np

    with np.load(SAMPLES / "digits.npz", allow_pickle=False) as data:
        return Digits(data["images"], data["labels"], data["calibration"])


def _lay_out(digits: Digits) -> None:
    """Write the files that a user would have: model, configuration, calibration images."""
    Path("digits.onnx").write_bytes((SAMPLES / "digits.onnx").read_bytes())
    Path("input_config.ini").write_text(INPUT_CONFIG, encoding="utf-8")
    Path("DebugConfig.txt").write_text(DEBUG_CONFIG, encoding="utf-8")
    Path("pictures").mkdir()
    for number, image in enumerate(digits.calibration):
        _save_picture(Path("pictures") / f"{number:02}.png", image)


def _models() -> dict[str, Model]:
    """Return the float model, the new fixed model, and a fixed model at all INT16 for comparison."""
    from sgsdump.fixedpoint.quantisation.calibration_log import read_side_ranges
    from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
    from sgsdump.fixedpoint.quantisation.float_model import simplify
    from sgsdump.models.model import open_model
    from sgsdump.sidecars import input_config
    from sgsdump.sidecars.tensor_min_max import read_ranges

    model = simplify(open_model("digits.onnx"))
    log = Path("log/tensor_min_max.txt")
    ranges = read_ranges(log)
    config = replace(input_config.read("input_config.ini"), conv_format="ALL_INT16")
    return {
        "float": model,
        "fixed, INT8": open_model("fixed.onnx"),
        "fixed, INT16 (ALL_INT16)": replace(
            model, proto=make_fixed(model, ranges, config, side=read_side_ranges(log)).proto
        ),
    }


def _answers(model: Model, images: np.ndarray, raw: bool) -> np.ndarray:
    """Return the digit that a model recognises in each image."""
    import numpy as np

    from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner

    runner = SegmentRunner(model, keep_sessions=True)
    seen = []
    for image in images.astype(np.float32):
        feed = {INPUT: (image if raw else (image - MEAN) / STD)[None, None].astype(np.float32)}
        (layer,) = runner.run(feed, only={OUTPUT})
        seen.append(int(layer.array.argmax()))
    return np.array(seen)


def _first_spoilt(answers: dict[str, np.ndarray], labels: np.ndarray) -> int:
    """Return the first image that the float model recognises and the INT8 model does not."""
    import numpy as np

    return int(np.argmax((answers["float"] == labels) & (answers["fixed, INT8"] != labels)))


def _planted(model: Model) -> dict[str, str]:
    """Return the deliberately damaged convolutions, with the tensor that each reads."""
    names = next(entry.value for entry in model.proto.metadata_props if entry.key == "planted").split(",")
    return {node.name: node.input[0] for node in model.proto.graph.node if node.name in names}


def _save_picture(path: Path, image: np.ndarray) -> None:
    from PIL import Image

    Image.fromarray(image).save(path)


def _dump(command: str, name: str) -> None:
    _type(command)
    print(f"$ mv sigma_outtensor_dump.bin {name}")
    Path("sigma_outtensor_dump.bin").rename(name)


def _type(command: str) -> None:
    """Run a command as a user would type it; its errors end the demo."""
    from sgsdump.commands.parser import build_parser, called

    print(f"\n$ sgsdump {command}")
    words = command.split()
    args = build_parser(called(words)).parse_args(words)
    args.run(args)
