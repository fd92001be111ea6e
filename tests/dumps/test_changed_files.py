"""A dump's file that is truncated or rewritten while it is open: an error of one line, never a signal, never the values
of another run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from platforms import unix_only

import sgsdump
from sgsdump import Dump, Record, Tensor, TensorInfo, open_dump, save_dump
from sgsdump.errors import FileChanged
from sgsdump.files import mapped
from sgsdump.files.mapped import file_of
from sgsdump.files.process import no_views

# Windows cuts and replaces no file that is mapped.
pytestmark = unix_only

SHAPES = ((1, 40, 60, 20), (1, 64), (2000, 100))
DRIVER = """
import os, sys
from sgsdump.cli import main
from sgsdump.dumps.dump import Dump
from sgsdump.files.mapped import Source

path, change, commands = sys.argv[1], sys.argv[2], sys.argv[3:]
whole, init = open(path, "rb").read(), Dump.__init__

def and_then_changed(self, *args, **kwargs):
    init(self, *args, **kwargs)
    if str(self.path) != path:
        return
    with open(path, "r+b") as file:
        if change == "rewritten":
            file.seek(len(whole) - 80_000)
            file.write(bytes(10_000))
        else:
            file.truncate(5000)

if change == "truncated after the look":
    Source.check = lambda self: None
for command in commands:
    open(path, "wb").write(whole)
    Dump.__init__ = and_then_changed
    try:
        status = main(command.split())
    except SystemExit as error:
        status = error.code
    Dump.__init__ = init
    print("status", status, command, file=sys.stderr)
"""


def make(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensors = []
    for number, shape in enumerate(SHAPES):
        layout = "NHWC" if len(shape) == 4 else None
        values = rng.standard_normal(shape).astype(np.float32)
        tensors.append(Tensor(TensorInfo(f"x{number}", shape, values.dtype, layout), lambda values=values: values))
    save_dump(Dump([Record("out", 0, number, "Conv", tensor) for number, tensor in enumerate(tensors)]), path)


@pytest.mark.parametrize("change", ["truncated", "truncated after the look", "rewritten"])
@pytest.mark.parametrize("ending", ["bin", "npz"])
@pytest.mark.filterwarnings("ignore::sgsdump.errors.LossWarning")
def test_no_command_ends_by_a_signal(tmp_path: Path, ending: str, change: str) -> None:
    for name, seed in (("a", 1), ("b", 1)):
        make(tmp_path / f"{name}.{ending}", seed)
    rng = np.random.default_rng(1)
    first = rng.standard_normal(SHAPES[0]).astype(np.float32)
    turned = Tensor.of("x0", np.ascontiguousarray(first.transpose(0, 3, 1, 2)), layout="NCHW")
    save_dump(Dump([Record("out", 0, 0, "Conv", turned)]), tmp_path / "turned.npz")
    a, b = (f"{tmp_path}/{name}.{ending}" for name in "ab")
    commands = [
        f"compare {a} {b}",
        f"compare {b} {a} --metrics MaxAbsoluteError",
        f"compare {a} {tmp_path}/turned.npz",
        f"report {a} {b} -o {tmp_path}/page.html",
        f"histogram {a} -o {tmp_path}/pictures",
        f"show {a}",
        f"show {a} x2",
        f"convert {a} {tmp_path}/c.safetensors",
        f"convert {a} {tmp_path}/c.txt",
        f"judge {a} {b} {b}",
        f"judge {b} {a} {b}",
        f"judge {b} {b} {a}",
        f"compare {a} {b} --plots {tmp_path}/plots --csv {tmp_path}/c.csv",
        f"compare {a} {b} --match-by-value",
        f"show {a} --json {tmp_path}/c.json",
        f"show {a} x2 --against {b}",
        f"split {a} {tmp_path}/c.parts",
        f"merge --prefix {a} {tmp_path}/turned.npz {tmp_path}/c.merged.npz",
    ]
    ran = subprocess.run([sys.executable, "-c", DRIVER, a, change, *commands], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stderr.splitlines()
    for command in commands:
        status = next(number for number, line in enumerate(lines) if line.endswith(command))
        assert lines[status] == f"status 2 {command}", ran.stderr
        assert f"{a} has changed since it was opened" in lines[status - 1], ran.stderr
    assert "Traceback" not in ran.stderr
    assert not list(tmp_path.glob("c.*")), "nothing half-written"


@pytest.mark.parametrize("name", ["d.bin", "d.npz", "d.safetensors", "d.txt", "d"])
@pytest.mark.parametrize("change", ["truncated", "rewritten", "replaced", "gone"])
@pytest.mark.filterwarnings("ignore::sgsdump.errors.LossWarning")
def test_a_session_is_told(tmp_path: Path, name: str, change: str) -> None:
    if name.endswith("safetensors"):
        pytest.importorskip("safetensors")
    make(tmp_path / name, 1)
    dump = open_dump(tmp_path / name)
    before = dump["x2"].real()
    expected = before.copy()
    files = [path for path in [tmp_path / name, *(tmp_path / name).glob("*.npy")] if path.is_file()]
    for path in files:
        content = path.read_bytes()
        if change == "truncated":
            os.truncate(path, 10)
        elif change == "rewritten":
            path.write_bytes(content[:-1000] + content[:1000])
        elif change == "replaced":
            (tmp_path / "new").write_bytes(content)
            (tmp_path / "new").replace(path)
        else:
            path.unlink()
    np.testing.assert_array_equal(before, expected, err_msg="a copy outlives its file")
    for ask in (dump["x2"].real, dump["x1"].stored, lambda: dump["x0"][0, :2], lambda: sgsdump.compare(dump, dump)):
        with pytest.raises(FileChanged, match="has changed since it was opened") as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_large_tensors_are_views_but_not_in_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "d.bin", 1)
    dump = open_dump(tmp_path / "d.bin")
    monkeypatch.setattr(mapped, "COPIED", 100_000)
    assert file_of(dump["x1"].stored()) is None
    assert file_of(dump["x2"].stored()) is not None and file_of(dump["x2"].real()) is not None
    with no_views():
        assert file_of(dump["x2"].stored()) is None and file_of(dump["x2"][:]) is None


@pytest.mark.parametrize("index", [np.s_[:], np.s_[3:7, ::-2], np.s_[::-1, 5], np.s_[-1], np.s_[5:5], np.s_[..., None]])
def test_a_part_in_any_order_is_read_into_memory(tmp_path: Path, index: object) -> None:
    values = np.arange(2000 * 100, dtype=np.float32).reshape(2000, 100)
    values.tofile(tmp_path / "values")
    part = mapped.view(mapped.map_file(tmp_path / "values"), values.dtype, values.size, 0).reshape(values.shape)[index]
    read = mapped.in_memory(part)
    assert file_of(read) is None and not read.flags.writeable
    np.testing.assert_array_equal(read, values[index])
    if part.size:
        places = np.random.default_rng(0).integers(0, part.size, 30)
        np.testing.assert_array_equal(mapped.picked(part, places), values[index].reshape(-1)[places])
