"""Operator dump files and statistics that we write: read again, and held against files made from the specification."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from dumps.formats.ascend.wire import FLOAT, Item, operator_file

from sgsdump import open_dump
from sgsdump.dumps.formats.ascend import headers
from sgsdump.dumps.formats.ascend.ascend_dir import CUT_OFF, INDEX
from sgsdump.dumps.formats.ascend.ascend_stats import DEFAULT, Row, table
from sgsdump.dumps.formats.ascend.file_names import MAPPING, file_name, parse
from sgsdump.dumps.formats.ascend.operator_dump import Payload, write_operator
from sgsdump.dumps.formats.shared.ascend_types import ge_numbers
from sgsdump.tensors.dtypes import KNOWN, name_of
from sgsdump.tensors.statistics import Statistics, summarise

TIME = 1700000000000100


def payload(array: np.ndarray) -> Payload:
    return Payload(name_of(array.dtype), array.shape, array.tobytes())


def written(folder: Path, inputs: list[np.ndarray], outputs: list[np.ndarray], name: str = "add/1") -> Path:
    path = folder / file_name("Add", name, 3, 0, TIME)
    return write_operator(path, name, list(map(payload, inputs)), list(map(payload, outputs)), TIME)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    x, y = np.arange(6, dtype="<f4").reshape(2, 3), np.array([1, -2], "<i8")
    path = written(tmp_path, [x, y], [x * 2])
    assert path.name == f"Add.add_1.3.0.{TIME}" and [one.name for one in tmp_path.iterdir()] == [path.name]
    dump = open_dump(path)
    assert dump.format == "ascend_dump" and not dump.notes
    assert {name: tensor.stored().tolist() for name, tensor in dump.items()} == {
        "add/1:input:0": x.tolist(), "add/1:input:1": y.tolist(), "add/1:output:0": (x * 2).tolist()
    }  # fmt: skip
    assert [record.op_type for record in dump.records] == ["Add"] * 3


@pytest.mark.parametrize("name", sorted(ge_numbers()))
def test_every_type_keeps_its_bits(tmp_path: Path, name: str) -> None:
    bits = np.arange(12 * KNOWN[name].itemsize, dtype=np.uint8) % (2 if name == "bool" else 64)
    array = bits.view(KNOWN[name]).reshape(3, 4)
    tensor = open_dump(written(tmp_path, [], [array], "a"))["a:output:0"]
    assert tensor.info.dtype == KNOWN[name] and tensor.info.shape == (3, 4)
    assert tensor.stored().tobytes() == array.tobytes()


def test_what_has_no_number_is_written_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / file_name("Cast", "a", 1, 0, TIME)
    write_operator(path, "a", [], [Payload("float8_e4m3fnuz", (2, 2), b"\1\2\3\4")], TIME)
    assert open_dump(path)["a:output:0"].stored().tolist() == [1, 2, 3, 4]


def test_a_scalar_is_one_element_and_an_empty_tensor_none(tmp_path: Path) -> None:
    dump = open_dump(written(tmp_path, [np.float32(7)[()].reshape(())], [np.zeros((0, 3), "<f4")], "a"))
    assert dump["a:input:0"].stored().tolist() == [7.0]
    assert dump["a:output:0"].info.shape == (0, 3)


def test_the_header_has_the_fields_of_a_device_s(tmp_path: Path, shared) -> None:
    """The vendor's writer fills the same fields, of a tensor that no framework named and that lies as it is."""
    genuine = (shared / "ascend/ge_dump/compare/my/ScalarOp.scalar.11.1.1700000000001200").read_bytes()
    mine = written(tmp_path, [], [np.array([1.5], "<f4")], "scalar").read_bytes()
    parsed = []
    for data in (genuine, mine):
        (length,) = struct.unpack_from("<Q", data)
        parsed.append(headers.parse(data[8 : 8 + length]))
        assert len(data) == 8 + length + 4
    theirs, ours = parsed
    assert {field.name for field, _ in theirs.ListFields()} == {field.name for field, _ in ours.ListFields()}
    assert (ours.version, ours.op_name) == (theirs.version, theirs.op_name) == (b"2.0", b"scalar")
    for name in ("data_type", "format", "size"):
        assert getattr(ours.output[0], name) == getattr(theirs.output[0], name)
    assert list(ours.output[0].shape.dim) == list(theirs.output[0].shape.dim) == [1]


