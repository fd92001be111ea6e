"""Padded buffers: sizes by the formula of the formats reference, values in their places."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.padding import pad_channels, pad_picture

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
