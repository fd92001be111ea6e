"""Whether data are those of training: running statistics tell, where another normalisation fits, or none could."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from sgsdump.fixedpoint.quantisation.float_model import simplify
from sgsdump.fixedpoint.reports.root_causes import cause_text, what_to_do
from sgsdump.fixedpoint.tuning.causes_of_data import unlike_training
from sgsdump.models.model import Model
from sgsdump.sidecars.input_config import InputConfig, ModelInput

SHAPE, EPSILON = (1, 3, 8, 8), 1e-5


def _levels(mean=127.5, spread=60.0):
    """Two pictures of the same mean and spread in each channel."""
    values = np.random.default_rng(5).normal(0, 1, (2, *SHAPE))
    values -= values.mean(axis=(0, 3, 4), keepdims=True)
    values /= values.std(axis=(0, 3, 4), keepdims=True)
    return values * spread + mean


def _model(layers):
    """BatchNormalizations one after the other, each given as (mean, variance), and a convolution."""
    nodes, constants = [], {"w": np.ones((2, 3, 1, 1))}
    for number, (mean, variance) in enumerate(layers):
        source = f"bn{number - 1}" if number else "data"
        constants |= {f"g{number}": np.ones(3), f"b{number}": np.zeros(3)}
        constants |= {f"m{number}": np.broadcast_to(mean, 3), f"v{number}": np.broadcast_to(variance, 3)}
        names = [f"{word}{number}" for word in "gbmv"]
        nodes.append(helper.make_node("BatchNormalization", [source, *names], [f"bn{number}"], epsilon=EPSILON))
    nodes.append(helper.make_node("Conv", [nodes[-1].output[0], "w"], ["out"]))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [info("data", onnx.TensorProto.FLOAT, SHAPE)],
        [info("out", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32(array), name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    return simplify(Model(onnx.shape_inference.infer_shapes(proto), Path("net.onnx")))


def _told(layers, told=(127.5, 127.5), levels=None, pictures=True, order="RGB"):
    """What is found of pictures that are given as ``told``, (mean, std)."""
    levels = _levels() if levels is None else levels
    mean, std = (np.broadcast_to(each, 3) for each in told)
    real = (levels - mean.reshape(3, 1, 1)) / std.reshape(3, 1, 1)
    pairs = [SimpleNamespace(label=str(n), feed={"data": one.astype(np.float32)}) for n, one in enumerate(real)]
    entry = ModelInput("data", order, order, tuple(map(float, mean)), tuple(map(float, std)))
    config = InputConfig((entry,) if pictures else ())
    subject = SimpleNamespace(float_model=_model(layers), config=config)

    class Few(list):
        make = list.__getitem__

    found = unlike_training(SimpleNamespace(subject=subject, few=Few(pairs)))
    return None if found is None else found.finding


def _trained(mean=127.5, std=127.5, levels=None, wider=0.0):
    """Running mean and variance of the levels normalised so, the spread e^wider times as far."""
    levels = _levels() if levels is None else levels
    values = (levels - np.reshape(np.broadcast_to(mean, 3), (3, 1, 1))) / np.reshape(np.broadcast_to(std, 3), (3, 1, 1))
    return values.mean(axis=(0, 1, 3, 4)), values.var(axis=(0, 1, 3, 4)) * np.exp(2 * wider) - EPSILON


def test_bytes_are_told_where_minus_one_to_one_was_trained_with():
    finding = _told([_trained()], (0, 1))
    assert finding.facts == {"reason": "unlike training", "input": "data"} and finding.layer == "bn0"
    figures = finding.figures
    assert figures["deviations"] == pytest.approx(127.5 / (60 / 127.5), rel=1e-3)
    assert figures["times"] == pytest.approx(127.5, rel=1e-3)
    assert figures["distance"] == pytest.approx(np.log(127.5) + np.log1p(figures["deviations"]), rel=1e-3)
    assert (figures["mean_done_0"], figures["std_done_2"], figures["mean_told_1"]) == (127.5, 127.5, 0)
    assert figures["distance_after"] < 0.01
    assert (
        "271 standard deviations from the means in the training data, and the spread of the values is 128 times "
        "the spread in the training data." in f"{cause_text(finding)}."
    )
    assert cause_text(finding).endswith(
        "0.00 standard deviations from the means in the training data, and the spread of the values is 1 times "
        "the spread in the training data"
    )
    assert "If they were normalised with mean 127.5, std 127.5" in what_to_do(finding)


@pytest.mark.parametrize("told", [(127.5, 127.5), (0, 255), (0, 1)])
def test_what_was_trained_with_is_told_of_nothing(told):
    assert _told([_trained(*told)], told) is None


@pytest.mark.parametrize(("order", "red"), [("RGB", 0), ("BGR", 2)])
def test_imagenets_means_are_in_the_order_of_the_channels(order, red):
    mean, std = (np.array(each)[:: -1 if red else 1] for each in ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)))
    finding = _told([_trained(mean, std)], (0, 1), order=order)
    assert finding.figures[f"mean_done_{red}"] == 123.675 and finding.figures["distance_after"] < 0.01


@pytest.mark.parametrize(
    ("mean", "spread", "times", "named"),
    [
        (127.5, 60, 1.9, False),
        (127.5, 60, 2.1, True),
        (127.5, 30, 2.1, False),  # dull pictures, or another normalisation
        (127.5, 30, 7.0, False),
        (127.5, 30, 8.0, True),
        (127.5, 95, 2.1, False),
        (185.0, 60, 2.1, False),
        (65.0, 60, 2.1, False),
        (185.0, 60, 8.0, True),
    ],
)
def test_a_little_less_is_told_of_pictures_as_bright_and_lively_as_most(mean, spread, times, named):
    levels = _levels(mean, spread)
    layers = [_trained(127.5, 127.5, levels)]
    # The means stay where they are.
    finding = _told(layers, (mean - (mean - 127.5) * times, 127.5 * times), levels)
    assert (finding is not None) == named


@pytest.mark.parametrize(("wider", "name"), [(1.4, "data"), (1.6, "")])
def test_a_normalisation_is_named_that_fits(wider, name):
    """From -1 to 1, so many times as far, of bytes."""
    assert _told([_trained(wider=-wider)], (0, 1)).facts["input"] == name


@pytest.mark.parametrize(("far", "named"), [(1.1, False), (1.3, True)])
def test_one_that_leaves_more_than_half_of_the_distance_does_not_fit(far, named):
    """1.2 of 2.3 or 2.5 is left."""
    std = 255 * np.exp(-far)
    finding = _told([_trained(0, 255, wider=-1.2)], (127.5 - std / 2, std))
    assert (finding is not None) == named


@pytest.mark.parametrize(("wider", "named"), [(3.9, False), (4.1, True)])
def test_without_pictures_it_is_told_of_what_is_very_far(wider, named):
    finding = _told([_trained(wider=-wider)], pictures=False)
    assert (finding is not None) == named
    if finding is not None:
        assert finding.facts["input"] == "" and "Prepare the inputs as in training" in what_to_do(finding)
        assert cause_text(finding).endswith("60.3 times the spread in the training data")


@pytest.mark.parametrize(("place", "named"), [(2, True), (3, False)])
def test_the_first_three_are_asked(place, named):
    one = (0.0, 1.0 - EPSILON)  # after the first all have this
    layers = [_trained(), one, one, one]
    layers[place] = (500.0, 1e-11)
    assert (_told(layers, pictures=False) is not None) == named


def test_those_never_trained_and_channels_without_life_count_for_nothing():
    assert _told([(0.0, 1.0)], (0, 1)) is None
    mean, variance = _trained()
    levels = _levels()
    levels[:, :, 1] = 127.5
    mean[1], variance[1] = 5e-3, 1e-12
    assert _told([(mean, variance)], levels=levels) is None
