"""Padded buffers: sizes by the formula of docs/formats/sigmastar.md#padded-buffers, values in their places.

Constants in the hardware's order, against the SDK's own dumps of padded buffers and its parse_net texts.
"""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgsdump.dumps.io import open_dump
from sgsdump.sidecars import parse_net
from sgsdump.tensors import sdk_buffers
from sgsdump.tensors.sdk_buffers import (
    UNPAD,
    is_row_major,
    pad_bias,
    pad_blocks,
    pad_channels,
    pad_depthwise,
    pad_parameter,
    pad_picture,
    pad_weights,
    padded_sizes,
    unpad,
)

U8, I16 = np.dtype(np.uint8), np.dtype(np.int16)

side = st.integers(1, 6)


@given(side, side, st.integers(1, 40), st.sampled_from([np.uint8, np.int16]))
def test_channels_go_up_to_16_bytes_and_the_whole_to_64(h, w, c, dtype):
    array = np.arange(1, h * w * c + 1).astype(dtype).reshape(1, h, w, c)
    flat = pad_channels(array)
    step = 16 // array.itemsize
    padded = -(-c // step) * step
    assert flat.nbytes == -(-h * w * padded * array.itemsize // 64) * 64
    pixels = flat[: h * w * padded].reshape(h, w, padded)
    np.testing.assert_array_equal(pixels[..., :c], array[0])
    assert not pixels[..., c:].any()
    assert not flat[h * w * padded :].any()


def test_a_picture_takes_four_bytes_a_pixel():
    picture = np.full((1, 20, 24, 3), 7, np.uint8)
    flat = pad_picture(picture)
    assert flat.size == 20 * 24 * 4
    assert (flat[: picture.size] == 7).all() and not flat[picture.size :].any()


def by_formula(flat, order, shape):
    """Element by element, where docs/formats/sigmastar.md#padded-buffers puts it."""
    _, h, w, c = shape
    block = 16 // flat.itemsize
    blocks = -(-c // block)
    found = np.empty(shape, flat.dtype)
    for i, y, x, k in np.ndindex(*shape):
        if order == "NHWC":
            place = ((i * h + y) * w + x) * blocks * block + k
        else:
            place = (((i * blocks + k // block) * h + y) * w + x) * block + k % block
        found[i, y, x, k] = flat[place]
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 2), st.integers(1, 4), st.integers(1, 4), st.integers(1, 40), st.sampled_from([np.uint8, np.int16])
)
def test_both_orders_unpad_by_the_formula(n, h, w, c, dtype):
    shape, itemsize = (n, h, w, c), np.dtype(dtype).itemsize
    for order in ("NHWC", "NHWX"):
        (size,) = padded_sizes(order, shape, itemsize)
        flat = np.random.default_rng(c).integers(0, 100, size).astype(dtype)
        np.testing.assert_array_equal(unpad(flat, order, shape), by_formula(flat, order, shape))


@given(st.lists(st.integers(1, 20), max_size=5), st.sampled_from([np.uint8, np.int16, np.int32]))
def test_unpad_is_the_inverse(shape, dtype):
    array = np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
    flat = pad_channels(array)
    assert padded_sizes("NHWC", shape, array.itemsize) == (flat.size,)
    np.testing.assert_array_equal(unpad(flat, "NHWC", shape), array)


def test_pictures():
    picture = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(1, 2, 3, 3)
    flat = pad_picture(picture)
    assert padded_sizes("RGB", picture.shape, 1) == (flat.size,) == (64,)
    np.testing.assert_array_equal(unpad(flat, "RGB", picture.shape), picture)
    pixels = np.zeros(64, np.uint8)
    pixels[:24] = np.pad(picture, [(0, 0)] * 3 + [(0, 1)]).reshape(-1)
    np.testing.assert_array_equal(unpad(pixels, "RGBA", picture.shape), picture)


def test_sizes():
    assert padded_sizes("NHWX", (1, 5, 6, 17), 2) == (736,)  # conv3 of the SDK's dump: 1472 bytes
    assert padded_sizes("NHWC", (2, 5), 2, constant=True) == (16, 32)  # a bias of 32 bytes
    assert padded_sizes("HNWX", (1, 5, 6, 17), 2) == () == padded_sizes("NHWX", (5, 17), 2)
    assert is_row_major("NHWX", (1, 5, 6, 8), 2) and not is_row_major("NHWX", (1, 5, 6, 9), 2)
    assert is_row_major("NHWX", (1, 1, 1, 24), 2) and is_row_major("RGB", (1, 5, 6, 3), 1)


SHAPES = {
    "conv1_filter": (10, 3, 3, 3),
    "block/dw_filter": (1, 3, 3, 10),
    "block/pw_filter": (10, 1, 1, 10),
    "conv3_filter": (17, 1, 1, 10),
    "conv2_filter": (7, 3, 3, 10),
    "fc_weight#28": (5, 1, 1, 24),
}
# Whose folders are beside the checkout only are skipped there.
TEXTS = [f"probes/{name}/parse_net.txt" for name in (
    "a_first b_k1 b_k3 c_dw c_dw_L5 e_add e_add_A16 f_cat g_pool h_fc i_sig j_mul l_prelu m_dil n_soft o_bn p_deconv "
    "p_up q_slice t_leaky t_mul t_sig t_soft2"
).split()]  # fmt: skip


def payloads(shared, name):
    dump = open_dump(shared / "sigmastar/dumps" / name / "sigma_outtensor_dump.bin")
    return {record.name: record.tensor.raw() for record in dump.records if record.constant}


def weights(shared, name, dtype, per_channel):
    """The float model's, in the steps of the level: one for the tensor at L1, one per output channel above."""
    shape = SHAPES[name]
    values = payloads(shared, "tiny_float_a_full")[name].reshape(shape)
    axes = ((0, 1, 2) if shape[0] == 1 else (1, 2, 3)) if per_channel else None
    steps = np.abs(values).max(axis=axes, keepdims=True) / np.iinfo(dtype).max
    return np.rint(values / steps).astype(dtype)


def padded(stored):
    return pad_depthwise(stored) if stored.shape[0] == 1 else pad_weights(stored)


@pytest.mark.parametrize(("plain", "per_channel"), [("tiny_all16_plain", False), ("tiny_fixed_d_plain", True)])
def test_weights_lie_as_in_the_sdks_padded_dump(shared, plain, per_channel):
    genuine = payloads(shared, plain)
    for name in SHAPES:
        stored = weights(shared, name, genuine[name].dtype, per_channel)
        np.testing.assert_array_equal(padded(stored), genuine[name], err_msg=name)


@pytest.mark.parametrize(
    ("stripped", "plain"), [("tiny_all16_elim", "tiny_all16_plain"), ("tiny_fixed_b_elim", "tiny_fixed_d_plain")]
)
def test_without_padding_the_sdk_dumps_the_first_values_of_the_same_buffers(shared, stripped, plain):
    whole = payloads(shared, plain)
    for name, values in payloads(shared, stripped).items():
        if name in SHAPES:
            np.testing.assert_array_equal(values, whole[name][: values.size], err_msg=name)
        elif name.endswith("_bias"):
            np.testing.assert_array_equal(pad_bias(values.reshape(2, -1)), whole[name], err_msg=name)
        else:
            assert pad_parameter(values).size == whole[name].size


@pytest.mark.parametrize("text", ["model/parse_net_tiny_fixed_L5.txt", *TEXTS])
def test_sizes_are_those_of_parse_net(shared, text):
    path = shared / f"sigmastar/{text}"
    sizes = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        found = re.search(r"\(const buffer: (\d+) +size: (\d+) .* name\((.*?)\) EvrId", line)
        if found and int(found[1]):
            sizes[found[3]] = int(found[2])
    tensors = parse_net.read(path).tensors
    assert sizes and sizes.keys() <= tensors.keys()
    for name, size in sizes.items():
        facts = tensors[name]
        values = np.zeros(facts.shape, facts.dtype)
        if facts.order == "KB":
            flat = pad_depthwise(values) if facts.shape[0] == 1 and facts.shape[1] > 1 else pad_weights(values)
        elif facts.dtype == np.int16 and len(facts.shape) == 2:
            flat = pad_bias(values)
        else:
            flat = pad_parameter(values)
        assert flat.nbytes == size, name


def test_every_weight_stands_where_the_blocks_put_it():
    """One by one: block of outputs, block of inputs, position, output, input."""
    shape = (19, 2, 3, 21)
    stored = np.arange(1, np.prod(shape) + 1, dtype=np.int16).reshape(shape)
    flat, at = pad_weights(stored), 0
    for o in range(0, 19, 8):
        for i in range(0, 21, 8):
            for y in range(2):
                for x in range(3):
                    tile = stored[o : o + 8, y, x, i : i + 8].reshape(-1)
                    size = -(-tile.size // 16) * 16
                    np.testing.assert_array_equal(flat[at : at + tile.size], tile)
                    assert not flat[at + tile.size : at + size].any()
                    at += size
    assert at == flat.size
    np.testing.assert_array_equal(pad_weights(stored[:, 0, 0]), pad_weights(stored[:, :1, :1]))


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
