"""Inputs of a model: user-supplied values for some, random values for others.

Values are given as defaults, a range per input, arrays, a dump_info.json, or a folder of .npy files. A requested array
or range that is missing is an error; only an input that is not mentioned at all is random.

Random inputs are drawn exactly as by the SDAA dump tool, so the same seed gives the same values in both. Each input has
a fresh ``np.random.default_rng(seed)``. By default all inputs share one seed, so two inputs with the same shape, dtype
and range are equal. Floats are drawn uniformly from low to high in float64 and then cast. Integers are drawn by
``integers(low, high, endpoint=True)`` of their own dtype, including high. Booleans, which that tool refuses, are
integers 0 and 1. An integer input that a Gather uses as index of a table has the default range 0 to table length - 1:
other values are not valid inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sgsdump.dumps.formats.sdaa import dump_info
from sgsdump.errors import ConfigError, InputError, hint
from sgsdump.files.mapped import load_npy
from sgsdump.models.model import InputSpec, check_feed
from sgsdump.tensors.types import shape_text

if TYPE_CHECKING:
    import onnx

Number = int | float
RANGE_KEYS = ("seed", "low", "high")


@dataclass(frozen=True)
class InputDefaults:
    """Seed and range of every input without its own range."""

    seed: int = 42
    float_min: float = 0.0
    float_max: float = 1.0
    int_min: int = 0
    int_max: int = 100


DEFAULTS = InputDefaults()
_PASSING = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Expand")


@dataclass(frozen=True)
class Range:
    """Range of one input's values, for integers including both ends; None is the default."""

    seed: int | None = None
    low: Number | None = None
    high: Number | None = None


@dataclass(frozen=True)
class Bounds:
    """A complete range."""

    seed: int
    low: Number
    high: Number


def full_range(spec: InputSpec, partial: Range, defaults: InputDefaults, table: int | None = None) -> Bounds:
    """Return ``partial`` completed by the defaults of the input's dtype; ``table`` is the length of the indexed table.

    Raises ConfigError if low is above high.
    """
    low, high = (0, table - 1) if table and spec.dtype.kind in "iu" else _default_bounds(spec, defaults)
    low = low if partial.low is None else partial.low
    high = high if partial.high is None else partial.high
    if not low <= high:
        raise ConfigError(f"the range of the input {spec.name!r} is {low} to {high}; low must not exceed high")
    return Bounds(defaults.seed if partial.seed is None else partial.seed, low, high)


def draw(spec: InputSpec, shape: tuple[int, ...], bounds: Bounds) -> np.ndarray:
    """Draw an array of the input's dtype and this shape; ``bounds`` comes from ``full_range``.

    Raises ConfigError for a range or seed that the dtype cannot represent, and InputError for a text input.
    """
    kind = spec.dtype.kind
    if kind not in "biuf":
        raise InputError(
            f"the input {spec.name!r} takes {spec.dtype}, and random values of this type cannot be drawn; give an array"
        )
    try:
        generator = np.random.default_rng(bounds.seed)
        if kind == "f":
            return generator.uniform(bounds.low, bounds.high, shape).astype(spec.dtype)
        low, high = _whole(bounds.low), _whole(bounds.high)
        if kind == "b":
            return generator.integers(low, high, shape, endpoint=True).astype(np.bool_)
        return generator.integers(low, high, shape, dtype=spec.dtype.type, endpoint=True)
    except (ValueError, OverflowError, TypeError) as error:
        raise ConfigError(
            f"random values for the input {spec.name!r} ({spec.dtype}) cannot be drawn from "
            f"{bounds.low} to {bounds.high} with the seed {bounds.seed}: {error}"
        ) from None


def _whole(bound: Number) -> int:
    if bound != int(bound):
        raise ValueError("not an integer")
    return int(bound)


def _default_bounds(spec: InputSpec, defaults: InputDefaults) -> tuple[Number, Number]:
    if spec.dtype.kind == "f":
        return defaults.float_min, defaults.float_max
    if spec.dtype.kind == "b":
        return 0, 1
    return defaults.int_min, defaults.int_max


@dataclass(frozen=True, eq=False)
class InputArray:
    """Array of one input: given by the user (``use_external``), or drawn from a range."""

    array: np.ndarray
    seed: int | None = None
    low: Number | None = None
    high: Number | None = None
    use_external: bool = False


