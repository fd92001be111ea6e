"""Readers and writers of the user's own: what they may yield, what is said of mistakes, and when they run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgsdump import compare, open_dump, save_dump
from sgsdump.cli import main
from sgsdump.dumps.own_reader import reader_format
from sgsdump.dumps.reader_checks import check_reader, check_writer
from sgsdump.errors import ConfigError, FormatError, InputError, OutputError

READER = """
import numpy as np

def read(path):
    for file in sorted(path.glob("*.f32")):
        yield file.stem, np.fromfile(file, np.float32), {"op_type": "Conv"}

def doubled(path):
    return [(name, 2 * array) for name, array, _ in read(path)]

def write(path, tensors):
    path.mkdir()
    for name, array, attributes in tensors:
        array.tofile(path / f"{name}.f32")
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_reader.py").write_text(READER)
    (tmp_path / "mine").mkdir()
    for number in range(3):
        np.full(4, number, np.float32).tofile(tmp_path / f"mine/c{number}.f32")
    np.savez(tmp_path / "known.npz", **{f"c{number}": np.full(4, number, np.float32) for number in range(3)})
    return tmp_path


def test_a_file_is_a_reader_and_a_writer(work: Path) -> None:
    dump = open_dump("mine", reader="my_reader.py")
    assert [(r.name, r.op_type, r.tensor.real().tolist()) for r in dump.records][1] == ("c1", "Conv", [1, 1, 1, 1])
    assert open_dump("mine", reader=Path("my_reader.py:doubled"))["c2"].real()[0] == 4
    assert compare("mine", "known.npz", reader="my_reader.py").verdict().outcome == "EQUAL"
    save_dump(dump, "copy", writer="my_reader.py")
    assert sorted(path.name for path in Path("copy").iterdir()) == ["c0.f32", "c1.f32", "c2.f32"]
    save_dump(dump, "copy", writer="my_reader.py")  # the older folder is set aside
    assert len([*work.glob("copy*")]) == 2 and not [*work.glob(".sgsdump*")]
    check_reader("my_reader.py", "mine")


@pytest.mark.parametrize(
    "command",
    [
        ["show", "mine"],
        ["histogram", "mine"],
        ["convert", "mine", "out.npz"],
        ["split", "mine", "parts"],
        ["merge", "mine", "out.npz"],
        ["compare", "mine", "known.npz"],
        ["report", "mine", "known.npz"],
        ["judge", "mine", "known.npz", "known.npz"],
    ],
    ids=lambda words: words[0],
)
def test_commands_take_a_reader(work: Path, command: list[str]) -> None:
    assert main([*command, "--reader", "my_reader.py"]) == 0


def test_sgsdumps_formats_come_first_unless_a_pattern_names_the_path(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "known.npz", "--reader", "my_reader.py"]) == 2
    assert "applies to none of the dumps: known.npz (npz)" in capsys.readouterr().err
    assert main(["show", "known.npz", "--reader", "*.npz=my_reader.py"]) == 2
    assert "my_reader.py: read() yields no tensor for known.npz" in capsys.readouterr().err
    assert main(["compare", "mine", "mine", "--reader", "mi*=my_reader.py:doubled"]) == 0
    assert main(["show", "mine", "--reader", "my_reader.py", "--step", "3"]) == 2
    assert "Omit --step and --rank" in capsys.readouterr().err


def test_a_user_file_runs_only_where_it_is_named(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "mine/my_reader.py").write_text("raise SystemExit('it ran')")
    assert main(["show", "mine"]) == 2
    assert "it ran" not in capsys.readouterr().err


def test_a_function_is_called_when_values_are_needed(work: Path) -> None:
    calls: list[str] = []

    def load(file: Path) -> np.ndarray:
        calls.append(file.stem)
        return np.fromfile(file, np.float32)

    def read(path: Path, **facts: Any) -> Iterator[tuple[Any, ...]]:
        for file in sorted(path.glob("*.f32")):
            yield file.stem, partial(load, file), facts

    dump = open_dump("mine", reader=partial(read, shape=[2, 2], dtype="float32"))
    assert not calls and dump["c1"].shape == (2, 2)
    with pytest.raises(FormatError, match=r"'c1' is announced as float32 \[2, 2\], but its values are float32 \[4\]"):
        dump["c1"].real()
    calls.clear()
    dump = open_dump("mine", reader=read)
    assert calls == ["c0", "c1", "c2"] and dump["c2"].real()[0] == 2 and calls[3:] == ["c2"]


