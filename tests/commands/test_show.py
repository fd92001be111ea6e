"""``sgsdump show``: the list of a dump, and one tensor's values."""

import argparse
import csv
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from json_documents import checked

from sgsdump.cli import main
from sgsdump.commands import show
from sgsdump.dumps.dump import Record
from sgsdump.dumps.inventory import inventory
from sgsdump.dumps.io import save_dump
from sgsdump.errors import ConfigError, OutputError
from sgsdump.reports.dump_tables import inventory_table
from sgsdump.tensors.device import to_device
from sgsdump.tensors.slicing import viewed
from sgsdump.tensors.statistics import merged, summarise
from sgsdump.tensors.tensor import Quant, Tensor
from sgsdump.tensors.types import Origin

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
SICK = np.array([1, np.nan, np.inf, np.inf, -np.inf, 3], np.float32)
QUANT = Quant(np.dtype(np.uint8), 0.5, 128, exact=True)


@pytest.fixture(autouse=True)
def work_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    parser = argparse.ArgumentParser()
    show.add_arguments(parser)
    return show.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def dump():
    images = np.arange(120, dtype=np.float16).reshape(1, 5, 4, 6)
    records = [
        Record("in", 0, 0, "CONV", Tensor.of("cube", CUBE)),
        Record("out", 0, 0, "CONV", Tensor.of("cube", CUBE * 2, op_type="CONV")),
        Record("out", 0, 1, "ADD", Tensor.of("sick", SICK)),
        Record("out", 0, 2, "Q", Tensor.of("exact", np.array([[128, 130], [126, 0]], np.uint8), quant=QUANT)),
        Record("out", 0, 3, "Q", Tensor.of("coarse", np.array([1, -3], np.int16), quant=Quant(np.dtype("i2"), 0.1))),
        Record("out", 0, 4, "P", blocked("device", images, Origin(images.shape, "NCHW"))),
        Record("out", 0, 5, "P", blocked("padded", images, None)),
        Record("out", 0, 6, "=1+1", Tensor.of("=cmd()", np.zeros(0, np.float32))),
        Record("out", 0, 7, "W", Tensor.of("weights", np.ones(2, np.int64)), constant=True),
    ]
    save_dump(records, "in.npz", "npz")
    return "in.npz"


def blocked(name, array, origin):
    return Tensor.of(name, to_device(array, "NCHW", "NC1HWC0"), layout="NC1HWC0", origin=origin)


@pytest.fixture
def rows(dump):
    run(dump, "--csv", "list.csv", "--json", "list.json")
    with open("list.csv", newline="") as file:
        found = list(csv.DictReader(file))
    return {(row["name"], row["io"]): row for row in found}


def test_statistics_are_of_what_the_values_mean(rows):
    cube = rows["cube", "out"]
    assert (float(cube["min"]), float(cube["max"]), float(cube["mean"])) == (0, 46, 23)
    assert float(cube["l2norm"]) == pytest.approx(np.linalg.norm((CUBE * 2).ravel()))
    assert (cube["shape"], cube["dtype"], cube["op"], cube["of"]) == ("2x3x4", "float32", "CONV", "real")
    exact = rows["exact", "out"]
    assert (exact["scale"], exact["zero_point"], exact["of"]) == ("0.5", "128", "real")
    assert (float(exact["min"]), float(exact["max"])) == (-64, 1)
    coarse = rows["coarse", "out"]
    assert (coarse["of"], float(coarse["min"])) == ("stored", -3) and "true scale" in coarse["reason"]


def test_what_is_not_finite_is_counted_and_left_out_of_the_rest(rows):
    sick = rows["sick", "out"]
    assert [sick[name] for name in ("nan", "positive_inf", "negative_inf", "count")] == ["1", "2", "1", "6"]
    assert (float(sick["min"]), float(sick["max"]), float(sick["mean"])) == (1, 3, 2)


def test_padding_is_not_counted_where_the_original_shape_is_known(rows):
    assert (rows["device", "out"]["count"], rows["device", "out"]["of"]) == ("120", "real")
    assert rows["device", "out"]["origin"] == "NCHW [1, 5, 4, 6]"
    assert (rows["padded", "out"]["count"], rows["padded", "out"]["of"]) == (str(4 * 6 * 16), "padded")


def test_a_spreadsheet_runs_nothing_and_numbers_stay_numbers(rows):
    odd = rows["'=cmd()", "out"]
    assert odd["op"] == "'=1+1" and odd["min"] == ""
    assert rows["exact", "out"]["min"] == "-64.0"
    found = json.loads(open("list.json").read())["tensors"]  # noqa: SIM115
    assert [item["name"] for item in found][-2:] == ["=cmd()", "weights"]
    assert found[2]["figures"]["nan"] == 1 and found[0]["figures"]["negative_inf"] == 0


