"""input_config.ini: every key, every form, and one clear line for everything else."""

import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from sgsdump.errors import ConfigError
from sgsdump.sidecars.input_config import InputConfig, ModelInput, ModelOutput, read

PLAIN = "[INPUT_CONFIG]\ninputs=data;\ntraining_input_formats=RGB;\ninput_formats=RGB;\n"


@pytest.fixture
def parsed(tmp_path):
    def parse(text):
        path = tmp_path / "input_config.ini"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path)

    return parse


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
        ("inputs=a\n", ":1: .*before any section"),
        ("[INPUT_CONFG]\n", "unknown section .INPUT_CONFG.; did you mean 'INPUT_CONFIG'"),
        (PLAIN + "[INPUT_CONFIG]\n", ":5: the section .* twice"),
        (PLAIN + "inputs=b\n", ":5: the key inputs .* twice"),
        (PLAIN + "std=1\n", ":5: unknown key 'std'"),
        (PLAIN + "std_valeu=1\n", "did you mean 'std_value'"),
        (PLAIN + "hello\n", ":5: 'hello' is neither"),
        ("[INPUT_CONFIG]\ntraining_input_formats=RGB\n", "no key inputs"),
        ("[INPUT_CONFIG]\ninputs=a\ninput_formats=RGB\n", "no key training_input_formats"),
        (PLAIN.replace("data", "a,b"), "has 1 values for 2 inputs"),
        (PLAIN.replace("data", "a,a"), "'a' stands in the list twice"),
        (PLAIN.replace("data", ""), "a name is empty"),
        (PLAIN.replace("data", "x" * 1025), "1024 characters"),
        (PLAIN.replace("RGB", "RBG"), "unknown value 'RBG'; choose one of: RGB, BGR"),
        (PLAIN.replace("input_formats=RGB;\n", "input_formats=BGR;\n", 1), "RGB and BGR cannot be mixed"),
        ("[INPUT_CONFIG]\ninputs=a\ntraining_input_formats=BGR\ninput_formats=RGBA\n", "cannot be mixed"),
        (
            "[INPUT_CONFIG]\ninputs=a\ntraining_input_formats=RGB\ninput_formats=RAWDATA_S16_NHWC\n",
            "RAWDATA needs the same",
        ),
        (PLAIN.replace("RGB", "RAWDATA_F32_NHWC") + "mean=1:2:3\n", "RAWDATA inputs take no mean"),
        (PLAIN + "mean=1:2\n", "has 2 numbers"),
        (PLAIN + "mean=1:x:3\n", "not a number"),
        (PLAIN + "mean=nan\n", "not a finite number"),
        (PLAIN + "mean=1,2\n", "has 2 values for 1 inputs"),
        (PLAIN + "mean_red=1\nmean_blue=1\n", "no mean_green"),
        (PLAIN + "mean=1\nmean_blue=1\n", "both given"),
        (PLAIN + "std_value=0\n", "std must be above 0"),
        (PLAIN + "quantizations=YES\n", "choose one of: TRUE, FALSE"),
        (PLAIN + "input_layouts=NWHC\n", "choose one of: NHWC, NCHW"),
        (PLAIN + "input_width_alignment=0\n", "not a whole number above 0"),
        (PLAIN + "[OUTPUT_CONFIG]\ndequantizations=TRUE\n", "no key outputs"),
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
