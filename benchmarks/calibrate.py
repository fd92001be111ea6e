"""What the calibration levels give: against the vendor's ranges on the small network, and on a real face detector.

    python benchmarks/calibrate.py [--short]          the rows: rates of L1 and L5 on a small net and a large one
    python benchmarks/calibrate.py tiny        DATA   ranges beside the vendor's, both simulated
    python benchmarks/calibrate.py ultraface   DATA   COS of outputs and layers, on other pictures than calibrated with
    python benchmarks/calibrate.py processes   DATA   seconds of the one pass with 1, 2 and 4 processes

DATA is the folder with sigmastar/, ultraface/ and images/, by default ../shared/data beside the checkout. Errors are
shares of energy: sum((y - r)^2) / sum(r^2).

The floor of L1 is onnxruntime alone: the net without optimisation, as calibration runs it, on the same pictures ready
in memory, a picture on every core; the aim of 0.85 of its rate is 1 / 0.85 = 1.18 of its time. Calibration is given the
same, and then the files, which it reads and prepares anew. The floor of L5 is L1, both in processor time, which other
work on the machine changes less. The small net is the face detector, the other that of ``resnet_like.py``. Of the small
net, which has a BatchNormalization after most convolutions, two more rows in processor time: simulating its fixed
model, and checking that this runs, as of simulating the float one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime as ort
from resnet_like import resnet_like
from rows import Row, show

from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
from sgsdump.executors.workers.task_pool import Workers, in_threads
from sgsdump.files.process import cores
from sgsdump.fixedpoint.quantisation.calibration import LEVELS, calibrate
from sgsdump.fixedpoint.quantisation.fixed_model import check_that_it_runs, make_fixed
from sgsdump.fixedpoint.quantisation.float_model import pictures_of, raw_bytes, simplify
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.models.passes.rewrites import mark_outputs
from sgsdump.sidecars import input_config, input_text
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.sidecars.tensor_min_max import read_ranges
from sgsdump.tensors.types import Range

FACES = InputConfig((ModelInput("input", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
PREPROCESS = """
import cv2
import numpy as np

def image_preprocess(path, norm=True):
    cv2.setUseOptimized(False)
    pixels = cv2.resize(cv2.imread(path).astype(np.float32), (24, 20), interpolation=cv2.INTER_LINEAR)
    return ((pixels - 127) / 128)[None, :, :, ::-1]
