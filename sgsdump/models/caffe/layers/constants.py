"""Layers whose result does not depend on the picture: PriorBox (SSD) and DummyData with a constant filler."""

from __future__ import annotations

import math

import numpy as np

from sgsdump.models.caffe.net import dummy_shapes
from sgsdump.models.caffe.piece import Piece, Shape, Value

LIMIT_BYTES = 256 << 20


def prior_box(piece: Piece) -> list[Value]:
    """[1, 2, 4 * boxes]: corners of the boxes, relative to the picture; then their variances."""
    piece.expect(2)
    feature, picture = piece.inputs
    if len(feature.shape) != 4 or len(picture.shape) != 4:
        piece.fail(f"needs N, C, H, W inputs, not {list(feature.shape)} and {list(picture.shape)}")
    param = piece.message.prior_box_param
    sizes = _box_sizes(piece)
    _check_bytes(piece, (2, *feature.shape[2:], len(sizes), 4))
    height, width = _picture_size(piece)
    step_h, step_w = _steps(piece, height, width)
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
        piece.fail(f"gives {len(variance)} variances; it takes 1 or 4")
    spread = np.broadcast_to(np.array(variance, np.float32), boxes.shape)
    return [_given(piece, 0, np.stack([boxes.ravel(), spread.ravel()])[None].astype(np.float32))]


def dummy_data(piece: Piece) -> list[Value]:
    """Each top filled with its filler's value."""
    fillers = list(piece.message.dummy_data_param.data_filler)
    fillers = fillers * len(piece.tops) if len(fillers) == 1 else fillers
    if len(fillers) != len(piece.tops):
        piece.fail(f"needs a filler for each of its {len(piece.tops)} tops")
    values = []
    for index, (shape, filler) in enumerate(zip(dummy_shapes(piece.layer), fillers)):
        _check_bytes(piece, shape)
        values.append(_given(piece, index, np.full(shape, filler.value, np.float32)))
    return values


def _box_sizes(piece: Piece) -> list[tuple[float, float]]:
    """(width, height) in pixels of the boxes at each place, in the order of prior_box_layer.cpp."""
    param = piece.message.prior_box_param
    if not param.min_size or (param.max_size and len(param.max_size) != len(param.min_size)):
        piece.fail("needs a min_size, and as many max_size as min_size or none")
    ratios = [1.0]
    for ratio in param.aspect_ratio:
        if ratio <= 0:
            piece.fail(f"has the aspect ratio {ratio:g}; it must be positive")
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1 / ratio] if param.flip else [ratio]
    sizes = []
    for index, least in enumerate(param.min_size):
        sizes.append((least, least))
        if param.max_size:
            sizes.append((math.sqrt(least * param.max_size[index]),) * 2)
        sizes += [(least * math.sqrt(r), least / math.sqrt(r)) for r in ratios if abs(r - 1) >= 1e-6]
    return sizes


def _picture_size(piece: Piece) -> tuple[int, int]:
    param = piece.message.prior_box_param
    if param.img_size:
        return param.img_size, param.img_size
    if param.img_h and param.img_w:
        return param.img_h, param.img_w
    return piece.inputs[1].shape[2:]  # type: ignore[return-value]


def _steps(piece: Piece, height: int, width: int) -> tuple[np.float32, np.float32]:
    """Pixels from one place to the next."""
    param = piece.message.prior_box_param
    if param.step:
        return np.float32(param.step), np.float32(param.step)
    if param.step_h and param.step_w:
        return np.float32(param.step_h), np.float32(param.step_w)
    rows, columns = piece.inputs[0].shape[2:]
    return np.float32(height) / np.float32(rows), np.float32(width) / np.float32(columns)


def _check_bytes(piece: Piece, shape: Shape) -> None:
    if 4 * math.prod(shape) > LIMIT_BYTES:
        piece.fail(f"would be a constant of {4 * math.prod(shape):,} bytes; at most {LIMIT_BYTES:,} are made")


def _given(piece: Piece, index: int, array: np.ndarray) -> Value:
    """A Constant node, so that the top is a tensor of the net like any other."""
    from onnx import numpy_helper

    piece.node("Constant", to=piece.tops[index], value=numpy_helper.from_array(array, piece.tops[index]))
    return Value(piece.tops[index], array.shape)
