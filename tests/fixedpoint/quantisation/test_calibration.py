"""What each level does, tries, takes and raises; neither the processes nor their order change a bit of it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from fake_quantised import fake_quantised
from PIL import Image
from small_nets import conv, model, node, residual_net, run_all, weights
from watched import Watched

from sgsdump.errors import ConfigError, InputError, ModelError
from sgsdump.executors.workers.task_pool import Workers
from sgsdump.fixedpoint.commands import calibrate as calibrate_command
from sgsdump.fixedpoint.commands import demo
from sgsdump.fixedpoint.quantisation import calibration
from sgsdump.fixedpoint.quantisation.analysis import analyse
from sgsdump.fixedpoint.quantisation.calibration import (
    LEVELS,
    MANY,
    THRESHOLD,
    TRIALS,
    WORTH_TRYING,
    CalibrationOptions,
    Level,
    Trials,
    Work,
    _error,
    _narrow_domains,
    _proposals,
    calibrate,
    fit_ranges,
    selection,
    sensitivities,
)
from sgsdump.fixedpoint.quantisation.fixed_model import make_fixed, rehearse
from sgsdump.fixedpoint.quantisation.float_model import Picture, raw_bytes, simplify
from sgsdump.fixedpoint.quantisation.integer import curves
from sgsdump.fixedpoint.quantisation.integer.emitter import Integers
from sgsdump.fixedpoint.quantisation.levels import WITHOUT_BITS
from sgsdump.fixedpoint.quantisation.ranges.measured_ranges import gather, measure_ranges
from sgsdump.fixedpoint.quantisation.ranges.simulator_rules import rules_of
from sgsdump.fixedpoint.quantisation.ranges.simulator_run import SimulatorRunner
from sgsdump.fixedpoint.quantisation.ranges.statistics import (
    MIN_MAX,
    MSE,
    FloatRun,
    Proposal,
    Statistics,
    count_values,
    proposals,
)
from sgsdump.fixedpoint.quantisation.simulation import simulate
from sgsdump.fixedpoint.quantisation.trials.plan_trial import Domain
from sgsdump.models.feeds.by_content import content_key
from sgsdump.models.feeds.feeds import PictureFeeds
from sgsdump.models.graph import Graph
from sgsdump.models.model import graph_inputs, open_model
from sgsdump.sidecars import input_config
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput
from sgsdump.tensors.types import Range

CONFIG = InputConfig((ModelInput("data", "RGB", "RGB", (127.0,) * 3, (128.0,) * 3),), (ModelOutput("prob", True),))
PREPROCESS = """
import numpy as np
from PIL import Image

def get_image(img_path, norm=True):
    if "broken" in img_path:
        raise ValueError("no picture")
    pixels = np.asarray(Image.open(img_path), np.float32)
    return ((pixels - 127) / 128 if norm else pixels)[None]
"""


@pytest.fixture(scope="module")
def float_model():
    return simplify(residual_net())


def pictures(folder: Path, count: int) -> PictureFeeds:
    for seed in range(count):
        pixels = np.random.default_rng(seed).integers(0, 40 * (seed + 1), (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{seed}.png")
    (folder / "pre.py").write_text(PREPROCESS)
    return PictureFeeds(str(folder), str(folder / "pre.py"), tuple(graph_inputs(residual_net().proto)))


@pytest.fixture(scope="module")
def feeds(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures"), 5)


def equal(a, b) -> bool:
    """Whether two results are the same to the last bit, field by field."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(equal(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)
    return a == b


def test_two_processes_give_the_bits_of_one(float_model, feeds):
    shown = Watched(), Watched()
    one, two = (calibrate(float_model, feeds, CONFIG, "L5", workers=Workers(n), progress=shown[n - 1]) for n in (1, 2))
    assert shown[0] == shown[1]
    assert [(bar.what, bar.unit, bar.is_full) for bar in shown[1].bars] == [
        ("calibrate", "image", True),
        ("measure", "run", True),
    ]
    assert shown[1].bars[0].total == len(feeds)
    assert one.statistics.histograms and one.statistics.channels
    assert equal(one, two)


