"""tensor_min_max: three forms in, two out, and nothing that a pickle says is ever run."""

import io
import json
import math
import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgsdump.errors import ConfigError, FormatError, OutputError, ValuesError
from sgsdump.sidecars.tensor_min_max import Range, read_ranges, write_ranges


def test_genuine_texts_come_back_byte_for_byte(shared, tmp_path):
    files = sorted((shared / "sigmastar/calibration").glob("*/tensor_min_max.txt"))
    files += sorted((shared / "sigmastar/calibration").glob("*/softmax_lut_range.txt"))
    assert len(files) >= 10
    for file in files:
        ranges = read_ranges(file)
        assert len(ranges) == file.read_bytes().count(b"\n")
        write_ranges(ranges, tmp_path / "again.txt")
        assert (tmp_path / "again.txt").read_bytes() == file.read_bytes()


def test_genuine_quant_params(shared):
    folder = shared / "sigmastar/quant_param"
    for file in sorted(folder.glob("*.pkl")):
        with open(file, "rb") as stream:
            entries = pickle.load(stream)  # the vendor's own file, as the vendor reads it
        ranges = read_ranges(file)
        assert list(ranges) == list(dict.fromkeys(entry["name"] for entry in entries))
        for entry in entries:
            found = ranges[entry["name"]]
            assert (found.min.tolist(), found.max.tolist(), found.bit) == (entry["min"], entry["max"], entry["bit"])
    assert read_ranges(folder / "handmade_newstyle_minmax.json")["conv1"].bit == 16
    assert read_ranges(folder / "api_get_chn.json")["conv1"].min.shape == (10,)
    assert read_ranges(folder / "api_get_minmax.json")["data"].high == 1.0
    with pytest.raises(FormatError, match=r"min of quant_param\[0\]: data must be a `list`"):
        read_ranges(folder / "api_tensor_details.json")


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1).map(
    lambda name: name + ", min: 1"
)
NUMBERS = st.floats(-1e6, 1e6).map(lambda value: round(value, 6))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(NUMBERS, NUMBERS).map(sorted), min_size=1), st.sampled_from(["text", "json"]))
def test_round_trip(tmp_path_factory, ranges, form):
    path = tmp_path_factory.mktemp("ranges") / "x"
    write_ranges({name: Range.of(*ends) for name, ends in ranges.items()}, path, form)
    again = read_ranges(path)
    assert list(again) == list(ranges)
    assert [[found.low, found.high] for found in again.values()] == list(ranges.values())


def test_json_keeps_channels_and_bits(tmp_path):
    ranges = {"a\nb": Range(np.array([-1.5, -2.0]), np.array([3.0, 0.1]), 16), "c": Range.of(0, 1)}
    write_ranges(ranges, tmp_path / "x.json", "json")
    assert json.loads((tmp_path / "x.json").read_text()) == [
        {"name": "a\nb", "min": [-1.5, -2.0], "max": [3.0, 0.1], "bit": 16},
        {"name": "c", "min": [0.0], "max": [1.0]},
    ]
    with pytest.raises(ValuesError, match="line break"):
        write_ranges(ranges, tmp_path / "x.txt")
    del ranges["a\nb"]
    write_ranges({"d": Range(np.array([-1.5, -2.0]), np.array([3.0, 0.1]))}, tmp_path / "x.txt")
    assert (tmp_path / "x.txt").read_bytes() == b"Name:d, min: -2.000000, max: 3.000000;\n"


