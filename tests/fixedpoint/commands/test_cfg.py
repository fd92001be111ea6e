"""``sgsdump cfg``: the files of ``cfg/``, byte for byte, and never on top of another."""

from pathlib import Path

import onnx
import pytest
from small_nets import conv, model, weights

from sgsdump.cli import main

CFG = Path(__file__).parents[3] / "cfg"


@pytest.fixture(autouse=True)
def work_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_name_the_files_are_listed(capsys):
    assert main(["cfg"]) == 0
    assert capsys.readouterr().out.split() == ["DebugConfig.txt", "input_config.ini"]


@pytest.mark.parametrize("name", ["DebugConfig.txt", "input_config.ini"])
def test_a_copy_is_written_and_never_twice(name, capsys):
    assert main(["cfg", name]) == 0
    assert Path(name).read_bytes() == (CFG / name).read_bytes()
    Path(name).write_text("mine")
    assert main(["cfg", name]) == 2
    assert Path(name).read_text() == "mine"
    assert f"{name} already exists" in capsys.readouterr().err


def test_it_is_written_where_it_is_told(capsys):
    Path("there").mkdir()
    content = (CFG / "DebugConfig.txt").read_bytes()
    assert main("cfg DebugConfig.txt -o there".split()) == 0
    assert main("cfg DebugConfig.txt -o there/other.txt".split()) == 0
    assert sorted(path.read_bytes() for path in Path("there").iterdir()) == [content, content]
    assert {path.name for path in Path("there").iterdir()} == {"DebugConfig.txt", "other.txt"}
    capsys.readouterr()
    for target, said in (("there", "exists"), ("no/x", "cannot write no/x: there is no folder no; make it first")):
        assert main(f"cfg DebugConfig.txt -o {target}".split()) == 2 and said in capsys.readouterr().err
    assert main("cfg -o there".split()) == 2 and "choose the template to write" in capsys.readouterr().err


def test_an_unknown_name_lists_the_known(capsys, work_folder):
    assert main(["cfg", "../cfg/DebugConfig.txt"]) == 2
    assert "DebugConfig.txt, input_config.ini" in capsys.readouterr().err
    assert not list(work_folder.iterdir())


def test_a_folder_that_cannot_be_written(capsys, monkeypatch, tmp_path):
    Path("DebugConfig.txt").mkdir()
    assert main(["cfg", "DebugConfig.txt"]) == 2
    assert "DebugConfig.txt already exists" in capsys.readouterr().err


def test_a_preprocess_file_that_does_not_resize_tells_its_normalisation(capsys):
    nodes, constants = [conv("y", "data")], weights("y", (4, 3, 1, 1))
    onnx.save(model(nodes, constants, {"data": (1, 3, 48, 72)}, ["y"]).proto, "net.onnx")
    Path("pre.py").write_text(
        "import numpy as np\nfrom PIL import Image\n\n\n"
        "def image_preprocess(path, norm=True):\n"
        "    picture = np.asarray(Image.open(path).convert('RGB'), np.float32)\n"
        "    return ((picture - 127) / 128 if norm else picture)[None]\n"
    )
    assert main("cfg input_config.ini -m net.onnx -n pre.py".split()) == 0
    text = Path("input_config.ini").read_text()
    assert "mean_red = 127;" in text and "std_value = 128;" in text
