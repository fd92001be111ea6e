"""A dump of every input that a user names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.dump.written import Form, write_run
from sgsdump.files.names import named, output_paths

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.models.feeds.feeds import Feed
    from sgsdump.models.model import Model
    from sgsdump.sidecars.input_config import InputConfig

DEFAULT_OUTPUT = Path("dumpData/onnx_NHWC_outtensor_dump.bin")
CAFFE_OUTPUT = Path("dumpData/caffe_NHWC_outtensor_dump.bin")


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
    form: Form,
    *,
    every_layer: bool = False,
    provider: str = "CPU",
) -> None:
    """Dump every input in turn and print what was written. The folder of the SDK's default output is made.

    every_layer  of a model with in-place layers also the tensors they wrote over.
    provider     onnxruntime's execution provider.
    """
    from sgsdump.commands.sdk import listing
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.executors.onnx_runtime.segment_runner import SegmentRunner
    from sgsdump.files.atomic_write import make_folder

    several, runs = _runs(model, source, output)
    runner = SegmentRunner(model, keep_sessions=several, provider=provider)
    outputs = [info.name for info in model.proto.graph.output]
    # The SDK's scripts call every tensor output 0; where their order is asked for, so is that.
    slots = {} if form.own_outputs_first or form.caffe else output_slots(model.proto)
    shown = model.blobs | model.overwritten if model.blobs and every_layer else model.blobs
    for target, label, feed in runs:
        if output.parent == DEFAULT_OUTPUT.parent:
            make_folder(output.parent)
        with TERMINAL.bar(f"dump {label}", "layer") as advance:
            layers = runner.run(feed, shown, advance)
            if form.own_outputs_first:
                layers = listing.own_outputs_first(runner, feed, outputs, advance)
            summary = write_run(layers, feed, target, target.stem.removeprefix(output.stem), form, slots)
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


def output_slots(proto: ModelProto) -> dict[str, int]:
    """Which output of its node each tensor is: 0, 1 …, left-out optional outputs counted."""
    return {name: slot for node in proto.graph.node for slot, name in enumerate(node.output) if name}