"""
# How often the pictures are gone through, and rounds of all ways.
TIMES, ROUNDS = 4, 3
VENDORS_NAMES = {"gap": "gap#/Mul0Output#35"}


class Judge:
    """Every stored tensor of a model under a plan, against the float model's, on some feeds."""

    def __init__(self, model: Model, feeds: Iterable[tuple[str, Mapping[str, np.ndarray]]]):
        self.feeds = [feed for _, feed in feeds]
        self.model = model

    def shares(
        self, ranges: Mapping[str, Range], config: InputConfig, per_channel: bool, raised: Iterable[str]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """(error, COS) by tensor, means over the feeds."""
        trial = PlanTrial(self.model, ranges, config, per_channel)
        stored = [name for operator in trial.analysis.operators for name in operator.outputs]
        trial = PlanTrial(
            replace(self.model, proto=mark_outputs(self.model.proto, stored)), ranges, config, per_channel
        )
        runner = SegmentRunner(self.model, keep_sessions=True)
        pictures = pictures_of(self.model, config, ranges)
        errors: dict[str, list[float]] = {name: [] for name in stored}
        cosines: dict[str, list[float]] = {name: [] for name in stored}
        for feed in self.feeds:
            fed = {name: raw_bytes(array, pictures[name]) for name, array in feed.items()}
            fixed = trial.run(tuple(raised), fed, stored)
            floats = {layer.name: layer.array for layer in runner.run(feed, only=set(stored))}
            for name in stored:
                y, r = (x[name].astype(np.float64).reshape(-1) for x in (fixed, floats))
                errors[name].append(float((y - r) @ (y - r) / (r @ r)))
                cosines[name].append(float(y @ r / np.sqrt((y @ y) * (r @ r))))
        return tuple({n: float(np.mean(v)) for n, v in each.items()} for each in (errors, cosines))  # type: ignore[return-value]


def tiny(data: Path) -> None:
    folder = data / "sigmastar"
    config = input_config.read(folder / "model/input_config.ini")
    model = simplify(open_model(folder / "model/tiny.onnx"))
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "pre.py").write_text(PREPROCESS)
        images = str(folder / "model/calib_images")
        feeds = PictureFeeds(images, f"{place}/pre.py", tuple(graph_inputs(model.proto)), config)
        found = {level: calibrate(model, feeds, config, level) for level in LEVELS}
    norm = input_text.read(folder / "model/in_norm.txt").values.reshape(1, 20, 24, 3).transpose(0, 3, 1, 2)
    judge = Judge(model, [("test.jpg", {"data": np.ascontiguousarray(norm, np.float32)})])
    print(f"{'level':6}{'farthest end':>14}  {'tensor':12}{'logits':>14}{'vendor':>12}{'layers':>14}{'vendor':>12}")
    for level, ours in found.items():
        theirs = read_ranges(folder / "calibration" / f"tiny_{level}" / "tensor_min_max.txt")
        theirs |= {ours_is: theirs[name] for ours_is, name in VENDORS_NAMES.items()}
        distances = {
            name: max(abs(own.low - each.low), abs(own.high - each.high)) / (each.high - each.low)
            for name, each in theirs.items()
            if (own := ours.ranges.get(name)) is not None
        }
        farthest = max(distances, key=lambda name: distances[name])
        raised = [each.domain.name for each in ours.sensitivities if each.raised]
        mine, _ = judge.shares(ours.ranges, config, False, raised)
        vendors, _ = judge.shares(theirs, config, level != "L1", ())
        print(
            f"{level:6}{distances[farthest]:13.2%}   {farthest:12}{mine['fc']:14.3g}{vendors['fc']:12.3g}"
            f"{np.mean(list(mine.values())):14.3g}{np.mean(list(vendors.values())):12.3g}"
        )


def faces(data: Path) -> tuple[Model, PictureFeeds, PictureFeeds]:
    model = simplify(open_model(data / "ultraface/version-RFB-320_without_postprocessing.onnx"))
    specs = tuple(graph_inputs(model.proto))
    calibration, judged = (str(data / "images"), str(data / "ultraface/images"))
    return model, PictureFeeds(calibration, None, specs, FACES), PictureFeeds(judged, None, specs, FACES)


def ultraface(data: Path) -> None:
    model, feeds, shown = faces(data)
    judge = Judge(model, shown)
    print(
        f"{'level':8}{'INT16':>6}{'boxes COS':>11}{'error':>9}{'scores COS':>12}{'error':>9}{'mean COS of layers':>20}"
    )

    def line(name: str, ranges: Mapping[str, Range], raised: list[str]) -> None:
        errors, cosines = judge.shares(ranges, FACES, False, raised)
        print(
            f"{name:8}{len(raised):6}{cosines['boxes']:11.6f}{errors['boxes']:9.2g}{cosines['scores']:12.6f}"
            f"{errors['scores']:9.2g}{np.mean(list(cosines.values())):20.6f}"
        )

    for level in LEVELS:
        found = calibrate(model, feeds, FACES, level)
        line(level, found.ranges, [each.domain.name for each in found.sensitivities if each.raised])
    line("all 16", found.ranges, [domain.name for domain in PlanTrial(model, found.ranges, FACES).domains])


def processes(data: Path) -> None:
    model, feeds, _ = faces(data)
    for count in (1, 2, 4):
        begun = time.perf_counter()
        calibrate(model, feeds, FACES, "L2", workers=Workers(count))
        print(f"{count} processes: {time.perf_counter() - begun:.1f} s for {len(feeds)} pictures")