def test_a_picture_that_fails_in_a_worker_is_one_line(float_model, tmp_path):
    feeds = pictures(tmp_path, 2)
    (tmp_path / "1.png").rename(tmp_path / "broken.png")
    feeds = replace(feeds)
    with pytest.raises(InputError, match=r"pre\.py:7: the preprocess failed on .*broken\.png: ValueError: 'no pict"):
        calibrate(float_model, feeds, CONFIG, "L1", workers=Workers(2))


def test_the_figures_are_those_of_all_pictures_at_once(float_model, feeds):
    found = calibrate(float_model, feeds, CONFIG, "L5").statistics
    runner = SimulatorRunner(float_model, rules_of(Graph(float_model.proto)))
    runs = [{**feed, **{layer.name: layer.array for layer in runner.run(feed)}} for _, feed in feeds]
    c1, pool, fc = (np.stack([run[name] for run in runs]).astype(np.float64) for name in ("c1", "pool", "fc"))
    np.testing.assert_array_equal(found.channels["c1"].low, c1.min(axis=(0, 1, 3, 4)))
    np.testing.assert_array_equal(found.channels["c1"].high, c1.max(axis=(0, 1, 3, 4)))
    assert found.below["fc"].low == np.float32(fc - fc.max(axis=-1, keepdims=True)).min()
    assert found.histograms["pool"].total == pool.size


def test_l1_is_minimum_and_maximum_with_one_scale_per_weight(float_model, feeds):
    found = calibrate(float_model, feeds, CONFIG, "L1")
    assert equal(found.ranges, measure_ranges(float_model, feeds))
    assert found.config == CONFIG and not found.statistics.histograms
    plan = make_fixed(float_model, found.ranges, found.config).plan
    assert all(quant.axis is None for quant in plan.weights.values())


@pytest.mark.parametrize("level", ["L2", "L3", "L4", "L5"])
def test_levels_above_have_a_scale_per_output_channel(float_model, feeds, level):
    found = calibrate(float_model, feeds, CONFIG, level)
    plan = make_fixed(float_model, found.ranges, found.config).plan
    assert {name: quant.scale.size for name, quant in plan.weights.items()} == {"c1": 8, "c2": 8, "c3": 6, "fc": 5}
    assert bool(found.sensitivities) == LEVELS[level].bits
    assert bool(found.statistics.histograms) == LEVELS[level].activations


def test_all_int16_makes_every_level_above_l1_the_second(float_model, feeds):
    config = replace(CONFIG, conv_format="ALL_INT16")
    second, fifth = (calibrate(float_model, feeds, config, level) for level in ("L2", "L5"))
    assert equal(second, fifth)


def test_weights_keep_all_of_every_output_channel(float_model, feeds):
    found = calibrate(float_model, feeds, CONFIG, "L2").ranges
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in float_model.proto.graph.initializer}
    for name in ("c1.w", "c2.w", "c3.w", "fc.w"):
        rows = weights[name].reshape(len(weights[name]), -1)
        np.testing.assert_array_equal(found[name].min, [float(f"{value:f}") for value in rows.min(axis=1)])
        np.testing.assert_array_equal(found[name].max, [float(f"{value:f}") for value in rows.max(axis=1)])
        assert found[name].wide is None


@pytest.mark.parametrize("fuse", [True, False])
def test_every_level_with_batchnorm_inside_its_convolution_or_visible(fuse):
    rng = np.random.default_rng(0)
    norm = {name: rng.uniform(0.5, 4, 4).astype(np.float32) for name in ("gamma", "beta", "mean", "var")}
    constants = weights("c", (4, 3, 3, 3)) | weights("d", (2, 4, 1, 1)) | norm
    nodes = [
        conv("c", "data"),
        node("BatchNormalization", ["c", *norm], "bn"),
        node("Relu", ["bn"], "r"),
        conv("d", "r"),
    ]
    net = simplify(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["d"]))
    config = InputConfig(CONFIG.inputs)
    shown = [(str(i), {"data": rng.uniform(-1, 1, (1, 3, 8, 8)).astype(np.float32)}) for i in range(3)]
    found = calibrate(net, shown, config, CalibrationOptions("L5", fuse))
    rows = constants["c.w"].reshape(4, -1)
    plain = found.ranges["c.w"].at(np.dtype(np.int16))
    np.testing.assert_allclose(np.maximum(-plain.min, plain.max), np.abs(rows).max(axis=1), rtol=1e-5)
    assert [each.domain.name for each in found.sensitivities] == ["r"]
    assert set(make_fixed(net, found.ranges, found.config, fuse).plan.weights) == {"c", "d"}


