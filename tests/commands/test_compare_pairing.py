"""``sgsdump compare`` and ``histogram`` with the options that say how tensors belong together and how they lie."""

import csv
import io
import json

import numpy as np
import pytest

import sgsdump
from sgsdump import save_dump
from sgsdump.cli import main
from sgsdump.dumps.dump import Dump, Record
from sgsdump.tensors.tensor import Tensor


@pytest.fixture
def clash(tmp_path):
    """The sample's ``conv`` is the benchmark's ``norm``."""
    conv, norm, relu = np.random.default_rng(0).standard_normal((3, 1, 4, 5, 6)).astype(np.float32)
    for name, arrays in {"a": {"conv": norm, "relu": relu}, "b": {"conv": conv, "norm": norm, "relu": relu}}.items():
        sgsdump.save_dump(arrays, tmp_path / f"{name}.bin", on_loss="ignore")
    return [str(tmp_path / "a.bin"), str(tmp_path / "b.bin")]


def rows(path):
    return [(row["sample_name"], row["name"], row["paired"]) for row in csv.DictReader(io.StringIO(path.read_text()))]


def test_values_make_the_pairs_and_the_map_makes_them_again(clash, tmp_path, capsys):
    names, first, second = tmp_path / "names.json", tmp_path / "1.csv", tmp_path / "2.csv"
    document = tmp_path / "1.json"
    options = ["--write-name-map", str(names), "--csv", str(first), "--json", str(document), "--max-rmse", "1e-6"]
    options.append("--allow-missing")  # the benchmark has a layer more
    assert main(["compare", *clash, "--match-by-value", *options]) == 0
    said = capsys.readouterr().out
    assert "Paired tensors: 1 by value, 1 by name." in said and f"Name map {names}: 1 pairs whose names differ." in said
    assert "paired by value with 'conv' of the sample" in said
    assert "not paired by name: the tensor 'conv' of the sample is already paired with 'norm' (by value)" in said
    assert json.loads(names.read_text()) == {"norm": "conv"}
    assert [row["paired"] for row in json.loads(document.read_text())["rows"]] == ["value", "name"]
    assert main(["compare", *clash, "--name-map", str(names), "--csv", str(second)]) == 0
    assert "paired by map with 'conv' of the sample" in capsys.readouterr().out
    assert rows(first) == [("conv", "norm", "value"), ("relu", "relu", "name"), ("", "conv", "")]
    assert rows(second) == [("conv", "norm", "map"), ("relu", "relu", "name"), ("", "conv", "")]


def test_bad_side_files_are_one_line(clash, tmp_path, capsys):
    for option, text in (("--name-map", "[1]"), ("--name-map", '{"conv": "gone"}'), ("--parse-net", "hello")):
        (tmp_path / "file").write_text(text)
        assert main(["compare", *clash, option, str(tmp_path / "file")]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("sgsdump: error: ") and captured.err.count("\n") == 1 and not captured.out


def test_a_padded_dump_compares_like_the_dequantised_one(shared, capsys):
    folder = shared / "sigmastar"
    dump = {n: str(folder / "dumps" / n / "sigma_outtensor_dump.bin") for n in FILES}
    net = str(folder / "model/parse_net_tiny_fixed_L5.txt")
    assert main(["compare", dump[FILES[0]], dump[FILES[2]], "--parse-net", net, "--min-cos", "0.99"]) == 0
    padded = capsys.readouterr().out
    assert main(["compare", dump[FILES[1]], dump[FILES[2]], "--min-cos", "0.99"]) == 0
    # only parse_net tells the class scores from other outputs
    assert padded.replace("; top-1 agrees on 1 of 1 image", "") == capsys.readouterr().out
    assert main(["compare", dump[FILES[0]], dump[FILES[2]], "--min-cos", "0.99"]) == 2


FILES = ("tiny_fixed_d_plain", "tiny_fixed_a_elim_dequant", "tiny_float_a_full")


def test_a_padded_dump_is_drawn(shared, tmp_path, capsys):
    folder = shared / "sigmastar"
    dump = str(folder / "dumps/tiny_fixed_d_plain/sigma_outtensor_dump.bin")
    ranges = str(folder / "calibration/tiny_L5/tensor_min_max.txt")
    options = ["--parse-net", str(folder / "model/parse_net_tiny_fixed_L5.txt"), "-o", str(tmp_path / "H")]
    assert main(["histogram", dump, ranges, *options]) == 0
    assert "14 charts" in capsys.readouterr().out


def test_why_nothing_pairs_is_said_where_a_name_is_there_in_another_role(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_dump({"a": np.ones(3, np.float32)}, "a.npz")
    save_dump({"b": np.ones(3, np.float32)}, "b.npz")
    assert main(["compare", "a.npz", "b.npz"]) == 2
    refused = capsys.readouterr().err
    assert (
        "but no output names match; are both dumps of the same model? If so, pair equal values with --match-by"
        in refused
    )
    assert main(["compare", "a.npz", "b.npz", "--match-by-value"]) == 2
    assert "--match-by-value" not in capsys.readouterr().err
    ones = np.ones(3, np.float32)
    save_dump(Dump([Record("out", 0, 0, "Conv", Tensor.of("x", ones))]), "sample.bin")
    save_dump(
        Dump([Record(io, 0, 0, "Conv", Tensor.of(name, ones)) for io, name in (("in", "x"), ("out", "y"))]), "b.bin"
    )
    assert main(["compare", "sample.bin", "b.bin"]) == 2
    assert "but no output names match; x: " in capsys.readouterr().err
