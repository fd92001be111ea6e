#!/usr/bin/env python3
"""Find plans of INT8 and INT16 convolutions, as the SDK's sim_optimizer.py does.

sim_optimizer.py -i images -m float_model -n preprocess.py --input_config input_config.ini

example:
  sim_optimizer.py -i images/ -m net_float.sim -n net.py --input_config input_config.ini --num_process 20

For the i-th rate of compression_rates in this file, it writes ./optimized_quant_info_{i}_{rate}.pkl and, with the same
content, ./optimized_quant_info_{i}.pkl, for sim_calibrator.py --quant_file. The other results of `sgsdump tune` are in
./optimized.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

# A file of quant parameters for each; above 0.5 and at most 1.
compression_rates = [0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]
FOLDER = Path("optimized")


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("sim_optimizer.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.cli import main as sgsdump
    from sgsdump.commands.sdk.options import NoEffect, accept, no_effect_notes, with_presets
    from sgsdump.files.atomic_write import replacing

    no_effect = [NoEffect(("--soc_version",), "there is one simulation for all chips")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--image", required=True, help="image, folder or list file")
    parser.add_argument("-m", "--model", required=True, help="float model: .sim, ONNX, or Caffe's .prototxt")
    parser.add_argument("--weight_file", help="weights of a Caffe model (not an option of the SDK)")
    parser.add_argument(
        "-n", "--preprocess", help="preprocess file(s) or SDK presets, one per input, separated by commas"
    )
    parser.add_argument("--input_config", required=True, help="input_config.ini with all convolutions at INT8")
    parser.add_argument(
        "--num_process", type=int, default=1, help="number of processes for calibration (default: %(default)s)"
    )
    accept(parser, no_effect)
    args = parser.parse_args(argv)
    for note in no_effect_notes(args, no_effect):
        print(f"sim_optimizer.py: {note}", file=sys.stderr)
    given = ["-i", args.image, "-m", args.model, "--input_config", args.input_config, "-o", str(FOLDER), "--pickle"]
    given += ["--num_process", str(args.num_process), "--rates", ",".join(map(str, compression_rates))]
    for option, value in (("-n", with_presets(args.preprocess)), ("--weight_file", args.weight_file)):
        given += [option, value] if value else []
    status = sgsdump(["tune", *given])
    if status:
        return status
    for made in sorted(FOLDER.glob("optimized_quant_info_*.pkl")):
        short = f"{made.stem.rpartition('_')[0]}.pkl"
        for name in (made.name, short):
            with replacing(Path(name)) as file:
                file.write(made.read_bytes())
        print(f"{made.name}, {short}")
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
