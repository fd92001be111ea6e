"""Documents that cannot lie: every command of the README and every command's --help run here.

The two set-up lines (a fresh virtual environment each) run in .ci/run; here their last command runs.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from models.caffe.nets import save
from PIL import Image
from small_nets import residual_net, weights

from sgsdump.cli import build_parser
from sgsdump.commands import COMMANDS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PREPROCESS = """
import numpy as np
from PIL import Image

def get_image(img_path, resizeH=8, resizeW=8, norm=True, nchw=False):
    pixels = np.asarray(Image.open(img_path).convert("RGB").resize((resizeW, resizeH)), np.float32)
    if norm:
        pixels = (pixels - 127) / 128
    return (pixels.transpose(2, 0, 1) if nchw else pixels)[None]
"""


CAFFE_NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 } }
layer { name: "rectified" type: "ReLU" bottom: "conv1" top: "rectified" }
"""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def users_folder(tmp_path_factory):
    """What the tour says you have; ``sgsdump`` is on the path."""
    folder = tmp_path_factory.mktemp("user")
    bin = folder / "bin"
    bin.mkdir()
    (bin / "sgsdump").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sgsdump "$@"\n')
    (bin / "sgsdump").chmod(0o755)
    onnx.save(_renamed(residual_net().proto, "c1", "conv1"), folder / "net.onnx")
    first = weights("c1", (8, 3, 3, 3), 1)
    save(folder, CAFFE_NET, {"conv1": [first["c1.w"], first["c1.b"]]})
    (folder / "preprocess.py").write_text(PREPROCESS)
    ini = (ROOT / "cfg" / "input_config.ini").read_text()
    ini = re.sub(r"(?m)^inputs\s*=.*$", "inputs = data;", ini)
    ini = re.sub(r"(?m)^outputs\s*=.*$", "outputs = prob;", ini)
    (folder / "input_config.ini").write_text(ini)
    (folder / "pictures").mkdir()
    for seed in range(3):
        pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"{seed}.jpg")
    Image.fromarray(pixels).save(folder / "cat.jpg")
    return folder


def _renamed(proto, old, new):
    for node in proto.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    return proto


def sh(script, folder):
    environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder)}
    return subprocess.run(
        ["sh", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_tour_from_end_to_end(users_folder):
    tour = [block for block in blocks("sh") if "venv" not in block]
    assert len(tour) >= 5
    for block in tour:
        done = sh(block, users_folder)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
    assert (users_folder / "Histograms" / "overview.png").is_file()
    assert json.loads((users_folder / "names.json").read_text()) == {"r1": "rectified"}
    assert (users_folder / "layers.csv").is_file() and (users_folder / "layers.json").is_file()


def test_the_python_of_the_readme(users_folder, monkeypatch):
    monkeypatch.chdir(users_folder)
    (script,) = blocks("python")
    exec(compile(script, str(README), "exec"), {})
    assert (users_folder / "copy.bin").read_bytes() == (users_folder / "float.bin").read_bytes()


def test_the_set_up_lines_are_those_ci_runs():
    lines = [block.strip() for block in blocks("sh") if "venv" in block]
    assert lines[0].endswith("&& .venv/bin/sgsdump demo")
    assert lines[1].endswith("&& .venv/bin/pytest")
    ci = (ROOT / ".ci" / "run").read_text()
    assert "sgsdump demo$" in ci and "pytest$" in ci


def test_every_command_is_in_the_readme_and_shows_examples(capsys):
    text = README.read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"sgsdump {name}" in text, name
        assert f"sgsdump {name}" in (COMMANDS[name].__doc__ or ""), name
        with pytest.raises(SystemExit) as ended:
            build_parser().parse_args([name, "--help"])
        assert ended.value.code == 0
        assert "example" in capsys.readouterr().out


def test_help_imports_nothing_heavy():
    code = "import sys, sgsdump.cli as c; c.build_parser(); print([m for m in sys.modules if m in HEAVY])"
    heavy = ("numpy", "onnx", "onnxruntime", "matplotlib", "PIL", "tqdm")
    done = subprocess.run([sys.executable, "-c", code.replace("HEAVY", repr(heavy))], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
