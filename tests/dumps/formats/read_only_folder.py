"""What every folder format that can only be read must do. Subclass ``ReadOnlyFolder`` as ``TestReadOnlyFolder``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from platforms import unix_only

from sgsdump import Dump, Tensor, open_dump, save_dump
from sgsdump.errors import ConfigError, FormatError, SgsdumpError, ValuesError

CUTS, PLACES = 40, 60


class ReadOnlyFolder:
    """``format``: its name. ``files``: path and bytes of each file of a small dump of at least two tensors.

    ``place`` is the folder to open below the root; ``optional`` are endings of files that may be damaged unnoticed.
    """

    format: str
    files: dict[str, bytes]
    place: str = ""
    optional: tuple[str, ...] = ()

    def write(self, root: Path) -> Path:
        for name, data in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root / self.place

    def test_it_is_recognised_by_its_content(self, tmp_path: Path) -> None:
        dump = open_dump(self.write(tmp_path / "renamed"))
        assert dump.format == self.format and len(dump.records) > 1 and not dump.damage
        assert self.walk(dump) == len(dump.records)

    def test_it_cannot_be_written(self, tmp_path: Path) -> None:
        dump = open_dump(self.write(tmp_path / "dump"))
        with pytest.raises(ConfigError, match="can be read but not written"):
            save_dump(dump, tmp_path / "again", self.format)
        assert not (tmp_path / "again").exists()

    def test_a_file_that_is_cut_off_or_missing_is_told(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "dump")
        whole = [record.name for record in open_dump(path).records]
        for name, data in self.files.items():
            if name.endswith(self.optional or "\0"):
                continue
            for length in sorted({0, 1, len(data) - 1, *range(0, len(data), max(1, len(data) // CUTS))}):
                os.truncate(tmp_path / "dump" / name, length)
                try:
                    dump = open_dump(path)
                except FormatError as error:
                    assert "\n" not in str(error)
                else:
                    read = self.walk(dump)
                    found = [record.name for record in dump.records]
                    assert dump.notes or read < len(whole) or found != whole, (name, length)
                (tmp_path / "dump" / name).write_bytes(data)

    @unix_only  # writes at an offset
    def test_a_wrong_byte_anywhere_is_told_or_read(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "dump")
        for name, data in self.files.items():
            with (tmp_path / "dump" / name).open("r+b", buffering=0) as file:
                for at in sorted({*range(min(len(data), PLACES)), *range(0, len(data), -(-len(data) // PLACES))}):
                    for value in {0, 0x7F, 0xFF, data[at] ^ 1} - {data[at]}:
                        os.pwrite(file.fileno(), bytes([value]), at)
                        self.read_anything(path)
                    os.pwrite(file.fileno(), data[at : at + 1], at)

    @unix_only
    def test_links_out_of_the_folder_are_not_followed(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "dump")
        names = {record.name for record in open_dump(path).records}
        for name, data in self.files.items():
            file = tmp_path / "dump" / name
            (tmp_path / "outside").write_bytes(data)
            file.unlink()
            file.symlink_to(tmp_path / "outside")
            try:
                dump = open_dump(path)
            except SgsdumpError:
                pass
            else:
                assert name.endswith(self.optional or "\0") or {r.name for r in dump.records} != names or dump.notes
            file.unlink()
            file.write_bytes(data)

    def read_anything(self, path: Path) -> None:
        try:
            dump = open_dump(path)
        except SgsdumpError as error:
            assert "\n" not in str(error)
            return
        self.walk(dump)

    def load(self, tensor: Tensor) -> bool:
        try:
            assert tensor.stored().shape == (tensor.info.shape or tensor.raw().shape)
        except (FormatError, ValuesError) as error:
            assert "\n" not in str(error)
            return tensor.statistics is not None
        return True

    def walk(self, dump: Dump) -> int:
        """Read everything; return the number of tensors with values or statistics."""
        read = 0
        for record in dump.records:
            read += self.load(record.tensor)
        dump.network()
        assert not any("\n" in note for note in dump.notes)
        return read
