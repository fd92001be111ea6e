"""The inputs of a model: what the user gives for some of them, and random values for the others.

There are five ways of giving them: defaults, a range per input, arrays, a dump_info.json, a folder of .npy. A requested
array or range that is missing is an error; only an input that is not mentioned at all is random.

Random inputs are drawn exactly as the SDAA dump tool draws them, so the same seed gives the same values there and here.
Each input has a fresh ``np.random.default_rng(seed)`` (by default one seed for all inputs, so two inputs of
the same shape, dtype and range are equal). Floats are drawn uniformly from low to high in float64 and then cast;
integers by ``integers(low, high, endpoint=True)`` of their own dtype, high included. Booleans, which that tool refuses,
are whole numbers 0 and 1. An integer input that a Gather reads its table by is by default a row of that table, 0 to its
length less 1: other values are no input of the model.
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
    """The seed and range of every input that has no range of its own."""

    seed: int = 42
    float_min: float = 0.0
    float_max: float = 1.0
    int_min: int = 0
    int_max: int = 100


DEFAULTS = InputDefaults()
_PASSING = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Expand")


@dataclass(frozen=True)
class Range:
    """The range of one input's values, both ends included for integers. None stands for the default."""

    seed: int | None = None
    low: Number | None = None
    high: Number | None = None


@dataclass(frozen=True)
class Bounds:
    """A range with nothing left open."""

    seed: int
    low: Number
    high: Number


def full_range(spec: InputSpec, partial: Range, defaults: InputDefaults, table: int | None = None) -> Bounds:
    """``partial`` with the defaults of the input's dtype put in; ``table`` is the length of the table that it indexes.

    Raises ConfigError when low is above high.
    """
    low, high = (0, table - 1) if table and spec.dtype.kind in "iu" else _default_bounds(spec, defaults)
    low = low if partial.low is None else partial.low
    high = high if partial.high is None else partial.high
    if not low <= high:
        raise ConfigError(f"the range of the input {spec.name!r} goes from {low} to {high}; low is at most high")
    return Bounds(defaults.seed if partial.seed is None else partial.seed, low, high)


def draw(spec: InputSpec, shape: tuple[int, ...], bounds: Bounds) -> np.ndarray:
    """An array of the input's dtype and this shape; ``bounds`` is a ``full_range``.

    Raises ConfigError for a range or seed that the dtype cannot hold, InputError for an input of text.
    """
    kind = spec.dtype.kind
    if kind not in "biuf":
        raise InputError(f"the input {spec.name!r} takes {spec.dtype}, which cannot be drawn at random; give an array")
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
            f"the input {spec.name!r} ({spec.dtype}) cannot be drawn from {bounds.low} to {bounds.high} "
            f"with the seed {bounds.seed}: {error}"
        ) from None


def _whole(bound: Number) -> int:
    if bound != int(bound):
        raise ValueError("not a whole number")
    return int(bound)


def _default_bounds(spec: InputSpec, defaults: InputDefaults) -> tuple[Number, Number]:
    if spec.dtype.kind == "f":
        return defaults.float_min, defaults.float_max
    if spec.dtype.kind == "b":
        return 0, 1
    return defaults.int_min, defaults.int_max


@dataclass(frozen=True, eq=False)
class InputArray:
    """One input's array: given by the user (``use_external``), or drawn from a range."""

    array: np.ndarray
    seed: int | None = None
    low: Number | None = None
    high: Number | None = None
    use_external: bool = False


@dataclass(frozen=True, eq=False)
class InputSource:
    """Settings of the user, by input name: ``ranges`` to draw from, ``arrays`` as they are, ``shapes`` of inputs that
    have sizes left open."""

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
    """Every input of a model, in its order.

    tables  the length of the table that an input indexes, by name (``table_lengths``).

    shapes  the shape of inputs with open sizes, by name; goes before the source's. An open batch is 1.

    Raises InputError for an array or shape that does not fit, or a size left open; ConfigError for a range that cannot
    be or a name the model has not.
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
    """How many rows the table has that a Gather reads by an integer input, the shortest where there are several.

    The input may be cast or reshaped on its way; a table is a weight.
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
    """Raises ConfigError, with the nearest ones, for a name that is not an input of the model."""
    for name in names:
        if name not in inputs:
            raise ConfigError(f"the model has no input {name!r}{hint(name, inputs)}")


def checked_ranges(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Range]:
    """``{"x": {"seed": 1, "low": 0, "high": 1}}``, each key optional, as ranges. Raises ConfigError for others."""
    for name, entry in entries.items():
        if not isinstance(entry, Mapping):
            raise ConfigError(
                f"the range of the input {name!r} is {entry!r}; write {{'seed': 42, 'low': 0, 'high': 1}}"
            )
        for key, value in entry.items():
            if key not in RANGE_KEYS:
                raise ConfigError(f"the range of the input {name!r} has the key {key!r}; known are seed, low and high")
            if value is not None and not isinstance(value, int | float | np.integer | np.floating):
                raise ConfigError(f"the range of the input {name!r} has the {key} {value!r}, which is not a number")
    return {name: Range(**entry) for name, entry in entries.items()}


