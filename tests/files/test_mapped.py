"""Views of mapped files: right at any place, and gone from memory when nobody uses them."""

from __future__ import annotations

import gc
import io
import os
from pathlib import Path

import numpy as np
import pytest
from platforms import unix_only
from resident_pages import resident

from sgsdump.errors import FileChanged, FormatError
from sgsdump.files import mapped
from sgsdump.files.mapped import kept_open, let_bytes_go, map_file, opened, view
from sgsdump.tensors.dtypes import KNOWN


@unix_only
@pytest.mark.usefixtures("quick_to_collect")
def test_pages_are_let_go_with_the_last_user_of_a_view(tmp_path: Path) -> None:
    path = tmp_path / "values"
    array = np.arange(2**20, dtype=np.float32)
    path.write_bytes(b"odd" + array.tobytes())
    data = map_file(path)
    found = view(data, array.dtype, array.size, 3)
    part = found.reshape(1024, 1024)[5:]
    assert float(part.sum(dtype=np.float64)) == float(array[5 * 1024 :].sum(dtype=np.float64))
    del found
    gc.collect()
    assert resident(path) >= 3 * 1024
    assert part[0, 0] == 5 * 1024
    del part
    gc.collect()
    assert resident(path) <= 256
    np.testing.assert_array_equal(view(data, array.dtype, array.size, 3), array)


@unix_only
def test_what_was_let_go_is_in_memory_no_longer_and_there_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "values"
    content = np.random.default_rng(0).bytes(12 << 20)
    path.write_bytes(content)
    data = map_file(path)
    assert data[:] == content
    assert resident(path) >= 12 * 1024
    let_bytes_go(data, 4 << 20, 20 << 20)
    assert resident(path) <= 4 * 1024
    assert data[:] == content
    let_bytes_go(content, 0, len(content))  # a file that was read whole
    let_bytes_go(data, 4 << 20, (4 << 20) + 4000)
    assert resident(path) >= 12 * 1024


@pytest.mark.usefixtures("quick_to_collect")
def test_two_views_of_one_page_do_not_disturb_each_other(tmp_path: Path) -> None:
    (tmp_path / "values").write_bytes(bytes(range(256)) * 64)
    data = map_file(tmp_path / "values")
    one, other = (view(data, np.dtype(np.uint8), 10_000, offset) for offset in (0, 1000))
    before = other.copy()
    del one
    gc.collect()
    np.testing.assert_array_equal(other, before)


@unix_only
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts the files that Linux says are open")
def test_of_a_file_per_tensor_few_stay_open(tmp_path: Path) -> None:
    def numbers() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    (tmp_path / "all").write_bytes(bytes(1 << 17))
    whole = view(map_file(tmp_path / "all"), np.dtype(np.uint8), 1 << 17, 0)
    before = numbers()
    with kept_open():
        for number in range(40):
            path = tmp_path / str(number)
            path.write_bytes(bytes([number]) * (1 << 17))
            file, other = opened(view(map_file(path), np.dtype(np.uint8), 1 << 17, 0)), opened(whole)
            assert file and other
            assert os.pread(file.descriptor, 1, 5) == bytes([number])
            assert os.pread(other.descriptor, 1, 5) == b"\0"
        assert numbers() - before < 20
    assert numbers() - before <= 1


def test_beyond_the_end_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "values").write_bytes(b"1234")
    with pytest.raises(ValueError):
        view(map_file(tmp_path / "values"), np.dtype(np.float32), 2, 0)
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(FormatError, match=name):
            map_file(tmp_path / name)


@unix_only
@pytest.mark.parametrize("size", [0, 3, 2**17, 2 * mapped._PIECE + 5])
@pytest.mark.parametrize("offset", [0, 177])
def test_a_view_is_written_whole_and_no_page_of_it_stays(size: int, offset: int, tmp_path: Path) -> None:
    values = np.random.default_rng(size).bytes(size + offset + 5000)
    (tmp_path / "values").write_bytes(values)
    found = view(map_file(tmp_path / "values"), np.dtype(np.uint8), size, offset)
    with open(tmp_path / "copy", "wb") as file:
        file.write(b"head")
        mapped.write_array(file, found)
        if size > 2**16:
            assert resident(tmp_path / "values") <= 256
        file.write(b"end")
    assert (tmp_path / "copy").read_bytes() == b"head" + values[offset : offset + size] + b"end"
    assert found[:3].tobytes() == values[offset : offset + size][:3]


def test_what_was_mapped_is_written_to_a_file_without_a_number(tmp_path: Path) -> None:
    path, values = tmp_path / "values", np.random.default_rng(1).bytes(2**18)
    path.write_bytes(values)
    file = io.BytesIO()
    mapped.write_array(file, view(map_file(path), np.dtype(np.uint8), 2**17, 5))
    assert file.getvalue() == values[5 : 5 + 2**17]


@unix_only
@pytest.mark.parametrize("size", [100, 2**17])
def test_what_was_mapped_is_not_written_when_the_file_is_another(size: int, tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_bytes(bytes(2**18))
    found = view(map_file(path), np.dtype(np.uint8), size, 5)
    os.truncate(path, 50)
    with open(tmp_path / "copy", "w+b") as file, pytest.raises(FileChanged):
        mapped.write_array(file, found)


@pytest.mark.parametrize("dtype", ["bool", "<f4", "int4", "bfloat16", "complex64"])
def test_arrays_in_memory_are_written_too(dtype: str, tmp_path: Path) -> None:
    array = np.zeros((3, 4), KNOWN.get(dtype, dtype))
    with open(tmp_path / "copy", "wb") as file:
        mapped.write_array(file, array)
        mapped.write_array(file, array[0, 0].reshape(()))
    assert (tmp_path / "copy").stat().st_size == array.nbytes + array.itemsize


@pytest.mark.parametrize(
    "shape", [(1, 5, 7), (3, 1, 2), (2, 0, 3), (40, 300, 70), (1, 2, 700_000), (300_000, 1, 2), (1,)]
)
@pytest.mark.parametrize("dtype", ["<f4", "int8", "bfloat16"])
def test_transposed_arrays_are_written_in_order(shape: tuple[int, ...], dtype: str) -> None:
    values = np.arange(np.prod(shape)) % 127
    array = values.astype(KNOWN.get(dtype, dtype)).reshape(shape).T
    for view_of_it in (array, array[::-1], array[..., None, ::2]):
        file = io.BytesIO()
        mapped.write_array(file, view_of_it)
        assert file.getvalue() == view_of_it.tobytes()