def test_the_table(dump, capsys):
    assert run(dump) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["#", "layer", "io"]
    assert lines[1].split()[:6] == ["0", "0", "in", "cube", "2x3x4", "float32"]
    assert lines[3].split()[-3:] == ["1", "2", "1"]
    assert "NC1HWC0 of NCHW [1, 5, 4, 6]" in lines[6]
    assert [line for line in lines if line.startswith(("s: ", "p: "))]
    assert lines[-1] == "9 tensors, npz"


def test_a_selection_keeps_its_numbers(dump, capsys):
    run(dump, "--select", "c*")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["0", "1", "4s"]
    assert lines[-1] == "3 of 9 tensors, npz"


def test_a_damaged_tensor_is_told_and_the_rest_is_listed(capsys):
    save_dump([Tensor.of("a", CUBE), Tensor.of("b", CUBE + 1)], "in.npz")
    content = bytearray(Path("in.npz").read_bytes())
    content[content.index(CUBE.tobytes()) + 5] ^= 1
    Path("in.npz").write_bytes(content)
    assert run("in.npz") == 1
    said = capsys.readouterr().out
    assert "a: " in said and "checksum" in said and "2 tensors" in said


def test_values_of_one_tensor(dump, capsys):
    run(dump, "cube", "[1,0:2,3]", "--output", "part.npy", "--csv", "part.csv", "--json", "part.json")
    said = capsys.readouterr().out
    assert said.startswith("cube: stored float32, [2, 3, 4]\n[")
    np.testing.assert_array_equal(np.load("part.npy"), CUBE[1, 0:2, 3] * 2)
    with open("part.csv") as file:
        assert file.read() == "0,1\n30.0,38.0\n"
    with open("part.json") as file:
        head = {"format": "sgsdump values", "version": 1, "name": "cube"}
        assert json.load(file) == head | {"dtype": "float32", "shape": [2], "values": [30.0, 38.0]}
    run(dump, "#0", "--output", "first.npy")
    np.testing.assert_array_equal(np.load("first.npy"), CUBE)


def test_of_several_outputs_of_a_name_the_first_is_shown_and_all_are_told(capsys):
    save_dump([Tensor.of("x", CUBE), Tensor.of("y", CUBE), Tensor.of("x", CUBE + 1)], "in.npz", "npz")
    run("in.npz", "x", "[0,0,0]")
    assert capsys.readouterr().out.splitlines()[0].endswith("2 tensors have this name: #0, #2")
    run("in.npz", "#2", "[0,0,0]")
    assert capsys.readouterr().out.splitlines()[1] == "1."


def test_device_layouts_are_undone_and_integers_dequantised(dump, capsys):
    run(dump, "device", "--operations", "(0,2,3,1);[0,1,2]", "-o", "x.npy")
    assert "NC1HWC0 to NCHW" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load("x.npy"), np.arange(5) * 24 + 8)
    run(dump, "device", "--stored", "-o", "x.npy")
    assert np.load("x.npy").shape == (1, 1, 4, 6, 16)
    run(dump, "padded")
    assert "NC1HWC0 as stored" in capsys.readouterr().out
    run(dump, "exact", "-o", "x.npy")
    np.testing.assert_array_equal(np.load("x.npy"), [[0, 1], [-1, -64]])
    run(dump, "exact", "--stored", "-o", "x.npy")
    assert np.load("x.npy").dtype == np.uint8
    run(dump, "coarse")
    assert "stored int16, whose exact scale is not in the dump" in capsys.readouterr().out


def test_values_go_to_npy_or_as_bare_bytes_to_bin(tmp_path):
    save_dump([Tensor.of("x", CUBE)], "in.npz", "npz")
    run("in.npz", "x", "-o", "x.npy")
    np.testing.assert_array_equal(np.load("x.npy"), CUBE)
    run("in.npz", "x", "-o", "x.bin")
    assert Path("x.bin").read_bytes() == CUBE.tobytes()
    assert main(["show", "in.npz", "x", "-o", "x.txt"]) == 2
    assert not Path("x.txt").exists()


def test_a_large_tensor_is_abbreviated_unless_asked(capsys):
    save_dump([Tensor.of("big", np.arange(5000, dtype=np.int32))], "in.npz", "npz")
    run("in.npz", "big")
    assert len(capsys.readouterr().out.splitlines()) == 2
    run("in.npz", "big", "--all")
    assert "2500" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, said",
    [
        (["cub"], "did you mean 'cube'"),
        (["#99"], "no tensor '#99'"),
        (["cube", "[9,9,9]"], "does not fit"),
        (["cube", "(0,1)"], "not a permutation of the axes"),
        (["cube", "[0]", "--operations", "[0]"], "once"),
        (["--operations", "[0]"], "NAME"),
        (["--stored"], "NAME"),
        (["--select", "zzz"], "no tensor name matches"),
    ],
)
def test_what_cannot_be_asked(words, said, dump):
    with pytest.raises(ConfigError, match=said):
        run(dump, *words)