def test_names_that_are_not_utf8_survive(stored, tmp_path):
    data = b"Name:\xc9t\xe9, min: 0.000000, max: 1.000000;\n"
    write_ranges(read_ranges(stored(data)), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == data


@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_is_written_of_nan_or_without_a_folder(tmp_path, form):
    with pytest.raises(ValuesError, match="'x' is nan"):
        write_ranges({"x": Range.of(float("nan"), 1)}, tmp_path / "x", form)
    with pytest.raises(OutputError):
        write_ranges({"x": Range.of(0, 1)}, tmp_path / "no" / "x", form)
    assert list(tmp_path.iterdir()) == []


LINE = "Name:a, min: 0.000000, max: 1.000000;\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not a tensor_min_max file"),
        ("hello", "is not a tensor_min_max file"),
        (b"PK\x03\x04\0\0", "binary file"),
        (LINE + "Name:b, min: nan, max: 1.000000;\n", ":2: the range of 'b' is NaN or infinite"),
        (LINE + "Name:b, min: 0.000000, max: inf;\n", ":2: the range of 'b' is NaN or infinite"),
        (LINE + "Name:b, min: -1e308, max: 1e308;\n", ":2: the range of 'b' is wider than float32 holds"),
        (LINE + "Name:b, min: 1e38, max: 1e39;\n", ":2: the range of 'b' is wider than float32 holds"),
        (LINE + "Name:b, min: -3e38, max: 3e38;\n", ":2: the range of 'b' is wider than float32 holds"),
        (LINE + "Name:b, min: 0.000000, max", ":2: 'Name:b, min: 0.000000, max' is not"),
        (LINE + "Name:a, min: 0.000000, max: 2.000000;\n", ":2: the tensor 'a' occurs twice"),
        ("Name:a, min: 2.000000, max: 1.000000;\n", "min above its max"),
        ("[", "not valid JSON"),
        ("[" * 100000, "not valid JSON"),
        ("{}", "quant_param must be a `list`"),
        ("[1]", r"quant_param\[0\] must be a `dict`"),
        ('[{"name": 1}]', r"name of each quant_param\[0\] must be `str`"),
        ('[{"name": "a", "min": "0", "max": [1]}]', r"min of quant_param\[0\]: a must be a `list`"),
        ('[{"name": "a", "min": [0], "max": [true]}]', r"max of quant_param\[0\]: a must be a `list`"),
        ('[{"name": "a", "min": [0], "max": [1, 2]}]', "min of .* has 1 values, but max has 2"),
        ('[{"name": "a", "min": [NaN], "max": [1]}]', "NaN or infinite"),
        ('[{"name": "a", "min": [-1e39], "max": [1]}]', "wider than float32 holds"),
        ('[{"name": "a", "min": [0], "max": [1], "bit": "8"}]', r"bit of quant_param\[0\]: a must be `int`"),
        ('[{"name": "a", "min": [0], "max": [1], "data": [1]}]', r"data of .* must be `numpy.ndarray`"),
        ('[{"name": "a", "min": [0], "max": [1' + "0" * 400 + "]}]", "out of range"),
    ],
)
def test_one_line_for_every_mistake(stored, content, message):
    with pytest.raises(FormatError, match=message) as caught:
        read_ranges(stored(content))
    assert "\n" not in str(caught.value)


def test_entries_without_a_range_are_left_out(stored):
    assert list(
        read_ranges(stored('[{"name": "a", "min": [], "max": []}, {"name": "b", "min": [0], "max": [1]}]'))
    ) == ["b"]


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_ranges(tmp_path / "no.txt")
    with pytest.raises(ConfigError, match="is a folder"):
        read_ranges(tmp_path)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("weights", [np.arange(6, dtype=">i2").reshape(2, 3), np.asfortranarray(np.ones((3, 2), "f4"))])
def test_pickles_of_every_protocol(stored, protocol, weights):
    entry = OrderedDict(name="a", min=[np.float32(-1.5)], max=np.array([2.0]), bit=8, data=weights)
    found = read_ranges(stored(pickle.dumps([entry, {"name": "b", "min": 0, "max": 1.0}], protocol)))
    assert (found["a"].low, found["a"].high, found["a"].bit, found["b"].high) == (-1.5, 2.0, 8, 1.0)


class Runs:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "function",
    [(os.system, "true"), (eval, "1"), (getattr, "", "join"), (np.zeros, 10**12), (np.load, "x"), (bytearray, 10**12)],
)
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_pickles_that_name_anything_else_are_refused(stored, function, protocol):
    with pytest.raises(FormatError, match=r"refused: the pickle refers to [\w.]+, which is not plain data"):
        read_ranges(stored(pickle.dumps([Runs(*function)], protocol)))


def test_nothing_is_run(stored, tmp_path):
    with pytest.raises(FormatError):
        read_ranges(stored(pickle.dumps(Runs(os.mkdir, str(tmp_path / "made")), 3)))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",  # a bytearray of 1 TiB
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\x00\x00\x00.",  # bytes of 1 TiB
        b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x8a\x06\x00\x00\x00\x00\x00\x10\x85C\x01b\x87R.",
        b"\x80\x03ccollections\nOrderedDict\n)\x81}b.",
        b"\x80\x03cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R.",
        b"\x80\x03K\x01Q.",
        b"\x80\x03.",
        b"\x80",
        b"\x80\x03" + b"(" * 1000 + b".",
    ],
)
def test_damaged_and_hostile_pickles(stored, data):
    with pytest.raises(FormatError) as caught:
        read_ranges(stored(data))
    assert "\n" not in str(caught.value)


def test_an_array_whose_bytes_do_not_fill_its_shape(stored):
    data = pickle.dumps([{"name": "a", "min": np.zeros(5), "max": np.zeros(5)}], 3)
    assert b"K\x05\x85" in data
    with pytest.raises(FormatError, match=r"shape \[200\], but its data of 40 bytes do not match"):
        read_ranges(stored(data.replace(b"K\x05\x85", b"K\xc8\x85")))