def rows(data: Path, short: bool) -> list[Row]:
    """The least of some rounds, the ways by turns: other work on the machine only adds."""
    small, every, _ = faces(data)
    config = InputConfig((replace(FACES.inputs[0], name="data"),))
    large = simplify(Model(resnet_like(16 if short else 64), Path("resnet_like.onnx")))
    pictures = replace(every, images=str(data / "ultraface/images")) if short else every
    nets = [("small net", small, FACES, pictures)]
    nets += [("ResNet-like", large, config, replace(pictures, specs=tuple(graph_inputs(large.proto)), config=config))]
    return [row for net in nets for row in _rates(*net, short)] + _fixed(small, every, 1 if short else ROUNDS)


def _fixed(model: Model, pictures: PictureFeeds, rounds: int) -> list[Row]:
    """Of the fixed model: a run that dumps every layer, and the one that ``calibrate`` ends with."""
    some = list(pictures)[:2]
    found = calibrate(model, some, FACES, "L1")
    proto = make_fixed(model, found.ranges, FACES, side=side_ranges(found.statistics)).proto
    fixed, feed = replace(model, proto=proto), some[0][1]
    picture = pictures_of(model, FACES, found.ranges)["input"]
    raw = {"input": raw_bytes(feed["input"], picture)}
    ways = {
        "float": lambda: list(simulate(model, feed).records),
        "fixed": lambda: list(simulate(fixed, raw).records),
        "check": lambda: check_that_it_runs(model, proto, FACES, feed),
    }
    measured = [{way: _seconds(run, time.process_time) for way, run in ways.items()} for _ in range(rounds)]
    least = {way: min(seconds[way] for seconds in measured) for way in ways}
    return [
        Row("simulate, small net: the fixed model as of the float one", least["fixed"], least["float"], 2.5),
        Row("calibrate, small net: the check of the fixed model as of the same", least["check"], least["float"], 1.5),
    ]


def _rates(name: str, model: Model, config: InputConfig, pictures: PictureFeeds, short: bool) -> list[Row]:
    """Of one net. What is done once a calibration is shared by as many pictures as users take, a hundred or so."""
    ready = list(pictures)
    session = _session(model)
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "list.txt"
        listed.write_text("".join(f"{file}\n" for (file,) in pictures.runs) * (1 if short else TIMES))
        many, files = ready * (1 if short else TIMES), replace(pictures, images=str(listed))
        ways = {
            "alone": lambda: list(in_threads(lambda feed: session.run(None, feed[1]), many, cores())),
            "memory": lambda: calibrate(model, many, config, "L1"),
            "files": lambda: calibrate(model, files, config, "L1"),
        }
        rounds = [{way: _seconds(run) for way, run in ways.items()} for _ in range(1 if short else ROUNDS)]
    least = {way: min(seconds[way] for seconds in rounds) for way in ways}
    levels = {level: partial(calibrate, model, pictures, config, level) for level in ("L1", "L5")}
    spent = [
        {level: _seconds(run, time.process_time) for level, run in levels.items()}
        for _ in range(1 if short else ROUNDS)
    ]
    l1, l5 = (min(seconds[level] for seconds in spent) for level in levels)
    return [
        Row(f"calibrate, {name}: L1, pictures in memory, onnxruntime alone", least["memory"], least["alone"], 1.18),
        Row(f"calibrate, {name}: L1, pictures from files, onnxruntime alone", least["files"], least["alone"], 1.18),
        Row(f"calibrate, {name}: L5 as of L1, {len(pictures)} pictures from files", l5, l1, 3),
    ]


def _session(model: Model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _seconds(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    begun = clock()
    run()
    return clock() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="ten pictures and one run: shows that it works")
    parser.add_argument("what", nargs="?", choices=["rows", "tiny", "ultraface", "processes"], default="rows")
    parser.add_argument("data", nargs="?", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    args = parser.parse_args()
    if args.what == "rows":
        show(rows(args.data, args.short))
        return
    {"tiny": tiny, "ultraface": ultraface, "processes": processes}[args.what](args.data)


if __name__ == "__main__":
    main()
