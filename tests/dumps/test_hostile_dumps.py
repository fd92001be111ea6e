"""Dumps made to do harm, by hand: each opens or is refused in one line, costs its worth, and leads nowhere else."""

import io
import json
import os
import pickle
import struct
import sys
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

pytest.importorskip("resource")  # what fuzzing measures memory by

from fuzzing import readers, trial
from fuzzing.seeds import all_seeds

from sgsdump import Dump, Record, Tensor, open_dump, save_dump
from sgsdump.comparison.naming import NAME_FILES
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import FormatError, SgsdumpError
from sgsdump.sidecars import SIDECARS

SIDE_FILES = {**SIDECARS, **NAME_FILES}


SEEDS = all_seeds(None)
WRITABLE = [name for name, format in FORMATS.items() if format.write is not None]
FOLDERS = [(name, number) for name, seeds in SEEDS.items() for number, s in enumerate(seeds) if s.is_folder and s.put]
DUMP_FOLDERS = [(name, number) for name, number in FOLDERS if name in FORMATS]
NAMES = [
    *(
        "../../x",
        "/etc/x",
        "..\\..\\x",
        "a/../../b",
        "..",
        ".",
        "",
        "/",
        "~",
        "%2e%2e%2fx",
        "C:\\x",
        "C:x",
        "nul",
        "-rf",
    ),
    *("x" * 256, "x/" * 5000, "ö" * 200, "a\nb", "a\0b", "\x1b[2J", "\u202ex", "\udcff\udc2f", "sgsdump.json", "x.npy"),
    *("dump_info.json", "../outputs/x", "__metadata__", "outputs", "inputs/x", "$(x)", "`x`", "a;b", "isFloat: 1"),
]


def harmless(path, size=None, read=readers.read_dump):
    """Whether it was opened; nothing but an error of ours, in a second, in memory of its size and a constant."""
    size = sum(p.stat().st_size for p in [path, *path.rglob("*")] if p.is_file()) if size is None else size
    start = time.process_time()
    opened, finding = trial.tried(read, path, size, traced=True)
    if finding is None and time.process_time() - start > trial.SECONDS:  # watching the memory is slow
        opened, finding = trial.tried(read, path, size, traced=False)
    assert finding is None, finding.details
    return opened


def below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.filterwarnings("ignore::sgsdump.errors.LossWarning")
@pytest.mark.parametrize("format", WRITABLE)
def test_no_name_leads_out_of_the_output(format, tmp_path):
    place = tmp_path / "a" / "b" / "c"
    place.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        tensor = Tensor.of(name, np.arange(3, dtype=np.float32), op_type=name)
        out = place / f"out{number}"
        before = below(tmp_path)
        try:
            save_dump([Record("out", 0, 0, name, tensor)], out, format)
        except SgsdumpError as error:
            assert len(str(error).splitlines()) == 1 and below(tmp_path) == before
            continue
        new = below(tmp_path) - before
        assert all(Path(path).is_relative_to(f"a/b/c/out{number}") for path in new)
        assert all(len(os.fsencode(part)) <= 255 for path in new for part in Path(path).parts)
        assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
        assert harmless(out)


@pytest.mark.filterwarnings("ignore::sgsdump.errors.LossWarning")
@pytest.mark.parametrize("format", WRITABLE)
def test_all_hostile_names_in_one_dump(format, tmp_path):
    """Each has its own values again: no two share a file."""
    records = []
    for number, name in enumerate(NAMES):
        records.append(Record("out", 0, number, "X", Tensor.of(name, np.full(3, number, np.float32), op_type="X")))
    refused = {id(lost.record) for lost in FORMATS[format].loses(records, None) if lost.refused}
    records = [record for record in records if id(record) not in refused]
    save_dump(records, tmp_path / "out", format)
    assert os.listdir(tmp_path) == ["out"]
    found = open_dump(tmp_path / "out")
    assert [record.tensor.real()[0] for record in found.records] == [record.tensor.real()[0] for record in records]


@pytest.mark.parametrize("name, number", DUMP_FOLDERS)
def test_pipes_in_a_folder_are_never_waited_for(name, number, tmp_path):
    seed = SEEDS[name][number]
    path = seed.put(tmp_path)
    for file in seed.files:
        pipes = path / file, (path / file).with_name("other" + Path(file).suffix)
        (path / file).rename(tmp_path / "kept")
        for pipe in pipes:
            os.mkfifo(pipe)
        harmless(path, 10**5)
        for pipe in pipes:
            pipe.unlink()
        (tmp_path / "kept").rename(path / file)


