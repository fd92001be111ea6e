"""input_config.ini: every key, every form, and one clear line for everything else."""

import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from sgsdump.errors import ConfigError
from sgsdump.sidecars.input_config import (
    CONV_FORMATS,
    InputConfig,
    ModelInput,
    ModelOutput,
    read,
    with_tensor_arrays,
)

PLAIN = "[INPUT_CONFIG]\ninputs=data;\ntraining_input_formats=RGB;\ninput_formats=RGB;\n"


@pytest.fixture
def parsed(stored):
    return lambda text: read(stored(text, "input_config.ini"))


def test_genuine_files(shared):
    folder = shared / "sigmastar/model"
    data = ModelInput("data", "RGB", "RGB", mean=(127.0,) * 3, std=(128.0,) * 3)
    outputs = (ModelOutput("prob", True), ModelOutput("cat", True))
    assert read(folder / "input_config.ini") == InputConfig((data,), outputs)
    assert read(folder / "input_config_all16.ini") == InputConfig((data,), outputs, conv_format="ALL_INT16")
    assert read(folder / "input_config_arr16.ini") == InputConfig((data,), outputs, tensor_arrays=("pool1", "block/dw"))


def test_shipped_file():
    config = read(Path(__file__).parents[2] / "cfg" / "input_config.ini")
    assert config.inputs[0] == ModelInput("data", "RGB", "RGB", mean=(127.0,) * 3, std=(128.0,) * 3)


def test_every_key(parsed):
    config = parsed(
        "; a comment\r\n[INPUT_CONFIG]\r\n"
        "inputs = 'left, right,raw' ; three\n"
        'training_input_formats = "RGB,GRAY,RAWDATA_F32_NHWC";\n'
        "input_formats=YUV_NV12,GRAY,RAWDATA_F32_NHWC\n"
        "quantizations=TRUE,FALSE,TRUE;\n"
        "mean=104.5:117:123,10;\n"
        "std_value=58.8;\n"
        "input_width_alignment=4,1,1;\n"
        "input_layouts=NHWC,NCHW,NHWC;\n"
        "[OUTPUT_CONFIG]\noutputs='a,b';\ndequantizations=TRUE,FALSE;\noutput_layouts=NHWC,NCHW;\n"
        "[CONV_CONFIG]\ninput_format='DEPTHWISE_INT16';\ntensor_arrays=conv1,\n    'conv 2',\n    conv3;\n"
    )
    left, right, raw = config.inputs
    assert left == ModelInput("left", "RGB", "YUV_NV12", (104.5, 117.0, 123.0), (58.8,) * 3, "NHWC", True, 4, 2)
    assert right == ModelInput("right", "GRAY", "GRAY", (10.0,) * 3, (58.8,) * 3, "NCHW", False, 1, 1)
    assert raw == ModelInput("raw", "RAWDATA_F32_NHWC", "RAWDATA_F32_NHWC", (), ())
    assert not raw.is_picture
    assert config.outputs == (ModelOutput("a", True, "NHWC"), ModelOutput("b", False, "NCHW"))
    assert config.conv_format == "DEPTHWISE_INT16"
    assert config.tensor_arrays == ("conv1", "conv 2", "conv3")


def test_means_by_colour(parsed):
    config = parsed(PLAIN + "mean_blue=3;\nmean_red=1;\nMean_Green=2;\nstd_value=4:5:6;\n")
    assert (config.inputs[0].mean, config.inputs[0].std) == ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))


