"""Interp (DeepLab, PSPNet) and Upsample (SegNet, YOLO): layers of forks that make pictures larger or smaller."""

from __future__ import annotations

import numpy as np

from sgsdump.models.caffe.piece import Piece, Value

INT64 = 7


def interp(piece: Piece) -> list[Value]:
    """Bilinear, corner on corner; pad_beg and pad_end cut (they are 0 or negative). Source: interp_layer.cpp."""
    piece.expect(1, 2)
    _check_picture(piece)
    param = piece.message.interp_param
    if param.pad_beg > 0 or param.pad_end > 0:
        piece.fail("has a positive pad_beg or pad_end; Interp can only cut")
    cut = tuple(size + param.pad_beg + param.pad_end for size in piece.shape[2:])
    if min(cut) < 1:
        piece.fail(f"cuts all of {list(piece.shape)} away")
    size = tuple(_interp_size(piece, index, length) for index, length in enumerate(cut))
    shape = (*piece.shape[:2], *size)
    source: Value | str = piece.inputs[0]
    if cut != piece.shape[2:]:
        begins = [-param.pad_beg] * 2
        ends = [begin + length for begin, length in zip(begins, cut)]
        source = piece.node("Slice", source, *(np.array(numbers, np.int64) for numbers in (begins, ends, [2, 3])))
    if cut == size:
        return [Value(piece.node("Identity", source, to=piece.tops[0]), shape)]
    return [Value(_resized(piece, source, shape, mode="linear", coordinate_transformation_mode="align_corners"), shape)]


def upsample(piece: Piece) -> list[Value]:
    """One bottom: every number repeated. Two: each number goes where the mask of a pooling before says, among zeros."""
    piece.expect(1, 2)
    _check_picture(piece)
    param = piece.message.upsample_param
    scales = (param.scale_h, param.scale_w) if param.HasField("scale_h") else (param.scale, param.scale)
    size = tuple(
        length * scale - pad for length, scale, pad in zip(piece.shape[2:], scales, (param.pad_out_h, param.pad_out_w))
    )
    if param.HasField("upsample_h") and param.HasField("upsample_w"):
        size = (param.upsample_h, param.upsample_w)
    shape = (*piece.shape[:2], *size)
    if len(piece.inputs) == 2:
        return _placed(piece, shape)
    if any(large % small for large, small in zip(size, piece.shape[2:])):
        piece.fail(f"cannot repeat {list(piece.shape)} to {list(shape)}: not a whole number of times")
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return [Value(_resized(piece, piece.inputs[0], shape, **nearest), shape)]


def _placed(piece: Piece, shape: tuple[int, ...]) -> list[Value]:
    mask = piece.inputs[1]
    if mask.shape != piece.shape:
        piece.fail(f"has a mask of shape {list(mask.shape)} for {list(piece.shape)}")
    batch, channels, height, width = shape
    flat = np.array([batch, channels, -1], np.int64)
    values = piece.node("Reshape", piece.inputs[0], flat)
    places = piece.node("Reshape", piece.node("Cast", mask, to_type=INT64), flat)
    zeros = piece.node("ConstantOfShape", np.array([batch, channels, height * width], np.int64))
    placed = piece.node("ScatterElements", zeros, places, values, axis=2)
    return [Value(piece.node("Reshape", placed, np.array(shape, np.int64), to=piece.tops[0]), shape)]


def _interp_size(piece: Piece, index: int, length: int) -> int:
    param = piece.message.interp_param
    if len(piece.inputs) == 2:
        return piece.inputs[1].shape[2 + index]
    zoom, shrink = param.HasField("zoom_factor"), param.HasField("shrink_factor")
    if param.HasField("height") and param.HasField("width") and not zoom ^ shrink:
        return (param.height, param.width)[index]
    if not (zoom or shrink) or param.zoom_factor < 1 or param.shrink_factor < 1:
        piece.fail("needs height and width, or a zoom_factor or shrink_factor of 1 or more")
    length = (length - 1) // param.shrink_factor + 1
    return length + (length - 1) * (param.zoom_factor - 1)


def _resized(piece: Piece, source: Value | str, shape: tuple[int, ...], **attributes: str) -> str:
    sizes = piece.constant("sizes", np.array(shape, np.int64))
    return piece.node("Resize", source, "", "", sizes, to=piece.tops[0], **attributes)


def _check_picture(piece: Piece) -> None:
    if any(len(value.shape) != 4 for value in piece.inputs):
        piece.fail(f"needs N, C, H, W inputs, not {', '.join(str(list(v.shape)) for v in piece.inputs)}")
