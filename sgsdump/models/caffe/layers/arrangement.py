"""Layers that move numbers and change none."""

from __future__ import annotations

import math

import numpy as np

from sgsdump.models.caffe.piece import INT_MAX, Piece, Shape, Value


def concat(piece: Piece) -> list[Value]:
    piece.expect(1, INT_MAX)
    param = piece.message.concat_param
    axis = piece.axis(param.concat_dim if param.HasField("concat_dim") else param.axis)
    first = piece.shape
    for value in piece.inputs:
        if _without(value.shape, axis) != _without(first, axis):
            piece.fail(f"cannot join {list(first)} and {list(value.shape)} along axis {axis}")
    length = sum(value.shape[axis] for value in piece.inputs)
    piece.node("Concat", *piece.inputs, to=piece.tops[0], axis=axis)
    return [Value(piece.tops[0], _with(first, axis, length))]


def slices(piece: Piece) -> list[Value]:
    piece.expect(1, tops=len(piece.tops))
    param = piece.message.slice_param
    axis = piece.axis(param.slice_dim if param.HasField("slice_dim") else param.axis)
    size, count = piece.shape[axis], len(piece.tops)
    points = list(param.slice_point) or [size * i // count for i in range(1, count)]
    lengths = [end - begin for begin, end in zip([0, *points], [*points, size])]
    if len(lengths) != count or min(lengths) < 1 or (not param.slice_point and size % count):
        piece.fail(f"cannot cut {size} numbers of axis {axis} at {points} into {count} tops")
    piece.node("Split", piece.inputs[0], np.array(lengths, np.int64), to=piece.tops[0], also=piece.tops[1:], axis=axis)
    return [Value(top, _with(piece.shape, axis, length)) for top, length in zip(piece.tops, lengths)]


def split(piece: Piece) -> list[Value]:
    """Every top is the bottom itself; no node says so."""
    piece.expect(1, tops=len(piece.tops))
    return [piece.inputs[0]] * len(piece.tops)


def dropout(piece: Piece) -> list[Value]:
    """Does nothing in the TEST phase; a node gives the top its own name. The SDK has a reshape to the same shape."""
    piece.expect(1)
    if piece.staged:
        shape = piece.constant("reshape_output_shape", np.array(piece.shape, np.int64))
        return [Value(piece.node("Reshape", piece.inputs[0], shape, to=piece.tops[0]), piece.shape)]
    return [Value(piece.node("Identity", piece.inputs[0], to=piece.tops[0]), piece.shape)]


def flatten(piece: Piece) -> list[Value]:
    piece.expect(1)
    param = piece.message.flatten_param
    begin, end = piece.axis(param.axis), piece.axis(param.end_axis) + 1
    shape = (*piece.shape[:begin], math.prod(piece.shape[begin:end]), *piece.shape[end:])
    if begin == 1 and end == len(piece.shape):
        return [Value(piece.node("Flatten", piece.inputs[0], to=piece.tops[0], axis=1), shape)]
    return _reshaped(piece, shape)


def reshape(piece: Piece) -> list[Value]:
    """A size of 0 copies the input's, -1 takes what is left; only ``num_axes`` axes from ``axis`` on are replaced."""
    piece.expect(1)
    param = piece.message.reshape_param
    begin = piece.axis(param.axis, end=True)
    end = len(piece.shape) if param.num_axes == -1 else begin + param.num_axes
    if param.num_axes < -1 or end > len(piece.shape):
        piece.fail(f"replaces {param.num_axes} axes from axis {begin} on; its input is {list(piece.shape)}")
    sizes = list(param.shape.dim)
    if sizes.count(-1) > 1 or any(size < -1 for size in sizes):
        piece.fail(f"has the sizes {sizes}; at most one may be -1")
    replaced = piece.shape[begin:end]
    for index, size in enumerate(sizes):
        if size == 0:
            if index >= len(replaced):
                piece.fail(f"copies axis {begin + index} of an input of shape {list(piece.shape)}")
            sizes[index] = replaced[index]
    known = math.prod(size for size in sizes if size != -1)
    shape = tuple(math.prod(replaced) // known if size == -1 else size for size in sizes)
    if math.prod(shape) != math.prod(replaced):
        piece.fail(f"cannot make {list(shape)} of {list(replaced)}: {math.prod(replaced)} numbers")
    return _reshaped(piece, (*piece.shape[:begin], *shape, *piece.shape[end:]))


def permute(piece: Piece) -> list[Value]:
    """Axes that ``order`` does not name follow behind, as they were."""
    piece.expect(1)
    order = list(piece.message.permute_param.order)
    rank = len(piece.shape)
    if len(set(order)) != len(order) or any(axis >= rank for axis in order):
        piece.fail(f"has the order {order}; its input is {list(piece.shape)}")
    order += [axis for axis in range(rank) if axis not in order]
    piece.node("Transpose", piece.inputs[0], to=piece.tops[0], perm=order)
    return [Value(piece.tops[0], tuple(piece.shape[axis] for axis in order))]


def crop(piece: Piece) -> list[Value]:
    """The first bottom cut to the size of the second one, from ``axis`` on."""
    piece.expect(2)
    param = piece.message.crop_param
    axis, wanted = piece.axis(param.axis), piece.inputs[1].shape
    if len(wanted) != len(piece.shape):
        piece.fail(f"cannot crop {list(piece.shape)} to {list(wanted)}: another number of axes")
    axes = list(range(axis, len(piece.shape)))
    offsets = list(param.offset) or [0]
    if len(offsets) not in (1, len(axes)):
        piece.fail(f"gives {len(offsets)} offsets for {len(axes)} axes")
    begins = offsets * len(axes) if len(offsets) == 1 else offsets
    ends = [begin + wanted[i] for begin, i in zip(begins, axes)]
    if any(end > piece.shape[i] for end, i in zip(ends, axes)):
        piece.fail(f"cannot crop {list(piece.shape)} to {list(wanted)} at offset {begins}")
    bounds = [np.array(numbers, np.int64) for numbers in (begins, ends, axes)]
    piece.node("Slice", piece.inputs[0], *bounds, to=piece.tops[0])
    return [Value(piece.tops[0], (*piece.shape[:axis], *wanted[axis:]))]


def tile(piece: Piece) -> list[Value]:
    piece.expect(1)
    param = piece.message.tile_param
    axis = piece.axis(param.axis)
    if param.tiles < 1:
        piece.fail("needs tiles of 1 or more")
    repeats = np.array(_with((1,) * len(piece.shape), axis, param.tiles), np.int64)
    piece.node("Tile", piece.inputs[0], repeats, to=piece.tops[0])
    return [Value(piece.tops[0], _with(piece.shape, axis, piece.shape[axis] * param.tiles))]


def shuffle_channel(piece: Piece) -> list[Value]:
    """Channels as a table of ``group`` rows, read by columns."""
    piece.expect(1)
    group = piece.message.shuffle_channel_param.group
    if len(piece.shape) < 2 or not group or piece.shape[1] % group:
        piece.fail(f"cannot shuffle {list(piece.shape)} in {group} groups")
    batch, channels, *spatial = piece.shape
    table = piece.node("Reshape", piece.inputs[0], np.array([batch, group, channels // group, *spatial], np.int64))
    turned = piece.node("Transpose", table, perm=[0, 2, 1, *range(3, 3 + len(spatial))])
    piece.node("Reshape", turned, np.array(piece.shape, np.int64), to=piece.tops[0])
    return [Value(piece.tops[0], piece.shape)]


def _reshaped(piece: Piece, shape: Shape) -> list[Value]:
    return [Value(piece.node("Reshape", piece.inputs[0], np.array(shape, np.int64), to=piece.tops[0]), shape)]


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])