def test_scales_make_integers_real(work: Path) -> None:
    per_channel = {"scale": [0.5, 2.0], "zero_point": 1, "axis": 0, "layout": "CHW", "io": "in"}
    dump = open_dump("mine", reader=lambda path: [("q", np.int8([[1, 2], [3, 4]]), per_channel)])
    assert dump["q"].real().tolist() == [[0, 0.5], [4, 6]] and dump.records[0].io == "in"


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "text": (lambda path: "text", r"must yield \(name, array\)"),
    "nothing": (lambda path: [], "yields no tensor"),
    "none": (lambda path: None, "must yield"),
    "no pair": (lambda path: [3], "item 1 is '3'"),
    "no name": (lambda path: [(3, np.zeros(1))], "name of item 1"),
    "twice": (lambda path: [("a", np.zeros(1)), ("a", np.zeros(1))], "yields the name 'a' twice"),
    "objects": (lambda path: [("a", {"b": 1})], "'a' holds object, not numbers"),
    "unknown": (lambda path: [("a", np.zeros(1), {"scales": 1})], "unknown attribute 'scales'.*'scale'"),
    "no dict": (lambda path: [("a", np.zeros(1), "Conv")], "attributes of type str"),
    "shape": (lambda path: [("a", np.zeros(1), {"shape": "x"})], "has shape .* which is not a list of sizes"),
    "huge": (lambda path: [("a", np.zeros(1), {"shape": [2**60, 2**60]})], "which is not a list of sizes"),
    "dtype": (lambda path: [("a", np.zeros(1), {"dtype": "float33"})], "which is not a type"),
    "float scale": (lambda path: [("a", np.zeros(1), {"scale": 0.5})], "has a scale, but its type float64"),
    "fails": (lambda path: [("a", np.zeros(1))] * (1 // 0), "test_own_reader.py:.*ZeroDivisionError"),
    "announced": (lambda path: [("a", np.zeros(3), {"shape": [2], "dtype": "float64"})], "announced as float64"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_reader_is_told_what_to_change(kind: str, work: Path) -> None:
    reader, said = WRONG[kind]
    with pytest.raises(InputError, match=said) as caught:
        open_dump("mine", reader=reader)
    assert "\n" not in str(caught.value)


def test_functions_that_share_their_variable_are_refused(work: Path) -> None:
    def read(path: Path) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
        for file in sorted(path.glob("*.f32")):
            yield file.stem, lambda: np.fromfile(file, np.float32)  # noqa: B023

    with pytest.raises(InputError, match=r"'c0' and 'c1' share their variables.*functools\.partial"):
        open_dump("mine", reader=read)


def test_missing_files_and_functions(work: Path) -> None:
    for reader, said in (("none.py", "no reader file none.py"), ("my_reader.py:f", r"no function f\(path\)")):
        with pytest.raises(InputError, match=said):
            open_dump("mine", reader=reader)
    with pytest.raises(FormatError, match="no such file"):
        open_dump("nowhere", reader="my_reader.py")
    with pytest.raises(ConfigError, match="only a tree has runs"):
        open_dump("mine", step=1, reader="my_reader.py")


def test_a_writer_that_fails_leaves_nothing(work: Path) -> None:
    def fails(path: Path, tensors: Any) -> None:
        path.write_text("half")
        raise ValueError("full")

    for writer, error in ((fails, InputError), (lambda path, tensors: None, OutputError)):
        with pytest.raises(error):
            save_dump({"a": np.zeros(1)}, "out.mine", writer=writer)
    assert not [*work.glob("*out*"), *work.glob(".sgsdump*")]
    with pytest.raises(ConfigError, match="Omit 'format' or 'writer'"):
        save_dump({"a": np.zeros(1)}, "out.mine", "npz", writer=fails)
    assert main(["convert", "known.npz", "out", "--writer", "my_reader.py", "--to", "npz"]) == 2


def test_damage_of_the_input_is_not_blamed_on_the_writer(work: Path) -> None:
    dump = open_dump(
        "mine", reader=lambda path: [("a", partial(np.load, path / "gone"), {"shape": [1], "dtype": "i1"})]
    )
    with pytest.raises(FormatError, match="reader failed on tensor 'a'"):
        save_dump(dump, "out", writer="my_reader.py")


def test_checks_of_a_reader_find_mistakes(work: Path) -> None:
    buffer = np.zeros(4, np.float32)

    def reuses(path: Path) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
        def load(file: Path) -> np.ndarray:
            buffer[:] = np.fromfile(file, np.float32)
            return buffer

        yield from ((file.stem, partial(load, file)) for file in sorted(path.glob("*.f32")))

    state = iter(range(100))
    for reader, said in (
        (reuses, "changed when another tensor was loaded"),
        (lambda path: [("a", np.float32([next(state)]))], "has other values"),
        (lambda path: [(f"a{next(state)}", np.zeros(1))], "different tensors"),
        (lambda path: [("a", np.array(["x"]))], "not numbers"),
        (lambda path: [("a", np.zeros(1))], "a path that does not exist"),
    ):
        with pytest.raises(AssertionError, match=said):
            check_reader(reader, "mine")


def test_checks_of_a_writer(work: Path) -> None:
    def floats(path: Path) -> Iterator[tuple[str, np.ndarray]]:
        yield from ((file.stem, np.fromfile(file, np.float32)) for file in path.glob("*.f32"))

    check_writer("my_reader.py")
    with pytest.raises(AssertionError, match="comes back with other values"):
        check_writer("my_reader.py", floats)


def test_a_reader_becomes_a_format_of_a_plug_in(work: Path) -> None:
    format = reader_format("mine", lambda path, head: path.name == "mine", lambda path: [("a", np.zeros(2))])
    dump = format.read(work / "mine")
    assert format.recognises(work / "mine", b"") and dump.format == "mine" and list(dump) == ["a"]
    assert importlib.import_module("sgsdump.testing").check_reader is check_reader
