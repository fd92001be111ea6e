"""What every dump format must do. Subclass ``Conformance`` as ``TestConformance`` in the format's test module."""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgsdump import Dump, Record, Tensor, open_dump, save_dump
from sgsdump.errors import FormatError, OutputError, SgsdumpError
from sgsdump.format import formats


def plain_records() -> list[Record]:
    """Float tensors of several ranks in two operators, and awkward names: what any format should hold."""
    generator = np.random.default_rng(1)

    def record(io: str, slot: int, op_index: int, name: str, shape: tuple[int, ...], **facts: Any) -> Record:
        array = generator.normal(size=shape).astype(np.float32)
        layout = "NHWC" if len(shape) == 4 else None
        tensor = Tensor.of(name, array, layout=layout, op_type="CONV_2D")
        return Record(io, slot, op_index, "CONV_2D", tensor, **facts)  # type: ignore[arg-type]

    return [
        record("out", 0, 0, "conv1/Relu:0", (1, 2, 1, 3)),
        record("out", 0, 1, "cat two", (2, 2)),
        record("out", 1, 1, "Größe*?#", (17,)),
        record("out", 0, 2, "245", (1, 1, 1, 1)),
    ]


class Conformance:
    """``format``: its name. ``variants``: those that ``records`` can be written in (None is always tried)."""

    format: str
    variants: Sequence[Any] = ()
    # The largest difference between a value and what the format keeps of it.
    tolerance: float = 0.0

    def records(self) -> list[Record]:
        return plain_records()

    def write(self, path: Path, variant: Any = None, records: Sequence[Record] | None = None) -> Path:
        formats()[self.format].write(self.records() if records is None else records, path, variant)
        return path

    def all_variants(self) -> Iterator[Any]:
        yield None
        yield from self.variants

    def test_what_is_written_is_recognised_and_reads_back(self, tmp_path: Path) -> None:
        for variant in self.all_variants():
            dump = open_dump(self.write(tmp_path / "dump", variant))
            assert dump.format == self.format
            assert len(dump.records) == len(self.records())
            for record, original in zip(dump.records, self.records()):
                self.check_same(record, original)

    def check_same(self, record: Record, original: Record) -> None:
        places = [(r.io, r.slot, r.op_index, r.op_type, r.name, r.constant) for r in (record, original)]
        assert places[0] == places[1]
        assert record.tensor.info.shape in (None, original.tensor.info.shape)
        found, expected = record.tensor.real().reshape(-1), original.tensor.real().reshape(-1)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=0, atol=self.tolerance)

    def test_saving_again_gives_the_same_bytes(self, tmp_path: Path) -> None:
        for variant in self.all_variants():
            path = self.write(tmp_path / "dump", variant)
            save_dump(open_dump(path), tmp_path / "again")
            assert (tmp_path / "again").read_bytes() == path.read_bytes()

    def test_a_file_can_be_saved_over_itself(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "dump")
        before = path.read_bytes()
        save_dump(open_dump(path), path)
        assert path.read_bytes() == before

    def test_the_writer_holds_one_tensor_at_a_time(self, tmp_path: Path) -> None:
        alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
        most = 0

        class Tracked(Tensor):
            __slots__ = ("__weakref__",)

        def stream() -> Iterator[Record]:
            nonlocal most
            for original in self.records():
                tensor = Tracked(original.tensor.info, original.tensor.raw)
                alive.add(tensor)
                most = max(most, len(alive))
                yield Record(original.io, original.slot, original.op_index, original.op_type, tensor)
                del tensor

        for variant in self.all_variants():
            formats()[self.format].write(stream(), tmp_path / "dump", variant)
            assert most == 1

    def test_truncation_at_every_byte_is_told(self, tmp_path: Path) -> None:
        """Cut anywhere: one clear line, or (only where the grammar allows an end) the same dump, shorter."""
        for variant in self.all_variants():
            whole = self.write(tmp_path / "dump", variant)
            data, names = whole.read_bytes(), [record.name for record in self.records()]
            shorter = set()
            (tmp_path / "cut").write_bytes(data)
            for length in reversed(range(len(data))):
                os.truncate(tmp_path / "cut", length)
                try:
                    dump = open_dump(tmp_path / "cut")
                except FormatError as error:
                    assert str(tmp_path / "cut") in str(error) and "\n" not in str(error)
                    continue
                found = [record.name for record in dump.records]
                assert found == names[: len(found)] and len(found) < len(names)
                save_dump(dump, tmp_path / "again")
                assert (tmp_path / "again").read_bytes() == data[:length]
                shorter.add(len(found))
            assert shorter <= set(range(1, len(names)))

    def test_nothing_is_left_of_a_stream_that_breaks(self, tmp_path: Path) -> None:
        (tmp_path / "dump").write_bytes(b"older")

        def stream() -> Iterator[Record]:
            yield self.records()[0]
            raise KeyError("the run died")

        with pytest.raises(KeyError, match="the run died"):
            formats()[self.format].write(stream(), tmp_path / "dump", None)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"dump": b"older"}

    def test_a_full_disk_is_told_and_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "dump").write_bytes(b"older")
        fill_disk_after(monkeypatch, 100)
        with pytest.raises(OutputError, match="No space left") as caught:
            self.write(tmp_path / "dump")
        monkeypatch.undo()
        assert str(tmp_path / "dump") in str(caught.value)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"dump": b"older"}

    def test_no_tensor_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="no tensor"):
            self.write(tmp_path / "dump", records=[])
        assert not list(tmp_path.iterdir())

    def test_other_files_are_not_taken_for_it(self, tmp_path: Path) -> None:
        others = [b"", b"hello\n", b"\x00" * 5000, b"isFloat", b"isFloat: 2\n//", b"//out of order\n", b"\xff" * 9]
        for other in others:
            (tmp_path / "other").write_bytes(other)
            with pytest.raises(SgsdumpError) as caught:
                open_dump(tmp_path / "other")
            assert str(tmp_path / "other") in str(caught.value)
        with pytest.raises(SgsdumpError):
            open_dump(tmp_path)


def fill_disk_after(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Files opened by sgsdump.output take ``size`` bytes, then say that the disk is full."""
    import builtins

    class Full:
        def __init__(self, *args: Any):
            self.file = builtins.open(*args)  # noqa: SIM115
            self.left = size

        def write(self, data: Any) -> int:
            self.left -= memoryview(data).nbytes
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.file.write(data)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    monkeypatch.setattr("sgsdump.output.open", Full, raising=False)


def facts(dump: Dump) -> list[tuple[Any, ...]]:
    """Everything a dump says of its records, to compare two of them."""
    return [(r.io, r.slot, r.op_index, r.op_type, r.constant, r.cut, r.tensor.info) for r in dump.records]