def test_means_of_two_pictures(parsed):
    text = PLAIN.replace("data", "a,b").replace("=RGB", "=RGB,BGR")
    config = parsed(text + "mean=1:2:3,4:5:6\nstd_value=2,3\n")
    assert [entry.mean for entry in config.inputs] == [(1.0, 2.0, 3.0), (4.0, 5.0, 6.0)]
    assert [entry.std for entry in config.inputs] == [(2.0,) * 3, (3.0,) * 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no section .INPUT_CONFIG"),
        ("inputs=a\n", ":1: .*is not in a section"),
        ("[INPUT_CONFG]\n", "unknown section .INPUT_CONFG.; did you mean 'INPUT_CONFIG'"),
        (PLAIN + "[INPUT_CONFIG]\n", ":5: the section .* twice"),
        (PLAIN + "inputs=b\n", ":5: the key inputs .* twice"),
        (PLAIN + "std=1\n", ":5: unknown key 'std'"),
        (PLAIN + "std_valeu=1\n", "did you mean 'std_value'"),
        (PLAIN + "hello\n", ":5: 'hello' is neither"),
        ("[INPUT_CONFIG]\ntraining_input_formats=RGB\n", 'no key "inputs"'),
        ("[INPUT_CONFIG]\ninputs=a\ninput_formats=RGB\n", 'no key "training_input_formats"'),
        (PLAIN.replace("data", "a,b"), "has 1 values for 2 inputs"),
        (PLAIN.replace("data", "a,a"), "'a' occurs twice in the list"),
        (PLAIN.replace("data", ""), "a name is empty"),
        (PLAIN.replace("data", "x" * 1025), "1024 characters"),
        (PLAIN.replace("RGB", "RBG"), "unknown value 'RBG'; choose one of: RGB, BGR"),
        (
            PLAIN.replace("input_formats=RGB;\n", "input_formats=BGR;\n", 1),
            "has input format RGB but training format BGR; the simulator of SDK",
        ),
        (PLAIN.replace("training_input_formats=RGB", "training_input_formats=RGBA"), "SDK 1.1.5 accepts RGBA, but"),
        (
            PLAIN.replace("training_input_formats=RGB", "training_input_formats=BGRA"),
            "Write BGR in training_input_formats and BGRA in input_",
        ),
        (
            "[INPUT_CONFIG]\ninputs=a\ntraining_input_formats=RGB\ninput_formats=RAWDATA_S16_NHWC\n",
            "with RAWDATA, both formats must be the same",
        ),
        (PLAIN.replace("RGB", "RAWDATA_F32_NHWC") + "mean=1:2:3\n", "RAWDATA inputs take no mean"),
        (PLAIN + "mean=1:2\n", "has 2 numbers"),
        (PLAIN + "mean=1:x:3\n", "neither a number"),
        (PLAIN + "mean=nan\n", "not a finite number"),
        (PLAIN + "mean=1,2\n", "has 2 values for 1 inputs"),
        (PLAIN + "mean_red=1\nmean_blue=1\n", "no mean_green"),
        (PLAIN + "mean=1\nmean_blue=1\n", "both given"),
        (PLAIN + "std_value=0\n", "std_value must be above 0"),
        (PLAIN + "quantizations=YES\n", "choose one of: TRUE, FALSE"),
        (PLAIN + "input_layouts=NWHC\n", "choose one of: NHWC, NCHW"),
        (PLAIN + "input_width_alignment=0\n", "not a positive integer"),
        (PLAIN + "[OUTPUT_CONFIG]\ndequantizations=TRUE\n", 'no key "outputs"'),
        (PLAIN + "[OUTPUT_CONFIG]\noutputs=a,b\ndequantizations=TRUE\n", "has 1 values for 2 outputs"),
        (PLAIN + "[CONV_CONFIG]\ninput_format=INT16\n", ":6: input_format: unknown value 'INT16'"),
        (b"\xff\xfe[\x00", "UTF-16"),
    ],
)
def test_one_line_for_every_mistake(parsed, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parsed(text)
    assert "input_config.ini" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*No such file"):
        read(tmp_path / "no.ini")


@pytest.mark.parametrize("line", ["inputs=" + "a," * 30_000, "inputs=" + ",;" * 30_000, "inputs=" + "'\"" * 30_000])
def test_a_line_without_end_is_refused_at_once(line, tmp_path):
    """Names took the square of their number, a line 145 times its bytes."""
    (tmp_path / "x.ini").write_text(f"[INPUT_CONFIG]\n{line}\n")
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError):
            read(tmp_path / "x.ini")
        assert tracemalloc.get_traced_memory()[1] < 6_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("filling", ["'", "'a", "''", "\"'", "a'b'", "x,\n ", "é\n ", ":", "#\u0100\n", "\n"])
