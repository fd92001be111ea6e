"""Conversion of images, arrays and the user's preprocess file to feeds: one dictionary of arrays per model run.

The feed of the float model is made first, and the fixed model's follows from it. A float array for an image input is
the float model's input; the fixed model gets the bytes that mean and std of input_config.ini turn into this array, and
the array is refused if there are none. A uint8 array for an image input holds the image's bytes: the fixed model gets
them unchanged, and the float model gets them normalised by mean and std. All other inputs are the same for both models;
integers are unchanged.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from sgsdump.errors import InputError, hint
from sgsdump.files.mapped import load_npy
from sgsdump.models.feeds import picture
from sgsdump.models.feeds.image_list import are_arrays, expand, is_named, random_seed
from sgsdump.models.feeds.preprocess_file import Preprocess, load_preprocess
from sgsdump.models.model import InputSpec, fit
from sgsdump.sidecars import input_text
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.dtypes import is_float, is_integer, is_number
from sgsdump.tensors.types import NCHW, NHWC, shape_text

__all__ = ["Feed", "InputSpec", "PictureFeeds", "board_notes", "expand", "feed_maker", "feeds"]

Feed = dict[str, np.ndarray]
MOST_BYTES = 4 << 30  # limit for the arrays of one run
LabelledFeed = tuple[str, Feed]
_Maker = Callable[[str], np.ndarray]
_Entries = tuple[ModelInput | None, ModelInput | None]  # from input_config, and as measured from the preprocess file


def feeds(
    images: str,
    preprocess: str | None,
    input_specs: Sequence[InputSpec],
    input_config: InputConfig | None = None,
    normalised: bool = True,
) -> Iterator[tuple[str, Feed]]:
    """Return an iterator over (label, feed) of each run, made one at a time; the label is the file names.

    images        see ``image_list``; the number of runs is ``len(expand(images, len(input_specs)))``
    preprocess    the user's Python files, one per input, separated by commas; None for built-in preprocessing, which
                  needs ``input_config``. ``.npy`` files go to the user's file if there is one, otherwise unchanged to
                  the float model. The SDK's ``Input_shape=`` text goes to the float model unchanged, and to the fixed
                  model if it holds integers.
    normalised    False gives raw 0..255 values for every image input, for the fixed model

    Raises InputError, ConfigError or MissingExtra immediately if possible (missing files, a preprocess file that cannot
    be imported), otherwise during iteration.
    """
    make = feed_maker(preprocess, input_specs, input_config, normalised)
    runs = expand(images, len(input_specs))
    return ((",".join(files), make(files)) for files in runs)


def feed_maker(
    preprocess: str | None,
    input_specs: Sequence[InputSpec],
    input_config: InputConfig | None = None,
    normalised: bool = True,
    measured: InputConfig | None = None,
) -> Callable[[tuple[str, ...]], Feed]:
    """Return the function from a run's files (see ``expand``) to its feed; arguments and errors as ``feeds``.

    measured  measured normalisation of the preprocess file, if known. The pixels of a file that gives no raw image are
              computed with this normalisation, whatever input_config says.
    """
    if not input_specs:
        raise InputError("the model has no inputs to feed")
    texts = [spec.name for spec in input_specs if not is_number(spec.dtype)]
    if texts:
        raise InputError(f"the model's input {texts[0]!r} takes text; sgsdump feeds only images, arrays and numbers")
    entries = config_entries(input_specs, input_config)
    known = [None] * len(entries) if measured is None else config_entries(input_specs, measured)
    makers = _makers(preprocess, input_specs, list(zip(entries, known)), normalised)

    def make(files: tuple[str, ...]) -> Feed:
        seed = random_seed(files[0])
        if is_named(files):
            if preprocess is not None:
                raise InputError(
                    f"{files[0]} holds arrays that need no preprocessing; remove -n, which preprocesses images"
                )
            return _of_named(files[0], input_specs, entries, normalised)
        if seed is None:
            return {spec.name: maker(file) for spec, maker, file in zip(input_specs, makers, files)}
        generator = np.random.default_rng(seed)
        return {s.name: _random(generator, s, entry, normalised) for s, entry in zip(input_specs, entries)}

    return make


def _makers(
    preprocess: str | None, specs: Sequence[InputSpec], entries: Sequence[_Entries], normalised: bool
) -> list[_Maker]:
    """Return for each input the function that makes its array from a file."""
    raw = [
        not normalised and (len(spec.shape) == 4 if entry is None else entry.is_picture)
        for spec, (entry, _) in zip(specs, entries)
    ]
    if preprocess is None:
        return [partial(_built_in, spec, entry, not r) for spec, (entry, _), r in zip(specs, entries, raw)]
    files = [file.strip() for file in preprocess.split(",")]
    if len(files) != len(specs):
        raise InputError(
            f"{len(files)} preprocess file{'s' if len(files) > 1 else ''} for {len(specs)} model inputs "
            f"({', '.join(spec.name for spec in specs)}); give one file per input to -n, separated by commas"
        )
    loaded = [load_preprocess(file) for file in files]
    return [partial(_users, spec, entry, load, not r) for spec, entry, load, r in zip(specs, entries, loaded, raw)]


class Feeds(Sequence[LabelledFeed]):
    """The runs of a command, whatever their source.

    ``feeds[i]`` is (label, feed of the float model) of run i; ``feeds.both(i)`` also has the fixed model's feed. Feeds
    can be sent to worker processes, which access runs by index.

    by_threads  whether several threads may access runs at the same time: no user code runs
    """

    specs: tuple[InputSpec, ...]
    config: InputConfig | None
    by_threads: bool

    @property
    def labels(self) -> list[str]:
        """Short unique name of each run."""
        raise NotImplementedError

    def both(self, index: int) -> tuple[str, Feed, Feed]:
        """Return (label, float model feed, fixed model feed with images as bytes 0 to 255). Raises InputError."""
        raise NotImplementedError

    def truth(self, index: int) -> Any:
        """Return the label that a data loader gives for a run, for a user's own metric; None without a label."""
        return None

    @overload
    def __getitem__(self, index: int) -> LabelledFeed: ...
    @overload
    def __getitem__(self, index: slice) -> list[LabelledFeed]: ...
    def __getitem__(self, index: int | slice) -> LabelledFeed | list[LabelledFeed]:
        if isinstance(index, slice):
            return [self._run(i) for i in range(*index.indices(len(self)))]
        return self._run(range(len(self))[index])

    def _run(self, index: int) -> LabelledFeed:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ChosenFeeds(Feeds):
    """A selection of the runs of ``every``."""

    every: Feeds
    indices: Sequence[int]

    @property
    def specs(self) -> tuple[InputSpec, ...]:  # type: ignore[override]
        return self.every.specs

    @property
    def config(self) -> InputConfig | None:  # type: ignore[override]
        return self.every.config

    @property
    def by_threads(self) -> bool:  # type: ignore[override]
        return self.every.by_threads

    @property
    def labels(self) -> list[str]:
        labels = self.every.labels
        return [labels[index] for index in self.indices]

    def both(self, index: int) -> tuple[str, Feed, Feed]:
        return self.every.both(self.indices[index])

    def truth(self, index: int) -> Any:
        return self.every.truth(self.indices[index])

    def __len__(self) -> int:
        return len(self.indices)

    def _run(self, index: int) -> LabelledFeed:
        return self.every[self.indices[index]]


