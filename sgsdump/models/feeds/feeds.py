"""Pictures, arrays and the user's preprocess file become feeds: one dictionary of arrays for each run of the model.

A preprocess file is Python with ``get_image(path, ..., nchw=)`` or ``image_preprocess(path, norm=)``. The SDK's
convention: ``get_image(img_path, resizeH=224, ..., norm=True, ..., nchw=False)`` is called with ``nchw=True`` to feed
an ONNX or Caffe model; older files have no ``nchw`` and return NHWC, as ``image_preprocess`` does. ``norm=False`` asks
for the raw 0..255 values a fixed model takes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from sgsdump.errors import InputError
from sgsdump.files.mapped import load_npy
from sgsdump.files.user_module import blaming, import_file
from sgsdump.models.feeds import picture
from sgsdump.models.feeds.image_list import expand, random_seed
from sgsdump.models.input_spec import InputSpec, fit, shape_text
from sgsdump.sidecars import input_text
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.dtypes import is_integer, is_number
from sgsdump.tensors.types import NCHW, NHWC

__all__ = ["Feed", "InputSpec", "PictureFeeds", "board_notes", "expand", "feed_maker", "feeds"]

Feed = dict[str, np.ndarray]
LabelledFeed = tuple[str, Feed]
FUNCTIONS = ("get_image", "image_preprocess")
_Maker = Callable[[str], np.ndarray]


def feeds(
    images: str,
    preprocess: str | None,
    input_specs: Sequence[InputSpec],
    input_config: InputConfig | None = None,
    normalised: bool = True,
) -> Iterator[tuple[str, Feed]]:
    """(label, feed) for each run, made one at a time; the label is the file name, or names with commas.

    images        what ``image_list`` describes; ``len(expand(images, len(input_specs)))`` runs come of it.
    preprocess    the user's Python files, one per input, separated by commas; None for the built-in one, which needs
                  ``input_config``. ``.npy`` goes to the user's file when there is one, else into the model as it is;
                  the SDK's ``Input_shape=`` text always goes in as it is.
    normalised    False asks for raw 0..255 values of every picture input, for the fixed model.

    Raises InputError, ConfigError or MissingExtra at once for what can be known at once (files that are not there,
    a preprocess file that cannot be imported), else while iterating.
    """
    make = feed_maker(preprocess, input_specs, input_config, normalised)
    runs = expand(images, len(input_specs))
    return ((",".join(files), make(files)) for files in runs)


def feed_maker(
    preprocess: str | None,
    input_specs: Sequence[InputSpec],
    input_config: InputConfig | None = None,
    normalised: bool = True,
) -> Callable[[tuple[str, ...]], Feed]:
    """The function from the files of one run (see ``expand``) to its feed; arguments and errors as of ``feeds``."""
    if not input_specs:
        raise InputError("the model has no inputs, so there is nothing to feed it")
    texts = [spec.name for spec in input_specs if not is_number(spec.dtype)]
    if texts:
        raise InputError(f"the model's input {texts[0]!r} takes text, which can be fed by no picture, array or number")
    entries = config_entries(input_specs, input_config)
    makers = _makers(preprocess, input_specs, entries, normalised)

    def make(files: tuple[str, ...]) -> Feed:
        seed = random_seed(files[0])
        if seed is None:
            return {spec.name: maker(file) for spec, maker, file in zip(input_specs, makers, files)}
        generator = np.random.default_rng(seed)
        return {s.name: _random(generator, s, entry, normalised) for s, entry in zip(input_specs, entries)}

    return make


def _makers(
    preprocess: str | None, specs: Sequence[InputSpec], entries: Sequence[ModelInput | None], normalised: bool
) -> list[_Maker]:
    """For each input the function from a file to the array that goes in."""
    raw = [
        not normalised and (len(spec.shape) == 4 if entry is None else entry.is_picture)
        for spec, entry in zip(specs, entries)
    ]
    if preprocess is None:
        return [partial(_built_in, spec, entry, not r) for spec, entry, r in zip(specs, entries, raw)]
    files = [file.strip() for file in preprocess.split(",")]
    if len(files) != len(specs):
        raise InputError(
            f"{len(files)} preprocess file{'s' if len(files) > 1 else ''} for a model of {len(specs)} inputs "
            f"({', '.join(spec.name for spec in specs)}); give -n one for each, separated by commas"
        )
    return [partial(_users, spec, load_preprocess(file), not r) for spec, file, r in zip(specs, files, raw)]


@dataclass(frozen=True)
class PictureFeeds(Sequence[LabelledFeed]):
    """Pictures as a sequence of feeds that worker processes can take by index: ``feeds[i]`` is (label, feed) of the
    i-th run, made anew each time; see ``feeds.feeds`` for the parameters.

    Sent to another process it takes the file names along, and imports the user's preprocess file there.
    Raises what ``feeds.feeds`` raises, at once for what can be known at once.
    """

    images: str
    preprocess: str | None
    specs: tuple[InputSpec, ...]
    config: InputConfig | None = None

    def __post_init__(self) -> None:
        _ = self._make, self.runs

    @cached_property
    def runs(self) -> list[tuple[str, ...]]:
        """The files of each run."""
        return expand(self.images, len(self.specs))

    @cached_property
    def _make(self) -> Callable[[tuple[str, ...]], Feed]:
        return feed_maker(self.preprocess, self.specs, self.config)

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> LabelledFeed: ...
    @overload
    def __getitem__(self, index: slice) -> list[LabelledFeed]: ...
    def __getitem__(self, index: int | slice) -> LabelledFeed | list[LabelledFeed]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        files = self.runs[index]
        return ",".join(files), self._make(files)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_make"}


def config_entries(specs: Sequence[InputSpec], config: InputConfig | None) -> list[ModelInput | None]:
    """The entry of input_config.ini for each input. Raises InputError when it does not name one."""
    if config is None:
        return [None] * len(specs)
    named = {entry.name: entry for entry in config.inputs}
    for spec in specs:
        if spec.name not in named:
            raise InputError(
                f"input_config.ini does not name the model's input {spec.name!r}; its inputs are {', '.join(named)}"
            )
    return [named[spec.name] for spec in specs]


def _users(spec: InputSpec, preprocess: Preprocess, normalised: bool, file: str) -> np.ndarray:
    if input_text.is_input_text(Path(file)):
        return _from_text(spec, file)
    what = f"what {preprocess.file} made of {file}"
    array = fit(preprocess(file, normalised), spec, preprocess.layout, what)
    return array if normalised else _raw(array, f"{what} with norm=False")


def _built_in(spec: InputSpec, entry: ModelInput | None, normalised: bool, file: str) -> np.ndarray:
    path = Path(file)
    raw = not normalised and entry is not None
    if path.suffix.lower() == ".npy" or input_text.is_input_text(path):
        if path.suffix.lower() == ".npy":
            return given_array(_from_npy(path), spec, raw, file)
        array = _from_text(spec, file)
        return _raw(array, file) if raw else array
    if entry is None:
        raise InputError(
            f"how to prepare {file} for the input {spec.name!r} is not known; give a preprocess file (-n), or an "
            f"input_config.ini with its format, mean and std_value (--input-config)"
        )
    if not entry.is_picture:
        raise InputError(f"the input {spec.name!r} is {entry.training_format}, so it takes an .npy file, not {file}")
    if len(spec.shape) != 4:
        raise InputError(
            f"the input {spec.name!r} of shape {shape_text(spec.shape)} takes no picture; give an .npy file, or -n"
        )
    array = picture.prepare(path, entry, _picture_size(spec, entry), normalised)
    return fit(array, spec, NHWC, f"the {entry.training_format} picture {file}")


def given_array(array: np.ndarray, spec: InputSpec, raw: bool, what: str) -> np.ndarray:
    """A user's own array as the input takes it; ``raw`` asks for whole numbers 0..255, ``what`` it is begins the
    messages. Raises InputError."""
    fitted = fit(array, spec, NCHW, what)
    return _raw(fitted, what) if raw else fitted


def _picture_size(spec: InputSpec, entry: ModelInput) -> tuple[int | None, int | None]:
    """(H, W) of an NCHW input, or of an NHWC one when only its last axis has the picture's channels."""
    axis = picture.channel_axis(spec.shape, picture.CHANNELS[entry.training_format])
    return (spec.shape[1], spec.shape[2]) if axis == 3 else (spec.shape[2], spec.shape[3])


