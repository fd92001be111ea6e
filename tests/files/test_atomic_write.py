"""Files become themselves when whole; older folders are moved aside, never deleted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from platforms import open_on_windows, unix_only

from sgsdump.errors import OutputError
from sgsdump.files import atomic_write
from sgsdump.files.atomic_write import (
    check_folder,
    check_outputs,
    make_folder,
    replace_text,
    replacing,
    replacing_folder,
    set_aside,
    together,
)


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "result"
    with replacing(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_the_old_file_stays_when_the_block_fails(tmp_path: Path) -> None:
    path = tmp_path / "result"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_where_no_file_can_be_is_told(tmp_path: Path) -> None:
    no_room = tmp_path / ("x" * 300)
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "x", "make it first"),
        (no_room, "[Nn]ame too long"),
    ):
        with pytest.raises(OutputError, match=message) as caught, replacing(path):
            pytest.fail("the block must not run")
        assert str(path) in str(caught.value)
    with pytest.raises(OutputError, match=r"[Nn]ame too long"):
        check_folder(no_room)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_at_closing_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What still lies in the buffer when the block ends well must not be lost in silence."""
    monkeypatch.setattr("sgsdump.files.atomic_write.open", lambda *_: Path("/dev/full").open("wb"), raising=False)  # noqa: SIM115
    with pytest.raises(OutputError, match="No space left"), replacing(tmp_path / "result") as file:
        file.write(b"a few bytes")
    assert not list(tmp_path.iterdir())


