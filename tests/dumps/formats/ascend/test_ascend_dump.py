"""Operator dumps: the genuine files against what the vendor's tool made of them, and crafted ones."""

from __future__ import annotations

import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from dumps.formats.ascend.wire import (
    FLOAT,
    FLOAT16,
    FRACTAL_NZ,
    FRACTAL_Z,
    INT4,
    INT32,
    NC1HWC0,
    NCHW,
    STRING,
    UINT1,
    UINT8,
    Item,
    header,
    message,
    number,
    operator_file,
    varint,
)
from dumps.formats.read_only import ReadOnly
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgsdump import Dump, Tensor, open_dump
from sgsdump.dumps.formats.ascend import overflow
from sgsdump.errors import FormatError
from sgsdump.tensors.device import Origin

NAME = "Add.add_1.3.2.1700000000123456"
FOUR = np.arange(1, 5, dtype="<f4")
ZOO = "Cast.dtype_zoo.1.1.1700000000423456"
# Files of which the vendor's tool says that they are damaged, and how we say it.
REFUSED = {
    "Bad.empty.1.1.1700000000600005": "is empty",
    "Bad.garbage_header.1.1.1700000000600006": "header is damaged",
    "Bad.hdr_too_long.1.1.1700000000600003": "its header needs 1099511627776 bytes, but only 9889 bytes are left",
    "Bad.seven_bytes.1.1.1700000000600004": "it has 7 bytes",
    "Bad.truncated.1.1.1700000000600001": "its output 0 has 2048 bytes, but only 2041 bytes are left",
}
# Types that the vendor's tool refuses and we read.
MORE = {
    "e8m0": "float8_e8m0fnu",
    "e3m2": "float6_e3m2fn",
    "e2m3": "float6_e2m3fn",
    "e2m1": "float4_e2m1fn",
    "e1m2": "float32",
    "int4": "int4",
    "string": "uint8",
}
# Codes that the vendor's tool decodes wrong.
HIFLOAT8_DEFECTS = {*range(0x08, 0x20), *range(0x88, 0xA0), 0xEF}
DEFECTS = {15: HIFLOAT8_DEFECTS, 16: {0xFC}, 17: {0x7F, 0xFF}}


class TestReadOnly(ReadOnly):
    format = "ascend_dump"
    file_name = NAME
    data = operator_file(
        [Item(FOUR.tobytes(), sizes=(2, 2)), Item(bytes(range(8)), INT4, (16,))],
        [Item(FOUR.astype("<f2").tobytes(), FLOAT16, (1, 1, 1, 1, 4), NC1HWC0, (1, 4, 1, 1), NCHW)],
        spaces=[b"work"],
    )


def opened(tmp_path: Path, data: bytes, name: str = NAME) -> Dump:
    (tmp_path / name).write_bytes(data)
    return open_dump(tmp_path / name)


def vendors_answers(folder: Path, file: Path) -> dict[str, Path]:
    """What the vendor's tool made of a file: ``input.0`` … -> .npy, .bin or .json."""
    return {p.stem.removeprefix(file.name + "."): p for p in folder.glob(f"{file.name}.*") if p.suffix != ".txt"}


def ours(dump: Dump) -> dict[str, Tensor]:
    kinds = {"buffer": "l1buffer"}
    parts = [(record.name.split(":"), record.tensor) for record in dump.records]
    return {f"{kinds.get(kind, kind)}.{slot}": tensor for (_, kind, slot), tensor in parts}


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def test_every_genuine_file_is_read_to_the_vendors_arrays_or_refused(shared: Path) -> None:
    folder = shared / "ascend/ge_dump/schema_written"
    equal, differing = 0, []
    for file in sorted((folder / "dump").iterdir()):
        answers = vendors_answers(folder / "msaccucmp_npy", file)
        if file.name in REFUSED:
            assert not answers
            with pytest.raises(FormatError, match=REFUSED[file.name]):
                open_dump(file)
            continue
        found = ours(open_dump(file)) if answers else {}
        for slot, path in answers.items():
            if path.suffix == ".bin":
                alike = found[slot].stored().tobytes() == path.read_bytes()
            else:
                expected = np.load(path)
                alike = same(found[slot].stored().astype(expected.dtype), expected)
            equal += alike
            differing += [] if alike else [path.name]
    assert sorted(differing) == [f"{ZOO}.input.{slot}.npy" for slot in DEFECTS]
    assert equal == 35


