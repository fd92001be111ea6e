"""Inference of an input_config.ini that was not given.

The model's inputs show their formats. The user's preprocess file shows channel order, mean and std. The file is run on
images of one colour that differ in red, green or blue. The colour that changes a channel of the result is the channel's
colour, and the size of the change gives the std. This method needs no ``norm=False``, and works with cropping, padding
and resizing. If it fails, one image is preprocessed both raw and normalised, if the file supports both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sgsdump.errors import InputError, SgsdumpError
from sgsdump.models.feeds import picture
from sgsdump.models.feeds.feeds import InputSpec, feed_maker
from sgsdump.models.feeds.image_list import are_arrays
from sgsdump.models.feeds.preprocess_file import load_preprocess
from sgsdump.models.model import fit
from sgsdump.sidecars.input_config import COLOURS, InputConfig, ModelInput, ModelOutput, output_section
from sgsdump.tensors.dtypes import is_integer

PLAIN_STD = 255.0
# Rounding an image to bytes costs half a grey level; a preprocess file that rounds elsewhere costs another half.
MOST_LEVELS = 1.0
_MORE = "does more than (image - mean) / std"
# Alignment of an image if the model's size is open: networks that halve it up to five times add the results.
ALIGNED = 32
_CHANNELS = {"RGB": 3, "GRAY": 1}
# Training formats of SDK 1.1.5: a network of one channel is trained as RGB, and GRAY on the board.
_TRAINED = {"RGB": "RGB", "BGR": "BGR", "GRAY": "RGB"}
_OPPOSITE = {"RGB": "BGR", "BGR": "RGB"}
_DARK, _BRIGHT = 64, 192
# Sides of a generated image if the user gave none: for open sizes, and the maximum.
MADE_SIDE, MOST_MADE = 256, 4096


@dataclass(frozen=True)
class Assumed:
    """An inferred configuration, and sentences that describe its assumptions."""

    config: InputConfig
    sentences: tuple[str, ...]


def takes_pictures(specs: Sequence[InputSpec], run: Sequence[str]) -> bool:
    """Return whether the files of a run feed an image input: 4-D, one or three channels, and not an array.

    ``run`` is () for a data loader.
    """
    return bool(run) and any(
        _picture_format(spec)[0] and not are_arrays(files) for spec, files in zip(specs, _by_input(specs, run))
    )


def assume_config(
    specs: Sequence[InputSpec],
    outputs: Sequence[str],
    preprocess: str | None,
    run: tuple[str, ...],
    told: InputConfig | None = None,
) -> Assumed:
    """Infer the configuration.

    run   files of one run, for the preprocess file; () if a data loader gives arrays
    told  the user's configuration, for the channel order of arrays, which no image shows

    Raises the errors of ``feed_maker`` and of the user's file on a normalised image.
    """
    orders = {entry.name: entry.training_format for entry in told.inputs} if told is not None else {}
    found = _found(specs, preprocess, run, orders) if preprocess is not None and run else None
    inputs, sentences = [], ["no --input-config given; inferred default settings"]
    for spec, files in zip(specs, _by_input(specs, run)):
        entry, sentence = _input(spec, files, None if found is None else found[spec.name])
        inputs.append(entry)
        sentences.append(sentence)
    return Assumed(InputConfig(tuple(inputs), tuple(ModelOutput(name, True) for name in outputs)), tuple(sentences))


def _by_input(specs: Sequence[InputSpec], run: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the files that feed each input: one of several, or the one file that feeds all."""
    return [(file,) for file in run] if len(run) == len(specs) else [tuple(run)] * len(specs)


def ini_text(config: InputConfig) -> str:
    """Return the configuration as input_config.ini for SDK 1.1.5, without [CONV_CONFIG]."""
    pictures = [entry for entry in config.inputs if entry.is_picture]
    lines = ["[INPUT_CONFIG]", f"inputs = {','.join(entry.name for entry in config.inputs)};"]
    lines += [f"training_input_formats = {','.join(entry.training_format for entry in config.inputs)};"]
    lines += [f"input_formats = {','.join(entry.input_format for entry in config.inputs)};"]
    if pictures:
        for colour, key in enumerate(COLOURS):
            lines += [f"{key} = {','.join(_number(entry.mean[colour]) for entry in pictures)};"]
        lines += [f"std_value = {','.join(_std(entry.std) for entry in pictures)};"]
    for key, sizes in (
        ("input_width_alignment", [entry.width_alignment for entry in config.inputs]),
        ("input_height_alignment", [entry.height_alignment for entry in config.inputs]),
    ):
        if ALIGNED in sizes:
            lines.append(f"{key} = {','.join(map(str, sizes))};")
    return "\n".join([*lines, "", output_section(config.outputs)])


def _number(value: float) -> str:
    return f"{value:.10g}"


def _triple(values: Sequence[float]) -> str:
    return ":".join(map(_number, values))


def _std(values: Sequence[float]) -> str:
    return _triple(values if len(set(values)) > 1 else values[:1])


