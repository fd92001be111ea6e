"""The subject of a diagnosis: a float model, its fixed model, the ranges between them, and how pictures are normalised.

Where no input_config.ini was given, one is assumed: the model's inputs show what they take, and the user's preprocess
file shows its mean and std by one picture made both ways, raw and normalised, where it can make both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sgsdump.errors import ConfigError, ModelError, SgsdumpError
from sgsdump.executors.workers.task_pool import ALONE, Workers
from sgsdump.models.feeds.feeds import Feed, InputSpec, PictureFeeds, feed_maker
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.progress import SILENT, Progress
from sgsdump.quantisation.calibration import Calibration, calibrate
from sgsdump.quantisation.calibration_log import read_log
from sgsdump.quantisation.fixed_facts import read_facts
from sgsdump.quantisation.fixed_model import make_fixed, rehearse
from sgsdump.quantisation.pictures import MOST_LEVELS
from sgsdump.quantisation.quant_file import import_params, read_quant_file
from sgsdump.quantisation.quant_plan import QuantPlan
from sgsdump.quantisation.ranges.statistics import NOTHING_BESIDE, SideRanges, side_ranges
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput, output_section
from sgsdump.tensors.dtypes import is_integer
from sgsdump.tensors.types import Range

PLAIN_STD = 255.0
_CHANNELS = {"RGB": 3, "GRAY": 1}


@dataclass(frozen=True, eq=False)
class Subject:
    """config  how pictures are normalised; its [CONV_CONFIG] is the user's.
    ranges  of the float model's tensors, {} where they are not known.
    made    what calibration found and what was decided, where it was made here.
    notes   of the fixed model, where it was made here.
    side    what it is made of besides the ranges, with ``weights_per_channel`` where these name no weights.
    """

    float_model: Model
    fixed_model: Model
    config: InputConfig
    ranges: Mapping[str, Range]
    per_channel: bool
    made: tuple[Calibration, QuantPlan] | None = None
    notes: tuple[str, ...] = ()
    side: SideRanges = NOTHING_BESIDE
    weights_per_channel: bool = False


def calibrated(
    model: Model,
    feeds: PictureFeeds,
    config: InputConfig,
    level: str,
    progress: Progress = SILENT,
    workers: Workers = ALONE,
) -> Subject:
    """As ``sgsdump calibrate`` makes the fixed model."""
    rehearse(model, feeds[0], config)
    calibration = calibrate(model, feeds, config, level, workers=workers, progress=progress)
    side = side_ranges(calibration.statistics)
    fixed = make_fixed(model, calibration.ranges, calibration.config, side=side)
    fixed_model = replace(model, proto=fixed.proto)
    made = calibration, fixed.plan
    return Subject(model, fixed_model, config, calibration.ranges, level != "L1", made, fixed.notes, side)


def of_ranges(model: Model, path: Path, config: InputConfig) -> Subject:
    """The fixed model of ranges that exist already: a log's tensor_min_max.txt, with what lies beside it, or a quant
    file. Raises what reading these and ``make_fixed`` raise."""
    beside, side = read_log(path, model, weights=True)
    params = [*read_quant_file(path), *beside]
    given = import_params(model, params, config, where=str(path), one_per_tensor=not beside)
    fixed = make_fixed(given.model, given.ranges, given.config, per_channel=bool(beside), side=side)
    fixed_model = replace(model, proto=fixed.proto)
    per_channel = bool(beside)
    return Subject(given.model, fixed_model, config, given.ranges, per_channel, None, fixed.notes, side, per_channel)


def given_fixed(model: Model, path: Path, config: InputConfig | None) -> Subject:
    """A fixed model that exists already; it remembers its own configuration. Raises ModelError, ConfigError."""
    fixed = open_model(path)
    facts = read_facts(fixed)
    if facts is None:
        raise ModelError(f"{path} is not a fixed model made by sgsdump calibrate; leave --fixed out to make one")
    if facts.origin is None or not facts.origin.inputs:
        if config is None:
            raise ConfigError(f"{path} does not say how its pictures are normalised; give --input-config too")
    else:
        own = InputConfig(facts.origin.inputs)
        config = own if config is None else replace(config, inputs=own.inputs)
    _check_inputs(model, fixed, path)
    ranges = facts.origin.ranges if facts.origin else {}
    per_channel = any(isinstance(weights.scale, tuple) for weights in facts.weights.values())
    side = SideRanges(facts.origin.channels) if facts.origin else NOTHING_BESIDE
    return Subject(model, fixed, config, ranges, per_channel, side=side)


def _check_inputs(model: Model, fixed: Model, path: Path) -> None:
    own, others = ({spec.name for spec in graph_inputs(each.proto)} for each in (model, fixed))
    if own != others:
        raise ModelError(
            f"{path} is the fixed model of another net: its inputs are {', '.join(sorted(others))}, those of "
            f"{model.path} {', '.join(sorted(own))}"
        )


@dataclass(frozen=True)
class Assumed:
    """A configuration that was made up, and sentences on what it assumes."""

    config: InputConfig
    sentences: tuple[str, ...]


def assume_config(
    specs: Sequence[InputSpec], outputs: Sequence[str], preprocess: str | None, run: tuple[str, ...]
) -> Assumed:
    """``run``: the files of one run, for the preprocess file. Raises what ``feed_maker`` raises, and what the user's
    file raises on a normalised picture."""
    both = _made_both_ways(specs, preprocess, run) if preprocess is not None else None
    inputs, sentences = [], ["no input_config.ini was given (--input-config), so one was made up"]
    for spec, file in zip(specs, run if len(run) == len(specs) else run * len(specs)):
        entry, sentence = _input(spec, Path(file), both)
        inputs.append(entry)
        sentences.append(sentence)
    return Assumed(InputConfig(tuple(inputs), tuple(ModelOutput(name, True) for name in outputs)), tuple(sentences))


def ini_text(config: InputConfig) -> str:
    """The configuration as input_config.ini, without [CONV_CONFIG]."""
    pictures = [entry for entry in config.inputs if entry.is_picture]
    lines = ["[INPUT_CONFIG]", f"inputs = {','.join(entry.name for entry in config.inputs)};"]
    lines += [f"training_input_formats = {','.join(entry.training_format for entry in config.inputs)};"]
    lines += [f"input_formats = {','.join(entry.input_format for entry in config.inputs)};"]
    if pictures:
        lines += [f"mean = {','.join(_triple(entry.mean) for entry in pictures)};"]
        lines += [f"std_value = {','.join(_triple(entry.std) for entry in pictures)};"]
    return "\n".join([*lines, "", output_section(config.outputs)])


def _triple(values: Sequence[float]) -> str:
    return ":".join(f"{value:.10g}" for value in values)


def _made_both_ways(specs: Sequence[InputSpec], preprocess: str, run: tuple[str, ...]) -> tuple[Feed, Feed | None]:
    """One picture normalised and raw; None for what the file cannot make."""
    normalised = feed_maker(preprocess, specs)(run)
    try:
        return normalised, feed_maker(preprocess, specs, normalised=False)(run)
    except SgsdumpError:
        return normalised, None


def _input(spec: InputSpec, file: Path, both: tuple[Feed, Feed | None] | None) -> tuple[ModelInput, str]:
    form, axis = _picture_format(spec)
    if form is None or (both is None and file.suffix.lower() == ".npy"):
        return _as_it_is(spec.name), f"input {spec.name!r} is taken as numbers that go in as they are, no picture"
    if both is None:
        std = 1.0 if is_integer(spec.dtype) else PLAIN_STD
        made = f"divided by {std:g} (mean 0, std_value {std:g})" if std != 1 else f"of bytes, as its {spec.dtype} says"
        last = ", its channels last" if axis == 3 else ""
        how = (
            f"{'an' if form == 'RGB' else 'a'} {form} picture {made}{last}; if it was trained otherwise, every figure "
            f"here is of another input"
        )
        return ModelInput(spec.name, form, form, std=(std,) * 3), f"input {spec.name!r} is taken as {how}"
    normalised, raw = both
    fitted = None if raw is None else fit_normalisation(raw[spec.name], normalised[spec.name], axis)
    if fitted is None:
        why = "gives no raw picture (norm=False)" if raw is None else "does more than (picture - mean) / std"
        return _as_it_is(spec.name), (
            f"input {spec.name!r} is taken as numbers, not as a picture of bytes: the preprocess file {why}"
        )
    means, stds = ((values * 3)[:3] if len(values) == 1 else values for values in fitted)
    how = f"mean {_triple(means)}, std_value {_triple(stds)}, as the preprocess file normalises one picture"
    return ModelInput(spec.name, form, form, means, stds), f"input {spec.name!r} has {how}"


def _picture_format(spec: InputSpec) -> tuple[str | None, int]:
    """The picture format that the input's shape is of, and the axis of its channels; None for no picture's."""
    for form, channels in _CHANNELS.items():
        if len(spec.shape) == 4 and spec.shape[1] == channels:
            return form, 1
    for form, channels in _CHANNELS.items():
        if len(spec.shape) == 4 and spec.shape[3] == channels:
            return form, 3
    return None, 1


def _as_it_is(name: str) -> ModelInput:
    return ModelInput(name, "RAWDATA_F32_NHWC", "RAWDATA_F32_NHWC", (), ())


def fit_normalisation(
    raw: np.ndarray, normalised: np.ndarray, axis: int = 1
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Mean and std of each channel (``axis``) by least squares; None where they do not make the one of the other
    within a grey level."""
    means, stds = [], []
    for channel in range(raw.shape[axis]):
        x, y = (array.take(channel, axis).astype(np.float64).ravel() for array in (raw, normalised))
        spread = x - x.mean()
        slope = float(spread @ y) / (float(spread @ spread) or 1.0)
        if not slope > 0:
            return None
        fits = [
            (_rounded(x.mean() - y.mean() / slope, digits), _rounded(1 / slope, digits)) for digits in (3, 4, 5, 6, 8)
        ]
        # few digits where they do as well: those of the user's own file
        far = [float(np.abs(y * std + mean - x).max()) for mean, std in fits]
        best = next(index for index, error in enumerate(far) if error <= min(far) + 0.001)
        if far[best] > MOST_LEVELS:
            return None
        means.append(fits[best][0])
        stds.append(fits[best][1])
    return tuple(means), tuple(stds)


def _rounded(value: float, digits: int) -> float:
    """So many significant digits; next to nothing is nothing."""
    return 0.0 if abs(value) < 1e-3 else float(f"{value:.{digits}g}")
