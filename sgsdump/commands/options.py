"""Options shared by several commands: spelling, help, checked values and records.

A command's ``run`` converts the ``argparse.Namespace`` into frozen records of its options (``record``).
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sgsdump.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.models.model import Part
    from sgsdump.models.network import Network
    from sgsdump.tensors.stages import Stage

Record = TypeVar("Record")
INPUTS = "image, folder, list file, .npy, .npz, or random[:SEED]"
# The templates of --metric that need no labels; ``comparison.agreement`` has them.
AGREEMENTS, NO_AGREEMENT = ("top1-agreement", "detection-agreement", "pixel-agreement"), "none"
QUANT_LEVELS = ("L1", "L2", "L3", "L4", "L5")


def record(cls: type[Record], args: argparse.Namespace, **parts: Any) -> Record:
    """Return a record whose fields are the options of the same name, or come from ``parts``."""
    names = [field.name for field in fields(cls) if field.name not in parts]  # type: ignore[arg-type]
    return cls(**{name: getattr(args, name) for name in names}, **parts)


def part_of(args: argparse.Namespace) -> Part:
    """Return the part of the model given by ``--model-inputs`` and ``--model-outputs``."""
    from sgsdump.models.model import Part

    return record(Part, args)


def network_of(args: argparse.Namespace) -> Network:
    from sgsdump.models.network import Network

    return record(Network, args, part=part_of(args), feeds=None)


@dataclass(frozen=True)
class Modes:
    """The options that each mode of a command accepts; a mode refuses all others.

    honoured  modes that accept an option, by its name in argparse
    refusals  end of the error message, by mode, or by option if that needs its own reason
    spelled   spelling of a positional argument

    An option that a mode refuses has an empty default (None, False, [] or ()), which shows whether it was given.
    """

    honoured: Mapping[str, Collection[str]]
    refusals: Mapping[str, str]
    spelled: Mapping[str, str]

    def given(self, args: argparse.Namespace) -> tuple[str, ...]:
        """Return the names of the options that the user gave."""
        values = {name: getattr(args, name, None) for name in self.honoured}
        return tuple(name for name, value in values.items() if not (value in (None, [], ()) or value is False))

    def check(self, mode: str, given: Collection[str]) -> None:
        """Raise ConfigError for the first given option that the mode refuses."""
        for name in given:
            if mode not in self.honoured[name]:
                option = self.spelled.get(name) or f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} {self.refusals.get(name) or self.refusals[mode]}")


@dataclass(frozen=True)
class Reading:
    """Options for reading dumps.

    step, rank            run in a tree
    ranges, parse_net     side files that unpad and dequantise integers
    raw_dtype, raw_shape  types and shapes of raw files, each by name pattern; or a model that has the shapes
    reader                readers of the user: (path pattern, FILE.py[:FUNCTION]); pattern "" for unknown formats
    files                 patterns of the files to read in a folder
    """

    step: int | None = None
    rank: int | None = None
    ranges: Path | None = None
    parse_net: Path | None = None
    raw_dtype: Sequence[tuple[str, np.dtype]] = ()
    raw_shape: Sequence[tuple[str, tuple[int, ...]] | Path] = ()
    reader: Sequence[tuple[str, str]] = ()
    files: Sequence[str] = ()


def add_model(
    parser: argparse._ActionsContainer,
    text: str = "float model: ONNX, Caffe's .prototxt, or float.sim",
    required: bool = True,
) -> None:
    """Add ``-m/--model``; for Caffe, ``--weight-file``; ``--model-inputs`` and ``--model-outputs``."""
    parser.add_argument("-m", "--model", type=Path, required=required, help=text)
    parser.add_argument("--weight-file", type=Path, metavar="W.caffemodel", help="weights of a Caffe model")
    for end, part in (
        ("inputs", "the part after these tensors; these tensors become the model inputs"),
        ("outputs", "the part that computes these tensors; these tensors become the model outputs"),
    ):
        text = f"cut the model: run only {part}"
        parser.add_argument(f"--model-{end}", nargs="+", default=(), metavar="NAME", help=text)


def add_feeds(parser: argparse._ActionsContainer, text: str = INPUTS, required: bool = True) -> None:
    """Add ``-i/--image`` or ``--data-loader-script``, and ``-n/--preprocess``."""
    source = parser.add_mutually_exclusive_group(required=required)
    add_image(source, text)
    add_data_loader(source)
    add_preprocess(parser)


def add_image(parser: argparse._ActionsContainer, text: str) -> None:
    """Add ``-i/--image``."""
    parser.add_argument("-i", "--image", metavar="IMAGES", help=text)


def add_data_loader(parser: argparse._ActionsContainer) -> None:
    """Add ``--data-loader-script``, Polygraphy's name."""
    parser.add_argument(
        "--data-loader-script",
        metavar="FILE.py[:NAME]",
        help="Python file with load_data(), which yields {input name: array} for each run",
    )