def test_a_long_name_still_gets_its_partial_file(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    with replacing(path) as file:
        file.write(b"x")
    assert path.read_bytes() == b"x"


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot make the folder"):
        make_folder(tmp_path / "file" / "sub")


def test_an_older_folder_is_moved_aside_with_its_date(tmp_path: Path) -> None:
    assert set_aside(tmp_path / "log") is None
    stamp = time.mktime((2024, 3, 5, 6, 7, 8, 0, 0, -1))
    places = []
    for number in range(3):
        folder = make_folder(tmp_path / "log")
        (folder / "kept").write_text(str(number))
        os.utime(folder, (stamp, stamp))
        places.append(set_aside(folder))
    assert [p.name for p in places if p] == ["log_20240305-060708", "log_20240305-060708_2", "log_20240305-060708_3"]
    assert [(p / "kept").read_text() for p in places if p] == ["0", "1", "2"]
    assert not (tmp_path / "log").exists()


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with replacing(link) as file:
        file.write(b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"


@unix_only
def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="device or a pipe"), replacing(tmp_path / "pipe"):
        pass
    assert (tmp_path / "pipe").is_fifo()


def test_results_never_overwrite_what_the_command_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_outputs(["a", None], ["b", None])
    with pytest.raises(OutputError, match="reads or writes that file already"):
        check_outputs(["./a"], [tmp_path / "a"])
    with pytest.raises(OutputError, match="reads or writes that file already"):
        check_outputs(["a", "a"], [])


def test_files_written_together_take_their_places_together(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"old")
    with together():
        for path in (one, other):
            with replacing(path) as file:
                file.write(b"new")
        assert one.read_bytes() == b"old" and not other.exists()
    assert one.read_bytes() == other.read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 2


def test_files_written_together_all_fail_when_one_does(tmp_path):
    one = tmp_path / "one"
    with pytest.raises(OutputError), together():
        with replacing(one) as file:
            file.write(b"new")
        with replacing(tmp_path / "none" / "other"):
            pytest.fail("the block must not run")
    assert not list(tmp_path.iterdir())


def test_files_stay_if_nobody_reads_the_output_any_more(tmp_path):
    with pytest.raises(BrokenPipeError), together():
        with replacing(tmp_path / "one") as file:
            file.write(b"new")
        raise BrokenPipeError
    assert (tmp_path / "one").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 1


def test_a_file_that_cannot_be_renamed_says_which_are_written(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    with pytest.raises(OutputError, match=r"cannot write .*other.*; already written: .*one$"), together():
        for path in (one, other):
            with replacing(path) as file:
                file.write(b"new")
        (other / "in the way").mkdir(parents=True)
    assert one.read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 2


def test_a_file_that_is_open_on_windows_says_what_to_close(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    other.write_bytes(b"old")
    said = (
        "cannot write {}: it is open; close the program that uses it (in Python, close the dump), then run the "
        "command again"
    )
    with open_on_windows(other, monkeypatch):
        with pytest.raises(OutputError) as alone, replacing(other) as file:
            file.write(b"new")
        with pytest.raises(OutputError) as second, together():
            for path in (one, other):
                with replacing(path) as file:
                    file.write(b"new")
    assert (
        str(alone.value) == said.format(other) and str(second.value) == f"{said.format(other)}; already written: {one}"
    )
    assert other.read_bytes() == b"old" and {*tmp_path.iterdir()} == {one, other}


def test_a_folder_of_which_a_file_is_open_on_windows_says_what_to_close(tmp_path, monkeypatch):
    path = make_folder(tmp_path / "d")
    (path / "x").write_text("old")
    with (
        open_on_windows(path / "x", monkeypatch),
        pytest.raises(OutputError, match=r"d aside: a file in it is open; close the program that uses it"),
        replacing_folder(path) as folder,
    ):
        (folder / "x").write_text("new")
    assert [*tmp_path.iterdir()] == [path] and (path / "x").read_text() == "old"


def test_a_file_that_is_read_only_on_windows_is_not_said_to_be_open(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)  # root may write all
    with (
        open_on_windows(path, monkeypatch),
        pytest.raises(OutputError, match="x: it is read-only; remove it, or allow writing"),
        replacing(path),
    ):
        pass


def dead(folder, name):
    """A partial of a process that lives no more."""
    path = folder / f".{name}.4194305.partial"
    path.write_bytes(b"half")
    return path


@unix_only
def test_what_a_killed_writer_left_goes_with_the_next_result(tmp_path):
    left, others, folder = dead(tmp_path, "result"), dead(tmp_path, "result2"), tmp_path / ".result.7-2.partial"
    (folder / "half").mkdir(parents=True)
    with replacing(tmp_path / "result") as file:
        file.write(b"new")
    assert not left.exists() and not folder.exists() and others.exists()


def test_the_partial_of_a_living_writer_stays(tmp_path):
    with replacing(tmp_path / "result") as one:
        one.write(b"one")
        with replacing(tmp_path / "result") as other:
            other.write(b"other")
        assert (tmp_path / "result").read_bytes() == b"other"
    assert (tmp_path / "result").read_bytes() == b"one"
    with replacing_folder(tmp_path / "folder") as one:
        with replacing_folder(tmp_path / "folder") as other:
            assert one.is_dir() and one != other
        assert one.is_dir()


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_is_swapped_and_the_older_moved(tmp_path, monkeypatch, exchanges):
    if not exchanges:
        monkeypatch.setattr(atomic_write, "exchange", lambda one, other: False)
    moved, path = [], tmp_path / "d"
    for text in ("old", "new"):
        with replacing_folder(path, moved.append) as folder:
            (folder / "x").write_text(text)
            assert not path.exists() or (path / "x").read_text() == "old"
    assert (path / "x").read_text() == "new" and [(p / "x").read_text() for p in moved] == ["old"]
    assert set(tmp_path.iterdir()) == {path, *moved}


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_is_swapped_and_what_is_to_be_kept_is_in_the_newer(tmp_path, monkeypatch, exchanges):
    if not exchanges:
        monkeypatch.setattr(atomic_write, "exchange", lambda one, other: False)
    path = make_folder(tmp_path / "d")
    (path / "mine" / "sub").mkdir(parents=True)
    (path / "mine" / "sub" / "notes").write_text("kept")
    (path / "stale").write_text("goes")
    with replacing_folder(path, keep=lambda name: name == "mine") as folder:
        (folder / "x").write_text("new")
    assert {p.relative_to(path).as_posix() for p in path.rglob("*")} == {"mine", "mine/sub", "mine/sub/notes", "x"}
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_of_a_folder_whose_older_one_cannot_be_moved(tmp_path, monkeypatch):
    """As on Windows, where a file in it is open."""

    def refused(path, *_, **__):
        raise OutputError(f"cannot move {path} aside: in use")

    for name, function in (("exchange", lambda one, other: False), ("set_aside", refused)):
        monkeypatch.setattr(atomic_write, name, function)
    path = make_folder(tmp_path / "d")
    with pytest.raises(OutputError, match=r"d aside: in use"), replacing_folder(path) as folder:
        (folder / "x").write_text("new")
    assert [*tmp_path.iterdir()] == [path] and not [*path.iterdir()]


def test_an_older_folder_that_a_killed_swap_left_is_not_lost(tmp_path):
    make_folder(tmp_path / ".d.4194305.whole").joinpath("x").write_text("older")
    with replacing_folder(tmp_path / "d"):
        pass
    (aside,) = tmp_path.glob("d_*")
    assert (aside / "x").read_text() == "older" and not list(tmp_path.glob(".*"))


def test_a_new_folder_is_not_listed_for_each_file_in_it(tmp_path, monkeypatch):
    listed = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or listdir(path))
    with replacing_folder(tmp_path / "parts") as folder:
        for number in range(20):
            replace_text(folder / f"{number}.txt", "whole")
    assert len(listed) <= 2
    assert len(listdir(tmp_path / "parts")) == 20