@pytest.mark.parametrize("name, number", DUMP_FOLDERS)
def test_links_out_of_a_folder_are_not_followed(name, number, tmp_path):
    seed = SEEDS[name][number]
    whole = len(open_dump(seed.put(tmp_path / "whole")).records)
    outside = tmp_path / "outside"
    path = seed.put(tmp_path / "linked")
    for file in seed.files:
        (path / file).rename(outside)
        (path / file).symlink_to(outside)
        try:
            dump = open_dump(path)
        except SgsdumpError:
            pass
        else:
            assert len(dump.records) < whole or dump.notes or dump.format != name
            assert str(outside) not in {str(getattr(r.tensor, "path", "")) for r in dump.records}
        (path / file).unlink()
        outside.rename(path / file)


@pytest.mark.parametrize("name, number", DUMP_FOLDERS)
def test_loops_dangling_links_and_folders_in_the_place_of_files(name, number, tmp_path):
    seed = SEEDS[name][number]
    path = seed.put(tmp_path / "loop")
    names = [record.name for record in open_dump(path).records]
    for folder in {(path / file).parent for file in seed.files}:
        (folder / "loop").symlink_to(path)
        (folder / "self.npy").symlink_to("self.npy")
        (folder / "gone.bin").symlink_to("nowhere")
    assert harmless(path)
    assert [record.name for record in open_dump(path).records] == names
    path = seed.put(tmp_path / "whole")
    for file in seed.files:
        (path / file).rename(tmp_path / "kept")
        (path / file).mkdir()
        harmless(path, 10**5)
        (path / file).rmdir()
        (tmp_path / "kept").rename(path / file)


def _refused(file, folder):
    if str(file).startswith(str(folder)):
        raise PermissionError(13, "Permission denied", str(file))


@pytest.mark.parametrize("name, number", DUMP_FOLDERS)
def test_entries_that_cannot_be_read(name, number, tmp_path, monkeypatch):
    """As another user's files are; tests may run as one who can read all."""
    seed = SEEDS[name][number]
    path = seed.put(tmp_path)
    import builtins

    opened = builtins.open

    def refusing(file, *args, **more):
        _refused(file, path)
        return opened(file, *args, **more)

    monkeypatch.setattr(builtins, "open", refusing)
    monkeypatch.setattr(io, "open", refusing)
    opened_by_number = os.open
    monkeypatch.setattr(
        os, "open", lambda file, *args, **more: _refused(file, path) or opened_by_number(file, *args, **more)
    )
    with pytest.raises(SgsdumpError) as caught:
        open_dump(path)
    assert str(path) in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_pipe_is_no_dump(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="a device or a pipe"):
        open_dump(tmp_path / "pipe")


class Harm:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("format", ["npy", "npz", "npy_dir", "dump_info_dir", "msprobe_dir"])
def test_pickled_arrays_are_not_loaded(format, tmp_path):
    data = io.BytesIO()
    np.save(data, np.array([Harm(tmp_path / "harm")], object), allow_pickle=True)
    if format == "npy":
        (tmp_path / "dump").write_bytes(data.getvalue())
    elif format == "npz":
        with zipfile.ZipFile(tmp_path / "dump", "w") as archive:
            archive.writestr("x.npy", data.getvalue())
    else:
        seed = SEEDS[format][0]
        seed.put(tmp_path).rename(tmp_path / "dump")
        for file in seed.files:
            if file.endswith(".npy"):
                (tmp_path / "dump" / file).write_bytes(data.getvalue())
    # A msprobe_dir has statistics beside: an array that cannot be read costs its values only.
    assert not harmless(tmp_path / "dump") or format == "msprobe_dir"
    assert not (tmp_path / "harm").exists()
    for name, read in SIDE_FILES.items():
        (tmp_path / "side").write_bytes(pickle.dumps(Harm(tmp_path / "harm")))
        harmless(tmp_path / "side", read=read)
        assert not (tmp_path / "harm").exists(), name


def _npy(header):
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode()