def test_genuine_files_of_overflows_are_read_to_the_vendors_arrays_and_json(shared: Path) -> None:
    folder = shared / "ascend/ge_dump/overflow"
    arrays = documents = 0
    for file in sorted((folder / "dump").iterdir()):
        dump = open_dump(file)
        for slot, path in vendors_answers(folder / "msaccucmp_out", file).items():
            tensor = ours(dump)[slot]
            if path.suffix == ".json":
                assert overflow.is_status(tensor)
                assert json.dumps(overflow.status_of(tensor), indent=4) == path.read_text()
                documents += 1
            else:
                assert same(tensor.stored(), np.load(path))
                arrays += 1
    assert (arrays, documents) == (8, 6)


def test_what_the_vendor_decodes_wrong_is_right(shared: Path) -> None:
    """All 256 codes lie in the sample in order; ours differ in the known codes only, and there are what they mean."""
    folder = shared / "ascend/ge_dump/schema_written"
    dump = open_dump(folder / "dump" / ZOO)
    for slot, codes in DEFECTS.items():
        vendors = np.load(folder / "msaccucmp_npy" / f"{ZOO}.input.{slot}.npy")
        values = ours(dump)[f"input.{slot}"].real()
        alike = (values == vendors) | (np.isnan(values) & np.isnan(vendors))
        assert set(np.flatnonzero(~alike)) == codes
    floats = [ours(dump)[f"input.{slot}"] for slot in DEFECTS]
    assert [str(tensor.stored().dtype) for tensor in floats] == ["float32", "float8_e5m2", "float8_e4m3fn"]
    assert floats[0].real()[0xEF] == floats[1].real()[0xFC] == -np.inf
    assert np.isnan(floats[2].real()[[0x7F, 0xFF]]).all()


def test_an_empty_tensor_keeps_its_type_where_the_vendor_makes_it_float64(shared: Path) -> None:
    tensor = open_dump(shared / "ascend/ge_dump/schema_written/dump" / ZOO)["dtype_zoo:output:2"]
    assert (tensor.stored().dtype, tensor.stored().shape) == (np.float32, (0, 4))


def test_types_that_the_vendor_refuses_are_read(shared: Path) -> None:
    folder = shared / "ascend/ge_dump/schema_written"
    for word, name in MORE.items():
        (file,) = (folder / "dump").glob(f"Cast.unsup_{word}.*")
        assert not vendors_answers(folder / "msaccucmp_npy", file)
        (record,) = open_dump(file).records
        assert (record.tensor.stored().dtype.name, record.tensor.stored().shape) == (name, (8,))
    bits = ours(open_dump(folder / "dump" / ZOO))["output.0"]
    assert not (folder / "msaccucmp_npy" / f"{ZOO}.output.0.npy").exists()
    assert bits.stored().astype(int).tolist() == [1, 0]


def test_an_empty_header_names_no_tensor(shared: Path) -> None:
    (file,) = (shared / "ascend/ge_dump/schema_written/dump").glob("Bad.zero_header.*")
    with pytest.raises(FormatError, match="holds no tensor"):
        open_dump(file)