def test_the_input_is_never_the_output(dump):
    for option in ("--csv", "--json"):
        with pytest.raises(OutputError):
            run(dump, option, dump)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[0]", CUBE[0]),
        ("[-1, ::2]", CUBE[-1, ::2]),
        ("[...,1:3]", CUBE[..., 1:3]),
        ("[:, 1]", CUBE[:, 1]),
        ("(2,0,1)", CUBE.transpose(2, 0, 1)),
        (" [0] ; (1, 0) ", CUBE[0].T),
        ("[1,2,3]", CUBE[1, 2, 3]),
        ("[]", CUBE),
        ("", CUBE),
    ],
)
def test_operations(text, expected):
    found = viewed(CUBE, text)
    assert found.shape == np.shape(expected)
    np.testing.assert_array_equal(found, expected)


WRONG = ["[__import__('os')]", "[0", "0]", "(a)", "[1e3]", "[::0]", "[1:2:3:4]", "[9]", "(0,0,1)", "[0,0,0,0]", "x"]


@pytest.mark.parametrize("text", [*WRONG, "[None]"])
def test_what_is_no_operation(text):
    with pytest.raises(ConfigError) as caught:
        viewed(CUBE, text)
    assert "\n" not in str(caught.value)


def test_statistics_of_parts_are_those_of_the_whole():
    generator = np.random.default_rng(0)
    whole = generator.normal(size=1000)
    whole[[3, 500]], whole[7], whole[900] = np.nan, np.inf, -np.inf
    parts, all_of_it = merged(map(summarise, np.array_split(whole, 7))), summarise(whole)
    assert (parts.count, parts.nan, parts.inf, parts.negative_inf) == (1000, 2, 2, 1)
    assert (parts.min, parts.max) == (all_of_it.min, all_of_it.max)
    assert (parts.mean, parts.l2norm) == pytest.approx((all_of_it.mean, all_of_it.l2norm), rel=1e-12)
    assert merged([]).count == 0 and merged([]).mean is None
    assert merged([summarise(np.full(2, 1e300))] * 2).l2norm == pytest.approx(2e300)


def test_a_genuine_simulator_dump_is_listed(shared, capsys):
    assert run(shared / "sigmastar" / "dumps" / "tiny_fixed_d_plain" / "sigma_outtensor_dump.bin") == 0
    assert "41 tensors, sigmastar_bin" in capsys.readouterr().out


def test_genuine_atb_trees_are_listed(shared, capsys):
    assert run(shared / "ascend" / "atb_dump_tree" / "stats", "--step", "1") == 0
    assert "d: statistics recorded by the run" in capsys.readouterr().out


def test_options_stand_anywhere_among_the_words(dump, capsys):
    assert main(["show", dump, "exact", "[0]"]) == 0
    plain = capsys.readouterr().out
    assert main(["show", dump, "--all", "exact", "[0]"]) == 0
    assert capsys.readouterr().out == plain
    assert main(["show", dump, "exact", "-o", "part.npy", "[0]"]) == 0
    assert capsys.readouterr().out == plain and np.load("part.npy").tolist() == [0, 1]
    assert main(["show", dump, "--stored", "exact"]) == 0
    assert "[[128 130]" in capsys.readouterr().out


def test_an_overflow_status_is_shown_in_words(capsys):
    fields = [1, 2, 17, 0, 65535, 65535, 0x1000, 0x2000, 3, 5, 8]
    status = struct.pack("<6I11Q", 0x5A5A5A5A, 0, 1, 0, 0, 88, *fields)
    tensor = Tensor.of("status", np.frombuffer(status, np.uint8), op_type="Opdebug")
    damaged = Tensor.of("damaged", np.zeros(7, np.uint8), op_type="Opdebug")
    save_dump([tensor, damaged], "overflow.npz", "npz")
    run("overflow.npz", "status", "--json", "status.json")
    told = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert told == checked(Path("status.json"))["status"]
    assert told["acc_list"]["data"]["task_id"] == 17 and told["acc_list"]["data"]["pc_start"] == "0x1000"
    run("overflow.npz", "status", "[0:4]", "--stored")
    assert capsys.readouterr().out.endswith("[90 90 90 90]\n")
    run("overflow.npz", "damaged")
    assert capsys.readouterr().out.endswith("[0 0 0 0 0 0 0]\n")


