"""What every format that can only be read must do. Subclass ``ReadOnly`` as ``TestReadOnly`` in its test module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from platforms import unix_only

from sgsdump import Dump, Tensor, open_dump, save_dump
from sgsdump.errors import ConfigError, FormatError, SgsdumpError, ValuesError

DENSE = 300


class ReadOnly:
    """``format``: its name. ``data``: a small file of at least two tensors. ``file_name``: what it is written to."""

    format: str
    file_name: str
    data: bytes

    def write(self, tmp_path: Path, data: bytes | None = None, name: str = "") -> Path:
        path = tmp_path / (name or self.file_name)
        path.write_bytes(self.data if data is None else data)
        return path

    def test_it_is_recognised_by_its_content(self, tmp_path: Path) -> None:
        for name in (self.file_name, "renamed"):
            dump = open_dump(self.write(tmp_path, name=name))
            assert dump.format == self.format and len(dump.records) > 1
            self.walk(dump)

    def test_it_cannot_be_written(self, tmp_path: Path) -> None:
        dump = open_dump(self.write(tmp_path))
        with pytest.raises(ConfigError, match="can be read but not written"):
            save_dump(dump, tmp_path / "again", dump.format)
        assert [path.name for path in tmp_path.iterdir()] == [self.file_name]

    def test_truncation_at_every_byte_is_told(self, tmp_path: Path) -> None:
        whole = [record.name for record in open_dump(self.write(tmp_path)).records]
        path = self.write(tmp_path)
        for length in reversed(range(len(self.data))):
            os.truncate(path, length)
            try:
                dump = open_dump(path)
            except FormatError as error:
                assert str(path) in str(error) and "\n" not in str(error)
                continue
            found = [record.name for record in dump.records]
            assert dump.format == self.format and found == whole[: len(found)]
            assert dump.notes or len(found) < len(whole), length

    @unix_only  # writes at an offset
    def test_a_wrong_byte_anywhere_is_told_or_read(self, tmp_path: Path) -> None:
        """At every place in a small file; of a larger one at as many places, the first ones and others evenly."""
        size = len(self.data)
        path = self.write(tmp_path)
        with path.open("r+b", buffering=0) as file:
            for place in sorted({*range(min(size, DENSE)), *range(0, size, -(-size // DENSE))}):
                right = self.data[place]
                for value in {0, 1, 0x7F, 0x80, 0xFF, right ^ 1, right ^ 0x10} - {right}:
                    os.pwrite(file.fileno(), bytes([value]), place)
                    self.read_anything(path)
                os.pwrite(file.fileno(), self.data[place : place + 1], place)

    def test_other_files_are_not_taken_for_it(self, tmp_path: Path) -> None:
        for other in (b"", b"hello\n", b"\x00" * 5000, b"isFloat: 2\n//", b"PK\3\4" + bytes(50), b"\xff" * 9):
            with pytest.raises(SgsdumpError) as caught:
                open_dump(self.write(tmp_path, other, "other"))
            assert str(tmp_path / "other") in str(caught.value)

    def read_anything(self, path: Path) -> None:
        """Open and read all, whatever the file; only the project's errors, of one line."""
        try:
            dump = open_dump(path)
        except SgsdumpError as error:
            assert "\n" not in str(error)
            return
        self.walk(dump)

    def walk(self, dump: Dump) -> None:
        most = dump.path.stat().st_size * 32 if dump.path else 0
        for record in dump.records:
            self.load(record.tensor, most)
        assert not any("\n" in note for note in dump.notes)

    def load(self, tensor: Tensor, most: int) -> None:
        try:
            assert tensor.raw().nbytes <= most
            assert tensor.stored().shape == tensor.info.shape
        except (FormatError, ValuesError) as error:
            assert "\n" not in str(error)
