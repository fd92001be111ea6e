"""The float model as quantisation works on it: opened, simplified, and as the hardware computes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError, ModelError
from sgsdump.models.graph import sorted_nodes
from sgsdump.models.model import Model, open_model
from sgsdump.models.passes.converted import as_converted
from sgsdump.models.passes.fold import fold_constants
from sgsdump.models.passes.lift import lift
from sgsdump.models.passes.rewrites import single_precision
from sgsdump.models.sdk_converter import SDK, ConverterFacts, config_facts, facts_of
from sgsdump.quantisation.fixed_facts import is_fixed
from sgsdump.quantisation.pictures import channels_last
from sgsdump.sidecars.input_config import InputConfig

if TYPE_CHECKING:
    from onnx import ModelProto


def open_float_model(path: str | Path, weights: str | Path | None, config: InputConfig) -> Model:
    """The simplified model of a file, lifted to what can be quantised; a Caffe model has the SDK's tensors, and the
    outputs that input_config.ini names are outputs too.

    Raises what ``open_model``, ``simplify`` and ``lift`` raise, and ConfigError for an input that went with the
    network's post-processing.
    """
    simple = simplify(open_model(path, weights, staged_outputs=[output.name for output in config.outputs]))
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
    """A sentence for each thing in the float model, and in the user's input_config.ini, that the SDK's converter does
    not take, and for each that it makes another function of.

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
    formats = config_facts(((entry.name, entry.training_format) for entry in inputs), last)
    refused += [str(row) for row in (*facts.refused, *formats) if not (row.above_l1 and level == "L1")]
    if strict and refused:
        more = f" (and {len(refused) - 1} more: without --strict-sdk each is a warning)" if len(refused) > 1 else ""
        raise ModelError(f"{model.path}: {refused[0]}{more}")
    return [*refused, *map(str, facts.changed)]


def simplify(model: Model) -> Model:
    """The model the simulators work on: nodes in an order they can run in, shape arithmetic folded away, in float32,
    and what the SDK's converter writes as other operators as those (``as_converted``).

    Layer names stay as they are. Raises ModelError for a graph that cannot be sorted, and for a fixed model.
    """
    if is_fixed(model):
        raise ModelError(f"{model.path} is a fixed model made by calibrate; give the float model it was made from")
    ordered = type(model.proto)()
    ordered.CopyFrom(model.proto)
    if model.folder is not None:
        _load_external_data(ordered, model)
    del ordered.graph.node[:]
    ordered.graph.node.extend(sorted_nodes(model.proto.graph))
    return replace(model, proto=as_converted(single_precision(fold_constants(ordered))), folder=None)


def deployed(model: Model) -> ModelProto:
    """The float model at an opset that can be quantised (``lift``)."""
    return lift(model.proto)


def serialise(proto: ModelProto) -> bytes:
    """The model as a file's bytes. Raises ModelError for one that does not fit into a file (2 GB)."""
    try:
        return proto.SerializeToString()
    except Exception as error:
        raise ModelError(f"the model does not fit into one ONNX file of 2 GB: {error}") from error


def _load_external_data(proto: ModelProto, model: Model) -> None:
    import onnx

    try:
        onnx.load_external_data_for_model(proto, str(model.folder))
    except Exception as error:
        raise ModelError(f"{model.path}: its external weights cannot be read: {str(error).splitlines()[0]}") from error
