"""`sgsdump tune` raises nothing where INT8 is within the limits, and the cheapest plan within them where it is not."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_nets import conv, model, node, weights

import sgsdump
from sgsdump.cli import main
from sgsdump.sidecars import input_config

TUNE = ["tune", "-m", "net.onnx", "-i", "cal", "--quant-level", "L2", "-o", "out"]
FIRST = "With all convolutions at INT8, the outputs are within the limits (COS >= 0.99, RMSE <= 0.1) on all "


def write_net(folder, bias=None):
    """Three convolutions; with ``bias`` the output is small differences about it, which 8 bits lose."""
    constants = {**weights("a", (6, 3, 3, 3), 1), **weights("b", (6, 6, 3, 3), 2), **weights("c", (4, 6, 1, 1), 3)}
    if bias is not None:
        constants["b.w"][1::2] = constants["b.w"][::2] * np.float32(1.001)
        constants["c.w"][:, 1::2] = -constants["c.w"][:, ::2]
        constants["b.b"][1::2] = constants["b.b"][::2]
        constants["c.b"] = np.full(4, bias, np.float32)
    nodes = [conv("a", "data", pads=[1] * 4), node("Relu", ["a"], "ra"), conv("b", "ra", pads=[1] * 4)]
    nodes += [node("Relu", ["b"], "rb"), conv("c", "rb")]
    onnx.save(model(nodes, constants, {"data": (1, 3, 8, 8)}, ["c"]).proto, folder / "net.onnx")


def write_arrays(folder, name, seed, scale=1.0, count=4):
    (folder / name).mkdir()
    rng = np.random.default_rng(seed)
    for index in range(count):
        array = rng.normal(0, scale, (1, 3, 8, 8)).astype(np.float32)
        np.save(folder / name / f"{name}{index}.npy", array)


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sgsdump.fixedpoint.reports.pareto_chart.pareto_png", lambda result: b"png")
    write_net(tmp_path)
    write_arrays(tmp_path, "cal", 0)
    write_arrays(tmp_path, "val", 1)
    return tmp_path


def tuned(capsys, *given):
    status = main([*TUNE, *given])
    said = "".join(capsys.readouterr()).splitlines()
    lines = [line for line in said if not line.startswith(("assumed:", "warning: the images look like noise"))]
    document = json.loads(Path("out/pareto.json").read_text())
    (taken,) = [row for row in document["rows"] if row["taken"]]
    return status, lines, document, taken


def worst_rmse(row):
    return max(row["rmse"].values())


@pytest.mark.parametrize("held", [[], ["--validate", "val"]])
def test_int8_within_the_limits_is_recommended_as_it_is(work, capsys, held):
    status, lines, document, taken = tuned(capsys, *held)
    images = 8 if held else 4
    assert status == 0 and f"{FIRST}{images} images: no INT16 needed" in lines
    assert [line.split()[:2] for line in lines if line.startswith("*  ")] == [["*", "INT8"]]
    assert taken["label"] == "INT8" and taken["raised"] == []
    assert input_config.read(work / "out" / "input_config.ini").tensor_arrays == ()
    told = {"pictures": images, "held_out": False, "past": [], "taken": True}
    assert document["limits"] == {"min_cos": 0.99, "max_rmse": 0.1, **told}
    assert len(document["rows"]) > 2, "the plans for those who want less error"
    assert not any("is clipped" in line for line in lines), "room is no value that was seen"


def test_a_stricter_limit_raises_the_cheapest_plan_within_it(work, capsys):
    *_, document, _ = tuned(capsys)
    errors = sorted({worst_rmse(row) for row in document["rows"]})
    limit = (errors[0] + errors[-1]) / 2
    status, lines, document, taken = tuned(capsys, "--max-rmse", str(limit))
    assert (
        status == 0
        and f"With all convolutions at INT8, outputs exceed the limits (RMSE <= {limit:g}) on 4 images: c" in lines
    )
    within = [row for row in document["rows"] if worst_rmse(row) <= limit]
    assert taken["raised"] and taken["bytes"] == min(row["bytes"] for row in within)
    assert input_config.read(work / "out" / "input_config.ini").tensor_arrays


def test_where_no_plan_is_within_the_limits_the_choice_is_by_error(work, capsys):
    status, lines, document, taken = tuned(capsys, "--max-rmse", "1e-7")
    assert status == 1 and document["limits"]["past"] == ["c"] and not document["limits"]["taken"] and taken["raised"]
    assert (
        "warning: no tried plan is within the limits (RMSE <= 1e-07); plan * was therefore chosen by its error" in lines
    )


def test_images_held_out_have_to_hold_the_limits_too(work, capsys):
    """Eight times louder images clip, so INT8 exceeds the limits there alone."""
    write_arrays(work, "loud", 2, 8.0)
    status, lines, document, _ = tuned(capsys, "--validate", "loud")
    assert any(
        line.startswith("With all convolutions at INT8, outputs exceed the limits") for line in lines
    ) and document["limits"]["past"] == ["c"]
    assert status == 0, "no limit was given"


def test_an_output_is_judged_as_diagnose_judges_it(work, capsys):
    """COS and RMSE hold, because the output lies about 10, but what differs from image to image is lost."""
    write_net(work, bias=10.0)
    found = sgsdump.diagnose("net.onnx", "cal", quant_level="L2")
    *_, document, _ = tuned(capsys)
    int8 = document["rows"][0]
    assert worst_rmse(int8) < 0.1 and min(int8["cos"].values()) > 0.99
    assert document["limits"]["past"] == ["c"] and not found.passes


def test_all_images_judge_int8_though_the_search_sees_ten(work, capsys):
    write_arrays(work, "more", 3, count=12)
    status, lines, document, _ = tuned(capsys, "-i", "more")
    assert status == 0 and f"{FIRST}12 images, held out too: no INT16 needed" in lines
    assert document["pictures"] == 10 and document["held_out"]["pictures"] == 12 and document["limits"]["held_out"]


def test_a_target_and_limits_exclude_each_other(work, capsys):
    assert main([*TUNE, "--target", "output-cos>=0.9", "--min-cos", "0.99"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "--target cannot be combined with --min-cos, --max-rmse:" in said[0]
