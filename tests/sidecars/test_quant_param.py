"""quant_param files: the genuine ones load; ours have the genuine ones' form; what is wrong is one line."""

import json
import math
import os
import pickle
import pickletools
from collections import OrderedDict

import numpy as np
import pytest

from sgsdump.errors import ConfigError, FormatError, OutputError, SgsdumpError
from sgsdump.sidecars import quant_param
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.sidecars.tensor_min_max import read_ranges
from sgsdump.tensors.types import Range


def param(name="a", low=(-1.0,), high=(2.0,), bit=8):
    return QuantParam(name, Range(np.array(low), np.array(high), bit), bit)


def test_the_genuine_files_load(shared):
    folder = shared / "sigmastar/quant_param"
    for file in ("optimized_quant_info_0_0.65.pkl", "optimized_quant_info_3_0.8.pkl"):
        found = quant_param.read(folder / file)
        assert [p.name for p in found][:2] == ["relu1", "block/dw_filter"]
        assert found[0].range.max[0] == 4.350386619567871 and found[1].range.min.size == 10
        assert {p.bit for p in found} == {8} and all(p.data is None for p in found)
    assert [p.bit for p in quant_param.read(folder / "handmade_newstyle_minmax.json")] == [16, 16]
    assert [p.bit for p in quant_param.read(folder / "api_get_minmax.json")][:2] == [None, None]


def test_a_genuine_pickle_is_written_again_with_the_same_operations(shared, tmp_path):
    genuine = shared / "sigmastar/quant_param/optimized_quant_info_0_0.65.pkl"
    quant_param.write(quant_param.read(genuine), tmp_path / "ours.pkl", "pickle")
    ours, theirs = (
        [(op.name, arg) for op, arg, _ in pickletools.genops(path.read_bytes())]
        for path in (tmp_path / "ours.pkl", genuine)
    )
    assert ours[0] == theirs[0] == ("PROTO", 3)
    assert {name for name, _ in ours} == {name for name, _ in theirs}
    # the first entry and the second; a list that stands in the genuine file twice is fetched again there
    assert ours[:80] == theirs[:80]
    assert pickle.loads(genuine.read_bytes()) == pickle.loads((tmp_path / "ours.pkl").read_bytes())


def test_types_and_key_order_are_the_genuine_ones(shared, tmp_path):
    quant_param.write([param(), param("b", (0.0, 0.5), (1.0, 2.0), 16)], tmp_path / "x.pkl", "pickle")
    loaded = pickle.loads((tmp_path / "x.pkl").read_bytes())
    genuine = pickle.loads((shared / "sigmastar/quant_param/optimized_quant_info_0_0.65.pkl").read_bytes())
    for mine, theirs in zip(loaded, genuine[:2], strict=True):
        assert type(mine) is type(theirs) is OrderedDict
        assert [(k, type(v)) for k, v in mine.items()] == [(k, type(v)) for k, v in theirs.items()]
        assert {type(v) for k in ("min", "max") for v in mine[k]} == {float}


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_what_is_written_is_read_again(tmp_path, form):
    params = [param(), param("ü/b", (0.1, -0.5), (1 / 3, 2.0), 16)]
    quant_param.write(params, tmp_path / "x", form)
    again = quant_param.read(tmp_path / "x")
    assert [(p.name, p.bit) for p in again] == [("a", 8), ("ü/b", 16)]
    assert all(a.range.same(b.range) for a, b in zip(params, again, strict=True))


def test_data_comes_as_an_array(tmp_path):
    entry = {"name": "w", "min": [-1.0], "max": [1.0], "bit": 8, "data": np.arange(6, dtype=np.float32).reshape(2, 3)}
    (tmp_path / "x.pkl").write_bytes(pickle.dumps([entry], 3))
    (found,) = quant_param.read(tmp_path / "x.pkl")
    np.testing.assert_array_equal(found.data, entry["data"])


class Runs:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "quant_param must be a `list`"),
        ([{"name": 3, "min": [0], "max": [1]}], "name of each quant_param[0] must be `str`"),
        ([{"name": "a", "min": "0", "max": [1]}], "min of quant_param[0]: a must be a `list`"),
        ([{"name": "a", "min": [0], "max": [1], "bit": 8.0}], "bit of quant_param[0]: a must be `int`"),
        ([{"name": "a", "min": [0], "max": [1], "data": [1]}], "data of quant_param[0]: a must be `numpy.ndarray`"),
        ([{"name": "a", "min": [2], "max": [1]}], "its min above its max"),
        ('[{"name": "a", "min": [NaN], "max": [1]}]', "NaN or infinite"),
        ([{"name": "a", "min": [0, 1], "max": [1]}], "min of quant_param[0]: a has 2 values, but max has 1"),
        ("Name:a, min: 0.000000, max: 1.000000;\n", "is a tensor_min_max.txt"),
        ("[1", "not valid JSON"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, content, message):
    file = tmp_path / "q"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(SgsdumpError) as caught:
        quant_param.read(file)
    assert message in str(caught.value) and "\n" not in str(caught.value) and str(file) in str(caught.value)


