"""tensor_chn.txt and tensor_weight_calibration.txt: read as the SDK writes them, read back as we write them, refused in
one line when they are damaged."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgsdump.errors import ConfigError, FormatError, SgsdumpError
from sgsdump.sidecars import tensor_chn, tensor_weight
from sgsdump.sidecars.quant_param_entries import numbers_range
from sgsdump.sidecars.tensor_weight import ConvolutionWeights
from sgsdump.tensors.types import Range

CHN = "Name:conv1, 2\nmin_chn: -1.500000, 0.000000, max_chn: 2.000000, 0.250000;\n"
WEIGHT = (
    "Name:[data,conv1_filter],\n     Operator:CONV_2D,\n     shape:[2,1,1,1],\n     hasChanged:FALSE,\n"
    "     BitWidth:[UINT8,INT8],\n     min:[-0.500000, -0.250000],\n     max:[0.500000, 1.000000],\n"
    "     data:[0.500000, 1.000000, ];\n"
)
names = st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1)
values = st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=5).map(lambda n: np.array(n) / 1e6)


def same(a, b):
    return np.array_equal(a.min, b.min) and np.array_equal(a.max, b.max)


@pytest.mark.parametrize("level", ["tiny_L1", "tiny_L5", "tiny_all16"])
def test_the_sdks_channel_ranges_are_read_and_written_again(shared, tmp_path, level):
    """Its own file has a comma more before max_chn, and its values are six-decimal text."""
    path = shared / f"sigmastar/calibration/{level}/tensor_chn.txt"
    found = tensor_chn.read(path)
    assert found["conv1"].min.size == 10 and len(found) == 6
    assert all((each.min <= each.max).all() for each in found.values())
    tensor_chn.write(found, tmp_path / "again.txt")
    again = tensor_chn.read(tmp_path / "again.txt")
    assert list(again) == list(found) and all(same(again[name], found[name]) for name in found)


def test_the_sdks_weight_ranges_are_read(shared):
    found = tensor_weight.read(shared / "sigmastar/calibration/tiny_L5/tensor_weight_calibration.txt")
    assert [each.names for each in found][:2] == ["data,conv1_filter", "relu1,block/dw_filter"]
    first = found[0]
    assert first.types == ("UINT8", "INT8") and first.range.min.size == 10
    assert (first.range.min[0], first.range.max[0]) == (-0.701890, 0.811629)
    assert tensor_weight.read(shared / "sigmastar/calibration/tiny_L5/tensor_weight.txt") == []


@given(st.dictionaries(names, values, max_size=3))
def test_channel_ranges_come_back(tmp_path_factory, ends):
    path = tmp_path_factory.mktemp("chn") / "tensor_chn.txt"
    ranges = {name: Range(-np.abs(each), np.abs(each)) for name, each in ends.items()}
    tensor_chn.write(ranges, path)
    found = tensor_chn.read(path)
    assert found.keys() == ranges.keys() and all(same(found[name], ranges[name]) for name in ranges)


@given(st.lists(st.tuples(names, names, values), max_size=3), st.booleans())
def test_weight_ranges_come_back(tmp_path_factory, entries, with_data):
    path = tmp_path_factory.mktemp("weight") / "tensor_weight_calibration.txt"
    convolutions = [
        ConvolutionWeights(
            a, b, "CONV_2D", np.zeros((1, 2, 3, 4), np.float32), Range(-np.abs(v), np.abs(v)), ("INT16", "INT16"), (16,)
        )
        for a, b, v in entries
    ]
    tensor_weight.write(convolutions, path, with_ranges=True, with_data=with_data)
    found = tensor_weight.read(path)
    assert [(each.names, each.types) for each in found] == [(f"{a},{b}", ("INT16", "INT16")) for a, b, _ in entries]
    assert all(same(each.range, wanted.range) for each, wanted in zip(found, convolutions, strict=True))


def test_a_line_of_data_may_be_as_long_as_the_file(tmp_path):
    path = tmp_path / "w.txt"
    path.write_text(WEIGHT.replace("0.500000, 1.000000, ];", "0.250000, " * 400_000 + "];") + WEIGHT)
    assert [each.names for each in tensor_weight.read(path)] == ["data,conv1_filter"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHN.replace(", 2\n", ", 3\n"), r"chn.txt:2: .*do not give one valid range per channel"),
        (CHN.replace("-1.500000", "3.000000"), r"chn.txt:2: .*do not give one valid range"),
        (CHN.replace("-1.500000", "nan"), r"chn.txt:2: "),
        (CHN.replace("2.000000", "inf"), r"chn.txt:2: "),
        (CHN.replace("-1.500000", "minus one"), r"chn.txt:2: could not convert"),
        (
            CHN.splitlines()[0] + "\n",
            r"chn.txt:1: 'Name:conv1, 2' and the next line do not contain the ranges of a tensor",
        ),
        (CHN + "hello\nworld\n", r"chn.txt:3: 'hello'"),
        ("\n" + CHN, r"chn.txt:1: "),
        (CHN.replace(", 2\n", ", 99999999999999999999\n"), r"chn.txt:2: "),
        (CHN.replace(", 2\n", f", {'9' * 5000}\n"), r"chn.txt:1: "),
    ],
)
def test_damaged_channel_ranges_are_one_line(tmp_path, text, message):
    path = tmp_path / "chn.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as trouble:
        tensor_chn.read(path)
    assert "\n" not in str(trouble.value)


@pytest.mark.parametrize(
    "text",
    [
        WEIGHT.replace("min:[-0.500000, ", "min:["),
        WEIGHT.replace("-0.500000", "nan"),
        WEIGHT.replace("0.500000, 1.000000],", "-9, 1.000000],"),
        WEIGHT.replace("-0.250000", "one"),
    ],
)
def test_damaged_weight_ranges_are_one_line(tmp_path, text):
    path = tmp_path / "w.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"w.txt:8: ") as trouble:
        tensor_weight.read(path)
    assert "\n" not in str(trouble.value)


@given(st.binary(max_size=200), st.integers(0, 200), st.sampled_from([CHN, WEIGHT]))
def test_any_bytes_are_read_or_refused(tmp_path_factory, junk, at, text):
    path = tmp_path_factory.mktemp("any") / "x.txt"
    data = text.encode()
    path.write_bytes(data[:at] + junk + data[at:])
    for read in (tensor_chn.read, tensor_weight.read):
        with suppress(SgsdumpError):
            read(path)


@pytest.mark.parametrize("read", [tensor_chn.read, tensor_weight.read])
def test_a_file_that_is_not_there_or_a_folder_is_said(tmp_path, read):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(ConfigError, match="cannot read"):
            read(path)


def test_an_empty_file_holds_nothing(tmp_path):
    (tmp_path / "x.txt").touch()
    assert tensor_chn.read(tmp_path / "x.txt") == {} and tensor_weight.read(tmp_path / "x.txt") == []


def test_lists_of_numbers():
    assert same(numbers_range("1, -2,", " 3,4 ", "x"), Range(np.array([1.0, -2.0]), np.array([3.0, 4.0])))
    for low, high in (("", ""), ("1", ""), ("1,2", "3"), ("2", "1"), ("1_0", "x")):
        with pytest.raises(FormatError, match=r"^here: "):
            numbers_range(low, high, "here")


def test_two_lines_for_every_tensor(tmp_path):
    channels = {"conv1": Range(np.array([-2.9137561, 0.0]), np.array([2.5, 1 / 3])), "ü\udcff": Range.of(0, 1)}
    tensor_chn.write(channels, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == (
        b"Name:conv1, 2\nmin_chn: -2.913756, 0.000000, max_chn: 2.500000, 0.333333;\n"
        b"Name:\xc3\xbc\xff, 1\nmin_chn: 0.000000, max_chn: 1.000000;\n"
    )


def convolution(**changes):
    data = np.array([0.67621, -0.25], np.float32).reshape(2, 1, 1, 1)
    ends = Range(np.array([0.0, -0.25]), np.array([0.67621, 0.0]))
    facts = {"input": "data", "name": "conv1_filter", "operator": "CONV_2D", "data": data, "range": ends}
    return ConvolutionWeights(**{**facts, "types": ("UINT8", "INT8"), "allowed_bits": (8, 16), **changes})


def test_weights_as_the_sdk_lists_them(tmp_path):
    assert not convolution().changed
    tensor_weight.write([convolution(), convolution(changed=True)], tmp_path / "x", with_ranges=False)
    first = (
        "Name:[data,conv1_filter],\n     Operator:CONV_2D,\n     shape:[2,1,1,1],\n     hasChanged:FALSE,\n"
        "     BitWidth:[UINT8,INT8],\n     min:[],\n     max:[],\n     AllowedBitWidth:[8,16],\n"
        "     data:[0.676210, -0.250000, ];\n"
    )
    assert (tmp_path / "x").read_text() == first + first.replace("FALSE", "TRUE")
    tensor_weight.write([convolution()], tmp_path / "y", with_ranges=True, with_data=False)
    assert (tmp_path / "y").read_text() == (
        "Name:[data,conv1_filter],\n     Operator:CONV_2D,\n     shape:[2,1,1,1],\n     hasChanged:FALSE,\n"
        "     BitWidth:[UINT8,INT8],\n     min:[0.000000, -0.250000],\n     max:[0.676210, 0.000000],\n     data:[];\n"
    )


def test_every_weight_is_written_once_whatever_their_number(tmp_path):
    for count in (0, 1, tensor_weight.CHUNK, tensor_weight.CHUNK + 3):
        data = np.arange(count, dtype=np.float32)
        tensor_weight.write([convolution(data=data)], tmp_path / "x", with_ranges=False)
        printed = (tmp_path / "x").read_text().partition("data:[")[2].removesuffix("];\n")
        assert [float(word) for word in printed.split(", ") if word] == data.tolist()