def test_facts_of_a_genuine_file(shared: Path) -> None:
    dump = open_dump(
        shared / "ascend/ge_dump/schema_written/dump/Conv2D.conv1conv1_relu.4.2.1700000000123456",
    )
    told = [(r.io, r.slot, r.op_type, r.name, r.constant, r.tensor.info.layout) for r in dump.records]
    assert told == [
        ("in", 0, "Conv2D", "conv1conv1_relu:input:0", False, "NC1HWC0"),
        ("in", 1, "Conv2D", "conv1conv1_relu:input:1", False, "FRACTAL_Z"),
        ("in", 2, "Conv2D", "conv1conv1_relu:buffer:0", True, None),
        ("in", 3, "Conv2D", "conv1conv1_relu:space:0", True, None),
        ("out", 0, "Conv2D", "conv1conv1_relu:output:0", False, "NC1HWC0"),
    ]
    output = dump["conv1conv1_relu:output:0"].info
    assert (output.origin, output.op_type) == (Origin((1, 10, 4, 5), "NCHW"), "Conv2D")
    assert dump.records[1].tensor.info.origin == Origin((10, 5, 3, 3), None)
    assert not dump.notes


def test_an_exception_dump_has_its_argument_buffers_last(tmp_path: Path) -> None:
    inputs = [
        Item(FOUR.tobytes(), sizes=(4,)),
        Item(b"argbuf!!", 0, None, 0, input_type=1),
        Item((FOUR * 2).tobytes(), sizes=(4,)),
    ]
    data = operator_file(inputs, [Item((FOUR * 3).tobytes(), sizes=(4,))], spaces=[b"space"])
    dump = opened(tmp_path, data, "Add.add_with_argbuf.3.20240102030405678")
    found = ours(dump)
    assert np.array_equal(found["output.0"].stored(), FOUR * 3)
    assert np.array_equal(found["input.2"].stored(), FOUR * 2)
    assert found["input.1"].stored().tobytes() == b"argbuf!!"
    assert found["space.0"].stored().tobytes() == b"space"
    assert {record.name for record in dump.records if record.constant} == {"add:input:1", "add:space:0"}
    assert len({(record.io, record.slot) for record in dump.records}) == len(dump.records)
    assert any("exception dump" in note for note in dump.notes)


def test_a_payload_longer_than_the_shape_keeps_its_first_elements(tmp_path: Path) -> None:
    dump = opened(tmp_path, operator_file([], [Item(FOUR.tobytes() + bytes(16), sizes=(2, 2))]))
    assert np.array_equal(dump["add:output:0"].stored(), FOUR.reshape(2, 2)) and not dump.notes


def test_a_payload_shorter_than_the_shape_costs_one_tensor(tmp_path: Path) -> None:
    items = [Item(FOUR.tobytes(), sizes=(5,)), Item(FOUR.tobytes(), sizes=(4,))]
    dump = opened(tmp_path, operator_file([], items))
    assert "its shape [5] needs 20" in dump.notes[0]
    assert np.array_equal(dump["add:output:0"].raw(), FOUR)
    with pytest.raises(FormatError, match="holds 4 values"):
        dump["add:output:0"].stored()
    assert np.array_equal(dump["add:output:1"].stored(), FOUR)


def test_a_file_written_twice_is_read_once_and_told(tmp_path: Path) -> None:
    data = operator_file([], [Item(FOUR.tobytes(), sizes=(4,))])
    dump = opened(tmp_path, data * 2)
    assert len(dump) == 1 and f"{len(data)} bytes after the last tensor" in dump.notes[0]


def test_without_a_shape_all_of_the_payload_is_one_dimension(tmp_path: Path) -> None:
    items = [Item(FOUR.tobytes(), sizes=None), Item(b"abcde", 0, None), Item(FOUR.tobytes(), sizes=())]
    dump = opened(tmp_path, operator_file([], items))
    arrays = [dump[f"add:output:{i}"].stored() for i in range(3)]
    assert [(a.dtype.name, a.shape) for a in arrays] == [("float32", (4,)), ("int8", (5,)), ("float32", (4,))]