@dataclass(frozen=True, eq=False)
class PictureFeeds(Feeds):
    """Feeds from files, made on each access; see ``feeds.feeds`` for the parameters.

    In another process, the file names are sent and the user's preprocess file is imported there. Raises the errors of
    ``feeds.feeds``, immediately if possible.
    """

    images: str
    preprocess: str | None
    specs: tuple[InputSpec, ...]
    config: InputConfig | None = None
    measured: InputConfig | None = None

    def __post_init__(self) -> None:
        _ = self._make, self.runs

    @property
    def by_threads(self) -> bool:  # type: ignore[override]
        return self.preprocess is None

    @cached_property
    def runs(self) -> list[tuple[str, ...]]:
        """Files of each run."""
        return expand(self.images, len(self.specs))

    @property
    def labels(self) -> list[str]:
        """File names, with folders if the names alone are not unique."""
        labels = [",".join(Path(file).name for file in files) for files in self.runs]
        return labels if len(set(labels)) == len(labels) else [",".join(files) for files in self.runs]

    def both(self, index: int) -> tuple[str, Feed, Feed]:
        files = self.runs[index]
        return ",".join(files), self._make(files), self._make_raw(files)

    @cached_property
    def _make(self) -> Callable[[tuple[str, ...]], Feed]:
        return feed_maker(self.preprocess, self.specs, self.config)

    @cached_property
    def _make_raw(self) -> Callable[[tuple[str, ...]], Feed]:
        return feed_maker(self.preprocess, self.specs, self.config, normalised=False, measured=self.measured)

    def __len__(self) -> int:
        return len(self.runs)

    def _run(self, index: int) -> LabelledFeed:
        files = self.runs[index]
        return ",".join(files), self._make(files)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_make", "_make_raw")}


