"""Run a float model on an input and write the tensors of every layer into one dump.

examples:
  sgsdump dump -m net.onnx -i cat.jpg -n preprocess.py -o net_cat.bin
  sgsdump dump -m net.onnx -i images/ --input-config input_config.ini -o out.bin
  sgsdump dump -m net.onnx -i a.npy,b.npy -n a.py,b.py
  sgsdump dump -m net.onnx --data-loader-script feeds.py -o out.bin
  sgsdump dump -m net.prototxt --weight-file net.caffemodel -i cat.jpg -n preprocess.py

the dump:
  Tensors are in topological order under their own names, as float32. 4-D
  tensors are stored as NHWC, as the SDK's onnx_dump_data.py does.

several inputs:
  Each image has its own dump with its name: -o out.bin makes out_cat.bin and
  out_dog.bin. With a data loader script, the dumps are numbered: out_0.bin,
  out_1.bin.

the graph beside the dump:
  OUT.bin.graph.onnx holds the nodes and names of the model, but no weights. The
  commands compare and report read this graph file to find which layer feeds
  which. You may delete the file. If you rename the dump, also rename the graph
  file beside the dump.

Caffe models:
  Blobs are dumped as pycaffe shows them: the first input is omitted, and an
  overwritten blob has its last value. --every-layer adds the overwritten
  values under the names of their layers (docs/caffe.md).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import add_feeds, add_input_config, add_model, add_output, add_provider, part_of, record
from sgsdump.commands.terminal import print_branches, print_cut
from sgsdump.executors.dump import ModelFacts, Summary, facts_of, records_of
from sgsdump.files.names import named, output_paths
from sgsdump.models.network import Source

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.dumps.dump import Record
    from sgsdump.executors.runner import Layer, Runner
    from sgsdump.models.feeds.feeds import Feed
    from sgsdump.models.model import Model, Part
    from sgsdump.progress import Advance

RARE = ("--model-inputs", "--model-outputs", "--dump-bin", "--every-layer")
DEFAULT_OUTPUT = Path("dumpData/onnx_NHWC_outtensor_dump.bin")
CAFFE_OUTPUT = Path("dumpData/caffe_NHWC_outtensor_dump.bin")


@dataclass(frozen=True)
class Options:
    model: Path
    weight_file: Path | None
    part: Part
    image: str | None
    data_loader_script: str | None
    preprocess: str | None
    input_config: Path | None
    dump_bin: str
    provider: str
    every_layer: bool
    output: Path | None


@dataclass(frozen=True)
class Form:
    """The form of a dump.

    text               text: one file with all values, and one file per tensor in NHWC/ and NCHW/ next to it
    caffe              as caffe_dump_data.py: labels are tensor names, no first input, shape.txt
    own_outputs_first  order of onnx_dump_data.py
    every_layer        also tensors that in-place layers overwrite
    keeps_graph        write the graph of the model next to the dump
    """

    text: bool = False
    caffe: bool = False
    own_outputs_first: bool = False
    every_layer: bool = False
    keeps_graph: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_argument_group("model and inputs")
    add_model(source)
    add_feeds(source)
    add_input_config(source, "input_config.ini, for the built-in preprocessing")
    add_provider(source)
    output = parser.add_argument_group("output")
    defaults = f"(default: {DEFAULT_OUTPUT}; Caffe: {CAFFE_OUTPUT})"
    add_output(output, f"dump to write; OUT.npz and OUT.safetensors select these formats {defaults}", "OUT.bin")
    output.add_argument(
        "--dump-bin",
        choices=["True", "False"],
        default="True",
        help=(
            "False writes text: one file with the values of all layers, and one file per layer in the "
            "folders NHWC/ and NCHW/ (default: True)"
        ),
    )
    output.add_argument(
        "--every-layer", action="store_true", help="Caffe: also dump values that in-place layers overwrite"
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.files.atomic_write import check_outputs
    from sgsdump.models.feeds.image_list import places
    from sgsdump.models.graph import is_of_sim
    from sgsdump.models.model import open_model
    from sgsdump.sidecars import input_config

    options = record(Options, args, part=part_of(args))
    config = input_config.read(options.input_config) if options.input_config else None
    text = options.dump_bin == "False"
    model = open_model(options.model, options.weight_file, in_place=True, native=True, part=options.part)
    _print_note(model, options)
    caffe = model.blobs is not None and not is_of_sim(model.proto)
    output = options.output or (CAFFE_OUTPUT if caffe else DEFAULT_OUTPUT).with_suffix(".txt" if text else ".bin")
    pictures = places(options.image) if options.image else []
    read = (options.model, options.weight_file, options.input_config, options.data_loader_script, *pictures)
    check_outputs([output], read)
    source = Source(options.image, options.preprocess, config, options.data_loader_script)
    form = Form(text, caffe, every_layer=options.every_layer, keeps_graph=not text)
    dump_all(model, source, output, form, provider=options.provider)
    print_cut(model, config)
    return 0


def _print_note(model: Model, options: Options) -> None:
    """Print a note for a fixed model: its ONNX nodes are dumped, and the preprocess file makes the feed."""
    from sgsdump.files.escaping import for_terminal
    from sgsdump.models.fixed_facts import is_fixed

    if is_fixed(model):
        simulate = f"sgsdump simulate -m {options.model} -i {options.image or 'PICTURE'} -t Fixed"
        print(
            for_terminal(
                f"note: {options.model} is a fixed model: dump writes every node of its graph and feeds the output of "
                f"the preprocess file; to dump the layers as the SDK does, from the bytes of the image: {simulate}"
            )
        )


def dump_all(model: Model, source: Source, output: Path, form: Form, *, provider: str = "CPU") -> None:
    """Dump every input in turn and print the files; make the folder of the SDK's default output.

    provider  execution provider of onnxruntime
    """
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.dumps.graph_file import save_graph, with_inputs
    from sgsdump.executors.onnx_runtime.observed_branches import BranchGuard, with_branches
    from sgsdump.executors.table import open_runner
    from sgsdump.files.atomic_write import make_folder
    from sgsdump.files.escaping import for_terminal
    from sgsdump.models.quantised_model import graph_for_dump

    model = with_branches(model, lambda: ((label, feed) for _, label, feed in _runs(model, source, output)[1]))
    several, runs = _runs(model, source, output)
    model_graph = graph_for_dump(model) if form.keeps_graph else b""
    runner = open_runner(model, keep_sessions=several, provider=provider)
    graph = model.proto.graph
    # The SDK's scripts label every tensor as output 0, so their order implies this label.
    slots: dict[str, int] = {}
    if not (form.own_outputs_first or form.caffe):
        slots = {name: slot for node in graph.node for slot, name in enumerate(node.output) if name}
    facts = replace(facts_of(model), slots=slots)
    shown = model.blobs | model.overwritten if model.blobs and form.every_layer else model.blobs
    guard = BranchGuard(model)
    for target, label, feed in runs:
        guard.check(feed, label)
        if output.parent == DEFAULT_OUTPUT.parent:
            make_folder(output.parent)
        with TERMINAL.bar(f"dump {label}", "layer") as advance:
            layers = runner.run(feed, shown, advance)
            if form.own_outputs_first:
                layers = _own_outputs_first(runner, feed, [info.name for info in graph.output], advance)
            summary = _write_run(layers, feed, target, target.stem.removeprefix(output.stem), form, facts)
        print(f"{target}: {summary.tensors} tensors, {target.stat().st_size:,} bytes")
        if model_graph and (why := save_graph(with_inputs(model_graph, _as_stored(feed, facts)), target)):
            print(for_terminal(f"note: {why}"))
        for name, counts in summary.not_finite.items():
            print(f"not finite: {name}: {counts}")
    for skip in runner.skipped.values():
        print(f"not dumped: {skip.name} ({skip.op_type}): {skip.reason}")
    print_branches(model)


def _runs(model: Model, source: Source, output: Path) -> tuple[bool, Iterator[tuple[Path, str, Feed]]]:
    """Return whether there may be several runs, and the dump file, label and feed of each run."""
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


def _write_run(
    layers: Iterator[Layer], feed: Feed, target: Path, suffix: str, form: Form, facts: ModelFacts
) -> Summary:
    """Write one run; ``suffix`` distinguishes its files from those of other images."""
    from itertools import chain

    from sgsdump.dumps.formats import FORMATS
    from sgsdump.dumps.formats.sigmastar import binary
    from sgsdump.dumps.formats.sigmastar.layer_files import write_shapes, write_text
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.targets import by_ending
    from sgsdump.executors.runner import Layer

    caffe, summary = form.caffe, Summary()
    fed = [Layer(name, name, "", array) for name, array in feed.items()]
    inputs = list(_fed(fed[:1] if caffe else fed, facts))
    if caffe:
        # Caffe's nodes have no names of their own, and its further inputs are blobs like any other.
        layers = (replace(layer, node=layer.name) for layer in chain(fed[1:], layers))
    stream = records_of(layers, facts, summary)
    if form.text:
        folders = (target.with_name(f"NHWC{suffix}"), target.with_name(f"NCHW{suffix}"))
        write_text(stream, target, inputs, caffe, folders)
    elif target.suffix in (".npz", ".safetensors"):
        write = FORMATS[by_ending(target)].write
        assert write is not None, "both formats are writable"
        write(stream, target, None)
    else:
        binary.write(stream, target, binary.FRAMEWORK)
    if caffe:
        write_shapes([*inputs, *open_dump(target).records], target.with_name(f"shape{suffix}.txt"))
    return summary


def _fed(layers: Sequence[Layer], facts: ModelFacts) -> Iterator[Record]:
    return records_of(layers, ModelFacts(layout=facts.layout), Summary())


def _as_stored(feed: Feed, facts: ModelFacts) -> dict[str, np.ndarray]:
    """Return the inputs with their axes in the order in which the dump stores them."""
    from sgsdump.executors.runner import Layer
    from sgsdump.tensors.types import NHWC

    records = _fed([Layer(name, name, "", array) for name, array in feed.items()], facts)
    tensors = (record.tensor for record in records)
    return {t.name: (t.in_layout(NHWC) if t.layout else t).real() for t in tensors}


def _own_outputs_first(
    runner: Runner, feed: Mapping[str, np.ndarray], outputs: Sequence[str], advance: Advance
) -> Iterator[Layer]:
    """Yield all layers in the order of the SDK's onnx_dump_data.py.

    The order is: the model's outputs except the first, the other tensors in execution order, the first output. The
    script adds the wanted tensors as outputs after the first one, then moves the first one to the end. With more than
    one output the model runs twice, so that only its outputs are held in memory. Source:
    docs/formats/sigmastar.md#framework-dumps.
    """
    first, ahead = outputs[0], list(dict.fromkeys(outputs[1:]))
    layers: dict[str, Layer] = {}
    for layer in runner.run(feed, only=ahead) if ahead else ():
        layers[layer.name] = layer
        if len(layers) == len(ahead):
            break
    yield from (layers.pop(name) for name in ahead if name in layers)
    last = None
    for layer in runner.run(feed, advance=advance):
        if layer.name == first:
            last = layer
        elif layer.name not in ahead:
            yield layer
    if last is not None:
        yield last
