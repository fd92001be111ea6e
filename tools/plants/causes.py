"""Causes that no INT16 cures, or that cost some where none is needed: of the calibration pictures, their normalisation,
given ranges, an operator, weights of one scale.

``diagnose`` must name the cause first, and what it advises must bring the outputs within the limits with no more
convolutions at 16 bits than the smallest of all subsets that does, and one. Subsets are tried in the hardware's
integers, with the cause there and with it put right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from onnx import helper
from PIL import Image

from plants.outcome import Outcome, sgsdump
from plants.quantisation import with_ends
from plants.small_quantised import NETS, Builder, Net, healthy_net, pictures, run, with_normalisations, write

LEVELS = ("L1", "L2", "L3", "L5")
TRIES = 12
LEAST_COS, MOST_RMSE = 0.99, 0.1
GOOD_RMSE, GOOD_COS = 0.07, 0.996
PREPROCESS = """import numpy as np
from PIL import Image

def image_preprocess(path, norm=True):
    picture = np.asarray(Image.open(path).convert("RGB"), np.float32){order}
    return (picture - 127) / 64 if norm else picture
"""
CONFIG = ["--input-config", "input_config.ini"]


@dataclass(frozen=True)
class Case:
    """words  what diagnose is given, besides the model and the level; ``reasons`` that are right, and the ``inputs`` or
    names that are, () for any.
    cure   the words of a calibration with the cause put right, and the model it is of.
    """

    words: tuple[str, ...]
    reasons: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    cure: tuple[str, ...] = ("-m", "net.onnx", "-i", "pictures", *CONFIG)
    broken: tuple[str, ...] = ()
    level_after: str = ""


# Plants a cause in the net and files of a folder.
Fault = Callable[[np.random.Generator, Path, Net, np.ndarray, str, float], Case]


def dim_set(rng, folder, net, data, level, strength):
    """Calibrated and diagnosed on the same dim pictures."""
    _changed(folder, "dim", lambda a: a // 6)
    return Case(("-i", "dim", *CONFIG), ("flat pictures",), ("data",))


def black_set(rng, folder, net, data, level, strength):
    _changed(folder, "black", lambda a: a * 0)
    return Case(("-i", "black", *CONFIG), ("flat pictures",), ("data",))


def dim_ranges(rng, folder, net, data, level, strength):
    """Calibrated on dim pictures, diagnosed on others."""
    _changed(folder, "dim", lambda a: a // 6)
    return _of_ranges(folder, level, ["-i", "dim", *CONFIG], ("unlike pictures",))


def flat_ranges(rng, folder, net, data, level, strength):
    """Calibrated on pictures of little contrast."""
    _changed(folder, "flat", lambda a: (0.12 / strength * (a.astype(float) - 127) + 127).astype(np.uint8))
    return _of_ranges(folder, level, ["-i", "flat", *CONFIG], ("unlike pictures", "normalisation"))


def odd_picture(rng, folder, net, data, level, strength):
    """One array of the calibration is 30 times as large."""
    _arrays(folder, data, {int(rng.integers(len(data))): 30.0})
    odd = next(p.name for p in sorted((folder / "arrays").iterdir()) if np.abs(np.load(p)).max() > 40)
    (folder / "kept").mkdir()
    for path in (folder / "arrays").iterdir():
        if path.name != odd:
            (folder / "kept" / path.name).write_bytes(path.read_bytes())
    return Case(("-i", "arrays"), ("odd picture",), (odd,), ("-m", "net.onnx", "-i", "kept"), ("-i", "arrays"))


def wide_ranges(rng, folder, net, data, level, strength):
    """The same, of a calibration made before."""
    _arrays(folder, data, {0: 30.0})
    (folder / "kept").mkdir()
    for path in sorted((folder / "arrays").iterdir())[1:]:
        (folder / "kept" / path.name).write_bytes(path.read_bytes())
    case = _of_ranges(folder, level, ["-i", "arrays"], ("wide ranges",), ["-i", "kept"])
    return replace(case, cure=("-m", "net.onnx", "-i", "kept"))


def wrong_mean(rng, folder, net, data, level, strength):
    _config(folder, "wrong.ini", mean=float(rng.choice([0, 60, 104])))
    return _preprocessed(folder, "", "normalisation")


def wrong_std(rng, folder, net, data, level, strength):
    _config(folder, "wrong.ini", std=float(rng.choice([1, 128, 255])))
    return _preprocessed(folder, "", "normalisation")


def wrong_order(rng, folder, net, data, level, strength):
    """input_config.ini says BGR of what the preprocess file makes RGB."""
    text = (folder / "input_config.ini").read_text()
    (folder / "wrong.ini").write_text(re.sub(r"input_formats = RGB", "input_formats = BGR", text))
    return _preprocessed(folder, "", "channel order")


def not_as_trained(rng, folder, net, data, level, strength):
    """Bytes as they are, from 0 to 1, or less Caffe's mean, where (byte - 127) / 64 was trained with; no file says
    otherwise, or the preprocess file does the same."""
    with_normalisations(rng, net, data)
    write(net, folder)
    mean, std = [(0.0, 1.0), (0.0, 255.0), (115.0, 1.0)][rng.integers(3)]
    _config(folder, "wrong.ini", mean=mean, std=std)
    words = ("-i", "pictures", "--input-config", "wrong.ini")
    if rng.random() < 0.5:
        text = PREPROCESS.format(order="").replace("(picture - 127) / 64", f"(picture - {mean:g}) / {std:g}")
        (folder / "preprocess.py").write_text(text)
        words += ("-n", "preprocess.py")
    return Case(words, ("unlike training",), ("data",))


def mean_of_ranges(rng, folder, net, data, level, strength):
    """Calibrated with another mean or std than it is diagnosed with."""
    other = {"mean": 0.0} if rng.random() < 0.5 else {"std": float(rng.choice([1, 16, 255]))}
    _config(folder, "wrong.ini", **other)
    return _of_ranges(
        folder, level, ["-i", "pictures", "--input-config", "wrong.ini"], ("normalisation",), data=("data",)
    )


def order_of_ranges(rng, folder, net, data, level, strength):
    """Calibrated on pictures of the opposite order."""
    text = (folder / "input_config.ini").read_text()
    (folder / "wrong.ini").write_text(re.sub(r"input_formats = RGB", "input_formats = BGR", text))
    return _of_ranges(
        folder, level, ["-i", "pictures", "--input-config", "wrong.ini"], ("channel order",), data=("data",)
    )


def clipped_range(rng, folder, net, data, level, strength):
    tensor = str(rng.choice(sorted(net.links)))
    values = run(net, data, [tensor])[tensor]
    part = 0.5 / (1 + strength)
    sgsdump(
        "calibrate", "-m", "net.onnx", "-i", "pictures", *CONFIG, "--quant-level", level, "-o", "f.onnx", folder=folder
    )
    ends = {tensor: (float(values.min() * part), float(values.max() * part))}
    text = with_ends((folder / "log/tensor_min_max.txt").read_text(), ends)
    (folder / "wrong.txt").write_text(text)
    words = ("-i", "pictures", *CONFIG, "--ranges", "wrong.txt")
    return Case(words, ("clipped",), (tensor,), broken=("--quant-file", "wrong.txt"))


def large_add(rng, folder, net, data, level, strength):
    """A large constant is added, and taken off again."""
    tensor = str(rng.choice(sorted(net.links)))
    readers = net.links[tensor][1]
    height = float(rng.choice([1e4, 3e4, 6e4]) * strength)
    net.constants |= {"high": np.float32([height]), "high2": np.float32([height])}
    at = 1 + max(index for index, node in enumerate(net.nodes) if tensor in node.output)
    for node in net.nodes[at:]:
        if node.name in readers:
            node.input[0] = "low"
    net.nodes[at:at] = [
        helper.make_node("Add", [tensor, "high"], ["raised"], name="raised"),
        helper.make_node("Sub", ["raised", "high2"], ["low"], name="low"),
    ]
    (folder / "kept.onnx").write_bytes((folder / "net.onnx").read_bytes())
    write(net, folder)
    return Case(("-i", "pictures", *CONFIG), ("operator",), ("raised",), ("-m", "kept.onnx", "-i", "pictures", *CONFIG))


def first_weights(rng, folder, net, data, level, strength):
    """An output channel of the first convolution has large weights and is 0 after its Relu all the same."""
    channel = int(rng.integers(8))
    net.constants["c0.w"][channel] *= 30 * strength
    net.constants["c0.b"][channel] = -float(np.abs(net.constants["c0.w"][channel]).sum()) * 3
    write(net, folder)
    case = Case(("-i", "pictures", *CONFIG), ("weights per tensor",), ("c0",))
    return replace(case, level_after="L2")


def _of_ranges(folder, level, calibrated_on, reasons, words=("-i", "pictures", *CONFIG), data=()):
    sgsdump("calibrate", "-m", "net.onnx", *calibrated_on, "--quant-level", level, "-o", "f.onnx", folder=folder)
    (folder / "log/tensor_min_max.txt").rename(folder / "wrong.txt")
    return Case((*words, "--ranges", "wrong.txt"), reasons, data, broken=("--quant-file", "wrong.txt"))


def _preprocessed(folder, order, reason):
    (folder / "preprocess.py").write_text(PREPROCESS.format(order=order))
    given = ("-i", "pictures", "-n", "preprocess.py", "--input-config")
    cure = ("-m", "net.onnx", *given, "input_config.ini")
    return Case((*given, "wrong.ini"), (reason,), ("data",), cure, (*given, "wrong.ini"))


def _config(folder, name, mean=127.0, std=64.0):
    text = (folder / "input_config.ini").read_text().replace("= 127;", f"= {mean:g};").replace("= 64;", f"= {std:g};")
    (folder / name).write_text(text)


def _changed(folder, name, change):
    (folder / name).mkdir()
    for path in sorted((folder / "pictures").iterdir()):
        Image.fromarray(change(np.asarray(Image.open(path)))).save(folder / name / path.name)


def _arrays(folder, data, factors: Mapping[int, float]):
    (folder / "arrays").mkdir()
    for number, array in enumerate(data):
        np.save(folder / "arrays" / f"{number:02}.npy", (array[None] * factors.get(number, 1.0)).astype(np.float32))


def _cast(rng: np.random.Generator, folder: Path, strength: float) -> np.ndarray:
    """The pictures with a cast: red or blue bright and lively, the opposite one dark and dull."""
    turned = int(rng.choice([-1, 1]))
    cast = (np.float64([30, 0, -30]) * strength)[::turned]
    contrast = np.float64([1.2, 0.5, 0.15 / strength])[::turned]
    arrays = []
    for path in sorted((folder / "pictures").iterdir()):
        picture = np.asarray(Image.open(path)).astype(np.float64)
        picture = ((picture - 127) * contrast + 127 + cast).clip(0, 255).astype(np.uint8)
        Image.fromarray(picture).save(path)
        arrays.append((picture.astype(np.float32).transpose(2, 0, 1)[None] - 127) / 64)
    return np.concatenate(arrays)


def _opponent(builder: Builder) -> None:
    """A net whose first convolution takes blue from red, or red from blue."""
    NETS[builder.rng.integers(len(NETS))](builder)
    weights = builder.net.constants["c0.w"]
    weights[:, 0], weights[:, 2] = np.abs(weights[:, 0]), -np.abs(weights[:, 2])
    weights *= builder.rng.choice([-1, 1], (len(weights), 1, 1, 1))


def _planted(fault: Fault, levels=LEVELS):
    def plant(rng: np.random.Generator, folder: Path) -> Outcome:
        level = str(rng.choice(levels))
        for attempt in range(TRIES):
            place = folder / str(attempt)
            place.mkdir()
            data = pictures(rng, place)
            if fault is order_of_ranges:
                data = _cast(rng, place, 1.0 + attempt // 3)
            net = healthy_net(rng, data, _opponent if fault is order_of_ranges else None)
            write(net, place)
            case = fault(rng, place, net, data, level, 1.0 + attempt // 3)
            after = case.level_after or level
            if not _good(_outputs(place, case.cure, after)):
                continue
            # A cause that costs nothing is none; of preprocess files and flat pictures it shows in other data.
            in_network = case.reasons[0] in ("operator", "weights per tensor")
            if in_network and _holds(_outputs(place, ("-m", "net.onnx", "-i", "pictures", *CONFIG), level)):
                continue
            if "--quant-file" in case.broken:
                given = [word for word in case.words if word not in ("--ranges", "wrong.txt")]
                if _holds(_outputs(place, ("-m", "net.onnx", *given, *case.broken), level)):
                    continue
            return _diagnosed(place, case, level)
        raise RuntimeError(f"{fault.__name__}: no net of {TRIES} shows it")

    return plant


def _diagnosed(folder: Path, case: Case, level: str) -> Outcome:
    done = sgsdump("diagnose", "-m", "net.onnx", *case.words, "--quant-level", level, "-o", "diagnosis", folder=folder)
    document = json.loads((folder / "diagnosis/layers.json").read_text())
    causes = [f for f in document["findings"] if f["kind"] == "cause"]
    named = tuple(f"{f['facts'].get('reason')}: {f['facts'].get('input')}" for f in causes)
    first = done.stdout.lstrip().splitlines()
    told = next((line for line in first[:3] if line.startswith("Cause: ")), "")
    if not told:
        named = ("nothing in the first line", *named)
    right = {n for n in named for reason in case.reasons if n.startswith(f"{reason}: ")
             and (not case.inputs or n.endswith(case.inputs))}  # fmt: skip
    return Outcome(frozenset(right or case.reasons), named, told, restored=_restores(folder, case, level))


def _restores(folder: Path, case: Case, level: str) -> bool:
    """Whether the advised plan, with the cause put right, brings the outputs within the limits with no more
    convolutions at 16 bits than the fewest that do, and one. A plan for another network than that is none."""
    from sgsdump.errors import ConfigError

    ini = (folder / "diagnosis/input_config.ini").read_text()
    found = re.search(r"tensor_arrays\s*=\s*'([^']*)'", ini)
    advised = tuple(name for name in (found[1].split(",") if found else ()) if name)
    level = case.level_after or level
    try:
        outputs = _outputs(folder, case.cure, level, advised)
    except ConfigError:
        return False
    return _holds(outputs) and len(advised) <= 1 + _fewest(folder, case.cure, level)


def _fewest(folder: Path, words: tuple[str, ...], level: str) -> int:
    """The size of the smallest subset of inputs at 16 bits that brings the outputs within the limits."""
    domains = _outputs(folder, words, level).domains
    for size in range(len(domains) + 1):
        for names in combinations(domains, size):
            if _holds(_outputs(folder, words, level, names)):
                return size
    return len(domains)


@dataclass(frozen=True)
class _Found:
    rmse: float
    cos: float
    domains: tuple[str, ...]


def _holds(found: _Found) -> bool:
    return found.rmse <= MOST_RMSE and found.cos >= LEAST_COS


def _good(found: _Found) -> bool:
    return found.rmse <= GOOD_RMSE and found.cos >= GOOD_COS


def _outputs(folder: Path, words: tuple[str, ...], level: str, raised: tuple[str, ...] = ()) -> _Found:
    """The worst output of a calibration with these words, all at 8 bits but for what is ``raised``."""
    from sgsdump.fixedpoint.quantisation.calibration import calibrate
    from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
    from sgsdump.fixedpoint.quantisation.ranges.statistics import side_ranges
    from sgsdump.fixedpoint.quantisation.trials.integer_outputs import outputs_of
    from sgsdump.fixedpoint.quantisation.trials.plan_trial import PlanTrial
    from sgsdump.fixedpoint.verbs.network import open_network
    from sgsdump.models.network import named_network
    from sgsdump.sidecars.tensor_min_max import read_ranges

    given = dict(zip(words[::2], words[1::2]))
    path = folder / given["-m"]
    preprocess = str(folder / given["-n"]) if "-n" in given else None
    config_path = folder / given["--input-config"] if "--input-config" in given else None
    beside = {"preprocess": preprocess, "input_config": config_path}
    opened = open_network(named_network(path, str(folder / given["-i"]), beside), level, guesses=True)
    model, config, feeds = opened.model, opened.config, opened.feeds()
    lower = {"L5": "L3", "L4": "L2"}.get(level, level)
    calibration = calibrate(model, feeds, config, lower)
    ranges = calibration.ranges
    if "--quant-file" in given:
        ranges = {**ranges, **{n: r for n, r in read_ranges(folder / given["--quant-file"]).items() if n in ranges}}
    side = side_ranges(calibration.statistics)
    fixed = make_fixed(model, ranges, replace(config, tensor_arrays=raised), True, level != "L1", side)
    labelled = (feeds.both(index) for index in range(len(feeds)))
    names = [output.name for output in model.proto.graph.output]
    (outputs,) = outputs_of(model, [fixed.proto], labelled, names)
    trial = PlanTrial(model, calibration.ranges, config, level != "L1")
    figures = outputs.outputs.values()
    domains = tuple(domain.name for domain in trial.domains)
    return _Found(max(f.rmse for f in figures), min(f.cos for f in figures), domains)


def healthy(rng: np.random.Generator, folder: Path) -> Outcome:
    """Nothing is planted: whatever the data is given as, no cause may be named."""
    level = str(rng.choice(LEVELS))
    for attempt in range(TRIES):
        place = folder / str(attempt)
        place.mkdir()
        data = pictures(rng, place)
        net = healthy_net(rng, data)
        if rng.random() < 0.5:
            with_normalisations(rng, net, data)
        write(net, place)
        if _good(_outputs(place, ("-m", "net.onnx", "-i", "pictures", *CONFIG), level)):
            break
    words = ["-i", "pictures", *CONFIG]
    way = int(rng.integers(4))
    if way == 1:
        (place / "preprocess.py").write_text(PREPROCESS.format(order=""))
        words += ["-n", "preprocess.py"]
    if way == 2:
        _arrays(place, data, {})
        words = ["-i", "arrays"]
    if way == 3:  # calibrated on half of the pictures
        (place / "half").mkdir()
        for path in sorted((place / "pictures").iterdir())[::2]:
            (place / "half" / path.name).write_bytes(path.read_bytes())
        sgsdump(
            "calibrate", "-m", "net.onnx", "-i", "half", *CONFIG, "--quant-level", level, "-o", "f.onnx", folder=place
        )
        words += ["--ranges", "log/tensor_min_max.txt"]
    done = sgsdump("diagnose", "-m", "net.onnx", *words, "--quant-level", level, "-o", "diagnosis", folder=place)
    told = [line for line in done.stdout.splitlines() if line.startswith("The cause: ")]
    document = json.loads((place / "diagnosis/layers.json").read_text())
    from sgsdump.fixedpoint.tuning.examined import REASONS

    named = [f["facts"]["reason"] for f in document["findings"] if f["kind"] == "cause" and told]
    return Outcome(frozenset(), tuple(name for name in named if name in REASONS), told[0] if told else "")


PLANTS = {
    "dim_set": _planted(dim_set),
    "black_set": _planted(black_set),
    "dim_ranges": _planted(dim_ranges),
    "flat_ranges": _planted(flat_ranges),
    "odd_picture": _planted(odd_picture),
    "wide_ranges": _planted(wide_ranges),
    "wrong_mean": _planted(wrong_mean),
    "wrong_std": _planted(wrong_std),
    "wrong_order": _planted(wrong_order),
    "not_as_trained": _planted(not_as_trained),
    "mean_of_ranges": _planted(mean_of_ranges),
    "order_of_ranges": _planted(order_of_ranges),
    "clipped_range": _planted(clipped_range),
    "large_add": _planted(large_add),
    "first_weights": _planted(first_weights, ("L1",)),
    "healthy": healthy,
}
