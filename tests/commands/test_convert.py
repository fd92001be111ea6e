"""``sgsdump convert`` end to end: on dumps made here, on genuine ones, and on hostile ones."""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pytest

from sgsdump.cli import exit_status, main
from sgsdump.commands import convert
from sgsdump.dumps.dump import Record
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.io import open_dump, save_dump
from sgsdump.dumps.targets import ENDINGS, target_names
from sgsdump.errors import ConfigError, OutputError, ValuesError
from sgsdump.tensors.device import to_device
from sgsdump.tensors.dtypes import KNOWN
from sgsdump.tensors.statistics import Statistics
from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo
from sgsdump.tensors.types import Origin

VALUES = np.random.default_rng(0).normal(size=(1, 5, 3, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def work_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    parser = argparse.ArgumentParser()
    convert.add_arguments(parser)
    return convert.run(parser.parse_args([str(word) for word in words]))


def record(name, array, index=0, **facts):
    return Record("out", 0, index, "CONV", Tensor.of(name, array, **facts))


@pytest.fixture
def plain():
    records = [record(f"conv{i}", VALUES + i, i, layout="NCHW", op_type="CONV") for i in range(3)]
    save_dump([*records, record("fc", VALUES[0, 0], 3, op_type="FC")], "in.npz", "npz")
    return "in.npz"


def tree(folder="."):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.mark.parametrize("target", target_names())
def test_to_every_format_that_is_written(target, plain, capsys):
    """Four tensors, or in a format of one tensor the first: their names and values."""
    assert run(plain, "out", "--to", target) == (1 if target == "atb_bin" else 0)
    dump = open_dump("out")
    assert dump.format == target.removesuffix("_old")
    found = [record for record in dump.records if record.io == "out"]
    assert len(found) == (1 if target == "atb_bin" else 4)
    for record, original in zip(found, open_dump(plain).records):
        expected = original.tensor.real()
        if record.tensor.info.layout == "NHWC" and expected.ndim == 4:
            expected = expected.transpose(0, 2, 3, 1)
        np.testing.assert_allclose(record.tensor.real().reshape(-1), expected.reshape(-1), atol=1e-6)
    assert f", {dump.format}" in capsys.readouterr().out


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_ending_tells_the_format(ending, plain):
    run(plain, f"out{ending}")
    assert open_dump(f"out{ending}").format == ENDINGS[ending]


@pytest.mark.parametrize(
    "words, said",
    [
        (["out.npy"], "sgsdump show"),
        (["out.xyz"], "--to"),
        (["out.bin", "--to", "sigmastar"], "did you mean 'sigmastar_bin"),
        (["out.npz", "--to", "ascend_dump"], "read-only"),
        (["out.npz", "--select", "conx0"], "did you mean 'conv0'"),
        (["out.npz", "--level", "1"], "topology"),
    ],
)
def test_what_cannot_be_asked(words, said, plain):
    with pytest.raises(ConfigError, match=said):
        run(plain, *words)
    assert os.listdir() == [plain]


def test_a_selection_keeps_the_order(plain):
    run(plain, "out.npz", "--select", "fc", "--select", "conv[12]")
    assert list(open_dump("out.npz")) == ["conv1", "conv2", "fc"]


def test_what_is_lost_is_told_before_it_is_written(plain, capsys):
    run(plain, "out.bin")
    assert (
        "sigmastar_bin cannot hold everything: 3 tensors are NCHW, kept as NHWC: 'conv0', " in capsys.readouterr().out
    )


def test_strict_writes_nothing(plain):
    with pytest.raises(ValuesError, match="--strict"):
        run(plain, "out.bin", "--strict")
    assert os.listdir() == [plain]
    assert run(plain, "out", "--strict") == 0


def test_device_layouts_become_logical(capsys):
    stored = to_device(VALUES, "NCHW", "NC1HWC0")
    known = record("known", stored, layout="NC1HWC0", origin=Origin(VALUES.shape, "NCHW"))
    save_dump([known, record("unknown", stored, 1, layout="NC1HWC0")], "in", "npy_dir")
    assert run("in", "out.npz", "--layout", "logical") == 0
    dump = open_dump("out.npz")
    np.testing.assert_array_equal(dump["known"].stored(), VALUES)
    assert (dump["known"].info.layout, dump["known"].info.origin) == ("NCHW", None)
    np.testing.assert_array_equal(dump["unknown"].stored(), stored)
    assert dump["unknown"].info.layout == "NC1HWC0"
    assert "1 tensors keep their layout" in capsys.readouterr().out
    run("in", "again.npz")
    assert open_dump("again.npz")["known"].info == open_dump("in")["known"].info
    run("in", "turned.npz", "--layout", "NHWC")
    np.testing.assert_array_equal(open_dump("turned.npz")["known"].stored(), VALUES.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("layout", ["NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"])
def test_plain_tensors_become_a_devices_and_come_back(layout, capsys):
    unknown = record("unknown", VALUES, 1)
    save_dump([record("known", VALUES, layout="NCHW"), unknown], "in.npz", "npz")
    assert run("in.npz", "device.npz", "--layout", layout) == 0
    told = "1 tensors keep their layout" in capsys.readouterr().out
    assert told == (layout != "FRACTAL_NZ")
    made = open_dump("device.npz")["known"]
    expected = to_device(VALUES, "NCHW", layout)
    assert made.info.layout == layout and made.info.origin == Origin(VALUES.shape, "NCHW")
    assert made.stored().tobytes() == expected.tobytes() and made.info.shape == expected.shape
    assert run("device.npz", "back.npz", "--layout", "logical") == 0
    back = open_dump("back.npz")["known"]
    assert back.info == open_dump("in.npz")["known"].info and back.stored().tobytes() == VALUES.tobytes()


def test_float32_blocks_are_of_the_numbers_that_integers_mean():
    quant = Quant(np.dtype(np.int8), np.arange(1, 41, dtype=np.float32), 3, 1, exact=True)
    values = np.arange(240).reshape(1, 40, 2, 3).astype(np.int8)
    save_dump([record("q", values, layout="NCHW", quant=quant)], "in.npz", "npz")
    run("in.npz", "stored.npz", "--layout", "NC1HWC0")
    run("in.npz", "real.npz", "--layout", "NC1HWC0", "--dtype", "float32")
    assert open_dump("stored.npz")["q"].shape == (1, 2, 2, 3, 32)
    real = open_dump("real.npz")["q"]
    assert (real.shape, real.dtype) == ((1, 3, 2, 3, 16), np.float32)
    np.testing.assert_array_equal(real.logical().stored(), open_dump("in.npz")["q"].real())
    np.testing.assert_array_equal(open_dump("stored.npz")["q"].logical().real(), open_dump("in.npz")["q"].real())


def test_original_shapes_are_given_by_name(capsys):
    array = np.arange(600, dtype=np.float16).reshape(3, 10, 20)
    nz = to_device(array, "", "FRACTAL_NZ")
    records = [record(name, nz.reshape(3, 2, 16, 16), i, layout="FRACTAL_NZ") for i, name in enumerate(["a/q", "a/k"])]
    save_dump([*records, record("plain", array, 2)], "in.npz", "npz")
    assert run("in.npz", "out.npz", "--layout", "logical", "--original-shape", "a/*=3,10,20") == 0
    assert "keep their layout" not in capsys.readouterr().out
    dump = open_dump("out.npz")
    assert all((dump[name].stored() == array).all() and dump[name].info.layout is None for name in ("a/q", "a/k"))
    shapes = ["--original-shape", "*=3x10x24", "--original-shape", "a/q=3x10x20"]
    assert run("in.npz", "kept.npz", *shapes) == 0
    kept = open_dump("kept.npz")
    assert [kept[name].info.origin.shape for name in ("a/q", "a/k")] == [(3, 10, 20), (3, 10, 24)]
    with pytest.raises(ValuesError, match=r"does not fit its original shape \[3, 40, 20\]"):
        run("in.npz", "no.npz", "--original-shape", "a/q=3,40,20")
    with pytest.raises(ConfigError, match="no tensor that matches 'plain' is in a device layout"):
        run("in.npz", "no.npz", "--original-shape", "plain=3,10,20")
    with pytest.raises(ConfigError, match="did you mean 'a/q'"):
        run("in.npz", "no.npz", "--original-shape", "a/qq=3,10,20")
    for text in ("3,10,20", "a=3,,4", "a=0", "=3", "a=3x-1"):
        with pytest.raises(SystemExit):
            main(["convert", "in.npz", "no.npz", "--original-shape", text])
        assert "is not PATTERN=SHAPE" in capsys.readouterr().err
    assert not Path("no.npz").exists()


def test_a_scale_per_channel_turns_with_its_axis():
    scale = np.arange(1, 6, dtype=np.float32)
    quant = Quant(np.dtype(np.int8), scale, 3, 1, exact=True)
    values = np.arange(60, dtype=np.int8).reshape(1, 5, 3, 4)
    save_dump([record("q", values, layout="NCHW", quant=quant)], "in.npz", "npz")
    run("in.npz", "out.npz", "--layout", "HWCN")
    before, after = open_dump("in.npz")["q"], open_dump("out.npz")["q"]
    assert after.info.quant.axis == 2
    np.testing.assert_array_equal(after.real(), before.real().transpose(2, 3, 1, 0))
    run("in.npz", "real.npz", "--dtype", "float32")
    real = open_dump("real.npz")["q"]
    assert real.info.dtype == np.float32
    np.testing.assert_array_equal(real.stored(), before.real())


def test_short_floats_become_float32():
    values = np.arange(8).astype(KNOWN["bfloat16"])
    save_dump([record("b", values), record("c", VALUES.astype(np.complex64), 1)], "in.npz", "npz")
    run("in.npz", "out.npz", "--dtype", "float32")
    dump = open_dump("out.npz")
    assert dump["b"].info.dtype == np.float32 and dump["c"].info.dtype == np.complex64
    np.testing.assert_array_equal(dump["b"].stored(), np.arange(8, dtype=np.float32))


def test_integers_without_true_scale_stay_and_are_told(capsys):
    coarse = Quant(np.dtype(np.int16), 0.000031, 0)
    save_dump([record("q", np.arange(3, dtype=np.int16), quant=coarse), record("f", VALUES, 1)], "in.npz", "npz")
    assert run("in.npz", "out.npz", "--dtype", "float32") == 0
    assert open_dump("out.npz")["q"].info.dtype == np.int16
    assert (
        "1 tensors are not converted to float32: not numeric, or the scale is unknown: 'q'" in capsys.readouterr().out
    )


def test_a_dump_of_statistics_has_nothing_to_write(monkeypatch):
    only = Tensor.of_statistics(TensorInfo("s", (3,), np.dtype(np.float32)), Statistics(0, 1, 0.5, 1))
    monkeypatch.setattr("sgsdump.dumps.io.open_dump", lambda path: open_dump_of([Record("out", 0, 0, "", only)]))
    with pytest.raises(ValuesError, match="nothing is written"):
        run("in", "out.npz")
    assert os.listdir() == []


def open_dump_of(records):
    from sgsdump.dumps.dump import Dump

    return Dump(records, notes=["one thing"])


def test_a_tensor_that_cannot_be_read_does_not_lose_the_others(monkeypatch, capsys):
    def broken():
        raise ValuesError("is gone", tensor="b")

    bad = Tensor(TensorInfo("b", (1,), np.dtype(np.float32)), broken)
    records = [Record("out", 0, 0, "", bad), record("f", VALUES, 1)]
    monkeypatch.setattr("sgsdump.dumps.io.open_dump", lambda path: open_dump_of(records))
    assert run("in", "out.npz") == 1
    said = capsys.readouterr().out
    assert (
        "note: one thing" in said
        and "tensors omitted from the output: 1 ('b'): it is gone" in said
        and "1 tensors, npz" in said
    )
    assert list(open_dump("out.npz")) == ["f"]


def test_old_and_newer_headers_of_the_sdk(plain):
    run(plain, "new.bin", "--to", "sigmastar_bin")
    run(plain, "old.bin", "--to", "sigmastar_bin_old")
    assert open_dump("new.bin")["fc"].info.shape == (3, 4)
    assert open_dump("old.bin")["fc"].info.shape is None
    assert b"shape:" not in Path("old.bin").read_bytes()
    run("old.bin", "same.bin")
    assert Path("old.bin").read_bytes() == Path("same.bin").read_bytes()


def test_a_genuine_dump_there_and_back(shared, capsys):
    for name in ("tiny_float_a_full", "tiny_fixed_a_elim_dequant", "tiny_fixed_b_elim", "tiny_fixed_d_plain"):
        source = shared / "sigmastar" / "dumps" / name / "sigma_outtensor_dump.bin"
        assert run(source, "there.npz", "--strict") == 0
        assert run("there.npz", "back.bin", "--to", "sigmastar_bin_old") == 0
        assert Path("back.bin").read_bytes() == source.read_bytes(), name
        assert run(source, "copy.bin") == 0
        assert Path("copy.bin").read_bytes() == source.read_bytes()


def test_genuine_operator_dumps_become_logical(shared, capsys):
    folder = shared / "ascend" / "ge_dump" / "schema_written"
    assert run(folder, "out", "--layout", "logical") == 0
    layouts = {record.tensor.info.layout for record in open_dump("out").records}
    assert layouts <= {None, "NCHW", "NHWC", "HWCN", "NCDHW"}


def test_padded_buffers_with_parse_net(shared):
    files = list((shared / "sigmastar").rglob("*parse_net*"))
    source = shared / "sigmastar" / "dumps" / "tiny_fixed_d_plain" / "sigma_outtensor_dump.bin"
    if not files:
        pytest.skip("no parse_net text among the genuine files")
    fitting = []
    for net in files:
        words = (source, "out.npz", "--parse-net", net, "--dtype", "float32")
        if exit_status("convert", lambda words=words: run(*words)) == 0:
            fitting.append(net)
            tensor = open_dump("out.npz")["block/dw"]
            assert tensor.info.shape is not None and tensor.info.dtype == np.float32
    assert fitting


def test_a_topology_becomes_onnx(shared, capsys):
    onnx = pytest.importorskip("onnx")
    layer = shared / "ascend" / "topology" / "msprobe_probe_layer_DecoderLayer_1.json"
    assert run(layer, "layer.onnx", "--level", "1") == 0
    onnx.checker.check_model(onnx.load("layer.onnx"))
    with pytest.raises(ConfigError, match="topology"):
        run(layer, "layer.onnx", "--dtype", "float32")


HOSTILE = ["../../x", "/etc/x", "a" * 300, "..", "a/b", "a_b", "a:b", "", "nul\0name", "line\nbreak", "=1+1", "\udcff"]


@pytest.mark.parametrize("target", ["npy_dir", "npz", "safetensors", "atb_tree", "dump_info_dir", "sigmastar_text"])
def test_names_never_lead_out_of_the_output(target, work_folder, capsys):
    records = [record(name, np.full(3, i, np.float32), i) for i, name in enumerate(HOSTILE)]
    (work_folder / "deep" / "er").mkdir(parents=True)
    save_dump(records, "in.npz", "npz")
    before = tree(work_folder)
    run("in.npz", "deep/er/out", "--to", target)
    written = [path for path in tree(work_folder) if path not in before]
    assert all(path.startswith("deep/er/out") for path in written)
    assert all(len(part) <= 255 for path in written for part in os.fsencode(path).split(b"/"))
    assert not any((work_folder / path).is_symlink() for path in written)
    dump = open_dump("deep/er/out")
    for i, name in enumerate(HOSTILE):
        found = [record.tensor.stored()[0] for record in dump.records if record.name == name]
        assert found in ([i], []), name
    if target in ("npy_dir", "npz", "safetensors", "atb_tree"):
        assert [record.name for record in dump.records] == HOSTILE
    capsys.readouterr()
    assert main(["show", "deep/er/out"]) == 0
    assert "line\nbreak" not in capsys.readouterr().out


def test_the_input_is_never_the_output(plain, work_folder):
    before = (work_folder / plain).read_bytes()
    (work_folder / "link.npz").symlink_to(work_folder / plain)
    (work_folder / "sub").mkdir()
    for target in (plain, f"./{plain}", f"sub/../{plain}", "link.npz"):
        with pytest.raises(OutputError, match="reads or writes that file already"):
            run(plain, target)
    with pytest.raises(OutputError, match="contains the input"):
        run(work_folder / plain, "../" + work_folder.name, "--to", "npy_dir")
    assert (work_folder / plain).read_bytes() == before
    assert (work_folder / "link.npz").is_symlink()


def test_a_linked_output_stays_a_link(plain, work_folder):
    (work_folder / "real").mkdir()
    (work_folder / "out.npz").symlink_to(work_folder / "real" / "target.npz")
    run(plain, "out.npz")
    assert (work_folder / "out.npz").is_symlink()
    assert len(open_dump("real/target.npz")) == 4


def test_an_existing_folder_is_set_aside(plain, work_folder):
    (work_folder / "out").mkdir()
    (work_folder / "out" / "mine.txt").write_text("precious")
    run(plain, "out")
    (aside,) = work_folder.glob("out_*")
    assert (aside / "mine.txt").read_text() == "precious"
    assert not (work_folder / "out" / "mine.txt").exists()


def test_a_file_does_not_become_a_folder_nor_a_folder_a_file(plain, work_folder):
    (work_folder / "file").write_text("precious")
    with pytest.raises(OutputError, match="a file has that name"):
        run(plain, "file", "--to", "npy_dir")
    (work_folder / "folder.npz").mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        run(plain, "folder.npz", "--to", "npz")
    with pytest.raises(OutputError, match="no folder"):
        run(plain, "not/there.npz")
    assert (work_folder / "file").read_text() == "precious"
    assert tree(work_folder) == ["file", "folder.npz", plain]


def test_a_dump_without_tensors_is_refused(work_folder, capsys):
    (work_folder / "in").mkdir()
    (work_folder / "in" / "sgsdump.json").write_text(json.dumps({"sgsdump": 1, "records": []}))
    assert main(["convert", "in", "out.npz"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (work_folder / "out.npz").exists()


def test_formats_that_are_written_are_all_tried():
    assert {name for name, format in FORMATS.items() if format.write} == {
        n.removesuffix("_old") for n in target_names()
    }