@dataclass(frozen=True)
class _Normalisation:
    """Normalisation of an input by a preprocess file.

    form         GRAY, RGB or BGR; None if the input is not such an image, with the reason ``why``
    means, stds  by channel of the result
    """

    form: str | None
    means: tuple[float, ...] = ()
    stds: tuple[float, ...] = ()
    why: str = ""


def made_up_run(specs: Sequence[InputSpec], folder: Path) -> tuple[str, ...]:
    """Write an image of random colours for each input, of the input's size, to ``folder``.

    The images are for a preprocess file that may not resize, if there are no other images.
    """
    run = []
    for index, spec in enumerate(specs):
        _, axis = _picture_format(spec)
        sizes = spec.shape[2:] if axis == 1 else spec.shape[1:3]
        height, width = (
            [min(size or MADE_SIDE, MOST_MADE) for size in sizes] if len(spec.shape) == 4 else [MADE_SIDE] * 2
        )
        colours = np.random.default_rng(0).integers(0, 256, (-(-height // 40), -(-width // 40), 3)).astype(np.uint8)
        path = folder / f"random_{index}.png"
        _save(colours.repeat(40, 0).repeat(40, 1)[:height, :width], path)
        run.append(str(path))
    return tuple(run)


def _found(
    specs: Sequence[InputSpec], preprocess: str, run: tuple[str, ...], orders: Mapping[str, str]
) -> dict[str, _Normalisation]:
    """Return the normalisation of each input by the preprocess file; ``orders``: channel orders if not detectable."""
    normalised = feed_maker(preprocess, specs)(run)  # raises errors of the file immediately
    raw = None
    with suppress(SgsdumpError):
        raw = feed_maker(preprocess, specs, normalised=False)(run)
    files = [name.strip() for name in preprocess.split(",")]
    found = {}
    for spec, preprocess_file, files_of in zip(specs, files, _by_input(specs, run)):
        own, own_raw = normalised[spec.name], None if raw is None else raw[spec.name]
        by_colour, takes_norm = None, load_preprocess(preprocess_file).takes_norm
        form, axis = _picture_format(spec)
        if form and len(files_of) == 1 and not are_arrays(files_of):
            by_colour = _by_colours(spec, preprocess_file, Path(files_of[0]))
        if by_colour is None or by_colour.form is None or (takes_norm and own_raw is None):
            found[spec.name] = _of_both(spec, own, own_raw, orders.get(spec.name))
            continue
        mean, std = (
            np.moveaxis(np.reshape(values, (1, 1, 1, -1)), 3, axis) for values in (by_colour.means, by_colour.stds)
        )
        levels = own * std + mean
        shown = levels.clip(0, 255) if own_raw is None else own_raw
        agrees = np.abs(levels - shown).max() <= MOST_LEVELS
        found[spec.name] = by_colour if agrees else _Normalisation(None, why=_MORE)
    return found


def _by_colours(spec: InputSpec, preprocess: str, like: Path) -> _Normalisation | None:
    """Determine the normalisation from images of one colour, as large as ``like``; None if not possible."""
    loaded = load_preprocess(preprocess)
    height = width = MADE_SIDE
    with suppress(InputError):  # a file of another type, which only the user's Python reads
        height, width = picture.decode(like).shape[:2]
    colours = [[_DARK] * 3, *([_BRIGHT if c == one else _DARK for c in range(3)] for one in range(3))]
    colours += [[(_DARK + _BRIGHT) // 2] * 3, [_BRIGHT] * 3]
    made = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, colour in enumerate(colours):
                path = Path(folder) / f"{number}.png"
                _save(np.full((height, width, 3), colour, np.uint8), path)
                made.append(fit(loaded(str(path)), spec, loaded.layout, "a picture").astype(np.float64))
    except SgsdumpError:
        return None
    return _of_colours([np.moveaxis(array, _picture_format(spec)[1], 1) for array in made])


def _of_colours(made: Sequence[np.ndarray]) -> _Normalisation | None:
    """Return the normalisation from [N, C, H, W] results for images: dark, more red, green, blue, grey, bright."""
    dark, *_, bright = made
    moved = np.abs(bright - dark) > 1e-6
    forms, means, stds = [], [], []
    for channel in range(dark.shape[1]):
        where = moved[:, channel]
        if not where.any():
            return None
        base, *ones, middle, most = (float(np.median(array[:, channel][where])) for array in made)
        rises = np.array(ones) - base
        rise = most - base
        std = (_BRIGHT - _DARK) / rise if rise > 0 else 0.0
        bent = max(abs(rises.sum() - rise), abs(middle - (base + most) / 2)) * std > MOST_LEVELS
        if bent or not std:
            return _Normalisation(None, why=_MORE)
        means.append(_few_digits(_DARK - base * std, 0.02))
        stds.append(_few_digits(std, 2e-4 * std))
        forms.append(int(np.argmax(rises)) if rises.max() > 0.9 * rise else None)
    order: dict[tuple[int | None, ...], str] = {(0, 1, 2): "RGB", (2, 1, 0): "BGR", (None, None, None): "RGB"}
    form = "GRAY" if len(forms) == 1 else order.get(tuple(forms))
    if form is None:
        return _Normalisation(None, why="mixes the colours of the image")
    return _Normalisation(form, tuple(means), tuple(stds))


def _few_digits(value: float, within: float) -> float:
    """Return the value with few digits, as in the user's file."""
    rounded = (_rounded(value, digits) for digits in range(3, 9))
    return next((near for near in rounded if abs(near - value) <= within), value)


def _save(pixels: np.ndarray, path: Path) -> None:
    from PIL import Image

    Image.fromarray(pixels).save(path)


def _of_both(
    spec: InputSpec, normalised: np.ndarray, raw: np.ndarray | None, order: str | None = None
) -> _Normalisation:
    """Return the normalisation from one image, raw and normalised; ``order``: RGB or BGR of the raw image."""
    form, axis = _picture_format(spec)
    if raw is None:
        return _Normalisation(None, why="gives no raw image (norm=False)")
    fitted = fit_normalisation(raw, normalised, axis)
    if form != "RGB" or order not in _OPPOSITE:
        return _Normalisation(None, why=_MORE) if fitted is None else _Normalisation(form, *fitted)
    if fitted is not None:
        return _Normalisation(order, *fitted)
    turned = fit_normalisation(np.flip(raw, axis), normalised, axis)
    return _Normalisation(None, why=_MORE) if turned is None else _Normalisation(_OPPOSITE[order], *turned)


def _picture_format(spec: InputSpec) -> tuple[str | None, int]:
    """Return the image format and the channel axis of the input's shape; None if not an image."""
    for form, channels in _CHANNELS.items():
        if len(spec.shape) == 4 and spec.shape[1] == channels:
            return form, 1
    for form, channels in _CHANNELS.items():
        if len(spec.shape) == 4 and spec.shape[3] == channels:
            return form, 3
    return None, 1


def _input(spec: InputSpec, files: Sequence[str], found: _Normalisation | None) -> tuple[ModelInput, str]:
    form, axis = _picture_format(spec)
    if form is None or not files or (found is None and are_arrays(files)):
        return _as_it_is(spec.name), f"input {spec.name!r} holds numbers that are used unchanged, not an image"
    if found is None:
        std = 1.0 if is_integer(spec.dtype) else PLAIN_STD
        made = f"divided by {std:g} (mean 0, std_value {std:g})" if std != 1 else f"of bytes (type {spec.dtype})"
        last = ", channels last" if axis == 3 else ""
        sizes = [size for index, size in enumerate(spec.shape) if index not in (0, axis)]
        aligned = ALIGNED if None in sizes else 1
        if aligned > 1:
            last += f", open sizes from the image, rounded down to a multiple of {aligned}"
        how = (
            f"{'an' if form == 'RGB' else 'a'} {form} image {made}{last}; if the model was trained differently, "
            f"all results are for the wrong input"
        )
        entry = ModelInput(
            spec.name, _TRAINED[form], form, std=(std,) * 3, width_alignment=aligned, height_alignment=aligned
        )
        return entry, f"input {spec.name!r} is {how}"
    if found.form is None:
        return _as_it_is(spec.name), (
            f"input {spec.name!r} holds numbers, not an image of bytes: the preprocess file {found.why}"
        )
    means, stds = ((values * 3)[:3] if len(values) == 1 else values for values in (found.means, found.stds))
    if found.form == "BGR":  # input_config.ini lists red first in any channel order
        means, stds = means[::-1], stds[::-1]
    how = (
        f"mean {_triple(means)}, std_value {_triple(stds)} and is {found.form}, measured by running the preprocess "
        f"file on an image"
    )
    return ModelInput(spec.name, _TRAINED[found.form], found.form, means, stds), f"input {spec.name!r} has {how}"


def _as_it_is(name: str) -> ModelInput:
    return ModelInput(name, "RAWDATA_F32_NHWC", "RAWDATA_F32_NHWC", (), ())


def fit_normalisation(
    raw: np.ndarray, normalised: np.ndarray, axis: int = 1
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Fit mean and std of each channel (``axis``) by least squares; None if the error exceeds a grey level."""
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
        # Prefer few digits if equally good, as in the user's file.
        far = [float(np.abs(y * std + mean - x).max()) for mean, std in fits]
        best = next(index for index, error in enumerate(far) if error <= min(far) + 0.001)
        if far[best] > MOST_LEVELS:
            return None
        means.append(fits[best][0])
        stds.append(fits[best][1])
    return tuple(means), tuple(stds)


def _rounded(value: float, digits: int) -> float:
    """Round to significant digits; values close to 0 become 0."""
    return 0.0 if abs(value) < 1e-3 else float(f"{value:.{digits}g}")