def test_small_types_are_unpacked(tmp_path: Path) -> None:
    items = [Item(b"\x21\xf8\x07", INT4, (5,)), Item(b"\xa0\x80", UINT1, (9,)), Item(b"\x98\x7f", 40, (4,))]
    dump = opened(tmp_path, operator_file([], items))
    assert dump["add:output:0"].stored().astype(int).tolist() == [1, 2, -8, -1, 7]
    assert dump["add:output:0"].info.dtype == ml_dtypes.int4
    assert dump["add:output:1"].stored().astype(int).tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 1]
    assert dump["add:output:2"].stored().tolist() == [-0.0, -0.25, -1.75, 1.75]
    assert not dump.notes


def test_what_nobody_can_decode_is_kept_as_bytes(tmp_path: Path) -> None:
    dump = opened(tmp_path, operator_file([], [Item(b"text", STRING, (1,)), Item(b"12345", 99, (5,))]))
    assert [dump[f"add:output:{i}"].stored().tobytes() for i in range(2)] == [b"text", b"12345"]
    assert ["string" in dump.notes[0], "type 99" in dump.notes[1]] == [True, True]


def test_layouts_and_groups(tmp_path: Path) -> None:
    half = bytes(2 * 256)
    items = [
        Item(half, FLOAT16, (1, 1, 16, 16), FRACTAL_Z, (16, 4, 1, 1), sub_format=4),
        Item(half, FLOAT16, (1, 1, 16, 16), FRACTAL_NZ, (10, 12)),
        Item(half, FLOAT16, (16, 16), NCHW, (16, 16)),
        Item(half, FLOAT16, (16, 16), 1234),
    ]
    infos = [record.tensor.info for record in opened(tmp_path, operator_file(items)).records]
    assert [(info.layout, info.origin) for info in infos] == [
        ("FRACTAL_Z", Origin((16, 4, 1, 1), None, 4)),
        ("FRACTAL_NZ", Origin((10, 12))),
        (None, None),
        (None, None),
    ]


def test_attributes_need_not_be_json_and_names_not_utf8(tmp_path: Path) -> None:
    outputs = [Item(FOUR.tobytes(), sizes=(4,))]
    more = {"attributes": [(b"ffts", b"{oops"), (b"fine", b"{}")], "message_of_device": b"aicore\nerror"}
    dump = opened(tmp_path, operator_file([], outputs, b"a\xffb", **more))  # type: ignore[arg-type]
    assert list(dump) == ["a\\xffb:output:0"]
    assert dump.notes == (f"{NAME}: the device says: aicore error",)


def test_the_operators_name_is_the_headers_or_the_files(tmp_path: Path) -> None:
    outputs = [Item(FOUR.tobytes(), sizes=(4,))]
    assert list(opened(tmp_path, operator_file([], outputs, b"block/add"))) == ["block/add:output:0"]
    assert list(opened(tmp_path, operator_file([], outputs, b""))) == ["add_1:output:0"]
    assert list(opened(tmp_path, operator_file([], outputs, b""), "renamed")) == ["renamed:output:0"]
    assert list(opened(tmp_path, operator_file([], outputs), NAME + ".4.7.1.0")) == ["add.7.1:output:0"]


@pytest.mark.parametrize(
    ("item", "match"),
    [
        (Item(b"", sizes=(2**40, 2**40)), "is invalid: numpy cannot make"),
        (Item(b"", sizes=(0, 2**63, 2**63)), "is invalid: numpy cannot make"),
        (Item(b"", sizes=(1,) * 40), "is invalid: numpy cannot make"),
        (Item(b"", original=(2**50, 3)), "is invalid: numpy cannot make"),
        (Item(b"", size=2**63), "9223372036854775808 bytes, but only 0 bytes are left"),
    ],
)
def test_huge_declared_sizes_are_refused(item: Item, match: str, tmp_path: Path) -> None:
    for data in (operator_file([item]), operator_file([], [item])):
        with pytest.raises(FormatError, match=match):
            opened(tmp_path, data)


