"""The promises of ``diagnose`` and ``tune`` are of held-out images, whatever the files are called."""

import json
import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from small_nets import conv, ini_of_arrays, model, node, weights

import sgsdump
from sgsdump.cli import main
from sgsdump.fixedpoint.quantisation.objective import sums_of
from sgsdump.fixedpoint.tuning import unseen
from sgsdump.fixedpoint.tuning.unseen import Run, expected_error, mean_error
from sgsdump.fixedpoint.tuning.worth import AS_IT_IS, PLAN
from sgsdump.fixedpoint.verbs import diagnose_unseen
from sgsdump.models.feeds.by_content import content_key, folds_of
from sgsdump.sidecars import input_config

NOISE = "the images look like noise (neighbouring values are uncorrelated)"
OTHERS = ": results do not generalise to other images; give 12 or more real images"
OF_CALIBRATION = "he figures apply to the calibration images only; give 12 or more different images"
ALL_16 = ini_of_arrays("c", input_format="ALL_INT16")
GIVEN = ["-m", "net.onnx", "-i", "cal", "--quant-level", "L2"]


def images(seed, count, side=8):
    """Smooth images: sums of a few waves, of another loudness each."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side] / side
    made = []
    for _ in range(count):
        angles, sizes = rng.uniform(0, 6, (3, 3)), rng.normal(0, 1, 3) * rng.lognormal(0, 0.5)
        waves = [size * np.sin(3 * x * a + 3 * y * b + c) for size, (a, b, c) in zip(sizes, angles)]
        made.append(np.stack([sum(waves), waves[0], waves[1] + 1])[None].astype(np.float32))
    return made


def write(folder, arrays, names=None):
    folder.mkdir(exist_ok=True)
    for index, array in enumerate(arrays):
        np.save(folder / f"{names[index] if names else index:03}.npy", array)


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sgsdump.fixedpoint.reports.pareto_chart.pareto_png", lambda result: b"png")
    constants = {**weights("a", (6, 3, 3, 3), 1), **weights("b", (6, 6, 3, 3), 2), **weights("c", (4, 6, 1, 1), 3)}
    nodes = [conv("a", "data", pads=[1] * 4), node("Relu", ["a"], "ra"), conv("b", "ra", pads=[1] * 4)]
    nodes += [node("Relu", ["b"], "rb"), conv("c", "rb")]
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c"]).proto, "net.onnx")
    write(Path("cal"), images(0, 14))
    return tmp_path


def findings(folder, kind):
    return [each for each in json.loads(Path(folder, "layers.json").read_text())["findings"] if each["kind"] == kind]


def judged(arrays, judges, **options):
    """What a model that is calibrated on ``arrays`` gives of ``judges`` in onnxruntime, beside the float model."""
    sgsdump.calibrate("net.onnx", arrays, quant_level="L2", **options).save("fold.onnx")
    floats, fixed = onnxruntime.InferenceSession("net.onnx"), onnxruntime.InferenceSession("fold.onnx")
    (given,) = fixed.get_inputs()
    for array in judges:
        real = floats.run(None, {"data": array})[0].astype(np.float64)
        yield fixed.run(None, {given.name: array})[0].reshape(real.shape), real


def by_hand(arrays, power, **options):
    """The error to expect, and that of each image, in sums of ``power``: each fold is calibrated anew without its
    images, and what that adds counts by (m + 1) / (n + 1)."""
    held, kept, whole = [], [], []
    for fold in folds_of([content_key({"data": array}) for array in arrays]):
        others = [array for index, array in enumerate(arrays) if index not in fold]
        judges, share = [arrays[index] for index in fold], (len(others) + 1) / (len(arrays) + 1)
        seen = judged(arrays, judges, **options)
        for (ours, real), (known, _) in zip(list(judged(others, judges, **options)), seen):
            held.append((np.abs(ours - real) ** power).sum())
            kept.append(share * held[-1] + (1 - share) * (np.abs(known - real) ** power).sum())
            whole.append((np.abs(real) ** power).sum())
    rest = np.array([(sum(kept) - k) / (sum(whole) - w) for k, w in zip(kept, whole)])
    above = math.sqrt((len(rest) - 1) / len(rest) * ((rest - rest.mean()) ** 2).sum())
    return sum(kept) / sum(whole) + above, np.array(held) / whole


def test_the_promise_is_of_images_held_out_of_the_calibration(work, capsys):
    assert main(["diagnose", *GIVEN, "-o", "d"]) == 0
    said = capsys.readouterr().out
    (found,) = findings("d", "unseen")
    expected, errors = by_hand(images(0, 14), 1)
    figures = found["figures"]
    assert figures["images"] == 14 and figures["folds"] == 3 and found["facts"]["model"] == "as it is"
    assert figures["expected_error"] == pytest.approx(expected, rel=1e-4)
    assert figures["worst_image"] == pytest.approx(max(errors), rel=1e-4)
    assert figures["median_image"] == pytest.approx(np.median(errors), rel=1e-4)
    text = f"{figures['expected_error']:.3g} (error {np.median(errors):.3g} on the median image and "
    text += f"{max(errors):.3g} on the worst image; "
    assert f"Expected output error on new images: {text}14 images, held out in 3 folds)." in said


def test_what_is_advised_is_promised_with_room_in_the_ranges_of_each_fold(work):
    Path("all16.ini").write_text(ALL_16)
    assert main(["diagnose", *GIVEN, "--input-config", "all16.ini", "-o", "d"]) == 0
    found = {each["facts"]["model"]: each["figures"] for each in findings("d", "unseen")}
    for kind, room in ((AS_IT_IS, False), (PLAN, True)):
        expected, errors = by_hand(images(0, 14), 1, input_config="all16.ini", range_room=room)
        assert found[kind]["expected_error"] == pytest.approx(expected, rel=1e-3)
        assert found[kind]["worst_image"] == pytest.approx(max(errors), rel=1e-3)
        assert found[kind]["median_image"] == pytest.approx(np.median(errors), rel=1e-3)


@pytest.mark.parametrize("refused", [True, False])
def test_a_plan_that_is_worse_on_images_held_out_is_not_advised(refused, work, monkeypatch, capsys):
    """Of a network with a channel that is 1,000 times as loud as its neighbours."""
    in_folds = diagnose_unseen.in_folds

    def doubtful(*given):
        found = in_folds(*given)
        object.__setattr__(found.runs[PLAN].outputs, "worse_than", lambda before: ("c",) if refused else ())
        return found

    monkeypatch.setattr(diagnose_unseen, "in_folds", doubtful)
    net = onnx.load("net.onnx")
    values = {each.name: onnx.numpy_helper.to_array(each).copy() for each in net.graph.initializer}
    values["b.w"][0] *= 1000
    values["b.b"][0] *= 1000
    values["c.w"][:, 0] /= 1000
    for each in net.graph.initializer:
        each.CopyFrom(onnx.numpy_helper.from_array(values[each.name], each.name))
    onnx.save(net, "net.onnx")
    main(["diagnose", *GIVEN, "-o", "d"])
    said = capsys.readouterr().out
    assert ("Copy these lines into input_config.ini" in said) is not refused
    assert ("makes c worse on held-out images" in said) is refused
    raised = input_config.read("d/input_config.ini").tensor_arrays
    assert bool(raised) is not refused


@pytest.mark.parametrize("count", [11, 12, 23, 24])
def test_no_image_is_judged_by_a_calibration_on_it(count, work, monkeypatch):
    seen = []
    monkeypatch.setattr(unseen, "calibrate", lambda model, feeds, *_: seen.append(feeds) or _nothing())
    monkeypatch.setattr(unseen, "side_ranges", lambda statistics: None)
    feeds = [{"data": array} for array in images(1, count)]
    from sgsdump.fixedpoint.verbs.network import open_network
    from sgsdump.models.network import named_network

    opened = open_network(named_network("net.onnx", [*feeds, feeds[0]], {}), "L2")
    how = unseen.Calibrating(opened.model, opened.config, "L2", lambda *_: {})
    folds = unseen.folds_for(how, opened.feeds())
    if count < 12:
        assert folds is None, "the twelfth is one of the others again"
        return
    assert len(folds.folds) == len(seen) == (3 if count < 24 else 2)
    for number, fold in enumerate(seen):
        judged = [folds.feeds[i][1] for i, of in enumerate(folds.fold_of) if of == number]
        known = {content_key(feed) for _, feed in fold}
        assert judged and len(judged) <= 16 and not known & {content_key(feed) for feed in judged}
        assert folds.folds[number].share == (len(fold) + 1) / (count + 2)


def _nothing():
    from types import SimpleNamespace

    return SimpleNamespace(ranges={}, statistics=None)


def test_the_expected_error_is_one_standard_error_above():
    rng = np.random.default_rng(3)
    real, off = rng.normal(0, 1, (9, 50)), rng.normal(0, 0.1, (9, 50)) * rng.lognormal(0, 1, (9, 1))
    sums = [{"y": sums_of(a + b, a)} for a, b in zip(real, off)]
    found = expected_error(sums, sums, mean_error)
    alone, sizes = np.abs(off).sum(axis=1), np.abs(real).sum(axis=1)
    rest = np.array([(alone.sum() - a) / (sizes.sum() - s) for a, s in zip(alone, sizes)])
    above = math.sqrt(8 / 9 * ((rest - rest.mean()) ** 2).sum())
    assert found.expected == pytest.approx(alone.sum() / sizes.sum() + above)
    assert (found.median, found.worst) == pytest.approx((np.median(alone / sizes), (alone / sizes).max()))
    assert found.images == 9


def test_what_holding_out_adds_counts_as_the_ranges_of_all_images_do():
    """With a share of 0.5 half of what is added counts; the worst image stays as it was measured."""
    from types import SimpleNamespace

    real = np.ones((3, 4))
    held, seen = ([{"y": sums_of(a + d, a)} for a in real] for d in (0.3, 0.1))
    runs = [SimpleNamespace(by_picture=dict(enumerate(each))) for each in (held, seen)]
    found = Run(*runs, (0.5, 0.5, 0.5)).expected(mean_error)
    assert found.expected == pytest.approx(0.2) and found.worst == pytest.approx(0.3)
    squares = Run(*runs, (0.5, 0.5, 0.5)).expected(lambda sums: sums["y"].dd / sums["y"].bb)
    assert squares.expected == pytest.approx((0.3**2 + 0.1**2) / 2) and squares.worst == pytest.approx(0.3**2)


def test_an_output_of_zeros_has_no_error_and_without_any_other_it_is_infinite():
    zeros, ones = np.zeros(4), np.ones(4)
    both = [{"y": sums_of(1.2 * ones, ones), "z": sums_of(ones, zeros)}] * 2
    assert expected_error(both, both, mean_error).figures == pytest.approx((0.2, 0.2, 0.2))
    odd = [{"z": sums_of(ones, zeros)}] * 2
    assert expected_error(odd, odd, mean_error).figures == (math.inf,) * 3


def test_names_order_and_place_of_the_files_change_nothing(work, capsys):
    order = np.random.default_rng(9).permutation(14)
    write(Path("other"), images(0, 14), list(order))
    loader = "import numpy as np\ndef load_data():\n    for i in range(13, -1, -1):\n"
    Path("loader.py").write_text(loader + "        yield {'data': np.load(f'cal/{i:03}.npy')}\n")
    plans, promises = [], []
    ways = (["-i", "cal"], ["-i", "other"], ["--data-loader-script", "loader.py"])
    for number, way in enumerate(ways):
        given = ["-m", "net.onnx", *way, "--quant-level", "L3"]
        assert main(["tune", *given, "--max-rmse", "0.002", "-o", f"t{number}"]) in (0, 1)
        assert main(["diagnose", *given, "--max-rmse", "0.002", "-o", f"d{number}"]) in (0, 1)
        document = json.loads(Path(f"t{number}", "pareto.json").read_text())
        plans.append({key: document[key] for key in ("rows", "held_out", "limits", "cloud")})
        promises.append(json.loads(Path(f"d{number}", "layers.json").read_text())["findings"])
    assert plans[0]["rows"][0]["expected_error"] > 0 and any(each["kind"] == "unseen" for each in promises[0])
    assert plans[1] == plans[0] and plans[2] == plans[0]
    assert promises[1] == promises[0] and promises[2] == promises[0]
    ranges = [Path(f"d{number}", "log", "tensor_min_max.txt").read_bytes() for number in range(3)]
    assert len(set(ranges)) == 1


def test_tune_promises_the_error_on_images_held_out(work, capsys):
    assert main(["tune", *GIVEN, "--max-rmse", "0.002", "-o", "t"]) in (0, 1)
    said = "".join(capsys.readouterr())
    document = json.loads(Path("t", "pareto.json").read_text())
    (taken,) = (row for row in document["rows"] if row["taken"])
    figures = [f"{taken[name]:.3g}" for name in ("expected_error", "median_image", "worst_image")]
    before = f"INT8 {document['rows'][0]['expected_error']:.3g} → " if taken["label"] != "INT8" else ""
    median, worst = f"error {figures[1]} on the median image", f"{figures[2]} on the worst image"
    line = f"expected error on new images: {before}plan * {figures[0]} ({median} and {worst}"
    assert f"{line}; 14 images, held out in 3 folds)" in said
    assert document["held_out"]["folds"] == 3 and document["held_out"]["pictures"] == 14


def test_tune_runs_each_plan_with_room_in_the_ranges_of_each_fold(work):
    """All at 16 bits, by hand, in squares."""
    for name, text in (("mine.ini", ALL_16.partition("[CONV")[0]), ("all16.ini", ALL_16)):
        Path(name).write_text(text)
    assert main(["tune", *GIVEN, "--input-config", "mine.ini", "-o", "t"]) == 0
    row = json.loads(Path("t", "pareto.json").read_text())["rows"][-1]
    expected, errors = by_hand(images(0, 14), 2, input_config="all16.ini", range_room=True)
    assert row["label"] == "INT16" and row["expected_error"] == pytest.approx(expected, rel=1e-3)
    assert row["worst_image"] == pytest.approx(max(errors), rel=1e-3)
    assert row["median_image"] == pytest.approx(np.median(errors), rel=1e-3)


def test_int8_within_the_limits_on_calibration_images_alone_is_not_recommended(work, capsys):
    """A limit between the error on the calibration images and that on the images held out."""
    assert main(["tune", *GIVEN, "-o", "t"]) == 0
    int8 = json.loads(Path("t", "pareto.json").read_text())["rows"][0]
    on_calibration = sgsdump.diagnose("net.onnx", "cal", quant_level="L2")
    own = on_calibration.comparison.rows[-1].rmse
    capsys.readouterr()
    limit = own * 1.02
    assert int8["expected_error"] > 0
    assert main(["tune", *GIVEN, "--max-rmse", f"{limit}", "-o", "t"]) in (0, 1)
    assert "With all convolutions at INT8, outputs exceed the limits" in "".join(capsys.readouterr())


@pytest.mark.parametrize("command", ["diagnose", "tune", "cure", "tune --first", "tune --explain"])
@pytest.mark.parametrize(
    ("arrays", "warned"),
    [
        (images(2, 1), "only one image given"),
        (images(2, 3), "only 3 different images given"),
        ([*images(2, 3), *images(2, 3)], "only 3 different images given"),
        (images(2, 4), ""),
        ([*np.random.default_rng(0).normal(size=(5, 1, 3, 8, 8)).astype(np.float32)], NOISE),
        ([*np.random.default_rng(0).normal(size=(2, 1, 3, 8, 8)).astype(np.float32)],
         f"only 2 different images given and {NOISE}"),
    ],
)  # fmt: skip
def test_images_that_speak_for_no_others_are_warned_of(command, arrays, warned, work, capsys):
    write(Path("few"), arrays)
    given = ["-m", "net.onnx", "-i", "few", "--quant-level", "L2"]
    if command == "tune --explain":
        assert main(["calibrate", *given, "-o", "fixed.onnx"]) == 0
        assert "do not generalise to other images" not in capsys.readouterr().out
        given = ["--ranges", "log/tensor_min_max.txt", *given]
    assert main([*command.split(), *given, "-o", "out.onnx" if command == "cure" else "out"]) == 0
    lines = "".join(capsys.readouterr()).splitlines()
    said = [line for line in lines if line.startswith("warning: ") and "do not generalise to other images" in line]
    assert said == ([f"warning: {warned}{OTHERS}"] if warned else [])


@pytest.mark.parametrize("command", ["diagnose", "tune"])
def test_figures_of_few_images_are_said_to_be_of_the_calibration(command, work, capsys):
    write(Path("few"), images(2, 11))
    assert main([command, "-m", "net.onnx", "-i", "few", "--quant-level", "L2", "-o", "out"]) == 0
    said = capsys.readouterr().out
    assert OF_CALIBRATION in said and "xpected" not in said
    write(Path("val"), images(3, 3))
    given = ["-m", "net.onnx", "-i", "few", "--quant-level", "L2", "-o", "out", "--validate", "val"]
    assert main([command, *given]) == 0
    said = capsys.readouterr().out
    assert OF_CALIBRATION not in said and "3 images not used for calibration)" in said
