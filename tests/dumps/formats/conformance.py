"""What every dump format must do. Subclass ``Conformance`` as ``TestConformance`` in the format's test module."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from platforms import unix_only

from sgsdump import Dump, Quant, Record, Tensor, open_dump, save_dump
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.targets import losses
from sgsdump.errors import FormatError, LossWarning, OutputError, SgsdumpError
from sgsdump.tensors.device import Origin
from sgsdump.tensors.dtypes import KNOWN, carried, carrier, restored
from sgsdump.tensors.dtypes import bits as bits_of
from sgsdump.tensors.tensor import TensorInfo
from sgsdump.tensors.types import same_quant

WHOLLY = 256  # of a folder's file each of the first bytes is a cut, after these every seventh


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
    # A folder's file that lists the others, without which it is another kind of folder.
    listing: str = ""
    # The largest difference between a value and what the format keeps of it.
    tolerance: float = 0.0

    def records(self) -> list[Record]:
        return plain_records()

    def write(self, path: Path, variant: Any = None, records: Sequence[Record] | None = None) -> Path:
        FORMATS[self.format].write(self.records() if records is None else records, path, variant)
        return path

    def all_variants(self) -> Iterator[Any]:
        yield None
        yield from self.variants

    def test_what_is_written_is_recognised_and_reads_back(self, tmp_path: Path) -> None:
        for variant in self.all_variants():
            with open_dump(self.write(tmp_path / "dump", variant)) as dump:
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
            with warnings.catch_warnings():
                warnings.simplefilter("error", LossWarning)
                save_dump(open_dump(path), tmp_path / "again", open_dump(path).format)
            assert content(tmp_path / "again") == content(path)

    @unix_only  # Windows replaces no file that is mapped; it is refused in one line there
    def test_a_file_can_be_saved_over_itself(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "dump")
        before = content(path)
        save_dump(open_dump(path), path)
        assert content(path) == before

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
            FORMATS[self.format].write(stream(), tmp_path / "dump", variant)
            assert most == 1

    def test_truncation_at_every_byte_is_told(self, tmp_path: Path) -> None:
        """Cut anywhere: one clear line, or (only where the grammar allows an end) the same dump, shorter."""
        for variant in self.all_variants():
            whole = self.write(tmp_path / "dump", variant)
            if self.is_folder:
                self.check_cut_folder(whole, tmp_path / "cut")
                continue
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
                save_dump(dump, tmp_path / "again", dump.format)
                assert (tmp_path / "again").read_bytes() == data[:length]
                shorter.add(len(found))
            assert shorter <= set(range(1, len(names)))

    def check_cut_folder(self, whole: Path, cut: Path) -> None:
        """A folder without one of its files, or with one cut anywhere, is refused; a folder is never a shorter dump."""
        for name, data in content(whole).items():
            shutil.copytree(whole, cut)
            for length in reversed([*range(min(len(data), WHOLLY)), *range(WHOLLY, len(data), 7)]):
                os.truncate(cut / name, length)
                with pytest.raises(FormatError) as caught:
                    open_dump(cut)
                assert str(cut) in str(caught.value) and "\n" not in str(caught.value)
            if self.listing != name:
                (cut / name).unlink()
                with pytest.raises(FormatError, match="missing"):
                    open_dump(cut)
            shutil.rmtree(cut)

    def test_nothing_is_left_of_a_stream_that_breaks(self, tmp_path: Path) -> None:
        older = self.older(tmp_path / "dump")

        def stream() -> Iterator[Record]:
            yield self.records()[0]
            raise KeyError("the run died")

        with pytest.raises(KeyError, match="the run died"):
            FORMATS[self.format].write(stream(), tmp_path / "dump", None)
        assert content(tmp_path) == older

    def test_a_full_disk_is_told_and_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        older = self.older(tmp_path / "dump")
        fill_disk_after(monkeypatch, 100)
        with pytest.raises(OutputError, match="No space left") as caught:
            self.write(tmp_path / "dump")
        monkeypatch.undo()
        assert str(tmp_path / "dump") in str(caught.value)
        assert content(tmp_path) == older

    def older(self, path: Path) -> dict[str, bytes]:
        """Something that stands at ``path`` already; gives what is in the folder around it."""
        if self.is_folder:
            path.mkdir()
        (path / "file" if self.is_folder else path).write_bytes(b"older")
        return content(path.parent)

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

    @property
    def is_folder(self) -> bool:
        return bool(FORMATS[self.format].looks_for)

    @pytest.mark.parametrize("name", KNOWN)
    def test_an_element_type_keeps_its_bits_or_is_told(self, name: str, tmp_path: Path) -> None:
        dtype = KNOWN[name]
        bits = elements(np.arange(256, dtype=np.uint8), dtype)
        array = restored(np.resize(bits, 256 * dtype.itemsize).view(carrier(dtype)), dtype)
        record = Record("out", 0, 0, "ADD", Tensor.of("x", array, op_type="ADD"))
        told = losses([record], self.format)
        if any("refused" in line for line in told):
            with pytest.raises(SgsdumpError):
                self.write(tmp_path / "dump", records=[record])
            assert not list(tmp_path.iterdir())
        elif not told:
            assert_equal(open_dump(self.write(tmp_path / "dump", records=[record])).records[0], record)

    @settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow], max_examples=60)
    @given(st.data())
    def test_what_is_not_told_as_lost_comes_back_equal(self, data: st.DataObject) -> None:
        records = data.draw(any_records())
        loses = FORMATS[self.format].loses
        while lossy := {id(lost.record) for lost in loses(records, None)}:
            records = [record for record in records if id(record) not in lossy]
        if not records:
            return
        assert losses(records, self.format) == []
        with tempfile.TemporaryDirectory() as folder:
            dump = open_dump(self.write(Path(folder) / "dump", records=records))
            assert dump.format == self.format
            assert sorted(os.listdir(folder)) == ["dump"]
            for record, original in zip(dump.records, records, strict=True):
                assert_equal(record, original)


NAMES = [
    "x",
    "conv1/Relu:0",
    "../../x",
    "/x",
    "..",
    ".",
    "",
    "a" * 300,
    "A" * 300,
    "Größe*?#",
    "__metadata__",
    "con.npy",
]


@st.composite
def any_records(draw: st.DrawFn) -> list[Record]:
    """Records of every kind: half of them plain enough for any format, half with all that a dump can say."""
    return [draw(plain_record() if draw(st.booleans()) else any_record()) for _ in range(draw(st.integers(1, 4)))]


@st.composite
def plain_record(draw: st.DrawFn) -> Record:
    shape = draw(st.sampled_from([(), (0,), (3,), (2, 0, 3), (1, 2, 1, 3)]))
    name, op_type = draw(st.sampled_from(NAMES) | st.text()), draw(st.sampled_from(["CONV_2D", "", "Größe"]))
    array = draw(values(np.dtype(np.float32), shape))
    tensor = Tensor.of(name, array, layout="NHWC" if len(shape) == 4 else None, op_type=op_type)
    return Record("out", 0, draw(st.integers(0, 9999)), op_type, tensor)


@st.composite
def any_record(draw: st.DrawFn) -> Record:
    text = st.text(max_size=5)
    dtype = draw(st.sampled_from(list(KNOWN.values())))
    shape = draw(st.none() | st.lists(st.integers(0, 3), max_size=5).map(tuple))
    array = draw(values(dtype, (draw(st.integers(0, 5)),) if shape is None else shape))
    layout = draw(st.sampled_from([None, "NHWC", "NCHW", "NC1HWC0"]))
    sizes = st.lists(st.integers(0, 99), max_size=5).map(tuple)
    origin = draw(st.none() | st.builds(Origin, sizes, st.sampled_from([None, "NCHW"]), st.integers(0, 9)))
    op_type = draw(text)
    name = draw(st.sampled_from(NAMES) | text)
    quant, producer = draw(st.none() | any_quant()), draw(st.just(op_type) | text)
    info = TensorInfo(name, shape, dtype, layout, quant, producer, origin)
    io, slot, index = draw(st.sampled_from(["in", "out"])), draw(st.integers(0, 3)), draw(st.integers(0, 9999))
    return Record(io, slot, index, op_type, Tensor(info, lambda: array), draw(st.booleans()))


@st.composite
def any_quant(draw: st.DrawFn) -> Quant:
    dtype = draw(st.sampled_from([None, *map(np.dtype, (np.int8, np.uint8, np.int16)), KNOWN["int4"]]))
    many = st.lists(st.floats(width=32), max_size=4).map(lambda scales: np.array(scales, np.float32))
    scale = draw(st.sampled_from([0.5, 0.0]) | st.floats() | many)
    zero_point, axis = draw(st.integers(-(2**31), 2**31)), draw(st.none() | st.integers(0, 4))
    return Quant(dtype, scale, zero_point, axis, draw(st.booleans()), draw(st.sampled_from(["", "SGS_FOO"])))


def values(dtype: np.dtype, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    """Arrays of any bits that are an element of the type."""
    form = carrier(dtype)
    size = int(np.prod(shape)) * dtype.itemsize

    def array(data: bytes) -> np.ndarray:
        bits = elements(np.frombuffer(data, np.uint8), dtype)
        flat = bits == 1 if form == np.bool_ else bits.view(form)
        return restored(flat.reshape(shape), dtype)

    return st.binary(min_size=size, max_size=size).map(array)


def elements(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Bytes of which only the bits are left that an element of the type has."""
    return data % 2 if dtype == np.bool_ else data & (2 ** min(8, bits_of(dtype)) - 1)


