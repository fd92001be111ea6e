"""The SigmaStar binary dump against genuine files, their independent walks, and crafted trouble.

Integer dumps without shapes that may be padded are told, those without padding are not.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps.formats.conformance import Conformance, facts, plain_records
from dumps.formats.sigmastar.made import F32, I16, LINES, body, plain_record
from hypothesis import given, settings
from hypothesis import strategies as st
from platforms import unix_only

from sgsdump import Dump, Quant, Record, Tensor, open_dump, save_dump
from sgsdump.dumps.formats.sigmastar import binary, text_dump
from sgsdump.dumps.formats.sigmastar.binary import (
    FRAMEWORK,
    SIM,
    SIM_SHAPED,
    TFLITE,
    BinVariant,
    padding_notes,
    read,
    walk,
    write,
)
from sgsdump.dumps.formats.sigmastar.side_files import unpadded
from sgsdump.errors import FormatError, LossWarning, OutputError, ValuesError
from sgsdump.files.mapped import kept_open, map_file, opened
from sgsdump.sidecars import parse_net
from sgsdump.tensors.tensor import TensorInfo


class TestConformance(Conformance):
    format = "sigmastar_bin"
    variants = (SIM, SIM_SHAPED, FRAMEWORK, TFLITE)


def genuine(shared: Path) -> list[tuple[Path, Path]]:
    walks = sorted((shared / "sigmastar").rglob("*.records.tsv"))
    assert len(walks) >= 23
    return [(w.with_name(w.name.removesuffix(".records.tsv")), w) for w in walks]


def rows_of(walked: Path) -> list[dict[str, str]]:
    lines = walked.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    names = lines[1].split("\t")
    return [dict(zip(names, line.split("\t"))) for line in lines[2:] if line]


def test_genuine_files_read_to_the_fields_offsets_and_payloads_of_their_walks(shared: Path) -> None:
    for path, walked in genuine(shared):
        rows, dump, data = rows_of(walked), open_dump(path), path.read_bytes()
        places = list(walk(data, path))
        assert dump.format == "sigmastar_bin"
        assert len(rows) == len(dump.records) == len(places)
        for row, record, place in zip(rows, dump.records, places):
            header, info = place.header, record.tensor.info
            assert (place.offset, place.payload, place.size) == (
                int(row["rec_offset"]),
                int(row["payload_offset"]),
                int(row["payload_size"]),
            )
            ending = {"long": b"\n};\n//buffer data size: %d\n" % place.size, "short": b"\n};\n", "none": b""}
            assert place.ending == ending.get(row["trailer"], b"};\n")
            shape = tuple(int(d) for d in row["shape"].split(",")) if row["shape"] else None
            assert (record.io, record.slot, record.op_index, record.op_type, record.name, record.constant) == (
                row["io"],
                int(row["slot"]),
                int(row["op_index"]),
                row["op_type"],
                row["name"],
                row["const"] == "1",
            )
            assert row["op_io"] == row["io"] and not record.cut and info.shape == shape
            assert (header.scale, header.zero_point, header.type) == (float(row["s"]), int(row["z"]), row["type"])
            raw = record.tensor.raw()
            assert hashlib.sha1(raw.tobytes()).hexdigest() == row["sha1_payload"]
            assert not raw.flags.writeable
            if dump.variant.is_float:
                assert info.dtype == np.float32
                with np.errstate(invalid="ignore"):
                    assert float(f"{raw.min():.9g}") == pytest.approx(float(row["f32_min"]), rel=1e-6, nan_ok=True)
            if info.quant is None:
                assert row["type"] == "float"
            else:
                assert (info.quant.scale, info.quant.zero_point) == (float(row["s"]), int(row["z"]))
                assert not info.quant.exact


def test_genuine_files_saved_again_are_the_same_bytes_without_any_exception_to_the_rules(
    shared: Path, tmp_path: Path
) -> None:
    for path, _ in genuine(shared):
        dump = open_dump(path)
        save_dump(dump, tmp_path / "again", dump.format)
        assert (tmp_path / "again").read_bytes() == path.read_bytes(), path
        assert not dump.variant.odd, path


def test_genuine_variants_are_named(shared: Path) -> None:
    folder = shared / "sigmastar"
    expected = {
        "dumps/tiny_float_a_full/sigma_outtensor_dump.bin": SIM,
        "dumps/tiny_fixed_b_elim/sigma_outtensor_dump.bin": replace(SIM, is_float=False),
        "newstyle/fixed_new.bin": SIM_SHAPED,
        "reference_dumps/onnx/dump_bin_True/onnx_NHWC_outtensor_dump.bin": FRAMEWORK,
        "reference_dumps/tflite/dump_bin_True/tflite_outtensor_dump.bin": TFLITE,
    }
    for name, variant in expected.items():
        assert open_dump(folder / name).variant == variant


def test_integers_of_a_genuine_file_have_their_types(shared: Path) -> None:
    dump = open_dump(shared / "sigmastar/dumps/tiny_fixed_b_elim/sigma_outtensor_dump.bin")
    info = dump["prob"].info
    assert info.dtype == np.int16 and info.quant == Quant(np.dtype(np.int16), 0.000031, 0)
    with pytest.raises(ValuesError, match="six decimals"):
        dump["prob"].real()
    assert dump.inputs["data"].info.dtype == np.uint8


def test_genuine_file_cut_anywhere_is_told(shared: Path, tmp_path: Path) -> None:
    data = (shared / "sigmastar/dumps/tiny_offline_elim_dequant/sigma_outtensor_dump.bin").read_bytes()
    for length in range(0, len(data) - 1, 211):
        (tmp_path / "cut.bin").write_bytes(data[:length])
        with pytest.raises(FormatError, match=r"cut\.bin"):
            open_dump(tmp_path / "cut.bin")


@unix_only  # Windows replaces no file that is open
def test_a_payload_may_look_like_anything(tmp_path: Path) -> None:
    header = b"//out 0 s: 0.000000 z: 0 type: float name: x bConstant:0\nop_out[0] ADD = {\n//buffer data size: 4\n"
    payloads = [
        b"\n};\n" * 8,
        b"\n};\n//buffer data size: 4\n123",
        (header * 4)[:256],
        b"//out 0 ",
        b"isFloat: 0\n5",
        b"1.000000, 2.000000, 3.000000, \n}\n123",
        b"}\n};",
        b"",
    ]
    records = [
        Record(
            "out", 0, i, "ADD", Tensor.of(f"t{i}", np.frombuffer(payload, np.uint8), quant=Quant(None, type_name="X"))
        )
        for i, payload in enumerate(payloads)
    ]
    for variant in (SIM, FRAMEWORK, TFLITE, SIM_SHAPED):
        for first in range(len(records)):
            write(records[first:] + records[:first], tmp_path / "dump", replace(variant, is_float=False))
            dump = open_dump(tmp_path / "dump")
            assert dump.format == "sigmastar_bin"
            assert [r.tensor.raw().tobytes() for r in dump.records] == payloads[first:] + payloads[:first]


def long_header(
    name: bytes, const: bytes = b"1", index: int = 3, op_type: bytes = b"CONV_2D", io: bytes = b"in"
) -> bytes:
    lines = b"//%s 1 s: 0.000000 z: 0 type: float name: %s bConstant:%s\nop_%s[%d] %s = {\n"
    return lines % (io, name, const, io, index, op_type)


def cut_file(header: bytes) -> bytes:
    """A simulator's dump whose middle input has a header longer than the vendor's 255 bytes."""
    first = b"//in 0 s: 0.000000 z: 0 type: float name: data bConstant:0\nop_in[3] CONV_2D = {\n"
    last = b"//out 0 s: 0.000000 z: 0 type: float name: y bConstant:0\nop_out[3] CONV_2D = {\n"
    size, payload = b"//buffer data size: 8\n", b"\n};\n//bu"
    return (
        b"isFloat: 1\n"
        + (first + size + payload + b"\n};\n" + size)
        + (header[:255] + size + payload + b"\n};\n")
        + (last + size + payload + b"\n};\n")
    )


@pytest.mark.parametrize("extra", range(0, 60))
def test_headers_cut_at_255_bytes(tmp_path: Path, extra: int) -> None:
    """The cut moves through line1, the line break, ``bConstant`` and the name."""
    whole = long_header(b"n" * (255 - len(long_header(b"")) + extra))
    assert len(whole) == 255 + extra
    path = tmp_path / "cut.bin"
    path.write_bytes(cut_file(whole))
    dump = open_dump(path)
    record = dump.records[1]
    assert record.cut == (extra > 0)
    assert (record.io, record.slot, record.op_index) == ("in", 1, 3)
    name = re.search(rb"name: (n+)", whole[:255])
    assert name is not None and record.name.encode() == name[1]
    assert record.constant == (b"bConstant:1" in whole[:255])
    assert "CONV_2D".startswith(record.op_type)
    assert [r.tensor.raw().tobytes() for r in dump.records] == [b"\n};\n//bu"] * 3
    save_dump(dump, tmp_path / "again", dump.format)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_cut_name_may_end_inside_a_character(tmp_path: Path) -> None:
    path = tmp_path / "cut.bin"
    for shift in range(4):
        path.write_bytes(cut_file(long_header(b"n" * shift + "größe, 层".encode() * 30)))
        dump = open_dump(path)
        assert dump.records[1].cut
        save_dump(dump, tmp_path / "again", dump.format)
        assert (tmp_path / "again").read_bytes() == path.read_bytes()


@unix_only  # Windows replaces no file that is open
def test_operator_numbers_lost_in_a_cut_come_from_the_neighbours(tmp_path: Path) -> None:
    places = [("in", 0, 0), ("in", 1, 0), ("out", 0, 0), ("in", 0, 1), ("out", 0, 1), ("out", 1, 1), ("in", 0, 2)]
    places += [("in", 1, 2), ("out", 0, 2)]
    for lost in range(1 << len(places)):
        if bin(lost).count("1") > 4:
            continue
        records = [
            Record(io, slot, op, "ADD", Tensor.of("n" * 230 if lost >> i & 1 else f"t{i}", np.zeros(1, np.float32)))
            for i, (io, slot, op) in enumerate(places)
        ]
        records = [replace(record, cut=len(record.name) > 200) for record in records]
        write(records, tmp_path / "dump", SIM)
        dump = read(tmp_path / "dump")
        assert [(r.io, r.slot, r.op_index) for r in dump.records] == places
        assert [r.cut for r in dump.records] == [r.cut for r in records]


def test_long_old_headers_are_written_whole_unless_they_were_cut(tmp_path: Path) -> None:
    name = "long/" * 90
    write([Record("out", 0, 0, "ADD", Tensor.of(name, np.zeros(2, np.float32)))], tmp_path / "dump", SIM)
    record = open_dump(tmp_path / "dump").records[0]
    assert record.name == name and not record.cut


def test_one_rule_for_is_float(tmp_path: Path) -> None:
    true_scale = Quant(np.dtype(np.int16), 0.5, 0, exact=True)
    coarse = Quant(np.dtype(np.int16), 0.000031, 0)
    stored = np.array([[-4, 6]], np.int16)
    write([Record("out", 0, 0, "A", Tensor.of("x", stored, quant=true_scale))], tmp_path / "f", SIM)
    tensor = open_dump(tmp_path / "f")["x"]
    assert tensor.real().tolist() == [-2.0, 3.0] and tensor.info.quant == Quant(np.dtype(np.int16), 0.5, 0)

    with pytest.raises(ValuesError, match=r"'x'.*scale"):
        write([Record("out", 0, 0, "A", Tensor.of("x", stored, quant=coarse))], tmp_path / "g", SIM)
    write([Record("in", 1, 0, "A", Tensor.of("w", stored, quant=coarse), constant=True)], tmp_path / "g", SIM)
    assert open_dump(tmp_path / "g").constants["w"].raw().tolist() == [-4.0, 6.0]

    write([Record("out", 0, 0, "A", Tensor.of("x", stored, quant=coarse))], tmp_path / "i", None)
    dump = open_dump(tmp_path / "i")
    assert not dump.variant.is_float and dump["x"].stored().tolist() == [[-4, 6]] and dump["x"].info.dtype == np.int16

    floats = Tensor.of("x", np.zeros(2, np.float32), quant=true_scale)
    with pytest.raises(ValuesError, match="isFloat: 0"):
        write([Record("out", 0, 0, "A", floats)], tmp_path / "j", replace(SIM, is_float=False))
    with pytest.raises(ValuesError, match="uint32"):
        write([Record("out", 0, 0, "A", Tensor.of("x", np.zeros(2, np.uint32)))], tmp_path / "j", BinVariant(False))
    with pytest.raises(ValuesError, match="complex64"):
        save_dump([Tensor.of("x", np.zeros(2, np.complex64))], tmp_path / "j.bin")
    assert not (tmp_path / "j").exists()


def test_other_numbers_become_float32_and_nchw_becomes_nhwc(tmp_path: Path) -> None:
    nchw = np.arange(24, dtype=np.int64).reshape(1, 2, 3, 4)
    tensors = [
        Tensor.of("a", nchw, layout="NCHW"),
        Tensor.of("b", np.array([True, False])),
        Tensor.of("c", np.float64(7)),
    ]
    with pytest.warns(
        LossWarning, match="1 tensor is int64, kept as float32: 'a'; 1 tensor is NCHW, kept as NHWC: 'a'"
    ):
        save_dump([*tensors, Tensor.of("d", np.array([1e300]))], tmp_path / "dump.bin")
    dump = open_dump(tmp_path / "dump.bin")
    assert dump["a"].info.shape == (1, 3, 4, 2) and dump["a"].info.layout == "NHWC"
    np.testing.assert_array_equal(dump["a"].real(), nchw.transpose(0, 2, 3, 1))
    assert dump["b"].real().tolist() == [1.0, 0.0]
    assert dump["c"].info.shape == () and dump["c"].real() == 7
    assert np.isinf(dump["d"].real()).all()


def test_a_payload_larger_than_its_shape_is_kept_and_cropped(tmp_path: Path) -> None:
    info = TensorInfo("data", (1, 2, 2, 3), np.dtype(np.float32), "NHWC")
    array = np.arange(16, dtype=np.float32)
    write([Record("in", 0, 0, "A", Tensor(info, lambda: array))], tmp_path / "dump", SIM_SHAPED)
    tensor = open_dump(tmp_path / "dump").inputs["data"]
    assert tensor.raw().size == 16
    np.testing.assert_array_equal(tensor.stored(), array[:12].reshape(1, 2, 2, 3))


SOUND = b"isFloat: 1\n//out 0 s: 0.000000 z: 0 type: float name: conv1 bConstant:0\nop_out[0] ADD = {\n"


@pytest.mark.parametrize(
    "body",
    [
        b"//buffer data size: 99999999999999999\n1234\n};\n",
        b"//buffer data size: 5000\n1234\n};\n",
        b"//buffer data size: -4\n1234\n};\n",
        b"//buffer data size: 99999999999999999999999999999\n1234\n};\n",
        b"//buffer data size: 3\n123\n};\n",
        b"//buffer data size: 4\n12345\n};\n",
        b"//buffer data size: four\n1234\n};\n",
        b"//buffer data size: 4\n1234\n};\n//buffer data size: 4\n",
        b"//buffer data size: 4\n1234\n};\n//buffer data size: 5\n",
        b"//buffer data size: 4\n1234\n};\nrubbish",
        b"",
        b"\x00" * 400,
    ],
)
def test_damage_is_told_in_one_line(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "bad.bin"
    path.write_bytes(SOUND + body)
    with pytest.raises(FormatError, match=r"bad\.bin.*record \d.*dump it again") as caught:
        open_dump(path)
    assert "\n" not in str(caught.value)


def test_the_dumpers_form_holds_outputs_only(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds only outputs"):
        write([Record("in", 0, 0, "A", Tensor.of("x", np.zeros(1, np.float32)))], tmp_path / "dump", FRAMEWORK)
    assert not list(tmp_path.iterdir())


def test_names_that_no_header_can_hold_are_refused(tmp_path: Path) -> None:
    for name in ("two\nlines", "\ud800"):
        with pytest.raises(OutputError, match="cannot write tensor"):
            save_dump([Tensor.of(name, np.zeros(1, np.float32))], tmp_path / "dump.bin")
    assert not list(tmp_path.iterdir())


NAMES = st.one_of(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=300),
    st.sampled_from(
        ["a bConstant:1", " bConstant:0 shape:[1] dims:1", "x name: y", "//out 0 s: ", "= {", "", " ", "\udcff"]
    ),
)
DTYPES = [np.float32, np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64, np.bool_]


@st.composite
def any_record(draw: Any, is_float: bool) -> Record:
    shape = draw(st.lists(st.integers(0, 4), max_size=5))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    seed = draw(st.integers(0, 2**32 - 1))
    word = draw(st.sampled_from(["", "unknown", "SGS_X9"]))
    scale = draw(st.integers(0, 10**9)) / 10**6
    quant = Quant(None if word else dtype, scale, draw(st.integers(-(2**31), 2**31)), type_name=word)
    stored = np.dtype(np.float32) if is_float else np.dtype(np.uint8) if word else dtype
    count = int(np.prod(shape, dtype=int))
    array = np.random.default_rng(seed).bytes(count * stored.itemsize)
    values = np.frombuffer(array, stored).reshape(shape)
    if dtype == np.float32 and not word and scale == 0:
        quant = None
    layout = "NHWC" if len(shape) == 4 else None
    op_type = draw(st.sampled_from(["ADD", "", "a = {", "Conv_1 [x]"]))
    tensor = Tensor.of(draw(NAMES), values, layout=layout, quant=quant, op_type=op_type)
    io = draw(st.sampled_from(["in", "out"]))
    return Record(
        io,
        draw(st.integers(0, 3)),
        draw(st.integers(0, 3)),
        op_type,
        tensor,
        draw(st.booleans()),  # type: ignore[arg-type]
    )


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans(), st.sampled_from(["group", "short", "none", "tflite"]))
def test_any_records_survive(tmp_path_factory: Any, data: Any, is_float: bool, ending: str) -> None:
    path = tmp_path_factory.mktemp("any") / "dump"
    records = data.draw(st.lists(any_record(is_float), min_size=1, max_size=6))
    if ending == "none":
        records = [replace(record, io="out") for record in records]
    write(records, path, BinVariant(is_float, True, ending))
    dump = open_dump(path)
    assert dump.format == "sigmastar_bin" and dump.variant.is_float == is_float
    for record, original in zip(dump.records, records, strict=True):
        assert record == replace(original, tensor=record.tensor)
        assert record.tensor.info == original.tensor.info
        assert record.tensor.raw().tobytes() == original.tensor.raw().tobytes()
    save_dump(dump, path.with_name("again"), dump.format)
    assert path.with_name("again").read_bytes() == path.read_bytes()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_opens_is_saved_byte_for_byte(tmp_path_factory: Any, data: Any) -> None:
    """Damage a small dump at random: it is refused with a FormatError, or opens and keeps every byte."""
    path = tmp_path_factory.mktemp("damaged") / "dump"
    write(plain_records(), path, data.draw(st.sampled_from([SIM, SIM_SHAPED, FRAMEWORK, TFLITE])))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"0", b" ", b"-"])
        )
    path.write_bytes(content)
    try:
        dump = open_dump(path)
    except FormatError:
        return
    if dump.format != "sigmastar_bin":
        return
    save_dump(dump, path.with_name("again"), dump.format)
    assert path.with_name("again").read_bytes() == bytes(content)


def test_a_hostile_size_is_refused_and_a_huge_sparse_payload_costs_nothing(tmp_path: Path) -> None:
    """Facts are eager, values lazy: three gigabytes are mapped, not read."""
    path = tmp_path / "huge.bin"
    size = 3 << 30
    with path.open("wb") as file:
        file.write(SOUND + b"//buffer data size: %d\n" % size)
        start = file.tell()
        try:
            file.truncate(start + size)
        except OSError as error:
            pytest.skip(f"no sparse file of {size} bytes here: {error}")
        file.seek(0, 2)
        file.write(b"\n};\n")
    raw = open_dump(path)["conv1"].raw()
    assert raw.size == size // 4 and raw[-1] == 0
    path.write_bytes(SOUND + b"//buffer data size: %d\n" % size + b"1234")
    with pytest.raises(FormatError, match="4 are left"):
        open_dump(path)


@unix_only  # Windows replaces no file that is open
def test_reading_twice_says_the_same(shared: Path, tmp_path: Path) -> None:
    """Written in another variant, a genuine dump keeps all its facts and payloads."""
    source = open_dump(shared / "sigmastar/newstyle/fixed_new.bin")
    for variant in (SIM_SHAPED, TFLITE):
        write(source.records, tmp_path / "dump", variant)
        copy = open_dump(tmp_path / "dump")
        assert facts(copy) == facts(source)
        assert all(np.array_equal(a.tensor.raw(), b.tensor.raw()) for a, b in zip(copy.records, source.records))


@pytest.mark.parametrize("variant", [SIM, SIM_SHAPED, FRAMEWORK, TFLITE])
def test_large_records_are_walked_the_same_whether_the_file_is_read_or_mapped(
    tmp_path: Path, variant: BinVariant
) -> None:
    """Names longer than what is read at once, small records between large ones, one that ends the file."""
    names = ["a", "b" * 3000, "c" * 990, "d" * 1020, *(f"e{number}" * number for number in range(1, 12))]
    sizes = [5000, 70000, 6000, 20, 9000, *range(1, 9000, 900)]
    records = [
        Record("out", slot, index // 3, "CONV_2D", Tensor.of(name, np.arange(size, dtype=np.float32)))
        for index, (name, size, slot) in enumerate(zip(names, sizes, [0, 1, 2] * 5))
    ]
    path = tmp_path / "dump.bin"
    write(records, path, variant)
    with kept_open():
        file = opened(np.frombuffer(map_file(path), np.uint8))
        read = list(walk(path.read_bytes(), path, file))
    assert (file is not None) == hasattr(os, "pread")
    assert read == list(walk(path.read_bytes(), path)) and len(read) == len(records)
    for record, again in zip(records, open_dump(path).records):
        np.testing.assert_array_equal(again.tensor.stored().reshape(-1), record.tensor.stored())


GROUPS = [
    plain_record(np.ones(1, F32), "a", "in", 0, 0),
    plain_record(np.ones(1, F32), "b", "in", 1, 0),
    plain_record(np.ones(1, F32), "c", "out", 0, 0),
    plain_record(np.ones(1, F32), "c", "in", 0, 1),
    plain_record(np.ones(1, F32), "d", "out", 0, 1),
]


@pytest.mark.parametrize(
    ("variant", "endings"),
    [
        (SIM, [b"\n};\n//buffer data size: 4\n", b"\n};\n", b"\n};\n", b"\n};\n", b"\n};\n"]),
        (BinVariant(ending="short"), [b"\n};\n"] * 5),
        (TFLITE, [b"};\n"] * 5),
    ],
)
def test_how_records_end(tmp_path, variant, endings):
    binary.write(GROUPS, tmp_path / "x", variant)
    data = (tmp_path / "x").read_bytes()
    assert data.startswith(b"isFloat: 1\n")
    assert [place.ending for place in binary.walk(data, tmp_path / "x")] == endings
    again = open_dump(tmp_path / "x")
    assert again.variant == variant and [r.op_index for r in again.records] == [0, 0, 0, 1, 1]


def test_the_four_variants():
    assert (SIM.shaped, SIM.ending, SIM_SHAPED.shaped, FRAMEWORK.ending, TFLITE.ending) == (
        *(False, "group", True, "none", "tflite"),
    )
    assert (
        all(variant.is_float for variant in (SIM, SIM_SHAPED, FRAMEWORK, TFLITE)) and FRAMEWORK.shaped and TFLITE.shaped
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"holds no tensor\. Check that the run"),
        (body() + b"x", r"record 1 at byte \d+ has no complete header"),
        (body() + LINES, r"record 1 at byte \d+ has no complete header"),
        (
            body(size=-4, lines=LINES.replace(b"0.000000", b"0.0")),
            "record 0 'x' at byte 11 declares -4 bytes, but 8 are left in the file",
        ),
        (body(size=9, ending=b"\n};\n"), r"declares 9 bytes, but 8 are left"),
        (body(ending=b"\n}\n"), "does not end after its 4 bytes"),
        (body(lines=LINES.replace(b"out", b"in"), ending=b""), "does not end after its 4 bytes"),
        (body(ending=b"\n};\n//buffer data size: 4\n"), "is the last, but its ending announces another record"),
        (body() + body(ending=b""), "is the last, but its ending announces another record"),
    ],
)
def test_where_a_file_is_damaged(tmp_path, data, message):
    with pytest.raises(FormatError, match=message):
        list(binary.walk(b"isFloat: 1\n" + data, tmp_path / "x"))


def test_a_payload_to_the_very_end_is_a_dumpers_last_record(tmp_path):
    data = b"isFloat: 1\n" + body(ending=b"") + body(b"", ending=b"")
    assert [(place.size, place.ending) for place in binary.walk(data, tmp_path)] == [(4, b""), (0, b"")]
    with pytest.raises(FormatError, match="does not begin with 'isFloat"):
        list(binary.walk(b"isFloat: 2\n" + body(), tmp_path))


def test_a_payload_is_a_whole_number_of_values(tmp_path):
    (tmp_path / "x").write_bytes(b"isFloat: 1\n" + body() + body(b"12345"))
    with pytest.raises(FormatError, match=r"record 1 'x' .* holds 5 bytes, not a whole number of float32"):
        binary.read(tmp_path / "x")


def test_usual_variants_by_the_first_tensor(tmp_path):
    cases = [
        (plain_record(np.ones(1, F32)), b"1"),
        (plain_record(np.ones(1, I16)), b"1"),
        (plain_record(np.ones(1, I16), quant=Quant(I16, 0.5)), b"0"),
        (plain_record(np.ones(1, F32), quant=Quant(I16, 0.5)), b"1"),
    ]
    for made, flag in cases:
        binary.write([made], tmp_path / "x", None)
        assert (tmp_path / "x").read_bytes()[9:10] == flag
        text_dump.write([made], tmp_path / "y", None)
        assert (tmp_path / "y").read_bytes()[9:10] == flag
        assert open_dump(tmp_path / "x").variant == BinVariant(flag == b"1")
    for writer in (binary.write, text_dump.write):
        with pytest.raises(OutputError, match="there is no tensor to write"):
            writer([], tmp_path / "z", None)


def test_the_dumpers_form_refuses_inputs_and_says_so(tmp_path):
    assert next(binary.loses(GROUPS[:1], FRAMEWORK)).what.startswith("is an input, which the form of the ONNX")
    assert not list(binary.loses(GROUPS[:1], SIM_SHAPED)) and not list(binary.loses(GROUPS[2:3], FRAMEWORK))
    with pytest.raises(OutputError, match="cannot write input 'a'"):
        binary.write(GROUPS[:1], tmp_path / "x", FRAMEWORK)


def test_bytes_that_follow_no_rule_come_back(tmp_path):
    odd = LINES.replace(b"s: 0.000000", b"s: 0.0").replace(b"name: x", b"name: y")
    data = b"isFloat: 1\n" + body() + body(lines=odd) + body(ending=b"};\n") + body()
    (tmp_path / "x").write_bytes(data)
    dump = open_dump(tmp_path / "x")
    assert sorted(dump.variant.odd) == [1, 2] and dump.variant.odd[1].name == "y" and dump.variant.odd[1].size == 4
    binary.write(dump.records, tmp_path / "y", dump.variant)
    assert (tmp_path / "y").read_bytes() == data
    # another tensor in that place has lines of its own
    binary.write([plain_record(np.ones(2, F32), "z") for _ in range(4)], tmp_path / "z", dump.variant)
    assert b"s: 0.0 " not in (tmp_path / "z").read_bytes()


@pytest.mark.parametrize("ending", ["bin", "txt"])
def test_a_selected_part_leaves_the_overrides_of_other_records_out(tmp_path, ending):
    """They are by number in the whole file: the second y of the part is the third record."""
    second = LINES.replace(b"name: x", b"name: y")
    odd = second.replace(b"s: 0.000000", b"s: 0.0")
    if ending == "bin":
        data = b"isFloat: 1\n" + body() + body(lines=odd) + body(lines=second)
    else:
        data = b"isFloat: 1\n" + b"".join(lines + b"\n1.000000, \n\n};\n" for lines in (LINES, odd, second))
    path = tmp_path / f"x.{ending}"
    path.write_bytes(data)
    dump = open_dump(path)
    assert list(dump.variant.odd) == [1]
    part = dump.select("y")
    assert len(part.records) == 2 and not part.variant.odd and part.variant == replace(dump.variant, odd={})
    save_dump(part, tmp_path / f"part.{ending}")
    assert b"s: 0.0 " not in (tmp_path / f"part.{ending}").read_bytes()
    save_dump(dump.select("*"), tmp_path / f"all.{ending}")
    assert (tmp_path / f"all.{ending}").read_bytes() == data


DUMP = "sigma_outtensor_dump.bin"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tiny_fixed_d_plain", True),
        ("tiny_all16_plain", True),
        ("tiny_fixed_b_elim", False),
        ("tiny_all16_elim", False),
        ("tiny_fixed_c_dequant", False),
        ("tiny_float_b_noelim", False),
    ],
)
def test_the_vendors_padded_dumps_are_told_and_no_others(shared: Path, name: str, told: bool) -> None:
    dump = open_dump(shared / "sigmastar/dumps" / name / DUMP)
    assert len(dump.notes) == told
    if told:
        assert (
            dump.notes[0].startswith("values may include padding: 27 integer tensors")
            and "--parse-net" in dump.notes[0]
        )


def test_nothing_is_told_where_parse_net_says_the_shapes(shared: Path) -> None:
    dump = open_dump(shared / "sigmastar/dumps/tiny_fixed_d_plain" / DUMP)
    net = parse_net.read(shared / "sigmastar/model/parse_net_tiny_fixed_L5.txt")
    assert unpadded(dump, net).notes == ()


def record(size: int, last: int = 0, dtype: type = np.uint8, **facts: object) -> Record:
    values = np.ones(size, dtype)
    values[-1:] = last
    info = TensorInfo("x", facts.get("shape"), values.dtype)  # type: ignore[arg-type]
    return Record("out", 0, 0, "CONV_2D", Tensor(info, lambda: values), constant=bool(facts.get("constant")))


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([record(64), record(128, 1)], True),
        ([record(64, 1), record(128, 1)], False),
        ([record(64), record(100)], False),
        ([record(64), record(10, dtype=np.float32)], True),
        ([record(64, dtype=np.float32)], False),
        ([record(64, shape=(64,))], False),
        ([record(64, constant=True)], False),
        ([record(0)], False),
        ([], False),
    ],
)
def test_what_counts_as_a_sign(records: list[Record], told: bool) -> None:
    sizes = [record.tensor.raw().nbytes for record in Dump(records).records]
    assert len(padding_notes(records, sizes)) == told
