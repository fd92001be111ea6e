"""A board's raw output buffers: identical, or the planted cause is named."""

import dataclasses

import numpy as np
import pytest

from sgsdump.cli import main
from sgsdump.comparison.board import Output, aligned, judged

RNG = np.random.default_rng(7)
STORED = RNG.integers(-30000, 30000, (1, 5, 6, 10)).astype(np.int16)
OUTPUT = Output("boxes", STORED, 0.0123, 0)
OTHER = Output("scores", RNG.integers(-30000, 30000, (1, 5, 6, 10)).astype(np.int16), 0.5)
BYTES = Output("map", RNG.integers(0, 255, (1, 4, 4, 255)).astype(np.uint8), 0.1, 3)


def judge(data, output=OUTPUT):
    return judged(data, output, {OUTPUT.name: OUTPUT, OTHER.name: OTHER})


@pytest.mark.parametrize("output", [OUTPUT, BYTES], ids=["int16", "255 channels as 256"])
@pytest.mark.parametrize("is_aligned", [True, False])
def test_the_simulators_own_integers_are_identical(output, is_aligned):
    data = aligned(output.stored).tobytes() if is_aligned else output.stored.tobytes()
    assert judge(data, output).identical


def test_dequantised_floats_are_identical():
    assert judge((STORED * np.float32(0.0123)).astype("<f4").tobytes()).identical


def swapped():
    values = STORED.copy()
    values[..., [0, 2]] = STORED[..., [2, 0]]
    return values


def half_written():
    values = STORED.reshape(-1).copy()
    values[123:] = 0
    return values


PLANTED = {
    "the padding is not removed": aligned(STORED).tobytes()[: STORED.nbytes],
    "the scale is not applied": STORED.astype("<f4").tobytes(),
    "channels swapped: channel 0 holds 2, 2 holds 0": aligned(swapped()).tobytes(),
    "NCHW instead of the simulator's NHWC": STORED.transpose(0, 3, 1, 2).tobytes(),
    "another image": RNG.integers(-30000, 30000, STORED.shape).astype(np.int16).tobytes(),
    "the buffer is stale: every value is 0": bytes(aligned(STORED).nbytes),
    "the buffer is stale: no output was written after the first 123 values": half_written().tobytes(),
    "the outputs are in the wrong order": aligned(OTHER.stored).tobytes(),
    "big endian": STORED.byteswap().tobytes(),
}


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_named(cause):
    result = judge(PLANTED[cause])
    assert not result.identical
    assert cause in result.cause


def test_a_zero_point_left_in_is_named():
    real = (BYTES.stored * np.float32(0.1)).astype("<f4")
    assert "zero point" in judge(real.tobytes(), BYTES).cause


def test_one_wrong_integer_is_placed():
    values = STORED.copy()
    values[0, 2, 3, 4] += 1
    result = judge(aligned(values).tobytes())
    assert result.first == ((0, 2, 3, 4), float(values[0, 2, 3, 4]), float(STORED[0, 2, 3, 4]))
    assert (result.differing, result.cause) == (1, "no known cause explains all differences")


def test_a_file_of_another_size_says_both():
    assert "the file has 7 bytes" in judge(bytes(7)).cause


@pytest.fixture
def fixed(tmp_path, monkeypatch):
    """An integer dump of a simulated network, and its output."""
    from sgsdump.dumps.dump import Record
    from sgsdump.dumps.formats.sigmastar import binary
    from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo

    monkeypatch.chdir(tmp_path)
    info = TensorInfo("boxes", STORED.shape, STORED.dtype, "NHWC", Quant(STORED.dtype, 0.0123, 0), "CONV_2D")
    data = dataclasses.replace(info, name="data")
    records = [Record("in", 0, 0, "CONV_2D", Tensor(data, lambda: STORED)),
               Record("out", 0, 0, "CONV_2D", Tensor(info, lambda: STORED))]  # fmt: skip
    binary.write(iter(records), tmp_path / "fixed.bin", dataclasses.replace(binary.SIM_SHAPED, is_float=False))
    return tmp_path


def test_compare_takes_a_boards_file(fixed, capsys):
    (fixed / "board.raw").write_bytes(aligned(STORED).tobytes())
    assert main(["compare", "board.raw", "fixed.bin"]) == 0
    assert "board.raw: boxes: identical, 300 integers (aligned, 10 channels as 16)" in capsys.readouterr().out
    (fixed / "board.raw").write_bytes(STORED.transpose(0, 3, 1, 2).tobytes())
    assert main(["compare", "board.raw", "fixed.bin"]) == 1
    assert "NCHW instead of the simulator's NHWC" in capsys.readouterr().out


def test_options_of_dumps_are_refused(fixed, capsys):
    (fixed / "board.raw").write_bytes(aligned(STORED).tobytes())
    assert main(["compare", "board.raw", "fixed.bin", "--csv", "x.csv"]) == 2
    assert "--csv is for dumps" in capsys.readouterr().err


def test_the_page_names_every_cause_and_its_commands_exist():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "board_against_pc.md").read_text()
    for words in (
        "padding is not removed",
        "scale is not applied",
        "channels swapped",
        "NCHW",
        "stale",
        "another image",
    ):
        assert words in page