def config_entries(specs: Sequence[InputSpec], config: InputConfig | None) -> list[ModelInput | None]:
    """Return the entry of input_config.ini for each input, as fed (``picture.as_fed``).

    Raises InputError if an input has no entry.
    """
    if config is None:
        return [None] * len(specs)
    named = {entry.name: entry for entry in config.inputs}
    for spec in specs:
        if spec.name not in named:
            raise InputError(
                f"input_config.ini does not name the model's input {spec.name!r}; input_config.ini "
                f"names the inputs {', '.join(named)}"
            )
    return [picture.as_fed(named[spec.name], spec.shape) for spec in specs]


def _users(spec: InputSpec, entries: _Entries, preprocess: Preprocess, normalised: bool, file: str) -> np.ndarray:
    entry, measured = entries
    if input_text.is_input_text(Path(file)):
        array = _from_text(spec, file)
        return array if normalised else _raw_text(array, entry, file)
    what = f"the result of {preprocess.file} for {file}"
    if not normalised and not preprocess.takes_norm and entry is not None:
        array = fit(preprocess(file), spec, preprocess.layout, what)
        return picture.pixels_of(array, entry, measured, what)
    array = fit(preprocess(file, normalised), spec, preprocess.layout, what)
    if normalised:
        return array
    raw = _raw(array, f"{what} with norm=False")
    # The channel order of an array is known only to the user.
    return raw if entry is None or are_arrays([file]) else picture.in_order(raw, entry, measured)


def _built_in(spec: InputSpec, entry: ModelInput | None, normalised: bool, file: str) -> np.ndarray:
    path = Path(file)
    if path.suffix.lower() == ".npy":
        return given_array(_from_npy(path), spec, entry, normalised, file)
    if input_text.is_input_text(path):
        array = _from_text(spec, file)
        return array if normalised else _raw_text(array, entry, file)
    if entry is None:
        raise InputError(
            f"the preprocessing of {file} for the input {spec.name!r} is unknown; give a preprocess file (-n), or an "
            f"input_config.ini with the format, mean and std_value (--input-config)"
        )
    if not entry.is_picture:
        raise InputError(
            f"the input {spec.name!r} of shape {shape_text(spec.shape)} has format "
            f"{entry.training_format}, which is not an image format. Give an .npy file instead of "
            f"{file}, or use a data loader (--data-loader-script)"
        )
    if len(spec.shape) != 4:
        raise InputError(
            f"the input {spec.name!r} of shape {shape_text(spec.shape)} takes no image; give an .npy "
            "file, or a preprocess file with -n"
        )
    array = picture.prepare(path, entry, _picture_size(spec, entry), normalised)
    return fit(array, spec, NHWC, f"the {entry.training_format} image {file}")


def given_array(
    array: np.ndarray, spec: InputSpec, entry: ModelInput | None, normalised: bool, what: str
) -> np.ndarray:
    """Return a user's own array as the float model takes it, or (``normalised`` False) as the fixed model does.

    See the module's text. ``what`` describes the array and begins the messages. Raises InputError.
    """
    if array.dtype.kind in "OSUMmVc" and not is_number(array.dtype):
        raise InputError(f"{what} is not an array of numbers")
    if array.dtype.kind == "f" and np.isfinite(array).all():
        _check_whole(array, spec, what)
    fitted = fit(array, spec, NCHW, what)
    if entry is None or not entry.is_picture:
        return fitted
    if array.dtype == np.uint8 and is_float(spec.dtype):
        return fit(picture.normalise_planes(fitted, entry), spec, NCHW, what) if normalised else fitted
    return fitted if normalised else picture.bytes_of(fitted, entry, what)


def _check_whole(array: np.ndarray, spec: InputSpec, what: str) -> None:
    """Raise InputError for fractions in an integer input, and for values other than 0 and 1 in a boolean input."""
    if is_integer(spec.dtype) and not (array == np.rint(array)).all():
        raise InputError(f"{what} holds fractions, but the model's input {spec.name!r} takes integers ({spec.dtype})")
    if spec.dtype == np.bool_ and not ((array == 0) | (array == 1)).all():
        raise InputError(f"{what} holds values other than 0 and 1, but the model's input {spec.name!r} takes booleans")


def fitted_feed(
    arrays: Mapping[str, np.ndarray],
    specs: Sequence[InputSpec],
    entries: Sequence[ModelInput | None],
    normalised: bool,
    what: str,
) -> Feed:
    """Return a user's own feed as a model takes it (see ``given_array``); ``what`` begins the messages.

    Raises InputError for a missing or unknown name, and the errors of ``given_array``.
    """
    check_inputs(arrays, [spec.name for spec in specs], what)
    return {
        spec.name: given_array(arrays[spec.name], spec, entry, normalised, f"{what}, input {spec.name!r},")
        for spec, entry in zip(specs, entries)
    }