def assert_equal(record: Record, original: Record) -> None:
    """Every fact and every bit."""
    facts = [
        (r.io, r.slot, r.op_index, r.op_type, r.name, r.constant, r.cut, replace(i, quant=None))
        for r in (record, original)
        for i in (r.tensor.info,)
    ]
    assert facts[0] == facts[1]
    quants = record.tensor.info.quant, original.tensor.info.quant
    assert same_quant(*quants), quants
    found, expected = record.tensor.stored(), original.tensor.stored()
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert carried(found).tobytes() == carried(expected).tobytes()


def content(path: Path) -> dict[str, bytes]:
    """The bytes of a file under the name "", or of every file below a folder under its path."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def fill_disk_after(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Files opened by sgsdump's writers take ``size`` bytes, then say that the disk is full."""
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

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    writers = ("files.atomic_write", "dumps.formats.shared.npy_file", "dumps.formats.atb.tensor")
    for module in (*writers, "dumps.formats.rounds.tree"):
        monkeypatch.setattr(f"sgsdump.{module}.open", Full, raising=False)


def facts(dump: Dump) -> list[tuple[Any, ...]]:
    """Everything a dump says of its records, to compare two of them."""
    return [(r.io, r.slot, r.op_index, r.op_type, r.constant, r.cut, r.tensor.info) for r in dump.records]
