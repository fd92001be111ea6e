#!/usr/bin/env python3
"""What ``sgsdump cure`` brings on a detector, judged on pictures that it never saw, beside onnxruntime's quantiser.

    python benchmarks/cure.py MODEL.onnx -i pictures/ --judge faces/ [--validate others/] [--level L2] [--all-int16]

MODEL is UltraFace (outputs ``scores`` and ``boxes``; Linzaer, Ultra-Light-Fast-Generic-Face-Detector-1MB, MIT), for
pictures normalised as (x - 127) / 128. One line each: squared error of boxes and scores relative to the float model,
the faces found as the float model finds them (IoU 0.9), seconds. -i may be several folders or files, so may --judge.
--no-peers leaves onnxruntime out, --cures tries these alone: both together are the short setting. Models that other
tools quantised (``cure_peers.py``) are judged by --quantised FILE...
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import ultraface_boxes

from sgsdump.fixedpoint.curing.cure import cure
from sgsdump.fixedpoint.curing.steps import CURES, CureOptions
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.quantisation.quant_file import import_params
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.models.passes.lift import lift
from sgsdump.sidecars import input_config

INI = """[INPUT_CONFIG]
inputs = input;
training_input_formats = RGB;
input_formats = RGB;
quantizations = TRUE;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
"""
OUTPUTS = ("boxes", "scores")
Outputs = Mapping[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("-i", "--image", nargs="+", required=True)
    parser.add_argument("--judge", nargs="+", required=True)
    parser.add_argument("--validate", nargs="+")
    parser.add_argument("--level", default="L2")
    parser.add_argument("--cures", default=",".join(CURES))
    parser.add_argument("--all-int16", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--feeds", type=Path, metavar="FILE.npz", help="write the normalised pictures, and no more")
    parser.add_argument("--quantised", type=Path, nargs="+", metavar="FILE", help="judge these, and no more")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "input_config.ini").write_text(INI)
        config = input_config.read(work / "input_config.ini")
        if args.all_int16:
            config = replace(config, conv_format="ALL_INT16")
        source = open_model(args.model)
        specs = tuple(graph_inputs(source.proto))

        def feeds(name: str, paths: Sequence[str]) -> PictureFeeds:
            return PictureFeeds(listed(work / f"{name}.txt", paths), None, specs, config)

        pictures, judged = feeds("calibrate", args.image), feeds("judge", args.judge)
        validate = feeds("validate", args.validate) if args.validate else None
        if args.feeds:
            np.savez(args.feeds, feeds=np.stack([next(iter(feed.values())) for _, feed in pictures]))
            return
        table = Table(source, [in_bytes(*judged.both(i)[1:]) for i in range(len(judged))])
        original = opened(source)
        table.line("as it is", lambda: fixed_of(original, pictures, config, args.level), config)
        for path in args.quantised or ():
            table.run(path.stem, (onnx_session(onnx.load(path)), 0.0))
        if args.quantised:
            return

        def cured() -> tuple[Model, object]:
            result = cure(source, pictures, config, CureOptions(args.level, tuple(args.cures.split(","))), validate)
            for step in result.steps:
                print(f"    {step.cure}: {'taken' if step.taken else 'left out'}, {dict(step.errors)}", flush=True)
            rewritten = opened(replace(source, proto=result.proto))
            return fixed_of(rewritten, pictures, config, args.level, result.params)

        table.line("cured", cured, config)
        if not args.no_peers:
            for name, options in PEERS.items():
                table.run(name, peer(source, pictures, work, options))


class Table:
    """Prints a line for each way of quantising."""

    def __init__(self, source: Model, pictures: Sequence[tuple[Outputs, Outputs]]):
        self.pictures = pictures
        session = onnx_session(source.proto)
        self.decoded = any(node.op_type == "Exp" for node in source.proto.graph.node)
        self.floats = [dict(zip(OUTPUTS, session.run(OUTPUTS, dict(feed)))) for feed, _ in pictures]
        self.first: dict[str, float] = {}
        print(f"{'':34} boxes              scores             faces  seconds (of {sum(map(len, self.faces()))} faces)")

    def faces(self) -> list[np.ndarray]:
        return [self.found(outputs) for outputs in self.floats]

    def found(self, outputs: Outputs) -> np.ndarray:
        if not self.decoded:
            return ultraface_boxes.faces(outputs)
        return ultraface_boxes.apart(outputs["boxes"][0], outputs["scores"][0, :, 1])

    def line(self, name: str, make: Callable[[], tuple[Model, object]], config: input_config.InputConfig) -> None:
        begun = time.perf_counter()
        model, fixed = make()
        seconds = time.perf_counter() - begun
        graph = FixedOutputs(model, fixed, OUTPUTS)  # type: ignore[arg-type]
        self.show(name, [graph.run(feed, raw) for feed, raw in self.pictures], seconds)

    def run(self, name: str, made: tuple[object, float]) -> None:
        session, seconds = made
        runs = [dict(zip(OUTPUTS, session.run(OUTPUTS, dict(feed)))) for feed, _ in self.pictures]  # type: ignore[attr-defined]
        self.show(name, runs, seconds)

    def show(self, name: str, runs: Sequence[Outputs], seconds: float) -> None:
        errors = {}
        for output in OUTPUTS:
            away = sum(
                float(((a[output] - b[output]).astype(np.float64) ** 2).sum()) for a, b in zip(runs, self.floats)
            )
            errors[output] = away / sum(float((b[output].astype(np.float64) ** 2).sum()) for b in self.floats)
        self.first = self.first or errors
        faces = sum(ultraface_boxes.same(self.found(a), self.found(b)) for a, b in zip(runs, self.floats))
        shown = "  ".join(f"{errors[o]:.3e} ({errors[o] / self.first[o]:5.3f})" for o in OUTPUTS)
        print(f"{name:34} {shown}  {faces:5d}  {seconds:.0f}", flush=True)


def in_bytes(feed: Outputs, raw: Outputs) -> tuple[Outputs, Outputs]:
    """Both models get a picture's bytes: what rounding a resized picture to bytes costs is none of quantising's."""
    return {name: ((raw[name] - 127) / 128).astype(np.float32) for name in feed}, raw


def listed(path: Path, names: Sequence[str]) -> str:
    """A list file of the pictures in folders and of files."""
    files = [file for name in names for file in (sorted(Path(name).iterdir()) if Path(name).is_dir() else [Path(name)])]
    path.write_text("\n".join(str(file.resolve()) for file in files) + "\n")
    return str(path)


def opened(model: Model) -> Model:
    simple = simplify(model)
    return replace(simple, proto=lift(simple.proto))


def fixed_of(model, pictures, config, level, params=None):
    """As ``sgsdump calibrate`` makes it, with the entries of a quant file."""
    calibration = calibrate(model, pictures, config, level)
    ranges = calibration.ranges
    if params is not None:
        ranges = {**ranges, **import_params(model, params, config).ranges}
    fixed = make_fixed(model, ranges, calibration.config, side=side_ranges(calibration.statistics))
    return model, fixed.proto


PEERS = {
    "onnxruntime, QDQ": {},
    "onnxruntime, QDQ, per channel": {"per_channel": True},
    "onnxruntime, QDQ, percentile": {"per_channel": True, "method": "Percentile"},
}


def peer(source: Model, pictures: PictureFeeds, work: Path, options: Mapping[str, object]) -> tuple[object, float]:
    from onnxruntime import quantization as ort
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(ort.CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter(pictures)

        def get_next(self) -> Outputs | None:
            one = next(self.feeds, None)
            return None if one is None else dict(one[1])

    begun = time.perf_counter()
    plain, ready, made = (work / f"{name}.onnx" for name in ("plain", "ready", "quantised"))
    onnx.save(lift(source.proto), plain)
    quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
    method = ort.CalibrationMethod[str(options.get("method", "MinMax"))]
    ort.quantize_static(
        str(ready),
        str(made),
        Reader(),
        per_channel=bool(options.get("per_channel", False)),
        calibrate_method=method,
        activation_type=ort.QuantType.QUInt8,
        weight_type=ort.QuantType.QInt8,
    )
    return onnx_session(onnx.load(made)), time.perf_counter() - begun


def onnx_session(proto) -> object:
    """Unoptimised: without VNNI the kernels of 8-bit products saturate, which is none of the quantiser's doing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(proto.SerializeToString(), options)


if __name__ == "__main__":
    main()
