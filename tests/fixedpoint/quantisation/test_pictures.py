"""One picture both ways: as the float model takes it, and as the fixed model makes it of the raw bytes."""

import numpy as np
import onnxruntime as ort
import pytest
from small_nets import conv, model, node, weights

from sgsdump.errors import InputError
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.float_model import Picture, difference_of, disagreements, simplify
from sgsdump.fixedpoint.verbs.network import conversion_notes
from sgsdump.models.feeds.feeds import Feeds
from sgsdump.models.feeds.picture import channel_axis
from sgsdump.models.graph import Graph
from sgsdump.models.model import graph_inputs
from sgsdump.sidecars.input_config import InputConfig, ModelInput
from sgsdump.tensors.types import Range

PIXELS = np.random.default_rng(0).integers(0, 256, (1, 3, 4, 4)).astype(np.float32)
MEAN = np.array([123.0, 117.0, 104.0], np.float32).reshape(1, 3, 1, 1)
REAL = (PIXELS - MEAN) / 58


def difference(mean, std, raw):
    return difference_of("data", REAL, raw, Picture(mean, std))


def test_the_same_mean_and_std_agree():
    found = difference((123, 117, 104), (58,) * 3, PIXELS)
    assert found.agrees and found.levels < 1e-3


def test_a_forgotten_mean_is_said_in_both_units():
    found = difference((0, 0, 0), (58,) * 3, PIXELS)
    assert not found.agrees and found.levels == pytest.approx(123, rel=1e-5)
    assert found.largest == pytest.approx(123 / 58, rel=1e-5)
    assert "up to 2.12, 123 grey levels" in str(found)


def test_no_more_grey_levels_are_said_than_an_image_has():
    found = difference((0, 0, 0), (255,) * 3, PIXELS)
    assert found.levels > 255 and "grey levels" not in str(found) and "up to " in str(found)


def test_a_wrong_std_is_said():
    found = difference((123, 117, 104), (1,) * 3, PIXELS)
    assert not found.agrees and found.largest > 100


def test_rounding_is_no_disagreement():
    real = (PIXELS * 0.5 - MEAN) / 58
    found = difference_of("data", real, np.rint(PIXELS * 0.5), Picture((123, 117, 104), (58,) * 3))
    assert found.agrees and found.levels == pytest.approx(0.5, abs=1e-4)


class Refused(Feeds):
    """One picture that the fixed model refuses, and the float model too where ``by_both``."""

    def __init__(self, net, config, by_both):
        self.specs, self.config, self._by_both = graph_inputs(net.proto), config, by_both

    def __len__(self):
        return 1

    def both(self, index):
        raise InputError("no picture")

    def _run(self, index):
        if self._by_both:
            raise InputError("damaged")
        return "0", {"data": REAL}


def test_a_picture_that_only_the_fixed_model_refuses_is_a_disagreement():
    net = model([node("Relu", ["data"], "y")], {}, {"data": (1, 3, 4, 4)}, ["y"])
    config = InputConfig((ModelInput("data", "RGB", "RGB", (123.0, 117.0, 104.0), (58.0,) * 3),))
    assert list(disagreements(net, Refused(net, config, False))) == ["no picture"]
    with pytest.raises(InputError, match="damaged"):
        list(disagreements(net, Refused(net, config, True)))


@pytest.mark.parametrize("nv12", [False, True], ids=["RGB", "YUV_NV12"])
@pytest.mark.parametrize("trained", ["RGB", "BGR"])
def test_a_picture_with_its_channels_last_gives_the_integers_of_one_with_them_first(trained: str, nv12: bool) -> None:
    entry = ModelInput("data", trained, "YUV_NV12" if nv12 else trained, (103.5, 116.0, 123.0), (57.0, 58.0, 255.0))
    config = InputConfig((entry,))
    rng = np.random.default_rng(3)
    convolution, constants = conv("c", "data", pads=[1] * 4), weights("c", (4, 3, 3, 3), 1)
    first = model([convolution, node("Relu", ["c"], "y")], constants, {"data": (1, 3, 6, 10)}, ["y"])
    turned = [node("Transpose", ["data"], "t", perm=[0, 3, 1, 2]), conv("c", "t", pads=[1] * 4)]
    last = model([*turned, node("Relu", ["c"], "y")], constants, {"data": (1, 6, 10, 3)}, ["y"])
    pixels = rng.integers(0, 256, (1, 6, 10, 3)).astype(np.float32)
    made = {}
    for name, net, fed in (("first", first, pixels.transpose(0, 3, 1, 2)), ("last", last, pixels)):
        simple = simplify(net)
        ranges = {
            "data": Range.of(-2.2, 2.8),
            "t": Range.of(-2.2, 2.8),
            "c": Range.of(-6.0, 5.0),
            "y": Range.of(0.0, 5.0),
        }
        fixed = make_fixed(simple, {n: r for n, r in ranges.items() if n in Graph(simple.proto).shapes}, config)
        session = ort.InferenceSession(fixed.proto.SerializeToString(), providers=["CPUExecutionProvider"])
        (made[name],) = session.run(["y"], {"data": np.ascontiguousarray(fed)})
        refused = conversion_notes(simple, config)
        assert [("N, H, W, C" in sentence) for sentence in refused] == [True] * (name == "last")
    assert np.ptp(made["first"]) > 1
    np.testing.assert_array_equal(made["first"], made["last"])


def test_what_a_size_that_is_not_fixed_leaves_open_is_told_by_the_other_axis() -> None:
    assert channel_axis((1, 3, None, None), 3) == channel_axis((None, None, None, None), 3) == 1
    assert channel_axis((None, None, None, 3), 3) == channel_axis((1, 20, 3, 3), 3) == 3
    assert channel_axis((1, 4, 20, 20), 3) is channel_axis((1, 3), 3) is None