def add_preprocess(parser: argparse._ActionsContainer) -> None:
    """Add ``-n/--preprocess``."""
    parser.add_argument(
        "-n", "--preprocess", metavar="FILE.py", help="preprocess file(s), one per input, separated by commas"
    )


def add_provider(parser: argparse._ActionsContainer, default: str | None = "CPU") -> None:
    """Add ``--provider`` of onnxruntime; ``default`` None shows whether the option was given."""
    parser.add_argument(
        "--provider",
        default=default,
        metavar="NAME",
        help="execution provider of onnxruntime, such as CUDAExecutionProvider (default: CPU)",
    )


def add_input_config(
    parser: argparse._ActionsContainer,
    text: str = (
        "path of input_config.ini (sgsdump cfg writes this file). Required if the files of -i are images; "
        "optional if they are arrays, because sgsdump can infer the settings for arrays"
    ),
) -> None:
    """Add ``--input-config``."""
    parser.add_argument("--input-config", type=Path, metavar="INI", help=text)


def add_strict_sdk(parser: argparse._ActionsContainer) -> None:
    """Add ``--strict-sdk``."""
    parser.add_argument(
        "--strict-sdk",
        action="store_true",
        help="if SDK 1.1.5 refuses the model, write nothing and exit with status 2 (docs/sdk_converter.md)",
    )


def add_ranges(parser: argparse._ActionsContainer, text: str) -> None:
    """Add ``--ranges``."""
    parser.add_argument("--ranges", type=Path, metavar="FILE", help=text)


def add_fixed(parser: argparse._ActionsContainer, text: str, metavar: str = "FILE") -> None:
    """Add ``--fixed``."""
    parser.add_argument("--fixed", type=Path, metavar=metavar, help=text)


def add_cure(parser: argparse._ActionsContainer, text: str) -> None:
    """Add ``--cure``."""
    parser.add_argument("--cure", action="store_true", help=text)


def add_parse_net(parser: argparse._ActionsContainer) -> None:
    """Add ``--parse-net``."""
    parser.add_argument(
        "--parse-net",
        type=Path,
        metavar="FILE",
        help=("fixed.sim, or the SDK's parse_net output for fixed.sim; used to unpad and dequantise integer dumps"),
    )


def add_run(parser: argparse._ActionsContainer) -> None:
    """Add ``--step`` and ``--rank``, which select a run of a tree of runs."""
    parser.add_argument(
        "--step", type=int, metavar="N", help="select the run of step N in a tree of runs (or write TREE@step=N)"
    )
    parser.add_argument(
        "--rank",
        type=int,
        metavar="N",
        help="select the run of rank or device N in a tree of runs (or write TREE@rank=N)",
    )


def add_runs(parser: argparse._ActionsContainer) -> None:
    """Add ``--runs``."""
    parser.add_argument(
        "--runs",
        action="store_true",
        help="compare two folders of dumps or trees of runs: pair runs by name and merge their errors",
    )


def add_select(parser: argparse._ActionsContainer) -> None:
    """Add ``--select``."""
    parser.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="PATTERN",
        help="list only entries whose name matches PATTERN (wildcards: *, ?, [ab]); may be repeated",
    )


def add_to(
    parser: argparse._ActionsContainer,
    text: str = "format of OUT (default: the file name ending of OUT selects the format)",
) -> None:
    """Add ``--to``."""
    parser.add_argument("--to", metavar="FORMAT", help=text)


def add_output(
    parser: argparse._ActionsContainer,
    text: str,
    metavar: str = "FILE",
    default: Path | None = None,
    required: bool = False,
) -> None:
    """Add ``-o/--output``."""
    parser.add_argument("-o", "--output", type=Path, metavar=metavar, default=default, required=required, help=text)


def add_csv(parser: argparse._ActionsContainer, text: str) -> None:
    """Add ``--csv``."""
    parser.add_argument("--csv", type=Path, metavar="FILE", help=text)


def add_json(parser: argparse._ActionsContainer, text: str, bare: Path | None = None) -> None:
    """Add ``--json``; the command line replaces ``-`` by a temporary file.

    bare  the value of ``--json`` without a file; None requires one.
    """
    nargs = None if bare is None else "?"
    parser.add_argument(
        "--json",
        nargs=nargs,
        type=Path,
        const=bare,
        metavar="FILE",
        help=f'{text}; if FILE is "-", print only the JSON',
    )


