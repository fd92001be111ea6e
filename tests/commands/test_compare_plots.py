"""``sgsdump compare --plots``: which pictures there are, what they show, and that nothing is overwritten."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sgsdump
from sgsdump.cli import main
from sgsdump.commands.compare.options import options_of
from sgsdump.commands.parser import build_parser
from sgsdump.dumps.dump import Dump, Record
from sgsdump.reports.charts import canvas
from sgsdump.reports.charts.sheet import CELL, HEAD, MARGIN, SECTION
from sgsdump.tensors.tensor import Tensor

RANDOM = np.random.default_rng(5)
VALUES = RANDOM.normal(size=3000).astype(np.float32)


def save(path, **tensors):
    records = [
        Record("out", 0, i, "Conv", Tensor.of(name, np.asarray(v))) for i, (name, v) in enumerate(tensors.items())
    ]
    sgsdump.save_dump(Dump(records), path, on_loss="ignore")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save("float.npz", good=VALUES, shifted=VALUES, broken=VALUES)
    broken = VALUES.copy()
    broken[3] = np.nan
    save("fixed.npz", good=VALUES * np.float32(1.001), shifted=VALUES + 40, broken=broken)
    return tmp_path


def pictures(folder):
    found = {}
    for path in folder.iterdir():
        with Image.open(path) as image:
            found[path.name] = np.asarray(image.convert("RGB"))
    return found


def test_the_error_and_the_histograms(folder, capsys):
    assert main("compare fixed.npz float.npz --plots out/".split()) == 0
    assert "Charts: out/error.png, out/histograms.png\n" in capsys.readouterr().out
    found = pictures(folder / "out")
    assert set(found) == {"error.png", "histograms.png"}
    page = found["histograms.png"]
    # the broken layer comes first, the shifted one next to it
    cells = [page[HEAD + SECTION :, MARGIN + CELL[0] * i : MARGIN + CELL[0] * (i + 1)][: CELL[1]] for i in range(2)]
    framed = [(cell == canvas.RED).all(axis=2).any() for cell in cells]
    assert framed == [True, True]
    # in the shifted layer sample and benchmark stand apart, in that order from the right
    blue, orange = ((cells[1] == colour).all(axis=2).any(axis=0) for colour in (canvas.PALE, canvas.ORANGE))
    assert np.flatnonzero(blue).max() < np.flatnonzero(orange & ~blue).max() - 50


def test_the_ranges_are_drawn(folder):
    (folder / "tensor_min_max.txt").write_text("Name:good, min: -1.000000, max: 1.000000;\n")
    red = []
    for words in ("", " --ranges tensor_min_max.txt"):
        assert main(f"compare fixed.npz float.npz --plots out{len(words)}{words}".split()) == 0
        page = pictures(folder / f"out{len(words)}")["histograms.png"]
        red.append((page == canvas.RED).all(axis=2)[HEAD:].sum())
    assert red[1] > red[0] + 30


def test_an_older_folder_is_kept_and_none_in_use_is_taken(folder, capsys):
    (folder / "out").mkdir()
    (folder / "out" / "mine.txt").write_text("keep me")
    assert main("compare fixed.npz float.npz --plots out".split()) == 0
    (aside,) = folder.glob("out_2*")
    assert (aside / "mine.txt").read_text() == "keep me"
    (folder / "in").mkdir()
    save("in/float.npz", good=VALUES)
    capsys.readouterr()
    before = sorted(folder.rglob("*"))
    for words, told in [
        ("fixed.npz in/float.npz --plots in", "in/float.npz"),
        ("fixed.npz float.npz --plots .", "contains the current folder"),
        ("fixed.npz float.npz --plots fixed.npz", "fixed.npz"),
        ("fixed.npz float.npz --plots new --csv new/table.csv", "table.csv"),
    ]:
        assert main(["compare", *words.split()]) == 2
        error = capsys.readouterr().err
        assert told in error and error.count("\n") == 1
        assert sorted(folder.rglob("*")) == before, words


def test_merged_runs_have_pictures_of_all_their_values(folder):
    for tree, factor in (("a", 1.0), ("b", 1.01)):
        (folder / tree).mkdir()
        for step in range(2):
            save(folder / tree / f"step{step}.npz", good=VALUES * np.float32(factor))
    assert main("compare a b --runs --plots merged".split()) == 0
    assert set(pictures(folder / "merged")) == {"error.png", "histograms.png"}


def test_odd_layers_give_pictures(folder):
    odd = {
        "empty": np.zeros(0, np.float32),
        "nothing finite": np.full(9, np.nan, np.float32),
        "zeros": np.zeros(9, np.float32),
        "huge": VALUES * np.float32(1e37),
        "integers": np.arange(9, dtype=np.int32),
        "flag": np.array([True, False]),
        "scalar": np.float32(3),
        "$x^2$\u202e\n" + "n" * 300: VALUES,
    }
    save("odd.npz", **odd)
    save("other.npz", **{name: np.ones_like(value) for name, value in odd.items()})
    for other in ("odd", "other"):
        assert main(f"compare odd.npz {other}.npz --plots {other}".split()) == 0
        assert set(pictures(folder / other)) == {"error.png", "histograms.png"}


def test_each_run_of_a_tree_has_a_folder_of_its_own():
    args = build_parser().parse_args("compare a b --plots here/out --csv x/r.csv".split())
    output = options_of(args).output.labelled("step0-rank1")
    assert (output.plots, output.csv, output.html) == (Path("here/out.step0-rank1"), Path("x/r.step0-rank1.csv"), None)