def test_the_bytes_are_those_of_the_specification(tmp_path: Path) -> None:
    """Made byte by byte from the specification and read by our reader, both say the same."""
    values = np.array([1, 2, 3], "<f4")
    (tmp_path / "spec").mkdir()
    spec = tmp_path / "spec" / f"Add.a.3.0.{TIME}"
    spec.write_bytes(operator_file([], [Item(values.tobytes(), FLOAT, (3,))], b"a"))
    one, other = (open_dump(path)["a:output:0"] for path in (spec, written(tmp_path, [], [values], "a")))
    assert one.info == other.info and one.stored().tolist() == other.stored().tolist()
    assert spec.read_bytes().endswith(values.tobytes())


def test_a_name_too_long_for_the_disk_is_found_in_the_mapping(tmp_path: Path) -> None:
    name = "layer/" * 60 + "add"
    path = written(tmp_path, [], [np.float32([4])], name)
    assert path.name.isdecimal() and (tmp_path / MAPPING).read_text() == (
        f"{path.name},{file_name('Add', name, 3, 0, TIME)}\n"
    )
    dump = open_dump(tmp_path)
    assert dump.format == "ascend_dir" and dump[f"{name}:output:0"].stored().tolist() == [4]


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        written(tmp_path, [], [np.float32([4])])
    assert not list(tmp_path.iterdir())


def test_names_are_read_as_they_are_written() -> None:
    called = parse(file_name("Conv2d", "net/conv.1 a", 12, 3, TIME))
    assert called and (called.op_type, called.op_name, called.task) == ("Conv2d", "net_conv_1_a", 12)
    assert (called.stream, called.time) == (3, TIME)


ARRAYS = [
    np.array([[1.5, np.nan], [-np.inf, 0.1]], np.float32),
    np.array([2, -3], np.int32),
    np.array([2.0, -3.0], np.float64),
    np.array([2**32 - 1, 5], np.uint32),
]


def test_statistics_come_back_with_the_columns_of_a_device(tmp_path: Path) -> None:
    rows = [Row("Output", i, a.nbytes, a.dtype.name, a.shape, summarise(a)) for i, a in enumerate(ARRAYS)]
    text = table(rows)
    assert text.splitlines()[0] == (
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
        "Negative Inf Count,Positive Inf Count"
    )
    assert text.splitlines()[2] == "Output,1,8,DT_INT32,ND,2,2,-3,-0.5,2,0,0,0"
    path = tmp_path / f"Add.a.1.0.{TIME}.csv"
    path.write_text(text)
    dump = open_dump(path)
    assert not dump.notes
    for number, array in enumerate(ARRAYS):
        tensor, known = dump[f"a:output:{number}"], summarise(array)
        assert tensor.info.shape == array.shape and tensor.info.dtype == array.dtype
        found = tensor.statistics
        assert (
            found
            and found.max == pytest.approx(known.max, rel=1e-8)
            and found.min == pytest.approx(known.min, rel=1e-8)
        )
        assert (found.count, found.nan, found.negative_inf) == (known.count, known.nan, known.negative_inf)


def test_a_choice_of_statistics_is_in_the_order_of_the_host_s_writer() -> None:
    row = Row("Input", 0, 4, "float32", (1,), Statistics(1, 2, 1.5, 3.0, 1, 0, 0, 0))
    lines = table([row], ["L2norm", "Max"]).splitlines()
    assert lines[0].endswith("Shape,Count,Max Value,l2norm") and lines[1] == "Input,0,4,DT_FLOAT,ND,1,1,2,3"
    assert table([row], DEFAULT) == table([row])


def test_what_has_no_statistics_is_na() -> None:
    assert table([Row("Output", 0, 8, "complex64", (1,), None)]).splitlines()[1] == (
        "Output,0,8,DT_COMPLEX64,ND,1,NA,NA,NA,NA,NA,NA,NA"
    )


@pytest.mark.parametrize("ended", [True, False])
def test_an_index_says_whether_the_run_is_whole(tmp_path: Path, ended: bool) -> None:
    written(tmp_path, [], [np.float32([4])])
    lines = [
        '{"event": "begin"}',
        '{"event": "note", "text": "b is not dumped"}',
        '{"side": "out"',
        '{"complete": true}',
    ]
    (tmp_path / INDEX).write_text("\n".join(lines if ended else lines[:-1]))
    assert open_dump(tmp_path).notes == ("b is not dumped",) + (() if ended else (CUT_OFF,))
