"""Open a float model with its data and its input_config.ini, which is inferred if none is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError, ModelError, listed
from sgsdump.models.network import Source, as_runs, feeds_of, is_script

if TYPE_CHECKING:
    from sgsdump.models.feeds.feeds import Feed, Feeds
    from sgsdump.models.model import InputSpec, Model, Part
    from sgsdump.models.network import Data, Network
    from sgsdump.sidecars.input_config import InputConfig


@dataclass(frozen=True)
class OpenNetwork:
    """An open model with its configuration.

    config    configuration, including all inputs that must be at INT16
    ini       text of the configuration
    assumed   sentences on inferred settings
    warnings  sentences about restrictions of the SDK and of the board
    """

    model: Model
    config: InputConfig
    ini: bytes
    source: Source
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        from sgsdump.models.model import graph_inputs

        return tuple(graph_inputs(self.model.proto))

    def feeds(self, data: Data | None = None) -> Feeds:
        """Return the feeds of the source, or of ``data`` (see ``named_network``), in the order of their content.

        Raises InputError if ``data`` takes different branches of an If operator than the data of the network.
        """
        from sgsdump.models.feeds.by_content import by_content

        if data is None:
            return by_content(self.files())
        given = str(data) if isinstance(data, (str, Path)) else ""
        if not isinstance(data, (str, Path)):
            source = Source(None, None, self.source.config, None, as_runs(data))
        elif is_script(given):
            source = Source(None, None, self.source.config, given)
        else:
            source = replace(self.source, image=given, script=None, feeds=None)
        feeds = by_content(feeds_of(source, self.specs, as_camera=True))
        check_branches(self.model, feeds)
        return feeds

    def files(self) -> Feeds:
        """Return the feeds of the source in the order of the files."""
        return feeds_of(self.source, self.specs, as_camera=True)


def open_network(network: Network, level: str, guesses: bool = False, outside: bool = False) -> OpenNetwork:
    """Open a float model with its configuration.

    level    calibration level
    guesses  infer input_config.ini for images too, if none is given; for arrays it is always inferred
    outside  see ``open_float_model``

    Raises ConfigError for images without input_config.ini, ModelError if the SDK refuses the model and ``strict_sdk``
    is set, and errors of the files.
    """
    from sgsdump.files.bounded_read import read_bytes
    from sgsdump.models.feeds.feeds import board_notes
    from sgsdump.models.model import graph_inputs
    from sgsdump.sidecars import input_config

    def feeds_before(specs: Sequence[InputSpec]) -> Iterable[tuple[str, Feed]]:
        if not network.data:
            return [("", {})]
        config = given or _assumed(network, specs, (), guesses)[0]
        return feeds_of(network.source(config), tuple(specs))

    given = input_config.read(network.input_config) if network.input_config else None
    none = input_config.InputConfig(())
    model = open_float_model(network.model, network.weight_file, given or none, network.part, feeds_before, outside)
    if given is not None and network.input_config is not None:
        config, ini, assumed = given, read_bytes(network.input_config), tuple[str, ...]()
    else:
        outputs = [output.name for output in model.proto.graph.output]
        config, ini, assumed = _assumed(network, graph_inputs(model.proto), outputs, guesses)
    refused = conversion_notes(model, given or _turned(model, config), network.strict_sdk, level)
    notes: list[str] = []
    if config.tensor_arrays:
        from sgsdump.fixedpoint.quantisation.tensor_arrays import with_raised_inputs

        config, notes = with_raised_inputs(config, model.proto)
    quantised = _quantised_already(network, model)
    warnings = (*quantised, *board_notes(config, graph_inputs(model.proto)), *refused, *notes)
    return OpenNetwork(model, config, ini, network.source(config), assumed, warnings)


def _quantised_already(network: Network, model: Model) -> tuple[str, ...]:
    """Return a warning if the float model contains quantised operators."""
    from sgsdump.dumps.quantised_graph import is_edge, on_integers

    kinds = dict.fromkeys(node.op_type for node in model.proto.graph.node)
    found = [kind for kind in kinds if is_edge(kind) or on_integers(kind)]
    if not found:
        return ()
    return (
        f"{network.model} is quantised already ({listed(found)}): its own rounding counts as exact here, and its "
        f"integer operators stay unchanged; to judge them: sgsdump diagnose -m FLOAT.onnx --fixed {network.model}",
    )


def assumed_source(network: Network, model: Model) -> tuple[Source, tuple[str, ...]]:
    """Return the input data of a model that the SDK does not convert, and sentences about inferred settings.

    Raises errors of the configuration.
    """
    from sgsdump.models.model import graph_inputs
    from sgsdump.sidecars import input_config

    if network.input_config:
        return network.source(input_config.read(network.input_config)), ()
    outputs = [output.name for output in model.proto.graph.output]
    config, _, assumed = _assumed(network, graph_inputs(model.proto), outputs, True)
    return network.source(config), assumed


def _turned(model: Model, assumed: InputConfig) -> InputConfig:
    """Return only the assumptions about images in NHWC."""
    from sgsdump.fixedpoint.quantisation.float_model import channels_last

    last = channels_last(model, assumed)
    return replace(assumed, inputs=tuple(entry for entry in assumed.inputs if entry.name in last), outputs=())


def _assumed(
    network: Network, specs: Sequence[InputSpec], outputs: Sequence[str], guesses: bool
) -> tuple[InputConfig, bytes, tuple[str, ...]]:
    """Return the inferred configuration, its text, and sentences about the configuration."""
    from sgsdump.models.feeds.assumed_config import assume_config, ini_text, takes_pictures
    from sgsdump.models.feeds.feeds import expand
    from sgsdump.models.feeds.preprocess_file import load_preprocess

    run = expand(network.image, len(specs))[0] if network.image else ()
    if not guesses and (takes_pictures(specs, run) or not network.data):
        preprocess = f" -n {network.preprocess}" if network.preprocess else ""
        for file in network.preprocess.split(",") if network.preprocess else ():
            load_preprocess(file.strip())  # the line below names it
        raise ConfigError(
            f"the normalisation of the images of {network.model} is unknown; give --input-config. To write a draft: "
            "sgsdump cfg "
            f"input_config.ini -m {network.model}{preprocess}"
        )
    assumed = assume_config(specs, outputs, network.preprocess, run)
    return assumed.config, ini_text(assumed.config).encode(), assumed.sentences


def check_apart(held_out: Feeds, seen: Feeds, option: str, what: str) -> None:
    """Raise ConfigError if a held-out image is also given with ``option``; images are compared by content."""
    from sgsdump.models.feeds.by_content import by_content

    held_out, known = by_content(held_out), {*by_content(seen).keys}
    same = next((index for index, key in enumerate(held_out.keys) if key in known), None)
    if same is not None:
        raise ConfigError(
            f"--validate contains {held_out[same][0]}, which is also in {option}. Held-out images "
            f"must not be used to fit the {what}; give other files"
        )


def check_branches(model: Model, feeds: Iterable[tuple[str, Feed]]) -> None:
    """Raise InputError if ``feeds`` takes different branches of an If operator than the data of the network."""
    from sgsdump.executors.onnx_runtime.observed_branches import BranchGuard

    guard = BranchGuard(model)
    if guard.taken:
        for label, feed in feeds:
            guard.check(feed, label)


def open_float_model(
    path: str | Path,
    weights: str | Path | None,
    config: InputConfig,
    part: Part | None = None,
    feeds_of: Callable[[Sequence[InputSpec]], Iterable[tuple[str, Feed]]] | None = None,
    outside: bool = False,
) -> Model:
    """Open a model file, simplify it, and lift it to operators that can be quantised.

    A Caffe model has the same tensors as in the SDK. Outputs listed in input_config.ini are added to its outputs.

    part      part of the model to open
    feeds_of  returns the data for the inputs; each If operator is replaced by the branch that all data take
              (``with_branches``)
    outside   leave large weights in their file (``external_data.left_outside``), for callers that read one weight at a
              time and run the model by segments

    Raises ConfigError for an input that was cut off with the post-processing, and errors of ``open_model``,
    ``simplify`` and ``lift``.
    """
    from sgsdump.fixedpoint.quantisation.float_model import simplify
    from sgsdump.fixedpoint.sdk.converter import caffe_facts, facts_of
    from sgsdump.models.external_data import MANY_BYTES
    from sgsdump.models.graph import is_of_sim
    from sgsdump.models.model import WHOLE, graph_inputs, open_model
    from sgsdump.models.passes.lift import lift

    in_place = outside and Path(path).is_file() and Path(path).stat().st_size >= MANY_BYTES
    outputs = [output.name for output in config.outputs]
    opened = open_model(path, weights, in_place, staged_outputs=outputs, part=part or WHOLE)
    specs = graph_inputs(opened.proto)
    simple = simplify(opened, None if feeds_of is None else lambda: feeds_of(specs), outside)
    for entry in config.inputs:
        if simple.cut is not None and entry.name in simple.cut.blobs:
            raise ConfigError(
                f"input_config: the key inputs contains {entry.name!r}, but only the post-processing "
                f"of {path} reads this input. sgsdump cuts off the post-processing; remove the "
                "input from [INPUT_CONFIG]"
            )
    # Facts are collected before lifting, which hides some forms.
    caffe = opened.caffe
    if not is_of_sim(simple.proto):  # the SDK's converter has already processed a .sim file
        facts = caffe_facts(caffe.layers, caffe.other_weights) if caffe else facts_of(simple.proto)
        simple = replace(simple, converter=facts)
    return replace(simple, proto=lift(simple.proto))


def conversion_notes(
    model: Model, config: InputConfig | None = None, strict: bool = False, level: str = ""
) -> list[str]:
    """Return sentences about operators and settings that the SDK's converter refuses or changes.

    level   calibration level, if known
    strict  raise ModelError for the first refusal
    """
    from sgsdump.fixedpoint.quantisation.float_model import channels_last, grey_pictures
    from sgsdump.fixedpoint.sdk.converter import config_facts, input_changes, refusals
    from sgsdump.models.converter_facts import SDK, ConverterFacts

    refused = [
        f"two layers are called {name!r}, and {SDK} refuses such a model; rename one before you convert it"
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
