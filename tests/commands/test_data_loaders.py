"""Data of any kind in every command: one data loader for an audio net, a token net, a net of three inputs; .npz files;
and what users get wrong. The oracle is onnxruntime on the arrays themselves."""

from __future__ import annotations

import gc
import runpy
from pathlib import Path

import data_nets
import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image
from small_nets import residual_net

from sgsdump import open_dump
from sgsdump.cli import main
from sgsdump.models.feeds import data_loader
from sgsdump.models.feeds.data_loader import LoadedFeeds
from sgsdump.models.model import graph_inputs
from sgsdump.sidecars import input_config
from sgsdump.sidecars.tensor_min_max import read_ranges


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def feed(name: str, number: int) -> dict[str, np.ndarray]:
    """What the loader gives, in the model's own types and shapes."""
    given = runpy.run_path("feeds.py")[name]()
    arrays = [given[index] for index in range(3)] if name == "three" else list(given)
    types = {label: onnx.helper.tensor_dtype_to_np_dtype(kind) for label, (kind, _) in data_nets.INPUTS[name].items()}
    return {
        label: np.asarray(arrays[number][label], types[label]).reshape(shape)
        for label, (_, shape) in data_nets.INPUTS[name].items()
    }


def outputs(name: str, number: int) -> np.ndarray:
    session = onnxruntime.InferenceSession(f"{name}.onnx", providers=["CPUExecutionProvider"])
    return session.run(["out"], feed(name, number))[0]