def test_a_hostile_pickle_runs_nothing(tmp_path):
    file = tmp_path / "q.pkl"
    file.write_bytes(pickle.dumps([Runs(os.mkdir, str(tmp_path / "made"))], 3))
    with pytest.raises(SgsdumpError, match=r"refused: the pickle refers to (posix|nt|os)\.mkdir"):
        quant_param.read(file)
    assert not (tmp_path / "made").exists()


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*no\.pkl"):
        quant_param.read(tmp_path / "no.pkl")


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_is_no_content(stored, start):
    entries = json.dumps([{"name": "a", "min": 0, "max": [1.5], "bit": 16}]).encode()
    (found,) = quant_param.read(stored(start + entries))
    assert (found.name, found.bit, found.range.bit, found.range.low, found.range.high, found.data) == (
        "a",
        16,
        16,
        0,
        1.5,
        None,
    )
    assert read_ranges(stored(start + b" \n" + entries))["a"].high == 1.5
    assert (
        read_ranges(stored(start + b"\n Name:a, min: 0.0, max: 1.5;\n".replace(b"\n Name", b"Name")))["a"].high == 1.5
    )


def test_entries_may_lack_a_range_and_the_ends_may_be_equal(stored):
    entries = [{"name": "a", "min": [], "max": [], "bit": 8}, {"name": "b", "min": [1], "max": [1]}]
    first, second = quant_param.read(stored(json.dumps(entries)))
    assert first.range is None and first.bit == 8
    assert (second.range.low, second.range.high, second.bit) == (1, 1, None)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "n" * 90, "min": [1], "max": [0]}, r"quant_param\[1\]: n{80}: the range of"),
        ({"name": "x", "min": [0, 2], "max": [1, 1]}, "min above its max"),
        ({"name": "x", "min": [0, 1], "max": [1, math.nan]}, "NaN or infinite"),
        ({"name": "x", "min": [-math.inf], "max": [1]}, "NaN or infinite"),
        ({"name": "x", "min": [True], "max": [1]}, r"min of quant_param\[1\]: x must be a `list` of numbers"),
        ({"name": "x", "max": [1]}, "min of .* must be a `list`"),
        ({"name": "x", "min": [0], "max": [1], "bit": True}, "must be `int`"),
    ],
)
def test_the_entry_is_named(stored, entry, message):
    with pytest.raises(FormatError, match=message):
        quant_param.read(stored(json.dumps([{"name": "a", "min": [0], "max": [1]}, entry])))


def test_arrays_and_numbers_of_pickles(stored):
    entries = [{"name": "a", "min": np.array([[0.5, 1]], np.float32), "max": np.array(2, np.int8), "bit": 8}]
    with pytest.raises(FormatError, match="has 2 values, but max has 1"):
        quant_param.read(stored(pickle.dumps(entries, 2)))
    entries[0]["max"] = np.array([2, 3], np.int8)
    (found,) = quant_param.read(stored(pickle.dumps(entries, 2)))
    assert found.range.min.tolist() == [0.5, 1] and found.range.max.tolist() == [2, 3]
    assert found.range.min.dtype == found.range.max.dtype == np.float64


def test_what_is_written_has_the_keys_in_order_and_a_bit_only_where_known(tmp_path):
    params = [QuantParam("a", Range.of(-1, 2), None), QuantParam("b", Range.of(0, 1, 16), 16)]
    quant_param.write(params, tmp_path / "x")
    assert json.loads((tmp_path / "x").read_text()) == [
        {"name": "a", "min": [-1.0], "max": [2.0]},
        {"name": "b", "min": [0.0], "max": [1.0], "bit": 16},
    ]
    assert (
        (tmp_path / "x").read_text().startswith('[\n    {\n        "name": "a",\n        "min": [\n            -1.0\n')
    )
    quant_param.write(params, tmp_path / "y", "pickle")
    assert (tmp_path / "y").read_bytes()[:2] == b"\x80\x03"


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(OutputError):
        quant_param.write([], tmp_path / "no" / "x")
    assert not list(tmp_path.iterdir())