def from_json(path: str | Path, names: Collection[str]) -> InputSource:
    """The ranges and shapes that a dump_info.json says its inputs were drawn from.

    Raises FormatError for another file, InputError when it lacks an input or drew it from elsewhere.
    """
    path = Path(path)
    entries = {entry.name: entry for entry in dump_info.read(path).inputs}
    for name in names:
        if name not in entries:
            raise InputError(f"{path} says nothing of the input {name!r}{hint(name, entries)}")
        if entries[name].use_external:
            folder = (path if path.is_dir() else path.parent) / dump_info.INPUTS
            raise InputError(
                f"{path}: the input {name!r} was given as an array, so no range makes it again; "
                f"take the arrays themselves from {folder}"
            )
    chosen = {name: entries[name] for name in names}
    drawn = {name: Range(entry.seed, entry.low, entry.high) for name, entry in chosen.items()}
    return InputSource(drawn, {}, {name: e.facts.shape for name, e in chosen.items() if e.facts is not None})


def from_folder(folder: str | Path, names: Collection[str]) -> InputSource:
    """Arrays from ``NAME.npy``, anywhere below a folder; ``/`` in a name as %2F (as dumps write it) or as a folder.

    Raises InputError when one is missing, is there twice, or is not an array.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"no such folder: {folder}; name one that holds an .npy file for each input")
    files = sorted(folder.rglob("*.npy"))
    return InputSource({}, {name: array_of(_file_of(name, files, folder)) for name in names})


def folders_of_runs(folder: Path, names: Collection[str]) -> list[Path]:
    """The sub-folders that hold inputs, in order, where an input is in several; else none. A dump is one run."""
    if not folder.is_dir() or (folder / dump_info.JSON_NAME).exists():
        return []
    files = sorted(folder.rglob("*.npy"))
    tops = [{f.relative_to(folder).parts[0] for f in _files_of(name, files, folder)} for name in names]
    if not any(len(parts) > 1 and all((folder / part).is_dir() for part in parts) for parts in tops):
        return []
    runs = [part for part in set().union(*tops) if (folder / part).is_dir() and not part.startswith(".")]
    return [folder / part for part in sorted(runs, key=lambda part: (int(part) if part.isdecimal() else -1, part))]


def array_of(path: str | Path) -> np.ndarray:
    """The array of an .npy file. Raises InputError, one line, when there is none."""
    try:
        array = np.array(load_npy(Path(path)))
    except FileNotFoundError:
        raise InputError(f"no such input file: {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, MemoryError) as error:
        raise InputError(f"{path} is not an .npy file of numbers, or it is cut off: {error}") from None
    return array


def _files_of(name: str, files: Sequence[Path], folder: Path) -> list[Path]:
    """Those of the files that are spelled as the input's."""
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
        raise InputError(f"{nearest[0]} and {nearest[1]} could both be the input {name!r}; name a folder with one")
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
            raise InputError(f"the array for the input {spec.name!r} is {shape_text(array.shape)}, not {list(shape)}")
        return InputArray(array, use_external=True)
    bounds = full_range(spec, source.ranges.get(spec.name, Range()), defaults, table)
    return InputArray(draw(spec, _shape(spec, shape), bounds), bounds.seed, bounds.low, bounds.high)


def _typed(array: np.ndarray, spec: InputSpec) -> np.ndarray:
    """numpy reads back bfloat16, float8 and 4-bit integers as bytes without a type: as such they get the input's."""
    beyond = [dtype for dtype in (spec.dtype, *spec.also) if dtype.kind == "V" and dtype.itemsize == array.itemsize]
    return array.view(beyond[0]) if beyond and array.dtype == np.dtype(f"V{array.itemsize}") else array


def _shape(spec: InputSpec, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """The input's shape with every size known."""
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
            f"the input {spec.name!r} has no fixed shape ({shape_text(spec.shape)}); give one: --shape "
            f"{spec.name}={example}"
        )
    return fixed


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """A model's inputs (``specs``), and what they are given by: ``source`` for some, ``defaults`` for the others.

    shapes  the shape of inputs with open sizes, by name.
    tables  the length of the table that an input indexes, by name.
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
        """Every input, by name; made once. Raises what ``give`` raises."""
        return give(self.specs, self.source, self.shapes, self.defaults, self.tables)

    def given_by(self, source: InputSource) -> ModelInputs:
        """The same inputs, given by another source. Raises ConfigError where it names one that the model has not."""
        check_names((*source.ranges, *source.arrays), self.names)
        return replace(self, source=source)

    def of_part(self, specs: tuple[InputSpec, ...]) -> ModelInputs:
        """The inputs of a part of the model, with what was given for those that it still has."""
        names = {spec.name for spec in specs}
        source = InputSource(*({n: v for n, v in part.items() if n in names} for part in vars(self.source).values()))
        return replace(self, specs=specs, shapes={n: s for n, s in self.shapes.items() if n in names}, source=source)