def add_junit(parser: argparse._ActionsContainer, text: str) -> None:
    """Add ``--junit``."""
    parser.add_argument("--junit", type=Path, metavar="FILE", help=text)


def add_page_budget(parser: argparse._ActionsContainer) -> None:
    """Add --page-budget, the size of the tensor values in an HTML page."""
    parser.add_argument(
        "--page-budget",
        type=lambda text: 0 if text == "0" else size_in_bytes(text),
        default="10MB",
        metavar="SIZE",
        help="most space for tensor values in the HTML page; 0: no values (default: %(default)s)",
    )


def add_stages(parser: argparse._ActionsContainer) -> None:
    """Add ``--stages``: a model whose table pairs the blobs of a Caffe model with the stages of the SDK."""
    parser.add_argument(
        "--stages",
        type=Path,
        metavar="MODEL",
        help=(
            "fixed model that calibrate wrote for a Caffe model. MODEL lists the stages of each blob (the successive "
            "values that in-place layers give to the blob), and sgsdump pairs blobs with these stages"
        ),
    )


def add_metric(parser: argparse._ActionsContainer, text: str, repeated: bool = False) -> None:
    """Add ``--metric``."""
    further: dict[str, Any] = {"action": "append", "default": []} if repeated else {}
    parser.add_argument("--metric", metavar="FILE.py:FUNCTION", help=text, **further)


def add_validate(parser: argparse._ActionsContainer, text: str) -> None:
    """Add ``--validate``."""
    parser.add_argument("--validate", metavar="IMAGES", help=text)


def add_judges(parser: argparse._ActionsContainer, measured: str, metric: str, some: str = "some of -i") -> None:
    """Add ``--metric``, ``--evaluate`` and ``--validate``.

    measured  the errors that are measured on the images.
    metric    the use of the metric.
    some      the images without ``--evaluate``.
    """
    built_in = f"a built-in metric: {', '.join(AGREEMENTS)}; or '{NO_AGREEMENT}' for no metric"
    add_metric(parser, f"your own accuracy function, {metric}; or {built_in}")
    parser.add_argument(
        "--evaluate", metavar="IMAGES", help=f"images on which the {measured} are measured (default: {some})"
    )
    add_validate(
        parser, "held-out images on which the recommendation is verified; these images do not influence any choice"
    )


class Told(argparse.Action):
    """An option that sets ``DEST_told`` if the user gave it."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        setattr(namespace, self.dest, values)
        setattr(namespace, f"{self.dest}_told", True)


def add_quant_level(
    parser: argparse._ActionsContainer, text: str = "calibration level, see calibrate --help-all", default: str = "L5"
) -> None:
    """Add ``--quant-level``; the namespace has ``quant_level_told`` if the user gave it."""
    parser.add_argument(
        "--quant-level", action=Told, choices=QUANT_LEVELS, default=default, help=f"{text} (default: %(default)s)"
    )


def add_limits(parser: argparse._ActionsContainer, subject: str, documented: bool = True) -> None:
    """Add ``--min-cos`` and ``--max-rmse`` of ``subject``; ``documented``: without them, the documented limits hold."""
    for option, end, metric, default in (
        ("--min-cos", "lowest", "COS", "0.99"),
        ("--max-rmse", "highest", "RMSE", "0.1"),
    ):
        text = f"{end} {metric} allowed for {subject}" + f" (default: {default})" * documented
        parser.add_argument(option, type=limit if documented else float, metavar="X", help=text)


def add_allow_missing(parser: argparse._ActionsContainer, text: str, default: bool | None = False) -> None:
    """Add ``--allow-missing``."""
    parser.add_argument("--allow-missing", action="store_true", default=default, help=text)


def add_th1(parser: argparse._ActionsContainer, *short: str, text: str, default: float | None = None) -> None:
    """Add ``--th1``."""
    parser.add_argument(*short, "--th1", type=float, default=default, metavar="X", help=text)


def add_num_process(
    parser: argparse._ActionsContainer,
    text: str = "number of processes that run the model on images; results do not depend on N",
    default: int | None = 1,
) -> None:
    """Add ``--num-process``."""
    parser.add_argument("--num-process", type=whole_number, default=default, metavar="N", help=f"{text} (default: 1)")


def add_scheduler(parser: argparse._ActionsContainer, task: str) -> None:
    """Add ``--scheduler``; ``task``: what the workers do."""
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help=f"{task} on the Dask cluster of this scheduler, such as tcp://host:8786",
    )


class Listing(argparse._StoreAction):
    """An option for members of a table; ``of()`` returns its help when shown: the table may import much."""

    def __init__(self, *args: Any, of: Callable[[], str], **kwargs: Any):
        self._of = of
        super().__init__(*args, **kwargs)

    @property
    def help(self) -> str:
        return self._of()

    @help.setter
    def help(self, text: str | None) -> None:
        assert text is None, "the table says it"


def whole_number(text: str) -> int:
    """Return a whole number of 1 or more."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return int(text)


