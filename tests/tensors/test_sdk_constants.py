"""Constants in the hardware's order, against the SDK's own dumps of padded buffers and its parse_net texts."""

import re

import numpy as np
import pytest

from sgsdump.dumps.io import open_dump
from sgsdump.sidecars import parse_net
from sgsdump.tensors.sdk_buffers import pad_bias, pad_depthwise, pad_parameter, pad_weights

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
