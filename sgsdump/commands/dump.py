"""Dump: run one input through a model and write every layer's tensor into one dump, in topological order.

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
in place has its last value. --every-layer adds the values that were written over, under their layers' names.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import add_feeds, add_model, add_provider
from sgsdump.files.output_names import named, output_paths

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto

    from sgsdump.dumps.dump import Record
    from sgsdump.executors.runner import Layer
    from sgsdump.models.feeds.feeds import Feed
    from sgsdump.models.model import Model
    from sgsdump.sidecars.input_config import InputConfig

DEFAULT_OUTPUT = Path("dumpData/onnx_NHWC_outtensor_dump.bin")
CAFFE_OUTPUT = Path("dumpData/caffe_NHWC_outtensor_dump.bin")


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
    dump_all(model, source, output, text=text, caffe=caffe, every_layer=args.every_layer, provider=args.provider)
    return 0


def _notes(model: Model, args: argparse.Namespace) -> Iterator[str]:
    """A fixed model's graph is dumped as ONNX has it, and its picture is fed as the preprocess file makes it."""
    from sgsdump.files.terminal_text import for_terminal
    from sgsdump.quantisation.fixed_metadata import is_fixed

    if is_fixed(model):
        simulate = f"sgsdump simulate -m {args.model} -i {args.image or 'PICTURE'} -t Fixed"
        yield for_terminal(
            f"note: {args.model} is a fixed model: this dumps every node of its graph and feeds what the preprocess "
            f"file gives; the layers as the SDK dumps them, from the picture's bytes: {simulate}"
        )


@dataclass(frozen=True)
class Source:
    """Where the feeds come from: ``image`` and ``preprocess``, or the data loader ``script``, as users write them."""

    image: str | None
    preprocess: str | None = None
    config: InputConfig | None = None
    script: str | None = None


def dump_all(
    model: Model,
    source: Source,
    output: Path,
    *,
    text: bool = False,
    caffe: bool = False,
    own_outputs_first: bool = False,
    every_layer: bool = False,
    provider: str = "CPU",
) -> None:
    """Dump every input in turn and print what was written. The folder of the SDK's default output is made.

    text               values printed, in ``output`` and one file per tensor in NHWC/ and NCHW/ beside it.
    caffe              as caffe_dump_data.py: labelled by tensor names, the first input left out, shape.txt.
    own_outputs_first  in the order of onnx_dump_data.py.
    every_layer        of a model with in-place layers also the tensors they wrote over.
    provider           onnxruntime's execution provider.
    """
    from sgsdump.commands.sdk import listing
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
    from sgsdump.files.atomic_write import make_folder

    several, runs = _runs(model, source, output)
    runner = SegmentRunner(model, keep_sessions=several, provider=provider)
    outputs = [info.name for info in model.proto.graph.output]
    # The SDK's scripts call every tensor output 0; where their order is asked for, so is that.
    slots = {} if own_outputs_first or caffe else output_slots(model.proto)
    shown = model.blobs | model.overwritten if model.blobs and every_layer else model.blobs
    for target, label, feed in runs:
        if output.parent == DEFAULT_OUTPUT.parent:
            make_folder(output.parent)
        summary = Summary()
        with TERMINAL.bar(f"dump {label}", "layer") as advance:
            layers = runner.run(feed, shown, advance)
            if own_outputs_first:
                layers = listing.own_outputs_first(runner, feed, outputs, advance)
            _write(layers, feed, target, summary, target.stem.removeprefix(output.stem), text, caffe, slots)
        print(f"{target}: {summary.tensors} tensors, {target.stat().st_size:,} bytes")
        for name, what in summary.not_finite.items():
            print(f"not finite: {name}: {what}")
    for skip in runner.skipped.values():
        print(f"not dumped: {skip.name} ({skip.op_type}): {skip.reason}")