def not_negative(text: str) -> float:
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of 0 or more")
    return value


def limit(text: str) -> float:
    """Return a finite number."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


def size_in_bytes(text: str) -> int:
    """Return a size such as ``500M``, ``20GB`` or ``1000`` in bytes."""
    number = text[:-1] if text[-2:-1].upper() in ("K", "M", "G", "T") and text[-1:] in "bB" else text
    unit = {"K": 10, "M": 20, "G": 30, "T": 40}.get(number[-1:].upper(), 0)
    digits = number[:-1] if unit else number
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16 and int(digits)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 500M or 20G")
    return int(digits) << unit


def names(text: str) -> list[str]:
    """Return names that are separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def stages_of(model: Path | None, required: bool = True) -> tuple[Stage, ...]:
    """Return the table of stages in a model, () for None. Raises ConfigError if a required table is missing."""
    if model is None:
        return ()
    from sgsdump.models.model import open_model
    from sgsdump.tensors.stages import KEY, table_of

    properties = {entry.key: entry.value for entry in open_model(model).proto.metadata_props}
    if KEY in properties:
        return table_of(properties[KEY])
    if required:
        raise ConfigError(
            f"{model} has no table of Caffe stages (metadata {KEY}); a stage is one of the successive values of a "
            "blob. Give a model that calibrate created from a Caffe model"
        )
    return ()


def add_readers(parser: argparse._ActionsContainer) -> None:
    """Add ``--reader`` (formats that sgsdump does not know) and ``--files`` (selection of files in a folder)."""
    parser.add_argument(
        "--reader",
        type=_reader,
        action="append",
        default=[],
        metavar="[PATTERN=]FILE.py[:FUNCTION]",
        help=(
            "Python file with your own reader, a function read(path) that yields (name, array); sgsdump calls this "
            "reader for dumps of unknown formats or, with PATTERN, for paths that match PATTERN; may be repeated"
        ),
    )
    parser.add_argument(
        "--files",
        action="append",
        default=[],
        metavar="PATTERN",
        help="for folders, read only the files whose path or name matches this pattern; may be repeated",
    )


def _reader(text: str) -> tuple[str, str]:
    """Return the pattern ("" for unknown formats) and ``FILE.py[:FUNCTION]``."""
    from sgsdump.dumps.own_reader import split_text

    pattern, sign, reader = text.rpartition("=")
    if not sign or split_text(text, "")[0].is_file():
        return "", text
    return pattern, reader


def add_raw(parser: argparse._ActionsContainer, shapes: bool = True) -> None:
    """Add ``--raw-dtype`` and, if ``shapes``, ``--raw-shape``, for files without a header."""
    parser.add_argument(
        "--raw-dtype",
        type=_raw_dtype,
        action="append",
        default=[],
        metavar="[PATTERN=]TYPE",
        help="read files without a header (.raw, .bin) as values of this type, such as float32; may be repeated",
    )
    if shapes:
        parser.add_argument(
            "--raw-shape",
            type=_raw_shape,
            action="append",
            default=[],
            metavar="PATTERN=SHAPE",
            help=(
                "shape of files without a header, such as 1,8,5,7; or MODEL.onnx to take the "
                "shapes from this model; may be repeated"
            ),
        )


def _raw_dtype(text: str) -> tuple[str, np.dtype]:
    from sgsdump.tensors.dtypes import dtype_named

    pattern, _, name = text.rpartition("=")
    try:
        return pattern or "*", dtype_named(name)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _raw_shape(text: str) -> tuple[str, tuple[int, ...]] | Path:
    return pattern_and_shape(text) if "=" in text else Path(text)


def pattern_and_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name pattern and the shape of a text such as ``conv*=1,3,8,8``."""
    pattern, sign, shape = text.rpartition("=")
    sizes = shape.replace("x", ",").split(",")
    if not sign or not pattern or not all(re.fullmatch("[1-9][0-9]{0,11}", size) for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} is not PATTERN=SHAPE, such as 'conv*=1,3,8,8'")
    return pattern, tuple(map(int, sizes))
