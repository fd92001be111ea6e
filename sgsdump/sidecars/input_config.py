"""input_config.ini: inputs and outputs of a model, image normalisation, and convolutions raised to INT16.

``[INPUT_CONFIG]``   inputs, training_input_formats, input_formats, quantizations, mean_red/mean_green/mean_blue or
                     mean=r:g:b, std_value (one number or r:g:b), input_width_alignment, input_height_alignment,
                     input_layouts
``[OUTPUT_CONFIG]``  outputs, dequantizations, output_layouts (optional section)
``[CONV_CONFIG]``    input_format, tensor_arrays (optional section)

Values usually end in ``;``, followed by an optional comment, and may be quoted. Several values are separated by commas,
one per input or output. mean and std_value may also be one for all images, or one per image input. A list may continue
over indented lines. Normalisation is (x - mean) / std with x in 0..255.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sgsdump.errors import ConfigError
from sgsdump.files.escaping import quoted
from sgsdump.sidecars.ini import (
    Section,
    Value,
    choice_of,
    names_of,
    read_sections,
    triples_of,
    whole_numbers_of,
    words_of,
)

KEYS = {
    "INPUT_CONFIG": (
        "inputs training_input_formats input_formats quantizations mean mean_red mean_green mean_blue std_value "
        "input_width_alignment input_height_alignment input_layouts"
    ).split(),
    "OUTPUT_CONFIG": ["outputs", "dequantizations", "output_layouts"],
    "CONV_CONFIG": ["input_format", "tensor_arrays"],
}
RAWDATA = ("RAWDATA_S16_NHWC", "RAWDATA_F32_NHWC")
TRAINING_FORMATS = ("RGB", "BGR", "GRAY", *RAWDATA)
INPUT_FORMATS = ("RGB", "BGR", "RGBA", "BGRA", "YUV_NV12", "GRAY", *RAWDATA)
LAYOUTS = ("NHWC", "NCHW")
CONV_FORMATS = ("ALL_UINT8", "ALL_INT16", "CONV2D_INT16", "DEPTHWISE_INT16")
NAMES_LIMIT = 1024
COLOURS = ("mean_red", "mean_green", "mean_blue")


@dataclass(frozen=True)
class ModelInput:
    """One input of the model.

    ``mean`` and ``std`` are (red, green, blue) whatever the channel order of the fed image. They are three equal
    numbers for GRAY unless the file gives three, and () for RAWDATA, which is not normalised.
    """

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
    """Content of an input_config.ini.

    conv_format      input_format of [CONV_CONFIG]; None if absent
    tensor_arrays    first inputs of the convolutions to raise to INT16
    by_level         subset of tensor_arrays that a calibration level raised and no file names
    by_quant_file    subset of tensor_arrays that a quant file raised
    one_for_all      keys of means and std with one value for several images
    means_by_colour  False if there are image inputs, but no mean_red, mean_green and mean_blue
    """

    inputs: tuple[ModelInput, ...]
    outputs: tuple[ModelOutput, ...] = ()
    conv_format: str | None = None
    tensor_arrays: tuple[str, ...] = ()
    by_level: tuple[str, ...] = ()
    by_quant_file: tuple[str, ...] = ()
    one_for_all: tuple[str, ...] = ()
    means_by_colour: bool = True


def read(path: Path | str) -> InputConfig:
    """Read an input_config.ini.

    Raises ConfigError, with file, line and key, for anything that does not follow the module's format.
    """
    path = Path(path)
    sections = read_sections(path, KEYS)
    if "INPUT_CONFIG" not in sections:
        raise ConfigError(f"{path}: no section [INPUT_CONFIG]")
    conv = sections.get("CONV_CONFIG", {})
    conv_format = conv.get("input_format")
    arrays = conv.get("tensor_arrays")
    return InputConfig(
        inputs=_inputs(sections["INPUT_CONFIG"], path),
        outputs=_outputs(sections.get("OUTPUT_CONFIG", {}), path),
        conv_format=choice_of(conv_format, conv_format.text.strip(" \t'\""), CONV_FORMATS) if conv_format else None,
        tensor_arrays=tuple(names_of(arrays)) if arrays and arrays.text else (),
        one_for_all=_one_for_all(sections["INPUT_CONFIG"]),
        means_by_colour=COLOURS[0] in sections["INPUT_CONFIG"] or not _pictures(sections["INPUT_CONFIG"]),
    )


def _one_for_all(section: Section) -> tuple[str, ...]:
    keys = (*COLOURS, "std_value")
    return tuple(key for key in keys if _pictures(section) > 1 and key in section and len(section[key].items()) == 1)


def _pictures(section: Section) -> int:
    training = words_of(section, "training_input_formats", TRAINING_FORMATS, len(names_of(section["inputs"])))
    return sum(trained not in RAWDATA for trained in training)


def output_section(outputs: Sequence[ModelOutput]) -> str:
    """Return the [OUTPUT_CONFIG] section of an input_config.ini as text."""
    names = ",".join(output.name for output in outputs)
    words = ",".join("TRUE" if output.dequantised else "FALSE" for output in outputs)
    return f"[OUTPUT_CONFIG]\noutputs = {names};\ndequantizations = {words};\n"


def _inputs(section: Section, path: Path) -> tuple[ModelInput, ...]:
    if "inputs" not in section:
        raise ConfigError(f'{path}: [INPUT_CONFIG] has no key "inputs"')
    names = names_of(section["inputs"])
    if len(section["inputs"].text) > NAMES_LIMIT:
        raise ConfigError(
            f"{section['inputs'].where}: the names of the inputs have more than {NAMES_LIMIT} characters in total"
        )
    count = len(names)
    for key in ("training_input_formats", "input_formats"):
        if key not in section:
            raise ConfigError(f'{path}: [INPUT_CONFIG] has no key "{key}"')
    _check_alpha(section["training_input_formats"])
    training = words_of(section, "training_input_formats", TRAINING_FORMATS, count)
    formats = words_of(section, "input_formats", INPUT_FORMATS, count)
    for name, trained, fed in zip(names, training, formats):
        _check_formats(section["input_formats"].where, name, trained, fed)
    is_picture = [trained not in RAWDATA for trained in training]
    means = _means(section, is_picture, path)
    stds = triples_of(section.get("std_value"), is_picture, (1.0, 1.0, 1.0))
    for triple in stds:
        if any(value <= 0 for value in triple):
            raise ConfigError(f"{section['std_value'].where}: std_value must be above 0")
    layouts = words_of(section, "input_layouts", LAYOUTS, count) or ["NHWC"] * count
    quantised = words_of(section, "quantizations", ("TRUE", "FALSE"), count) or ["TRUE"] * count
    default = [2 if fed == "YUV_NV12" else 1 for fed in formats]
    widths = whole_numbers_of(section.get("input_width_alignment"), default)
    heights = whole_numbers_of(section.get("input_height_alignment"), default)
    return tuple(
        ModelInput(name, trained, fed, mean, std, layout, word == "TRUE", width, height)
        for name, trained, fed, mean, std, layout, word, width, height in zip(
            names, training, formats, means, stds, layouts, quantised, widths, heights
        )
    )


def _outputs(section: Section, path: Path) -> tuple[ModelOutput, ...]:
    if "outputs" not in section:
        if section:
            raise ConfigError(f'{path}: [OUTPUT_CONFIG] has no key "outputs"')
        return ()
    names = names_of(section["outputs"])
    count = len(names)
    dequantised = words_of(section, "dequantizations", ("TRUE", "FALSE"), count, "output") or ["FALSE"] * count
    layouts = words_of(section, "output_layouts", LAYOUTS, count, "output") or ["NHWC"] * count
    return tuple(ModelOutput(name, word == "TRUE", layout) for name, word, layout in zip(names, dequantised, layouts))


def _check_alpha(training: Value) -> None:
    for word in training.items():
        if word in ("RGBA", "BGRA"):
            raise ConfigError(
                f"{training.where}: SDK 1.1.5 accepts {word}, but the resulting fixed model gives "
                f"wrong results. Write {word[:3]} in training_input_formats and {word} in input_formats. "
                "If the model itself reads four channels, write RAWDATA_S16_NHWC in both keys"
            )


def _check_formats(where: str, name: str, trained: str, fed: str) -> None:
    if (trained in RAWDATA or fed in RAWDATA) and trained != fed:
        raise ConfigError(
            f"{where}: input {name!r} has input format {fed} but training format {trained}; with "
            "RAWDATA, both formats must be the same"
        )
    if {trained, fed} == {"RGB", "BGR"}:
        raise ConfigError(
            f"{where}: input {name!r} has input format {fed} but training format {trained}; the "
            f"simulator of SDK 1.1.5 fails with this pair of formats. Use {fed}A or {trained} as the "
            "input format"
        )


def _means(section: Section, is_picture: list[bool], path: Path) -> list[tuple[float, ...]]:
    present = [key for key in COLOURS if key in section]
    if not present:
        return triples_of(section.get("mean"), is_picture, (0.0, 0.0, 0.0))
    if "mean" in section:
        raise ConfigError(f"{section['mean'].where} and {present[0]} are both given; keep one of the two forms")
    if len(present) < 3:
        missing = next(key for key in COLOURS if key not in present)
        raise ConfigError(f"{path}: [INPUT_CONFIG] has {present[0]} but no {missing}; give all three, or mean = r:g:b")
    red, green, blue = ([triple[:1] for triple in triples_of(section[key], is_picture, ())] for key in COLOURS)
    return [r + g + b for r, g, b in zip(red, green, blue)]


def with_tensor_arrays(data: bytes, names: Sequence[str]) -> bytes:
    """Return the file's bytes with ``tensor_arrays`` of [CONV_CONFIG] set to these tensors.

    A missing section or key is added unless there is no name to write. ``data`` is a file that ``read`` accepts. Raises
    ConfigError for a name that the dialect cannot represent.
    """
    for name in names:
        if re.search(r"""[,'"\n\r]""", name) or name != name.strip():
            raise ConfigError(
                f"input_config.ini cannot name the tensor {quoted(name)}, because the name contains a comma or quote"
            )
    value = b"'" + ",".join(names).encode("utf-8", "surrogateescape") + b"';"
    newline = b"\r\n" if b"\r\n" in data else b"\n"
    lines = data.splitlines(keepends=True)
    start, stop = _section(lines)
    for index in range(start, stop):
        if lines[index].partition(b"=")[0].strip().lower() == b"tensor_arrays":
            last = _last_line(lines, index, stop)
            head = re.match(rb"[^=]*=[ \t]*", lines[index])
            assert head
            lines[index : last + 1] = [head[0] + value + _rest_of_line(lines[last])]
            return b"".join(lines)
    if not names:
        return data
    if start < stop:
        if not lines[start].endswith((b"\n", b"\r")):
            lines[start] += newline
        lines.insert(start + 1, b"tensor_arrays=" + value + newline)
        return b"".join(lines)
    gap = b"" if not data or data.endswith((b"\n", b"\r")) else newline
    return data + gap + newline + b"[CONV_CONFIG]" + newline + b"tensor_arrays=" + value + newline


def _section(lines: Sequence[bytes]) -> tuple[int, int]:
    """Return the line numbers [start, stop) of [CONV_CONFIG] with its header; start == stop if there is none."""
    heads = [i for i, line in enumerate(lines) if re.match(rb"(\xef\xbb\xbf)?\s*\[[^\]]*\]", line)]
    for position, index in enumerate(heads):
        if re.match(rb"(\xef\xbb\xbf)?\s*\[\s*CONV_CONFIG\s*\]", lines[index]):
            return index, heads[position + 1] if position + 1 < len(heads) else len(lines)
    return len(lines), len(lines)


def _last_line(lines: Sequence[bytes], index: int, stop: int) -> int:
    """Return the last line of a list that continues over indented lines."""
    while not _ended(lines[index]) and index + 1 < stop:
        follow = lines[index + 1]
        if not (follow[:1] in (b" ", b"\t") and follow.strip() and b"=" not in follow):
            break
        index += 1
    return index


def _ended(line: bytes) -> bool:
    """Return whether a ``;`` outside quotes ends the value on this line."""
    return b";" in re.sub(rb"'[^']*'|\"[^\"]*\"", b"", line)


def _rest_of_line(line: bytes) -> bytes:
    """Return the text after the value: a comment after its ``;``, and the line end."""
    match = re.match(rb"(?:'[^']*'|\"[^\"]*\"|[^;])*;", line)
    ending = re.search(rb"[\r\n]*$", line)
    return line[match.end() :] if match else ending[0] if ending else b""
