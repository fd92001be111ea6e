"""The SigmaStar string dumps against genuine files, the binary dumps of the same runs, and crafted trouble.

A record of a text dump ends with one of two marks and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dumps.formats.conformance import Conformance, facts
from dumps.formats.sigmastar.made import F32, I16, LINES, plain_record
from hypothesis import given, settings
from hypothesis import strategies as st
from platforms import unix_only

from sgsdump import Quant, Record, Tensor, open_dump, save_dump
from sgsdump.dumps.formats.sigmastar import text_dump
from sgsdump.dumps.formats.sigmastar.record_header import format_size
from sgsdump.dumps.formats.sigmastar.text_dump import FRAMEWORK, LAYER, SIM, TFLITE, TextVariant, write
from sgsdump.errors import FormatError, ValuesError


class TestConformance(Conformance):
    format = "sigmastar_text"
    variants = (SIM, TFLITE, LAYER)
    tolerance = 6e-7

    def records(self) -> list[Record]:
        """Values of six decimals, which the text keeps."""
        return [
            replace(record, tensor=Tensor(record.tensor.info, lambda t=record.tensor: np.round(t.raw(), 6)))  # type: ignore[misc]
            for record in super().records()
        ]


def simulator_files(shared: Path) -> dict[str, Path]:
    found = {p.parent.name: p for p in (shared / "sigmastar/dumps").glob("*_string/*.bin")}
    assert len(found) == 4
    return found


def dumper_files(shared: Path) -> list[Path]:
    found = [p for p in (shared / "sigmastar/reference_dumps").glob("*/dump_bin_False/**/*") if p.is_file()]
    found = [p for p in found if p.name != "shape.txt"]
    assert len(found) == 61
    return found


def test_genuine_files_saved_again_are_the_same_bytes(shared: Path, tmp_path: Path) -> None:
    for path in [*simulator_files(shared).values(), *dumper_files(shared)]:
        dump = open_dump(path)
        assert dump.format == "sigmastar_text"
        save_dump(dump, tmp_path / "again", dump.format)
        assert (tmp_path / "again").read_bytes() == path.read_bytes(), path


def test_genuine_variants_are_named(shared: Path) -> None:
    simulators = {name: open_dump(path).variant for name, path in simulator_files(shared).items()}
    assert simulators == {
        "tiny_float_c_string": SIM,
        "tiny_fixed_e_elim_dequant_string": SIM,
        "tiny_fixed_f_elim_string": replace(SIM, is_float=False, blank=False),
        "tiny_fixed_g_plain_string": replace(SIM, is_float=False),
    }
    folder = shared / "sigmastar/reference_dumps"
    assert open_dump(folder / "onnx/dump_bin_False/onnx_NHWC_outtensor_dump.txt").variant == FRAMEWORK
    assert open_dump(folder / "onnx/dump_bin_False/NHWC/conv2#(1, 5, 6, 7)").variant == LAYER


@pytest.mark.parametrize(
    ("text", "binary"),
    [
        ("dumps/tiny_float_c_string/sigma_outtensor_dump.bin", "dumps/tiny_float_a_full/sigma_outtensor_dump.bin"),
        (
            "dumps/tiny_fixed_e_elim_dequant_string/sigma_outtensor_dump.bin",
            "dumps/tiny_fixed_a_elim_dequant/sigma_outtensor_dump.bin",
        ),
        (
            "reference_dumps/onnx/dump_bin_False/onnx_NHWC_outtensor_dump.txt",
            "reference_dumps/onnx/dump_bin_True/onnx_NHWC_outtensor_dump.bin",
        ),
        (
            "reference_dumps/caffe/dump_bin_False/caffe_NHWC_outtensor_dump.txt",
            "reference_dumps/caffe/dump_bin_True/caffe_NHWC_outtensor_dump.bin",
        ),
        (
            "reference_dumps/tflite/dump_bin_False/tflite_outtensor_dump.bin",
            "reference_dumps/tflite/dump_bin_True/tflite_outtensor_dump.bin",
        ),
    ],
)
def test_floats_are_those_of_the_binary_dump_of_the_same_run(shared: Path, text: str, binary: str) -> None:
    printed, exact = open_dump(shared / "sigmastar" / text), open_dump(shared / "sigmastar" / binary)
    assert facts(printed) == facts(exact)
    for a, b in zip(printed.records, exact.records):
        # The dumpers run the model anew for the text, so its last digits may differ.
        limit = 2e-6 if "reference" in text else 6e-7
        np.testing.assert_allclose(a.tensor.stored(), b.tensor.stored(), rtol=2e-7, atol=limit)


@pytest.mark.parametrize(
    ("text", "binary"),
    [("tiny_fixed_f_elim_string", "tiny_fixed_b_elim"), ("tiny_fixed_g_plain_string", "tiny_fixed_d_plain")],
)
def test_integers_are_put_together_from_their_printed_bytes(shared: Path, text: str, binary: str) -> None:
    folder = shared / "sigmastar/dumps"
    printed, exact = (open_dump(folder / name / "sigma_outtensor_dump.bin") for name in (text, binary))
    assert facts(printed) == facts(exact)
    left_out = 0
    for a, b in zip(printed.records, exact.records):
        if text == "tiny_fixed_f_elim_string" and b.tensor.info.dtype == np.int32:
            with pytest.raises(ValuesError, match="the string dump has no values"):
                a.tensor.stored()
            left_out += 1
        elif "plain" not in text:
            np.testing.assert_array_equal(a.tensor.raw(), b.tensor.raw())
        else:
            # Another run's padding holds other leftovers.
            assert a.tensor.raw().shape == b.tensor.raw().shape and a.tensor.raw().dtype == b.tensor.raw().dtype
    assert left_out == (2 if text == "tiny_fixed_f_elim_string" else 0)


def test_layer_files_tell_their_layout(shared: Path) -> None:
    folder = shared / "sigmastar/reference_dumps/onnx/dump_bin_False"
    nhwc = open_dump(folder / "NHWC/conv2#(1, 5, 6, 7)")["conv2"]
    nchw = open_dump(folder / "NCHW/conv2#(1, 7, 5, 6)")["conv2"]
    assert (nhwc.info.layout, nchw.info.layout) == ("NHWC", "NCHW")
    np.testing.assert_array_equal(nchw.real().transpose(0, 2, 3, 1), nhwc.real())


def test_layer_file_of_the_other_layout_is_written_transposed(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    (tmp_path / "NCHW").mkdir()
    path = tmp_path / "NCHW" / "x"
    write([Record("out", 0, 0, "A", Tensor.of("x", array, layout="NHWC"))], path, replace(LAYER, layout="NCHW"))
    tensor = open_dump(path)["x"]
    assert tensor.info.shape == (1, 3, 2, 2) and tensor.info.layout == "NCHW"
    np.testing.assert_array_equal(tensor.real(), array.transpose(0, 3, 1, 2))


def test_a_binary_dump_becomes_text_and_back(shared: Path, tmp_path: Path) -> None:
    source = open_dump(shared / "sigmastar/dumps/tiny_fixed_b_elim/sigma_outtensor_dump.bin")
    save_dump(source, tmp_path / "text", "sigmastar_text")
    text = open_dump(tmp_path / "text")
    assert text.format == "sigmastar_text" and facts(text) == facts(source)
    save_dump(text, tmp_path / "bin", "sigmastar_bin")
    again = open_dump(tmp_path / "bin")
    assert all(np.array_equal(a.tensor.raw(), b.tensor.raw()) for a, b in zip(again.records, source.records))


def test_values_left_out_cannot_become_binary(shared: Path, tmp_path: Path) -> None:
    dump = open_dump(shared / "sigmastar/dumps/tiny_fixed_f_elim_string/sigma_outtensor_dump.bin")
    with pytest.raises(ValuesError, match=r"no values of 'ReshapeInputShapeTensor#1#31'"):
        save_dump(dump, tmp_path / "bin", "sigmastar_bin")
    assert not list(tmp_path.iterdir())


@unix_only  # Windows replaces no file that is open
def test_nan_and_inf_are_printed_and_read(tmp_path: Path) -> None:
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 3e38, -1.5], np.float32)
    for variant, printed in ((SIM, b"nan, -nan, inf, -inf, -0.000000, "), (FRAMEWORK, b"nan, nan, inf, -inf, ")):
        write([Record("out", 0, 0, "A", Tensor.of("x", values))], tmp_path / "text", variant)
        assert printed in (tmp_path / "text").read_bytes()
        dump = open_dump(tmp_path / "text")
        assert dump.format == "sigmastar_text"
        np.testing.assert_array_equal(dump["x"].real(), values)
        save_dump(dump, tmp_path / "again", dump.format)
        assert (tmp_path / "again").read_bytes() == (tmp_path / "text").read_bytes()


HEAD = b"isFloat: 1\n//out 0 s: 0.000000 z: 0 type: float name: x bConstant:0\nop_out[0] ADD = {\n"


@pytest.mark.parametrize(
    "body",
    [
        b"\n1.000000, two, 3.000000, \n\n};\n",
        b"\n1.000000, 2.0 00000, \n\n};\n",
        b"//buffer data size: 16\n\n1.000000, 2.000000, \n}\n",
        b"//buffer data size: 8\n\n1.000000, 2.000000, 3.000000, \n}\n",
        "\n1.000000, ２.000000, \n\n};\n".encode(),
    ],
)
def test_damaged_values_are_told_when_asked_for(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "bad.txt").write_bytes(HEAD + body)
    dump = open_dump(tmp_path / "bad.txt")
    assert dump.format == "sigmastar_text"
    with pytest.raises(FormatError, match=r"bad\.txt.*'x'.*damaged") as caught:
        dump["x"].stored()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("body", [b" 300, \n\n};\n", b"  -1, \n\n};\n", b"   1,    2,    3, \n\n};\n"])
def test_printed_bytes_must_be_bytes_of_the_type(tmp_path: Path, body: bytes) -> None:
    head = HEAD.replace(b"isFloat: 1", b"isFloat: 0").replace(b"float", b"SGS_S16")
    (tmp_path / "bad.txt").write_bytes(head + body)
    with pytest.raises(FormatError, match="bytes of int16"):
        open_dump(tmp_path / "bad.txt")["x"].stored()


@pytest.mark.parametrize("rest", [b"rubbish", b"//out 0 s: 0.000000 z: 0", HEAD[11:] + b"\n1.0"])
def test_damage_between_records_is_told(tmp_path: Path, rest: bytes) -> None:
    (tmp_path / "bad.txt").write_bytes(HEAD + b"\n1.000000, \n\n};\n" + rest)
    with pytest.raises(FormatError, match=r"bad\.txt: record 1.*dump it again"):
        open_dump(tmp_path / "bad.txt")


def test_records_of_two_kinds_do_not_mix(tmp_path: Path) -> None:
    framework = HEAD[11:] + b"//buffer data size: 4\n\n1.000000, \n}\n"
    (tmp_path / "bad.txt").write_bytes(HEAD + b"\n1.000000, \n\n};\n" + framework)
    with pytest.raises(FormatError, match="record 1"):
        open_dump(tmp_path / "bad.txt")


@pytest.mark.parametrize("extra", range(0, 50, 3))
@pytest.mark.parametrize("body", [b"\n1.000000, 2.000000, \n\n};\n", b"\n\n};\n"])
def test_headers_cut_at_255_bytes(tmp_path: Path, extra: int, body: bytes) -> None:
    header = HEAD[11:].replace(b"name: x", b"name: " + b"x" * (256 - len(HEAD[11:]) + extra))
    assert len(header) == 255 + extra
    path = tmp_path / "cut.bin"
    path.write_bytes(HEAD + body + header[:255] + body + HEAD[11:].replace(b"[0]", b"[2]") + body)
    dump = open_dump(path)
    assert [(r.op_index, r.cut) for r in dump.records] == [(0, False), (1 if extra else 0, extra > 0), (2, False)] or (
        extra in range(1, 12) and [r.op_index for r in dump.records] == [0, 0, 2]
    )
    save_dump(dump, tmp_path / "again", dump.format)
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_records_survive(tmp_path_factory: Any, data: Any) -> None:
    """Any values, shapes and integer types, in every style: what is written again is the same text."""
    path = tmp_path_factory.mktemp("any") / "dump"
    is_float = data.draw(st.booleans())
    style = data.draw(st.sampled_from(["sim", "framework", "tflite"])) if is_float else "sim"
    blank = style == "framework" or (style == "sim" and (is_float or data.draw(st.booleans())))
    variant = TextVariant(style, is_float, data.draw(st.booleans()), data.draw(st.booleans()) or not is_float, blank)
    records = []
    for index in range(data.draw(st.integers(1, 4))):
        dtype = np.dtype(np.float32 if is_float else data.draw(st.sampled_from([np.uint8, np.int16, np.int32])))
        count = data.draw(st.integers(1, 40))
        seed = data.draw(st.integers(0, 2**32 - 1))
        values = np.frombuffer(np.random.default_rng(seed).bytes(count * dtype.itemsize), dtype)
        quant = None if is_float else Quant(dtype, 0.5, 3)
        records.append(Record("out", 0, index, "ADD", Tensor.of(f"t {index}", values, quant=quant)))
    write(records, path, variant)
    dump = open_dump(path)
    assert dump.format == "sigmastar_text" and dump.variant == variant
    for record, original in zip(dump.records, records, strict=True):
        found, expected = record.tensor.raw(), original.tensor.raw()
        if is_float:
            np.testing.assert_allclose(found, expected, rtol=0, atol=1.01e-6)
        else:
            np.testing.assert_array_equal(found, expected)
    save_dump(dump, path.with_name("again"), dump.format)
    assert path.with_name("again").read_bytes() == path.read_bytes()


def test_a_dump_without_blank_lines_whose_first_values_are_left_out_is_saved_as_it_was(tmp_path: Path) -> None:
    data = (
        b"isFloat: 0\n//in 1 s: 0.000000 z: 0 type: SGS_S32 name: b bConstant:1\nop_in[0] CONV_2D = {\n\n};\n"
        b"//out 0 s: 0.500000 z: 3 type: SGS_U8 name: x bConstant:0\nop_out[0] CONV_2D = {\n     1,      2, \n\n};\n"
    )
    (tmp_path / "x.txt").write_bytes(data)
    save_dump(open_dump(tmp_path / "x.txt"), tmp_path / "y.txt")
    assert (tmp_path / "y.txt").read_bytes() == data


def printed(values, variant, tmp_path, **facts):
    text_dump.write([plain_record(values, **facts)], tmp_path / "x", variant)
    return (tmp_path / "x").read_bytes()


SHAPED = LINES.replace(b":0\n", b":0 shape:[%d] dims:1\n", 1)


@pytest.mark.parametrize(("count", "tail"), [(0, b""), (1, b""), (16, b"\n"), (17, b"\n")])
def test_sixteen_values_to_a_row_in_every_style(tmp_path, count, tail):
    values = np.arange(count, dtype=F32)
    words = [b"%d.000000, " % value for value in range(count)]
    rows = b"\n".join(b"".join(words[start : start + 16]) for start in range(0, count, 16))
    rows += b"\n" if count and count % 16 == 0 else b""
    ended = rows if count % 16 == 0 else rows + b"\n"  # only the ONNX and Caffe dumpers leave a short row open
    size, lines = format_size(4 * count), SHAPED % count
    head = b"isFloat: 1\n"
    assert printed(values, text_dump.SIM, tmp_path) == head + LINES + b"\n" + ended + b"\n};\n"
    assert printed(values, replace(text_dump.SIM, blank=False), tmp_path) == head + LINES + ended + b"\n};\n"
    assert printed(values, text_dump.FRAMEWORK, tmp_path) == head + lines + size + b"\n" + rows + b"\n}\n"
    assert printed(values, text_dump.LAYER, tmp_path) == lines + size + b"\n" + rows + b"\n}\n"
    assert printed(values, text_dump.TFLITE, tmp_path) == head + lines + size + ended + b"};\n"


def test_values_beyond_a_chunk_are_all_printed(tmp_path):
    values = np.arange(text_dump.CHUNK + 5, dtype=F32)
    for variant in (text_dump.SIM, text_dump.TFLITE):
        printed(values, variant, tmp_path)
        np.testing.assert_array_equal(open_dump(tmp_path / "x")["x"].raw(), values)


def test_integers_are_printed_as_their_bytes(tmp_path):
    variant = replace(text_dump.SIM, is_float=False)
    data = printed(np.array([-2, 258], I16), variant, tmp_path, quant=Quant(I16, 0.5))
    assert data.endswith(b"ADD = {\n\n   254,    255,      2,      1, \n\n};\n") and data.startswith(b"isFloat: 0\n")
    assert open_dump(tmp_path / "x")["x"].raw().tolist() == [-2, 258]


def test_the_sign_of_nan_is_the_simulators(tmp_path):
    values = np.array([np.nan, -np.nan, 1, -np.inf], F32)
    values[0], values[1] = np.copysign(np.float32(np.nan), 1), np.copysign(np.float32(np.nan), -1)
    assert b"\nnan, -nan, 1.000000, -inf, \n" in printed(values, text_dump.SIM, tmp_path)
    signs = np.signbit(open_dump(tmp_path / "x")["x"].raw())
    assert signs.tolist() == [False, True, False, True]
    assert b"\nnan, nan, 1.000000, -inf, " in printed(values, text_dump.FRAMEWORK, tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"1.000000, x, \n};\n", "are not all numbers"),
        (b"1.000000, 2.000000 3.000000, \n};\n", "are not all numbers"),
        (b"1.000000, , 2.000000, \n};\n", "are not all numbers"),
        (b"1.000000, 2.000000, 3.000000, \n};\n", "has 3 values, but its header declares 8 bytes"),
        (b"1.000000, \n};\n", "has 1 values, but its header declares 8 bytes"),
    ],
)
def test_values_that_do_not_fit_their_header(tmp_path, rows, message):
    (tmp_path / "x").write_bytes(b"isFloat: 1\n" + LINES + format_size(8) + rows)
    with pytest.raises(FormatError, match=message):
        open_dump(tmp_path / "x")["x"].raw()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"   256,      0, \n", "is not printed as bytes of int16"),
        (b"    -1,      0, \n", "is not printed as bytes of int16"),
        (b"     1, \n", "is not printed as bytes of int16"),
        (b"", "the string dump has no values"),
        (b"   255,      0, \n", None),
        (b"     0,    255, \n", None),
    ],
)
def test_bytes_of_an_integer_dump(tmp_path, rows, message):
    lines = LINES.replace(b"float", b"SGS_S16", 1)
    (tmp_path / "x").write_bytes(b"isFloat: 0\n" + lines + b"\n" + rows + b"\n};\n")
    tensor = open_dump(tmp_path / "x")["x"]
    if message is None:
        assert tensor.raw().dtype == I16 and tensor.raw().size == 1
        return
    with pytest.raises((FormatError, ValuesError), match=message):
        tensor.raw()


def test_an_empty_shape_has_no_values_to_leave_out(tmp_path):
    lines = LINES.replace(b"float", b"SGS_S16", 1).replace(b":0\n", b":0 shape:[0, 3] dims:2\n", 1)
    (tmp_path / "x").write_bytes(b"isFloat: 0\n" + lines + b"\n\n};\n")
    assert open_dump(tmp_path / "x")["x"].stored().shape == (0, 3)
    empty = plain_record(np.zeros((0, 3), I16), quant=Quant(I16, 0.5))
    unshaped = replace(text_dump.SIM, is_float=False)
    said = "is empty and is read back as a tensor with missing values"
    assert [loss.what for loss in text_dump.loses([empty], unshaped)][-1] == said
    assert said not in [loss.what for loss in text_dump.loses([empty], replace(unshaped, shaped=True))]
    full = plain_record(np.zeros((1, 3), I16), quant=Quant(I16, 0.5))
    assert said not in [loss.what for loss in text_dump.loses([full], unshaped)]
    assert "is printed with six decimals" in [
        loss.what for loss in text_dump.loses([plain_record(np.ones(1, F32))], None)
    ]


def test_a_file_without_a_head_is_nchw_only_in_a_folder_of_that_name(tmp_path):
    for name, layout in (("NCHW", "NCHW"), ("NHWC", "NHWC"), ("other", "NHWC")):
        (tmp_path / name).mkdir()
        values = np.zeros((1, 2, 3, 4), F32)
        text_dump.write(
            [plain_record(values, layout=layout)], tmp_path / name / "x", replace(text_dump.LAYER, layout=layout)
        )
        dump = open_dump(tmp_path / name / "x")
        assert dump["x"].info.layout == layout and not dump.variant.head and dump.variant.layout == layout
    text_dump.write([plain_record(values)], tmp_path / "NCHW" / "y", text_dump.FRAMEWORK)
    assert open_dump(tmp_path / "NCHW" / "y")["x"].info.layout == "NHWC"  # a head line: the file of all tensors


def test_a_first_tensor_that_was_left_out_comes_back(tmp_path):
    lines = LINES.replace(b"float", b"SGS_S32", 1)
    rows = b"     1,      0,      0,      0, \n"
    data = b"isFloat: 0\n" + lines + b"\n\n};\n" + lines + b"\n" + rows + b"\n};\n"
    (tmp_path / "x").write_bytes(data)
    dump = open_dump(tmp_path / "x")
    assert dump.variant.blank
    text_dump.write(dump.records, tmp_path / "y", dump.variant)
    assert (tmp_path / "y").read_bytes() == data


def test_kinds_of_record_do_not_mix(tmp_path):
    one = LINES + b"1.000000, \n\n};\n"
    other = LINES + format_size(4) + b"1.000000, \n};\n"
    (tmp_path / "x").write_bytes(b"isFloat: 1\n" + one + other)
    with pytest.raises(
        FormatError,
        match=r"record 1 'x' at byte \d+ has the form 'tflite', but the earlier records have the form 'sim'",
    ):
        text_dump.read(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"isFloat: 1\n" + one + LINES + b"1.000000, \n}")
    with pytest.raises(FormatError, match=r"record 1 'x' at byte \d+ has no end"):
        text_dump.read(tmp_path / "x")


RECORD = (
    b"//out 0 s: 0.000000 z: 0 type: float name: x bConstant:0\nop_out[0] ADD = {\n"
    b"//buffer data size: 4\n\n1.000000, \n"
)


@pytest.mark.parametrize("mark", [b"", b"}", b"} ", b"};", b"}a\n", b"}~\n", b"}\t\n", b"};;\n"])
def test_another_mark_is_no_end(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "whole.txt").write_bytes(RECORD + b"}\n")
    assert open_dump(tmp_path / "whole.txt")["x"].real().tolist() == [1.0]
    (tmp_path / "bad.txt").write_bytes(RECORD + b"}\n" + RECORD + mark)
    with pytest.raises(FormatError, match=r"bad\.txt: record 1 'x' at byte \d+ has no end"):
        open_dump(tmp_path / "bad.txt")