def test_an_unknown_level_is_refused(float_model, feeds):
    with pytest.raises(ConfigError, match=r"unknown quant level 'L6'.*L1, L2, L3, L4, L5"):
        calibrate(float_model, feeds, CONFIG, "L6")


def test_no_picture_is_said(float_model):
    with pytest.raises(InputError, match="no image to calibrate"):
        gather(float_model, [])


def runs_of(model, feeds):
    return [FloatRun(feed, run_all(model.proto, feed)) for _, feed in feeds]


def test_sensitivity_is_the_share_of_noise_that_the_fake_quantised_models_show(float_model, feeds):
    """Against models made and simulated one by one; judged before the softmax."""
    ranges = calibrate(float_model, feeds, CONFIG, "L2").ranges
    chosen = [feeds[0], feeds[4]]
    trials = Trials(float_model, ranges, CONFIG, runs_of(float_model, chosen))
    assert trials.outputs == ["fc"]
    every = ("r1", "pool", "flat")
    wide = {}
    trials.add_outputs(every, wide)

    def by_hand(raised, feed):
        fake = fake_quantised(float_model, ranges, replace(CONFIG, tensor_arrays=raised))
        records = simulate(fake, feed).records
        return next(r.tensor.real() for r in records if r.io == "out" and r.name == "fc").astype(np.float64)

    effects = []
    for _, feed in chosen:
        bytes_ = {"data": np.clip(np.round(feed["data"] * 128 + 127), 0, 255)}
        y, r = by_hand(("r1", "flat"), bytes_), by_hand(every, bytes_)
        effects.append(((y - r) ** 2).sum() / (r**2).sum())
    assert trials.error(("r1", "flat"), wide) == pytest.approx(np.mean(effects), rel=1e-4)


def test_plan_after_plan_gives_what_each_gives_alone(float_model, feeds):
    ranges = calibrate(float_model, feeds, CONFIG, "L2").ranges
    plain = Trials(float_model, ranges, CONFIG, runs_of(float_model, [feeds[0], feeds[4]]))
    half = {**ranges, "r1": Range.of(0, ranges["r1"].high / 2)}
    plans = [("r1", "pool", "flat"), ("r1", "flat"), (), ("r1",), ("r1", "pool", "flat")]
    for trials in (plain, plain.with_ranges(half), plain):
        for plan in plans:
            alone = Trials(float_model, trials.ranges, CONFIG, runs_of(float_model, [feeds[0], feeds[4]])).run(plan)
            for found, only in zip(trials.run(plan), alone, strict=True):
                np.testing.assert_array_equal(found["fc"], only["fc"])


def test_what_few_pictures_were_tried_on_is_not_run_again_and_counts_the_same(float_model, feeds):
    ranges = calibrate(float_model, feeds, CONFIG, "L2").ranges
    half = {**ranges, "r1": Range.of(0, ranges["r1"].high / 2)}

    def trials():
        return Trials(float_model, ranges, CONFIG, runs_of(float_model, [feeds[i] for i in (0, 2, 4)]))

    def outputs(one, plan):
        found = {}
        one.add_outputs(plan, found)
        return found

    known = trials()
    few, wide = known.few, outputs(known, ("r1", "flat"))
    first = [few.error(()), few.with_ranges(half).error(()), few.error((), wide)]
    done = known.work.done
    again = [known.error(()), known.with_ranges(half).error(()), known.error((), wide)]
    assert known.work.done - done == 3, "of each the picture in the middle"
    fresh = trials()
    assert again == [
        fresh.error(()),
        fresh.with_ranges(half).error(()),
        fresh.error((), outputs(fresh, ("r1", "flat"))),
    ]
    assert len({*first, *again}) == 6


def test_raw_is_the_byte_the_picture_had():

    pixels = np.arange(768, dtype=np.float64).reshape(1, 3, 16, 16) % 256
    mean, std = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
    normalised = (pixels - np.reshape(mean, (1, 3, 1, 1))) / np.reshape(std, (1, 3, 1, 1))
    np.testing.assert_array_equal(raw_bytes(normalised.astype(np.float32), Picture(mean, std)), pixels)


