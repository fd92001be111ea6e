#!/usr/bin/env python3
"""Whether the convolution that ``diagnose`` names is the one that INT16 helps most, on unseen data and in integers.

    python benchmarks/named_cause.py [--nets PReLU,SiLU] [--levels L1,L2] [--plants 1,20] [--nets-in FOLDER] [--short]

The networks, plants and samples are those of ``unseen.py``. Each tensor that a convolution or a fully connected layer
reads is raised alone to INT16 by ``tensor_arrays`` of an input_config.ini, calibrated on the images that ``diagnose``
got, and run on samples that it did not get. The relative RMSE that is left decides, over that of the model as it is.

named    the error that the named convolution leaves is at most NEAR above that of the best one
spread   ``diagnose`` names none, and what the best one leaves is at most NEAR below what removing a fifth (PART) leaves

Exit status 1 if fewer than MOST of the answers hold. Needs torch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import unseen

import sgsdump

NEAR, PART, MOST = 0.1, 0.2, 0.9
IMAGES = 20
INI = """[INPUT_CONFIG]
inputs = data;
training_input_formats = RAWDATA_F32_NHWC;
input_formats = RAWDATA_F32_NHWC;

[OUTPUT_CONFIG]
outputs = result;
dequantizations = TRUE;

[CONV_CONFIG]
tensor_arrays = '{}';
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(unseen.NETS))
    parser.add_argument("--levels", default="L1,L2")
    parser.add_argument("--plants", default="1,20,80")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nets-in", type=Path, metavar="FOLDER", help="keep the trained networks here")
    parser.add_argument("--short", action="store_true", help="one network, trained for a few steps")
    args = parser.parse_args()
    if args.short:
        args.nets, args.levels, args.plants = "PReLU", "L2", "80"
    held = []
    print("| network | level | plant | named | rank | left: named, best | answer |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.nets_in or Path(temporary)
        for name in args.nets.split(","):
            net = unseen.trained(name, folder, 20 if args.short else unseen.STEPS)
            for level, plant in itertools.product(args.levels.split(","), args.plants.split(",")):
                draw = unseen.Draw(name, level, IMAGES, int(plant), "diagnose", args.seed)
                held.append(answer_of(net, draw, Path(temporary)))
    print(f"\nanswers that hold: {sum(held)} of {len(held)}")
    sys.exit(0 if args.short or np.mean(held) >= MOST else 1)


def answer_of(net: unseen.Trained, draw: unseen.Draw, folder: Path) -> bool:
    images, source, real = net.images(draw), net.path(draw.plant), unseen.exact(net, draw)
    found = json.loads(sgsdump.diagnose(source, images, quant_level=draw.level).texts["layers.json"])["findings"]
    causes = [
        each["facts"]["input"]
        for each in found
        if each["kind"] in ("cause", "part") and each["facts"]["reason"] == "8 bits"
    ]
    as_it_is = unseen.squared(net.outputs(sgsdump.calibrate(source, images, quant_level=draw.level)), real)
    left = {}
    for name in inputs_of_layers(source):
        ini = folder / "input_config.ini"
        ini.write_text(INI.format(name))
        made = sgsdump.calibrate(source, images, quant_level=draw.level, input_config=ini)
        left[name] = math.sqrt(unseen.squared(net.outputs(made), real) / as_it_is)
    best = min(left.values())
    named = causes[0] if causes else None
    holds = (1 + NEAR) * best >= 1 - PART if named is None else left[named] <= (1 + NEAR) * best
    rank = "-" if named is None else 1 + sum(each < left[named] for each in left.values())
    kind = "spread" if named is None else "named"
    leaves = "-" if named is None else f"{left[named]:.3g}"
    answer = f"{kind}: {'holds' if holds else 'WRONG'}"
    cells = (draw.net, draw.level, draw.plant, named or "-", f"{rank} of {len(left)}", f"{leaves}, {best:.3g}", answer)
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return holds


def inputs_of_layers(source: Path) -> list[str]:
    """Return the tensors that layers with constant weights read, in the order of the network."""
    graph = onnx.load(source).graph
    constants = {each.name for each in graph.initializer}
    layers = (each for each in graph.node if each.op_type in ("Conv", "Gemm", "MatMul") and each.input[1] in constants)
    return list(dict.fromkeys(each.input[0] for each in layers))


if __name__ == "__main__":
    main()
