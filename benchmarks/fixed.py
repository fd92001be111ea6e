"""One run of the fixed model in the hardware's integers against a run of the float model it was made from.

For UINT8 and for ALL_INT16, on UltraFace at level L1: processor time of one run on one thread and on two, which wait
without spinning, and the memory that a process with the session takes; all as ratios to the float model's. The least of
several runs counts, taken in turns, for other work on the machine only adds. Then how far both outputs are from the
float model's over pictures with faces, as root mean square, against the fake-quantised form of the same plan.

    python benchmarks/fixed.py [--short] [DATA]

DATA holds ultraface/ (model, images/) and images/; by default ../shared/data beside the checkout.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from sgsdump.fixedpoint.quantisation.calibration import Calibration, calibrate
from sgsdump.fixedpoint.quantisation.fixed_model import FixedModel, make_fixed
from sgsdump.fixedpoint.quantisation.float_model import deployed, pictures_of, serialise
from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
from sgsdump.fixedpoint.quantisation.trials.qdq_graph import quantise
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.models.feeds.feeds import PictureFeeds, feeds
from sgsdump.models.model import Model, graph_inputs
from sgsdump.sidecars.input_config import InputConfig, ModelInput

MODEL = "ultraface/version-RFB-320_without_postprocessing.onnx"
CONFIG = InputConfig((ModelInput("input", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),))
RUNS, RUNS_SHORT = 30, 8


def session(path: Path, threads: int):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def least(calls: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Processor seconds of the fastest of ``runs`` calls each, taken in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for turn in range(runs + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn:  # the first one warms up
                best[name] = min(best[name], time.process_time() - start)
    return best


def memory(path: Path, feed: np.ndarray) -> float:
    """MiB that a process has taken at most after three runs."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, feed)
        file.flush()
        program = [sys.executable, __file__, "--memory", str(path), file.name]
        return float(subprocess.run(program, capture_output=True, text=True, check=True).stdout)


def print_memory(path: str, feed: str) -> None:
    model = session(Path(path), 1)
    for _ in range(3):
        model.run(None, {"input": np.load(feed)})
    status = Path("/proc/self/status").read_text()
    print(float(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024)  # type: ignore[index]


def fake(model: Model, calibration: Calibration, fixed: FixedModel) -> bytes:
    """The same plan in float32 between QuantizeLinear and DequantizeLinear."""
    return serialise(quantise(deployed(model), fixed.plan, pictures_of(model, CONFIG, calibration.ranges)))


def root_mean_squares(models: dict[str, Path], pairs: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, list[float]]:
    """Of every fixed model's difference from the float one, for each output, over all pictures."""
    sessions = {name: session(path, 0) for name, path in models.items()}
    floats = [sessions["float"].run(None, {"input": real}) for real, _ in pairs]
    found = {}
    for name in models.keys() - {"float"}:
        runs = [sessions[name].run(None, {"input": raw}) for _, raw in pairs]
        squares = [[np.mean((a - b) ** 2) for a, b in zip(ours, real)] for ours, real in zip(runs, floats)]
        found[name] = np.sqrt(np.mean(squares, axis=0)).tolist()
    return found


def main(data: Path, runs: int) -> None:
    model = open_float_model(data / MODEL, None, CONFIG)
    specs = tuple(graph_inputs(model.proto))
    calibration = calibrate(model, list(PictureFeeds(str(data / "images"), None, specs, CONFIG)), CONFIG, "L1")
    images = str(data / "ultraface" / "images")
    # Both models see the same bytes.
    raws = [feed["input"].astype(np.float32) for _, feed in feeds(images, None, specs, CONFIG, normalised=False)]
    mean, std = (np.float32(each[0]) for each in (CONFIG.inputs[0].mean, CONFIG.inputs[0].std))
    pairs = [((raw - mean) / std, raw) for raw in raws]
    with tempfile.TemporaryDirectory() as folder:
        paths = {"float": Path(folder, "float.onnx")}
        paths["float"].write_bytes(serialise(model.proto))
        for name in ("ALL_UINT8", "ALL_INT16"):
            config = replace(CONFIG, conv_format=name)
            made = make_fixed(model, calibration.ranges, config, side=side_ranges(calibration.statistics))
            assert not made.approximate, made.approximate
            paths[name], paths[f"fake {name}"] = (Path(folder, f"{kind}{name}.onnx") for kind in ("", "fake"))
            paths[name].write_bytes(serialise(made.proto))
            paths[f"fake {name}"].write_bytes(fake(model, calibration, made))
        for threads in (1, 2):
            opened = {name: session(path, threads) for name, path in paths.items()}
            calls = {
                name: lambda each=each, at=name != "float": each.run(None, {"input": pairs[0][at]})
                for name, each in opened.items()
            }
            seconds = least(calls, runs)
            for name in paths:
                ratio = seconds[name] / seconds["float"]
                print(f"threads: {threads}  {name:15} {1e3 * seconds[name]:7.1f} ms  x{ratio:.2f}")
        taken = {name: memory(paths[name], pairs[0][name != "float"]) for name in paths}
        for name, size in taken.items():
            print(f"memory      {name:15} {size:7.1f} MiB x{size / taken['float']:.2f}")
        errors = root_mean_squares(paths, pairs)
        for name in ("ALL_UINT8", "ALL_INT16"):
            for index, output in enumerate(model.proto.graph.output):
                own, other = errors[name][index], errors[f"fake {name}"][index]
                print(f"RMSE of {output.name:8} {name}: {own:.6f}, fake-quantised {other:.6f}: x{own / other:.3f}")


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--memory" in sys.argv:
        print_memory(*given)
    else:
        folder = Path(given[0]) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
        main(folder, RUNS_SHORT if "--short" in sys.argv else RUNS)
