"""The float model as quantisation uses it: simplified, computed as the hardware does, with its image inputs.

The preprocess file defines how images for the float model are normalised; input_config.ini defines the same for the
fixed model. Nothing else makes them agree. The fixed model reads the raw image and computes real = (byte - mean) / std.
Comparing one image made both ways reveals a disagreement: a ``mean`` of 0 where the preprocess file subtracts 123 is a
difference of 123 grey levels, and the fixed model is useless.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
from onnx import ModelProto

from sgsdump.errors import ConfigError, InputError, ModelError
from sgsdump.executors.onnx_runtime.observed_branches import Runs, settled, with_branches
from sgsdump.files.atomic_write import replacing
from sgsdump.models.external_data import MANY_BYTES, external_bytes, left_outside, moved_into
from sgsdump.models.feeds.assumed_config import MOST_LEVELS
from sgsdump.models.feeds.feeds import Feeds
from sgsdump.models.feeds.picture import CHANNELS, as_fed, channel_axis
from sgsdump.models.fixed_facts import is_fixed
from sgsdump.models.graph import Graph, has_weights_outside, is_of_sim, sorted_nodes, unlist_weights
from sgsdump.models.model import Model, graph_inputs
from sgsdump.models.passes.branches import choices
from sgsdump.models.passes.converted import as_converted, running_statistics
from sgsdump.models.passes.lift import lift
from sgsdump.models.passes.rewrites import fold_constants, single_precision
from sgsdump.sidecars.input_config import InputConfig, ModelInput

WHITE = 255.0  # the largest difference that two images can have, in grey levels


@dataclass(frozen=True)
class Picture:
    """Normalisation of an image: real = (byte - mean) / std, per channel in the model's order.

    nv12  "RGB" or "BGR", the channel order, if the board receives the image as YUV_NV12.
    axis  axis of the channels: 1 for N, C, H, W or 3 for N, H, W, C.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    nv12: str = ""
    axis: int = 1

    def along(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return one value per channel as an array that broadcasts over the other axes of the image."""
        return np.asarray(values, np.float64).reshape((1, -1, 1, 1) if self.axis == 1 else (1, 1, 1, -1))

    def levels(self, array: np.ndarray) -> np.ndarray:
        """Return a normalised image in grey levels."""
        return array * self.along(self.std) + self.along(self.mean)

    @property
    def plane(self) -> tuple[int, int]:
        """The axes of height and width."""
        return (2, 3) if self.axis == 1 else (1, 2)


def pictures_of(model: Model, config: InputConfig, ranges: Container[str]) -> dict[str, Picture]:
    """Return the quantised image inputs and their normalisation. Raises ConfigError if a shape is not an image's."""
    return {entry.name: _picture(model, entry) for entry in config.inputs if entry.is_picture and entry.name in ranges}


def uint8_inputs(model: Model, config: InputConfig, ranges: Container[str]) -> frozenset[str] | None:
    """Return the UINT8 inputs for ``analyse``: images; None if the config describes no input."""
    return frozenset(pictures_of(model, config, ranges)) if config.inputs else None


def channels_last(model: Model, config: InputConfig) -> list[str]:
    """Return the image inputs of shape N, H, W, C, as TensorFlow models have them."""
    shapes = {spec.name: spec.shape for spec in graph_inputs(model.proto)}
    pictures = [entry for entry in config.inputs if entry.is_picture and entry.name in shapes]
    fed = [as_fed(entry, shapes[entry.name]) for entry in pictures]
    return [e.name for e in fed if channel_axis(shapes[e.name], CHANNELS[e.training_format]) == 3]


def grey_pictures(model: Model, config: InputConfig) -> list[str]:
    """Return the one-channel images that the SDK treats as RGB with GRAY."""
    shapes = {spec.name: spec.shape for spec in graph_inputs(model.proto)}
    return [e.name for e in config.inputs if e.name in shapes and as_fed(e, shapes[e.name]) != e]


def raw_bytes(array: np.ndarray, picture: Picture) -> np.ndarray:
    """Return the bytes of a normalised image as float32, the input of a fixed model."""
    mean, std = picture.along(picture.mean), picture.along(picture.std)
    return np.clip(np.round(array * std + mean), 0, 255).astype(np.float32)


def renormalised(array: np.ndarray, told: Picture, other: Picture) -> np.ndarray:
    """Convert an image from the normalisation ``told`` to ``other``."""
    return ((told.levels(array) - other.along(other.mean)) / other.along(other.std)).astype(array.dtype)


def first_picture(
    model: Model, config: InputConfig, ranges: Container[str], raw: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Return the first image input of a run for display, or None if no input is an image.

    The result has bytes of shape H, W for grey or H, W, 3 in RGB order.

    raw  the feed of the fixed model.
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
    """Yield one sentence for each image input that the float and the fixed model get as different images.

    Either the preprocess file disagrees with mean and std_value, or mean and std_value cannot make an image of the
    input.

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
        _ = feeds[0]  # raises if the image does not fit the float model either
        yield str(error)
        return
    for name, picture in pictures.items():
        difference = difference_of(name, feed[name], raw[name], picture)
        if not difference.agrees:
            yield f"{label}: {difference}"


@dataclass(frozen=True)
class InputDifference:
    """The difference between the inputs of the float and the fixed model, on one image.

    largest  in units of the model's input.
    levels   in grey levels, by the std of the channel.
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
            f"input {self.name!r}: the float and the fixed model get different images (difference "
            f"{far}). Make the preprocess file consistent with mean, std_value and the channel order "
            "in input_config"
        )


def _picture(model: Model, entry: ModelInput) -> Picture:
    """Return mean and std in the channel order of the model."""
    shape = next(i.shape for i in graph_inputs(model.proto) if i.name == entry.name)
    channels = CHANNELS[as_fed(entry, shape).training_format]
    axis = channel_axis(shape, channels)
    if axis is None:
        way = "RGB with input_formats = GRAY" if shape[1:2] == (1,) else "RAWDATA_F32_NHWC"
        raise ConfigError(
            f"input_config: input {entry.name!r} is a {entry.training_format} image, but the model's input has shape "
            f"{list(shape)}, not [N, {channels}, H, W] or [N, H, W, {channels}]. Use {way}"
        )
    order = slice(None, None, -1) if entry.training_format == "BGR" else slice(channels)
    nv12 = entry.training_format if entry.input_format == "YUV_NV12" and channels == 3 else ""
    return Picture(entry.mean[order], entry.std[order], nv12, axis)


def difference_of(name: str, real: np.ndarray, raw: np.ndarray, picture: Picture) -> InputDifference:
    """Return how far the image of bytes ``raw`` is from ``real``, the input of the float model."""
    mean, std = picture.along(picture.mean), picture.along(picture.std)
    apart = np.abs((raw.astype(np.float64) - mean) / std - real)
    return InputDifference(name, float(apart.max()), float((apart * std).max()))


def simplify(model: Model, feeds: Runs | None = None, outside: bool = False) -> Model:
    """Return the model that the simulators use.

    Nodes are in execution order, shape arithmetic is folded, values are float32, and operators are those that the SDK's
    converter writes (``as_converted``).

    feeds    the data that the model is for: an If that takes the same branch for all of it is replaced by that branch
             (``settled``).
    outside  see ``open_float_model``.

    A model of a .sim file is returned unchanged. Layer names stay as they are. Raises ModelError for a graph that
    cannot be sorted, and for a fixed model.
    """
    if is_fixed(model):
        raise ModelError(f"{model.path} is a fixed model. Pass the float model from which this fixed model was made")
    if is_of_sim(model.proto):
        return model
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
    model = replace(model, proto=ordered, folder=None, caffe=None)
    if feeds is not None and choices(ordered):
        model = settled(with_branches(model, feeds), feeds)
    proto = single_precision(fold_constants(model.proto))
    return replace(model, proto=as_converted(proto), trained=running_statistics(Graph(proto)))


def deployed(model: Model) -> ModelProto:
    """Return the float model at an opset that can be quantised (``lift``)."""
    return lift(model.proto)


def serialise(proto: ModelProto) -> bytes:
    """Serialise the model. Raises ModelError if it exceeds the 2 GB limit of a file."""
    try:
        return proto.SerializeToString()
    except Exception as error:
        raise ModelError(f"the model does not fit into one ONNX file of 2 GB: {error}") from error


def save_model(proto: ModelProto, path: Path, file: IO[bytes]) -> None:
    """Write the model into ``file``, which becomes ``path``; weights stored outside go into ``path``.data.

    Raises ModelError and OutputError.
    """
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
