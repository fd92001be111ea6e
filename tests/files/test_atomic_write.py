"""Files become themselves when whole; older folders are moved aside, never deleted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sgsdump.errors import OutputError
from sgsdump.files.atomic_write import check_outputs, make_folder, replacing, set_aside


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
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "none" / "x", "make it first")):
        with pytest.raises(OutputError, match=message) as caught, replacing(path):
            pytest.fail("the block must not run")
        assert str(path) in str(caught.value)


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


def test_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="device or a pipe"), replacing(tmp_path / "pipe"):
        pass
    assert (tmp_path / "pipe").is_fifo()


def test_results_never_overwrite_what_the_command_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_outputs(["a", None], ["b", None])
    with pytest.raises(OutputError, match="reads or writes it already"):
        check_outputs(["./a"], [tmp_path / "a"])
    with pytest.raises(OutputError, match="reads or writes it already"):
        check_outputs(["a", "a"], [])
