"""Padded buffers: sizes by the formula of docs/formats/sigmastar.md#padded-buffers, values in their places."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sgsdump.tensors.sdk_buffers import is_row_major, pad_channels, pad_picture, padded_sizes, unpad

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
