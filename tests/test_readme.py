"""Documents that cannot lie: every command and all Python of README.md and docs/*.md, and every --help, run here.

Each page runs in a folder of its own in which the README's tour was walked before. The README's two set-up lines (a
fresh virtual environment each) run in .ci/run.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import onnx
import pytest
from in_process import SGSDUMP, called
from models.caffe.nets import save
from PIL import Image
from small_nets import residual_net, weights

from sgsdump.cli import main
from sgsdump.commands import COMMANDS
from sgsdump.commands.parser import build_parser

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
# own_executor.md has no commands, and Python that tests/executors/test_own_executor.py runs; tests/test_plugins.py runs
# the example of plugins.md.
# Pages without commands, and the one whose commands tests/commands/test_board_page.py runs: it needs a board's file.
# tests/fixedpoint/sim/test_only_the_sim.py runs only_the_sim.md: it needs the SDK's files.
# tests/test_tutorial.py looks at the tutorial and runs the functions of metrics.md.
OTHERS = (
    "own_executor",
    "plugins",
    "modules",
    "options",
    "how_well_it_finds",
    "sdk_converter",
    "which_sdk",
    "board_against_pc",
)
OTHERS += ("only_the_sim", "tutorial", "metrics", "reference", "how_it_decides", "which_layers_in_high_precision")
OTHERS += ("glossary", "other_tools")  # no commands
PAGES = sorted(page for page in (ROOT / "docs").glob("*.md") if page.stem not in OTHERS)
PREPROCESS = """
import numpy as np
from PIL import Image

def get_image(img_path, resizeH=8, resizeW=8, norm=True, nchw=False):
    pixels = np.asarray(Image.open(img_path).convert("RGB").resize((resizeW, resizeH)), np.float32)
    if norm:
        pixels = (pixels - 127) / 128
    return (pixels.transpose(2, 0, 1) if nchw else pixels)[None]
"""


# Outside quotes there is nothing but words; inside them nothing that a shell would replace.
PLAIN = re.compile(r"""sgsdump( ([\w./=:,@^+-]|'[^']*'|"[^"$`\\]*")+)+ *""")
CAFFE_NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 } }
layer { name: "rectified" type: "ReLU" bottom: "conv1" top: "rectified" }
"""


def blocks(page, *languages):
    """The (language, text) of the fenced blocks of these languages, in the page's order."""
    text = page.read_text(encoding="utf-8")
    return [block for block in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if block[0] in languages]


def run_page(page, folder, monkeypatch):
    """Run all its shell and Python blocks in order, but the README's set-up lines."""
    monkeypatch.chdir(folder)
    for language, block in blocks(page, "sh", "python"):
        if language == "python":
            exec(compile(block, str(page), "exec"), {})
        elif "venv" not in block:
            for done in run_block(block, folder):
                assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}\n{done.stderr}"


def run_block(block, folder):
    """A shell runs it; lines of ``sgsdump`` in which a shell has nothing to do run here, without another Python."""
    for plain, lines in groupby(block.replace("\\\n", " ").splitlines(), lambda line: bool(PLAIN.fullmatch(line))):
        if not plain:
            yield sh("\n".join(lines), folder)
            continue
        for words in map(shlex.split, lines):
            yield called(lambda words=words: main(words[1:]), folder, environment(folder), words)


