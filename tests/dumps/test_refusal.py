"""What is said of a path that no format recognises: what it looks like, and the option that opens it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from sgsdump import open_dump, save_dump
from sgsdump.cli import main
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import UnknownFormat

X = np.random.default_rng(0).normal(size=64).astype(np.float32)
FILES = {
    "float.raw": (X.tobytes(), "values without a header. Give the type: --raw-dtype float32"),
    "half.dat": (X.astype(np.float16).tobytes(), "--raw-dtype float16"),
    "ids.bin": (np.arange(64, dtype=np.int32).tobytes(), "--raw-dtype int32"),
    "bytes.bin": (np.random.default_rng(0).integers(0, 256, 64, np.uint8).tobytes(), "--raw-dtype int8"),
    "net.h5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5. Read it with h5py"),
    "x.gz": (gzip.compress(b"1 2 3"), "Unpack it first"),
    "notes": (b"hello\n", "text that is not only numbers"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file(name: str, tmp_path: Path) -> None:
    data, said = FILES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnknownFormat, match="is not a dump of a known format; it looks like") as caught:
        open_dump(tmp_path / name)
    error = caught.value
    assert said in str(error) and "\n" not in str(error)
    assert f"{len(data)} bytes, begins with" in error.hints[0]
    assert any("--reader my_reader.py" in hint for hint in error.hints) and len(error.hints) <= 8
    assert not [format for format in FORMATS if sum(f in " ".join(error.hints) for f in FORMATS) > 3]


def test_the_type_that_is_proposed_opens_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.raw").write_bytes(X.tobytes())
    assert main(["show", str(tmp_path / "x.raw"), "--raw-dtype", "float32"]) == 0


def test_the_reader_that_is_proposed_opens_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dump").mkdir()
    for name in ("a", "b"):
        Path(f"dump/{name}.mine").write_bytes(X.tobytes())
    Path("dump/log.md").write_text("hello")
    assert main(["show", "dump"]) == 2
    error, *hints = capsys.readouterr().err.splitlines()
    assert "dump is a folder, not a dump: 2 .mine, 1 .md" in error
    lines = hints[next(number for number, hint in enumerate(hints) if "my_reader.py" in hint) + 1 :]
    Path("my_reader.py").write_text("".join(f"{line[6:]}\n" for line in lines))
    assert main(["show", "dump", "--reader", "my_reader.py"]) == 0
    assert "2 tensors" in capsys.readouterr().out


def test_a_folder_of_dumps_names_one(tmp_path: Path) -> None:
    (tmp_path / "runs/one").mkdir(parents=True)
    for number in range(2):
        save_dump({"a": X}, tmp_path / f"runs/{number}.npz")
    with pytest.raises(
        UnknownFormat, match=r"2 dumps, the first of format npz\. Name one, such as .*0\.npz; or compare"
    ):
        open_dump(tmp_path / "runs")


def test_a_folder_of_other_things(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.md", "d.py"):
        (tmp_path / name).write_bytes(b"\x89PNG")
    with pytest.raises(UnknownFormat, match=r"2 \.png, 1 \.md, 1 \.py\. It looks like images\. Give them"):
        open_dump(tmp_path)


PROFILE = b"""[
{"cat" : "Session","pid" :23865,"tid" :23865,"dur" :982,"ts" :137,"ph" : "X","name" :"model_loading_uri","args" : {}},
{"cat" : "Node","pid" :23865,"dur" :222,"ts" :13981,"ph" : "X","name" :"/relu1/Relu_kernel_time","args" : {}}]"""


@pytest.mark.parametrize("data", [PROFILE, b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op"}]}'])
def test_a_profile_has_no_values(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first lines of a profile of onnxruntime 1.32, and of a trace in the same format."""
    (tmp_path / "profile.json").write_bytes(data)
    assert main(["show", str(tmp_path / "profile.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no values of tensors. Dump the values of the model: sgsdump dump -m MODEL -i INPUT" in line


def test_ranges_are_no_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.encodings").write_text('{"activation_encodings": {"a": [{"min": 0, "max": 1, "bitwidth": 8}]}}')
    assert main(["show", str(tmp_path / "net.encodings")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "it holds calibration ranges. Draw a dump against the ranges: sgsdump histogram DUMP" in line
