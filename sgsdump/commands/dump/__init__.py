"""Run one input through a model and write every layer's tensor into one dump, in topological order.

The tensors keep their names; 4-D ones are stored as NHWC, all values as float32, as the SDK's onnx_dump_data.py does.
With several pictures each gets a dump of its own, the picture's name put in: -o out.bin makes out_cat.bin, out_dog.bin.
A data loader script is Python with load_data(), which yields a dictionary of arrays by input name for each run; their
dumps are numbered: out_0.bin, out_1.bin.

examples:
  sgsdump dump -m net.onnx -i cat.jpg -n preprocess.py -o net_cat.bin
  sgsdump dump -m net.onnx -i pictures/ --input-config input_config.ini -o out.bin
  sgsdump dump -m net.onnx -i a.npy,b.npy -n a.py,b.py
  sgsdump dump -m net.onnx -i cat.jpg -n preprocess.py --dump-bin False
  sgsdump dump -m net.onnx --data-loader-script feeds.py -o out.bin
  sgsdump dump -m net.prototxt --weight-file net.caffemodel -i cat.jpg -n preprocess.py

Of a Caffe model the blobs are dumped as pycaffe shows them: the first input is left out, a blob that layers write over
in place has its last value. --every-layer adds the values that were written over, under their layers' names. (The SDK,
and all commands here that quantise or simulate, name each value: conv1, conv1_xx …; docs/caffe.md.)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.cut_note import print_cut
from sgsdump.commands.dump.every_input import CAFFE_OUTPUT, DEFAULT_OUTPUT, Source, dump_all
from sgsdump.commands.dump.written import Form
from sgsdump.commands.options import add_feeds, add_model, add_provider

if TYPE_CHECKING:
    from sgsdump.models.model import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_feeds(parser)
    parser.add_argument("--input-config", metavar="INI", help="input_config.ini, for the built-in preprocess")
    parser.add_argument(
        "--dump-bin",
        choices=["True", "False"],
        default="True",
        help="False prints the values: one text file of all, and one per layer in NHWC/ and NCHW/ beside it",
    )
    add_provider(parser)
    parser.add_argument("--every-layer", action="store_true", help="Caffe: also what in-place layers wrote over")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT.bin",
        help=f"dump to write (default: {DEFAULT_OUTPUT}; of a Caffe model {CAFFE_OUTPUT})",
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import check_outputs
    from sgsdump.models.model import open_model
    from sgsdump.sidecars import input_config

    config = input_config.read(args.input_config) if args.input_config else None
    text = args.dump_bin == "False"
    model = open_model(args.model, args.weight_file, in_place=True)
    for line in _notes(model, args):
        print(line)
    caffe = model.blobs is not None
    output = args.output or (CAFFE_OUTPUT if caffe else DEFAULT_OUTPUT).with_suffix(".txt" if text else ".bin")
    read = (args.model, args.weight_file, args.image, args.input_config, args.data_loader_script)
    check_outputs([output], read)
    source = Source(args.image, args.preprocess, config, args.data_loader_script)
    dump_all(model, source, output, Form(text, caffe), every_layer=args.every_layer, provider=args.provider)
    print_cut(model, config)
    return 0


def _notes(model: Model, args: argparse.Namespace) -> Iterator[str]:
    """A fixed model's graph is dumped as ONNX has it, and its picture is fed as the preprocess file makes it."""
    from sgsdump.files.escaping import for_terminal
    from sgsdump.quantisation.fixed_facts import is_fixed

    if is_fixed(model):
        simulate = f"sgsdump simulate -m {args.model} -i {args.image or 'PICTURE'} -t Fixed"
        yield for_terminal(
            f"note: {args.model} is a fixed model: this dumps every node of its graph and feeds what the preprocess "
            f"file gives; the layers as the SDK dumps them, from the picture's bytes: {simulate}"
        )