def _runs(model: Model, source: Source, output: Path) -> tuple[bool, Iterator[tuple[Path, str, Feed]]]:
    """Whether there may be several runs, and where each one's dump goes, its label and its feed."""
    from sgsdump.models.feeds.data_loader import loaded_feeds
    from sgsdump.models.feeds.feeds import expand, feeds
    from sgsdump.models.model import graph_inputs

    specs = graph_inputs(model.proto)
    if source.script:
        loaded = loaded_feeds(source.script, specs, source.config)
        return True, ((named(output, number), f"feed {number}", feed) for number, feed in loaded)
    assert source.image is not None
    runs = feeds(source.image, source.preprocess, specs, source.config)
    targets = output_paths(output, [files[0] for files in expand(source.image, len(specs))])
    return len(targets) > 1, ((target, label, feed) for target, (label, feed) in zip(targets, runs))


def _write(
    layers: Iterator[Layer],
    feed: Feed,
    target: Path,
    summary: Summary,
    suffix: str,
    text: bool,
    caffe: bool,
    slots: Mapping[str, int],
) -> None:
    """Write one run; ``suffix`` distinguishes its files from another picture's."""
    from itertools import chain

    from sgsdump.dumps.formats.sigmastar import binary
    from sgsdump.dumps.formats.sigmastar.layer_files import write_shapes, write_text
    from sgsdump.dumps.io import open_dump
    from sgsdump.executors.runner import Layer

    fed = [Layer(name, name, "", array) for name, array in feed.items()]
    inputs = list(records(fed[:1] if caffe else fed, Summary(), {}))
    if caffe:
        # Caffe's nodes have no names of their own, and its further inputs are blobs like any other.
        layers = (replace(layer, node=layer.name) for layer in chain(fed[1:], layers))
    stream = records(layers, summary, slots)
    if text:
        folders = (target.with_name(f"NHWC{suffix}"), target.with_name(f"NCHW{suffix}"))
        write_text(stream, target, inputs, caffe, folders)
    else:
        binary.write(stream, target, binary.FRAMEWORK)
    if caffe:
        write_shapes([*inputs, *open_dump(target).records], target.with_name(f"shape{suffix}.txt"))


@dataclass
class Summary:
    """What went by while a dump was written: tensors, and those with NaN or Inf."""

    tensors: int = 0
    not_finite: dict[str, str] = field(default_factory=dict)


def output_slots(proto: ModelProto) -> dict[str, int]:
    """Which output of its node each tensor is: 0, 1 …, left-out optional outputs counted."""
    return {name: slot for node in proto.graph.node for slot, name in enumerate(node.output) if name}


def records(layers: Iterable[Layer], summary: Summary, slots: Mapping[str, int]) -> Iterator[Record]:
    """The records of a framework model's dump: all tensors outputs, numbered as they come, labelled by their nodes.

    slots  which output of its node a tensor is; 0 when it is not in it.
    """
    from sgsdump.dumps.dump import Record
    from sgsdump.tensors.layout import NCHW
    from sgsdump.tensors.tensor import Tensor

    for index, layer in enumerate(layers):
        layout = NCHW if layer.array.ndim == 4 else None
        tensor = Tensor.of(layer.name, layer.array, layout=layout, op_type=layer.op_type)
        yield Record("out", slots.get(layer.name, 0), index, layer.node or layer.op_type, tensor)
        summary.tensors += 1
        what = not_finite(layer.array)
        if what:
            summary.not_finite[layer.name] = what


def not_finite(array: np.ndarray) -> str:
    """``3 NaN, 1 Inf of 100 values``; an empty string when all are finite."""
    import numpy as np

    from sgsdump.tensors.dtypes import is_float

    if not is_float(array.dtype):
        return ""
    # The sum is finite whenever nothing is wrong, short of an overflow, and it is several times faster than a count.
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):
            return ""
    nan, inf = np.count_nonzero(np.isnan(array)), np.count_nonzero(np.isinf(array))
    return f"{nan} NaN, {inf} Inf of {array.size} values" if nan or inf else ""
