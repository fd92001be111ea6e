"""The edges of this room's small functions: nothing to count, nothing to raise, values no range holds."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, weights

from sgsdump.errors import InputError, ModelError
from sgsdump.models.graph import Graph
from sgsdump.models.model import open_model
from sgsdump.quantisation.domains import Analysis
from sgsdump.quantisation.fixed_model import FixedModel
from sgsdump.quantisation.float_model import serialise, simplify
from sgsdump.quantisation.fusion import Operator, operators
from sgsdump.quantisation.quant_import import Imported, import_params
from sgsdump.quantisation.quant_plan import plan
from sgsdump.quantisation.ranges import range_fit
from sgsdump.quantisation.ranges.observers import Collector
from sgsdump.quantisation.ranges.range_fit import MIN_MAX, MSE, Proposal, _percentiles, proposals, squared_error
from sgsdump.quantisation.ranges.statistics import Statistics, Wanted
from sgsdump.quantisation.ranges.value_histogram import SIDE, SMALLEST, count_values
from sgsdump.quantisation.scales import INT8, INT16
from sgsdump.quantisation.trials import output_trials
from sgsdump.quantisation.trials.output_trials import Work, _proposals, fit_ranges, sensitivities
from sgsdump.quantisation.trials.plan_trial import Domain, PlanTrial
from sgsdump.quantisation.trials.qdq_writer import Picture, quantise
from sgsdump.quantisation.trials.switchable_graph import LARGEST, lowest, zero_point
from sgsdump.quantisation.weight_scales import weight_quant
from sgsdump.sidecars.input_config import InputConfig
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.tensors.tensor import Quant
from sgsdump.tensors.types import Range


def small_net():
    return model([conv("c", "data")], weights("c", (4, 3, 1, 1)), {"data": (1, 3, 4, 4)}, ["c"])


# What calibration observes


@pytest.mark.parametrize("values", [[0, np.inf], [-np.inf, 0], [np.nan, 1], [-np.inf, np.inf], [np.nan, np.inf]])
def test_a_tensor_with_nan_or_infinity_has_no_range(values):
    with pytest.raises(InputError, match=r"'t' holds NaN or infinity on cat\.png"):
        collector = Collector(Wanted(), "cat.png")
        collector.see("finite", np.zeros(2, np.float32))
        collector.see("t", np.array(values, np.float32))
        _ = collector.seen


def test_below_is_counted_from_the_maximum_along_the_softmax_axis():
    values = np.array([[1, 3], [9, 5]], np.float32)
    for axis, low in ((1, -4.0), (0, -8.0)):
        collector = Collector(Wanted(softmax={"t": axis}), "")
        collector.see("t", values)
        below = collector.seen.below["t"]
        assert (below.low, below.high) == (low, 0.0)


def test_statistics_are_kept_of_what_is_wanted_only():
    everything = Wanted(frozenset("t"), {"t": 1}, {"t": 1}, {"t": 1})
    values = np.array([[[1, -2]], [[3, 5]]], np.float32).transpose(1, 0, 2)  # [1, channels 2, 2]
    collector = Collector(everything, "")
    for name in ("t", "u"):
        collector.see(name, values)
    collector.see("indices", np.array([1, 2]))
    collector.see("empty", np.zeros((0, 2), np.float32))
    seen = collector.seen
    kept = seen.statistics
    assert list(kept.whole) == ["t", "u"] and (kept.whole["u"].low, kept.whole["u"].high) == (-2, 5)
    assert [list(each) for each in (kept.histograms, kept.moments, kept.channels, kept.below)] == [["t"]] * 4
    moments, channels = kept.moments["t"], kept.channels["t"]
    assert (moments.sums.tolist(), moments.squares.tolist(), moments.count) == ([-1, 8], [5, 34], 2)
    assert (channels.low.tolist(), channels.high.tolist()) == ([-2, 3], [1, 5])
    twice = seen.merged(replace(seen, histograms={}, below={})).statistics
    assert twice.moments["t"].count == 4 and twice.moments["t"].squares.tolist() == [10, 68]


# Histograms and what is proposed from them


def test_of_no_values_nothing_is_counted():
    empty = count_values(np.zeros((0, 3), np.float32))
    assert (empty.exponent, empty.zeros, empty.total) == (SMALLEST, 0, 0)
    some = count_values(np.array([0.75], np.float32))
    assert empty.merged(some).exponent == some.exponent == 0 and np.array_equal(empty.merged(some).counts, some.counts)
    assert empty.counts.shape == (2 * SIDE,)


def test_a_tail_that_is_all_zeros_ends_at_zero():
    ends = list(_percentiles(np.array([-3.0, 2.0]), np.array([1, 1]), 999_998, -3.0, 2.0))
    assert ends == [(0.0, 0.0)] * 3


@pytest.mark.parametrize("counted", [(), ("a",), ("a", "b")])
def test_a_domain_s_proposals_come_from_all_its_histograms(counted):
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_t(3, 5000).astype(np.float32) for name in "ab"}
    ranges = {name: Range.of(float(array.min()), float(array.max())) for name, array in arrays.items()}
    low, high = min(r.low for r in ranges.values()), max(r.high for r in ranges.values())
    statistics = Statistics({}, {name: count_values(arrays[name]) for name in counted}, {}, {}, {})
    made = _proposals(("a", "b"), statistics, ranges)
    if not counted:
        assert made == [Proposal(low, high, MIN_MAX, 0.0)]
        return
    assert made == proposals(count_values(np.concatenate([arrays[name] for name in counted])), low, high)


# Trials


def test_the_bar_counts_runs_one_by_one():
    seen = []
    work = Work(lambda done, total: seen.append((done, total)))
    work.expect(2)
    work.expect(1)
    for _ in range(3):
        work.step()
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_runs_are_announced_for_every_picture(monkeypatch):
    domains = tuple(Domain(name, (name,), (name,), 1) for name in "ab")
    trials = SimpleNamespace(
        trial=SimpleNamespace(domains=domains),
        work=Work(),
        pictures=5,
        ranges={"r": Range.of(0, 8)},
        run=lambda raised: [],
        error=lambda raised, against=None: 1.0,
    )
    trials.with_ranges = lambda ranges: trials
    sensitivities(trials)
    assert trials.work.total == 5 * (1 + 2)
    trials.work = Work()
    monkeypatch.setattr(output_trials, "_narrow_domains", lambda trials: [("r",)])
    tried = [Proposal(0, high, MSE, 0.1) for high in (4, 5, 6)]
    monkeypatch.setattr(output_trials, "_proposals", lambda *_: [Proposal(0, 8, MIN_MAX, 1.0), *tried])
    fit_ranges(trials, Statistics({}, {}, {}, {}, {}))
    assert trials.work.total == 5 * (1 + 3)


@pytest.mark.parametrize(
    ("fixed", "domains", "raised", "rate"),
    [(0, [], "", 0.5), (10, [], "", 0.5), (0, [6, 4], "a", 0.8), (0, [6, 4], "ab", 1.0), (10, [6, 4], "b", 0.6)],
)
def test_the_rate_is_0_5_for_all_8_bits_and_without_weights(fixed, domains, raised, rate):
    of_sizes = [Domain(name, (name,), (name,), size) for name, size in zip("ab", domains)]
    assert PlanTrial.rate(SimpleNamespace(fixed_weights=fixed, domains=of_sizes), raised) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("dtype", "scale", "zero", "ends"),
    [
        (np.uint8, 0.5, 0, (0, 127.5)),
        (np.uint8, 0.5, 10, (-5, 122.5)),
        (np.int16, 0.25, 0, (-8192, 8191.75)),
        (np.int16, 0.25, 4, (-8193, 8190.75)),
    ],
)
def test_the_limits_are_what_the_type_s_ends_mean(dtype, scale, zero, ends):
    """The upper end is where int16 itself ends."""
    quant = Quant(np.dtype(dtype), scale, zero)
    assert (lowest(quant), (LARGEST - int(zero_point(quant))) * scale) == ends


# Plans and the fixed model


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("dtype", "limit"), [(INT8, 127), (INT16, 32767)])
def test_weights_have_exact_scales(per_channel, dtype, limit):
    net = small_net()
    graph = Graph(net.proto)
    quant = weight_quant(graph, graph.nodes[0], dtype, None, per_channel)
    tops = np.abs(weights("c", (4, 3, 1, 1))["c.w"]).max(axis=(1, 2, 3)) / limit
    assert (quant.dtype, quant.zero_point, quant.exact) == (dtype, 0, True)
    assert quant.axis == (0 if per_channel else None)
    np.testing.assert_allclose(quant.scale, tops if per_channel else tops.max(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [INT8, INT16])
def test_a_channel_of_zeros_leaves_the_others_their_scales(dtype):
    net = small_net()
    graph = Graph(net.proto)
    filters = weights("c", (4, 3, 1, 1))["c.w"]
    filters[1] = 0
    graph.constants["c.w"].raw_data = filters.tobytes()
    tops = np.abs(filters).max(axis=(1, 2, 3)) / np.iinfo(dtype).max
    tops[1] = tops.max()
    quant = weight_quant(graph, graph.nodes[0], dtype, None, per_channel=True)
    np.testing.assert_allclose(quant.scale, tops, rtol=1e-6)


@pytest.mark.parametrize("others", [[], ["org.example"], ["ai.example"], ["com.microsoft"], ["org.a", "com.microsoft"]])
def test_the_operator_set_of_16_bits_is_imported_once(others):
    net = small_net()
    for domain in others:
        net.proto.opset_import.add(domain=domain, version=1)
    ranges = {"data": Range.of(-1, 1), "c": Range.of(-1, 1)}
    made = quantise(net.proto, plan(net.proto, ranges), {})
    assert sorted(each.domain for each in made.opset_import) == sorted({"", "com.microsoft", *others})


@pytest.mark.parametrize(
    ("std", "zero_point", "gain", "offset"),
    [(1.0, 0, None, None), (0.5, 0, 2.0, 0.0), (2.0, 0, 0.5, 0.0), (1.0, 2, 1.0, 2.0), (1.0, -2, 1.0, -2.0)],
)
def test_a_picture_is_scaled_unless_its_bytes_are_the_integers(std, zero_point, gain, offset):
    net = small_net()
    decided = plan(net.proto, {"data": Range.of(0, 1), "c": Range.of(-1, 1)}, pictures=["data"])
    dtype = np.dtype(np.uint8) if zero_point >= 0 else INT16
    decided.tensors["data"] = Quant(dtype, 1.0, zero_point)
    made = quantise(net.proto, decided, {"data": Picture((0.0,) * 3, (std,) * 3)})
    constants = {t.name: onnx.numpy_helper.to_array(t).ravel().tolist() for t in made.graph.initializer}
    expected = (None, None) if gain is None else ([gain] * 3, [offset] * 3)
    assert (constants.get("data#gain"), constants.get("data#offset")) == expected


def test_a_model_that_cannot_be_written_is_a_model_error():
    class TooLarge:
        def SerializeToString(self):
            raise ValueError("Failed to serialize proto")

    with pytest.raises(ModelError, match="does not fit into one ONNX file of 2 GB: Failed to serialize proto"):
        serialise(TooLarge())
    assert onnx.load_from_string(serialise(small_net().proto)).graph.node[0].op_type == "Conv"


def test_nodes_of_a_chain_keep_their_order():
    nodes = [conv("c", "data"), node("Relu", ["c"], "r")]
    net = model(nodes, weights("c", (4, 3, 1, 1)), {"data": (1, 3, 4, 4)}, ["r"])
    made = quantise(net.proto, plan(net.proto, {"data": Range.of(-1, 1), "r": Range.of(0, 1)}), {})
    kinds = [each.op_type for each in made.graph.node if each.op_type not in ("QuantizeLinear", "DequantizeLinear")]
    assert kinds == ["Conv", "Relu"]


def test_operators_follow_their_last_node():
    """c is fused into add, which comes after t."""
    nodes = [node("Sigmoid", ["data"], "s"), conv("c", "data"), node("Tanh", ["data"], "t")]
    nodes.append(node("Add", ["s", "c"], "add"))
    graph = Graph(model(nodes, weights("c", (3, 3, 1, 1)), {"data": (1, 3, 4, 4)}, ["t", "add"]).proto)
    assert [op.outputs for op in operators(graph, True)] == [("s",), ("t",), ("add",)]
    fused = operators(graph, True)[-1]
    assert (fused.head.op_type, fused.last.op_type, fused.inputs) == ("Conv", "Add", ("data", "s"))
    assert [op.outputs for op in operators(graph, None)] == [("s",), ("c",), ("t",), ("add",)]


def test_external_weights_are_read_when_the_model_is_simplified(tmp_path):
    net = small_net()
    onnx.save(net.proto, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    opened = simplify(open_model(tmp_path / "net.onnx"))
    (tmp_path / "net.data").unlink()
    assert opened.folder is None
    given = weights("c", (4, 3, 1, 1))["c.w"]
    np.testing.assert_array_equal(Graph(opened.proto).value("c.w"), given)


def test_external_weights_that_are_not_there_are_a_model_error(tmp_path):
    onnx.save(
        small_net().proto, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0
    )
    opened = open_model(tmp_path / "net.onnx")
    (tmp_path / "net.data").unlink()
    with pytest.raises(ModelError, match=r"net\.onnx: its external weights cannot be read"):
        simplify(opened)


def test_entries_of_a_quant_file_that_the_model_lacks_are_passed_over():
    new = np.full((4, 3, 1, 1), 0.25, np.float32)
    params = [QuantParam("other.w", None, None, new), QuantParam("c.w", None, None, new)]
    imported = import_params(small_net(), params, InputConfig(()))
    assert (imported.unknown, imported.changed, imported.ranges) == (("other.w",), {"c.w"}, {})
    np.testing.assert_array_equal(Graph(imported.model.proto).value("c.w"), new)


def test_no_range_is_tried_beyond_what_was_seen(monkeypatch):
    tried = []

    def recorded(values, counts, low, high):
        tried.append((low, high))
        return squared_error(values, counts, low, high)

    monkeypatch.setattr(range_fit, "squared_error", recorded)
    values = np.random.default_rng(0).standard_t(3, 2000).astype(np.float32)
    low, high = float(values.min()), float(values.max())
    proposals(count_values(values), low, high)
    assert len(tried) > 2 * range_fit.GRID.size
    assert all(low <= each[0] <= 0 <= each[1] <= high for each in tried)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Statistics({}, {}, {}, {}, {}),
        lambda: Operator((), (), ()),
        lambda: Analysis(None, (), {}, {}, frozenset()),
        lambda: FixedModel(None, None),
        lambda: Imported(None, None),
    ],
)
def test_what_holds_arrays_or_models_is_compared_by_identity(make):
    one = make()
    assert one == one and one != make() and len({one, make()}) == 2


def test_a_node_that_puts_out_nothing_is_an_operator_of_its_own():
    net = small_net()
    net.proto.graph.node.append(onnx.helper.make_node("Relu", ["c"], [], name="nothing"))
    assert [op.outputs for op in operators(Graph(net.proto), True)] == [("c",), ()]
