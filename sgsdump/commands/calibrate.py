"""Calibrate: pictures + float model + input_config.ini -> the fixed model and the range of every tensor.

Runs every picture through the float model, keeps each tensor's minimum and maximum (log/tensor_min_max.txt), and
makes the fixed model from them: an ONNX file with QuantizeLinear/DequantizeLinear that `sgsdump simulate -t Fixed`
runs and any viewer opens. A line disableDomainFuseOps in ./DebugConfig.txt keeps every layer visible. An older log
folder is moved aside, not deleted.

examples:
  sgsdump calibrate -m net.onnx -i pictures/ -n preprocess.py --input_config input_config.ini -o net_fixed.onnx
  sgsdump calibrate -m net.onnx -i list.txt --input_config input_config.ini
  sgsdump calibrate -m net.prototxt --weight_file net.caffemodel -i pictures/ --input_config input_config.ini
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

HELP = "pictures + float model -> fixed model and tensor ranges"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--model", required=True, help="float model: ONNX, or Caffe's .prototxt")
    parser.add_argument("--weight_file", metavar="W.caffemodel", help="weights of a Caffe model")
    parser.add_argument("-i", "--image", required=True, help="picture, folder, list file, .npy, or random[:SEED]")
    parser.add_argument("-n", "--preprocess", help="your preprocess file(s), one per input, by commas")
    parser.add_argument("--input_config", required=True, help="input_config.ini")
    parser.add_argument("-o", "--output", type=Path, help="fixed model to write (default: MODEL_fixed.onnx here)")
    parser.add_argument("--quant_level", choices=["L1"], default="L1", help="L1: plain minimum and maximum")
    parser.add_argument("--json", action="store_true", help="write log/tensor_min_max.json instead of .txt")


def run(args: argparse.Namespace) -> int:
    from sgsdump import calibration
    from sgsdump.inputs import expand, feeds
    from sgsdump.model import graph_inputs, open_model
    from sgsdump.output import make_folder, replacing, set_aside
    from sgsdump.passes.mark_outputs import mark_outputs
    from sgsdump.progress import counted
    from sgsdump.sidecars import debug_config, input_config
    from sgsdump.sidecars.tensor_min_max import write_ranges

    debug = debug_config.read() or debug_config.DebugConfig()
    config = input_config.read(args.input_config)
    model = open_model(args.model, args.weight_file)
    if model.blobs is not None:
        model = replace(model, proto=mark_outputs(model.proto, [output.name for output in config.outputs]))
    specs = graph_inputs(model.proto)
    runs = feeds(args.image, args.preprocess, specs, config)
    target = args.output or Path(f"{Path(args.model).stem}_fixed.onnx")
    # Opened first: a long calibration must not end with "no such folder".
    with replacing(target) as file:
        simple = calibration.simplify(model)
        total = len(expand(args.image, len(specs)))
        fuse = not debug.disable_domain_fuse_ops
        ranges = calibration.measure_ranges(simple, counted(runs, "calibrate", "picture", total), fuse)
        fixed = calibration.make_fixed(simple, ranges, config, fuse)
        file.write(calibration.serialise(fixed.proto))
    aside = set_aside(Path("log"))
    log = make_folder(Path("log")) / ("tensor_min_max.json" if args.json else "tensor_min_max.txt")
    write_ranges(ranges, log, "json" if args.json else "text")
    if aside:
        print(f"moved the older log aside to {aside}")
    print(f"{log}: the ranges of {len(ranges)} tensors over {total} pictures")
    wide = sum(str(quant.dtype) == "int16" for quant in fixed.plan.weights.values())
    print(f"{target}: {len(fixed.plan.weights)} convolutions, {wide} of them INT16")
    return 0
