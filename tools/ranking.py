"""How well `brings` ranks convolutions: against intervention in the integer model, on pictures held out.

    python tools/ranking.py --net rfb --data ../shared/data
    python tools/ranking.py --net "digits conv0" --net convolutional --seed 1
    python tools/ranking.py --short                one small net, few pictures: shows that it works

A domain is a group of convolutions that are raised together. Its `brings` is what `tune --explain -i` and `diagnose`
measure on 16 pictures, in the float approximation; the truth is the outputs' error with it alone at 8 bits in the
integer model, against all at 16, on all other pictures. Each run draws its 16 pictures anew. Told are Spearman's rank
correlation over the domains that bring something at all, the same of the truth on one half of the pictures held out
with that on the other half (no ranking can be expected to be nearer to the truth than the truth is to itself), and
whether the domain named first is the one that truly brings most.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent))

from plants.small_quantised import NETS, healthy_net, pictures, scale_channel, write

if TYPE_CHECKING:
    from sgsdump.comparison.metrics import Sums
    from sgsdump.fixedpoint.quantisation.calibration import Calibration
    from sgsdump.fixedpoint.quantisation.objective import Totals
    from sgsdump.fixedpoint.quantisation.trials.plan_trial import Domain
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import (
        LabelledPictureFeed,
        LayerSensitivity,
        SensitivityAnalysis,
    )
    from sgsdump.models.model import Model

MEASURED, DRAWN = 16, 40
SHORT_MEASURED, SHORT_DRAWN, SHORT_RUNS = 4, 10, 2
# The demo's trained net, with another channel of another tensor made loud in each.
TRAINED = {f"digits {tensor}": tensor for tensor in ("conv0", "block1/dw", "block2/dw", "block3/dw", "block4/dw")}
LOUD = 24.0
SMALL = {net.__name__: net for net in NETS}
RFB_INI = """[INPUT_CONFIG]
inputs = input;
training_input_formats = RGB;
input_formats = RGB;
mean_red = 127;
mean_green = 127;
mean_blue = 127;
std_value = 128;
[OUTPUT_CONFIG]
outputs = scores,boxes;
dequantizations = TRUE,TRUE;
"""


@dataclass(frozen=True)
class Net:
    """A model, its input_config.ini, and the folders of its pictures."""

    model: Path
    config: Path
    images: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """One draw of pictures: rank correlation, that of the truth on one half of the pictures held out with the other,
    and whether the first is right; ``halves``: whether those two agree on it; ``near``: what the first one named brings
    over what the true first brings."""

    spearman: float
    ceiling: float
    first: bool
    halves: bool
    near: float


@dataclass(frozen=True)
class Draws:
    """How often pictures are drawn, and how many of them each time."""

    count: int
    measured: int
    seed: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", choices=["rfb", *TRAINED, *SMALL], help="default: all but rfb")
    parser.add_argument("--level", default="L1", help="calibration level (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the files of rfb")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--short", action="store_true", help="run only the first small model on ten images with two seeds"
    )
    args = parser.parse_args()
    drawn, measured = (SHORT_DRAWN, SHORT_MEASURED) if args.short else (DRAWN, MEASURED)
    names = args.net or ([*SMALL][:1] if args.short else [*TRAINED, *SMALL])
    print(
        "| net | domains | Spearman, lowest and mean | ceiling, mean | true first named first | halves agree | share |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            net = _net(name, Path(folder), args.data, np.random.default_rng(args.seed), drawn)
            draws = Draws(SHORT_RUNS if args.short else args.runs, measured, args.seed)
            domains, runs = ranked(net, args.level, draws)
        spearman = [run.spearman for run in runs]
        print(
            f"| {name} {args.level} | {domains} | {min(spearman):.3f}, {np.mean(spearman):.3f} | "
            f"{np.mean([run.ceiling for run in runs]):.3f} | {sum(run.first for run in runs)} of {len(runs)} | "
            f"{sum(run.halves for run in runs)} of {len(runs)} | {min(run.near for run in runs):.2f} |",
            flush=True,
        )
    return 0


def ranked(net: Net, level: str, draws: Draws) -> tuple[int, list[Run]]:
    """How many domains there are, and the run of each draw."""
    from sgsdump.fixedpoint.quantisation.calibration import calibrate
    from sgsdump.fixedpoint.quantisation.objective import total
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.fixedpoint.tuning.measured_advice import labelled
    from sgsdump.fixedpoint.tuning.sensitivity_analysis import SensitivityAnalysis
    from sgsdump.fixedpoint.verbs.network import open_float_model
    from sgsdump.models.feeds.by_content import PicturePairs
    from sgsdump.models.feeds.feeds import PictureFeeds
    from sgsdump.models.model import graph_inputs
    from sgsdump.sidecars import input_config

    config = input_config.read(net.config)
    model = open_float_model(net.model, None, config)
    specs = tuple(graph_inputs(model.proto))
    both = [PictureFeeds(images, None, specs, config) for images in net.images]
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(path for feeds in both for (path,) in feeds.runs):
            (Path(folder) / f"{number:03}{Path(path).suffix}").symlink_to(Path(path).resolve())
        calibration = calibrate(model, PictureFeeds(folder, None, specs, config), config, level)
        feeds = list(labelled(PicturePairs(PictureFeeds(folder, None, specs, config))))

    class Kept(SensitivityAnalysis):
        """Keeps the sums of the outputs with each domain alone at 8 bits, so that a picture is measured once for all
        draws."""

        def _sensitivity(self, domain: Domain, scores: Any, as_is: Totals) -> LayerSensitivity:
            lowered = total(scores.down[domain.name]).sums
            alone[-1].append({name: lowered[name] for name in self.judged})
            return super()._sensitivity(domain, scores, as_is)

    alone: list[list[dict[str, Sums]]] = []
    side = side_ranges(calibration.statistics)
    trial = Kept(model, calibration.ranges, config, level != "L1", side=side)
    for feed in feeds:
        alone.append([])
        trial.measure([feed])
    brings = [list(of_domain) for of_domain in zip(*alone)]
    truth = intervened(model, calibration, trial, feeds)
    rng = np.random.default_rng((draws.seed, 1))
    orders = [rng.permutation(len(feeds)) for _ in range(draws.count)]
    parts = [(order[: draws.measured], order[draws.measured :]) for order in orders]
    return len(trial.trial.domains), [_run(brings, truth, *part) for part in parts]


def intervened(
    model: Model, calibration: Calibration, trial: SensitivityAnalysis, feeds: Sequence[LabelledPictureFeed]
) -> list[list[dict[str, Sums]]]:
    """By domain and picture the outputs' sums in integers with this domain alone at 8 bits, against all at 16."""
    from sgsdump.comparison.sums.summation import pair_sums
    from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.fixedpoint.quantisation.tensor_arrays import RaisedInputs
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import FixedOutputs
    from sgsdump.tensors.tensor import Values

    side, words = side_ranges(calibration.statistics), RaisedInputs(trial.trial.analysis).words

    def outputs(raised: Sequence[str]) -> list[dict[str, np.ndarray]]:
        arrays = tuple(dict.fromkeys(word for name in raised for word in words[name]))
        config = replace(calibration.config, tensor_arrays=arrays)
        graph = FixedOutputs(model, make_fixed(model, calibration.ranges, config, side=side).proto, trial.judged)
        return [graph.run(feed, raw) for _, feed, raw in feeds]

    every = [domain.inputs for domain in trial.trial.domains]
    best = outputs([name for inputs in every for name in inputs])
    truth = []
    for index in range(len(every)):
        ours = outputs([name for other, inputs in enumerate(every) if other != index for name in inputs])
        truth.append([{n: pair_sums(Values(a[n]), Values(b[n])) for n in trial.judged} for a, b in zip(ours, best)])
    return truth


