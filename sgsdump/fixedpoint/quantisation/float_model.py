"""The float model as quantisation works on it: simplified, as the hardware computes it, and its picture inputs.

The user's preprocess file says how the float model's picture is normalised, input_config.ini says it of the fixed one,
and nothing else makes them agree. The fixed model takes the raw picture and computes real = (byte - mean) / std. One
picture made both ways tells; a ``mean`` of 0 where the preprocess file takes 123 off is a difference of 123 grey
levels, and a fixed model of no use.
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


def simplify(model: Model, feeds: Runs | None = None, outside: bool = False) -> Model:
    """The model the simulators work on: nodes in an order they can run in, shape arithmetic folded away, in float32,
    and what the SDK's converter writes as other operators as those (``as_converted``).

    feeds  the data that it is for: Ifs that take the same branch on all of them are replaced by it (``settled``).

    A model of a .sim file is that already. Layer names stay as they are; ``outside``: see ``open_float_model``. Raises
    ModelError for a graph that cannot be sorted, and for a fixed model.
    """
    if is_fixed(model):
        raise ModelError(f"{model.path} is a fixed model; give the float model it was made from")
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
