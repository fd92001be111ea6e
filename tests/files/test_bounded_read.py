import os
import tracemalloc
from pathlib import Path

import pytest
from platforms import unix_only

from sgsdump.errors import FormatError, ModelError
from sgsdump.files.bounded_read import open_file, read_start, read_whole, reading


@pytest.mark.parametrize("limit", [0, 1, 5, 6, 7, 2**20, 2**40])
def test_as_much_as_is_there_up_to_the_limit(tmp_path, limit):
    (tmp_path / "x").write_bytes(b"123456")
    assert read_start(tmp_path / "x", limit) == b"123456"[:limit]


def test_longer_than_a_chunk(tmp_path):
    data = bytes(range(256)) * 4096
    (tmp_path / "x").write_bytes(data)
    assert read_start(tmp_path / "x", 2**30) == data
    assert read_start(tmp_path / "x", 700_001) == data[:700_001]


def test_the_limit_costs_nothing(tmp_path):
    (tmp_path / "x").write_bytes(b"123456")
    tracemalloc.start()
    try:
        read_start(tmp_path / "x", 2**33)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_missing_file_is_the_callers(tmp_path):
    with pytest.raises(OSError):
        read_start(tmp_path / "none", 5)


@unix_only
@pytest.mark.parametrize("read", [open_file, read_whole, lambda path: read_start(path, 5)])
def test_only_regular_files_are_opened(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero")):
        with pytest.raises(OSError, match="device or a pipe"):
            read(path)
    with pytest.raises(IsADirectoryError):
        read(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc here")
def test_a_file_of_no_size_that_never_ends_is_empty():
    assert read_start(Path("/proc/self/maps"), 100) == b""


def test_what_cannot_be_read_is_named_once(tmp_path):
    absent, why = tmp_path / "x", "No such file or directory"
    with (
        pytest.raises(ModelError, match=f"^cannot read the list {absent}: {why}$"),
        reading(absent, ModelError, "the list "),
    ):
        open_file(absent)
    with pytest.raises(FormatError, match=r"x: nothing more$"), reading("x"):
        raise OSError("nothing more")
