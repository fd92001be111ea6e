"""The example of docs/own_executor.md is an executor like any other, and is found once it is registered."""

from __future__ import annotations

import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from sgsdump.cli import main
from sgsdump.errors import ConfigError
from sgsdump.executors.conformance import ExecutorConformance, assert_raises, small_feed, small_model, small_outputs
from sgsdump.executors.table import executors, is_plug_in, open_executor
from sgsdump.files.user_module import import_file
from sgsdump.models.passes.extract import extract

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def example():
    return import_file(DOCS / "own_executor.py", "example")


class TestConformance(ExecutorConformance):
    @pytest.fixture(autouse=True)
    def _example(self, example) -> None:
        self.example = example

    def make(self):
        return self.example.ToyAccelerator()


class TestConformanceOfFloat16Weights(TestConformance):
    tolerance = 2e-3
    configs = {"weights": "float16"}  # noqa: RUF012


def test_its_float16_weights_are_seen(example) -> None:
    toy = example.ToyAccelerator()
    toy.init({"weights": "float16"})
    with toy:
        toy.load_model(small_model())
        (scores,) = toy.execute(["scores"], small_feed())
    assert 1e-5 < np.abs(scores - small_outputs(small_feed())["scores"]).max() < 1e-2


def test_its_options_are_checked(example) -> None:
    assert_raises(ConfigError, "int3", lambda: example.ToyAccelerator().init({"weights": "int3"}))


@pytest.mark.parametrize("model", [False, True])
def test_it_runs_as_a_script(tmp_path: Path, model: bool) -> None:
    arguments = []
    if model:
        (tmp_path / "m.onnx").write_bytes(small_model().SerializeToString())
        arguments = [str(tmp_path / "m.onnx")]
    run = subprocess.run(
        [sys.executable, DOCS / "own_executor.py", *arguments],
        capture_output=True,
        text=True,
        cwd=DOCS.parent,
        env={"PYTHONPATH": str(DOCS.parent)},
    )
    assert run.returncode == 0, run.stderr
    assert "scores: shape (1, 5), largest difference 0." in run.stdout.replace("e-0", " 0.")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put modules and entry point lines on sys.path, as pip would."""

    def put(lines: str, **modules: str) -> None:
        info = tmp_path / "toy_plugin-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[sgsdump.executors]\n{lines}\n")
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)

    yield put
    for name in ("toy_plugin_module", "toy_plugin_broken"):
        sys.modules.pop(name, None)


def test_what_the_document_names_is_there() -> None:
    dotted = re.findall(r"`(sgsdump(?:\.\w+)+)`|from (sgsdump[.\w]+) import", (DOCS / "own_executor.md").read_text())
    names = [code or module for code, module in dotted]
    assert "sgsdump.executors.base.Executor" in names and "sgsdump.executors.conformance" in names
    for name in names:
        pkgutil.resolve_name(name)


def test_an_entry_point_is_found(install) -> None:
    (line,) = re.findall(r"^toy = (.*)$", (DOCS / "own_executor.md").read_text(), re.M)
    attribute = line.strip('"').partition(":")[2]
    install(f"toy = toy_plugin_module:{attribute}", toy_plugin_module=(DOCS / "own_executor.py").read_text())
    assert "toy" in executors()
    with open_executor("toy", {"weights": "float16"}) as executor:
        executor.load_model(small_model(["best"]))
        np.testing.assert_array_equal(executor.execute(["best"], small_feed())[0], small_outputs(small_feed())["best"])


def test_a_file_and_a_class_need_no_registration(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(extract(small_model(), ["x/in"], ["best"]), "net.onnx")
    shutil.copy(DOCS / "own_executor.py", "toy.py")
    assert main("pipeline full -m net.onnx -f toy.py:ToyAccelerator --option weights=float16".split()) == 0
    assert is_plug_in("toy.py:ToyAccelerator") and Path("ToyAccelerator_dump/outputs").is_dir()
    assert main("pipeline full -m net.onnx --bisect toy.py:ToyAccelerator".split()) in (0, 1)
    capsys.readouterr()
    for name, said in {
        "toy.py:ToyAcelerator": "toy.py has no class or function ToyAcelerator",
        "tory.py:ToyAccelerator": "executor file tory.py not found",
        "toy.py:PRECISIONS": "no class or function PRECISIONS",
        "toy.py:small_feed": "is a dict; it must be a subclass of sgsdump.executors.base.Executor",
    }.items():
        assert main(["pipeline", "full", "-m", "net.onnx", "-f", name, "-o", "other"]) == 2
        assert said in capsys.readouterr().err and not Path("other").exists()


def test_a_plug_in_takes_the_place_of_a_name_of_ours(install) -> None:
    lines = "sdaa = toy_plugin_module:ToyAccelerator [extra]"
    install(lines, toy_plugin_module=(DOCS / "own_executor.py").read_text())
    assert open_executor("sdaa").name == "toy"


def test_plug_ins_that_are_broken_are_told_in_one_line(install) -> None:
    lines = ["a = toy_plugin_broken:Executor", "b = no_such_module:Executor", "c = toy_plugin_module:Nothing"]
    install(
        "\n".join([*lines, "d = toy_plugin_module:dict"]), toy_plugin_broken="1 / 0", toy_plugin_module="dict = dict"
    )
    for name, said in {
        "a": "division by zero",
        "b": "no_such_module",
        "c": "Nothing",
        "d": "is a dict; it must be",
    }.items():
        assert_raises(ConfigError, said, lambda name=name: open_executor(name))
    assert open_executor("ort").name == "ort"
