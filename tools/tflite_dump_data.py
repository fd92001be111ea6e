#!/usr/bin/env python3
"""Dump every layer of a TFLite model into ./dumpData, as the SDK's tflite_dump_data.py does.

The file is dumpData/tflite_outtensor_dump.bin, also for --dump_bin False, which writes text.
LiteRT is required: pip install 'sgsdump[tflite]'
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump.dumps.dump import Record
    from sgsdump.executors.runner import Layer
    from sgsdump.models.model import Model


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status
    from sgsdump.commands.sdk.options import dump_parser

    args = dump_parser(__doc__, "TFLite model").parse_args(argv)
    return exit_status("tflite_dump_data.py", lambda: run(args))


def run(args: argparse.Namespace) -> int:
    from sgsdump.dumps.formats.sigmastar import binary, text_dump
    from sgsdump.dumps.formats.sigmastar.text_dump import TFLITE
    from sgsdump.executors.native.runner import NativeRunner
    from sgsdump.files.atomic_write import make_folder
    from sgsdump.files.names import output_paths
    from sgsdump.models.feeds.feeds import expand, feeds
    from sgsdump.models.model import graph_inputs
    from sgsdump.models.tflite import read

    model = read(Path(args.model_file))
    runner = NativeRunner(model)
    inputs = graph_inputs(model.proto)
    runs = feeds(args.image, args.preprocess, inputs)
    files = [names[0] for names in expand(args.image, len(inputs))]
    folder = make_folder(Path("dumpData"))
    for target, (_, feed) in zip(output_paths(folder / "tflite_outtensor_dump.bin", files), runs):
        if args.dump_bin == "True":
            binary.write(_records(model, runner.run(feed)), target, binary.TFLITE)
        else:
            text_dump.write(_records(model, runner.run(feed)), target, TFLITE)
        print(f"{target}: {target.stat().st_size:,} bytes")
    for skip in runner.skipped.values():
        print(f"not dumped: {skip.name}: {skip.reason}")
    return 0


def _records(model: Model, layers: Iterable[Layer]) -> Iterator[Record]:
    """Every operator's outputs under its builtin name and its index in the file."""
    from sgsdump.dumps.dump import Record
    from sgsdump.models.quantised_model import quants_of
    from sgsdump.models.tflite import operator_of
    from sgsdump.tensors.tensor import Tensor

    quants = quants_of(model)
    slots = {name: slot for node in model.proto.graph.node for slot, name in enumerate(node.output)}
    for layer in layers:
        layout = model.layout if layer.array.ndim == 4 else None
        tensor = Tensor.of(layer.name, layer.array, layout=layout, quant=quants.get(layer.name), op_type=layer.op_type)
        yield Record("out", slots[layer.name], operator_of(model, layer.name), layer.op_type, tensor)


if __name__ == "__main__":
    from door import enter

    enter(main)
