"""What calibrator.py and sim_calibrator.py have in common: the SDK's options, as those of ``sgsdump calibrate``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from sgsdump.commands.sdk.presets import with_presets
from sgsdump.commands.sdk.sdk_options import NoEffect, accept, notes


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
    parser.add_argument("-i", "--image", required=True, help="picture, folder or list file")
    parser.add_argument("-m", "--model", required=True, help="float model: ONNX, or Caffe's .prototxt")
    parser.add_argument("--weight_file", help="weights of a Caffe model; not an option of the SDK's")
    parser.add_argument("-n", "--preprocess", help="preprocess file(s), or the SDK's presets, one per input, by commas")
    parser.add_argument("--input_config", required=True, help="input_config.ini")
    parser.add_argument("--quant_level", choices=["L1", "L2", "L3", "L4", "L5"], default="L5")
    parser.add_argument("-o", "--output", type=Path, help="fixed model to write, or the folder for it")
    parser.add_argument("--num_process", default="1", help="processes that run pictures (default: %(default)s)")
    for flags, text in own.items():
        parser.add_argument(*flags, help=text)
    accept(parser, no_effect)
    args = parser.parse_args(argv)
    given = ["-i", args.image, "-m", args.model, "--input_config", args.input_config, "-o", str(_target(args))]
    given += ["--quant_level", args.quant_level, "--num_process", args.num_process]
    optional = {"--preprocess": with_presets(args.preprocess), "--weight_file": args.weight_file}
    optional |= {flags[-1]: getattr(args, flags[-1].lstrip("-")) for flags in own}
    for option, value in optional.items():
        given += [option, value] if value else []
    return given, [f"{program}: {note}" for note in notes(args, no_effect)]


def _target(args: argparse.Namespace) -> Path:
    """Without -o ./MODEL_fixed.onnx; a name that ends in _float becomes _fixed."""
    name = f"{Path(args.model).stem.removesuffix('_float')}_fixed.onnx"
    if args.output is None:
        return Path(name)
    return args.output / name if args.output.is_dir() else args.output
