#!/usr/bin/env python3
"""Make the fixed model and the log folder from pictures, as the SDK's calibrator.py does.

calibrator.py -i pictures -m float_model -n preprocess.py --input_config input_config.ini [-o fixed_model]

Without -o the fixed model is ./MODEL_fixed.onnx; a name that ends in _float becomes _fixed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("calibrator.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.cli import main as sgsdump
    from sgsdump.sdk.sdk_options import NoEffect, accept, notes

    no_effect = [
        NoEffect(("-c", "--category"), "the ranges are the same for every kind of network"),
        NoEffect(("-t", "--tool"), "there is no other calibrator to start"),
        NoEffect(("--save_input",), "the preprocessed pictures are not kept", value=False),
        NoEffect(("--soc_version",), "there is one calibration for all chips"),
    ]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--image", required=True, help="picture, folder or list file")
    parser.add_argument("-m", "--model", required=True, help="float model: ONNX, or Caffe's .prototxt")
    parser.add_argument("--weight_file", help="weights of a Caffe model; not an option of the SDK's")
    parser.add_argument("-n", "--preprocess", help="preprocess file(s), one per input, by commas")
    parser.add_argument("--input_config", required=True, help="input_config.ini")
    parser.add_argument("--quant_level", choices=["L1", "L2", "L3", "L4", "L5"], default="L5")
    parser.add_argument("-o", "--output", type=Path, help="fixed model to write, or the folder for it")
    parser.add_argument("--num_process", default="1", help="processes that run pictures (default: %(default)s)")
    parser.add_argument("-sth", "--sensitivity_threshold", default="0.002", help="default: %(default)s")
    accept(parser, no_effect)
    args = parser.parse_args(argv)
    for note in notes(args, no_effect):
        print(f"calibrator.py: {note}", file=sys.stderr)
    given = ["-i", args.image, "-m", args.model, "--input_config", args.input_config, "-o", str(target(args))]
    given += ["--quant_level", args.quant_level, "--num_process", args.num_process]
    given += ["-sth", args.sensitivity_threshold]
    optional = (("-n", args.preprocess), ("--weight_file", args.weight_file))
    for option, value in optional:
        given += [option, value] if value else []
    return sgsdump(["calibrate", *given])


def target(args: argparse.Namespace) -> Path:
    name = f"{Path(args.model).stem.removesuffix('_float')}_fixed.onnx"
    if args.output is None:
        return Path(name)
    return args.output / name if args.output.is_dir() else args.output


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed
    sys.exit(main())
