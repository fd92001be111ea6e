"""What a result does for its user: order, places, plots, files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import sgsdump
from sgsdump.cli import main
from sgsdump.tensors.types import Range

matplotlib.use("Agg")
VALUES = np.linspace(-1, 1, 50, dtype=np.float32)
ERRORS = {"conv/1": 0.01, "conv/2": 0.5, "conv/3": 0.0, "head": 0.2}


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def comparison():
    sgsdump.save_dump(dict.fromkeys(ERRORS, VALUES), "float.npz")
    sgsdump.save_dump({name: VALUES * (1 + error) for name, error in ERRORS.items()}, "fixed.npz")
    return sgsdump.compare("fixed.npz", "float.npz")


def test_rows_by_error_and_by_place(comparison):
    names = [row.name for row in comparison.worst_first()]
    assert names == ["conv/2", "head", "conv/1", "conv/3"]
    assert comparison.worst_first(2) == comparison.worst_first()[:2] and comparison.worst is comparison.worst_first()[0]
    assert comparison[0] is comparison.rows[0] and comparison[-1].name == "head"
    assert comparison[1:3] == comparison.rows[1:3]
    assert [row.name for row in comparison.past()] == ["conv/2", "head"] and comparison.failed == ()
    with pytest.raises(IndexError):
        comparison[4]


@pytest.mark.parametrize("metric", ["rmse", "cos", "mse", "sqnr"])
def test_a_comparison_draws_into_axes(comparison, metric):
    axes = comparison.plot(Figure().subplots(), metric=metric)
    drawn = np.concatenate([line.get_xdata() for line in axes.get_lines() if len(line.get_xdata()) == len(ERRORS)])
    assert set(drawn) == {0, 1, 2, 3}
    assert [label.get_text() for label in axes.get_xticklabels()][1].endswith("conv/2")


def test_a_comparison_makes_axes_of_its_own(comparison):
    from matplotlib import pyplot

    axes = comparison.plot()
    try:
        assert axes.get_ylabel() == "RMSE" and pyplot.fignum_exists(axes.figure.number)
    finally:
        pyplot.close("all")


def test_an_unknown_metric_has_a_hint(comparison):
    with pytest.raises(sgsdump.SgsdumpError, match="rmse, cos, mse, sqnr; did you mean 'rmse'"):
        comparison.plot(metric="rsme")


def test_a_comparison_is_saved_as_compare_writes_it(comparison):
    main("compare fixed.npz float.npz --json c.json --csv c.csv --markdown c.md --junit c.xml".split())
    for ending in (".json", ".csv"):
        assert comparison.save(f"p{ending}").read_bytes() == Path(f"c{ending}").read_bytes()
    for ending in (".md", ".xml"):
        title = "fixed.npz against float.npz"
        texts = comparison.save(f"p{ending}").read_text(), Path(f"c{ending}").read_text()
        saved, written = (re.sub(r' time="[0-9.]+"', "", text) for text in texts)
        assert saved == written.replace(title, "Comparison")
    comparison.to_html("page")
    assert comparison.save("p.html").read_text() == Path("page").read_text()
    assert "conv/2" in Path("page").read_text()
    with pytest.raises(sgsdump.SgsdumpError, match=r"p\.xlsx.*\.html, \.json"):
        comparison.save("p.xlsx")


RANGES = {"conv/1": (-1, 1), "conv/2": (-0.5, 0.5), "gone": (0, 1)}


def test_histograms_are_those_of_the_command(comparison):
    lines = [f"Name:{name}, min: {low:f}, max: {high:f};" for name, (low, high) in RANGES.items()]
    Path("ranges.txt").write_text("\n".join(lines) + "\n")
    found = sgsdump.histogram("float.npz", "ranges.txt")
    assert [layer.name for layer in found] == list(ERRORS) and len(found) == 4
    clipped = found["conv/2"]
    assert clipped.clipped and clipped.outside == (np.abs(VALUES) > 0.5 + 1e-6).sum()
    assert found.troubled == (clipped,) and found[1] is clipped and found[:1] == (found["conv/1"],)
    assert found.unused == ("gone",) and "1 suspicious" in repr(found) and "conv/2" in (found._repr_html_() or "")
    by_name = {name: Range.of(*ends) for name, ends in RANGES.items()}
    assert sgsdump.histogram(sgsdump.open_dump("float.npz"), by_name)["conv/2"].outside == clipped.outside
    found.save("by_python")
    assert main("histogram float.npz ranges.txt -o by_command".split()) == 0
    names = sorted(path.name for path in Path("by_command").iterdir())
    assert sorted(path.name for path in Path("by_python").iterdir()) == names and "overview.png" in names
    assert all(Path("by_python", name).read_bytes() == Path("by_command", name).read_bytes() for name in names)


def test_a_histogram_is_drawn_into_axes(comparison):
    found = sgsdump.histogram(sgsdump.open_dump("float.npz"))
    axes = found["head"].plot(Figure().subplots())
    (values,) = [patch for patch in axes.patches if hasattr(patch, "get_data")]
    assert values.get_data().values.sum() == VALUES.size
    assert not list(axes.get_lines())  # without a range
    with pytest.raises(KeyError, match="did you mean 'head'"):
        found["heat"]


def test_ranges_of_another_network_are_refused(comparison):
    Path("ranges.txt").write_text("Name:gone, min: 0.000000, max: 1.000000;\n")
    with pytest.raises(sgsdump.SgsdumpError, match="Check that both are of the same model"):
        sgsdump.histogram("float.npz", "ranges.txt")


def test_json_of_a_saved_comparison_is_standard(comparison):
    json.loads(comparison.save("c.json").read_text(), parse_constant=lambda name: pytest.fail(name))