def test_memory_stays_within_what_the_fuzzer_allows(filling, tmp_path):
    """A pair of quotes took 180 bytes."""
    (tmp_path / "x.ini").write_text(f"{PLAIN}[CONV_CONFIG]\ntensor_arrays =" + filling * (100_000 // len(filling)))
    size = (tmp_path / "x.ini").stat().st_size
    tracemalloc.start()
    try:
        with suppress(ConfigError):
            read(tmp_path / "x.ini")
        assert tracemalloc.get_traced_memory()[1] < size + (4 << 20)
    finally:
        tracemalloc.stop()


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
    """The SDK takes RGBA of what was trained with BGR, and BGRA with RGB, not RGB with BGR (f_*)."""
    if {trained, given} == {"RGB", "BGR"}:
        with pytest.raises(
            ConfigError,
            match=f"has input format {given} but training format {trained}; the simulator .* Use {given}A or",
        ):
            read(stored(config((trained, given))))
        return
    (found,) = read(stored(config((trained, given)))).inputs
    assert (found.training_format, found.input_format, found.is_picture) == (trained, given, True)
    alignment = 2 if given == "YUV_NV12" else 1
    assert (found.width_alignment, found.height_alignment) == (alignment, alignment)


@pytest.mark.parametrize("trained", ["RGB", "RAWDATA_S16_NHWC", "RAWDATA_F32_NHWC"])
@pytest.mark.parametrize("given", ["GRAY", "RAWDATA_S16_NHWC", "RAWDATA_F32_NHWC"])
def test_rawdata_needs_the_same_in_both(stored, trained, given):
    if trained != given and (trained, given) != ("RGB", "GRAY"):
        with pytest.raises(ConfigError, match="with RAWDATA, both formats must be the same"):
            read(stored(config((trained, given))))
        return
    (found,) = read(stored(config((trained, given)))).inputs
    assert found.is_picture is (trained == "RGB")


def test_the_defaults_of_an_input_and_an_output(stored):
    found = read(stored(config(RGB, RAW, OUTPUT_CONFIG="outputs=x,y;")))
    picture, raw = found.inputs
    assert picture == ModelInput("a", "RGB", "RGB", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), "NHWC", True, 1, 1)
    assert raw == ModelInput("b", *RAW, (), (), "NHWC", True, 1, 1)
    assert [(out.name, out.dequantised, out.layout) for out in found.outputs] == [
        ("x", False, "NHWC"),
        ("y", False, "NHWC"),
    ]
    assert found.conv_format is None and found.tensor_arrays == ()
    assert read(stored(config(RGB))).outputs == ()
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
    found = read(stored(config(*formats, mean=mean)))
    assert [entry.mean for entry in found.inputs] == expected
    if "-" not in mean and mean:
        found = read(stored(config(*formats, std_value=mean)))
        assert [entry.std for entry in found.inputs] == expected


@pytest.mark.parametrize(
    ("formats", "keys", "message"),
    [
        ([RGB, RAW], {"mean": "1,2"}, "'2' is for a RAWDATA input, which takes no mean"),
        ([RGB, RAW, RGB], {"mean": "1,2,3"}, "'2' is for a RAWDATA input"),
        ([RGB, RGB], {"mean": "1,2,3"}, "has 3 values for 2 inputs; give one value per input"),
        ([RAW], {"std_value": "1"}, "RAWDATA inputs take no mean and no std_value; remove the line"),
        ([RAW, S16], {"mean": ",1"}, "RAWDATA inputs take no mean"),
        ([RGB], {"mean": "1:2:3:4"}, "'1:2:3:4' has 4 numbers; give one number, or three as red:green:blue"),
        ([RGB], {"mean": "inf"}, "not a finite number"),
        ([RGB], {"std_value": "-1"}, "std_value must be above 0"),
        ([RGB], {"std_value": "1:0:1"}, "std_value must be above 0"),
        ([RGB], {"mean_red": "1", "mean_green": "1"}, "has mean_red but no mean_blue"),
        ([RGB], {"mean_green": "1", "mean_blue": "1"}, "has mean_green but no mean_red"),
        ([RGB], {"mean_blue": "1", "mean": "2"}, "mean_blue are both given"),
        ([RGB, RGB], {"quantizations": "TRUE"}, "has 1 values for 2 inputs"),
        ([RGB], {"quantizations": "true"}, "unknown value 'true'; choose one of: TRUE, FALSE"),
        ([RGB], {"input_layouts": "NHWC,NCHW"}, "has 2 values for 1 inputs"),
        ([RGB], {"input_width_alignment": "1,2"}, "has 2 values for 1 inputs"),
        ([RGB], {"input_width_alignment": "1234567890"}, "'1234567890' is not a positive integer"),
        ([RGB], {"input_height_alignment": "01"}, "'01' is not a positive integer"),
        ([RGB], {"input_height_alignment": "-1"}, "not a positive integer"),
        ([RGB], {"OUTPUT_CONFIG": "outputs=x;\noutput_layouts=NHWC,NCHW;"}, "has 2 values for 1 outputs"),
        ([RGB], {"OUTPUT_CONFIG": "outputs=x,,y;"}, "a name is empty"),
        ([RGB], {"OUTPUT_CONFIG": "outputs=y,x,y;"}, "'y' occurs twice in the list"),
        ([RGB], {"CONV_CONFIG": "tensor_arrays=a,a;"}, "'a' occurs twice in the list"),
        ([RGB], {"CONV_CONFIG": "input_format=;"}, "unknown value ''; choose one of: ALL_UINT8, ALL_INT16"),
    ],
)
def test_what_does_not_fit_is_said(stored, formats, keys, message):
    with pytest.raises(ConfigError, match=message):
        read(stored(config(*formats, **keys)))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"input_width_alignment": "16"}, [(16, 2), (16, 1)]),
        ({"input_height_alignment": "4,8"}, [(2, 4), (1, 8)]),
        ({"input_width_alignment": "123456789"}, [(123456789, 2), (123456789, 1)]),
    ],
)
def test_alignments_of_two_inputs(stored, keys, expected):
    found = read(stored(config(("RGB", "YUV_NV12"), RGB, **keys))).inputs
    assert [(entry.width_alignment, entry.height_alignment) for entry in found] == expected


