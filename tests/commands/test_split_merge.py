"""``sgsdump split`` and ``sgsdump merge``: nothing is lost, renamed or put in another order unsaid."""

import argparse
import os

import numpy as np
import pytest

from sgsdump.commands import merge, split
from sgsdump.dumps.dump import Dump, Record
from sgsdump.dumps.formats.sigmastar import binary
from sgsdump.dumps.formats.sigmastar.binary import FRAMEWORK, SIM, SIM_SHAPED
from sgsdump.dumps.io import open_dump, save_dump
from sgsdump.errors import ConfigError, FormatError, OutputError, ValuesError
from sgsdump.tensors.tensor import Tensor


@pytest.fixture(autouse=True)
def work_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command, *words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


def record(name, value, index, io="out", constant=False):
    return Record(io, 0, index, "OP", Tensor.of(name, np.full(3, value, np.float32), op_type="OP"), constant)


def values(path):
    return [(r.name, r.io, r.op_index, float(r.tensor.stored()[0])) for r in open_dump(path).records]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_one_file_per_tensor_in_order_and_back(work_folder, capsys):
    names = ["b/x", "a", "../../x", "b:x", "n" * 300]
    save_dump([record(name, i, i * 2) for i, name in enumerate(names)], "in.npz", "npz")
    assert run(split, "in.npz", "parts") == 0
    found = files(work_folder / "parts")
    assert [name[:6] for name in found] == [f"0000{i}_" for i in range(5)]
    assert found[:2] == ["00000_b_x.npz", "00001_a.npz"]
    assert files(work_folder) == ["in.npz", "parts"]
    assert run(merge, "parts", "out.npz") == 0
    assert values("out.npz") == values("in.npz")


@pytest.mark.parametrize("variant", [SIM, SIM_SHAPED, FRAMEWORK])
def test_all_bytes_come_back(variant, work_folder):
    records = [record(f"conv{i}", i, i) for i in range(12)]
    if variant is not FRAMEWORK:
        records.insert(3, record("conv2", 9, 3, io="in"))
        records.insert(3, record("weights", 8, 3, io="in", constant=True))
    binary.write(records, work_folder / "in.bin", variant)
    run(split, "in.bin", "parts")
    run(merge, "parts", "out.bin")
    assert (work_folder / "out.bin").read_bytes() == (work_folder / "in.bin").read_bytes()


def test_genuine_dumps_come_back(shared, work_folder):
    for name in ("tiny_float_a_full", "tiny_fixed_d_plain", "tiny_float_c_string"):
        (source,) = (
            p for p in (shared / "sigmastar" / "dumps" / name).glob("sigma_outtensor_dump.*") if p.suffix != ".tsv"
        )
        run(split, source, f"{name}_parts")
        text = open_dump(source).format == "sigmastar_text"
        target = work_folder / f"{name}{'.txt' if text else '.bin'}"
        run(merge, f"{name}_parts", target)
        assert target.read_bytes() == source.read_bytes()


def test_parts_by_pattern(work_folder):
    save_dump([record(name, i, i) for i, name in enumerate(["head1", "body1", "tail", "head2"])], "in.npz", "npz")
    run(split, "in.npz", "parts", "--pattern", "head*", "--pattern", "*1")
    assert files(work_folder / "parts") == ["_1.npz", "head_.npz", "rest.npz"]
    assert [name for name, *_ in values("parts/head_.npz")] == ["head1", "head2"]
    assert [name for name, *_ in values("parts/rest.npz")] == ["tail"]
    with pytest.raises(ConfigError, match="pattern 'body1' matches no remaining tensor"):
        run(split, "in.npz", "again", "--pattern", "*", "--pattern", "body1")
    assert not (work_folder / "again").exists()


def test_a_folder_is_no_part():
    save_dump([record("a", 0, 0)], "in.npz", "npz")
    with pytest.raises(ConfigError, match="folder"):
        run(split, "in.npz", "parts", "--to", "npy_dir")


def test_other_formats_of_parts(work_folder):
    save_dump([record("a", 0, 0), record("b", 1, 1)], "in", "npy_dir")
    run(split, "in", "npz_parts")
    run(split, "in", "atb_parts", "--to", "atb_bin")
    assert files(work_folder / "npz_parts") == ["00000_a.npz", "00001_b.npz"]
    assert files(work_folder / "atb_parts") == ["00000_a.bin", "00001_b.bin"]


