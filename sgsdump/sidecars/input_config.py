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

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sgsdump.errors import ConfigError
from sgsdump.sidecars.ini import Section, read_sections
from sgsdump.sidecars.ini_lists import known_word, names_of, triples_of, whole_numbers_of, words_of

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
        conv_format=known_word(conv_format, conv_format.text.strip(" \t'\""), CONV_FORMATS) if conv_format else None,
        tensor_arrays=tuple(names_of(arrays)) if arrays and arrays.text else (),
    )


def output_section(outputs: Sequence[ModelOutput]) -> str:
    """[OUTPUT_CONFIG] of an input_config.ini."""
    names = ",".join(output.name for output in outputs)
    words = ",".join("TRUE" if output.dequantised else "FALSE" for output in outputs)
    return f"[OUTPUT_CONFIG]\noutputs = {names};\ndequantizations = {words};\n"


def _inputs(section: Section, path: Path) -> tuple[ModelInput, ...]:
    if "inputs" not in section:
        raise ConfigError(f"{path}: [INPUT_CONFIG] has no key inputs")
    names = names_of(section["inputs"])
    if len(section["inputs"].text) > NAMES_LIMIT:
        raise ConfigError(f"{section['inputs'].where}: the names take more than {NAMES_LIMIT} characters together")
    count = len(names)
    for key in ("training_input_formats", "input_formats"):
        if key not in section:
            raise ConfigError(f"{path}: [INPUT_CONFIG] has no key {key}")
    training = words_of(section, "training_input_formats", TRAINING_FORMATS, count)
    formats = words_of(section, "input_formats", INPUT_FORMATS, count)
    for name, trained, given in zip(names, training, formats):
        _check_formats(section["input_formats"].where, name, trained, given)
    is_picture = [trained not in RAWDATA for trained in training]
    means = _means(section, is_picture, path)
    stds = triples_of(section.get("std_value"), is_picture, (1.0, 1.0, 1.0))
    for triple in stds:
        if any(value <= 0 for value in triple):
            raise ConfigError(f"{section['std_value'].where}: std must be above 0")
    layouts = words_of(section, "input_layouts", LAYOUTS, count) or ["NHWC"] * count
    quantised = words_of(section, "quantizations", ("TRUE", "FALSE"), count) or ["TRUE"] * count
    default = [2 if given == "YUV_NV12" else 1 for given in formats]
    widths = whole_numbers_of(section.get("input_width_alignment"), default)
    heights = whole_numbers_of(section.get("input_height_alignment"), default)
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
    names = names_of(section["outputs"])
    dequantised = words_of(section, "dequantizations", ("TRUE", "FALSE"), len(names), "output") or ["FALSE"] * len(
        names
    )
    layouts = words_of(section, "output_layouts", LAYOUTS, len(names), "output") or ["NHWC"] * len(names)
    return tuple(ModelOutput(name, word == "TRUE", layout) for name, word, layout in zip(names, dequantised, layouts))


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
        return triples_of(section.get("mean"), is_picture, (0.0, 0.0, 0.0))
    if "mean" in section:
        raise ConfigError(f"{section['mean'].where} and {given[0]} are both given; keep one of the two forms")
    if len(given) < 3:
        missing = next(key for key in colours if key not in given)
        raise ConfigError(f"{path}: [INPUT_CONFIG] has {given[0]} but no {missing}; give all three, or mean = r:g:b")
    red, green, blue = ([triple[:1] for triple in triples_of(section[key], is_picture, ())] for key in colours)
    return [r + g + b for r, g, b in zip(red, green, blue)]
