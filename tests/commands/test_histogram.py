"""``sgsdump histogram`` end to end: on files made here, and on the SDK's own."""

import argparse
import json
import pickle

import numpy as np
import pytest

from sgsdump.commands import histogram
from sgsdump.dumps.dump import Record
from sgsdump.dumps.io import save_dump
from sgsdump.errors import OutputError, SgsdumpError
from sgsdump.files.atomic_write import replacing_folder
from sgsdump.tensors.tensor import Tensor


@pytest.fixture(autouse=True)
def work_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    parser = argparse.ArgumentParser()
    histogram.add_arguments(parser)
    return histogram.run(parser.parse_args([str(word) for word in words]))


def tensor(name, values, constant=False, number=0):
    return Record("out", 0, number, "CONV_2D", Tensor.of(name, np.asarray(values, np.float32)), constant)


@pytest.fixture
def dump(work_folder):
    sick = np.concatenate([np.random.default_rng(0).normal(size=5000) * 0.2, [-30, 30]])
    records = [
        tensor("conv/1", np.linspace(-1, 1, 50)),
        tensor("sick", sick, number=1),
        tensor("clipped", np.linspace(-9, 9, 50), number=2),
        tensor("free", [1, 2], number=3),
        tensor("broken", [1, np.nan], number=4),
        tensor("conv/1_filter", [1, 2], constant=True),
    ]
    save_dump(records, work_folder / "float.bin", on_loss="ignore")
    return work_folder / "float.bin"


RANGES = {"conv_1": (-1, 1), "sick": (-30, 30), "clipped": (-3, 3), "broken": (0, 1), "gone": (0, 1)}


@pytest.fixture
def ranges(work_folder):
    lines = [f"Name:{name}, min: {low:f}, max: {high:f};\n" for name, (low, high) in RANGES.items()]
    path = work_folder / "tensor_min_max.txt"
    path.write_text("".join(lines))
    return path


PICTURES = {"0.conv_1.png", "1.sick.png", "2.clipped.png", "3.free.png", "4.broken.png", "overview.png"}


def test_one_picture_a_layer_and_a_summary_to_act_on(dump, ranges, work_folder, capsys):
    assert run(dump, ranges) == 0
    assert {p.name for p in (work_folder / "Histograms").iterdir()} == PICTURES
    out = capsys.readouterr().out
    assert out.startswith("5 charts in Histograms; begin with Histograms/overview.png\n")
    wide, clipped, bad = (out.index(word) for word in ("Range wider than 30", "Clipped:", "NaN, Inf or empty (1):"))
    assert wide < out.index("1. sick") < clipped < out.index("2. clipped") < bad < out.index("4. broken")
    assert "Without a range, drawn without red lines (1): free\n" in out
    assert "Constants, skipped (1): conv/1_filter\n" in out
    assert "Ranges that match no layer of this dump: 1\n" in out


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_json_and_pickle_ranges(form, dump, work_folder, capsys):
    entries = [{"name": n, "min": [float(low)], "max": [float(high)], "bit": 8} for n, (low, high) in RANGES.items()]
    path = work_folder / f"quant_param.{form}"
    path.write_bytes(json.dumps(entries).encode() if form == "json" else pickle.dumps(entries, protocol=3))
    assert run(dump, path, "-o", "elsewhere") == 0
    assert {p.name for p in (work_folder / "elsewhere").iterdir()} == PICTURES


def test_an_older_folder_is_kept_under_its_date(dump, ranges, work_folder, capsys):
    old = work_folder / "Histograms"
    old.mkdir()
    (old / "mine.txt").write_text("keep me")
    assert run(dump, ranges) == 0
    (aside,) = work_folder.glob("Histograms_2*")
    assert (aside / "mine.txt").read_text() == "keep me"
    assert {p.name for p in old.iterdir()} == PICTURES
    assert "older" in capsys.readouterr().out


def test_trouble_is_one_line_and_writes_nothing(dump, ranges, work_folder):
    (work_folder / "empty.txt").write_text("")
    (work_folder / "none.json").write_text("[]")
    (work_folder / "other.txt").write_text("Name:zebra, min: 0.000000, max: 1.000000;\n")
    (work_folder / "file").write_text("mine")
    before = sorted(p.name for p in work_folder.iterdir())
    for words, told in [
        ((dump, "missing.txt"), "missing.txt"),
        ((dump, "empty.txt"), "empty.txt"),
        ((dump, "none.json"), "no range"),
        ((dump, "other.txt"), "zebra"),
        (("missing.bin", ranges), "missing.bin"),
        ((ranges, ranges), "is not a dump: it holds calibration ranges"),
        ((dump, ranges, "-o", "file"), "file"),
        ((dump, ranges, "-o", "."), "contains the current folder"),
        ((dump, ranges, "-o", ".."), "contains the current folder"),
    ]:
        with pytest.raises(SgsdumpError, match=told) as caught:
            run(*words)
        assert "\n" not in str(caught.value)
        assert sorted(p.name for p in work_folder.iterdir()) == before, told


def test_a_failure_midway_leaves_the_older_folder_in_place(dump, ranges, work_folder, monkeypatch):
    (work_folder / "Histograms").mkdir()
    (work_folder / "Histograms" / "mine.txt").write_text("keep me")
    before = sorted(p.name for p in work_folder.iterdir())

    def full_disk(layers, folder, copies):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sgsdump.reports.charts.layer_histogram.save_contact_sheets", full_disk)
    with pytest.raises(OutputError, match="No space left"):
        run(dump, ranges)
    assert sorted(p.name for p in work_folder.iterdir()) == before
    assert [p.name for p in (work_folder / "Histograms").iterdir()] == ["mine.txt"]


def test_replacing_folder_vanishes_on_any_error(work_folder):
    with pytest.raises(KeyboardInterrupt), replacing_folder(work_folder / "new") as folder:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt
    assert not list(work_folder.iterdir())


def outputs(records_tsv):
    rows = [line.split("\t") for line in records_tsv.read_text().splitlines()[2:]]
    return {row[8] for row in rows if row[3] == "out"} | {"data"}


def test_the_sdks_float_dump_and_ranges(shared, work_folder, capsys):
    folder = shared / "sigmastar" / "dumps" / "tiny_float_a_full"
    ranges = shared / "sigmastar" / "calibration" / "tiny_L1" / "tensor_min_max.txt"
    assert run(folder / "sigma_outtensor_dump.bin", ranges) == 0
    pictures = {p.name.split(".", 1)[1] for p in (work_folder / "Histograms").iterdir() if p.name != "overview.png"}
    names = outputs(next(folder.glob("*.records.tsv")))
    copies = {"fc_reshape#1_output#30", "fc"}
    assert pictures == {name.replace("/", "_") + ".png" for name in names - copies}
    out = capsys.readouterr().out
    assert "drawn once (2): fc_reshape#1_output#30 of gap, fc of fc#32\n" in out and "no range" not in out


@pytest.mark.parametrize("name", ["tiny_fixed_b_elim", "tiny_float_c_string", "tiny_fixed_a_elim_dequant"])
def test_integer_and_text_dumps_of_the_sdk(name, shared, work_folder, capsys):
    dump = shared / "sigmastar" / "dumps" / name / "sigma_outtensor_dump.bin"
    assert run(dump, shared / "sigmastar" / "calibration" / "tiny_L5" / "tensor_min_max.txt") == 0
    assert "Not drawn" not in capsys.readouterr().out
    assert len(list((work_folder / "Histograms").iterdir())) >= 15
