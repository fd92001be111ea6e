"""The float model as quantisation works on it: opened, simplified, as the hardware computes it, and its picture inputs.

The user's preprocess file says how the float model's picture is normalised, input_config.ini says it of the fixed one,
and nothing else makes them agree. The fixed model takes the raw picture and computes real = (byte - mean) / std. One
picture made both ways tells; a ``mean`` of 0 where the preprocess file takes 123 off is a difference of 123 grey
levels, and a fixed model of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
from onnx import ModelProto

from sgsdump.errors import ConfigError, InputError, ModelError
from sgsdump.executors.onnx_runtime.observed_branches import Feed, Runs, settled, with_branches
from sgsdump.files.atomic_write import replacing
from sgsdump.fixedpoint.sdk.converter import caffe_facts, config_facts, facts_of, input_changes, refusals
from sgsdump.models.converter_facts import SDK, ConverterFacts
from sgsdump.models.external_data import MANY_BYTES, external_bytes, left_outside, moved_into
from sgsdump.models.feeds.assumed_config import MOST_LEVELS
from sgsdump.models.feeds.feeds import Feeds
from sgsdump.models.feeds.picture import CHANNELS, as_fed, channel_axis
from sgsdump.models.fixed_facts import is_fixed
from sgsdump.models.graph import Graph, has_weights_outside, sorted_nodes, unlist_weights
from sgsdump.models.model import WHOLE, InputSpec, Model, Part, graph_inputs, open_model
from sgsdump.models.passes.branches import choices
from sgsdump.models.passes.converted import as_converted, running_statistics
from sgsdump.models.passes.lift import lift
from sgsdump.models.passes.rewrites import fold_constants, single_precision
from sgsdump.sidecars.input_config import InputConfig, ModelInput

WHITE = 255.0  # the largest difference that two images can have, in grey levels


@dataclass(frozen=True)
class Picture:
    """real = (byte - mean) / std, per channel in the model's order.

    nv12  "RGB" or "BGR", that order, where the board gets the picture as YUV_NV12.
    axis  of the channels: 1 of N, C, H, W or 3 of N, H, W, C.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    nv12: str = ""
    axis: int = 1

    def along(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """A number for each channel, shaped to spread over the picture's other axes."""
        return np.asarray(values, np.float64).reshape((1, -1, 1, 1) if self.axis == 1 else (1, 1, 1, -1))

    def levels(self, array: np.ndarray) -> np.ndarray:
        """A normalised picture in grey levels."""
        return array * self.along(self.std) + self.along(self.mean)

    @property
    def plane(self) -> tuple[int, int]:
        """The axes of height and width."""
        return (2, 3) if self.axis == 1 else (1, 2)


def pictures_of(model: Model, config: InputConfig, ranges: Container[str]) -> dict[str, Picture]:
    """The picture inputs that are quantised, and how they were normalised. Raises ConfigError for a shape that is
    no picture's."""
    return {entry.name: _picture(model, entry) for entry in config.inputs if entry.is_picture and entry.name in ranges}


def uint8_inputs(model: Model, config: InputConfig, ranges: Container[str]) -> frozenset[str] | None:
    """The inputs that are UINT8, for ``analyse``: pictures; None where the config says nothing of any input."""
    return frozenset(pictures_of(model, config, ranges)) if config.inputs else None


def channels_last(model: Model, config: InputConfig) -> list[str]:
    """The pictures whose input has the shape N, H, W, C, as TensorFlow's have."""
    shapes = {spec.name: spec.shape for spec in graph_inputs(model.proto)}
    pictures = [entry for entry in config.inputs if entry.is_picture and entry.name in shapes]
    fed = [as_fed(entry, shapes[entry.name]) for entry in pictures]
    return [e.name for e in fed if channel_axis(shapes[e.name], CHANNELS[e.training_format]) == 3]


def grey_pictures(model: Model, config: InputConfig) -> list[str]:
    """The pictures of one channel that are RGB with GRAY for the SDK."""
    shapes = {spec.name: spec.shape for spec in graph_inputs(model.proto)}
    return [e.name for e in config.inputs if e.name in shapes and as_fed(e, shapes[e.name]) != e]


def raw_bytes(array: np.ndarray, picture: Picture) -> np.ndarray:
    """The bytes of a normalised picture, as float32: what a fixed model's picture input takes."""
    mean, std = picture.along(picture.mean), picture.along(picture.std)
    return np.clip(np.round(array * std + mean), 0, 255).astype(np.float32)


def renormalised(array: np.ndarray, told: Picture, other: Picture) -> np.ndarray:
    """A picture that was normalised as ``told``, as the other way has it."""
    return ((told.levels(array) - other.along(other.mean)) / other.along(other.std)).astype(array.dtype)


def first_picture(
    model: Model, config: InputConfig, ranges: Container[str], raw: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """The first picture input of a run, to be looked at: bytes of shape H, W for grey or H, W, 3 in the order RGB; None
    where no input is a picture.

    raw  the fixed model's feed.
    """
    orders = {entry.name: entry.training_format for entry in config.inputs}
    for name, picture in pictures_of(model, config, ranges).items():
        if name not in raw:
            continue
        pixels = np.clip(np.round(raw[name][0]), 0, 255).astype(np.uint8)
        pixels = np.moveaxis(pixels, 0, -1) if picture.axis == 1 else pixels
        return pixels[..., 0] if pixels.shape[-1] == 1 else pixels[..., :: -1 if orders[name] == "BGR" else 1]
    return None


def disagreements(model: Model, feeds: Feeds) -> Iterator[str]:
    """A sentence for each quantised picture input of which the float and the fixed model are shown different pictures:
    where the preprocess file and mean and std_value make it differently, or mean and std_value make no picture of it.

    feeds  with its input_config. Raises what making a feed of the float model raises.
    """
    assert feeds.config is not None
    spec_names = {spec.name for spec in feeds.specs}
    quantised = [entry.name for entry in feeds.config.inputs if entry.quantised and entry.name in spec_names]
    pictures = pictures_of(model, feeds.config, quantised)
    if not pictures:
        return
    try:
        label, feed, raw = feeds.both(0)
    except InputError as error:
        _ = feeds[0]  # raises where it is the float model that the picture is not for
        yield str(error)
        return
    for name, picture in pictures.items():
        difference = difference_of(name, feed[name], raw[name], picture)
        if not difference.agrees:
            yield f"{label}: {difference}"


@dataclass(frozen=True)
class InputDifference:
    """How far the fixed model's picture is from the float model's, on one picture.

    largest  in the units of the model's input.
    levels   in grey levels: what the channel's std makes of it.
    """

    name: str
    largest: float
    levels: float

    @property
    def agrees(self) -> bool:
        return self.levels <= MOST_LEVELS

    def __str__(self) -> str:
        far = f"up to {self.largest:.3g}"
        far += f", {self.levels:.3g} grey levels" if self.levels <= WHITE else ""
        return (
            f"input {self.name!r}: the preprocess file and input_config turn the same image into different inputs "
            f"({far}), so the float and the fixed model do not get the same image; make mean, std_value and the "
            f"channel order agree"
        )


def _picture(model: Model, entry: ModelInput) -> Picture:
    """Mean and std in the order of the model's channels."""
    shape = next(i.shape for i in graph_inputs(model.proto) if i.name == entry.name)
    channels = CHANNELS[as_fed(entry, shape).training_format]
    axis = channel_axis(shape, channels)
    if axis is None:
        way = "RGB with input_formats = GRAY" if shape[1:2] == (1,) else "RAWDATA_F32_NHWC"
        raise ConfigError(
            f"input_config: input {entry.name!r} is a {entry.training_format} picture, but the model's input has the "
            f"shape {list(shape)}, not [N, {channels}, H, W] or [N, H, W, {channels}]; use {way}"
        )
    order = slice(None, None, -1) if entry.training_format == "BGR" else slice(channels)
    nv12 = entry.training_format if entry.input_format == "YUV_NV12" and channels == 3 else ""
    return Picture(entry.mean[order], entry.std[order], nv12, axis)


def difference_of(name: str, real: np.ndarray, raw: np.ndarray, picture: Picture) -> InputDifference:
    """How far the picture of bytes ``raw`` is from ``real``, what the float model takes."""
    mean, std = picture.along(picture.mean), picture.along(picture.std)
    apart = np.abs((raw.astype(np.float64) - mean) / std - real)
    return InputDifference(name, float(apart.max()), float((apart * std).max()))


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


def simplify(model: Model, feeds: Runs | None = None, outside: bool = False) -> Model:
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
    if feeds is not None and choices(ordered):
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
