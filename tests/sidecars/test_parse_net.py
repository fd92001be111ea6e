"""parse_net text: the SDK's own file, and lines as its description has them."""

import numpy as np
import pytest

from sgsdump.errors import ConfigError, FormatError
from sgsdump.sidecars.parse_net import read

QUANT = ("1.500000", "-0.500000", "0.007843", "64")


def line(name="x", shape="1   5   6   7", kind="UINT8", ddr="IPU_U8_NHWC", quant=QUANT, rank=None) -> str:
    high, low, scale, zero = quant
    rank = len(shape.split()) if rank is None else rank
    return (
        f"|   |   |--> Tensor[12] type(3):{kind} buffer: 12  (const buffer: 0      size: 1920 : buf: 0x58fa9580) "
        f"bVar: 32 shape(len:{rank}  {shape}    ) "
        f"Quant:{{Max: {high}, Min: {low}, Scaler: {scale}, zeroP: {zero}}} "
        f"ddr_type: {ddr} name({name}) EvrId(3) ExtFlag(16)\n"
    )


def written(tmp_path, text):
    path = tmp_path / "net.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def test_genuine_file(shared):
    net = read(shared / "sigmastar/model/parse_net_tiny_fixed_L5.txt")
    assert len(net.tensors) == 31 and not net.ambiguous
    pool = net.tensors["pool1"]
    assert (pool.shape, pool.dtype, pool.ddr_type, pool.order) == ((1, 5, 6, 10), np.uint8, "IPU_U8_NHWX", "NHWX")
    assert (pool.high, pool.low, pool.scale, pool.zero_point) == (5.265427, -4.990660, 0.040220, 124)
    per_channel = net.tensors["conv2_filter"]
    assert per_channel.shape == (7, 3, 3, 10) and per_channel.scale is None and per_channel.low is None
    assert net.tensors["fc_bias"].scale is None and net.tensors["fc_bias"].zero_point is None
    assert net.tensors["data"].order == "RGB" and net.tensors["ReshapeInputShapeTensor#1#31"].dtype == np.int32
    assert net.tensors["gap#/Mul0Output#35"].shape == (1, 1, 1, 24)


@pytest.mark.parametrize("name", ["cat two", "a(b) c", "x) EvrId(1", "1", "a/b:0", "ä\udcff", "name(y) ddr_type: RGB"])
def test_names_hold_anything(tmp_path, name):
    assert list(read(written(tmp_path, line(name))).tensors) == [name]


def test_the_rest_of_the_text_and_what_is_cut_off_is_skipped(tmp_path):
    text = "model version: 3.\n" + line("a") + "Tensor[0][0]: name->data, variable\n" + line("b") + line("c")[:150]
    assert list(read(written(tmp_path, text)).tensors) == ["a", "b"]
    assert list(read(written(tmp_path, text.replace("\n", "\r\n"))).tensors) == ["a", "b"]
    wrong_rank = line("d").replace("len:4", "len:3")
    assert list(read(written(tmp_path, line("a") + wrong_rank)).tensors) == ["a"]


def test_a_name_of_different_tensors_is_ambiguous(tmp_path):
    net = read(written(tmp_path, line("a") + line("a") + line("b") + line("b", shape="1 2")))
    assert list(net.tensors) == ["a"] and net.ambiguous == {"b"}


def test_none_is_one_line(tmp_path):
    for text in ("", "hello\n", "Tensor[0][0]: name->data, variable\n"):
        with pytest.raises(FormatError, match="parse_net") as caught:
            read(written(tmp_path, text))
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        read(tmp_path / "absent")
    with pytest.raises(ConfigError, match="binary"):
        read(written(tmp_path, "\0" + line()))


def test_hostile_lines_take_no_time(tmp_path):
    start = "Tensor[1] type(3):UINT8 "
    parts = ["shape(len:1 ", "shape(len:1 1) Quant:{Max: ", "name(" * 3, " ", "1" * 40]
    text = "".join(start + part * (60000 // len(part)) + "\n" for part in parts) + line("a", shape="9" * 5000)
    assert list(read(written(tmp_path, text)).tensors) == ["a"]


def test_a_rank_without_end_is_refused_at_once(tmp_path):
    """It took the square of its length."""
    line = "Tensor[1] type(7):INT16 shape(len:" + "9" * 60_000
    (tmp_path / "x.txt").write_text(f"{line}\n" * 30)
    with pytest.raises(FormatError, match="is not parse_net text"):
        read(tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *(("UINT8", "u1"), ("INT8", "i1"), ("UINT16", "u2"), ("INT16", "i2"), ("INT32", "i4"), ("INT64", "i8")),
        *(("FLOAT32", "f4"), ("BOOL", None)),
    ],
)
def test_words_for_types(stored, kind, dtype):
    tensor = read(stored(line(kind=kind))).tensors["x"]
    assert tensor.type_name == kind and tensor.dtype == (None if dtype is None else np.dtype(dtype))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("1.500000", 1.5), ("-0.500000", -0.5), ("12", 12.0), ("na", None), ("-7", -7.0), (" 3.000000 ", 3.0)),
        ("1.5000002.500000", None),  # per channel, nothing between them
        ("1.5", None),
        ("1" * 39, float("1" * 39)),
        ("1" * 40, None),
    ],
)
def test_numbers_have_six_decimals_or_none(stored, text, number):
    tensor = read(stored(line(quant=(text, text, text, "3")))).tensors["x"]
    assert (tensor.low, tensor.high, tensor.scale, tensor.zero_point) == (number, number, number, 3)


def test_each_number_in_its_place(stored):
    tensor = read(stored(line(quant=("4.000000", "-3.000000", "0.250000", "na")))).tensors["x"]
    assert (tensor.high, tensor.low, tensor.scale, tensor.zero_point) == (4.0, -3.0, 0.25, None)
    assert tensor.shape == (1, 5, 6, 7) and read(stored(line(shape=""))).tensors["x"].shape == ()


@pytest.mark.parametrize(
    ("ddr", "order"), [("IPU_S16_NHWX", "NHWX"), ("RGB", "RGB"), ("IPU_K_KB", "KB"), ("A_B_C", "C")]
)
def test_the_order_is_the_last_word(stored, ddr, order):
    tensor = read(stored(line(ddr=ddr))).tensors["x"]
    assert (tensor.ddr_type, tensor.order) == (ddr, order)


def test_the_longest_line_and_the_ranks(stored):
    one = line("a").rstrip()
    longest = "|" * (65536 - len(one)) + one
    lines = [longest, "|" + longest.replace("(a)", "(b)"), line("c", rank=3), line("d", rank=5), line("e")]
    assert list(read(stored("\n".join(lines))).tensors) == ["a", "e"]