def check_inputs(given: Iterable[str], inputs: Sequence[str], what: str) -> None:
    """Raise InputError for a name that is not an input, and for a missing input."""
    names = list(given)
    for name in names:
        if name not in inputs:
            raise InputError(f"{what} has {name!r}, which is not an input of the model{hint(str(name), list(inputs))}")
    for name in inputs:
        if name not in names:
            raise InputError(f"{what} lacks the model's input {name!r}")


def named_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name. Raises InputError for another file, or values that are not numbers."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > MOST_BYTES:
                raise InputError(f"{path} holds more than {MOST_BYTES:,} bytes, the limit for one run of a model")
        with np.load(path, allow_pickle=False) as members:
            return {name: members[name] for name in members.files}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path} is not an .npz file of arrays, or is truncated: {error}") from error


def _of_named(file: str, specs: Sequence[InputSpec], entries: Sequence[ModelInput | None], normalised: bool) -> Feed:
    return fitted_feed(named_arrays(Path(file)), specs, entries, normalised, file)


def _picture_size(spec: InputSpec, entry: ModelInput) -> tuple[int | None, int | None]:
    """Return (H, W) of an NCHW input, or of an NHWC input if only the last axis has the image's channels."""
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
    """Read the SDK's flat text: NHWC for a 4-D input, unless the model itself has its few channels last."""
    values = input_text.read(file).values
    shape = _one_batch(spec)
    if len(shape) == 4 and (spec.shape[1] in (1, 3, 4) or spec.shape[3] not in (1, 3, 4)):
        shape = [shape[0], shape[2], shape[3], shape[1]]
    fixed = math.prod(size for size in shape if size is not None)
    fits = values.size == fixed if None not in shape else shape.count(None) == 1 and values.size % fixed == 0
    if not fits:
        raise InputError(
            f"{file} holds {values.size} values, but the input {spec.name!r} takes shape {shape_text(spec.shape)}"
        )
    return fit(values.reshape([-1 if size is None else size for size in shape]), spec, NHWC, file)


def _raw_text(array: np.ndarray, entry: ModelInput | None, file: str) -> np.ndarray:
    """Return the bytes from the SDK's text, which holds an image's bytes or the float model's input."""
    is_bytes = entry is None or (array == np.rint(array)).all()
    return _raw(array, file) if is_bytes else picture.bytes_of(array, entry, file)  # type: ignore[arg-type]


def _raw(array: np.ndarray, what: str) -> np.ndarray:
    """Return integers 0..255 of the same dtype. Raises InputError for values beyond the range of an image."""
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if low < -0.5 or high > 255.5:
        raise InputError(
            f"{what} has values from {low:g} to {high:g}, but a fixed model takes the raw image with "
            "values from 0 to 255"
        )
    return np.rint(array).clip(0, 255).astype(array.dtype)


def _random(generator: np.random.Generator, spec: InputSpec, entry: ModelInput | None, normalised: bool) -> np.ndarray:
    """Draw uniform values: pixels 0..255, normalised if requested; otherwise -1..1, or 0 and 1 for integers."""
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
    """Return the shape with an open batch as 1."""
    return [1 if size is None and axis == 0 else size for axis, size in enumerate(spec.shape)]


def _fixed(shape: Sequence[int | None], spec: InputSpec) -> list[int]:
    fixed = [size for size in shape if size is not None]
    if len(fixed) < len(shape):
        raise InputError(
            f"the input {spec.name!r} has no fixed shape ({shape_text(spec.shape)}), so random values "
            "cannot be drawn; give an .npy file"
        )
    return fixed


def board_notes(config: InputConfig, specs: Sequence[InputSpec]) -> list[str]:
    """Return one line for every image input that the board feeds differently from training.

    These are inputs that are GRAY on one side only, or YUV_NV12. A network of one channel, RGB with GRAY, gives no
    line.
    """
    notes = []
    shapes = {spec.name: spec.shape for spec in specs}
    for entry in (picture.as_fed(entry, shapes.get(entry.name, ())) for entry in config.inputs):
        trained, on_board = entry.training_format, entry.input_format
        if on_board == "YUV_NV12":
            notes.append(
                f"input {entry.name!r} is YUV_NV12 on the board: the fixed model gets the image converted to YUV_NV12 "
                f"(BT.709, half the colours), as in the SDK, and the float model gets {trained}; this adds a difference"
            )
        elif (trained == "GRAY") != (on_board == "GRAY"):
            notes.append(
                f"input {entry.name!r} is trained as {trained} but {on_board} in input_formats; simulated as "
                f"{trained}, which is correct only for RGB with GRAY in a one-channel model; check the formats"
            )
    return notes