def test_float16_at_the_end_of_its_range_is_told(capsys):
    save_dump(
        {
            "high": np.float16([1, 65504]),
            "low": np.float16([-65504, 1]),
            "below": np.float16([65472]),
            "inf": np.float16([np.inf, 1]),
            "wide": np.float32([65504]),
        },
        "x.npz",
    )
    run("x.npz", "--csv", "x.csv", "--json", "x.json")
    assert "probably saturated (values at ±65504, the largest float16): high, low\n" in capsys.readouterr().out
    told = {one["name"]: one["saturated"] for one in json.loads(Path("x.json").read_text())["tensors"]}
    assert told == {"high": True, "low": True, "below": False, "inf": False, "wide": False}
    with open("x.csv", newline="") as file:
        assert [row["saturated"] for row in csv.DictReader(file)] == ["yes", "yes", "no", "no", "no"]


def test_an_overflow_status_is_shown_with_its_operator(shared, capsys):
    assert run(shared / "ascend/ge_dump/overflow/dump", "Node_OpDebug.2.9:output:0") == 0
    assert "caused by layer_MatMulV2 (MatMulV2)\n" in capsys.readouterr().out


def test_a_narrow_terminal_gets_a_narrow_list():
    long = "layers/encoder/0/attention/query/matmul/"
    records = [
        Record("out", 0, n, "MatMul", Tensor.of(f"{long}{n}", np.full(3, 1 / 3), op_type="MatMul")) for n in range(3)
    ]
    items = list(inventory(enumerate(records)))
    whole, narrow = inventory_table(items), inventory_table(items, 80)
    assert inventory_table(items, 200) == whole and f"{long}0" in whole and "MatMul" in whole
    assert max(map(len, narrow.splitlines())) <= 80
    assert all(f"…query/matmul/{n} " in narrow or f"matmul/{n} " in narrow for n in range(3))
    assert "#0 selects" in narrow and "#0 selects" not in whole


@pytest.fixture
def pair():
    benchmark = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 2, 3, 4)
    sample = benchmark.copy()
    sample[0, 1, 2, 3] += 0.25
    sample[0, 0, 1, 2] = np.nan
    for path, array in (("a.npz", sample), ("b.npz", benchmark)):
        save_dump([Record("out", 0, 0, "CONV", Tensor.of("=conv", array))], path)


def test_the_worst_values_of_a_comparison(pair, capsys):
    assert main("show a.npz =conv --against b.npz --worst 5 --csv t.csv --json t.json".split()) == 0
    head, columns, first, second = capsys.readouterr().out.splitlines()
    assert head == "=conv [1, 2, 3, 4]: 2 of 24 values differ"
    assert columns.split() == ["index", "sample", "benchmark", "error", "relative"]
    assert first.split()[:2] == ["[0,0,1,2]", "nan"] and first.split()[3] == "inf"
    assert second.split() == ["[0,1,2,3]", "1.25", "1", "0.25", "0.25"]
    rows = list(csv.DictReader(Path("t.csv").read_text().splitlines()))
    assert rows[1] == {
        "index": "[0, 1, 2, 3]", "sample": "1.25", "benchmark": "1.0", "error": "0.25", "relative_error": "0.25",
    }  # fmt: skip
    document = checked(Path("t.json"))
    assert (document["name"], document["shape"], document["apart"]) == ("=conv", [1, 2, 3, 4], 2)
    assert document["values"][0]["sample"] == "nan" and document["values"][1]["index"] == [0, 1, 2, 3]


def test_twenty_worst_values_where_no_number_is_given(capsys):
    for path, factor in (("a.npz", 1), ("b.npz", 2)):
        save_dump([Record("out", 0, 0, "CONV", Tensor.of("x", np.arange(1, 40, dtype=np.float32) * factor))], path)
    assert main("show a.npz x --against b.npz".split()) == 0
    assert len(capsys.readouterr().out.splitlines()) == 22
    assert main("show a.npz x --against a.npz".split()) == 0
    assert capsys.readouterr().out == "x [39]: all 39 values are equal\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("=conv --worst 3", "--worst needs --against and one tensor"),
        ("--against b.npz", "and one tensor"),
        ("=conv [0] --against b.npz", "OPERATIONS cannot be combined with --against"),
        ("=conv --against b.npz --worst 0", "must be 1 or more, not 0"),
        ("=con --against b.npz", "did you mean '=conv'"),
    ],
)
def test_worst_values_asked_for_wrongly(pair, words, said, capsys):
    assert main(["show", "a.npz", *words.split()]) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1 and not captured.out