def test_a_comma_at_the_end_of_a_list_is_no_value(stored):
    text = config(RGB, RGB, input_layouts="NCHW,NHWC,", quantizations="FALSE,TRUE,", OUTPUT_CONFIG="outputs=x,;")
    found = read(stored(text.replace("inputs=a,b;", "inputs=a,b,;")))
    assert [(entry.name, entry.layout, entry.quantised) for entry in found.inputs] == [
        ("a", "NCHW", False),
        ("b", "NHWC", True),
    ]
    assert [out.name for out in found.outputs] == ["x"]


def test_names_take_1024_characters_together(stored):
    text = "[INPUT_CONFIG]\ninputs={};\ntraining_input_formats=RGB;\ninput_formats=RGB;\n"
    assert read(stored(text.format("x" * 1024))).inputs[0].name == "x" * 1024
    with pytest.raises(ConfigError, match="more than 1024 characters"):
        read(stored(text.format("x" * 1025)))


@pytest.mark.parametrize("word", CONV_FORMATS)
def test_formats_of_convolutions(stored, word):
    found = read(stored(config(RGB, CONV_CONFIG=f"input_format='{word}';\ntensor_arrays=;")))
    assert found.conv_format == word and found.tensor_arrays == ()


def test_colours_of_several_pictures(stored):
    found = read(stored(config(RGB, RAW, RGB, mean_red="1,2", mean_green="3", mean_blue="4,5")))
    assert [entry.mean for entry in found.inputs] == [(1, 3, 4), (), (2, 3, 5)]


HEAD = (
    b"; mine \xe5\x9b\xbe\n[INPUT_CONFIG]\ninputs = data;\ntraining_input_formats = RGB;\ninput_formats=RGB;\n"
    b"[OUTPUT_CONFIG]\noutputs = prob;\n"
)
SECTIONS = {
    "none": (b"", b"", b""),
    "no key": (b"[CONV_CONFIG] ; here\n", b"input_format=ALL_UINT8;\n", b""),
    "one line": (b"[CONV_CONFIG]\n", b"input_format = ALL_UINT8;\n", b"tensor_arrays = a , b; why\n"),
    "run on": (b"[CONV_CONFIG]\n", b"", b"tensor_arrays=a,\n   b,\n   'c'; why\n"),
    "no end": (b"[CONV_CONFIG]\n", b"", b"tensor_arrays=a,b"),
    "windows": (b"[CONV_CONFIG]\r\n", b"input_format=ALL_UINT8;\r\n", b"tensor_arrays='x';\r\n"),
    "no newline": (b"[CONV_CONFIG]", b"", b""),
}


@pytest.mark.parametrize("names", [["p/q", "r s", "t;u", "日"], ["x"]])
@pytest.mark.parametrize("case", SECTIONS)
def test_reads_back_and_keeps_every_other_byte(case, names, tmp_path):
    header, others, key = SECTIONS[case]
    written = with_tensor_arrays(HEAD + header + others + key, names)
    (tmp_path / "i.ini").write_bytes(written)
    assert list(read(tmp_path / "i.ini").tensor_arrays) == names
    assert written.startswith(HEAD + header) and others in written
    if key.strip().endswith(b"why"):
        assert written.endswith(b"; why\n")
    if b"\r\n" in header:
        assert b"\n" not in written[len(HEAD) :].replace(b"\r\n", b"")


@pytest.mark.parametrize("case", SECTIONS)
def test_no_name_to_write(case, tmp_path):
    header, others, key = SECTIONS[case]
    data = HEAD + header + others + key
    written = with_tensor_arrays(data, [])
    (tmp_path / "i.ini").write_bytes(written)
    assert read(tmp_path / "i.ini").tensor_arrays == ()
    assert key or written == data


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