def _from_npy(path: Path) -> np.ndarray:
    try:
        array = load_npy(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is not an .npy file of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path} does not hold one array of numbers")
    return array


def _from_text(spec: InputSpec, file: str) -> np.ndarray:
    """The SDK's text is flat: NHWC for a 4-D input, unless the model itself has its few channels last."""
    values = input_text.read(file).values
    shape = _one_batch(spec)
    if len(shape) == 4 and (spec.shape[1] in (1, 3, 4) or spec.shape[3] not in (1, 3, 4)):
        shape = [shape[0], shape[2], shape[3], shape[1]]
    fixed = math.prod(size for size in shape if size is not None)
    fits = values.size == fixed if None not in shape else shape.count(None) == 1 and values.size % fixed == 0
    if not fits:
        raise InputError(f"{file} holds {values.size} values, the input {spec.name!r} takes {shape_text(spec.shape)}")
    return fit(values.reshape([-1 if size is None else size for size in shape]), spec, NHWC, file)


def _raw(array: np.ndarray, what: str) -> np.ndarray:
    """Whole numbers 0..255, of the same dtype. Raises InputError for values beyond a picture's."""
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if low < -0.5 or high > 255.5:
        raise InputError(f"{what}: values from {low:g} to {high:g}, but a fixed model takes the raw picture, 0 to 255")
    return np.rint(array).clip(0, 255).astype(array.dtype)