def test_every_truncation_of_a_pickle(stored):
    data = io.BytesIO()
    pickle.dump([{"name": "a", "min": [0.0], "max": np.ones(1)}], data, 3)
    for length in range(len(data.getvalue())):
        with pytest.raises(FormatError):
            read_ranges(stored(data.getvalue()[:length]))


def test_a_number_without_end_is_refused_at_once(tmp_path):
    """It took the square of its length, hours for this one."""
    (tmp_path / "x.txt").write_text(f"Name:a, min: {'1' * 1_000_000}, max")
    with pytest.raises(FormatError, match="is not 'Name:x"):
        read_ranges(tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("numbers", "ends"),
    [
        ("min: -4.527316, max: 4.386048;", (-4.527316, 4.386048)),
        ("min: 0, max: 1;", (0, 1)),
        ("min: +1., max: 1e3;", (1, 1000)),
        ("min: -1E-3, max: 2.5e+2;", (-0.001, 250)),
        ("min: 1.0, max: 1.0;", (1, 1)),
        ("min: 0.0, max: 1.0;\r", (0, 1)),
        ("min: 0.0, max: 1.0;  ", (0, 1)),
    ],
)
def test_lines_of_ranges(stored, numbers, ends):
    found = read_ranges(stored(f"Name:a b, min: 3, {numbers}\n\n  \n"))
    assert [(name, one.low, one.high, one.bit) for name, one in found.items()] == [("a b, min: 3", *ends, None)]


@pytest.mark.parametrize(
    "line",
    [
        "Name:a, min: .5, max: 1;",
        "Name:a, min: 0, max: 1",
        "Name:a, min: 0x1, max: 1;",
        "Name:a, min: 0 max: 1;",
        "Nam:a",
    ],
)
def test_lines_of_another_form(stored, line):
    with pytest.raises(FormatError, match=r":2: .* is not 'Name:x, min: a, max: b;'"):
        read_ranges(stored("Name:x, min: 0, max: 1;\n" + line))


def test_the_same_range_may_stand_twice_but_not_another(stored):
    one, other = ({"name": "a", "min": [0], "max": [top], "bit": 8} for top in (1, 2))
    assert list(read_ranges(stored(json.dumps([one, one])))) == ["a"]
    with pytest.raises(FormatError, match=r"quant_param\[1\]: a: the tensor 'a' occurs twice, with different"):
        read_ranges(stored(json.dumps([one, other])))
    with pytest.raises(FormatError, match="with different ranges"):
        read_ranges(stored(json.dumps([one, {**one, "bit": 16}])))


@pytest.mark.parametrize("place", [0, 4095])
def test_a_zero_byte_at_the_beginning_makes_a_binary_file(stored, place):
    text = bytearray(b"Name:" + b"n" * 6000 + b", min: 0, max: 1;\n")
    text[5 + place - 5 * (place > 0)] = 0
    with pytest.raises(FormatError, match="is a binary file"):
        read_ranges(stored(bytes(text)))


def test_json_ends_in_a_newline_with_an_indent_of_four(tmp_path):
    write_ranges({"a": Range.of(0, 1, 8)}, tmp_path / "x", "json")
    text = (tmp_path / "x").read_text()
    assert text == json.dumps([{"name": "a", "min": [0.0], "max": [1.0], "bit": 8}], indent=4) + "\n"


def test_what_text_and_json_cannot_hold(tmp_path):
    for name in ("a\nb", "a\rb"):
        with pytest.raises(ValuesError, match="line break"):
            write_ranges({name: Range.of(0, 1)}, tmp_path / "x")
    for ends in ((0, math.inf), (-math.inf, 0), (0, math.nan)):
        with pytest.raises(ValuesError, match="the model computes NaN or Inf"):
            write_ranges({"x": Range.of(*ends)}, tmp_path / "x", "json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("spaces", [0, 1, 4090, 4095])
def test_space_before_the_json_is_passed_over(tmp_path, spaces):
    (tmp_path / "ranges").write_text(" " * spaces + '[{"name": "a", "min": [0], "max": [1]}]')
    assert [(name, each.low, each.high) for name, each in read_ranges(tmp_path / "ranges").items()] == [("a", 0, 1)]


def test_a_file_that_begins_with_nothing_but_space_is_none(tmp_path):
    (tmp_path / "ranges").write_text(" " * 4096 + "[]")
    with pytest.raises(FormatError, match="is not a tensor_min_max file"):
        read_ranges(tmp_path / "ranges")
