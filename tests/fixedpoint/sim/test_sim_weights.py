"""The order of weights and biases in fixed.sim."""

import lzma
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.errors import FormatError
from sgsdump.files.flatbuffer import root
from sgsdump.fixedpoint.sim.weights import Blocks, stored_bias, stored_weights, weight_buffer

CONV_2D, DEPTHWISE_CONV_2D = 3, 4
INT16 = 7


def convolutions(model):
    """The convolutions of a model whose weights are numbered: name, whether depthwise, options, weights, bias."""
    data = lzma.decompress(model.read_bytes())
    tables = root(data)
    codes = [code.number(0, "b") for code in tables.tables(1)]
    buffers = [data[start : start + size] for start, size in (table.extent(0, 1) for table in tables.tables(4))]
    (graph,) = tables.tables(2)
    tensors = list(graph.tables(0))
    for operator in graph.tables(3):
        kind = codes[operator.number(0, "I")]
        if kind in (CONV_2D, DEPTHWISE_CONV_2D):
            _, weights, bias = (tensors[number] for number in operator.numbers(1, "i4"))
            if re.match(r"[cd]\d+x", weights.text(3)):
                stored = buffers[weights.number(2, "I")]
                yield weights, kind == DEPTHWISE_CONV_2D, operator.table(4), stored, buffers[bias.number(2, "I")]


def numbered(name, int16):
    """The integers that a network's float weights mean: by output, height, width and input 1, 2, ..., -1, -2, ..."""
    kind, outputs, inputs, height, width = re.match(r"([cd])(\d+)x(\d+)x(\d+)x(\d+)", name).groups()
    shape = tuple(map(int, (outputs, height, width, inputs)))
    half = (65534 if int16 and inputs != "3" else 254) // 2
    place = np.arange(np.prod(shape)) % (2 * half)
    numbers = np.where(place < half, place + 1, half - 1 - place).reshape(shape)
    scaled = numbers * ((32767 if int16 else 127) / abs(numbers).max())
    return np.copysign(np.floor(abs(scaled) + 0.5), scaled), kind == "d"


@pytest.mark.parametrize("name", ["tiles_8", "tiles_16", "blocks_8"])
def test_weights_stand_where_the_network_has_them(shared, name):
    tiles = set()
    for tensor, depthwise, options, stored, _ in convolutions(shared / f"sigmastar/sim/{name}.fixed.sim.xz"):
        shape, int16 = tensor.numbers(0, "i4").tolist(), tensor.number(1, "b") == INT16
        blocks = None if depthwise else Blocks.of_options(options)
        weights = stored_weights(stored, shape, np.int16 if int16 else np.int8, depthwise, blocks)
        expected, by_channel = numbered(tensor.text(3), int16)
        if depthwise:
            expected = expected.transpose(3, 1, 2, 0)
        elif by_channel:
            expected = np.where(np.eye(shape[0], dtype=bool)[:, None, None], expected, 0)
        # A range file has six decimals.
        assert abs(weights - expected).max() <= (1 if int16 else 0)
        assert weight_buffer(weights, depthwise, blocks) == stored
        tiles.add((depthwise, blocks))
    assert len(tiles) > 1


def test_a_bias_has_a_row_of_multipliers(shared):
    for tensor, depthwise, _, _, bias in convolutions(shared / "sigmastar/sim/tiles_8.fixed.sim.xz"):
        channels = tensor.numbers(0, "i4")[3 if depthwise else 0]
        biases, multipliers = stored_bias(bias, channels)
        assert len(set(biases.tolist())) > 1
        # One scale for all weights, so one multiplier, of 15 bits.
        assert set(multipliers.tolist()) == {multipliers[0]}
        assert 16384 <= multipliers[0] <= 32767


@st.composite
def weights_and_blocks(draw):
    channels, kernel = st.integers(1, 40), st.integers(1, 3)
    shape = tuple(draw(part) for part in (channels, kernel, kernel, channels))
    block = st.sampled_from([16, 24, 32, 48])
    blocks = Blocks(draw(block), draw(block), draw(block), draw(block), draw(st.sampled_from([0, 1, 3, 4])))
    dtype = draw(st.sampled_from([np.int8, np.int16]))
    return np.random.default_rng(draw(st.integers(0, 99))).integers(-127, 128, shape, dtype), blocks


@given(weights_and_blocks())
def test_a_buffer_gives_its_weights_back(drawn):
    weights, blocks = drawn
    data = weight_buffer(weights, blocks=blocks)
    assert len(data) % 32 == 0
    assert (stored_weights(data, weights.shape, weights.dtype, blocks=blocks) == weights).all()
    one_row = weights[:1]
    depthwise = weight_buffer(one_row, depthwise=True)
    assert (stored_weights(depthwise, one_row.shape, one_row.dtype, depthwise=True) == one_row).all()
    for damaged in (data[:-1], data[:-32], data + bytes(32)):
        with pytest.raises(FormatError, match="bytes of weights"):
            stored_weights(damaged, weights.shape, weights.dtype, blocks=blocks)


@given(weights_and_blocks())
def test_a_depthwise_convolution_stored_whole_keeps_its_diagonal(drawn):
    weights, blocks = drawn
    channels = min(weights.shape[0], weights.shape[3])
    diagonal = np.where(np.eye(channels, dtype=bool)[:, None, None], weights[:channels, :, :, :channels], 0)
    blocks = Blocks(blocks.inputs, blocks.outer_inputs, blocks.outputs, blocks.outer_outputs, diagonal=True)
    data = weight_buffer(diagonal, blocks=blocks)
    assert (stored_weights(data, diagonal.shape, diagonal.dtype, blocks=blocks) == diagonal).all()


@pytest.mark.parametrize(
    ("shape", "blocks", "reason"),
    [
        ((4, 1, 1), Blocks(), "four axes"),
        ((4, 0, 1, 4), Blocks(), "four axes"),
        ((4, 1, 1, 4), Blocks(tile=2), "unknown kind"),
        ((32, 1, 1, 32), Blocks(outputs=1), "blocks of 1 channels"),
        ((32, 1, 1, 32), Blocks(outer_inputs=0), "blocks of 0 channels"),
        ((1 << 30, 1, 1, 1 << 30), Blocks(), "fewer than their shape"),
        ((1 << 14, 1, 1, 1 << 14), Blocks(diagonal=True), "fewer than their shape"),
    ],
)
def test_what_the_layout_does_not_know_is_refused(shape, blocks, reason):
    with pytest.raises(FormatError, match=reason):
        stored_weights(bytes(256), shape, np.int8, blocks=blocks)


@pytest.mark.parametrize("size", [0, 31, 48, 64])
def test_a_bias_of_another_size_is_refused(size):
    with pytest.raises(FormatError, match="10 channels need 64" if size != 64 else "20 channels need 96"):
        stored_bias(bytes(size), 20 if size == 64 else 10)
