"""Masks of attention: the fixed model computes what the float one does, whatever stands for "not this one"."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
from small_nets import model, node

from sgsdump.cli import main
from sgsdump.errors import InputError
from sgsdump.fixedpoint.quantisation.calibration import calibrate
from sgsdump.fixedpoint.quantisation.diagnosis.share import integer_share, share_text
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed
from sgsdump.fixedpoint.quantisation.ranges import masks
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import measure_ranges
from sgsdump.fixedpoint.quantisation.ranges.statistics import Extremes, side_ranges
from sgsdump.models.fixed_facts import read_facts
from sgsdump.models.graph import Graph
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.tensors.types import Range

LENGTH, WIDTH = 6, 8
LOWEST = float(np.finfo(np.float32).min)
SHAPES = {"q": (1, 2, LENGTH, WIDTH), "k": (1, 2, WIDTH, LENGTH), "v": (1, 2, LENGTH, WIDTH), "kept": (1, 1, 1, LENGTH)}
UPPER = np.triu(np.ones((1, 1, 8, 8), bool), 1)


def number(value):
    return np.array(value, np.float32)


def feeds(count=3):
    made = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        feed = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in SHAPES.items()}
        feed["kept"] = (np.arange(LENGTH) < LENGTH - seed).astype(np.float32).reshape(SHAPES["kept"])
        made.append((str(seed), feed))
    return made


def attention(bringing, constants, after=()):
    """scores -> ``bringing`` -> masked -> Softmax -> weights -> MatMul."""
    nodes = [node("MatMul", ["q", "k"], "scores"), *bringing, node("Softmax", ["masked"], "shares", axis=-1), *after]
    last = after[-1].output[0] if after else "shares"
    return model([*nodes, node("MatMul", [last, "v"], "out")], constants, SHAPES, ["out"])


def added(low):
    nodes = [
        node("Sub", ["one", "kept"], "left"),
        node("Mul", ["left", "low"], "mask"),
        node("Add", ["scores", "mask"], "masked"),
    ]
    return attention(nodes, {"one": number(1), "low": number(low)})


def chosen(low):
    nodes = [node("Cast", ["kept"], "holds", to=9), node("Where", ["holds", "scores", "low"], "masked")]
    return attention(nodes, {"low": number(low)})


def chosen_to_add(low):
    nodes = [
        node("Cast", ["kept"], "holds", to=9),
        node("Where", ["holds", "zero", "low"], "mask"),
        node("Add", ["scores", "mask"], "masked"),
    ]
    return attention(nodes, {"zero": number(0), "low": number(low)})


def triangular(low):
    nodes = [
        node("Slice", ["table", "begin", "end", "axes"], "rows"),
        node("Expand", ["rows", "sizes"], "mask"),
        node("Add", ["scores", "mask"], "masked"),
    ]
    sizes = {"begin": [0, 0], "end": [LENGTH] * 2, "axes": [2, 3], "sizes": [1, 2, LENGTH, LENGTH]}
    whole = {name: np.array(values, np.int64) for name, values in sizes.items()}
    return attention(nodes, {"table": np.where(UPPER, number(low), number(0)), **whole})


def a_constant(low):
    table = np.where(UPPER[..., :LENGTH, :LENGTH], number(low), number(0))
    return attention([node("Add", ["scores", "table"], "masked")], {"table": table})


def subtracted(high):
    nodes = [
        node("Sub", ["one", "kept"], "left"),
        node("Mul", ["left", "high"], "mask"),
        node("Sub", ["scores", "mask"], "masked"),
    ]
    return attention(nodes, {"one": number(1), "high": number(-high)})


def scaled_after(low):
    nodes = [
        node("Cast", ["kept"], "holds", to=9),
        node("Where", ["holds", "scores", "low"], "all"),
        node("Div", ["all", "root"], "masked"),
    ]
    return attention(nodes, {"low": number(low), "root": number(2.0)})


def outputs(proto, feed, name="out"):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    inputs = {each.name for each in session.get_inputs()}
    return session.run([name], {name: array for name, array in feed.items() if name in inputs})[0]


def fixed_of(net, ranges=None):
    calibration = calibrate(net, feeds(), InputConfig(()), "L1")
    side = side_ranges(calibration.statistics)
    return make_fixed(net, calibration.ranges | (ranges or {}), calibration.config, side=side)


def error(net, fixed):
    """The largest over the feeds, as a share of the output."""
    errors = []
    for _, feed in feeds():
        expected = outputs(net.proto, feed)
        errors.append(np.sqrt(np.mean((outputs(fixed.proto, feed) - expected) ** 2) / np.mean(expected**2)))
    return max(errors)


MASKS = [
    *((build, low) for build in (added, chosen, chosen_to_add, triangular, a_constant, subtracted, scaled_after)
      for low in (-100.0, -1e4, -1e9, LOWEST)),
    *((build, -np.inf) for build in (chosen, chosen_to_add, triangular, a_constant, scaled_after)),
]  # fmt: skip


@pytest.mark.parametrize(("build", "low"), MASKS)
def test_the_fixed_model_attends_as_the_float_one_does(build, low):
    net = build(low)
    assert error(net, fixed_of(net)) < 0.002


@pytest.mark.parametrize("build", [added, chosen, triangular])
def test_without_the_cut_it_does_not(build):
    net = build(-1e9)
    cut = calibrate(net, feeds(), InputConfig(()), "L1").ranges
    whole = {name: Range.of(*each.uncut) for name, each in cut.items() if each.uncut is not None}
    fixed = fixed_of(net, whole)
    assert error(net, fixed) > 0.2
    assert any("masked" in note and "steps of 3.05e+04" in note for note in fixed.notes)


def test_ranges_that_a_user_gives_are_taken_as_they_are():
    net = added(-1e4)
    fixed = fixed_of(net, {"masked": Range.of(-1e4, 5.0)})
    assert fixed.coarse.keys() == {"masked"}
    assert float(fixed.plan.tensors["masked"].scale) == pytest.approx(1e4 / 32767)
    fixed = fixed_of(net, {"masked": Range.of(-20.0, 5.0)})
    assert not fixed.coarse
    assert float(fixed.plan.tensors["masked"].scale) == pytest.approx(20 / 32767)


def test_the_cut_is_where_the_exponential_ends_below_the_least_row_and_is_told():
    net = added(-1e9)
    scores = np.concatenate([np.where(feed["kept"] > 0, outputs_of_scores(feed), -np.inf) for _, feed in feeds()])
    least = scores.max(axis=-1).min()
    fixed = fixed_of(net)
    assert fixed.masks["masked"].low == pytest.approx(least - masks.EXP_IS_ZERO - masks.MARGIN, rel=1e-5)
    assert fixed.masks.keys() == {"masked", "mask"}
    (note,) = (note for note in fixed.notes if "mask" in note and "Softmax" in note)
    assert "go down to -1e+09" in note
    facts = read_facts(replace(net, proto=fixed.proto))
    assert facts.origin.ranges["masked"].uncut == fixed.masks["masked"].uncut
    assert facts.origin.ranges["masked"].low == fixed.masks["masked"].low


def outputs_of_scores(feed):
    return feed["q"] @ feed["k"]


def test_infinite_ends_are_kept_in_the_metadata():
    net = chosen(-np.inf)
    facts = read_facts(replace(net, proto=fixed_of(net).proto))
    assert facts.origin.ranges["masked"].uncut[0] == -np.inf


def test_what_is_read_elsewhere_too_keeps_its_range():
    net = added(-1e4)
    net.proto.graph.output.extend(each for each in net.proto.graph.value_info if each.name == "mask")
    ranges = measure_ranges(net, feeds())
    assert ranges["mask"].low == -1e4
    assert ranges["mask"].uncut is None
    assert ranges["masked"].low > -40


def test_scores_without_a_mask_keep_their_range():
    net = attention([node("Mul", ["scores", "factor"], "masked")], {"factor": number(2.0)})
    ranges = measure_ranges(net, feeds())
    lows = [2 * outputs_of_scores(feed).min() for _, feed in feeds()]
    assert ranges["masked"].low == pytest.approx(min(lows))
    assert not fixed_of(net).masks


def wholly_masked():
    whole = feeds()
    whole[1][1]["kept"][:] = 0
    return whole


def test_a_row_that_is_masked_wholly_by_infinity_is_named():
    for see in (measure_ranges, lambda net, each: calibrate(net, each, InputConfig(()), "L1")):
        with pytest.raises(
            InputError, match="Softmax 'shares' holds NaN on 1, because a whole row of its input is -infinity"
        ):
            see(chosen(-np.inf), wholly_masked())


def test_scores_that_overflow_are_no_mask():
    odd = feeds()
    odd[2][1]["kept"][..., 0] = np.inf
    nodes = [node("Add", ["scores", "kept"], "masked")]
    with pytest.raises(InputError, match="'kept' holds NaN or infinity on 2"):
        measure_ranges(attention(nodes, {}), odd)


def test_nan_that_the_model_takes_out_itself_is_no_fault():
    guard = [node("IsNaN", ["shares"], "odd"), node("Where", ["odd", "zero", "shares"], "sure")]
    nodes = [node("Cast", ["kept"], "holds", to=9), node("Where", ["holds", "scores", "low"], "masked")]
    net = attention(nodes, {"low": number(-np.inf), "zero": number(0)}, guard)
    ranges = measure_ranges(net, wholly_masked())
    assert (ranges["shares"].low, ranges["shares"].high) == (0, 1)
    assert error(net, fixed_of(net)) < 0.002


def test_a_row_that_is_masked_wholly_does_not_move_the_cut():
    ranges, plain = (measure_ranges(added(-1e4), each) for each in (wholly_masked(), feeds()))
    assert ranges["masked"].low == pytest.approx(plain["masked"].low, abs=3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_mask_may_not_be_infinite(value):
    odd = feeds()
    odd[0][1]["v"][0, 0, 0, 0] = value
    with pytest.raises(InputError, match="'v' holds NaN or infinity on 0"):
        measure_ranges(added(-1e4), odd)


def test_ends_go_backwards_from_the_softmax():
    graph = Graph(scaled_after(-1e9).proto)
    ends = masks.ends_of(graph, {"masked": -20.0}, {})
    assert ends["all"] == (-40.0, np.inf)
    assert ends["scores"] == ends["low"] == (-40.0, np.inf)
    assert "q" not in ends
    assert "root" not in ends


def test_the_ends_of_a_sum_leave_room_for_the_other():
    graph = Graph(chosen_to_add(-1e9).proto)
    ranges = {"scores": Range.of(-3.0, 7.0), "mask": Range.of(-1e9, 0.0), "masked": Range.of(-1e9, 7.0)}
    cut = masks.cut(graph, ranges, {"masked": Extremes(1.0, 7.0)})
    low = 1.0 - masks.EXP_IS_ZERO - masks.MARGIN
    assert cut["masked"].low == low
    assert cut["mask"].low == low - 7.0
    assert cut["scores"] == ranges["scores"]


@pytest.mark.parametrize("reader", ["Add", "Sub", "Mul", "Div"])
def test_a_mask_that_is_computed_with_elsewhere_is_none(reader):
    net = added(-1e9)
    assert "mask" in masks.masking(Graph(net.proto))
    net.proto.graph.node.append(node(reader, ["mask", "low"], "seen"))
    net.proto.graph.output.append(onnx.helper.make_tensor_value_info("seen", onnx.TensorProto.FLOAT, None))
    assert "mask" not in masks.masking(Graph(net.proto))


def test_the_products_of_attention_stay_in_float_by_their_multiplications():
    net = attention([node("Mul", ["scores", "factor"], "masked")], {"factor": number(2.0)})
    first = node("MatMul", ["q", "w"], "line")
    nodes = [first, *net.proto.graph.node]
    nodes[1].input[0] = "line"
    weight = np.eye(WIDTH, dtype=np.float32)
    net = model(nodes, {"factor": number(2.0), "w": weight}, SHAPES, ["out"])
    share = integer_share(net, read_facts(replace(net, proto=fixed_of(net).proto)))
    assert share.floats == {"MatMul of two tensors": 2} and share.weights == 1
    assert share.macs == pytest.approx(WIDTH * WIDTH / (WIDTH * WIDTH + 2 * LENGTH * WIDTH))
    assert share_text(share) == (
        "100 % of the weights and 40 % of the multiplications became integers; 2 MatMul of two tensors stayed in "
        "float32. The result does not contain the error of these float32 operators on the chip"
    )


def test_diagnose_counts_no_masked_layer_as_past_the_limits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    onnx.save(chosen(-np.inf).proto, "net.onnx")
    for label, feed in feeds():
        np.savez(f"{label}.npz", **feed)
    Path("load.py").write_text(
        "import numpy as np\ndef load_data():\n    for k in range(3):\n        yield dict(np.load(f'{k}.npz'))\n"
    )
    main("diagnose -m net.onnx --data-loader-script load.py --quant-level L1 -o d".split())
    said = capsys.readouterr()
    assert "go down to -inf, as in a mask" in said.err
    assert said.out.startswith("PASS: ") and "exceeds the limits" not in said.out.replace("no layer exceeds", "")
    assert "exceed the limits" not in said.out
    main("diagnose -m net.onnx --data-loader-script load.py --fixed d/fixed.onnx -o e".split())
    said = capsys.readouterr()
    assert "go down to -inf, as in a mask" in said.err
    assert said.out.startswith("PASS: ") and "exceeds the limits" not in said.out.replace("no layer exceeds", "")
    assert "exceed the limits" not in said.out


@pytest.mark.parametrize(("turned", "shape"), [(0, (2, 5)), (1, (5, 2))])
def test_the_operations_of_a_product_follow_its_transpositions(turned, shape):
    """(2, 5) by (5, 3), the first operand perhaps stored transposed: 2 x 3 x 5 multiplications."""
    nodes = [node("Relu", ["a"], "ra"), node("Relu", ["b"], "rb"), node("Gemm", ["ra", "rb"], "y", transA=turned)]
    nodes += [node("Gemm", ["y", "w"], "z")]  # 2 x 4 x 3 = 24 with constants
    net = model(nodes, {"w": np.ones((3, 4), np.float32)}, {"a": shape, "b": (5, 3)}, ["z"])
    facts = SimpleNamespace(convolutions={"z": "w"}, weights={})
    assert integer_share(net, facts).macs == pytest.approx(24 / (24 + 30))