def test_names_in_two_dumps_are_told_not_lost(work_folder):
    save_dump([record("conv", 1, 0), record("only", 2, 1)], "cat.npz", "npz")
    save_dump([record("conv", 3, 0)], "dog.npz", "npz")
    with pytest.raises(ValuesError, match=r"1 names occur in more than one dump: 'conv' \(cat and dog\)\. .* --prefix"):
        run(merge, "cat.npz", "dog.npz", "out.npz")
    assert not (work_folder / "out.npz").exists()
    run(merge, "cat.npz", "dog.npz", "out.npz", "--prefix")
    found = [("cat/conv", "out", 0, 1.0), ("cat/only", "out", 1, 2.0), ("dog/conv", "out", 2, 3.0)]
    assert values("out.npz") == found


def test_a_name_that_stands_twice_in_a_dump_survives_split_and_merge(work_folder):
    save_dump([record("conv", 1, 0), record("conv", 2, 1), record("other", 3, 2)], "in.npz", "npz")
    assert run(split, "in.npz", "parts") == 0
    assert run(merge, "parts", "out.npz") == 0
    assert values("out.npz") == values("in.npz")


def test_two_dumps_of_one_label_cannot_be_prefixed(work_folder):
    (work_folder / "a").mkdir()
    save_dump([record("conv", 1, 0)], "x.npz", "npz")
    save_dump([record("conv", 1, 0)], "a/x.npz", "npz")
    with pytest.raises(ConfigError, match="have the name 'x'"):
        run(merge, "x.npz", "a/x.npz", "out.npz", "--prefix")


def test_parts_of_a_model_follow_each_other():
    """What one part puts out the next reads: that is no clash, and its operators come behind."""
    save_dump([record("x", 0, 0), record("mid", 1, 1)], "one.npz", "npz")
    save_dump([record("mid", 1, 0, io="in"), record("y", 2, 0), record("z", 3, 1)], "two.npz", "npz")
    run(merge, "one.npz", "two.npz", "out.npz")
    found = [("x", "out", 0, 0.0), ("mid", "out", 1, 1.0), ("mid", "in", 2, 1.0), ("y", "out", 2, 2.0)]
    assert values("out.npz") == [*found, ("z", "out", 3, 3.0)]


def test_files_of_a_folder_are_in_counting_order(work_folder):
    (work_folder / "in").mkdir()
    for number in (10, 2, 1):
        save_dump([record(f"t{number}", number, number)], f"in/part{number}.npz", "npz")
    run(merge, "in", "out.npz")
    assert [name for name, *_ in values("out.npz")] == ["t1", "t2", "t10"]


def test_what_is_no_dump_is_told(work_folder):
    (work_folder / "in").mkdir()
    with pytest.raises(FormatError, match="in is a folder, not a dump"):
        run(merge, "in", "out.npz")
    (work_folder / "in" / "readme.txt").write_text("hello")
    with pytest.raises(FormatError, match=r"the folder cannot be read as a folder of dumps either: in/readme\.txt"):
        run(merge, "in", "out.npz")


def test_inputs_are_never_outputs(work_folder):
    (work_folder / "in").mkdir()
    save_dump([record("a", 0, 0)], "in/a.npz", "npz")
    for words in (("in/a.npz", "in/a.npz"), ("in", "in/a.npz"), ("in/a.npz", "in", "--to", "npy_dir")):
        with pytest.raises(OutputError):
            run(merge, *words)
    with pytest.raises(OutputError):
        run(split, "in/a.npz", "in")
    assert files(work_folder) == ["in"] and files(work_folder / "in") == ["a.npz"]


def test_more_parts_than_a_process_may_open_are_merged(tmp_path):
    resource = pytest.importorskip("resource")
    save_dump(Dump([record(f"x{number}", number, number) for number in range(100)]), tmp_path / "whole.bin")
    assert run(split, "whole.bin", "parts") == 0
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, limits[1]))
    try:
        assert run(merge, "parts", "again.bin") == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "whole.bin").read_bytes()
