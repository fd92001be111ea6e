#!/usr/bin/env python3
"""Run images through a float or fixed model, as the SDK's simulator.py does.

simulator.py -i image -m model -c Classification|Detection|Unknown -t Float|Fixed|Offline -n preprocess.py [-l label]

examples:
  simulator.py -i img.bmp -m net_float.sim -c Unknown -t Float -n net.py
  simulator.py -i img.bmp -m net_fixed.sim -c Unknown -t Fixed -n net.py --dump_rawdata
  simulator.py -i img.bmp -m net.img -c Unknown -t Offline -n net.py

The model is a .sim file of the SDK, ONNX, Caffe, or the fixed model of calibrator.py. Offline runs the fixed model
inside the offline image (.img) and ignores its hardware commands.

DebugConfig.txt in the current folder switches the dump on. Classification prints the five best classes of the first
output. Unknown and Detection write all outputs to output/unknown_MODEL_IMAGE.txt.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    return exit_status("simulator.py", lambda: run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    from sgsdump.commands.sdk.files import write_outputs
    from sgsdump.commands.sdk.options import NoEffect, accept, no_effect_notes, ours_beside, with_presets
    from sgsdump.fixedpoint.commands.simulate import Running, open_as, simulate_all
    from sgsdump.models.network import Source
    from sgsdump.sidecars import input_config

    no_effect = [
        NoEffect(("--skip_garbage",), "outputs are never padded here", value=False),
        NoEffect(("--num_process",), "images run one after another"),
        NoEffect(("--draw_result",), "boxes are not decoded"),
        NoEffect(("--continue_run",), "every run starts from the beginning", value=False),
        NoEffect(("--save_input",), "the dump contains the input", value=False),
        NoEffect(("--tool",), "there is no other simulator to start"),
        NoEffect(("--soc_version",), "there is one simulation for all chips"),
    ]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-i", "--image", required=True, help="image, folder or list file")
    parser.add_argument("-m", "--model", required=True, help="float model, fixed model, or offline image (.img)")
    parser.add_argument("--weight_file", help="weights of a Caffe model (not an option of the SDK)")
    parser.add_argument("-l", "--label", help="file with the names of the classes, one per line")
    parser.add_argument("-c", "--category", required=True, choices=["Classification", "Detection", "Unknown"],
                        help="form of the printed outputs")  # fmt: skip
    parser.add_argument("-t", "--type", required=True, choices=["Float", "Fixed", "Offline"], help="type of the model")
    parser.add_argument(
        "-n", "--preprocess", help="preprocess file(s) or SDK presets, one per input, separated by commas"
    )
    parser.add_argument("--input_config", help="input_config.ini, for the built-in preprocessing of a float model")
    parser.add_argument(
        "--dump_rawdata", action="store_true", help="also write the input bytes of the board as IMAGE.bin"
    )
    accept(parser, no_effect)
    args = parser.parse_args(argv)
    for note in no_effect_notes(args, no_effect):
        print(f"simulator.py: {note}", file=sys.stderr)
    preprocess = with_presets(args.preprocess)
    names = read_labels(args.label) if args.label and args.category == "Classification" else []
    config = input_config.read(args.input_config) if args.input_config else None
    model = open_as(args.type, ours_beside("simulator.py", args.model), args.weight_file)
    source = Source(args.image, preprocess, config)
    for label, simulation in simulate_all(model, args.type, source, how=Running(dump_rawdata=args.dump_rawdata)):
        ordered = [info.name for info in model.proto.graph.output if info.name in simulation.outputs]
        outputs = {name: simulation.outputs[name] for name in ordered}
        if args.category == "Classification" and outputs:
            print_best(label, outputs[ordered[0]], names)
        else:
            print(f"{write_outputs(outputs, model.path, label)}: {len(outputs)} outputs")
    return 0


def read_labels(path: str) -> list[str]:
    from sgsdump.files.bounded_read import read_bytes

    return read_bytes(Path(path)).decode("utf-8", "replace").splitlines()


def print_best(label: str, scores: np.ndarray, names: Sequence[str]) -> None:
    """Print the five best classes of one picture: place, class, name and score."""
    flat = scores.reshape(-1)
    for place, index in enumerate(flat.argsort(kind="stable")[::-1][:5].tolist(), 1):
        name = f" {names[index]}" if index < len(names) else ""
        print(f"{label}: {place}. class {index}{name}, score {flat[index]:f}")


if __name__ == "__main__":
    from door import enter

    enter(main)
