"""From where on each cause is named: on both sides of every threshold, with what it costs to measure made up."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from sgsdump.fixedpoint.quantisation.diagnosis.subject import Subject
from sgsdump.fixedpoint.quantisation.float_model import Picture
from sgsdump.fixedpoint.tuning import causes_of_data, root_causes
from sgsdump.fixedpoint.tuning.examined import Reach
from sgsdump.models.feeds.by_content import PicturePairs
from sgsdump.models.feeds.feeds import ChosenFeeds, Feeds
from sgsdump.models.model import Model
from sgsdump.progress import SILENT
from sgsdump.tensors.types import Range

# Errors stand for the outputs that they are measured of.
OF_DATA = {"output_error": float, "holds": lambda *_: False, "pictures_of": lambda *_: {}}


class _Runs(Feeds):
    labels = ()

    def __init__(self, count):
        self.labels = [f"p{index}" for index in range(count)]

    def __len__(self):
        return len(self.labels)

    def _run(self, index):
        return self.labels[index], {"data": np.float32([index])}

    def both(self, index):
        return *self._run(index), {"data": np.uint8([index])}

    def truth(self, index):
        return index


def test_some_runs_are_those_of_all():
    some = ChosenFeeds(_Runs(5), (3, 0))
    assert (len(some), some.labels, some[0][0], some.truth(1)) == (2, ["p3", "p0"], "p3", 0)
    assert [label for label, _ in some[:]] == ["p3", "p0"] and some.both(1)[2]["data"] == 0


def _subject(**more):
    return Subject(SimpleNamespace(proto=None), SimpleNamespace(proto=None), None, {}, False, **more)


class _Outputs(SimpleNamespace):
    """``sums`` is their error."""

    def good(self, limits):
        return self.sums <= limits

    def sums_on(self, labels):
        return self.sums

    def worse_than(self, before):
        return ()


def _examined(after, count=10, **more):
    """Outputs of an error of 1, ``after`` with the cause put right; within the limits up to 0.01."""
    feeds = _Runs(count)
    pairs = PicturePairs(feeds)
    known = {"level": "L2", "limits": 0.01, "error": 1.0, "operator_of": lambda name: "CONV"}
    known |= {"subject": _subject(), "feeds": feeds, "pairs": pairs, "few": pairs, "outputs": _Outputs(sums=1.0)}
    return SimpleNamespace(judged=lambda *_: _Outputs(sums=after), **known | more)


@pytest.fixture
def made_up(monkeypatch):
    for module, names in ((causes_of_data, OF_DATA), (root_causes, {"output_error": float, "holds": OF_DATA["holds"]})):
        for name, function in names.items():
            monkeypatch.setattr(module, name, function)
    monkeypatch.setattr(causes_of_data, "calibrated", lambda *_: "cured")
    monkeypatch.setattr(causes_of_data, "share_outside", lambda *_: 0.1)
    monkeypatch.setattr(causes_of_data, "_count_16", lambda _: 0)
    return monkeypatch


@pytest.mark.parametrize(
    ("widths", "after", "wide", "named"),
    [
        ([1] * 9 + [3.0], 0.5, (0, 0), 1),
        ([1] * 9 + [2.9], 0.5, (0, 0), 0),
        ([1] * 9 + [3.0], 0.51, (0, 0), 0),
        ([1] * 9 + [3.0], 0.01, (2, 1), 1),
        ([1] * 9 + [3.0], 0.51, (2, 1), 0),  # fewer at 16 bits, and not within the limits
        ([1] * 3 + [3.0], 0.5, (0, 0), 1),
        ([1] * 2 + [3.0], 0.5, (0, 0), 0),
        ([1] * 18 + [3.0] * 2, 0.5, (0, 0), 2),
        ([1] * 17 + [3.0] * 2, 0.5, (0, 0), 0),  # more than a tenth
    ],
)
def test_odd_pictures(made_up, widths, after, wide, named):
    made_up.setattr(causes_of_data, "_count_16", lambda each: wide[each == "cured"])
    high = np.array(widths)[:, None] * [1.0, 2.0]
    reach = Reach(tuple(f"p{index}" for index in range(len(widths))), ("a", "b"), np.zeros_like(high), high)
    found = causes_of_data.odd_picture(_examined(after, len(widths)), reach, SILENT)
    assert (0 if found is None else len(found.finding.names)) == named
    if found is not None:
        assert found.cured == "cured" and len(found.pairs) == len(widths) - named


def _given(needs, after=0.5):
    """The cause of ranges from 0 to 1 of as many tensors, where these pictures need so much."""
    names = tuple(f"t{index}" for index in range(len(needs)))
    reach = Reach(("p0",), names, np.zeros((1, len(needs))), np.array([needs], np.float64))
    examined = _examined(after, given={name: Range.of(0.0, 1.0) for name in names})
    found = causes_of_data.of_given_ranges(examined, reach, SILENT)
    return None if found is None else found.finding.facts["reason"]


@pytest.mark.parametrize(
    ("needs", "after", "reason"),
    [
        ([1.05] * 8, 0.1, None),
        ([2.0] * 2 + [1.0] * 6, 0.5, "unlike pictures"),
        ([2.0] * 2 + [1.0] * 7, 0.5, "clipped"),  # less than a quarter of all
        ([2.0] + [1.0] * 3, 0.5, "clipped"),
        ([2.0] * 2 + [1.0] * 6, 0.51, None),
        ([0.24] * 2 + [1.0] * 6, 0.5, "wide ranges"),
        ([0.26] * 2 + [1.0] * 6, 0.5, None),
        ([0.24] * 2 + [1.0] * 6, 0.51, None),
    ],
)
def test_given_ranges(made_up, needs, after, reason):
    assert _given(needs, after) == reason


@pytest.mark.parametrize(
    ("turned", "changed", "reason"), [(0.5, 1, "channel order"), (0.51, 0.5, "normalisation"), (0.51, 0.51, None)]
)
def test_another_normalisation_explains_given_ranges(made_up, turned, changed, reason):
    distances = iter([1.0, turned, changed])
    made_up.setattr(causes_of_data, "_distance", lambda *_: next(distances))
    picture = Picture((127.0,) * 3, (64.0,) * 3)
    made_up.setattr(causes_of_data, "float_feeds", lambda _: [("p0", {"data": np.zeros((1, 3, 2, 2), np.float32)})])
    found = causes_of_data._explained(_examined(0.5), {"data": Range.of(0.0, 1.0)}, {"data": picture}, {})
    assert (None if found is None else found.finding.facts["reason"]) == reason


@pytest.mark.parametrize(
    ("mean", "std", "known"),
    [
        (0, 1, True),
        (-0.9, 100, True),
        (-1.1, 100, False),
        (159, 64, True),
        (161, 64, False),
        (0, 0.6, True),
        (0, 0.4, False),
        (0, 279, True),
        (0, 281, False),
    ],
)
def test_ranges_are_of_means_and_stds_that_networks_are_trained_with(mean, std, known):
    told = Picture((127.0,), (32.0,))
    found = causes_of_data._normalised_as(told, Range.of(-mean / std, (255 - mean) / std))
    assert (found is not None) == known
    if found is not None:
        assert (found.mean[0], found.std[0]) == pytest.approx((mean, std), abs=1e-3)


@pytest.mark.parametrize(("high", "named"), [(63.0, True), (64.5, False)])
def test_flat_pictures(made_up, high, named):
    made_up.setattr(causes_of_data, "pictures_of", lambda *_: {"data": Picture((0.0,), (1.0,))})
    made_up.setattr(causes_of_data, "_levels", lambda *_: ([0.0], [high]))
    made_up.setattr(causes_of_data, "float_feeds", lambda _: [])
    wide = Reach(("p0",), ("data",), np.zeros((1, 1)), np.full((1, 1), 255.0))
    examined = _examined(0.5, given={"data": Range.of(0.0, high)}, reach=lambda _: wide)
    assert (causes_of_data.flat_pictures(examined, wide) is not None) == named


def _advice(**more):
    measured = SimpleNamespace(raised=(), analysis=SimpleNamespace(first_inputs={}), convolutions=())
    return SimpleNamespace(**{"measured": measured, "all_16": None, "promise": None} | more)


@pytest.mark.parametrize(("after", "limit", "named"), [(0.75, 0.01, True), (0.76, 0.01, False), (0.9, 0.9, True)])
def test_weights_of_one_scale(made_up, after, limit, named):
    made_up.setattr(root_causes, "fixed_with", lambda *_, **__: None)
    found = root_causes._weights(_examined(after, limits=limit, subject=_dataclass_subject()), _advice())
    assert (found is not None) == named
    if found is not None:
        assert found.cured.per_channel and found.finding.figures == {"error": 1.0, "error_after": after}


def _dataclass_subject():
    return Subject(Model(None, Path("net")), Model(None, Path("fixed")), None, {}, False)


@pytest.mark.parametrize(
    ("left", "alone", "holds", "good", "named"),
    [
        (0.5, 0.25, True, True, True),
        (0.49, 0.49, True, True, False),  # every convolution at 16 bits takes most of it away, and is within the limits
        (0.49, 0.49, True, False, True),
        (0.5, 0.24, True, True, False),
        (0.5, 0.24, False, True, True),
    ],
)
def test_an_operator(made_up, left, alone, holds, good, named):
    found = _operator(made_up, ["t0"], left, {"t0": alone}, holds, good)
    assert (found is not None) == named


@pytest.mark.parametrize(("place", "named"), [(7, True), (8, False)])
def test_of_operators_the_first_eight_are_tried(made_up, place, named):
    names = [f"t{index}" for index in range(9)]
    found = _operator(made_up, names, 1.0, {name: float(number == place) for number, name in enumerate(names)})
    assert (found is not None) == named


def _operator(made_up, coarse, left, alone, holds=True, good=True):
    """What is found where rounding a tensor alone brings so much; ``good``: every convolution at 16 bits is."""
    proto = _chain(coarse)

    class Outputs:
        def __init__(self, model, names):
            self.error = model if isinstance(model, float) else 0.0

        def run(self, label, feed):
            return self.error

    made_up.setattr(root_causes, "deployed", lambda _: proto)
    made_up.setattr(root_causes, "read_facts", lambda _: None)
    made_up.setattr(root_causes, "_coarse", lambda *_: coarse)
    made_up.setattr(root_causes, "rounded_at", lambda _, name, step: alone[name])
    made_up.setattr(root_causes, "FloatOutputs", Outputs)
    made_up.setattr(root_causes, "score", lambda ours, real: ours)
    made_up.setattr(root_causes, "dict", lambda value: value, raising=False)
    made_up.setattr(root_causes, "total", lambda scores: SimpleNamespace(sums=max(scores)))
    made_up.setattr(root_causes, "holds", lambda *_: holds)
    made_up.setattr(root_causes, "watched_tensors", lambda _: [])
    subject = Subject(
        Model(proto, Path("net")), Model(None, Path("fixed")), None, dict.fromkeys(coarse, Range.of(0.0, 1.0)), True
    )
    advice = _advice(all_16=SimpleNamespace(error=left, outputs=SimpleNamespace(good=lambda _: good)))
    return root_causes._operator(_examined(0.5, 1, subject=subject, few=_Few()), advice)


class _Few(list):
    def __init__(self):
        super().__init__([SimpleNamespace(label="p0", feed={"data": np.zeros((1, 2, 4, 4), np.float32)})])

    make = list.__getitem__


def _chain(names):
    nodes = [helper.make_node("Identity", ["data" if i == 0 else names[i - 1]], [name]) for i, name in enumerate(names)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [info("data", onnx.TensorProto.FLOAT, [1, 2, 4, 4])],
        [info(names[-1], onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32(0), "unused")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


@pytest.mark.parametrize(("steps", "looked_at"), [(39.0, True), (41.0, False)])
def test_a_tensor_is_coarse_where_few_steps_span_its_spread(steps, looked_at):
    """Of channels of which half spread less than it."""
    values = np.random.default_rng(1).normal(0, 1, (1, 2, 4, 4))
    values = (values / values.std(axis=(2, 3), keepdims=True)).astype(np.float32)
    found = root_causes._coarse(Model(_chain(["t0"]), Path("net")), [("p0", {"data": values})], {"t0": 1 / steps})
    assert (found == ["t0"]) == looked_at
