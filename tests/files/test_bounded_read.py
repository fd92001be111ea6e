import tracemalloc

import pytest

from sgsdump.files.bounded_read import read_start


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
