"""An output that a Softmax makes is judged by its probabilities; numpy's own Softmax is the oracle."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from small_nets import model, node

from sgsdump.cli import main
from sgsdump.comparison.metrics import Sums
from sgsdump.comparison.thresholds import DOCUMENTED, Thresholds
from sgsdump.errors import ValuesError
from sgsdump.fixedpoint.quantisation.objective import by_probability, output_error, score, softmax_axes
from sgsdump.fixedpoint.quantisation.trials.integer_outputs import OutputFigures, Probabilities, _changes, _together

CLASSES, IMAGES = 8, 6


def softmax(logits):
    exp = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def diagnosed(capsys, rows):
    """A net whose logits are ``rows`` of inputs, one an image, diagnosed; the finding, the line, and both sides."""
    eye = np.eye(CLASSES, dtype=np.float32)
    nodes = [node("MatMul", ["x", "eye"], "logits"), node("Softmax", ["logits"], "y", axis=-1)]
    onnx.save(model(nodes, {"eye": eye}, {"x": (1, CLASSES)}, ["y"]).proto, "net.onnx")
    Path("runs").mkdir()
    for index, row in enumerate(rows):
        np.savez(f"runs/{index}.npz", x=row[None].astype(np.float32))
    main(["diagnose", "-m", "net.onnx", "-i", "runs", "-o", "d", "--quant-level", "L1"])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Outputs on "))
    (output,) = [f for f in json.loads(Path("d/layers.json").read_text())["findings"] if f["kind"] == "output"]
    fixed = ort.InferenceSession("d/fixed.onnx", providers=["CPUExecutionProvider"])
    ours = np.concatenate([fixed.run(["y"], {"x": row[None].astype(np.float32)})[0] for row in rows])
    return output, line, ours, softmax(np.array(rows))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_logits_far_below_the_top_do_not_matter(capsys):
    """They reach -200, where ranges end 16 below the lowest top; the probabilities are one-hot all the same."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.uniform(-200, -60, (IMAGES, CLASSES)), axis=1)
    rows[np.arange(IMAGES), np.arange(IMAGES)] = np.linspace(2, 4, IMAGES)
    output, line, ours, theirs = diagnosed(capsys, rows)
    assert np.abs(ours - theirs).max() < 1e-3
    assert output["facts"] == {"verdict": "good", "reason": "probabilities"}
    assert output["figures"]["rmse"] < 0.1 and output["figures"]["answers_changed"] == 0
    assert re.search(r": good \(probabilities change by at most [\d.e-]+; no answer changes\)", line)


def test_a_small_error_of_large_logits_that_changes_answers_is_bad(capsys):
    """Steps of 0.8 beside logits of 100, and two classes that differ by 0.3: far within the limits as numbers."""
    rng = np.random.default_rng(2)
    rows = rng.uniform(-100, 80, (IMAGES, CLASSES))
    rows[:, 2] = rng.uniform(90, 100, IMAGES)
    rows[:, 5] = rows[:, 2] + rng.uniform(0.1, 0.5, IMAGES)
    output, line, ours, theirs = diagnosed(capsys, rows)
    figures = output["figures"]
    assert figures["rmse"] < 0.02 and figures["cos"] > 0.999
    changed = (ours.argmax(1) != theirs.argmax(1)).mean()
    assert figures["probability_change"] == pytest.approx(np.abs(ours - theirs).max(), abs=2e-3) and changed > 0
    assert figures["answers_changed"] == pytest.approx(changed, abs=1e-6)
    assert output["facts"] == {"verdict": "bad", "reason": "probabilities"}
    assert f"{100 * changed:.0f} % of the answers change" in line


def test_the_limits_of_probabilities():
    assert Probabilities(0.5, 0.1, 0.5, 0.01).good(DOCUMENTED)
    assert not Probabilities(0.5, 0.11, 0.0, 0.0).good(DOCUMENTED)
    assert not Probabilities(0.1, 0.01, 0.1, 0.02).good(DOCUMENTED)
    assert not Probabilities(np.nan, np.nan, 0.0, 0.0).good(DOCUMENTED)
    assert not Probabilities(0.1, 0.05, 0.0, 0.0).good(Thresholds(max_rmse=0.01))


def test_answers_count_alike_and_the_worst_image_is_told():
    """Two images [1, classes, positions], of one position and of three; numpy's Softmax along the classes."""
    real = [np.array([[[3.0], [0.0], [0.0]]]), np.array([[[5.0, 0.0, 4.0], [0.0, 0.2, 0.0], [0.0, 0.0, 0.0]]])]
    ours = [np.array([[[3.0], [9.0], [0.0]]]), np.array([[[5.0, 0.4, 4.0], [0.0, 0.2, 4.1], [0.0, 0.0, 0.0]]])]
    found = _together([_changes(a, b, 1) for a, b in zip(ours, real)])
    changes = [np.abs(softmax(a.swapaxes(1, 2)) - softmax(b.swapaxes(1, 2))).max(axis=-1) for a, b in zip(ours, real)]
    assert found.largest == pytest.approx(changes[0].max()) and found.mean == pytest.approx(changes[0].mean())
    assert found.changed == 3 / 4
    assert found.sure == 2 / 3, "of the position where the float model is not sure nothing counts"


def test_weighed_logits_past_the_limits_are_bad_though_probabilities_hardly_change():
    """Logits near 0 make a flat Softmax, which changes little in numbers whatever is wrong."""
    sums, flat = Sums(10, 1, 2, 1, 1, 1, 2), Probabilities(0.01, 0.01, 0.0, 0.0)
    assert not OutputFigures(sums, probabilities=flat).good(DOCUMENTED)


def test_what_counts_of_logits():
    real = np.float32([[0, -1, -11, -12, -np.inf]])
    values = np.float32([[0.5, -1.5, -10, 5, 7]])
    ours, theirs = by_probability(values, real, -1)
    p = softmax(real)
    np.testing.assert_allclose(ours[0, :3], (values * p)[0, :3])
    np.testing.assert_allclose(theirs[0, :3], (real * p)[0, :3])
    assert not ours[0, 3:].any() and not theirs[0, 3:].any()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("side", ["values", "real"])
def test_nan_and_infinity_of_logits_show(wrong, place, side):
    arrays = {"values": np.float32([[0.0, 1, 2, -40]]), "real": np.float32([[0.1, 1, 2, -40]])}
    arrays[side][0, place] = wrong
    found = score({"z": arrays["values"]}, {"z": arrays["real"]}, axes={"z": -1})
    with pytest.raises(ValuesError, match="NaN or infinity"):
        output_error(found.sums)


def test_logits_that_are_an_output_themselves_are_judged_as_they_are():
    nodes = [node("Relu", ["x"], "z"), node("Softmax", ["z"], "y", axis=1)]
    assert softmax_axes(model(nodes, {}, {"x": (1, 4)}, ["y"]).proto) == {"z": 1}
    assert softmax_axes(model(nodes, {}, {"x": (1, 4)}, ["y", "z"]).proto) == {}
