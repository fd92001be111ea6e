"""Printed values read by whole arrays are Python's own ``float`` and ``int`` of each; what is printed otherwise is not
read this way, and pieces of text of any length give the same values and the same errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump import Record, Tensor, open_dump
from sgsdump.dumps.formats.sigmastar import text_dump, text_values
from sgsdump.dumps.formats.sigmastar.text_dump import FRAMEWORK, SIM, TFLITE, TextVariant
from sgsdump.errors import FormatError

# Every length of the number before the point, halves and ties of float32 among them.
VALUES = st.one_of(
    st.integers(-(10**15) + 1, 10**15 - 1).map(lambda n: n / 10**6),
    st.floats(-(2.0**29), 2.0**29, width=32),
    st.integers(-(10**7), 10**7).map(lambda n: n / 10**6),
    st.sampled_from([0.0, -0.0, 1e-6, -1e-6, 9.999999, 10.0, 99_999_999.999999, 16777217.0, 0.1]),
)


def printed(values: list[float]) -> bytes:
    rows = (values[at : at + 16] for at in range(0, len(values), 16))
    return (" " + "\n".join("".join(f"{value:.6f}, " for value in row) for row in rows)).encode().rstrip(b", \n")


@given(st.lists(VALUES, min_size=1, max_size=50))
def test_decimals_are_what_float_makes_of_them(values):
    piece = printed(values)
    read = text_values.fixed_floats(piece)
    assert read is not None
    expected = np.array([float(each) for each in piece.split(b",")], np.float64).astype(np.float32)
    assert read.dtype == np.float32 and read.tobytes() == expected.tobytes()  # bytes: -0.0 too


@given(st.lists(VALUES, min_size=1, max_size=4), st.data())
def test_one_byte_changed_is_refused_or_read_as_float_reads_it(values, data):
    piece = bytearray(printed(values))
    piece[data.draw(st.integers(0, len(piece) - 1))] = data.draw(st.sampled_from(b"0159.,-+ \ne:/\x80\xff_n"))
    read = text_values.fixed_floats(bytes(piece))
    if read is not None:
        expected = np.array([float(each) for each in bytes(piece).split(b",")], np.float64).astype(np.float32)
        assert read.tobytes() == expected.tobytes()


@given(st.lists(st.integers(0, 255), min_size=1, max_size=50), st.data())
def test_bytes_are_what_int_makes_of_them(values, data):
    piece = (" " + "".join(f"{value:6d}, " + "\n" * (at % 16 == 15) for at, value in enumerate(values))).encode()
    piece = piece.rstrip(b", \n")
    read = text_values.fixed_bytes(piece)
    assert read is not None and read.dtype == np.uint8 and read.tolist() == values
    changed = bytearray(piece)
    changed[data.draw(st.integers(0, len(piece) - 1))] = data.draw(st.sampled_from(b"0129, -\n:/\x80a"))
    read = text_values.fixed_bytes(bytes(changed))
    if read is not None:
        assert read.tolist() == [int(each) for each in bytes(changed).split(b",")]


OTHERWISE = b"| |1.5| 1.50000| 1.5000000| nan| inf| 1234567890.000000| .500000|1.000000| --.000000| 1,000000"
BETWEEN = b" 1.000000,2.000000| 1.000000,  2.000000| 1.000000, \n\n2.000000| 1.000000, , 1.000000"


@pytest.mark.parametrize("piece", [*OTHERWISE.split(b"|"), *BETWEEN.split(b"|")])
def test_what_is_printed_otherwise_is_left_to_others(piece):
    assert text_values.fixed_floats(piece) is None
    assert text_values.fixed_bytes(piece) is None


@pytest.mark.parametrize(
    "piece", [b"    256", b"  1    ", b"    1 2", b"   -001", b"   1000", b"      1,      2", b"    0x1"]
)
def test_no_bytes_as_the_sdk_prints_them(piece):
    assert text_values.fixed_bytes(b" " + piece) is None


@pytest.mark.parametrize("variant", [SIM, FRAMEWORK, TFLITE, TextVariant(is_float=False), TextVariant(blank=False)])
@pytest.mark.parametrize("length", [40, 41, 64, 97, 1000])
def test_a_file_read_in_pieces_of_any_length(tmp_path, monkeypatch, variant, length):
    drawn = np.random.default_rng(length)
    array = np.round(drawn.standard_normal(137) * 100, 6).astype(np.float32)
    array[[3, 50, 51, 136]] = np.nan, 3e12, -np.nan, -np.inf
    if not variant.is_float:
        array = drawn.integers(-128, 128, 137).astype(np.int8)
    tensor = Tensor.of("x", array.reshape(1, 1, 1, -1), layout="NHWC")
    text_dump.write([Record("out", 0, 0, "Conv", tensor)], tmp_path / "x.txt", variant)
    whole = open_dump(tmp_path / "x.txt")["x"].raw()
    monkeypatch.setattr(text_values, "PIECE", length)
    pieces = open_dump(tmp_path / "x.txt")["x"].raw()
    assert pieces.tobytes() == whole.tobytes()
    np.testing.assert_allclose(whole.astype(float), array.astype(float), rtol=1e-6, atol=1e-6)


ONE = b"1.000000, "
DAMAGED = [
    9 * ONE + b"x, " + 9 * ONE,
    20 * ONE + b", " + ONE,
    30 * ONE + b"1.0 00000, " + 30 * ONE,
    4 * (ONE + b",") + ONE,
]


@pytest.mark.parametrize("body", [*DAMAGED, ONE + b"0" * 300 + b", " + ONE, ONE + b"0" * 300])
def test_damage_is_told_in_pieces_too(tmp_path, monkeypatch, body):
    header = b"isFloat: 1\n//out 0 s: 0.000000 z: 0 type: float name: x bConstant:0\nop_out[0] Conv = {\n"
    (tmp_path / "x.bin").write_bytes(header + b"\n" + body + b"\n\n};\n")
    monkeypatch.setattr(text_values, "PIECE", 100)
    with pytest.raises(FormatError, match="not all numbers"):
        open_dump(tmp_path / "x.bin")["x"].raw()
