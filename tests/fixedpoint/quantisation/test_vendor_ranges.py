"""Our log folder against the vendor's, from the same three pictures (here as arrays) through the small network.

The vendor's converter splits the average pooling and the fully connected operator (``gap#/…``, ``fc_reshape…``) and
gives every bias a second row of ones, so its maximum is always 1.0.
"""

import re

import numpy as np
import pytest

from sgsdump.fixedpoint.quantisation import calibration_log
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.calibration_log import LogOptions, write_log
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.verbs.network import open_float_model
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.sidecars import input_config
from sgsdump.sidecars.tensor_min_max import read_ranges

OURS = {"gap#/Mul0Output#35": "gap", "fc_reshape#1_output#30": "gap", "fc_weight#28": "fc_weight", "fc#32": "fc"}
NOT_OURS = {"gap#/Mul0Input1#34"}
END = re.compile(r" +(?:min|max):\[")
LINE = re.compile(r"min_chn: (.*), max_chn: (.*);")


def tiny(shared, framework, config):
    folder = shared / "sigmastar/model"
    if framework == "onnx":
        return simplify(open_model(folder / "tiny.onnx"))
    return open_float_model(folder / "tiny.prototxt", folder / "tiny.caffemodel", config)


def log(shared, tmp_path, framework, level):
    """Ours, in a folder."""
    tmp_path.mkdir(exist_ok=True)
    config = input_config.read(shared / "sigmastar/model/input_config.ini")
    model = tiny(shared, framework, config)
    images = str(shared / "sigmastar/model/calib_arrays")
    feeds = PictureFeeds(images, None, tuple(graph_inputs(model.proto)), config)
    found = calibrate(model, feeds, config, level)
    plan = make_fixed(model, found.ranges, found.config).plan
    folder = tmp_path / "log"
    folder.mkdir()
    write_log(folder, model, found, plan, LogOptions(weights=level != "L1"))
    return folder


@pytest.mark.parametrize("framework", ["onnx", "caffe"])
def test_l1_ranges_are_the_vendors(shared, tmp_path, framework):
    ours = read_ranges(log(shared, tmp_path, framework, "L1") / "tensor_min_max.txt")
    vendors = read_ranges(shared / "sigmastar/calibration/tiny_L1/tensor_min_max.txt")
    compared = set()
    for name, theirs in vendors.items():
        if name in NOT_OURS:
            continue
        own = OURS.get(name, name)
        if framework == "onnx":
            own = re.sub("_(filter|weight)$", ".weight", own).replace("_bias", ".bias")
        compared.add(own)
        assert (f"{ours[own].low:f}", f"{ours[own].high:f}") == (f"{theirs.low:f}", f"{theirs.high:f}"), name
    assert len(compared) == 26


def numbers(path):
    """tensor_chn.txt: name -> [2, C]."""
    lines = path.read_text().splitlines()
    heads = [line.removeprefix("Name:").rpartition(", ") for line in lines[::2]]
    found = {}
    for (name, _, count), line in zip(heads, lines[1::2], strict=True):
        values = np.array([[float(v) for v in part.split(", ")] for part in LINE.fullmatch(line).groups()])
        assert values.shape == (2, int(count))
        found[OURS.get(name, name)] = values
    return found


def test_channels_and_softmax_inputs_are_the_vendors(shared, tmp_path):
    folder, genuine = log(shared, tmp_path, "caffe", "L1"), shared / "sigmastar/calibration/tiny_L1"
    ours, theirs = numbers(folder / "tensor_chn.txt"), numbers(genuine / "tensor_chn.txt")
    assert set(ours) == set(theirs) and len(ours) == 6
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6, atol=3e-6)
    assert (folder / "softmax_lut_range.txt").read_text() == (genuine / "softmax_lut_range.txt").read_text()
    assert not list(folder.glob("tensor_weight*"))


def blocks(path):
    return {text.partition("]")[0]: text for text in path.read_text().split("Name:[")[1:]}


def test_the_weight_files_are_the_vendors_byte_for_byte(shared, tmp_path):
    """All but the fully connected operator, which the vendor turns into a convolution."""
    folder, genuine = log(shared, tmp_path, "caffe", "L2"), shared / "sigmastar/calibration/tiny_L2"
    ours, theirs = (blocks(path / "tensor_weight.txt") for path in (folder, genuine))
    assert len(ours) == len(theirs) == 6
    for name in list(theirs)[:-1]:
        assert ours[name] == theirs[name], name
    ours, theirs = (blocks(path / "tensor_weight_calibration.txt") for path in (folder, genuine))
    for name in list(theirs)[:-1]:
        assert ours[name] == theirs[name], name


@pytest.mark.parametrize("level", ["L2", "L3", "L4", "L5"])
def test_no_level_clips_weights_as_the_vendors_do_not(shared, tmp_path, level):
    """Of the fully connected operator too."""
    folder, genuine = log(shared, tmp_path, "caffe", level), shared / f"sigmastar/calibration/tiny_{level}"
    ours, theirs = (
        sorted(filter(END.match, (path / "tensor_weight_calibration.txt").read_text().splitlines()))
        for path in (folder, genuine)
    )
    assert ours == theirs and len(ours) == 2 * 6


def test_many_weights_are_not_listed_but_their_ranges_are(shared, tmp_path, monkeypatch):
    whole = blocks(log(shared, tmp_path / "a", "caffe", "L2") / "tensor_weight_calibration.txt")
    monkeypatch.setattr(calibration_log, "WEIGHTS_LIMIT", 100)
    short = blocks(log(shared, tmp_path / "b", "caffe", "L2") / "tensor_weight_calibration.txt")
    for name, text in short.items():
        assert text == re.sub(r"data:\[.*?\]", "data:[]", whole[name])


@pytest.mark.parametrize("level", ["L2", "L3", "L4", "L5"])
def test_no_upgrade_is_proposed_and_ranges_stay_within_the_vendors_l1(shared, tmp_path, level):
    ours = read_ranges(log(shared, tmp_path, "caffe", level) / "tensor_min_max.txt")
    plain = read_ranges(shared / "sigmastar/calibration/tiny_L1/tensor_min_max.txt")
    assert ours["gap"].low == pytest.approx(plain["gap"].low, abs=2e-3) and plain["gap"].low > 0, "INT16 needs no 0"
    for name in set(ours) & set(plain):
        assert ours[name].high <= plain[name].high + 1e-5 * max(1, abs(plain[name].high)), name