HUGE = {
    "sigmastar_bin": b"isFloat: 1\n//out 0 s: 0.000000 z: 0 type: float name: x bConstant: 0 s: {}\n//op_out[0] X {\n"
    b"//buffer data size: 999999999999999999\n",
    "npy": _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,), }\n"),
    "npy_many": _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976, 0), }\n"),
    "npy_long": _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",), }\n"),
    "npy_text": _npy("{'descr': '<U999999999', 'fortran_order': False, 'shape': (1,), }\n"),
    "npy_deep": _npy("(" * 9000 + ")" * 900),
    "npy_blanks": _npy("{'descr': '<i99999999999', 'fortran_order': False, 'shape': (16,), }" + " " * 9000 + "0\0"),
    "npy_header": b"\x93NUMPY\2\0\xff\xff\xff\xff{",
    "safetensors": struct.pack("<Q", 2**63) + b'{"x":{}}',
    "safetensors_4g": struct.pack("<Q", 2**32 - 1) + b'{"x":{}}',
    "safetensors_shape": struct.pack("<Q", 76)
    + b'{"x":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}}  ',
    "atb_bin": b"$Version=1.0\n$Object.Count=1\n$Object.Length=99999999999\nformat=2\ndtype=0\ndims=99999,99999,999\n"
    b"$Object.data=0,99999999999\n$End=1\n",
    "atb_bin_long": b"$Version=1.0\nformat=2\ndtype=0\ndims=" + b"9" * 5000 + b"\n$End=1\n",
    "atb_bin_endless": b"$Version=1.0\ndims=2\n" + b"a=b\n" * 9000,
    "ascend_dump": struct.pack("<Q", 2**63) + b"\x0a\x032.0",
    "ascend_dump_varint": struct.pack("<Q", 20) + b"\x0a\x032.0" + b"\x22\x0a\x28" + b"\xff" * 9 + b"\x01" + b"\0" * 40,
    "ascend_nano": struct.pack("<Q", 24) + b"ZZZZ" + struct.pack("<IIII", 0, 4, 4, 2**32 - 1) + b"\0" * 40,
    "ascend_stats": b"Input/Output,Index,Data Type,Format,Shape\nOutput,0,DT_FLOAT,ND," + b"9" * 900 + b"x9\n",
}


@pytest.mark.parametrize("name", HUGE)
def test_a_declared_size_costs_nothing(name, tmp_path):
    (tmp_path / "x").write_bytes(HUGE[name])
    assert not harmless(tmp_path / "x")


