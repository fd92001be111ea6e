"""The numbers and rules that the docstrings of this room state, a row each."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from sgsdump import Quant, Tensor, TensorInfo
from sgsdump.errors import FormatError, ValuesError
from sgsdump.tensors import sdk_buffers, statistics
from sgsdump.tensors.device import conversion, to_device, to_logical
from sgsdump.tensors.dtypes import carried, carrier, name_of, packed, restored, unpacked
from sgsdump.tensors.real_values import dequantise, scale_fits
from sgsdump.tensors.sdk_buffers import (
    UNPAD,
    is_row_major,
    pad_blocks,
    pad_channels,
    pad_picture,
    padded_sizes,
    unpad,
)
from sgsdump.tensors.statistics import central_span, histogram, summarise
from sgsdump.tensors.tensor import values_of
from sgsdump.tensors.types import Origin, Range, nchw_shape, nhwc_shape, same_quant, to_nchw, to_nhwc

U8, I16 = np.dtype(np.uint8), np.dtype(np.int16)

# -- a tensor's stored values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "size", "refused"),
    [
        ((1, 2, 3, 10), np.uint8, 128, True),  # 6 pixels of 16 bytes, up to 64: 128
        ((1, 2, 3, 10), np.uint8, 96, False),  # not rounded up to 64: no buffer of the hardware's
        ((1, 2, 3, 10), np.uint8, 192, False),
        ((1, 2, 3, 16), np.uint8, 128, False),  # no channel is missing: only the end is padded
        ((1, 2, 3, 8), np.int16, 64, False),
        ((1, 2, 3, 7), np.int16, 64, True),  # 6 pixels of 8 int16 are 96 bytes, up to 128: 64 values
        ((2, 3), np.int32, 16, True),  # 2 rows of 4 int32 are 32 bytes, up to 64
        ((5,), np.int8, 64, True),
        ((5,), np.bool_, 64, True),
        ((2, 3), np.float32, 16, False),  # floats are never padded
        ((), np.int32, 16, False),
        ((0, 5), np.uint8, 0, False),
    ],
)
def test_which_payloads_are_padded_buffers(shape, dtype, size, refused):
    values = np.arange(size).astype(dtype)
    tensor = Tensor(TensorInfo("x", shape, values.dtype), lambda: values)
    if refused:
        with pytest.raises(ValuesError, match="padded hardware buffer"):
            tensor.stored()
        return
    np.testing.assert_array_equal(tensor.stored(), values[: math.prod(shape)].reshape(shape))


def test_a_payload_of_the_right_size_takes_its_shape_and_one_value_less_does_not():
    values = np.arange(6, dtype=np.float32)
    assert Tensor(TensorInfo("x", (2, 3), values.dtype), lambda: values).stored().tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(FormatError, match=r"holds 6 values, its shape \[7\] needs 7"):
        Tensor(TensorInfo("x", (7,), values.dtype), lambda: values).stored()


@pytest.mark.parametrize(
    ("scale", "axis", "shape", "fits"),
    [
        (0.5, None, (2, 3), True),
        (np.array(0.5), None, (2, 3), True),
        (np.array([0.5]), None, (2, 3), True),
        (np.array([0.5]), 0, (2, 3), False),
        (np.array([0.5]), 0, (1, 3), True),
        (np.ones(3), None, (2, 3), True),  # no axis named: the last one
        (np.ones(2), None, (2, 3), False),
        (np.ones(2), 0, (2, 3), True),
        (np.ones(3), 0, (2, 3), False),
        (np.ones(3), 1, (2, 3), True),
        (np.ones(3), 2, (2, 3), False),
        (np.ones(3), 3, (2, 3), False),
        (np.ones(3), -1, (2, 3), False),
        (np.ones((1, 3)), 1, (2, 3), False),
        (np.ones(3), None, None, False),
        (np.ones(3), None, (), False),
    ],
)
def test_how_many_scales_fit_a_shape(scale, axis, shape, fits):
    info = TensorInfo("x", shape, U8, quant=Quant(U8, scale, axis=axis, exact=True))
    assert scale_fits(info) is fits
    if not fits and shape is not None:
        with pytest.raises(ValuesError, match=f"has {np.size(scale)} scales along axis {axis}"):
            dequantise(np.zeros(shape, U8), info)


def test_without_quantisation_anything_fits():
    assert scale_fits(TensorInfo("x", (2, 3), U8))
    assert dequantise(np.array([3], U8), TensorInfo("x", (1,), U8)).dtype == np.float32


@pytest.mark.parametrize(
    ("axis", "scale", "expected"),
    [
        (None, [1.0, 10.0, 100.0], [[0, 10, 200], [3, 40, 500]]),
        (1, [1.0, 10.0, 100.0], [[0, 10, 200], [3, 40, 500]]),
        (0, [1.0, 10.0], [[0, 1, 2], [30, 40, 50]]),
    ],
)
def test_scales_per_channel_run_along_their_axis(axis, scale, expected):
    quant = Quant(U8, np.array(scale), axis=axis, exact=True)
    stored = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert Tensor.of("x", stored, quant=quant).real().tolist() == expected


def test_a_part_is_what_the_whole_is():
    stored = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    channels = Quant(U8, np.array([0.5, 1.0, 2.0]), 3, axis=1, exact=True)
    for tensor in (
        Tensor.of("x", stored, quant=Quant(U8, 0.5, 3, exact=True)),
        Tensor.of("x", stored, quant=channels),
        Tensor.of("x", stored),
        Tensor.of("x", values, quant=channels),  # dequantised already: it only says what it was
        Tensor.of("x", values > 3),
        Tensor.of("x", values + 2j * values),
    ):
        real = tensor.real()
        for index in (
            0,
            (1, 2),
            (0, 1, 2),
            (slice(None), 1),
            (slice(None), slice(None), 3),
            (slice(None, None, -1), slice(1, 3)),
        ):
            np.testing.assert_array_equal(tensor[index], real[index])
            assert tensor[index].dtype == np.float32
        np.testing.assert_array_equal(tensor[values > 7], real[values > 7])


def test_the_zero_point_is_taken_off_before_anything_overflows():
    stored = np.array([-(2**31), 2**31 - 1], np.int32)
    real = Tensor.of("x", stored, quant=Quant(stored.dtype, 1.0, 5, exact=True)).real()
    assert real.dtype == np.float32 and real.tolist() == [float(np.float32(-(2**31) - 5)), float(np.float32(2**31 - 6))]


QUANT = Quant(U8, np.array([0.5, np.nan]), 3, 1, True, "word")


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": I16},
        {"dtype": None},
        {"zero_point": 2},
        {"axis": 0},
        {"axis": None},
        {"exact": False},
        {"type_name": ""},
        {"scale": np.array([0.5, 0.5])},
        {"scale": np.array([0.25, np.nan])},
        {"scale": 0.5},
    ],
    ids=str,
)
def test_two_quantisations_are_the_same_in_every_field_or_not_at_all(change):
    assert same_quant(QUANT, replace(QUANT, scale=QUANT.scale.copy()))
    assert not same_quant(QUANT, replace(QUANT, **change)) and not same_quant(replace(QUANT, **change), QUANT)
    assert not same_quant(QUANT, None) and not same_quant(None, QUANT) and same_quant(None, None)


def test_wide_complex_values_become_float32_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = np.array([1e300 - 1e-300j, 1.5 + 2.5j])
        real = Tensor.of("x", values).real()
        assert real.dtype == np.float32 and real.tolist() == [[math.inf, 0], [1.5, 2.5]]
        assert Tensor.of("x", np.array([1e300])).real().tolist() == [math.inf]


# -- chunks that become real when they are read ------------------------------------------------------------------------


def test_which_tensors_are_dequantised_chunk_by_chunk():
    stored = np.array([1, 2, 3], U8)
    of_file = Quant(U8, 0.5, 1, exact=True)
    values = values_of(Tensor.of("x", stored, quant=of_file))
    assert values.array is stored and values.to_real is not None
    assert values.to_real(stored[1:]).tolist() == [0.5, 1.0]
    assert values.of(stored[:1]).to_real is values.to_real and values.of(stored[:1]).array.size == 1

    given = values_of(Tensor.of("x", stored, quant=of_file), Quant(U8, 2.0, exact=True))
    assert given.to_real is not None and given.to_real(stored).tolist() == [2, 4, 6]

    per_channel = Quant(U8, np.array([1.0, 2.0, 3.0]), axis=0, exact=True)
    whole = values_of(Tensor.of("x", stored, quant=per_channel))
    assert whole.to_real is None and whole.array.tolist() == [1, 4, 9]

    plain = values_of(Tensor.of("x", stored))
    assert plain.to_real is None and plain.array is stored
    floats = np.array([1.5], np.float32)
    dequantised = values_of(Tensor.of("x", floats, quant=of_file))  # it only says what it was
    assert dequantised.to_real is None and dequantised.array is floats
    assert values_of(Tensor.of("x", np.array([1 + 2j]))).array.tolist() == [[1, 2]]


def test_integers_without_a_true_scale_and_texts_have_no_real_values():
    with pytest.raises(ValuesError, match="six decimals"):
        values_of(Tensor.of("x", np.array([1], U8), quant=Quant(U8, 0.5)))
    with pytest.raises(ValuesError, match="are not numbers"):
        values_of(Tensor.of("x", np.array(["a"])))


# -- layouts -----------------------------------------------------------------------------------------------------------


def test_nhwc_and_nchw_against_numpy():
    nchw = np.arange(120).reshape(2, 3, 4, 5)
    nhwc = np.moveaxis(nchw, 1, -1)
    np.testing.assert_array_equal(to_nhwc(nchw), nhwc)
    np.testing.assert_array_equal(to_nchw(nhwc), nchw)
    assert nhwc_shape([2, 3, 4, 5]) == (2, 4, 5, 3) and nchw_shape([2, 4, 5, 3]) == (2, 3, 4, 5)
    assert np.shares_memory(to_nhwc(nchw), nchw) and np.shares_memory(to_nchw(nhwc), nchw)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 3, 4), (2, 3, 4, 5, 6)])
def test_other_ranks_have_no_layout(shape):
    array = np.zeros(shape)
    assert to_nhwc(array) is array is to_nchw(array)
    assert nhwc_shape(list(shape)) == shape == nchw_shape(list(shape))


# -- the SDK's padded buffers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "shape", "itemsize", "constant", "sizes"),
    [
        ("NHWC", (1, 2, 2, 16), 1, False, (64,)),
        ("NHWC", (1, 2, 2, 17), 1, False, (128,)),
        ("NHWC", (1, 2, 2, 8), 2, False, (32,)),
        ("NHWC", (1, 2, 2, 9), 2, False, (64,)),
        ("NHWC", (1, 2, 2, 5), 4, False, (32,)),
        ("NHWC", (3,), 1, False, (64,)),
        ("NHWC", (3,), 1, True, (32, 64)),
        ("NHWC", (33,), 1, True, (64, 64)),
        ("NHWC", (5,), 4, True, (8, 16)),
        ("NHWC", (9,), 4, True, (16, 16)),
        ("NHWC", (), 1, False, (64,)),
        ("NHWC", (), 1, True, (32, 64)),
        ("NHWX", (1, 2, 2, 17), 1, False, (128,)),
        ("NHWX", (2, 2, 17), 1, False, ()),
        ("RGB", (1, 4, 4, 3), 1, False, (64,)),
        ("BGR", (1, 4, 5, 3), 1, False, (128,)),
        ("RGBA", (1, 4, 4, 3), 1, False, (64,)),
        ("BGRA", (1, 4, 5, 3), 1, False, (128,)),
        ("KB", (1, 2, 2, 16), 1, False, ()),
    ],
)
def test_sizes_of_padded_buffers(order, shape, itemsize, constant, sizes):
    assert padded_sizes(order, shape, itemsize, constant) == sizes
    assert padded_sizes(order, shape, itemsize) == (sizes[-1:] if constant else sizes)


@pytest.mark.parametrize(
    ("order", "shape", "itemsize", "row_major"),
    [
        *((order, (1, 5, 6, 40), 1, True) for order in UNPAD if order != "NHWX"),
        ("KB", (1, 5, 6, 3), 1, False),
        ("NHWX", (1, 5, 6, 16), 1, True),
        ("NHWX", (1, 5, 6, 17), 1, False),
        ("NHWX", (1, 5, 6, 8), 2, True),
        ("NHWX", (1, 5, 6, 9), 2, False),
        ("NHWX", (1, 1, 1, 99), 2, True),
        ("NHWX", (9, 1, 1, 99), 2, True),
        ("NHWX", (1, 1, 2, 99), 2, False),
        ("NHWX", (1, 3, 3, 99), 2, False),
        ("NHWX", (1, 2, 1, 99), 2, False),
        ("NHWX", (1, 0, 3, 99), 2, False),
        ("NHWX", (5, 6, 8), 2, False),
        ("NHWX", (), 2, False),
    ],
)
def test_when_blocks_lie_as_nhwc_does(order, shape, itemsize, row_major):
    assert is_row_major(order, shape, itemsize) is row_major


def test_the_padding_is_zeros_and_a_scalar_is_a_buffer_too():
    assert pad_channels(np.array(7, U8)).tolist() == [7] + [0] * 63
    assert unpad(pad_channels(np.array(7, U8)), "NHWC", ()).tolist() == 7
    assert pad_channels(np.full((2, 3), 7, np.int32)).tolist() == [7, 7, 7, 0, 7, 7, 7, 0] + [0] * 8
    blocks = pad_blocks(np.arange(1, 37, dtype=I16).reshape(1, 1, 2, 18))
    assert blocks.size == 64 and blocks[:8].tolist() == [*range(1, 9)] and blocks[8:16].tolist() == [*range(19, 27)]
    assert blocks[32:40].tolist() == [17, 18, 0, 0, 0, 0, 0, 0] and not blocks[48:].any()


@pytest.mark.parametrize(("channels", "size"), [(1, 128), (3, 128), (4, 128), (5, 128), (6, 128), (7, 192)])
def test_a_picture_takes_four_bytes_a_pixel_or_what_it_has(channels, size):
    picture = np.full((1, 4, 5, channels), 9, U8)
    flat = pad_picture(picture)
    assert flat.size == size and (flat[: picture.size] == 9).all() and not flat[picture.size :].any()


def test_the_documented_steps():
    assert (sdk_buffers.PIXEL_BYTES, sdk_buffers.BUFFER_BYTES, sdk_buffers.CONSTANT_BYTES) == (16, 64, 32)


@pytest.mark.parametrize("order", ["RGB", "BGR"])
def test_packed_pictures(order):
    picture = np.arange(30, dtype=U8).reshape(1, 2, 5, 3)
    np.testing.assert_array_equal(unpad(pad_picture(picture), order, picture.shape), picture)


@pytest.mark.parametrize("order", ["RGBA", "BGRA"])
def test_pictures_pixel_by_pixel(order):
    picture = np.arange(30, dtype=U8).reshape(1, 2, 5, 3)
    flat = np.pad(np.pad(picture, [(0, 0)] * 3 + [(0, 1)]).reshape(-1), (0, 24))
    found = unpad(flat, order, picture.shape)
    np.testing.assert_array_equal(found, picture)
    assert found.flags.c_contiguous


# -- device layouts ----------------------------------------------------------------------------------------------------


def device(layout, shape, origin, dtype=np.float16):
    return Tensor.of("t", np.zeros(shape, dtype), layout=layout, origin=origin)


@pytest.mark.parametrize(
    ("layout", "shape", "origin", "becomes"),
    [
        ("NC1HWC0", (1, 1, 2, 3, 16), Origin((1, 5, 2, 3)), "NCHW"),
        ("NC1HWC0", (1, 2, 1, 1, 16), Origin((1, 20), "NC"), None),
        ("NC1HWC0", (1, 2, 1, 1, 16), Origin((20,)), None),
        ("NC1HWC0_C04", (1, 1, 2, 3, 4), Origin((1, 3, 2, 3)), "NCHW"),
        ("NC1HWC0", (1, 1, 0, 3, 16), Origin((1, 5, 0, 3)), "NCHW"),
        ("NDC1HWC0", (1, 6, 1, 2, 3, 16), Origin((1, 5, 6, 2, 3)), "NCDHW"),
        ("FRACTAL_Z", (6, 1, 16, 16), Origin((9, 5, 2, 3)), "NCHW"),
        ("FRACTAL_Z", (6, 1, 16, 16), Origin((9, 5, 2, 3), None, 0), "NCHW"),  # no groups: one
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((9, 32)), None),
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((9, 32), "ND"), "ND"),
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((9, 32), "NCHW"), None),
        ("FRACTAL_NZ", (2, 1, 16, 16), Origin((32,)), None),
        ("FRACTAL_NZ_C0_16", (2, 1, 16, 16), Origin((9, 32)), None),
        ("FRACTAL_NZ_C0_32", (1, 1, 16, 32), Origin((9, 32)), None),
        ("FRACTAL_NZ", (3, 2, 2, 1, 16, 16), Origin((3, 2, 9, 32)), None),
        ("NHWX", (64,), Origin((1, 2, 2, 5), "NCHW"), "NHWC"),
    ],
)
def test_the_layout_and_shape_behind_a_device_layout(layout, shape, origin, becomes):
    tensor = device(layout, shape, origin, U8 if layout == "NHWX" else np.float16).logical()
    assert (tensor.info.layout, tensor.info.shape, tensor.info.origin) == (becomes, origin.shape, None)
    assert tensor.stored().shape == origin.shape
    assert conversion(device(layout, shape, origin).info).startswith(f"{layout} to {becomes or list(origin.shape)}")


@pytest.mark.parametrize(
    ("shape", "origin"),
    [
        ((1, 1, 2, 16), Origin((1, 5, 2, 3))),
        ((1, 2, 2, 3, 16), Origin((1, 5, 2, 3))),
        ((1, 1, 2, 3, 0), Origin((1, 5, 2, 3))),
        ((1, 1, 2, 0, 16), Origin((1, 5, 2, 0))),
    ],
)
def test_blocks_that_do_not_fit(shape, origin):
    assert conversion(device("NC1HWC0", shape, origin).info) == ""
    with pytest.raises(ValuesError, match=r"does not fit (its|the) original shape"):
        device("NC1HWC0", shape, origin).logical()
    with pytest.raises(ValuesError, match="does not fit the original shape"):
        to_logical(np.zeros(shape), "NC1HWC0", origin)


@pytest.mark.parametrize(
    "origin", [Origin((4, 0, 3, 3), None, 2), Origin((0, 4, 3, 3), None, 2), Origin((5, 4, 3, 3), None, 2)]
)
def test_groups_need_channels_and_whole_outputs(origin):
    with pytest.raises(ValuesError):
        to_logical(np.zeros((9, 1, 16, 16)), "FRACTAL_Z", origin)


@pytest.mark.parametrize(
    ("groups", "shape", "stored"),
    [
        (1, (6, 3, 1, 1), (1, 1, 16, 16)),
        (2, (6, 3, 1, 1), (1, 1, 16, 16)),  # two groups of 3 channels and 3 outputs lie in one block
        (3, (48, 16, 1, 1), (3, 1, 16, 16)),  # whole blocks already: each group has its own
        (4, (32, 4, 1, 1), (1, 2, 16, 16)),
        (8, (64, 8, 1, 1), (4, 1, 16, 16)),
    ],
)
def test_groups_share_a_block_along_its_diagonal(groups, shape, stored):
    weights = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    device_array = to_device(weights, "NCHW", "FRACTAL_Z", groups=groups)
    assert device_array.shape == stored and np.count_nonzero(device_array) == weights.size
    np.testing.assert_array_equal(to_logical(device_array, "FRACTAL_Z", Origin(shape, "NCHW", groups)), weights)


def test_what_else_the_shapes_would_allow():
    info = device("NC1HWC0", (4, 1, 4, 4, 16), Origin((4, 4, 4, 4))).info
    assert conversion(info) == (
        "NC1HWC0 to NCHW (its shape would allow NHWC or HWCN or CHWN too, and the file does not say)"
    )
    assert conversion(replace(info, layout="NCHW")) == "" == conversion(replace(info, origin=None))


def test_a_plain_tensor_and_one_of_unknown_stored_shape():
    plain = Tensor.of("t", np.zeros((1, 2)), layout="NCHW")
    assert plain.logical() is plain
    flat = to_device(np.arange(20, dtype=U8).reshape(1, 2, 2, 5), "NHWC", "NHWX")
    tensor = Tensor(TensorInfo("t", None, U8, "NHWX", origin=Origin((1, 2, 2, 5))), lambda: flat)
    assert tensor.logical().stored().reshape(-1).tolist() == list(range(20))
    with pytest.raises(ValuesError, match=r"a padded NHWX buffer of \[1, 2, 2, 5\] has \(64,\) values, not 63"):
        to_logical(flat[:63], "NHWX", Origin((1, 2, 2, 5)))


def test_blocks_are_of_sixteen_unless_said():
    assert to_device(np.ones((1, 17, 2, 3)), "NCHW", "NC1HWC0").shape == (1, 2, 2, 3, 16)
    assert to_device(np.ones((17, 33)), "", "FRACTAL_NZ").shape == (3, 2, 16, 16)
    assert to_device(np.ones((17, 33)), "", "FRACTAL_NZ_C0_32", c0=32).shape == (2, 2, 16, 32)
    assert to_device(np.ones((17, 5, 2, 3)), "NCHW", "FRACTAL_Z").shape == (6, 2, 16, 16)
    assert to_device(np.ones((1, 2, 2, 20), U8), "NHWC", "NHWC").shape == (128,)


# -- element types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "carrying"),
    [
        ("<i2", "<i2"),
        (">i2", "<i2"),
        (">f8", "<f8"),
        (ml_dtypes.int4, "|i1"),
        (ml_dtypes.uint4, "|u1"),
        (ml_dtypes.bfloat16, "<u2"),
        (ml_dtypes.float8_e5m2, "|u1"),
    ],
)
def test_what_carries_a_type(dtype, carrying):
    dtype = np.dtype(dtype)
    assert carrier(dtype).str == carrying
    array = np.array([1, 2, 3]).astype(dtype)
    assert carried(array).dtype == carrier(dtype)
    again = restored(carried(array), dtype.newbyteorder("=") if dtype.isnative is False else dtype)
    assert again.astype(float).tolist() == [1, 2, 3]


def test_carrying_costs_no_copy_where_no_value_changes_its_form():
    for dtype in (np.float32, ml_dtypes.bfloat16, np.bool_):
        array = np.ones(4, dtype)
        assert np.shares_memory(carried(array), array)
        assert np.shares_memory(restored(carried(array), array.dtype), array)


def test_bytes_in_a_file_are_little_endian_whatever_memory_holds():
    assert packed(np.array([1, 258], ">i2")) == b"\x01\x00\x02\x01"
    assert unpacked(b"\x01\x00\x02\x01\x09", np.dtype(">i2"), 2).tolist() == [1, 258]
    assert packed(np.array([[1, 2], [3, 4]], np.int8).T) == b"\x01\x03\x02\x04"
    assert name_of(">i2") == "int16" and name_of("U3") == "str96"


def test_both_halves_of_every_byte_are_read():
    pairs = unpacked(b"\xa5" * (4 << 20), np.dtype(ml_dtypes.uint4), 8 << 20)
    assert (pairs[0::2] == 5).all() and (pairs[1::2] == 10).all()


# -- statistics --------------------------------------------------------------------------------------------------------


def test_chunks_without_a_finite_value_do_not_end_the_sums(monkeypatch):
    monkeypatch.setattr(statistics, "CHUNK", 4)
    values = np.array([np.nan, -np.inf, np.inf, -np.inf, 3, 4, 0, 0, np.nan, np.nan, np.nan, np.inf])
    found = summarise(values)
    assert (found.count, found.nan, found.inf, found.negative_inf, found.finite) == (12, 4, 4, 2, 4)
    assert (found.min, found.max, found.mean, found.l2norm) == (0, 4, 1.75, 5)


def test_parts_together_are_the_whole():
    values = np.array([1, -2, np.nan, np.inf, -np.inf, -np.inf, 8, 1], np.float64)
    whole = summarise(values)
    assert statistics.merged([summarise(values[:3]), summarise(values[3:6]), summarise(values[6:])]) == whole
    nothing = statistics.merged(iter([summarise(values[4:6]), summarise(values[2:3])]))
    assert (nothing.count, nothing.nan, nothing.inf, nothing.negative_inf) == (3, 1, 2, 2)
    assert (nothing.min, nothing.max, nothing.mean, nothing.l2norm) == (None,) * 4
    assert statistics.merged([]).count == 0


def test_a_mean_never_leaves_the_values():
    values = np.full(7, 0.1)
    assert summarise(values).mean == 0.1 and summarise(-values).mean == -0.1
    parts = [summarise(values[:3]), summarise(values)]
    assert statistics.merged(parts).mean == 0.1


@pytest.mark.parametrize(
    ("values", "low", "high", "bins", "counts"),
    [
        ([0, 1, 2, 3, 4], 0, 4, 4, [1, 1, 1, 2]),  # high itself is in the last bin
        ([-1, 0, 4, 5], 0, 4, 4, [1, 0, 0, 1]),  # values beyond are left out
        ([-1, 0.5], 0, 4, 4, [1, 0, 0, 0]),
        ([0.5, 5], 0, 4, 4, [1, 0, 0, 0]),
        ([np.nan, np.inf, 1], 0, 4, 4, [0, 1, 0, 0]),
        ([2, 2, 3, 1], 2, 2, 5, [0, 0, 2, 0, 0]),  # low == high: the middle bin
        ([2], 2, 2, 1, [1]),
        ([2], 2, 2, 2, [0, 1]),
        ([], 0, 1, 3, [0, 0, 0]),
        ([-3, -1, 1], -3, 1, 2, [1, 2]),
    ],
)
def test_where_a_histogram_counts(values, low, high, bins, counts):
    found = histogram(np.array(values, np.float64), low, high, bins)
    assert found.tolist() == counts and found.dtype == np.int64


@pytest.mark.parametrize(
    ("counts", "share", "span"),
    [
        ([25, 50, 25], 0.5, (1, 2)),  # exactly the share
        ([9, 82, 9], 0.8, (1, 2)),
        ([11, 78, 11], 0.8, (0, 3)),
        ([11, 80, 9], 0.8, (0, 2)),
        ([1, 98, 1], 0.99, (0, 3)),
        ([0, 0, 5], 0.99, (2, 3)),
        ([5, 0, 0], 0.99, (0, 1)),
        ([5, 0, 5], 1.0, (0, 3)),
    ],
)
def test_the_central_span_leaves_out_at_most_its_share(counts, share, span):
    assert central_span(np.array(counts), 0.0, 3.0, share) == pytest.approx(span)
    assert central_span(np.array(counts), 6.0, 12.0, share) == pytest.approx([6 + 2 * end for end in span])


def test_the_share_is_99_percent_unless_said():
    assert central_span(np.array([4, 992, 4]), 0.0, 3.0) == pytest.approx((1, 2))
    assert central_span(np.array([6, 988, 6]), 0.0, 3.0) == pytest.approx((0, 3))
    assert all(map(math.isnan, central_span(np.array([], int), 0.0, 1.0)))


# -- ranges ------------------------------------------------------------------------------------------------------------


def test_a_range_and_what_holds_for_wider_integers():
    wide = Range.of(-9, 9, 16)
    found = Range(np.array([-1.0, -4.0]), np.array([3.0, 2.0]), 8, wide)
    assert (found.low, found.high) == (-4.0, 3.0)
    assert found.at(U8) is found and found.at(I16) is wide and Range.of(0, 1).at(I16).high == 1
    assert Range.of(0, 1).min.dtype == np.float64 and Range.of(0, 1).bit is None


@pytest.mark.parametrize(
    "other", [Range.of(-1, 3, 8), Range.of(-2, 2, 8), Range.of(-2, 3, 16), Range.of(-2, 3)], ids=str
)
def test_ranges_are_the_same_in_numbers_and_bits(other):
    assert Range.of(-2, 3, 8).same(Range.of(-2, 3, 8))
    assert not Range.of(-2, 3, 8).same(other) and not other.same(Range.of(-2, 3, 8))
