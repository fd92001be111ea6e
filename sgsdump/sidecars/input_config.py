"""input_config.ini: what the model's inputs and outputs are, how pictures are normalised, which convolutions are INT16.

``[INPUT_CONFIG]``   inputs, training_input_formats, input_formats, quantizations, mean_red/mean_green/mean_blue or
                     mean=r:g:b, std_value (one number or r:g:b), input_width_alignment, input_height_alignment,
                     input_layouts
``[OUTPUT_CONFIG]``  outputs, dequantizations, output_layouts (the section may be absent)
``[CONV_CONFIG]``    input_format, tensor_arrays (the section may be absent)

Values usually end in ``;`` (what follows is a comment) and may stand in quotes; several are separated by commas, one
for each input or output. mean and std_value may also be one for all pictures, or one for each picture input.
A list may run on over indented lines. Normalisation is (x - mean) / std, x in 0..255.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sgsdump.errors import ConfigError
from sgsdump.files.text_file import quoted
from sgsdump.sidecars.ini import Section, Value, read_sections

KEYS = {
    "INPUT_CONFIG": [
        "inputs",
        "training_input_formats",
        "input_formats",
        "quantizations",
        "mean",
        "mean_red",
        "mean_green",
        "mean_blue",
        "std_value",
        "input_width_alignment",
        "input_height_alignment",
        "input_layouts",
    ],
    "OUTPUT_CONFIG": ["outputs", "dequantizations", "output_layouts"],
    "CONV_CONFIG": ["input_format", "tensor_arrays"],
}
RAWDATA = ("RAWDATA_S16_NHWC", "RAWDATA_F32_NHWC")
TRAINING_FORMATS = ("RGB", "BGR", "GRAY", *RAWDATA)
INPUT_FORMATS = ("RGB", "BGR", "RGBA", "BGRA", "YUV_NV12", "GRAY", *RAWDATA)
LAYOUTS = ("NHWC", "NCHW")
CONV_FORMATS = ("ALL_UINT8", "ALL_INT16", "CONV2D_INT16", "DEPTHWISE_INT16")
NAMES_LIMIT = 1024

_BLUE_FIRST = {"BGR": True, "BGRA": True, "RGB": False, "RGBA": False}


@dataclass(frozen=True)
class ModelInput:
    """One input of the model. ``mean`` and ``std`` are (red, green, blue), whatever order the picture is fed in;
    three equal numbers for GRAY unless the file gives three; () for RAWDATA, which is not normalised."""

    name: str
    training_format: str
    input_format: str
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    layout: str = "NHWC"
    quantised: bool = True
    width_alignment: int = 1
    height_alignment: int = 1

    @property
    def is_picture(self) -> bool:
        return self.training_format not in RAWDATA


@dataclass(frozen=True)
class ModelOutput:
    name: str
    dequantised: bool = False
    layout: str = "NHWC"


@dataclass(frozen=True)
class InputConfig:
    """The whole file. ``conv_format`` is input_format of [CONV_CONFIG], None when absent; ``tensor_arrays`` the names
    of the first inputs of the convolutions to raise to INT16."""

    inputs: tuple[ModelInput, ...]
    outputs: tuple[ModelOutput, ...] = ()
    conv_format: str | None = None
    tensor_arrays: tuple[str, ...] = ()


def read(path: Path | str) -> InputConfig:
    """Raises ConfigError, naming file, line and key, for anything that does not fit the format described above."""
    path = Path(path)
    sections = read_sections(path, KEYS)
    if "INPUT_CONFIG" not in sections:
        raise ConfigError(f"{path}: there is no section [INPUT_CONFIG]")
    conv = sections.get("CONV_CONFIG", {})
    conv_format = conv.get("input_format")
    arrays = conv.get("tensor_arrays")
    return InputConfig(
        inputs=_inputs(sections["INPUT_CONFIG"], path),
        outputs=_outputs(sections.get("OUTPUT_CONFIG", {}), path),
        conv_format=_choice(conv_format, conv_format.text.strip(" \t'\""), CONV_FORMATS) if conv_format else None,
        tensor_arrays=tuple(_names(arrays)) if arrays and arrays.text else (),
    )


def _inputs(section: Section, path: Path) -> tuple[ModelInput, ...]:
    if "inputs" not in section:
        raise ConfigError(f"{path}: [INPUT_CONFIG] has no key inputs")
    names = _names(section["inputs"])
    if len(section["inputs"].text) > NAMES_LIMIT:
        raise ConfigError(f"{section['inputs'].where}: the names take more than {NAMES_LIMIT} characters together")
    count = len(names)
    for key in ("training_input_formats", "input_formats"):
        if key not in section:
            raise ConfigError(f"{path}: [INPUT_CONFIG] has no key {key}")
    training = _choices(section, "training_input_formats", TRAINING_FORMATS, count)
    formats = _choices(section, "input_formats", INPUT_FORMATS, count)
    for name, trained, given in zip(names, training, formats):
        _check_formats(section["input_formats"].where, name, trained, given)
    is_picture = [trained not in RAWDATA for trained in training]
    means = _means(section, is_picture, path)
    stds = _triples(section.get("std_value"), is_picture, (1.0, 1.0, 1.0))
    for triple in stds:
        if any(value <= 0 for value in triple):
            raise ConfigError(f"{section['std_value'].where}: std must be above 0")
    layouts = _choices(section, "input_layouts", LAYOUTS, count) or ["NHWC"] * count
    quantised = _choices(section, "quantizations", ("TRUE", "FALSE"), count) or ["TRUE"] * count
    default = [2 if given == "YUV_NV12" else 1 for given in formats]
    widths = _alignments(section.get("input_width_alignment"), default)
    heights = _alignments(section.get("input_height_alignment"), default)
    return tuple(
        ModelInput(name, trained, given, mean, std, layout, word == "TRUE", width, height)
        for name, trained, given, mean, std, layout, word, width, height in zip(
            names, training, formats, means, stds, layouts, quantised, widths, heights
        )
    )


def _outputs(section: Section, path: Path) -> tuple[ModelOutput, ...]:
    if "outputs" not in section:
        if section:
            raise ConfigError(f"{path}: [OUTPUT_CONFIG] has no key outputs")
        return ()
    names = _names(section["outputs"])
    dequantised = _choices(section, "dequantizations", ("TRUE", "FALSE"), len(names), "output") or ["FALSE"] * len(
        names
    )
    layouts = _choices(section, "output_layouts", LAYOUTS, len(names), "output") or ["NHWC"] * len(names)
    return tuple(ModelOutput(name, word == "TRUE", layout) for name, word, layout in zip(names, dequantised, layouts))


def _names(value: Value) -> list[str]:
    names = value.items()
    if names and not names[-1]:
        names.pop()
    if not names or "" in names:
        raise ConfigError(f"{value.where}: a name is empty in {quoted(value.text)}")
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ConfigError(f"{value.where}: {twice[0]!r} stands in the list twice")
    return names


def _choices(section: Section, key: str, known: tuple[str, ...], count: int, kind: str = "input") -> list[str]:
    """One known word for each input or output; [] when the key is absent."""
    if key not in section:
        return []
    value = section[key]
    items = value.items()
    if len(items) == count + 1 and not items[-1]:
        items.pop()
    if len(items) != count:
        raise ConfigError(f"{value.where} has {len(items)} values for {count} {kind}s; give one for each, by commas")
    return [_choice(value, item, known) for item in items]


def _choice(value: Value, item: str, known: tuple[str, ...]) -> str:
    if item not in known:
        raise ConfigError(f"{value.where}: unknown value {quoted(item)}; choose one of: {', '.join(known)}")
    return item


def _check_formats(where: str, name: str, trained: str, given: str) -> None:
    if (trained in RAWDATA or given in RAWDATA) and trained != given:
        raise ConfigError(
            f"{where}: input {name!r} is {given} but trained as {trained}; RAWDATA needs the same in both"
        )
    if trained in _BLUE_FIRST and given in _BLUE_FIRST and _BLUE_FIRST[trained] != _BLUE_FIRST[given]:
        raise ConfigError(f"{where}: input {name!r} is {given} but trained as {trained}; RGB and BGR cannot be mixed")


def _means(section: Section, is_picture: list[bool], path: Path) -> list[tuple[float, ...]]:
    colours = [f"mean_{colour}" for colour in ("red", "green", "blue")]
    given = [key for key in colours if key in section]
    if not given:
        return _triples(section.get("mean"), is_picture, (0.0, 0.0, 0.0))
    if "mean" in section:
        raise ConfigError(f"{section['mean'].where} and {given[0]} are both given; keep one of the two forms")
    if len(given) < 3:
        missing = next(key for key in colours if key not in given)
        raise ConfigError(f"{path}: [INPUT_CONFIG] has {given[0]} but no {missing}; give all three, or mean = r:g:b")
    red, green, blue = ([triple[:1] for triple in _triples(section[key], is_picture, ())] for key in colours)
    return [r + g + b for r, g, b in zip(red, green, blue)]


def _triples(value: Value | None, is_picture: list[bool], default: tuple[float, ...]) -> list[tuple[float, ...]]:
    """(r, g, b) for each input, () for RAWDATA. The file gives one for all, one per input or one per picture."""
    if value is None:
        return [default if picture else () for picture in is_picture]
    items = value.items()
    pictures = sum(is_picture)
    if not pictures and any(items):
        raise ConfigError(f"{value.where}: RAWDATA inputs take no mean and no std_value; remove the line")
    if len(items) == 1:
        items = [items[0] if picture else "" for picture in is_picture]
    elif len(items) == pictures != len(is_picture):
        rest = iter(items)
        items = [next(rest) if picture else "" for picture in is_picture]
    if len(items) != len(is_picture):
        raise ConfigError(
            f"{value.where} has {len(items)} values for {len(is_picture)} inputs; give one for each, by commas"
        )
    triples = []
    for item, picture in zip(items, is_picture):
        if not picture and item:
            raise ConfigError(
                f"{value.where}: {quoted(item)} is for a RAWDATA input, which takes no mean and no std_value"
            )
        triples.append(_triple(value, item) if picture else ())
    return triples


def _triple(value: Value, item: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in item.split(":"))
    except ValueError:
        raise ConfigError(f"{value.where}: {quoted(item)} is not a number, nor red:green:blue") from None
    if not all(map(math.isfinite, numbers)):
        raise ConfigError(f"{value.where}: {quoted(item)} is not a finite number")
    if len(numbers) == 1:
        return numbers * 3
    if len(numbers) != 3:
        raise ConfigError(f"{value.where}: {quoted(item)} has {len(numbers)} numbers; give one, or red:green:blue")
    return numbers


def _alignments(value: Value | None, default: list[int]) -> list[int]:
    if value is None:
        return default
    items = value.items()
    items = items * len(default) if len(items) == 1 else items
    if len(items) != len(default):
        raise ConfigError(
            f"{value.where} has {len(items)} values for {len(default)} inputs; give one for each, by commas"
        )
    for item in items:
        if not re.fullmatch(r"[1-9]\d{0,8}", item):
            raise ConfigError(f"{value.where}: {quoted(item)} is not a whole number above 0")
    return [int(item) for item in items]
