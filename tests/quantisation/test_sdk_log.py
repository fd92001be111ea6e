"""The log folder of the SDK's calibrator beside its tensor_min_max.txt, under the model's names."""

import numpy as np
import pytest
from small_nets import conv, model, weights

from sgsdump.errors import FormatError
from sgsdump.quantisation.groups import joined
from sgsdump.quantisation.ranges.side_ranges import SideRanges, updated, with_softmax
from sgsdump.quantisation.sdk_log import model_name, read_log, read_side_ranges, read_weight_params, with_model_names
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.types import Range

NET = model([conv("f1", "x")], weights("f1", (2, 3, 1, 1)), {"x": (1, 3, 4, 4)}, ["f1"])
CHN = "Name:f1#22, 2\nmin_chn: -1.0, -2.0, max_chn: 1.0, 3.0;\n"
WEIGHT = """Name:[{names}],
     BitWidth:[{types}],
     min:[-1.0, -0.5],
     max:[0.5, 2.0],
     data:[];
"""


@pytest.fixture
def log(tmp_path):
    (tmp_path / "tensor_min_max.txt").write_text("Name:x, min: -1.0, max: 1.0;\n")
    (tmp_path / "tensor_chn.txt").write_text(CHN)
    (tmp_path / "softmax_lut_range.txt").write_text("Name:f1#22, min: -12.5, max: 0.0;\n")
    text = WEIGHT.format(names="x,f1.w#18", types="INT16,INT16") + WEIGHT.format(names="a,b", types="UINT8,INT8")
    (tmp_path / "tensor_weight_calibration.txt").write_text(text)
    return tmp_path / "tensor_min_max.txt"


def test_a_numbered_name_is_the_models_where_it_has_one():
    known = {"f1", "g#3", "h#x"}
    pairs = {
        "f1": "f1",
        "f1#22": "f1",
        "g#3": "g#3",
        "g#3#4": "g#3",
        "h#x": "h#x",
        "h#1": None,
        "f1#": None,
        "#1": None,
    }
    assert {name: model_name(name, known) for name in pairs} == pairs


def test_all_that_lies_beside_it_is_read(log):
    params, side = read_log(log, NET, weights=True)
    assert [(each.name, each.bit, each.range.max.tolist()) for each in params] == [("f1.w", 16, [0.5, 2.0])]
    assert side.channels["f1"].max.tolist() == [1.0, 3.0] and side.softmax["f1"].low == -12.5


def test_level_l1_takes_no_ranges_of_channels_for_weights(log):
    params, side = read_log(log, NET, weights=False)
    assert params == [] and set(side.channels) == set(side.softmax) == {"f1"}


def test_only_a_tensor_min_max_has_a_log_beside_it(log):
    other = log.parent / "ranges.json"
    other.touch()
    params, side = read_log(other, NET, weights=True)
    assert params == [] and not side.channels and not side.softmax


def test_what_is_not_there_is_left_out(tmp_path):
    path = tmp_path / "tensor_min_max.txt"
    path.touch()
    (tmp_path / "softmax_lut_range.txt").touch()
    assert read_side_ranges(path) == SideRanges() or not read_side_ranges(path).channels
    assert read_weight_params(path, {"x"}) == []


def test_a_damaged_file_is_named(log):
    (log.parent / "tensor_chn.txt").write_text("what?\n")
    with pytest.raises(FormatError, match=r"tensor_chn\.txt:1: 'what\?'"):
        read_log(log, NET, weights=True)


@pytest.mark.parametrize("names", ["a,b,c", "a,b,c#7"])
@pytest.mark.parametrize("known", ["c", "b,c"])
def test_names_may_hold_commas(tmp_path, names, known):
    (tmp_path / "tensor_weight_calibration.txt").write_text(WEIGHT.format(names=names, types="UINT8,INT8"))
    (param,) = read_weight_params(tmp_path / "tensor_min_max.txt", {"a", known})
    assert param.name == known and param.bit is None


def test_the_models_own_entry_goes_before_a_numbered_one():
    def param(name, high):
        return QuantParam(name, Range.of(0, high), None)

    found = with_model_names([param("f1#22", 1), param("f2#3", 2), param("f2", 3), param("other#1", 4)], {"f1", "f2"})
    assert [(each.name, each.range.high) for each in found] == [("f1", 1), ("f2", 3), ("other#1", 4)]


def test_the_ranges_of_a_file_go_before_those_of_the_pictures():
    own = SideRanges({"a": Range.of(0, 1), "b": Range.of(0, 1)}, {"s": Range.of(-1, 0)})
    given = SideRanges({"b": Range.of(0, 2)}, {"t": Range.of(-2, 0)})
    both = updated(own, given)
    assert {name: each.high for name, each in both.channels.items()} == {"a": 1, "b": 2}
    assert {name: each.low for name, each in both.softmax.items()} == {"s": -1, "t": -2}


def test_a_softmaxs_input_holds_its_differences_too():
    ranges = {"s": Range.of(-3, 2), "wide": Range.of(-30, 2), "x": Range.of(-1, 1)}
    found = with_softmax(ranges, {"s": Range.of(-12.5, 0), "wide": Range.of(-20, 0), "none": Range.of(-9, 0)})
    assert {name: (each.low, each.high) for name, each in found.items()} == {
        "s": (-12.5, 2), "wide": (-30, 2), "x": (-1, 1),
    }  # fmt: skip


def test_groups_are_joined_in_their_order():
    ranges = {f"c_conv#{i}_output#{i}": Range(np.array([-i, 0.0]), np.array([1.0, i])) for i in range(3)}
    found = joined(ranges, "c_conv#{0}_output#{0}", 3, 1)
    assert found.min.tolist() == [0, 0, -1, 0, -2, 0] and found.max.tolist() == [1, 0, 1, 1, 1, 2]
    assert joined({"g0": Range.of(1, 2), "g1": Range.of(3, 4)}, "g{0}", 2, 2).min.tolist() == [1, 1, 3, 3]
    assert joined(ranges, "c_conv#{0}_output#{0}", 4, 1) is None