def sgsdump(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.mark.parametrize("name", list(data_nets.INPUTS))
@pytest.mark.usefixtures("no_picture", "quick_to_collect")
def test_every_command_takes_the_same_loader(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data_nets.write(Path(), name)
    given = ["-m", f"{name}.onnx", "--data-loader-script", f"feeds.py:{name}"]

    assert sgsdump("dump", *given, "-o", "d.bin") == 0
    np.testing.assert_allclose(open_dump("d_2.bin")["out"].real(), outputs(name, 2), rtol=1e-5, atol=1e-6)
    assert sgsdump("pipeline", "full", *given, "-o", "pipe") == 0
    np.testing.assert_allclose(np.load("pipe/1/outputs/topoidx_" + last("pipe/1")), outputs(name, 1), rtol=1e-4)
    assert sgsdump("pipeline", "full", *given, "--bisect", "reference") == 0
    assert sgsdump("calibrate", *given, "--quant-level", "L2", "-o", "fixed.onnx") == 0
    assert "assumed: " in capsys.readouterr().err
    lows = np.min([outputs(name, number).min() for number in range(3)])
    assert read_ranges("log/tensor_min_max.txt")["out"].low == pytest.approx(lows, rel=1e-4)

    assert sgsdump("simulate", "-t", "Fixed", "-m", "fixed.onnx", *given[2:]) == 0
    assert capsys.readouterr().out.count("output out") == 3
    assert sgsdump("tune", "--explain", "--ranges", "log/tensor_min_max.txt", *given) == 0
    assert sgsdump("diagnose", *given, "--quant-level", "L2", "-o", "diagnosis", "--max-images", 2) == 0
    assert Path("diagnosis/report.html").is_file()
    assert sgsdump("tune", "--first", *given, "--quant-level", "L2", "-o", "first", "--rounds", 1) == 0
    assert sgsdump("tune", *given, "--quant-level", "L2", "-o", "tuned", "--rates", 0.9) == 0
    assert Path("tuned/input_config.ini").is_file()
    gc.collect()
    assert not list(Path().glob("sgsdump_feeds_*"))  # what was kept went with the commands


def last(folder: str) -> str:
    return sorted(Path(folder, "outputs").glob("*.npy"))[-1].name.removeprefix("topoidx_")


def test_npz_files_are_fed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    data_nets.write(Path(), "three")
    Path("data").mkdir()
    for number in range(3):
        np.savez(f"data/{number}.npz", **feed("three", number))
    assert sgsdump("dump", "-m", "three.onnx", "-i", "data", "-o", "d.bin") == 0
    np.testing.assert_allclose(open_dump("d_1.bin")["out"].real(), outputs("three", 1), rtol=1e-5, atol=1e-6)
    assert sgsdump("calibrate", "-m", "three.onnx", "-i", "data", "--quant-level", "L1", "-o", "a.onnx") == 0
    loader = ["--data-loader-script", "feeds.py:three"]
    assert sgsdump("calibrate", "-m", "three.onnx", *loader, "--quant-level", "L1", "-o", "b.onnx") == 0
    assert Path("a.onnx").read_bytes() == Path("b.onnx").read_bytes()
    np.savez("other.npz", a=np.zeros((1, 3, 6, 6)), bb=np.zeros(4))
    Path("cut.npz").write_bytes(Path("data/0.npz").read_bytes()[:200])
    assert sgsdump("pipeline", "full", "-m", "three.onnx", "-i", "data", "-o", "pipe") == 0
    np.testing.assert_allclose(np.load("pipe/2/outputs/topoidx_" + last("pipe/2")), outputs("three", 2), rtol=1e-4)
    assert sgsdump("pipeline", "full", "-m", "three.onnx", "-i", "data/1.npz", "-o", "one") == 0
    np.testing.assert_allclose(np.load("one/outputs/topoidx_" + last("one")), outputs("three", 1), rtol=1e-4)
    capsys.readouterr()
    assert refused("dump", "-m", "three.onnx", "-i", "other.npz", capsys=capsys) == (
        "sgsdump: error: other.npz has 'bb', which is not an input of the model; did you mean 'b'?"
    )
    assert "cut.npz is not an .npz file" in refused("dump", "-m", "three.onnx", "-i", "cut.npz", capsys=capsys)
    said = refused("dump", "-m", "three.onnx", "-i", "data", "-n", "p.py,p.py,p.py", capsys=capsys)
    assert "there is no preprocess file p.py" in said


def refused(*words: object, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that ends with 2."""
    assert sgsdump(*words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.startswith("sgsdump: error")]) == 1, lines
    return lines[-1]


BAD = """
import numpy as np
good = {"wave": np.zeros((1, 1, 64), np.float32)}

def raises():
    yield good
    raise OSError("no more recordings")

def other_names():
    yield {"waves": good["wave"]}

def nan():
    yield good
    yield {"wave": np.full((1, 1, 64), np.nan)}

def shape():
    yield {"wave": np.zeros((1, 1, 63))}

def text():
    yield {"wave": "a.wav"}

def ragged():
    yield {"wave": [[1], [2, 3]]}

def not_a_dictionary():
    yield good["wave"]

def gives_none():
    pass

def nothing():
    return []

def one_dictionary():
    return good

def endless():
    while True:
        yield good

number = 3
"""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("raises", "bad.py:7: the data loader failed on feed 1: OSError: 'no more recordings'"),
        ("other_names", "bad.py: feed 0 has 'waves', which is not an input of the model; did you mean 'wave'?"),
        ("nan", "bad.py: feed 1, input 'wave', holds 64 NaN or infinite values"),
        (
            "shape",
            "bad.py: feed 0, input 'wave', has shape [1, 1, 63], but the model's input 'wave' takes [1, 1, 64]",
        ),
        ("text", "bad.py: feed 0 has no array of numbers for the input 'wave'"),
        ("ragged", "the data loader failed on feed 0: ValueError"),
        ("not_a_dictionary", "bad.py: feed 0 is a ndarray, not a dictionary of arrays by input name"),
        ("gives_none", "bad.py: gives_none() returned a None; yield a dictionary of arrays for each run"),
        ("nothing", "bad.py: nothing() gives no feeds"),
        ("one_dictionary", "bad.py: one_dictionary() returned a dict; yield a dictionary of arrays"),
        ("endless", "bad.py: endless() returned 5 sets of inputs without ending; limit the loader"),
        ("number", "bad.py: number() returned a int; yield"),
        ("absent", "bad.py has no function absent()"),
    ],
)
@pytest.mark.parametrize("command", ["calibrate", "diagnose"])
def test_a_loader_that_gives_something_else_is_said_in_one_line(command, function, says, capsys, monkeypatch) -> None:
    monkeypatch.setattr(data_loader, "MOST_FEEDS", 5)
    data_nets.write(Path(), "audio")
    Path("bad.py").write_text(BAD)
    before = sorted(path.name for path in Path().iterdir())
    line = refused(command, "-m", "audio.onnx", "--data-loader-script", f"bad.py:{function}", capsys=capsys)
    assert says in line and ("the data loader failed" in line) == (" failed " in says)
    assert sorted(path.name for path in Path().iterdir() if path.name != "__pycache__") == before


def test_integers_stay_integers() -> None:
    data_nets.write(Path(), "tokens")
    specs = graph_inputs(onnx.load("tokens.onnx"))
    kept = LoadedFeeds.of(({"ids": np.full((1, 12), n, np.int32), "mask": np.ones((1, 12))} for n in range(3)), specs)
    label, made, raw = kept.both(2)
    assert label == "feed 2" and made["ids"].dtype == raw["ids"].dtype == np.int64 and (made["ids"] == 2).all()
    with pytest.raises(Exception, match="holds fractions, but the model's input 'ids' takes integers"):
        LoadedFeeds.of([{"ids": np.full((1, 12), 0.5), "mask": np.ones((1, 12))}], specs)


def test_a_preprocess_file_beside_a_loader_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    data_nets.write(Path(), "audio")
    given = ["-m", "audio.onnx", "--data-loader-script", "feeds.py:audio", "-n", "pre.py"]
    for words in (["dump"], ["diagnose"], ["simulate", "-t", "Float"]):
        assert "-n preprocesses images, but a data loader gives" in refused(*words, *given, capsys=capsys)


PREPROCESS = """
import numpy as np
from PIL import Image

def get_image(path, nchw=False):
    x = np.asarray(Image.open(path).convert("RGB").resize((8, 8)), np.float32)[None, ..., ::-1]
    x = (x - [104, 117, 123]) / 58
    return x.transpose(0, 3, 1, 2) if nchw else x
"""
CONFIG = """
[INPUT_CONFIG]
inputs=data;
training_input_formats=RGB;
input_formats=RGB;
mean=0:0:0;
std_value={};
"""


def write_pictures() -> None:
    onnx.save(residual_net().proto, "net.onnx")
    Path("pictures").mkdir()
    for seed in range(3):
        pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(f"pictures/{seed}.png")
    Path("pre.py").write_text(PREPROCESS)


def test_pictures_need_an_input_config_which_the_preprocess_file_tells(capsys: pytest.CaptureFixture[str]) -> None:
    """A preprocess file in the README's own form, without norm, that gives BGR, in every command."""
    write_pictures()
    given = ["-m", "net.onnx", "-i", "pictures", "-n", "pre.py"]
    for words in (
        ["calibrate"],
        ["tune", "--explain", "--ranges", "r.txt"],
        ["tune", "--first", "-o", "a"],
        ["tune", "-o", "b"],
    ):
        said = refused(*words, *given, capsys=capsys)
        assert "sgsdump cfg input_config.ini -m net.onnx -n pre.py" in said
    assert sgsdump("cfg", "input_config.ini", "-m", "net.onnx", "-n", "pre.py") == 0
    (entry,) = input_config.read("input_config.ini").inputs
    assert (entry.training_format, entry.mean, entry.std) == ("BGR", (123.0, 117.0, 104.0), (58.0,) * 3)

    given += ["--input-config", "input_config.ini"]
    capsys.readouterr()
    assert sgsdump("calibrate", *given, "--quant-level", "L2", "-o", "fixed.onnx") == 0
    assert "warning" not in capsys.readouterr().out
    assert sgsdump("simulate", "-m", "fixed.onnx", "-t", "Fixed", "-i", "pictures/0.png", "-n", "pre.py") == 0
    assert sgsdump("tune", "--explain", "--ranges", "log/tensor_min_max.txt", *given) == 0
    assert sgsdump("tune", "--first", *given, "--quant-level", "L2", "-o", "first", "--rounds", 1) == 0
    assert sgsdump("tune", *given, "--quant-level", "L2", "-o", "tuned", "--rates", 0.9) == 0
    assert sgsdump("diagnose", *given, "--quant-level", "L2", "--max-rmse", 0.1) == 0


def test_arrays_of_pictures_are_what_the_float_model_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Normalised to 0..1 they were bytes 0 and 1 of the fixed model."""
    write_pictures()
    Path("arrays").mkdir()
    for seed in range(3):
        pixels = np.random.default_rng(seed).integers(0, 256, (1, 3, 8, 8)).astype(np.float32)
        np.save(f"arrays/{seed}.npy", pixels / 255)
    Path("right.ini").write_text(CONFIG.format(255))
    Path("wrong.ini").write_text(CONFIG.format(1))
    given = ["diagnose", "-m", "net.onnx", "-i", "arrays", "--quant-level", "L2", "--max-rmse", 0.1, "--input-config"]
    assert sgsdump(*given, "right.ini") == 0
    said = refused(*given, "wrong.ini", capsys=capsys)
    assert (
        ".npy: with mean and std_value of input_config, the values correspond to grey levels from" in said
        and "arrays/" in said
    )
    assert "from integers. Correct mean and std_value" in said
    assert sgsdump("calibrate", *given[1:5], "--input-config", "wrong.ini", "-o", "fixed.onnx") == 0
    assert "warning: arrays/0.npy: with mean and std_value" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["calibrate", "tune", "diagnose", "tune --first"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--data-loader-script", "nope.py"], "there is no data loader script nope.py"),
        (["-i", "wide.npy"], "'wave'"),
    ],
)
def test_what_cannot_be_read_is_said_before_anything_is_assumed(
    command: str, given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data_nets.write(Path(), "audio")
    np.save("wide.npy", np.zeros((3, 77, 2)))
    assert sgsdump(*command.split(), "-m", "audio.onnx", *given, "-o", "made") == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def test_a_preprocess_file_that_is_not_there_is_said_before_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(residual_net().proto, "net.onnx")
    Image.new("RGB", (8, 8)).save("a.png")
    assert sgsdump("calibrate", "-m", "net.onnx", "-i", "a.png", "-n", "nope.py") == 2
    assert "there is no preprocess file nope.py" in capsys.readouterr().err
