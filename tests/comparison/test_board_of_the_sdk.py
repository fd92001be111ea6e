"""Boards played by the SDK's own fixed dumps: the outputs, cut out as the hardware lays them into memory."""

import lzma
from pathlib import Path

import numpy as np
import onnx
import pytest

from sgsdump.cli import main
from sgsdump.comparison.board import aligned
from sgsdump.dumps.io import open_dump

TYPES = Path(__file__).parents[1] / "golden" / "sigmastar" / "types"
# Outputs of one, two and four dimensions, with and without channels to align, one and several a network.
NETWORKS = ["w_yolo", "w_ssd", "w_mbv2", "w_unet", "w_pose", "sig_u8", "smx_both", "fpn", "w_seg", "td3_L2", "land"]


def outputs(network):
    """{name: stored integers, channels last} of the dump fixed.bin, which lies in the current folder after it."""
    Path("fixed.bin").write_bytes(lzma.decompress((TYPES / network / "fixed.bin.xz").read_bytes()))
    proto = onnx.load_from_string(lzma.decompress((TYPES / network / "net.onnx.xz").read_bytes()))
    flat = {record.name: record.tensor.stored() for record in open_dump("fixed.bin").records if record.io == "out"}
    found = {}
    for output in onnx.shape_inference.infer_shapes(proto).graph.output:
        shape = [size.dim_value for size in output.type.tensor_type.shape.dim]
        shape = [shape[axis] for axis in (0, 2, 3, 1)] if len(shape) == 4 else shape
        found[output.name] = np.asarray(flat[output.name]).reshape(shape)
    return found


def board(name, data, capsys):
    """Exit status, and what compare says of a board's file."""
    Path(f"{name}.raw").write_bytes(data)
    status = main(["compare", f"{name}.raw", "fixed.bin"])
    return status, capsys.readouterr().out


def swapped(values):
    order = np.arange(values.shape[-1])
    order[[0, -1]] = order[[-1, 0]]
    return np.ascontiguousarray(values[..., order])


def half(values):
    written = values.reshape(-1).copy()
    written[written.size // 2 :] = 0
    return written.reshape(values.shape)


def channels_first(values):
    return np.ascontiguousarray(np.moveaxis(values, -1, 1))


# The words that name what is planted: the board's bytes of an output's integers.
PLANTED = {
    "the padding is not removed": lambda v: aligned(v).tobytes()[: v.nbytes],
    "the scale is not applied": lambda v: v.astype("<f4").tobytes(),
    "channels swapped": lambda v: aligned(swapped(v)).tobytes(),
    "NCHW": lambda v: channels_first(v).tobytes(),
    "another image": lambda v: aligned(np.roll(v.reshape(-1), v.size // 3).reshape(v.shape)[..., ::-1] ^ 1).tobytes(),
    "the buffer is stale: no output was written": lambda v: aligned(half(v)).tobytes(),
    "the buffer is stale: every value": lambda v: bytes(aligned(v).nbytes),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_sdks_own_integers_are_identical(network, capsys):
    for name, stored in outputs(network).items():
        for data in (aligned(stored).tobytes(), stored.tobytes()):
            status, said = board(name, data, capsys)
            assert f"{name}: identical, {stored.size} integers" in said
            assert not status


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("cause", PLANTED)
def test_each_cause_is_named(network, cause, capsys):
    for name, stored in outputs(network).items():
        data = PLANTED[cause](stored)
        if data in (aligned(stored).tobytes(), stored.tobytes()):
            continue
        status, said = board(name, data, capsys)
        assert cause in said, said
        assert status == 1