@pytest.mark.parametrize("level", ["L4", "L5"])
def test_the_proposal_for_the_demo_is_what_was_planted(level, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    demo._lay_out(demo._digits())
    model = simplify(open_model("digits.onnx"))
    config = input_config.read("input_config.ini")
    feeds = PictureFeeds("pictures", None, tuple(graph_inputs(model.proto)), config)
    found = calibrate(model, feeds, config, level)
    raised = {name for each in found.sensitivities if each.raised for name in each.domain.convolutions}
    assert raised == set(demo._planted(model))
    assert set(found.config.tensor_arrays) == {each.domain.name for each in found.sensitivities[:2]}


@pytest.mark.parametrize("text", [calibration.__doc__, calibrate_command.__doc__], ids=["levels", "calibrate --help"])
def test_the_levels_do_what_their_tables_say(text):
    """The columns: weights per channel, activation ranges fitted, INT16 proposed."""
    lines = text.splitlines()
    head = next(line for line in lines if "weights per channel" in line)
    columns = [head.index(word) for word in ("weights per", "activation ranges", "raised to INT16")]
    rows = {line.split()[0]: line for line in lines[lines.index(head) + 1 :] if line.strip()[:1] == "L"}
    assert {
        n: Level(*(line[at : at + 1] == "x" for at in columns)) for n, line in rows.items() if n in LEVELS
    } == LEVELS


@pytest.mark.parametrize("name", LEVELS)
def test_the_level_without_bits_finds_the_same_ranges(name):
    assert LEVELS[WITHOUT_BITS[name]] == replace(LEVELS[name], bits=False)


def test_above_l1_the_ranges_of_uint8_tensors_include_0_and_no_other(float_model, feeds):
    plain, second = (calibrate(float_model, feeds, CONFIG, level).ranges for level in ("L1", "L2"))
    assert plain["flat"].low > 0 and second["flat"].low == 0 and second["flat"].high == plain["flat"].high
    assert second["sig"].low == plain["sig"].low > 0


@pytest.mark.parametrize(("count", "tried"), [(1, 1), (3, 3), (4, 4), (5, 4)])
def test_trials_are_made_on_four_pictures_evenly_chosen(float_model, feeds, count, tried, monkeypatch):
    seen = []

    def stopping(model, ranges, config, chosen, *rest):
        seen.extend(labels[run.feed["data"].tobytes()] for run in chosen)
        raise InputError("seen enough")

    monkeypatch.setattr(calibration, "Trials", stopping)
    shown = [(str(i), feeds[i][1]) for i in range(count)]
    labels = {feed["data"].tobytes(): label for label, feed in shown}
    with pytest.raises(InputError, match="seen enough"):
        calibrate(float_model, shown, CONFIG, "L4")
    order = [label for label, feed in sorted(shown, key=lambda run: content_key(run[1]))]
    assert TRIALS == 4 and len(seen) == tried and {seen[0], seen[-1]} == {order[0], order[-1]}


def test_the_statistics_a_level_needs():
    nodes = [
        conv("c", "data"),
        node("Relu", ["c"], "r"),
        onnx.helper.make_node("ConvTranspose", ["r", "t.w", "t.b"], ["t"], name="t"),
        node("MatMul", ["t", "m"], "y"),
        node("Softmax", ["y"], "s", axis=2),
        node("Softmax", ["t"], "u"),
    ]
    constants = weights("c", (4, 3, 1, 1)) | {"m": np.ones((4, 5), np.float32)}
    constants |= {"t.w": np.ones((4, 2, 1, 1), np.float32), "t.b": np.zeros(2, np.float32)}
    analysis = analyse(model(nodes, constants, {"data": (1, 3, 4, 4)}, ["s", "u"]).proto, ["data"])
    plain, full = (selection(analysis, LEVELS[level]) for level in ("L1", "L5"))
    assert plain.channels == full.channels == {"c": 1, "t": 1, "y": -1}
    assert plain.softmax == full.softmax == {"y": 2, "t": -1}
    assert (plain.histograms, full.histograms) == (frozenset(), {"r", "t"}), "the picture's range is never fitted"


def test_a_fixed_model_that_does_not_run_is_refused_on_the_first_picture(monkeypatch):
    """What breaks here is a rule: the table of a function with one entry in place of one for every integer."""

    def look_up(call, function):
        index = call.emit.cast(call.operands[0].name, np.dtype(np.int32))
        table = call.emit.constant(np.zeros(1, np.uint8))
        name = call.emit.add("Gather", [table, index], call.emit.stored(call.name))
        return Integers(name, call.output.dtype, call.output)

    monkeypatch.setattr(curves, "look_up", look_up)

    data = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
    with pytest.raises(
        ModelError, match=r"^net.onnx: its fixed model does not run \(.*Gather.*\)\. .* report this line"
    ):
        rehearse(simplify(residual_net()), ("0", {"data": data}), CONFIG)


ANALYSIS = analyse(residual_net().proto, ["data"])


def test_the_inputs_of_a_concat_are_not_fitted_apart_from_its_output():
    """They share one scale, which is made of the range of the output."""
    nodes = [conv("a", "data"), node("Relu", ["a"], "ra"), conv("b", "data"), node("Relu", ["b"], "rb")]
    nodes += [node("Concat", ["ra", "rb"], "y", axis=1), conv("c", "y")]
    constants = weights("a", (16, 3, 1, 1), 1) | weights("b", (16, 3, 1, 1), 2) | weights("c", (4, 32, 1, 1), 3)
    analysis = analyse(model(nodes, constants, {"data": (1, 3, 4, 4)}, ["c"]).proto, ["data"])
    assert analysis.domain["ra"] == analysis.domain["rb"] == analysis.domain["y"]
    trial = SimpleNamespace(analysis=analysis, domains=(Domain("y", ("ra", "rb", "y"), ("c",), 64),))
    ranges = dict.fromkeys(("data", "ra", "rb", "y", "c"), Range.of(0, 8))
    assert _narrow_domains(SimpleNamespace(trial=trial, ranges=ranges)) == [("y",)]


class StubTrials:
    """The outputs' error is 1 with the plain range of r1, ``after`` with any other."""

    pictures = 1
    few = property(lambda self: self)

    def __init__(self, after, ranges=None):
        self.after = after
        self.ranges = ranges or {"r1": Range.of(0, 8)}
        self.work = Work()
        self.trial = SimpleNamespace(analysis=ANALYSIS, domains=(Domain("r1", ("r1",), ("c2",), 64),))

    def with_ranges(self, ranges):
        return StubTrials(self.after, ranges)

    def keep(self):
        pass

    def error(self, raised):
        return 1.0 if self.ranges["r1"].high == 8 else self.after


@pytest.mark.parametrize(
    ("own", "after", "tried", "taken"),
    [
        (0.5, 0.5, True, True),
        (0.6, 0.95, True, True),  # at most 60 % of min_max's own error, and 5 % off the outputs'
        (0.61, 0.1, False, False),
        (0.6, 0.96, True, False),
        (0.6, 1.0, True, False),
        (0.6, 1.5, True, False),
    ],
)
def test_a_range_is_tried_and_taken_where_it_is_worth_it(monkeypatch, own, after, tried, taken):
    given = [Proposal(0, 8, MIN_MAX, 1.0), Proposal(0, 4, MSE, own)]
    monkeypatch.setattr(calibration, "_proposals", lambda *_: given)
    ranges, fits = fit_ranges(StubTrials(after), None)
    assert [fit.tensors for fit in fits] == ([("r1",)] if tried else [])
    assert ranges["r1"].high == (4 if taken else 8)
    if taken:
        assert ranges["r1"].wide.high == 8, "INT16 keeps all of it"
        assert (fits[0].taken.kind, fits[0].before, fits[0].after) == (MSE, 1.0, after)


def test_what_few_pictures_chose_is_verified_with_the_same_ranges(monkeypatch):
    """So that what they ran is not run again."""
    given = [Proposal(0, 8, MIN_MAX, 1.0), Proposal(0, 4, MSE, 0.3), Proposal(0, 6, MSE, 0.4)]
    monkeypatch.setattr(calibration, "_proposals", lambda *_: given)
    log = []

    class Logged(StubTrials):
        def with_ranges(self, ranges):
            return Logged(self.after, ranges)

        def error(self, raised):
            log.append(self.ranges)
            return {8: 1.0, 6: 0.7, 4: 0.5}[self.ranges["r1"].high]

    ranges, _ = fit_ranges(Logged(0), None)
    assert [each["r1"].high for each in log] == [8, 8, 4, 6, 4]
    assert log[2] is log[4] is ranges


@pytest.mark.parametrize(("threshold", "raised"), [(0.002, ["b"]), (0.0019, ["b", "a"]), (0.005, []), (0, ["b", "a"])])
def test_what_changes_the_outputs_by_more_is_raised_most_sensitive_first(threshold, raised):
    effects = {"a": 0.002, "b": 0.005, "c": 0.0}
    domains = tuple(Domain(name, (name,), (name,), 1) for name in effects)

    def error(others, against):
        return sum(effects[name] for name in effects.keys() - set(others))

    trials = SimpleNamespace(
        trial=SimpleNamespace(domains=domains),
        work=Work(),
        pictures=1,
        add_outputs=lambda *_: None,
        keep=lambda: None,
        error=error,
    )
    trials.few = trials
    found = sensitivities(trials, threshold)
    assert [each.domain.name for each in found if each.raised] == raised
    assert raised or max(each.effect for each in found) == 0.005
    assert THRESHOLD == 0.002


def test_what_few_pictures_find_is_raised_for_what_all_say():
    domains = tuple(Domain(name, (name,), (name,), 1) for name in "abcd")
    on_few, on_all = {"a": 0.0012, "b": 0.0015, "c": 0, "d": 0}, {"a": 0.0025, "b": 0.001, "c": 0, "d": 0}

    def trials(effects, pictures):
        def error(others, against):
            return sum(effects[name] for name in effects.keys() - set(others))

        return SimpleNamespace(
            trial=SimpleNamespace(domains=domains),
            work=Work(),
            pictures=pictures,
            add_outputs=lambda *_: None,
            keep=lambda: None,
            error=error,
        )

    many = trials(on_all, 4)
    many.few = trials(on_few, 2)
    found = {each.domain.name: each for each in sensitivities(many, 0.002)}
    assert [name for name, each in found.items() if each.raised] == ["a"]
    assert (found["a"].effect, found["b"].effect) == (0.0025, 0.001)
    assert found["c"].together == 2


@pytest.mark.parametrize("count", [MANY - 1, MANY])
def test_of_many_domains_one_picture_finds_what_all_say(count):
    """Each of the trials by what it runs on: first alone, few, all."""
    domains = tuple(Domain(f"d{i}", (f"d{i}",), (f"d{i}",), 1) for i in range(count))
    asked = {"first": 0, "few": 0, "all": 0}

    def trials(who, culprit):
        def error(others, against):
            asked[who] += 1
            return 0.0 if culprit in others else 0.003

        return SimpleNamespace(
            trial=SimpleNamespace(domains=domains),
            work=Work(),
            pictures={"first": 1, "few": 2, "all": 4}[who],
            add_outputs=lambda *_: None,
            keep=lambda: None,
            error=error,
        )

    every = trials("all", "d7")
    every.few, every.first = trials("few", "d7"), trials("first", "d7")
    assert [each.domain.name for each in sensitivities(every) if each.raised] == ["d7"]
    assert asked["all"] == 1 and bool(asked["first"]) == (count >= MANY) != bool(asked["few"])


@pytest.mark.parametrize(
    ("values", "reference", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 1.0], [1.0, 2.0], 0.2),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.5, 0.0], [0.0, 0.0], 1.0),
        ([float("nan"), 0.0], [1.0, 1.0], float("inf")),
        ([float("inf"), 0.0], [1.0, 1.0], float("inf")),
    ],
)
def test_the_error_is_the_share_of_energy(values, reference, error):
    import numpy as np

    assert _error(np.array(values), np.array(reference)) == pytest.approx(error)


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
    whole = count_values(np.concatenate([arrays[name] for name in counted]))
    assert made == proposals(whole, low, high, WORTH_TRYING)


def test_the_bar_counts_runs_one_by_one():
    seen = []
    work = Work(lambda done, total: seen.append((done, total)))
    work.expect(2)
    work.expect(1)
    for _ in range(3):
        work.step()
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_runs_are_announced_and_end_where_they_were_announced():
    seen = []
    work = Work(lambda done, total: seen.append((done, total)))
    work.expect(1)
    work.step()
    work.step()
    work.expect(3)
    work.step()
    work.finish()
    assert seen == [(1, 1), (2, 2), (3, 5), (5, 5)]
