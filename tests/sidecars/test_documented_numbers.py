"""The limits, defaults and rules that the docstrings of the side files state, a row each."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest

from sgsdump.errors import ConfigError, FormatError, OutputError, ValuesError
from sgsdump.sidecars import (
    debug_config,
    ini,
    input_config,
    input_text,
    parse_net,
    quant_param,
    tensor_chn,
    tensor_weight,
)
from sgsdump.sidecars.input_config import ModelInput, with_tensor_arrays
from sgsdump.sidecars.quant_param_entries import QuantParam
from sgsdump.sidecars.tensor_min_max import read_ranges, write_ranges
from sgsdump.sidecars.tensor_weight import ConvolutionWeights
from sgsdump.tensors.types import Range


@pytest.fixture
def stored(tmp_path):
    def store(content, name="file"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return store


# -- the INI dialect ---------------------------------------------------------------------------------------------------

KNOWN = {"A": ["one", "two"], "B": ["three"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("one = x", "x"),
        ("one=x;", "x"),
        ("ONE = x ; a comment", "x"),
        ("one='x;y'; why", "x;y"),
        ('one = "x" ;', "x"),
        ("one = it's;", "its"),
        ("one = ;", ""),
        ("one =", ""),
        ("one = a,\n  b,\n\tc; d", "a,b,c"),
        ("one = a,\n\n  ; a comment\n# another\n  b;", "a,b"),
        ("one = a;\ntwo = b", "a"),
        ("one = a\n  two = b", "a"),  # a line with = is a key, indented or not
    ],
)
def test_values_of_an_ini(stored, text, value):
    sections = ini.read_sections(stored("[A] ; the first\n" + text + "\n"), KNOWN)
    assert sections["A"]["one"].text == value
    assert sections["A"]["one"].where.endswith(":2: one")


def test_sections_are_kept_apart_and_values_are_lists(stored):
    path = stored(b"\xef\xbb\xbf# c\n[ A ]\none=a, b ,c\n[B] # d\nthree=1;\n")
    sections = ini.read_sections(path, KNOWN)
    assert sections["A"]["one"].items() == ["a", "b", "c"] and sections["B"]["three"].text == "1"
    assert sections["B"]["three"].where == f"{path}:5: three"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[A]\none=a,\nb;\n", ":3: 'b;' is neither a .section. nor key = value"),  # not indented
        ("[A]\none=a;\n  b;\n", ":3: 'b;' is neither"),  # ended by its ;
        ("[A]\none=a,\n[B]\n  b;\n", ":4: 'b;' is neither"),
        ("[A]\none=a\nONE=b\n", ":3: the key one stands in .A. twice"),
        ("[A]\n[B]\n[A]\n", ":3: the section .A. stands in the file twice"),
        ("[A]\nthree=1\n", ":2: unknown key 'three' in .A."),
        ("x\n", ":1: 'x' stands before any section; begin with .A."),
        ("[A]\n[" + "C" * 90 + "]\n", r":2: unknown section \[C{80}\]"),
    ],
)
def test_lines_that_are_neither(stored, text, message):
    with pytest.raises(ConfigError, match=message):
        ini.read_sections(stored(text), KNOWN)


def test_an_ini_of_a_mebibyte_is_the_largest(stored):
    text = b"[A]\n" + b";" * (2**20 - 5) + b"\n"
    assert len(text) == 2**20 and ini.read_sections(stored(text), KNOWN) == {"A": {}}
    with pytest.raises(ConfigError):
        ini.read_sections(stored(text + b"\n"), KNOWN)


# -- input_config.ini --------------------------------------------------------------------------------------------------


def config(*formats, **keys):
    names = ",".join("abcdefgh"[: len(formats)])
    trained, given = (",".join(one) for one in zip(*formats))
    lines = [f"inputs={names};", f"training_input_formats={trained};", f"input_formats={given};"]
    sections = {key: value for key, value in keys.items() if key.isupper()}
    lines += [f"{key}={value};" for key, value in keys.items() if key not in sections]
    lines += [f"[{name}]\n{body}" for name, body in sections.items()]
    return "[INPUT_CONFIG]\n" + "\n".join(lines) + "\n"


RGB, RAW, S16 = ("RGB", "RGB"), ("RAWDATA_F32_NHWC",) * 2, ("RAWDATA_S16_NHWC",) * 2


@pytest.mark.parametrize("given", ["RGB", "RGBA", "BGR", "BGRA", "YUV_NV12", "GRAY"])
@pytest.mark.parametrize("trained", ["RGB", "BGR", "GRAY"])
def test_which_formats_go_together(stored, trained, given):
    mixed = {trained[:3], given[:3]} == {"RGB", "BGR"}
    if mixed:
        with pytest.raises(ConfigError, match=f"is {given} but trained as {trained}; RGB and BGR cannot be mixed"):
            input_config.read(stored(config((trained, given))))
        return
    (found,) = input_config.read(stored(config((trained, given)))).inputs
    assert (found.training_format, found.input_format, found.is_picture) == (trained, given, True)
    alignment = 2 if given == "YUV_NV12" else 1
    assert (found.width_alignment, found.height_alignment) == (alignment, alignment)


@pytest.mark.parametrize("trained", ["RGB", "RAWDATA_S16_NHWC", "RAWDATA_F32_NHWC"])
@pytest.mark.parametrize("given", ["GRAY", "RAWDATA_S16_NHWC", "RAWDATA_F32_NHWC"])
def test_rawdata_needs_the_same_in_both(stored, trained, given):
    if trained != given and (trained, given) != ("RGB", "GRAY"):
        with pytest.raises(ConfigError, match="RAWDATA needs the same in both"):
            input_config.read(stored(config((trained, given))))
        return
    (found,) = input_config.read(stored(config((trained, given)))).inputs
    assert found.is_picture is (trained == "RGB")


def test_the_defaults_of_an_input_and_an_output(stored):
    found = input_config.read(stored(config(RGB, RAW, OUTPUT_CONFIG="outputs=x,y;")))
    picture, raw = found.inputs
    assert picture == ModelInput("a", "RGB", "RGB", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), "NHWC", True, 1, 1)
    assert raw == ModelInput("b", *RAW, (), (), "NHWC", True, 1, 1)
    assert [(out.name, out.dequantised, out.layout) for out in found.outputs] == [
        ("x", False, "NHWC"),
        ("y", False, "NHWC"),
    ]
    assert found.conv_format is None and found.tensor_arrays == ()
    assert input_config.read(stored(config(RGB))).outputs == ()
    assert ModelInput("a", "RGB", "RGB") == ModelInput("a", "RGB", "RGB", (0,) * 3, (1,) * 3, "NHWC", True, 1, 1)


@pytest.mark.parametrize(
    ("formats", "mean", "expected"),
    [
        ([RGB], "7", [(7, 7, 7)]),
        ([RGB], "1:2:3", [(1, 2, 3)]),
        ([RGB, RGB], "7", [(7, 7, 7)] * 2),
        ([RGB, RGB], "1:2:3", [(1, 2, 3)] * 2),
        ([RGB, RGB], "1,2", [(1, 1, 1), (2, 2, 2)]),
        ([RGB, RAW], "7", [(7, 7, 7), ()]),
        ([RAW, RGB], "7", [(), (7, 7, 7)]),
        ([RAW, RGB, RGB], "1,2", [(), (1, 1, 1), (2, 2, 2)]),  # one for each picture
        ([RGB, RAW, RGB], "1,,2", [(1, 1, 1), (), (2, 2, 2)]),  # one for each input, none for raw data
        ([RGB], "-1.5e1", [(-15, -15, -15)]),
        ([RAW], "", [()]),
    ],
)
def test_one_for_all_for_each_input_or_for_each_picture(stored, formats, mean, expected):
    found = input_config.read(stored(config(*formats, mean=mean)))
    assert [entry.mean for entry in found.inputs] == expected
    if "-" not in mean and mean:
        found = input_config.read(stored(config(*formats, std_value=mean)))
        assert [entry.std for entry in found.inputs] == expected


@pytest.mark.parametrize(
    ("formats", "keys", "message"),
    [
        ([RGB, RAW], {"mean": "1,2"}, "'2' is for a RAWDATA input, which takes no mean"),
        ([RGB, RAW, RGB], {"mean": "1,2,3"}, "'2' is for a RAWDATA input"),
        ([RGB, RGB], {"mean": "1,2,3"}, "has 3 values for 2 inputs; give one for each"),
        ([RAW], {"std_value": "1"}, "RAWDATA inputs take no mean and no std_value; remove the line"),
        ([RAW, S16], {"mean": ",1"}, "RAWDATA inputs take no mean"),
        ([RGB], {"mean": "1:2:3:4"}, "'1:2:3:4' has 4 numbers; give one, or red:green:blue"),
        ([RGB], {"mean": "inf"}, "not a finite number"),
        ([RGB], {"std_value": "-1"}, "std must be above 0"),
        ([RGB], {"std_value": "1:0:1"}, "std must be above 0"),
        ([RGB], {"mean_red": "1", "mean_green": "1"}, "has mean_red but no mean_blue"),
        ([RGB], {"mean_green": "1", "mean_blue": "1"}, "has mean_green but no mean_red"),
        ([RGB], {"mean_blue": "1", "mean": "2"}, "mean_blue are both given"),
        ([RGB, RGB], {"quantizations": "TRUE"}, "has 1 values for 2 inputs"),
        ([RGB], {"quantizations": "true"}, "unknown value 'true'; choose one of: TRUE, FALSE"),
        ([RGB], {"input_layouts": "NHWC,NCHW"}, "has 2 values for 1 inputs"),
        ([RGB], {"input_width_alignment": "1,2"}, "has 2 values for 1 inputs"),
        ([RGB], {"input_width_alignment": "1234567890"}, "'1234567890' is not a whole number above 0"),
        ([RGB], {"input_height_alignment": "01"}, "'01' is not a whole number above 0"),
        ([RGB], {"input_height_alignment": "-1"}, "not a whole number above 0"),
        ([RGB], {"OUTPUT_CONFIG": "outputs=x;\noutput_layouts=NHWC,NCHW;"}, "has 2 values for 1 outputs"),
        ([RGB], {"OUTPUT_CONFIG": "outputs=x,,y;"}, "a name is empty"),
        ([RGB], {"OUTPUT_CONFIG": "outputs=y,x,y;"}, "'y' stands in the list twice"),
        ([RGB], {"CONV_CONFIG": "tensor_arrays=a,a;"}, "'a' stands in the list twice"),
        ([RGB], {"CONV_CONFIG": "input_format=;"}, "unknown value ''; choose one of: ALL_UINT8, ALL_INT16"),
    ],
)
def test_what_does_not_fit_is_said(stored, formats, keys, message):
    with pytest.raises(ConfigError, match=message):
        input_config.read(stored(config(*formats, **keys)))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"input_width_alignment": "16"}, [(16, 2), (16, 1)]),
        ({"input_height_alignment": "4,8"}, [(2, 4), (1, 8)]),
        ({"input_width_alignment": "123456789"}, [(123456789, 2), (123456789, 1)]),
    ],
)
def test_alignments_of_two_inputs(stored, keys, expected):
    found = input_config.read(stored(config(("RGB", "YUV_NV12"), RGB, **keys))).inputs
    assert [(entry.width_alignment, entry.height_alignment) for entry in found] == expected


def test_a_comma_at_the_end_of_a_list_is_no_value(stored):
    text = config(RGB, RGB, input_layouts="NCHW,NHWC,", quantizations="FALSE,TRUE,", OUTPUT_CONFIG="outputs=x,;")
    found = input_config.read(stored(text.replace("inputs=a,b;", "inputs=a,b,;")))
    assert [(entry.name, entry.layout, entry.quantised) for entry in found.inputs] == [
        ("a", "NCHW", False),
        ("b", "NHWC", True),
    ]
    assert [out.name for out in found.outputs] == ["x"]


def test_names_take_1024_characters_together(stored):
    text = "[INPUT_CONFIG]\ninputs={};\ntraining_input_formats=RGB;\ninput_formats=RGB;\n"
    assert input_config.read(stored(text.format("x" * 1024))).inputs[0].name == "x" * 1024
    with pytest.raises(ConfigError, match="more than 1024 characters"):
        input_config.read(stored(text.format("x" * 1025)))


@pytest.mark.parametrize("word", input_config.CONV_FORMATS)
def test_formats_of_convolutions(stored, word):
    found = input_config.read(stored(config(RGB, CONV_CONFIG=f"input_format='{word}';\ntensor_arrays=;")))
    assert found.conv_format == word and found.tensor_arrays == ()


def test_colours_of_several_pictures(stored):
    found = input_config.read(stored(config(RGB, RAW, RGB, mean_red="1,2", mean_green="3", mean_blue="4,5")))
    assert [entry.mean for entry in found.inputs] == [(1, 3, 4), (), (2, 3, 5)]


# -- DebugConfig.txt ---------------------------------------------------------------------------------------------------


@pytest.fixture
def debug(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    def write(text):
        (tmp_path / "DebugConfig.txt").write_bytes(text.encode())
        return tmp_path

    return write


@pytest.mark.parametrize("word", debug_config.FLAGS)
def test_each_word_is_one_flag(debug, word):
    found = debug_config.read(debug(f"{word}\npath=.\n"))
    assert [getattr(found, field) for field in debug_config.FLAGS.values()] == [
        one == word for one in debug_config.FLAGS
    ]


@pytest.mark.parametrize(
    "rest", ["=0", " 0", ":0", " off", "=OFF", "=False", " no", " none", "=disable", " = 0", "=0;", " off # x"]
)
def test_what_says_the_opposite_is_refused(debug, rest):
    with pytest.raises(ConfigError, match=r":1: .* the SDK takes this as dumpasstring on; .* write #dumpasstring"):
        debug_config.read(debug(f"dumpasstring{rest}\n"))


@pytest.mark.parametrize(
    "rest", ["=1", " on", "0", "off", "=00", " offline", " nothing", " # off", "; ", " // path=x", " ;dumpTensor"]
)
def test_anything_else_may_follow_a_word(debug, rest):
    assert debug_config.read(debug(f"dumpasstring{rest}\n")).dump_as_string


@pytest.mark.parametrize("rest", ["=0", " off", " path=x", " dumpTensor", "=all"])
def test_after_a_word_of_the_newer_sdk_anything_may_follow(debug, rest):
    found = debug_config.read(debug(f"passexport{rest}\n"))
    assert found.ignored == ("passexport",) and not found.dump_tensor


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dumpTensor\npath:x\n", ":2: 'path:x': the SDK ignores this; write path=FOLDER without blanks around ="),
        ("Path = x\n", "write path=FOLDER"),
        ("pathology\n", "unknown option 'pathology'"),
        ("dumptensor=1\n", "case-sensitive; write dumpTensor"),
        ("PASSEXPORT\n", "case-sensitive; write passexport"),
        (" passexport\n", "after blanks"),
        ("=x\n", "unknown option '=x'"),
        ("# one\n\npath=a\ndumpTensor\npath=b\n# end\n", ":5: there is no folder 'b'; make it first"),
        ("dumpTensor\npath=$HOME/x\n", r"taken literally"),
        ("dumpTensor\npath='x'\n", r"taken literally"),
        ("path=" + "ü" * 61 + "\n", "the path has 122 characters, the SDK reads 121"),
        ("path=\tx\n", "blanks around the path"),
        ("dumpTensor\ndequantFixed\n", "add the line eliminateGarbage"),
    ],
)
def test_where_and_what_is_wrong(debug, text, message):
    with pytest.raises(ConfigError, match=message):
        debug_config.read(debug(text))


def test_what_the_sdk_would_take_is_taken(debug):
    assert debug_config.read(debug("path=" + "ü" * 60 + "\n")).path.name == "ü" * 60
    assert debug_config.read(debug("dumpTensor\ndequantFixed\neliminateGarbage\n")).dequant_fixed
    assert debug_config.read(debug("eliminateGarbage\n")).path == debug("")
    found = debug_config.read(debug("dumpTensor\r\n#\r\neliminateGarbage\r\n"))
    assert found.dump_tensor and found.eliminate_garbage
    assert debug_config.DebugConfig() == debug_config.DebugConfig(*[False] * 6)


def test_a_debug_config_of_a_mebibyte_is_the_largest(debug):
    text = "dumpTensor\n#" + "x" * (2**20 - 12)
    assert len(text) == 2**20 and debug_config.read(debug(text)).dump_tensor
    with pytest.raises(ConfigError):
        debug_config.read(debug(text + "x"))


def test_without_a_home_nothing_is_needed_unless_dumped(debug, monkeypatch):
    monkeypatch.delenv("HOME")
    assert debug_config.read(debug("eliminateGarbage\n")).eliminate_garbage
    assert debug_config.read(debug("dumpTensor\npath=.\n")).dump_tensor


def test_dumps_are_numbered_only_where_they_would_be_overwritten(tmp_path):
    config = debug_config.DebugConfig(path=tmp_path, do_not_recover=True)
    (tmp_path / "x_1.bin").touch()
    assert debug_config.dump_path(config, "x.bin").name == "x.bin"
    (tmp_path / "x.bin").touch()
    assert debug_config.dump_path(config, "x.bin").name == "x_2.bin"
    assert debug_config.dump_path(debug_config.DebugConfig(path=tmp_path), "x.bin").name == "x.bin"


# -- preprocessed input ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "values", "dtype"),
    [
        ("1, 2, ", [1, 2], "i4"),
        ("1,2", [1, 2], "i4"),
        ("-3, +4, ", [-3, 4], "i4"),
        ("2147483647, -2147483647, ", [2**31 - 1, 1 - 2**31], "i4"),
        ("1., 2, ", [1, 2], "f4"),
        ("1e3, ", [1000], "f4"),
        ("1E3, ", [1000], "f4"),
        ("0.1, \n0.2, \r\n", [np.float32(0.1), np.float32(0.2)], "f4"),
        ("inf, -inf, ", [math.inf, -math.inf], "f4"),
        ("1e39, ", [math.inf], "f4"),
        ("2147483648., ", [2**31], "f4"),
    ],
)
def test_whole_numbers_and_floats(stored, body, values, dtype):
    found = input_text.read(stored(f"Input_shape=3, 4\n{body}"))
    assert (found.height, found.width, found.values.dtype) == (3, 4, np.dtype(dtype))
    assert found.values.tolist() == values


def test_nan_is_a_float(stored):
    for word in ("nan", "NaN"):
        assert np.isnan(input_text.read(stored(f"Input_shape=3, 4\n1, {word}, ")).values).tolist() == [False, True]


@pytest.mark.parametrize(
    "head", ["Input_shape=3, 4", "Input_shape=3,4,", "Input_shape= 3 , 4 , ", "Input_shape=123456789, 1\r"]
)
def test_first_lines(stored, head):
    assert input_text.read(stored(head + "\n1")).values.tolist() == [1]
    assert input_text.is_input_text(stored(head))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Input_shape=1234567890, 1\n1", "is not 'Input_shape=H, W'"),
        ("Input_shape=1, 2, 3\n1", "is not 'Input_shape=H, W'"),
        ("input_shape=1, 2\n1", "is not 'Input_shape=H, W'"),
        ("Input_shape=1, 2\n, 1", "nothing between two commas"),
        ("Input_shape=1, 2\n1,,2", "nothing between two commas"),
        ("Input_shape=1, 2\n1, 2,\n,", "nothing between two commas"),
        ("Input_shape=1, 2\n-2147483648, 1, ", "beyond 32 bits"),
        ("Input_shape=1, 2\n1 2", "not numbers"),
        ("Input_shape=1, 2\n1\t2", "something other than numbers"),
    ],
)
def test_texts_of_another_form(stored, text, message):
    with pytest.raises(FormatError, match=message):
        input_text.read(stored(text))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.arange(16, dtype=np.uint8), "Input_shape=5, 6\n" + "".join(f"{n}, " for n in range(16)) + "\n"),
        (
            np.arange(33, dtype=np.int16),
            "Input_shape=5, 6\n"
            + "".join("".join(f"{n}, " for n in range(start, min(start + 16, 33))) + "\n" for start in (0, 16, 32)),
        ),
        (np.array([[0.1, -2]]), "Input_shape=5, 6\n0.10000000149011612, -2.0, \n"),
        (np.array([0.1], np.float32), "Input_shape=5, 6\n0.10000000149011612, \n"),
        (np.array([]), "Input_shape=5, 6\n"),
        (np.asfortranarray([[1, 2], [3, 4]]), "Input_shape=5, 6\n1, 2, 3, 4, \n"),
    ],
)
def test_sixteen_to_a_row_in_full_digits(tmp_path, values, text):
    input_text.write(tmp_path / "x", values, 5, 6)
    assert (tmp_path / "x").read_text() == text


def test_a_folder_is_no_input_text(tmp_path):
    assert not input_text.is_input_text(tmp_path)
    (tmp_path / "x").write_bytes(b"Input_shap")
    assert not input_text.is_input_text(tmp_path / "x")


# -- parse_net ---------------------------------------------------------------------------------------------------------


def net_line(
    name="x", kind="UINT8", shape="1 5 6 7", numbers=("1.5", "-0.5", "0.007843", "64"), ddr="IPU_U8_NHWC", rank=None
):
    high, low, scale, zero = numbers
    rank = len(shape.split()) if rank is None else rank
    return (
        f"|   |--> Tensor[ 2] type(3):{kind} buffer: 12  (const buffer: 0      size: 10 : buf: 0x1) bVar: 32 "
        f"shape(len:{rank}  {shape}  ) Quant:{{Max: {high}, Min: {low}, Scaler: {scale}, "
        f"zeroP: {zero}}} ddr_type: {ddr} name({name}) EvrId(3) ExtFlag(16)"
    )


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *(("UINT8", "u1"), ("INT8", "i1"), ("UINT16", "u2"), ("INT16", "i2"), ("INT32", "i4"), ("INT64", "i8")),
        *(("FLOAT32", "f4"), ("BOOL", None)),
    ],
)
def test_words_for_types(stored, kind, dtype):
    tensor = parse_net.read(stored(net_line(kind=kind))).tensors["x"]
    assert tensor.type_name == kind and tensor.dtype == (None if dtype is None else np.dtype(dtype))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("1.500000", 1.5), ("-0.500000", -0.5), ("12", 12.0), ("na", None), ("-7", -7.0), (" 3.000000 ", 3.0)),
        ("1.5000002.500000", None),  # per channel, nothing between them
        ("1.5", None),
        ("1" * 39, float("1" * 39)),
        ("1" * 40, None),
    ],
)
def test_numbers_have_six_decimals_or_none(stored, text, number):
    tensor = parse_net.read(stored(net_line(numbers=(text, text, text, "3")))).tensors["x"]
    assert (tensor.low, tensor.high, tensor.scale, tensor.zero_point) == (number, number, number, 3)


def test_each_number_in_its_place(stored):
    tensor = parse_net.read(stored(net_line(numbers=("4.000000", "-3.000000", "0.250000", "na")))).tensors["x"]
    assert (tensor.high, tensor.low, tensor.scale, tensor.zero_point) == (4.0, -3.0, 0.25, None)
    assert tensor.shape == (1, 5, 6, 7) and parse_net.read(stored(net_line(shape=""))).tensors["x"].shape == ()


@pytest.mark.parametrize(
    ("ddr", "order"), [("IPU_S16_NHWX", "NHWX"), ("RGB", "RGB"), ("IPU_K_KB", "KB"), ("A_B_C", "C")]
)
def test_the_order_is_the_last_word(stored, ddr, order):
    tensor = parse_net.read(stored(net_line(ddr=ddr))).tensors["x"]
    assert (tensor.ddr_type, tensor.order) == (ddr, order)


def test_the_longest_line_and_the_ranks(stored):
    one = net_line("a")
    longest = "|" * (65536 - len(one)) + one
    lines = [longest, "|" + longest.replace("(a)", "(b)"), net_line("c", rank=3), net_line("d", rank=5), net_line("e")]
    assert list(parse_net.read(stored("\n".join(lines))).tensors) == ["a", "e"]


# -- quant_param and tensor_min_max ------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_is_no_content(stored, start):
    entries = json.dumps([{"name": "a", "min": 0, "max": [1.5], "bit": 16}]).encode()
    (found,) = quant_param.read(stored(start + entries))
    assert (found.name, found.bit, found.range.bit, found.range.low, found.range.high, found.data) == (
        "a",
        16,
        16,
        0,
        1.5,
        None,
    )
    assert read_ranges(stored(start + b" \n" + entries))["a"].high == 1.5
    assert (
        read_ranges(stored(start + b"\n Name:a, min: 0.0, max: 1.5;\n".replace(b"\n Name", b"Name")))["a"].high == 1.5
    )


def test_entries_may_lack_a_range_and_the_ends_may_be_equal(stored):
    entries = [{"name": "a", "min": [], "max": [], "bit": 8}, {"name": "b", "min": [1], "max": [1]}]
    first, second = quant_param.read(stored(json.dumps(entries)))
    assert first.range is None and first.bit == 8
    assert (second.range.low, second.range.high, second.bit) == (1, 1, None)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "n" * 90, "min": [1], "max": [0]}, r"quant_param\[1\]: n{80}: the range of"),
        ({"name": "x", "min": [0, 2], "max": [1, 1]}, "min above its max"),
        ({"name": "x", "min": [0, 1], "max": [1, math.nan]}, "NaN or infinite"),
        ({"name": "x", "min": [-math.inf], "max": [1]}, "NaN or infinite"),
        ({"name": "x", "min": [True], "max": [1]}, r"min of quant_param\[1\]: x must be a `list` of numbers"),
        ({"name": "x", "max": [1]}, "min of .* must be a `list`"),
        ({"name": "x", "min": [0], "max": [1], "bit": True}, "must be `int`"),
    ],
)
def test_the_entry_is_named(stored, entry, message):
    with pytest.raises(FormatError, match=message):
        quant_param.read(stored(json.dumps([{"name": "a", "min": [0], "max": [1]}, entry])))


def test_arrays_and_numbers_of_pickles(stored):
    entries = [{"name": "a", "min": np.array([[0.5, 1]], np.float32), "max": np.array(2, np.int8), "bit": 8}]
    with pytest.raises(FormatError, match="has 2 values, max has 1"):
        quant_param.read(stored(pickle.dumps(entries, 2)))
    entries[0]["max"] = np.array([2, 3], np.int8)
    (found,) = quant_param.read(stored(pickle.dumps(entries, 2)))
    assert found.range.min.tolist() == [0.5, 1] and found.range.max.tolist() == [2, 3]
    assert found.range.min.dtype == found.range.max.dtype == np.float64


def test_what_is_written_has_the_keys_in_order_and_a_bit_only_where_known(tmp_path):
    params = [QuantParam("a", Range.of(-1, 2), None), QuantParam("b", Range.of(0, 1, 16), 16)]
    quant_param.write(params, tmp_path / "x")
    assert json.loads((tmp_path / "x").read_text()) == [
        {"name": "a", "min": [-1.0], "max": [2.0]},
        {"name": "b", "min": [0.0], "max": [1.0], "bit": 16},
    ]
    assert (
        (tmp_path / "x").read_text().startswith('[\n    {\n        "name": "a",\n        "min": [\n            -1.0\n')
    )
    quant_param.write(params, tmp_path / "y", "pickle")
    assert (tmp_path / "y").read_bytes()[:2] == b"\x80\x03"


@pytest.mark.parametrize(
    ("numbers", "ends"),
    [
        ("min: -4.527316, max: 4.386048;", (-4.527316, 4.386048)),
        ("min: 0, max: 1;", (0, 1)),
        ("min: +1., max: 1e3;", (1, 1000)),
        ("min: -1E-3, max: 2.5e+2;", (-0.001, 250)),
        ("min: 1.0, max: 1.0;", (1, 1)),
        ("min: 0.0, max: 1.0;\r", (0, 1)),
        ("min: 0.0, max: 1.0;  ", (0, 1)),
    ],
)
def test_lines_of_ranges(stored, numbers, ends):
    found = read_ranges(stored(f"Name:a b, min: 3, {numbers}\n\n  \n"))
    assert [(name, one.low, one.high, one.bit) for name, one in found.items()] == [("a b, min: 3", *ends, None)]


@pytest.mark.parametrize(
    "line",
    [
        "Name:a, min: .5, max: 1;",
        "Name:a, min: 0, max: 1",
        "Name:a, min: 0x1, max: 1;",
        "Name:a, min: 0 max: 1;",
        "Nam:a",
    ],
)
def test_lines_of_another_form(stored, line):
    with pytest.raises(FormatError, match=r":2: .* is not 'Name:x, min: a, max: b;'"):
        read_ranges(stored("Name:x, min: 0, max: 1;\n" + line))


def test_the_same_range_may_stand_twice_but_not_another(stored):
    one, other = ({"name": "a", "min": [0], "max": [top], "bit": 8} for top in (1, 2))
    assert list(read_ranges(stored(json.dumps([one, one])))) == ["a"]
    with pytest.raises(
        FormatError, match=r"quant_param\[1\]: a: the tensor 'a' stands in the file twice, with different"
    ):
        read_ranges(stored(json.dumps([one, other])))
    with pytest.raises(FormatError, match="with different ranges"):
        read_ranges(stored(json.dumps([one, {**one, "bit": 16}])))


@pytest.mark.parametrize("place", [0, 4095])
def test_a_zero_byte_at_the_beginning_makes_a_binary_file(stored, place):
    text = bytearray(b"Name:" + b"n" * 6000 + b", min: 0, max: 1;\n")
    text[5 + place - 5 * (place > 0)] = 0
    with pytest.raises(FormatError, match="is a binary file"):
        read_ranges(stored(bytes(text)))


def test_what_text_and_json_cannot_hold(tmp_path):
    for name in ("a\nb", "a\rb"):
        with pytest.raises(ValuesError, match="line end"):
            write_ranges({name: Range.of(0, 1)}, tmp_path / "x")
    for ends in ((0, math.inf), (-math.inf, 0), (0, math.nan)):
        with pytest.raises(ValuesError, match="the model computes NaN or Inf"):
            write_ranges({"x": Range.of(*ends)}, tmp_path / "x", "json")
    with pytest.raises(OutputError):
        quant_param.write([], tmp_path / "no" / "x")
    assert not list(tmp_path.iterdir())


def test_json_ends_in_a_newline_with_an_indent_of_four(tmp_path):
    write_ranges({"a": Range.of(0, 1, 8)}, tmp_path / "x", "json")
    text = (tmp_path / "x").read_text()
    assert text == json.dumps([{"name": "a", "min": [0.0], "max": [1.0], "bit": 8}], indent=4) + "\n"


# -- tensor_chn and tensor_weight --------------------------------------------------------------------------------------


def test_two_lines_for_every_tensor(tmp_path):
    channels = {"conv1": Range(np.array([-2.9137561, 0.0]), np.array([2.5, 1 / 3])), "ü\udcff": Range.of(0, 1)}
    tensor_chn.write(channels, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == (
        b"Name:conv1, 2\nmin_chn: -2.913756, 0.000000, max_chn: 2.500000, 0.333333;\n"
        b"Name:\xc3\xbc\xff, 1\nmin_chn: 0.000000, max_chn: 1.000000;\n"
    )


def convolution(**changes):
    data = np.array([0.67621, -0.25], np.float32).reshape(2, 1, 1, 1)
    ends = Range(np.array([0.0, -0.25]), np.array([0.67621, 0.0]))
    facts = {"input": "data", "name": "conv1_filter", "operator": "CONV_2D", "data": data, "range": ends}
    return ConvolutionWeights(**{**facts, "types": ("UINT8", "INT8"), "allowed_bits": (8, 16), **changes})


def test_weights_as_the_sdk_lists_them(tmp_path):
    assert not convolution().changed
    tensor_weight.write([convolution(), convolution(changed=True)], tmp_path / "x", with_ranges=False)
    first = (
        "Name:[data,conv1_filter],\n     Operator:CONV_2D,\n     shape:[2,1,1,1],\n     hasChanged:FALSE,\n"
        "     BitWidth:[UINT8,INT8],\n     min:[],\n     max:[],\n     AllowedBitWidth:[8,16],\n"
        "     data:[0.676210, -0.250000, ];\n"
    )
    assert (tmp_path / "x").read_text() == first + first.replace("FALSE", "TRUE")
    tensor_weight.write([convolution()], tmp_path / "y", with_ranges=True, with_data=False)
    assert (tmp_path / "y").read_text() == (
        "Name:[data,conv1_filter],\n     Operator:CONV_2D,\n     shape:[2,1,1,1],\n     hasChanged:FALSE,\n"
        "     BitWidth:[UINT8,INT8],\n     min:[0.000000, -0.250000],\n     max:[0.676210, 0.000000],\n     data:[];\n"
    )


def test_every_weight_is_written_once_whatever_their_number(tmp_path):
    for count in (0, 1, tensor_weight.CHUNK, tensor_weight.CHUNK + 3):
        data = np.arange(count, dtype=np.float32)
        tensor_weight.write([convolution(data=data)], tmp_path / "x", with_ranges=False)
        printed = (tmp_path / "x").read_text().partition("data:[")[2].removesuffix("];\n")
        assert [float(word) for word in printed.split(", ") if word] == data.tolist()


# -- other tensor_arrays in the same file ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "names", "after"),
    [
        (b"", ["a"], b"\n[CONV_CONFIG]\ntensor_arrays='a';\n"),
        (b"[X]", ["a"], b"[X]\n\n[CONV_CONFIG]\ntensor_arrays='a';\n"),
        (b"[X]\n", ["a", "b"], b"[X]\n\n[CONV_CONFIG]\ntensor_arrays='a,b';\n"),
        (b"[X]\r\n", ["a"], b"[X]\r\n\r\n[CONV_CONFIG]\r\ntensor_arrays='a';\r\n"),
        (b"[X]\r", ["a"], b"[X]\r\n[CONV_CONFIG]\ntensor_arrays='a';\n"),
        (b"[X]\n", [], b"[X]\n"),
        (b"[CONV_CONFIG]", ["a"], b"[CONV_CONFIG]\ntensor_arrays='a';\n"),
        (
            b"[CONV_CONFIG]\n[X]\ntensor_arrays=b;\n",
            ["a"],
            b"[CONV_CONFIG]\ntensor_arrays='a';\n[X]\ntensor_arrays=b;\n",
        ),
        (b"[X]\nk=1\n[ CONV_CONFIG ]\nk=2\n", ["a"], b"[X]\nk=1\n[ CONV_CONFIG ]\ntensor_arrays='a';\nk=2\n"),
        (b"[CONV_CONFIG]\nTensor_Arrays \t=  b ; c\nk=1\n", ["a"], b"[CONV_CONFIG]\nTensor_Arrays \t=  'a'; c\nk=1\n"),
        (b"[CONV_CONFIG]\ntensor_arrays=b,\n  c,\n\td; e\nk=1\n", ["a"], b"[CONV_CONFIG]\ntensor_arrays='a'; e\nk=1\n"),
        (b"[CONV_CONFIG]\ntensor_arrays=b,\n  c\n  k=1\n", ["a"], b"[CONV_CONFIG]\ntensor_arrays='a';\n  k=1\n"),
        (b"[CONV_CONFIG]\ntensor_arrays=b\n[X]\n", ["a"], b"[CONV_CONFIG]\ntensor_arrays='a';\n[X]\n"),
        (b"[CONV_CONFIG]\ntensor_arrays=b\nk=1\n", [], b"[CONV_CONFIG]\ntensor_arrays='';\nk=1\n"),
        (b"[CONV_CONFIG]\ntensor_arrays='b;c',\n  d; e\n", ["a"], b"[CONV_CONFIG]\ntensor_arrays='a'; e\n"),
        (b"\xef\xbb\xbf[CONV_CONFIG]\n", ["a"], b"\xef\xbb\xbf[CONV_CONFIG]\ntensor_arrays='a';\n"),
    ],
)
def test_nothing_but_the_list_changes(before, names, after):
    assert with_tensor_arrays(before, names) == after


@pytest.mark.parametrize("name", ["a,b", "a'b", 'a"b', "a\nb", "a\rb", " a", "a "])
def test_names_the_list_cannot_hold(name):
    with pytest.raises(ConfigError, match=r"input_config\.ini cannot name the tensor"):
        with_tensor_arrays(b"", ["x", name])