def _run(
    measured: Sequence[Sequence[dict[str, Sums]]],
    truth: Sequence[Sequence[dict[str, Sums]]],
    drawn: np.ndarray,
    held_out: np.ndarray,
) -> Run:
    brings = _errors(measured, drawn)
    true = _errors(truth, held_out)
    halves = [_errors(truth, half) for half in (held_out[::2], held_out[1::2])]
    return Run(
        spearman(brings, true),
        spearman(*halves),
        bool(brings.argmax() == true.argmax()),
        bool(halves[0].argmax() == halves[1].argmax()),
        float(true[brings.argmax()] / true.max()),
    )


def _errors(truth: Sequence[Sequence[dict[str, Sums]]], chosen: Sequence[int]) -> np.ndarray:
    from sgsdump.comparison.metrics import merged_sums
    from sgsdump.fixedpoint.quantisation.objective import output_error

    names = list(truth[0][0])
    return np.array([output_error({n: merged_sums([of[i][n] for i in chosen]) for n in names}) for of in truth])


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """The correlation of ranks, equal values sharing the mean of theirs; 1 for a single value."""
    if len(a) < 2:
        return 1.0
    ranks = [np.array([(np.sum(x < v) + np.sum(x <= v) - 1) / 2 for v in x]) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def _make_sick(path: Path, tensor: str, rng: np.random.Generator) -> None:
    """Every channel before a convolution as loud as the others, but for one of this tensor; float values stay."""
    proto = onnx.load(path)
    weights = {one.name: numpy_helper.to_array(one).copy() for one in proto.graph.initializer}
    readers = {"conv0": "block1/dw"} | {f"block{n}/dw": f"block{n}/pw" for n in (1, 2, 3, 4)}
    for before, reader in readers.items():
        ours, theirs = weights[f"{before}_filter"], weights[f"{reader}_filter"]
        factors = 1 / np.sqrt((ours**2).sum((1, 2, 3)))
        factors[rng.integers(len(factors))] *= LOUD if before == tensor else 1
        ours *= factors[:, None, None, None]
        weights[f"{before}_bias"] *= factors
        theirs /= factors[:, None, None, None] if theirs.shape[1] == 1 else factors[:, None, None]
    for one in proto.graph.initializer:
        one.CopyFrom(numpy_helper.from_array(weights[one.name], one.name))
    onnx.save(proto, path)


def _net(name: str, folder: Path, data: Path, rng: np.random.Generator, drawn: int) -> Net:
    if name == "rfb":
        (folder / "input_config.ini").write_text(RFB_INI)
        model = data / "ultraface" / "version-RFB-320_without_postprocessing.onnx"
        return Net(model, folder / "input_config.ini", (str(data / "images"), str(data / "ultraface" / "images")))
    if name in TRAINED:
        from sgsdump.files.process import working_in
        from sgsdump.fixedpoint.commands import demo

        with working_in(folder):
            digits = demo._digits()
            demo._lay_out(digits)
            for number, image in enumerate(digits.images[:32]):
                demo._save_picture(Path("pictures") / f"more{number}.png", image)
            _make_sick(Path("digits.onnx"), TRAINED[name], rng)
        return Net(folder / "digits.onnx", folder / "input_config.ini", (str(folder / "pictures"),))
    values = pictures(rng, folder, drawn)
    net = healthy_net(rng, values, SMALL[name])
    scale_channel(net, str(rng.choice(sorted(net.links))), 0, 20.0)
    write(net, folder)
    return Net(folder / "net.onnx", folder / "input_config.ini", (str(folder / "pictures"),))


if __name__ == "__main__":
    sys.exit(main())