def test_a_header_of_very_many_tensors_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    many = message(3, b"") * 20_000
    for head in (many, message(9, bytes(2**22))):
        data = len(head).to_bytes(8, "little") + head
        with pytest.raises(FormatError, match="header"):
            opened(tmp_path, data)


def test_opening_reads_no_payload_and_leaves_the_file_closed(tmp_path: Path) -> None:
    dump = opened(tmp_path, operator_file([], [Item(FOUR.tobytes(), sizes=(4,))]))
    (tmp_path / NAME).write_bytes(b"shorter")
    with pytest.raises(FormatError, match="has changed"):
        dump["add:output:0"].stored()


ITEMS = st.builds(
    Item,
    st.binary(max_size=40),
    st.sampled_from([FLOAT, INT32, UINT8]) | st.integers(0, 45),
    st.none() | st.lists(st.integers(0, 5), max_size=5),
    st.integers(0, 60),
    st.none() | st.lists(st.integers(0, 5), max_size=5),
    st.none() | st.integers(0, 5),
    st.integers(0, 3),
)
BUFFERS = st.builds(Item, st.binary(max_size=9), st.just(0), st.none(), input_type=st.just(1))
BEGUN = header([Item(b"", sizes=(2,))])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    inputs=st.lists(ITEMS | BUFFERS, max_size=4),
    outputs=st.lists(ITEMS, max_size=4),
    spaces=st.lists(st.binary(max_size=9), max_size=2),
    after=st.binary(max_size=5),
)
def test_any_messages_payloads_are_found(
    inputs: list[Item], outputs: list[Item], spaces: list[bytes], after: bytes, tmp_path: Path
) -> None:
    data = operator_file(inputs, outputs, spaces=spaces) + after
    if not (inputs or outputs or spaces):
        with pytest.raises(FormatError, match="no tensor"):
            opened(tmp_path, data)
        return
    dump = opened(tmp_path, data)
    found = ours(dump)
    items = [("input", i, item) for i, item in enumerate(inputs)] + [("output", i, o) for i, o in enumerate(outputs)]
    written = {
        f"{side}.{i}": item for side, i, item in items if item.input_type or item.data or item.type or item.sizes
    }
    assert len(found) == len(written) + len(spaces) == len(dump.records)
    assert any("after the last tensor" in note for note in dump.notes) == bool(after)
    for slot, item in written.items():
        width = {FLOAT: 4, INT32: 4, UINT8: 1}.get(item.type)
        if width is None:
            continue
        there = len(item.data) // width
        count = math.prod(item.sizes) if item.sizes else there
        assert found[slot].raw().tobytes() == item.data[: min(count, there) * width]
        if count <= there:
            assert found[slot].stored().shape == (tuple(item.sizes) if item.sizes else (there,))
    for i, space in enumerate(spaces):
        assert found[f"space.{i}"].stored().tobytes() == space


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tail=st.binary(max_size=200) | st.binary(max_size=30).map(BEGUN.__add__))
def test_any_bytes_behind_a_length_are_read_or_refused(tail: bytes, tmp_path: Path) -> None:
    for length in (len(tail), len(tail) // 2):
        (tmp_path / NAME).write_bytes(length.to_bytes(8, "little") + tail)
        ReadOnly().read_anything(tmp_path / NAME)


def test_unknown_fields_are_skipped(tmp_path: Path) -> None:
    output = Item(FOUR.tobytes(), sizes=(4,)).header(False) + message(77, b"later") + number(78, 5)
    head = message(3, output) + message(6, b"add")
    dump = opened(tmp_path, varint(len(head)).ljust(8, b"\0") + head + FOUR.tobytes())
    assert np.array_equal(dump["add:output:0"].stored(), FOUR)
