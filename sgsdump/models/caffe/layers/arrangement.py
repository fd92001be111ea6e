"""Conversion of layers that move, repeat, resize or generate values.

Resizing layers are Interp of DeepLab and PSPNet, and Upsample of SegNet and YOLO. PriorBox of SSD, and DummyData with a
constant filler, do not depend on the image.
"""

from __future__ import annotations

import math

import numpy as np

from sgsdump.models.caffe.layer_builder import INT_MAX, LayerBuilder, Shape, Value
from sgsdump.models.caffe.net import dummy_shapes
from sgsdump.models.graph import CUT_TO_PIXELS


def concat(builder: LayerBuilder) -> list[Value]:
    builder.expect(1, INT_MAX)
    param = builder.message.concat_param
    axis = builder.axis(param.concat_dim if param.HasField("concat_dim") else param.axis)
    first = builder.shape
    for value in builder.inputs:
        if _without(value.shape, axis) != _without(first, axis):
            builder.fail(f"cannot join {list(first)} and {list(value.shape)} along axis {axis}")
    length = sum(value.shape[axis] for value in builder.inputs)
    return builder.top("Concat", *builder.inputs, shape=_with(first, axis, length), axis=axis)


def slices(builder: LayerBuilder) -> list[Value]:
    builder.expect(1, tops=len(builder.tops))
    param = builder.message.slice_param
    axis = builder.axis(param.slice_dim if param.HasField("slice_dim") else param.axis)
    size, count = builder.shape[axis], len(builder.tops)
    points = list(param.slice_point) or [size * i // count for i in range(1, count)]
    lengths = [end - begin for begin, end in zip([0, *points], [*points, size])]
    if len(lengths) != count or min(lengths) < 1 or (not param.slice_point and size % count):
        builder.fail(f"cannot cut {size} numbers of axis {axis} at {points} into {count} tops")
    builder.node("Split", builder.inputs[0], lengths, to=builder.tops[0], also=builder.tops[1:], axis=axis)
    return [Value(top, _with(builder.shape, axis, length)) for top, length in zip(builder.tops, lengths)]


def split(builder: LayerBuilder) -> list[Value]:
    """Return the bottom for every top; no node is needed."""
    builder.expect(1, tops=len(builder.tops))
    return [builder.inputs[0]] * len(builder.tops)


def dropout(builder: LayerBuilder) -> list[Value]:
    """Convert Dropout, which does nothing in the TEST phase: an Identity, or the SDK's reshape to the same shape."""
    builder.expect(1)
    if builder.staged:
        shape = builder.constant("reshape_output_shape", builder.shape)
        return builder.top("Reshape", builder.inputs[0], shape)
    return builder.top("Identity", builder.inputs[0])


def flatten(builder: LayerBuilder) -> list[Value]:
    builder.expect(1)
    param = builder.message.flatten_param
    begin, end = builder.axis(param.axis), builder.axis(param.end_axis) + 1
    shape = (*builder.shape[:begin], math.prod(builder.shape[begin:end]), *builder.shape[end:])
    if begin == 1 and end == len(builder.shape):
        return builder.top("Flatten", builder.inputs[0], shape=shape, axis=1)
    return _reshaped(builder, shape)


def reshape(builder: LayerBuilder) -> list[Value]:
    """Convert Reshape: 0 copies the input's size, -1 infers it; only ``num_axes`` axes from ``axis`` on change."""
    builder.expect(1)
    param = builder.message.reshape_param
    begin = builder.axis(param.axis, end=True)
    end = len(builder.shape) if param.num_axes == -1 else begin + param.num_axes
    if param.num_axes < -1 or end > len(builder.shape):
        builder.fail(f"replaces {param.num_axes} axes from axis {begin} on, but its input is {list(builder.shape)}")
    sizes = list(param.shape.dim)
    if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
        builder.fail(f"has the sizes {sizes}; at most one may be -1")
    replaced = builder.shape[begin:end]
    for index, size in enumerate(sizes):
        if size == 0:
            if index >= len(replaced):
                builder.fail(f"copies axis {begin + index} of an input of shape {list(builder.shape)}")
            sizes[index] = replaced[index]
    fixed = math.prod(size for size in sizes if size != -1)
    shape = tuple(math.prod(replaced) // fixed if size == -1 else size for size in sizes)
    if math.prod(shape) != math.prod(replaced):
        builder.fail(f"cannot reshape {list(replaced)} to {list(shape)}: {math.prod(replaced)} numbers")
    return _reshaped(builder, (*builder.shape[:begin], *shape, *builder.shape[end:]))


def permute(builder: LayerBuilder) -> list[Value]:
    """Convert Permute; axes not in ``order`` follow in their order."""
    builder.expect(1)
    order = list(builder.message.permute_param.order)
    rank = len(builder.shape)
    if len(set(order)) != len(order) or any(axis >= rank for axis in order):
        builder.fail(f"has the order {order}, but its input is {list(builder.shape)}")
    order += [axis for axis in range(rank) if axis not in order]
    return builder.top("Transpose", builder.inputs[0], shape=tuple(builder.shape[axis] for axis in order), perm=order)


def crop(builder: LayerBuilder) -> list[Value]:
    """Convert the crop of the first bottom to the size of the second one, from ``axis`` on."""
    builder.expect(2)
    param = builder.message.crop_param
    axis, target = builder.axis(param.axis), builder.inputs[1].shape
    if len(target) != len(builder.shape):
        builder.fail(f"cannot crop {list(builder.shape)} to {list(target)}: different number of axes")
    axes = list(range(axis, len(builder.shape)))
    offsets = list(param.offset) or [0]
    if len(offsets) not in (1, len(axes)):
        builder.fail(f"gives {len(offsets)} offsets for {len(axes)} axes")
    begins = offsets * len(axes) if len(offsets) == 1 else offsets
    ends = [begin + target[i] for begin, i in zip(begins, axes)]
    if any(end > builder.shape[i] for end, i in zip(ends, axes)):
        builder.fail(f"cannot crop {list(builder.shape)} to {list(target)} at offset {begins}")
    return builder.top("Slice", builder.inputs[0], begins, ends, axes, shape=(*builder.shape[:axis], *target[axis:]))


def tile(builder: LayerBuilder) -> list[Value]:
    builder.expect(1)
    param = builder.message.tile_param
    axis = builder.axis(param.axis)
    if param.tiles < 1:
        builder.fail("needs tiles of 1 or more")
    repeats = _with((1,) * len(builder.shape), axis, param.tiles)
    return builder.top(
        "Tile", builder.inputs[0], repeats, shape=_with(builder.shape, axis, builder.shape[axis] * param.tiles)
    )


def shuffle_channel(builder: LayerBuilder) -> list[Value]:
    """Convert channels from a table of ``group`` rows, read by columns."""
    builder.expect(1)
    group = builder.message.shuffle_channel_param.group
    if len(builder.shape) < 2 or not group or builder.shape[1] % group:
        builder.fail(f"cannot shuffle {list(builder.shape)} in {group} groups")
    batch, channels, *spatial = builder.shape
    table = builder.node("Reshape", builder.inputs[0], [batch, group, channels // group, *spatial])
    turned = builder.node("Transpose", table, perm=[0, 2, 1, *range(3, 3 + len(spatial))])
    return builder.top("Reshape", turned, builder.shape)


def reorg(builder: LayerBuilder) -> list[Value]:
    """Convert Darknet's reorg: space to depth by ``stride``, with Darknet's order of channels.

    The input's values are reinterpreted as C / stride^2 channels of ``stride`` times the size, and split into pixels of
    stride x stride. Source: reorg_layer.cpp.
    """
    builder.expect(1)
    _check_picture(builder)
    param = builder.message.reorg_param
    stride = param.stride
    if param.reverse:
        builder.fail("is a Reorg with reverse, which is not supported")
    batch, channels, height, width = builder.shape
    if not stride or height % stride or width % stride or channels % stride**2:
        builder.fail(f"cannot split {list(builder.shape)} into pixels of {stride} x {stride}")
    shape = (batch, channels * stride**2, height // stride, width // stride)
    stem = builder.layer.name
    cut = [batch, channels // stride**2 * height, stride, width, stride]
    table = builder.node("Reshape", builder.inputs[0], cut, to=builder.within(f"{stem}_reshape_output"))
    turned = builder.node("Transpose", table, to=builder.within(f"{stem}_transpose#1_output"), perm=[0, 2, 4, 1, 3])
    if not builder.staged:
        return builder.top("Reshape", turned, shape, shape=shape)
    # The SDK's converter transposes the axes and back, which its tensor names show.
    smaller = builder.node("Reshape", turned, shape, to=builder.within(f"{stem}{CUT_TO_PIXELS}"))
    return builder.top("Transpose", smaller, shape=shape, perm=[0, 1, 2, 3])


def _reshaped(builder: LayerBuilder, shape: Shape) -> list[Value]:
    return builder.top("Reshape", builder.inputs[0], shape, shape=shape)


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


INT64 = 7


def interp(builder: LayerBuilder) -> list[Value]:
    """Convert bilinear interpolation with aligned corners; pad_beg and pad_end <= 0 crop. Source: interp_layer.cpp."""
    builder.expect(1, 2)
    _check_picture(builder)
    param = builder.message.interp_param
    if param.pad_beg > 0 or param.pad_end > 0:
        builder.fail("has a positive pad_beg or pad_end; Interp can only crop")
    cut = tuple(size + param.pad_beg + param.pad_end for size in builder.shape[2:])
    if min(cut) < 1:
        builder.fail(f"crops all of {list(builder.shape)}")
    size = tuple(_interp_size(builder, index, length) for index, length in enumerate(cut))
    shape = (*builder.shape[:2], *size)
    source: Value | str = builder.inputs[0]
    if cut != builder.shape[2:]:
        begins = [-param.pad_beg] * 2
        ends = [begin + length for begin, length in zip(begins, cut)]
        source = builder.node("Slice", source, begins, ends, [2, 3])
    if cut == size:
        return builder.top("Identity", source, shape=shape)
    return _resized(builder, source, shape, mode="linear", coordinate_transformation_mode="align_corners")


def upsample(builder: LayerBuilder) -> list[Value]:
    """Convert Upsample: repeat values of one bottom, or scatter values to the positions of a pooling mask."""
    builder.expect(1, 2)
    _check_picture(builder)
    param = builder.message.upsample_param
    scales = (param.scale_h, param.scale_w) if param.HasField("scale_h") else (param.scale, param.scale)
    size = tuple(
        length * scale - pad
        for length, scale, pad in zip(builder.shape[2:], scales, (param.pad_out_h, param.pad_out_w))
    )
    if param.HasField("upsample_h") and param.HasField("upsample_w"):
        size = (param.upsample_h, param.upsample_w)
    shape = (*builder.shape[:2], *size)
    if len(builder.inputs) == 2:
        return _placed(builder, shape)
    if any(large % small for large, small in zip(size, builder.shape[2:])):
        builder.fail(f"cannot repeat {list(builder.shape)} to {list(shape)}: the factor is not an integer")
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return _resized(builder, builder.inputs[0], shape, **nearest)


def _placed(builder: LayerBuilder, shape: tuple[int, ...]) -> list[Value]:
    mask = builder.inputs[1]
    if mask.shape != builder.shape:
        builder.fail(f"has a mask of shape {list(mask.shape)} for {list(builder.shape)}")
    batch, channels, height, width = shape
    flat = [batch, channels, -1]
    values = builder.node("Reshape", builder.inputs[0], flat)
    positions = builder.node("Reshape", builder.node("Cast", mask, to_type=INT64), flat)
    zeros = builder.node("ConstantOfShape", [batch, channels, height * width])
    placed = builder.node("ScatterElements", zeros, positions, values, axis=2)
    return builder.top("Reshape", placed, shape, shape=shape)


def _interp_size(builder: LayerBuilder, index: int, length: int) -> int:
    param = builder.message.interp_param
    if len(builder.inputs) == 2:
        return builder.inputs[1].shape[2 + index]
    zoom, shrink = param.HasField("zoom_factor"), param.HasField("shrink_factor")
    if param.HasField("height") and param.HasField("width") and not zoom ^ shrink:
        return (param.height, param.width)[index]
    if not (zoom or shrink) or param.zoom_factor < 1 or param.shrink_factor < 1:
        builder.fail("needs height and width, or a zoom_factor or shrink_factor of 1 or more")
    length = (length - 1) // param.shrink_factor + 1
    return length + (length - 1) * (param.zoom_factor - 1)


def _resized(builder: LayerBuilder, source: Value | str, shape: Shape, **attributes: str) -> list[Value]:
    sizes = builder.constant("sizes", shape)
    return builder.top("Resize", source, "", "", sizes, shape=shape, **attributes)


def _check_picture(builder: LayerBuilder) -> None:
    if any(len(value.shape) != 4 for value in builder.inputs):
        builder.fail(f"needs N, C, H, W inputs, not {', '.join(str(list(v.shape)) for v in builder.inputs)}")


LIMIT_BYTES = 256 << 20


def prior_box(builder: LayerBuilder) -> list[Value]:
    """Convert to [1, 2, 4 * boxes]: box corners relative to the image, then their variances."""
    builder.expect(2)
    feature, picture = builder.inputs
    if len(feature.shape) != 4 or len(picture.shape) != 4:
        builder.fail(f"needs N, C, H, W inputs, not {list(feature.shape)} and {list(picture.shape)}")
    param = builder.message.prior_box_param
    sizes = _box_sizes(builder)
    _check_bytes(builder, (2, *feature.shape[2:], len(sizes), 4))
    height, width = _picture_size(builder)
    step_h, step_w = _steps(builder, height, width)
    rows = (np.arange(feature.shape[2], dtype=np.float32) + np.float32(param.offset)) * step_h
    columns = (np.arange(feature.shape[3], dtype=np.float32) + np.float32(param.offset)) * step_w
    y, x = np.meshgrid(rows, columns, indexing="ij")
    centre = np.stack([x, y], axis=-1)[:, :, None, :]
    half = np.array(sizes, np.float32) / 2
    boxes = np.concatenate([centre - half, centre + half], axis=-1) / np.array([width, height] * 2, np.float32)
    if param.clip:
        boxes = boxes.clip(0, 1)
    variance = list(param.variance) or [0.1]
    if len(variance) not in (1, 4):
        builder.fail(f"gives {len(variance)} variances, but takes 1 or 4")
    spread = np.broadcast_to(np.array(variance, np.float32), boxes.shape)
    return [_constant_top(builder, 0, np.stack([boxes.ravel(), spread.ravel()])[None].astype(np.float32))]


def dummy_data(builder: LayerBuilder) -> list[Value]:
    """Fill each top with its filler's value."""
    fillers = list(builder.message.dummy_data_param.data_filler)
    fillers = fillers * len(builder.tops) if len(fillers) == 1 else fillers
    if len(fillers) != len(builder.tops):
        builder.fail(f"needs one filler per top, {len(builder.tops)} in total")
    values = []
    for index, (shape, filler) in enumerate(zip(dummy_shapes(builder.layer), fillers)):
        _check_bytes(builder, shape)
        values.append(_constant_top(builder, index, np.full(shape, filler.value, np.float32)))
    return values


def _box_sizes(builder: LayerBuilder) -> list[tuple[float, float]]:
    """Return (width, height) in pixels of the boxes at each position, in the order of prior_box_layer.cpp."""
    param = builder.message.prior_box_param
    if not param.min_size or (param.max_size and len(param.max_size) != len(param.min_size)):
        builder.fail("needs a min_size, and as many max_size as min_size or none")
    ratios = [1.0]
    for ratio in param.aspect_ratio:
        if ratio <= 0:
            builder.fail(f"has the aspect ratio {ratio:g}, which must be positive")
        if all(abs(ratio - other) >= 1e-6 for other in ratios):
            ratios += [ratio, 1 / ratio] if param.flip else [ratio]
    sizes = []
    for index, least in enumerate(param.min_size):
        sizes.append((least, least))
        if param.max_size:
            sizes.append((math.sqrt(least * param.max_size[index]),) * 2)
        sizes += [(least * math.sqrt(r), least / math.sqrt(r)) for r in ratios if abs(r - 1) >= 1e-6]
    return sizes


def _picture_size(builder: LayerBuilder) -> tuple[int, int]:
    param = builder.message.prior_box_param
    if param.img_size:
        return param.img_size, param.img_size
    if param.img_h and param.img_w:
        return param.img_h, param.img_w
    return builder.inputs[1].shape[2:]  # type: ignore[return-value]


def _steps(builder: LayerBuilder, height: int, width: int) -> tuple[np.float32, np.float32]:
    """Return the distance in pixels between positions."""
    param = builder.message.prior_box_param
    if param.step:
        return np.float32(param.step), np.float32(param.step)
    if param.step_h and param.step_w:
        return np.float32(param.step_h), np.float32(param.step_w)
    rows, columns = builder.inputs[0].shape[2:]
    return np.float32(height) / np.float32(rows), np.float32(width) / np.float32(columns)


def _check_bytes(builder: LayerBuilder, shape: Shape) -> None:
    if 4 * math.prod(shape) > LIMIT_BYTES:
        builder.fail(f"would be a constant of {4 * math.prod(shape):,} bytes; the limit is {LIMIT_BYTES:,}")


def _constant_top(builder: LayerBuilder, index: int, array: np.ndarray) -> Value:
    """Add a Constant node, so that the top is a tensor of the network like any other."""
    from onnx import numpy_helper

    builder.node("Constant", to=builder.tops[index], value=numpy_helper.from_array(array, builder.tops[index]))
    return Value(builder.tops[index], array.shape)
