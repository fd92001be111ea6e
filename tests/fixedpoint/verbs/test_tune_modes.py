"""``sgsdump.tune`` does in each mode what the command does; results show, draw and save themselves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from small_nets import loud_net

import sgsdump
from sgsdump.cli import main

matplotlib.use("Agg")


@pytest.fixture
def feeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, np.ndarray]]:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(loud_net(300.0).proto.SerializeToString())
    generator = np.random.default_rng(1)
    arrays = [generator.normal(size=(1, 3, 8, 8)).astype(np.float32) for _ in range(3)]
    Path("feeds").mkdir()
    for number, array in enumerate(arrays):
        np.save(f"feeds/{number}.npy", array)
    return [{"x": array} for array in arrays]


def words(text: str) -> str:
    """Without the figures: the ranges of a file have six digits."""
    return " ".join(re.sub(r"less than |[\d.]+", " ", text).split())


def test_explain_of_ranges_alone_and_measured(feeds, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = sgsdump.calibrate("net.onnx", feeds, quant_level="L1")
    fixed.save("net_fixed.onnx", log="log")
    by_rule = sgsdump.tune("net.onnx", explain=True, ranges=fixed)
    assert by_rule.measurement is None and "ra" in by_rule.names  # its range is over 30
    found = sgsdump.tune("net.onnx", feeds, explain=True, ranges=fixed, quant_level="L1", max_rmse=0.05)
    assert found.to_copy == "[CONV_CONFIG]\ntensor_arrays='ra';" and found.advice[0].verdict == "yes"
    assert found.save("python.json") == Path("python.json")
    line = "tune --explain --ranges log/tensor_min_max.txt -m net.onnx -i feeds --quant-level L1 --max-rmse 0.05"
    assert main([*line.split(), "--json", "command.json"]) == 0
    assert words(capsys.readouterr().out).endswith(words(str(found)))
    of_python, of_command = (json.loads(Path(f"{name}.json").read_text()) for name in ("python", "command"))
    assert of_python["tensor_arrays"] == of_command["tensor_arrays"] == ["ra"]
    for plan, errors in of_command["outputs"].items():  # of a file's ranges in six digits
        assert of_python["outputs"][plan]["c"] == pytest.approx(errors["c"], rel=1e-2), plan
    assert next(iter(found.to_pandas()["name"])) == found.advice[0].convolution.name
    page = found.to_html("page.html").read_text()
    assert "tensor_arrays=&#x27;ra&#x27;" in page and found._repr_html_() in page
    bars = found.plot(Figure().subplots()).patches
    assert max(bar.get_width() for bar in bars) == found.advice[0].measured.brings
    assert max(bar.get_width() for bar in by_rule.plot(Figure().subplots()).patches) == pytest.approx(
        max(entry.signs.width for entry in by_rule.advice)
    )


def test_explain_with_both_dumps(feeds) -> None:
    fixed = sgsdump.calibrate("net.onnx", feeds, quant_level="L1")
    benchmark, sample = (sgsdump.simulate(each, feeds[0]) for each in ("net.onnx", fixed))
    found = sgsdump.tune("net.onnx", explain=True, ranges=fixed, dump=benchmark, fixed=sample)
    assert {row.name for row in found.rows} >= {"ra", "rb", "c"}
    with pytest.raises(
        sgsdump.SgsdumpError, match="requires a dump of the float model to compare with; also give --dump"
    ):
        sgsdump.tune("net.onnx", explain=True, ranges=fixed, fixed=sample)
    with pytest.raises(sgsdump.SgsdumpError, match="limits on measured outputs"):
        sgsdump.tune("net.onnx", explain=True, ranges=fixed, min_cos=0.9)
    with pytest.raises(TypeError, match="did you mean 'input_config'"):
        sgsdump.tune("net.onnx", explain=True, ranges=fixed, input_confg="input_config.ini")


def test_the_first_plan_is_what_its_command_does(feeds, capsys: pytest.CaptureFixture[str]) -> None:
    found = sgsdump.tune("net.onnx", feeds, first=True, quant_level="L1")
    assert found.passes and found.raised == ("ra",)
    folder = found.save("by_python")
    assert main("tune --first -m net.onnx -i feeds --quant-level L1 -o by_command".split()) == 0
    assert {path.name for path in folder.iterdir()} == {path.name for path in Path("by_command").iterdir()}
    for name in ("optimized.onnx", "fixed.bin", "float.bin", "input_config.ini"):
        assert (folder / name).read_bytes() == Path("by_command", name).read_bytes(), name
    told = [json.loads((each / "rounds.json").read_text())["rounds"] for each in (folder, Path("by_command"))]
    assert told[0] == told[1] and str(found).splitlines()[0] in capsys.readouterr().out
    frame = found.to_pandas()
    assert list(frame["raised"]) == [0, 1] and list(frame["kept"]) == [True, True]
    assert "tensor_arrays" in found._repr_html_() and "raised" not in found.plot(Figure().subplots()).get_title()
    assert found.to_html("page.html").read_text() == (folder / "report.html").read_text()
    assert found.comparison["c"].cos > 0.99


def test_what_a_first_plan_keeps_goes_with_it(feeds) -> None:
    found = sgsdump.tune("net.onnx", feeds, first=True, quant_level="L1", rounds=1)
    folder = found.folder
    assert (folder / "optimized.onnx").exists()
    del found
    assert not folder.exists()


def test_plans_show_and_draw_themselves(feeds) -> None:
    plans = sgsdump.tune("net.onnx", feeds, quant_level="L1", rates=[0.9])
    assert "tensor_arrays=&#x27;ra&#x27;" in plans._repr_html_()
    axes = plans.plot(Figure().subplots())
    assert axes.get_yscale() == "log" and axes.get_legend() is not None
    assert "INT16" in plans.to_html("plans.html").read_text()