def _random(generator: np.random.Generator, spec: InputSpec, entry: ModelInput | None, normalised: bool) -> np.ndarray:
    """Uniform values: pixels 0..255, normalised when asked to; else -1..1, or 0 and 1 for integers and booleans."""
    if entry is not None and entry.is_picture and len(spec.shape) == 4:
        height, width = _picture_size(spec, entry)
        shape = [_one_batch(spec)[0], height, width, picture.CHANNELS[entry.training_format]]
        pixels = generator.integers(0, 256, _fixed(shape, spec)).astype(np.float32)
        return fit(picture.normalise(pixels, entry) if normalised else pixels, spec, NHWC, "random")
    sizes = _fixed(_one_batch(spec), spec)
    if not normalised and len(sizes) == 4 and spec.dtype.kind in "fu":
        return generator.integers(0, 256, sizes).astype(spec.dtype)
    if is_integer(spec.dtype) or spec.dtype.kind == "b":
        return generator.integers(0, 2, sizes).astype(spec.dtype)
    return generator.uniform(-1, 1, sizes).astype(spec.dtype)


def _one_batch(spec: InputSpec) -> list[int | None]:
    """The shape with a batch that is not fixed taken as 1."""
    return [1 if size is None and axis == 0 else size for axis, size in enumerate(spec.shape)]


def _fixed(shape: Sequence[int | None], spec: InputSpec) -> list[int]:
    fixed = [size for size in shape if size is not None]
    if len(fixed) < len(shape):
        raise InputError(
            f"the input {spec.name!r} has no fixed shape ({shape_text(spec.shape)}), so random values cannot fill it; "
            f"give an .npy file"
        )
    return fixed


@dataclass(frozen=True)
class Preprocess:
    """The user's function, which of ``norm`` and ``nchw`` it takes, and the layout its 4-D result has."""

    file: Path
    function: Callable[..., Any]
    takes_norm: bool
    takes_nchw: bool

    @property
    def layout(self) -> str:
        return NCHW if self.takes_nchw else NHWC

    def __call__(self, image: str, normalised: bool = True) -> np.ndarray:
        """The array the function makes of the image path. Raises InputError, also for anything it raises itself."""
        if not normalised and not self.takes_norm:
            raise InputError(
                f"{self.file}: {self.function.__name__} has no parameter norm, so the raw picture that a fixed model "
                f"takes cannot be asked for; add norm=True and skip the normalising when it is False"
            )
        keywords = {"norm": normalised} if self.takes_norm else {}
        if self.takes_nchw:
            keywords["nchw"] = True
        with blaming(self.file, "preprocess", f" on {image}"):
            array = np.asarray(self.function(image, **keywords))
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"{self.file}: {self.function.__name__} gave no array of numbers for {image}; does it return one?"
            )
        return array


def load_preprocess(path: Path | str) -> Preprocess:
    """Import the file under a name of its own; its folder is importable only meanwhile. ``net`` may mean ``net.py``, as
    the SDK's tools are given the name of a preset.

    Raises InputError for a missing file, one without either function, or one that fails; MissingExtra when it wants
    cv2 and that is not installed.
    """
    file = Path(path)
    if not file.is_file() and not file.suffix:
        file = file.with_name(f"{file.name}.py") if file.name else file
    if not file.is_file():
        raise InputError(f"there is no preprocess file {file}; -n takes the path of a Python file")
    module = import_file(file, "preprocess")
    for name in FUNCTIONS:
        function = getattr(module, name, None)
        if callable(function):
            parameters = inspect.signature(function).parameters
            open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
            takes_norm, takes_nchw = (open_ended or keyword in parameters for keyword in ("norm", "nchw"))
            return Preprocess(file, function, takes_norm, takes_nchw and name == "get_image")
    raise InputError(f"{file} has no function get_image(path, ..., nchw=) nor image_preprocess(path, norm=)")


def board_notes(config: InputConfig) -> list[str]:
    """One line for every picture input that is GRAY on one side alone, or YUV_NV12: where the board feeds a picture
    otherwise than the network was trained with."""
    notes = []
    for entry in config.inputs:
        trained, on_board = entry.training_format, entry.input_format
        if on_board == "YUV_NV12":
            notes.append(
                f"input {entry.name!r} is YUV_NV12 on the board: the fixed model sees the picture through it (BT.709, "
                f"half the colours), as the SDK's does, and the float model sees {trained}: they differ by that too"
            )
        elif (trained == "GRAY") != (on_board == "GRAY"):
            notes.append(
                f"input {entry.name!r} is trained as {trained} but {on_board} in input_formats; it is simulated as "
                f"{trained}: right for a network of one channel, RGB with GRAY; is that meant?"
            )
    return notes