@dataclass(frozen=True, eq=False)
class InputSource:
    """User settings by input name: ``ranges`` to draw from, given ``arrays``, ``shapes`` of inputs with open sizes."""

    ranges: Mapping[str, Range] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def give(
    specs: Sequence[InputSpec],
    source: InputSource,
    shapes: Mapping[str, Sequence[int]] | None = None,
    defaults: InputDefaults = DEFAULTS,
    tables: Mapping[str, int] | None = None,
) -> dict[str, InputArray]:
    """Return every input of a model, in order.

    tables  length of the table that an input indexes, by name (``table_lengths``)
    shapes  shape of inputs with open sizes, by name; has priority over the source's. An open batch is 1.

    Raises InputError for an array or shape that does not fit, or an open size. Raises ConfigError for an invalid range
    or an unknown name.
    """
    check_names((*source.ranges, *source.arrays, *(shapes or {})), [spec.name for spec in specs])
    sizes = {**source.shapes, **{name: tuple(shape) for name, shape in (shapes or {}).items()}}
    inputs = {
        spec.name: _input_array(spec, source, sizes.get(spec.name), defaults, (tables or {}).get(spec.name))
        for spec in specs
    }
    check_feed({name: value.array for name, value in inputs.items()}, specs)
    return inputs


def table_lengths(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the number of rows of the table that a Gather indexes by an integer input, or the smallest of several.

    The input may be cast or reshaped before. A table is a weight.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    origin = {info.name: info.name for info in graph.input if info.name not in shapes}
    lengths: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _PASSING and node.input and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        if node.op_type == "Constant":
            shapes.update((node.output[0], tuple(part.t.dims)) for part in node.attribute if part.name == "value")
        if node.op_type == "Gather" and node.input[1] in origin and shapes.get(node.input[0]):
            axis = next((part.i for part in node.attribute if part.name == "axis"), 0)
            shape, name = shapes[node.input[0]], origin[node.input[1]]
            if -len(shape) <= axis < len(shape) and shape[axis] > 0:
                lengths[name] = min(lengths.get(name, shape[axis]), shape[axis])
    return lengths


def check_names(names: Collection[str], inputs: list[str]) -> None:
    """Raise ConfigError, with the nearest names, for a name that is not an input of the model."""
    for name in names:
        if name not in inputs:
            raise ConfigError(f"the model has no input {name!r}{hint(name, inputs)}")


def checked_ranges(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Range]:
    """Return ``{"x": {"seed": 1, "low": 0, "high": 1}}``, each key optional, as ranges. Raises ConfigError."""
    for name, entry in entries.items():
        if not isinstance(entry, Mapping):
            raise ConfigError(
                f"the range of the input {name!r} is {entry!r}, which is not a dictionary; write "
                "{'seed': 42, 'low': 0, 'high': 1}"
            )
        for key, value in entry.items():
            if key not in RANGE_KEYS:
                raise ConfigError(
                    f"the range of the input {name!r} has the unknown key {key!r}; use seed, low and high"
                )
            if value is not None and not isinstance(value, int | float | np.integer | np.floating):
                raise ConfigError(f"the range of the input {name!r} has the {key} {value!r}, which is not a number")
    return {name: Range(**entry) for name, entry in entries.items()}


def from_json(path: str | Path, names: Collection[str]) -> InputSource:
    """Return the ranges and shapes of the inputs in a dump_info.json.

    Raises FormatError for another file, and InputError if the file lacks an input or the input was not drawn.
    """
    path = Path(path)
    entries = {entry.name: entry for entry in dump_info.read(path).inputs}
    for name in names:
        if name not in entries:
            raise InputError(f"{path} lacks the input {name!r}{hint(name, entries)}")
        if entries[name].use_external:
            folder = (path if path.is_dir() else path.parent) / dump_info.INPUTS
            raise InputError(
                f"{path}: the input {name!r} was given as an array, not drawn at random; use the arrays in {folder}"
            )
    chosen = {name: entries[name] for name in names}
    drawn = {name: Range(entry.seed, entry.low, entry.high) for name, entry in chosen.items()}
    return InputSource(drawn, {}, {name: e.facts.shape for name, e in chosen.items() if e.facts is not None})


def from_folder(folder: str | Path, names: Collection[str]) -> InputSource:
    """Return arrays from ``NAME.npy`` anywhere below a folder; ``/`` in a name is %2F (as in dumps) or a folder.

    Raises InputError if a file is missing, exists twice, or is not an array.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder}; name a folder with one .npy file per input")
    files = sorted(folder.rglob("*.npy"))
    return InputSource({}, {name: array_of(_file_of(name, files, folder)) for name in names})


def folders_of_runs(folder: Path, names: Collection[str]) -> list[Path]:
    """Return the sub-folders that hold inputs, in order, if an input is in several; otherwise []. A dump is one run."""
    if not folder.is_dir() or (folder / dump_info.JSON_NAME).exists():
        return []
    files = sorted(folder.rglob("*.npy"))
    tops = [{f.relative_to(folder).parts[0] for f in _files_of(name, files, folder)} for name in names]
    if not any(len(parts) > 1 and all((folder / part).is_dir() for part in parts) for parts in tops):
        return []
    runs = [part for part in set().union(*tops) if (folder / part).is_dir() and not part.startswith(".")]
    return [folder / part for part in sorted(runs, key=lambda part: (int(part) if part.isdecimal() else -1, part))]


def array_of(path: str | Path) -> np.ndarray:
    """Return the array of an .npy file. Raises InputError with one line if it cannot be read."""
    try:
        array = np.array(load_npy(Path(path)))
    except FileNotFoundError:
        raise InputError(f"no such input file: {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, MemoryError) as error:
        raise InputError(f"{path} is not an .npy file of numbers, or is truncated: {error}") from None
    return array


def _files_of(name: str, files: Sequence[Path], folder: Path) -> list[Path]:
    """Return the files whose names match the input's."""
    spelled = {dump_info.inputs_file(name), f"{name}.npy"}
    return [f for f in files if f.name in spelled or f.relative_to(folder).as_posix() == f"{name}.npy"]


def _file_of(name: str, files: Sequence[Path], folder: Path) -> Path:
    matching = _files_of(name, files, folder)
    if not matching:
        known = [file.name.removesuffix(".npy") for file in files]
        raise InputError(
            f"{folder} has no file {dump_info.inputs_file(name)} for the input {name!r}{hint(name, known)}"
        )
    nearest = [file for file in matching if file.parent == folder] or matching
    if len(nearest) > 1:
        raise InputError(
            f"{nearest[0]} and {nearest[1]} both match the input {name!r}; give a folder that contains "
            "only one of the two files"
        )
    return nearest[0]


def _input_array(
    spec: InputSpec,
    source: InputSource,
    shape: tuple[int, ...] | None,
    defaults: InputDefaults,
    table: int | None = None,
) -> InputArray:
    if spec.name in source.arrays:
        array = _typed(np.asarray(source.arrays[spec.name]), spec)
        if shape is not None and array.shape != shape:
            raise InputError(
                f"the array for the input {spec.name!r} has shape {shape_text(array.shape)} instead of {list(shape)}"
            )
        return InputArray(array, use_external=True)
    bounds = full_range(spec, source.ranges.get(spec.name, Range()), defaults, table)
    return InputArray(draw(spec, _shape(spec, shape), bounds), bounds.seed, bounds.low, bounds.high)


def _typed(array: np.ndarray, spec: InputSpec) -> np.ndarray:
    """Restore bfloat16, float8 and 4-bit integers, which numpy reads back as untyped bytes, to the input's type."""
    beyond = [dtype for dtype in (spec.dtype, *spec.also) if dtype.kind == "V" and dtype.itemsize == array.itemsize]
    return array.view(beyond[0]) if beyond and array.dtype == np.dtype(f"V{array.itemsize}") else array


def _shape(spec: InputSpec, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the input's shape with every size known."""
    if shape is not None:
        fits = len(shape) == len(spec.shape) and all(axis in (None, size) for axis, size in zip(spec.shape, shape))
        if not fits or any(size < 0 for size in shape):
            raise InputError(
                f"the shape {shape_text(shape)} does not fit the input {spec.name!r}, which takes "
                f"{shape_text(spec.shape)}"
            )
        return shape
    sizes = [1 if size is None and axis == 0 else size for axis, size in enumerate(spec.shape)]
    fixed = tuple(size for size in sizes if size is not None)
    if len(fixed) < len(sizes):
        example = "x".join(str(size or 1) for size in sizes)
        raise InputError(
            f"the input {spec.name!r} has no fixed shape ({shape_text(spec.shape)}); give a shape: --shape "
            f"{spec.name}={example}"
        )
    return fixed


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """Inputs of a model (``specs``): values from ``source`` for some, from ``defaults`` for others.

    shapes  shape of inputs with open sizes, by name
    tables  length of the table that an input indexes, by name
    """

    specs: tuple[InputSpec, ...]
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    defaults: InputDefaults = DEFAULTS
    source: InputSource = field(default_factory=InputSource)
    tables: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    @cached_property
    def arrays(self) -> dict[str, InputArray]:
        """All inputs by name, computed once. Raises the errors of ``give``."""
        return give(self.specs, self.source, self.shapes, self.defaults, self.tables)

    def given_by(self, source: InputSource) -> ModelInputs:
        """Return the same inputs with another source. Raises ConfigError for an unknown name."""
        check_names((*source.ranges, *source.arrays), self.names)
        return replace(self, source=source)

    def of_part(self, specs: tuple[InputSpec, ...]) -> ModelInputs:
        """Return the inputs of a part of the model, with the values given for the inputs that it keeps."""
        names = {spec.name for spec in specs}
        source = InputSource(*({n: v for n, v in part.items() if n in names} for part in vars(self.source).values()))
        return replace(self, specs=specs, shapes={n: s for n, s in self.shapes.items() if n in names}, source=source)
