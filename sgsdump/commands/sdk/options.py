"""The options of the SDK's own scripts (``tools/``): those they share, and those that have no effect here.

The SDK's preprocess files are taken by bare names: ``-n ssd_mobilenet_v1``. They lie in
``$SGS_IPU_DIR/Scripts/calibrator/preprocess_method/NAME.py``; the SDK's cfg_env.sh sets the variable.

The SDK's calibrators write ``NAME_fixed.sim``, ours ONNX: ``written_name`` and ``ours_beside`` are for command lines of
the manual that name a .sim file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sgsdump.commands.options import QUANT_LEVELS
from sgsdump.errors import ConfigError

PRESETS = Path("Scripts/calibrator/preprocess_method")


@dataclass(frozen=True)
class NoEffect:
    """``flags`` as the SDK's tool spells them, and why they do nothing; ``value`` False for a switch."""

    flags: tuple[str, ...]
    why: str
    value: bool = True

    @property
    def name(self) -> str:
        return self.flags[-1].lstrip("-")


def accept(parser: argparse.ArgumentParser, options: Sequence[NoEffect]) -> None:
    """Let ``parser`` take the options."""
    for option in options:
        action = {} if option.value else {"action": "store_true"}
        parser.add_argument(*option.flags, dest=option.name, help=f"accepted, no effect: {option.why}", **action)  # type: ignore[arg-type]


def no_effect_notes(args: argparse.Namespace, options: Sequence[NoEffect]) -> list[str]:
    """One line for each of the options that was given."""
    return [f"{o.flags[-1]} has no effect: {o.why}" for o in options if getattr(args, o.name)]


def with_presets(preprocess: str | None) -> str | None:
    """Return the preprocess files of ``-n``, separated by commas; a bare name that no file here has becomes the SDK's
    file. Raises ConfigError where there is none."""
    return ",".join(_preprocess_file(name.strip()) for name in preprocess.split(",")) if preprocess else None


def _preprocess_file(name: str) -> str:
    if not name.isidentifier() or Path(name).exists() or Path(f"{name}.py").exists():
        return name
    sdk = os.environ.get("SGS_IPU_DIR")
    preset = Path(sdk or "") / PRESETS / f"{name}.py"
    if sdk and preset.is_file():
        return str(preset)
    place = f"and no preset {preset}" if sdk else "and SGS_IPU_DIR is not set"
    raise ConfigError(
        f"there is no preprocess file {name}.py in the current folder, {place}. The presets are part of the SDK: "
        f"set SGS_IPU_DIR to the folder of the SDK, or write {name}.py with a function get_image"
    )


def written_name(output: Path) -> Path:
    """Return the file that is written where the user names ``output``: ONNX, never under the name of a .sim file."""
    return output.with_suffix(".onnx") if output.suffix == ".sim" else output


def ours_beside(program: str, model: str) -> str:
    """Return the model to open: for NAME.sim that is not there, the NAME.onnx that our calibrator wrote in its place.
    A note says so."""
    ours = Path(model).with_suffix(".onnx")
    if Path(model).suffix != ".sim" or Path(model).exists() or not ours.is_file():
        return model
    print(f"{program}: there is no {model}; using {ours}, the fixed model that calibrator.py writes", file=sys.stderr)
    return str(ours)


def calibrate_arguments(
    program: str,
    description: str | None,
    own: Mapping[tuple[str, ...], str],
    no_effect: Sequence[NoEffect],
    argv: Sequence[str],
) -> tuple[list[str], list[str]]:
    """The arguments for ``sgsdump calibrate``, and notes for the user on options that have no effect.

    own        the program's further options with their help; the last flag of each is calibrate's.
    no_effect  options of the SDK's that are accepted with a note.
    """
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-i", "--image", required=True, help="image, folder or list file")
    parser.add_argument("-m", "--model", required=True, help="float model: .sim, ONNX, or Caffe's .prototxt")
    parser.add_argument("--weight_file", help="weights of a Caffe model (not an option of the SDK)")
    parser.add_argument(
        "-n", "--preprocess", help="preprocess file(s) or SDK presets, one per input, separated by commas"
    )
    parser.add_argument("--input_config", required=True, help="input_config.ini")
    parser.add_argument(
        "--quant_level", choices=QUANT_LEVELS, default="L5", help="calibration level (default: %(default)s)"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="fixed model to write (ONNX; NAME.onnx for NAME.sim), or a folder for the model",
    )
    parser.add_argument("--num_process", default="1", help="number of processes that run images (default: %(default)s)")
    for flags, text in own.items():
        parser.add_argument(*flags, help=text)
    accept(parser, no_effect)
    args = parser.parse_args(argv)
    given = [
        "-i",
        args.image,
        "-m",
        args.model,
        "--input_config",
        args.input_config,
        "-o",
        str(written_name(_target(args))),
    ]
    given += ["--quant_level", args.quant_level, "--num_process", args.num_process]
    optional = {"--preprocess": with_presets(args.preprocess), "--weight_file": args.weight_file}
    optional |= {flags[-1]: getattr(args, flags[-1].lstrip("-")) for flags in own}
    for option, value in optional.items():
        given += [option, value] if value else []
    notes = [f"{program}: {note}" for note in no_effect_notes(args, no_effect)]
    if _target(args) != written_name(_target(args)):
        kept = f"; {args.output} stays as it is" if args.output.exists() else ""
        notes.append(f"{program}: writes ONNX, not .sim: {written_name(args.output)}{kept}")
    return given, notes


def _target(args: argparse.Namespace) -> Path:
    """Without -o ./MODEL_fixed.onnx; a name that ends in _float becomes _fixed."""
    name = f"{Path(args.model).stem.removesuffix('_float')}_fixed.onnx"
    if args.output is None:
        return Path(name)
    return args.output / name if args.output.is_dir() else args.output


def dump_parser(description: str | None, model: str) -> argparse.ArgumentParser:
    """A parser with these options; ``model`` is the help text of -m."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model_file", required=True, help=model)
    parser.add_argument("-i", "--image", required=True, help="image, folder or list file")
    parser.add_argument(
        "--dump_bin", choices=["True", "False"], default="True", help="True: binary, False: text (default: %(default)s)"
    )
    parser.add_argument(
        "-n", "--preprocess", help="preprocess file(s) with get_image, one per input, separated by commas"
    )
    return parser
