"""The float model as quantisation works on it: opened, simplified, and as the hardware computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sgsdump.errors import ConfigError, ModelError
from sgsdump.executors.onnx_runtime.observed_branches import Feed, Feeds, settled, with_branches
from sgsdump.files.atomic_write import replacing
from sgsdump.fixedpoint.quantisation.pictures import channels_last, grey_pictures
from sgsdump.fixedpoint.sdk.converter import caffe_facts, config_facts, facts_of, input_changes, refusals
from sgsdump.models.converter_facts import SDK, ConverterFacts
from sgsdump.models.external_data import MANY_BYTES, external_bytes, left_outside, moved_into
from sgsdump.models.fixed_facts import is_fixed
from sgsdump.models.graph import Graph, has_weights_outside, sorted_nodes, unlist_weights
from sgsdump.models.model import WHOLE, Model, Part, graph_inputs, open_model
from sgsdump.models.passes.converted import as_converted
from sgsdump.models.passes.fold import fold_constants
from sgsdump.models.passes.lift import lift
from sgsdump.models.passes.rewrites import single_precision
from sgsdump.models.running_statistics import running_statistics
from sgsdump.sidecars.input_config import InputConfig

if TYPE_CHECKING:
    from onnx import ModelProto

    from sgsdump.models.input_spec import InputSpec


def open_float_model(
    path: str | Path,
    weights: str | Path | None,
    config: InputConfig,
    part: Part = WHOLE,
    feeds_of: Callable[[Sequence[InputSpec]], Iterable[tuple[str, Feed]]] | None = None,
    outside: bool = False,
) -> Model:
    """The simplified model of a file, lifted to what can be quantised; a Caffe model has the SDK's tensors, and the
    outputs that input_config.ini names are outputs too. ``part``: of the model, in place of the whole.
    ``feeds_of`` gives the data for the model's inputs: where they all take the same branch of an If, that takes its
    place (``with_branches``).

    outside  for callers that read a weight at a time, and run the model by segments: large weights stay in their file
             where there are many bytes of them (``external_data.left_outside``).

    Raises what ``open_model``, ``simplify`` and ``lift`` raise, and ConfigError for an input that went with the
    network's post-processing.
    """
    in_place = outside and Path(path).is_file() and Path(path).stat().st_size >= MANY_BYTES
    outputs = [output.name for output in config.outputs]
    opened = open_model(path, weights, in_place, staged_outputs=outputs, part=part)
    specs = graph_inputs(opened.proto)
    simple = simplify(opened, None if feeds_of is None else lambda: feeds_of(specs), outside)
    for entry in config.inputs:
        if simple.cut is not None and entry.name in simple.cut.blobs:
            raise ConfigError(
                f"input_config: inputs names {entry.name!r}, which only the post-processing of {path} reads, and that "
                f"is cut off; remove it from [INPUT_CONFIG]"
            )
    converter = simple.converter or facts_of(simple.proto)  # of the opset it came with: lifting hides some forms
    return replace(simple, proto=lift(simple.proto), converter=converter)


def conversion_notes(
    model: Model, config: InputConfig | None = None, strict: bool = False, level: str = ""
) -> list[str]:
    """Sentences on what is in the float model, and in the user's input_config.ini, that the SDK's converter does not
    take, and on what it makes another function of.

    level   of the calibration, where it is known.
    strict  Raises ModelError for the first that it does not take.
    """
    refused = [
        f"two layers are called {name!r}, and {SDK} refuses such a net; rename one before you convert it"
        for name in model.repeated_layers
    ]
    facts = model.converter or ConverterFacts()
    inputs = config.inputs if config is not None else ()
    last = channels_last(model, config) if config is not None else []
    grey = grey_pictures(model, config) if config is not None else []
    shared = config.one_for_all if config is not None else ()
    by_colour = config is None or config.means_by_colour
    trained = [(entry.name, entry.training_format) for entry in inputs]
    formats = config_facts(trained, last, shared, by_colour)
    rows = [row for row in (*facts.refused, *formats) if not (row.above_l1 and level == "L1")]
    said = [*refused, *map(str, rows)]
    if strict and said:
        more = f" (and {len(said) - 1} more: without --strict-sdk they are warnings)" if len(said) > 1 else ""
        raise ModelError(f"{model.path}: {said[0]}{more}")
    return [*refused, *refusals(rows), *map(str, (*facts.changed, *input_changes(facts, trained, grey)))]


def simplify(model: Model, feeds: Feeds | None = None, outside: bool = False) -> Model:
    """The model the simulators work on: nodes in an order they can run in, shape arithmetic folded away, in float32,
    and what the SDK's converter writes as other operators as those (``as_converted``).

    feeds  the data that it is for: Ifs that take the same branch on all of them are replaced by it (``settled``).

    Layer names stay as they are; ``outside``: see ``open_float_model``. Raises ModelError for a graph that cannot be
    sorted, and for a fixed model.
    """
    if is_fixed(model):
        raise ModelError(f"{model.path} is a fixed model made by calibrate; give the float model it was made from")
    ordered = type(model.proto)()
    ordered.CopyFrom(model.proto)
    if model.folder is not None and outside and external_bytes(ordered) >= MANY_BYTES:
        try:
            left_outside(ordered, model.folder)
        except ModelError as error:
            raise ModelError(f"{model.path}: {error}") from None
    elif model.folder is not None:
        _load_external_data(ordered, model)
    unlist_weights(ordered)
    del ordered.graph.node[:]
    ordered.graph.node.extend(sorted_nodes(model.proto.graph))
    converter = caffe_facts(model.caffe.layers, model.caffe.other_weights) if model.caffe else model.converter
    model = replace(model, proto=ordered, folder=None, caffe=None, converter=converter)
    if feeds is not None:
        model = settled(with_branches(model, feeds), feeds)
    proto = single_precision(fold_constants(model.proto))
    return replace(model, proto=as_converted(proto), trained=running_statistics(Graph(proto)))


def deployed(model: Model) -> ModelProto:
    """The float model at an opset that can be quantised (``lift``)."""
    return lift(model.proto)


def serialise(proto: ModelProto) -> bytes:
    """The model as a file's bytes. Raises ModelError for one that does not fit into a file (2 GB)."""
    try:
        return proto.SerializeToString()
    except Exception as error:
        raise ModelError(f"the model does not fit into one ONNX file of 2 GB: {error}") from error


def save_model(proto: ModelProto, path: Path, file: IO[bytes]) -> None:
    """Write the model into ``file``, which becomes ``path``; weights that were left outside into ``path``.data beside
    it. Raises ModelError and OutputError."""
    if not has_weights_outside(proto):
        file.write(serialise(proto))
        return
    data = path.with_name(f"{path.name}.data")
    with replacing(data) as weights:
        file.write(serialise(moved_into(proto, weights, data.name)))


def _load_external_data(proto: ModelProto, model: Model) -> None:
    import onnx

    try:
        onnx.load_external_data_for_model(proto, str(model.folder))
    except Exception as error:
        raise ModelError(f"{model.path}: its external weights cannot be read: {str(error).splitlines()[0]}") from error