@pytest.fixture(scope="module")
def users_folder(tmp_path_factory):
    """What the tour says you have; ``sgsdump`` is on the path."""
    folder = tmp_path_factory.mktemp("user")
    bin = folder / "bin"
    bin.mkdir()
    (bin / "sgsdump").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{SGSDUMP}" "$@"\n')
    (bin / "msit").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT / "tools" / "msit"}" "$@"\n')
    (bin / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in bin.iterdir():
        program.chmod(0o755)
    onnx.save(_renamed(residual_net().proto, "c1", "conv1"), folder / "net.onnx")
    first = weights("c1", (8, 3, 3, 3), 1)
    save(folder, CAFFE_NET, {"conv1": [first["c1.w"], first["c1.b"]]})
    (folder / "preprocess.py").write_text(PREPROCESS)
    ini = (ROOT / "cfg" / "input_config.ini").read_text()
    ini = re.sub(r"(?m)^inputs\s*=.*$", "inputs = data;", ini)
    ini = re.sub(r"(?m)^outputs\s*=.*$", "outputs = prob;", ini)
    (folder / "input_config.ini").write_text(ini)
    (folder / "pictures").mkdir()
    for seed, name in enumerate(("pictures/0.jpg", "pictures/1.jpg", "pictures/2.jpg", "cat.jpg")):
        pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def toured_folder(users_folder):
    """The user's folder after the README's tour, from end to end."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_page(README, users_folder, monkeypatch)
    add_sdk_folder(users_folder)
    return users_folder


def add_sdk_folder(folder):
    """What docs/exact_integers.md takes from the SDK, here made by ourselves: a log folder and a dump of integers."""
    shutil.copytree(folder / "log", folder / "sdk" / "log")
    (folder / "sdk" / "DebugConfig.txt").write_text("dumpTensor\neliminateGarbage\npath=.\n")
    done = sh("cd sdk && sgsdump simulate -m ../net_fixed.onnx -t Fixed -i ../cat.jpg -n ../preprocess.py", folder)
    assert done.returncode == 0, done.stderr


def _renamed(proto, old, new):
    for node in proto.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    return proto


def environment(folder):
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT)}


def sh(script, folder):
    words = ["sh", "-e", "-c", script]
    return subprocess.run(words, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=300)


def test_the_readmes_tour_from_end_to_end(toured_folder):
    assert sum("venv" not in block for _, block in blocks(README, "sh")) >= 4
    assert (toured_folder / "Histograms" / "overview.png").is_file()
    assert (toured_folder / "repaired" / "rounds.txt").is_file()
    assert (toured_folder / "copy.bin").read_bytes() == (toured_folder / "float.bin").read_bytes()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page(page, toured_folder, tmp_path, monkeypatch):
    if "import torch" in page.read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason="torch (the extra torch) is not installed")
    folder = tmp_path / "user"
    shutil.copytree(toured_folder, folder)
    assert blocks(page, "sh")
    run_page(page, folder, monkeypatch)
    made = {
        "any_data": ["arrays_3.bin", "arrays_by_ort/3/dump_info.json", "net_of_arrays.onnx", "fresh/input_config.ini"],
        "debug_a_layer": ["layers.csv", "layers.json", "other/DebugConfig.txt"],
        "cure": ["cured.onnx", "cured.quant.json", "net_cured_fixed.onnx", "scaled.onnx"],
        "tune_int16": ["tuned/pareto.png", "net_tuned.onnx", "first/rounds.txt"],
        "troubleshooting": ["cat.jpg.bin", "found/input_config.ini", "net_visible.onnx", "Histograms_new"],
        "caffe": ["sigma_outtensor_dump.bin", "dumpData/caffe_NHWC_outtensor_dump.bin"],
        "compare_two_tools": ["r1_case", "layers.csv"],
        "dump_a_compiled_program": ["comparison.txt", "watched.txt"],
        "dump_a_running_program": ["comparison.txt", "proof.txt", "dump.json"],
        "check": ["wrong.json", "wrong.xml", "comparison.txt"],
        "dump_torch_modules": ["comparison.txt", "weights.npz"],
        "dump_onnxruntime_program": ["runs.txt"],
        "read_any_dump": ["tensors.csv", "whole.bin", "doubled.npz"],
        "exact_integers": ["ours.bin", "integers.csv"],
        "first_nan": ["tensors.json"],
        "own_and_accumulated_error": ["contributions.json"],
        "from_python": ["diagnosis_in_python/report.html", "net_in_python.onnx", "fixed_in_python.bin"],
        "debug_a_quantised_onnx": ["quantised/report.html", "quantised/quantised.csv", "net_int8.html"],
    }
    assert all((folder / name).exists() for name in made[page.stem])
    if page.stem == "exact_integers":
        rows = json.loads((folder / "integers.json").read_text())["rows"]
        assert rows and all(row["integers"]["differing"] <= 0.01 * row["count"] for row in rows)
    if page.stem == "debug_a_layer":
        assert json.loads((folder / "names.json").read_text()) == {"r1": "rectified"}


def test_the_set_up_lines_are_those_ci_runs():
    lines = [block.strip() for _, block in blocks(README, "sh") if "venv" in block]
    assert lines[0].endswith("&& .venv/bin/sgsdump demo")
    assert lines[1].endswith("&& .venv/bin/pytest")
    ci = (ROOT / ".ci" / "run").read_text()
    assert "sgsdump demo$" in ci and "pytest$" in ci


def test_the_pictures_are_there_and_small():
    shown = [name for page in [README, *PAGES] for name in re.findall(r"!\[[^]]*\]\((.*?)\)", page.read_text())]
    assert len(shown) >= 2
    assert sum(path.stat().st_size for path in (ROOT / "docs" / "pictures").iterdir()) <= 300_000


def test_every_command_is_in_the_readme_and_shows_examples(capsys):
    text = README.read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"sgsdump {name}" in text, name
        assert f"sgsdump {name}" in (COMMANDS[name].__doc__ or ""), name
        with pytest.raises(SystemExit) as ended:
            build_parser().parse_args([name, "--help"])
        assert ended.value.code == 0
        assert "example" in capsys.readouterr().out


def imported_by(*args):
    """What is imported once the command line of these arguments has been parsed."""
    code = "import atexit, sys; from sgsdump.cli import main; atexit.register(lambda: print(*sys.modules)); main()"
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("args", [(), *((name,) for name in COMMANDS)])
def test_help_imports_nothing_heavy(args):
    heavy = {"numpy", "onnx", "onnxruntime", "matplotlib", "PIL", "tqdm"}
    if args in (("compare",), ("judge",)):  # which stand in one folder
        heavy.remove("numpy")  # its help lists the table of metrics, whose formulas are numpy's
    assert heavy.isdisjoint(modules := imported_by(*args, "--help"))
    of_command = {name: COMMANDS._members[name] for name in COMMANDS}
    expected = {of_command[name] for name in args} | ({of_command["compare"]} if args == ("judge",) else set())
    assert expected == {*of_command.values()} & {*modules}