def _zip(path, members, **declared):
    """A zip archive; ``declared`` are fields of every entry that say something else than what is there."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
        for info in archive.infolist():
            for field, value in declared.items():
                setattr(info, field, value)


def test_a_bomb_that_tells_its_size(tmp_path):
    header = _npy("{'descr': '|i1', 'fortran_order': False, 'shape': (1000000000,), }\n")
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(header) + packer.compress(bytes(2**20)) + packer.flush()
    _zip(tmp_path / "x.npz", [("x.npy", header + bytes(2**20))], file_size=10**9 + len(header), CRC=0)
    assert len(packed) < 2000
    assert not harmless(tmp_path / "x.npz")


def test_a_bomb_that_hides_its_size(tmp_path):
    header = _npy("{'descr': '|i1', 'fortran_order': False, 'shape': (100,), }\n")
    _zip(tmp_path / "x.npz", [("x.npy", header + bytes(2**26))], file_size=len(header) + 100)
    assert harmless(tmp_path / "x.npz")
    with pytest.raises(FormatError, match=r"unpacks to more|damaged"):
        open_dump(tmp_path / "x.npz")["x"].stored()


def test_members_of_one_name_are_told(tmp_path):
    arrays = [io.BytesIO(), io.BytesIO()]
    for number, file in enumerate(arrays):
        np.save(file, np.full(3, number))
    with pytest.warns(UserWarning, match="Duplicate"):
        _zip(tmp_path / "x.npz", [("x.npy", file.getvalue()) for file in arrays])
    dump = open_dump(tmp_path / "x.npz")
    assert dump["x"].stored().tolist() == [1, 1, 1]
    assert "1 members are ignored: a later member has the same name" in dump.notes[0]


def test_members_outside_of_the_archives_folder(tmp_path):
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    (tmp_path / "in").mkdir()
    _zip(tmp_path / "in" / "x.npz", [("../../x.npy", file.getvalue()), ("/x.npy", file.getvalue())])
    dump = open_dump(tmp_path / "in" / "x.npz")
    assert list(dump) == ["../../x", "/x"]
    save_dump(dump, tmp_path / "in" / "out", "npy_dir")
    assert sorted(os.listdir(tmp_path)) == ["in"] and sorted(os.listdir(tmp_path / "in")) == ["out", "x.npz"]


DEEP = 100_000
TEXTS = {
    "lists": "[" * DEEP,
    "closed lists": "[" * DEEP + "]" * DEEP,
    "objects": '{"a":' * DEEP,
    "huge number": '{"sgsdump": 1e999, "records": [1e999], "data": {"a": 1e999}}',
    "long number": '{"sgsdump": ' + "9" * 10_000 + "}",
    "NaN": '{"sgsdump": NaN, "records": Infinity, "data": -Infinity}',
    "no text": b'{"sgsdump": "\xff\xfe\xed\xa0\x80"}',
    "lone surrogate": '{"sgsdump": 1, "\\ud800": ["\\udfff"], "records": ["\\ud800"]}',
    "twice": '{"sgsdump": 1, "sgsdump": 2, "records": [], "records": {}}',
    "many": "[" + "1," * 30_000 + "1]",
    "null": "null",
    "number": "1",
    "empty": "",
    "zero": b"\0" * 100,
    "utf-16": "{}".encode("utf-16"),
}


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize("name, number", FOLDERS)
def test_hostile_json_in_a_folder(name, number, what, tmp_path):
    text = TEXTS[what]
    path = SEEDS[name][number].put(tmp_path)
    for file in [*path.rglob("*.json"), *path.rglob("*.csv"), *path.rglob("*.txt")]:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    harmless(path, read=readers.reader(name))


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize("name", [name for name in SIDE_FILES if name != "debug_config"])
def test_hostile_json_in_a_side_file(name, what, tmp_path):
    # What is no JSON is read as YAML there, 30 KB in a second at most.
    text = TEXTS[what][: 5000 if name in ("layer_mapping", "name_map") else None]
    (tmp_path / "x").write_bytes(text if isinstance(text, bytes) else text.encode())
    harmless(tmp_path / "x", read=SIDE_FILES[name])


@pytest.mark.parametrize("what", TEXTS)
def test_hostile_json_inside_of_a_file(what, tmp_path):
    text = TEXTS[what] if isinstance(TEXTS[what], bytes) else TEXTS[what].encode()
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", _npy("{'descr': '|i1', 'fortran_order': False, 'shape': (1,), }\n") + b"1")
        archive.writestr("sgsdump.json", text)
    assert not harmless(tmp_path / "x.npz")
    header = text[:90_000] if text.startswith(b"{") else b'{"x":' + text[:90_000] + b"}"
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert not harmless(tmp_path / "x.safetensors")
    header = json.dumps({"__metadata__": {"sgsdump.json": text.decode("utf-8", "replace")[:90_000]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert not harmless(tmp_path / "x.safetensors")


def test_many_tiny_records(tmp_path):
    records = [Record("out", 0, i, "X", Tensor.of("x", np.zeros(1, np.float32), op_type="X")) for i in range(2)]
    save_dump(records, tmp_path / "x", "sigmastar_bin")
    head, line, rest = (tmp_path / "x").read_bytes().partition(b"\n")
    (tmp_path / "x").write_bytes(head + line + rest * 10_000)
    dump = open_dump(tmp_path / "x")
    assert len(dump.records) == 20_000 and dump.records[-1].tensor.real().tolist() == [0.0]


def test_many_tiny_members(tmp_path):
    data = _npy("{'descr': '|i1', 'fortran_order': False, 'shape': (1,), }\n") + b"1"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for number in range(5_000):
            archive.writestr(zipfile.ZipInfo(f"{number}.npy"), data)
    assert len(open_dump(tmp_path / "x.npz")) == 5_000


def test_names_that_are_no_text_come_through(tmp_path):
    tensor = Tensor.of("Gr\udcf6\udcdfe", np.zeros(3, np.float32))
    save_dump([tensor], tmp_path / "x", "sigmastar_bin")
    assert b"Gr\xf6\xdfe" in (tmp_path / "x").read_bytes()
    dump = open_dump(tmp_path / "x")
    assert isinstance(dump, Dump) and list(dump) == ["Gr\udcf6\udcdfe"]
    assert str(FormatError(f"no {dump.records[0].name}")).encode("utf-8", "backslashreplace")
