"""Plug-ins of installed packages: the example of docs/plugins.md, and what happens to broken ones."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sgsdump
from sgsdump import plugins
from sgsdump.cli import main

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = DOCS / "plugin_example"
RUN = "toy 1\nconv1: 0 1 2 0\nrelu1: 0 0\n"


def run(site: Path, folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, which finds the packages of ``site``."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    command = [sys.executable, "-m", "sgsdump", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as pip installs it, without a network."""
    pytest.importorskip("setuptools", "77")
    folder = tmp_path_factory.mktemp("site")
    copy = tmp_path_factory.mktemp("source")
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(copy)], check=True)
    return folder


def test_the_example_adds_a_format_and_a_command(site: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toy").write_text(RUN)
    zeros = run(site, tmp_path, "zeros", "run.toy")
    assert (zeros.stdout, zeros.stderr, zeros.returncode) == ("conv1: 50.0% zeros\nrelu1: 100.0% zeros\n", "", 0)
    shown = run(site, tmp_path, "show", "run.toy")
    assert "conv1" in shown.stdout and not shown.stderr
    assert run(site, tmp_path, "convert", "run.toy", "run.npz").returncode == 0
    assert run(site, tmp_path, "compare", "run.toy", "run.npz").returncode == 0
    assert "zeros in each tensor" in run(site, tmp_path, "--help").stdout
    assert run(site, tmp_path, "zeros", "--help").stdout.startswith("usage: sgsdump zeros DUMP")
    (tmp_path / "bad.toy").write_text("toy 1\nconv1: a\n")
    assert run(site, tmp_path, "show", "bad.toy").stderr == (
        "sgsdump: error: bad.toy, line 2: 'conv1' has something else than numbers\n"
    )


def test_one_variable_leaves_all_plug_ins_out(site: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toy").write_text(RUN)
    for words in (["zeros", "run.toy"], ["show", "run.toy"]):
        assert run(site, tmp_path, *words, SGSDUMP_NO_PLUGINS="1").returncode == 2
    assert "zeros" not in run(site, tmp_path, "--help", SGSDUMP_NO_PLUGINS="1").stdout


def test_the_page_names_what_is_there() -> None:
    page = (DOCS / "plugins.md").read_text(encoding="utf-8")
    dotted = re.findall(r"`(sgsdump(?:\.\w+)+)[`(]|from (sgsdump[.\w]+) import", page)
    names = {code or module for code, module in dotted} - {"sgsdump.zeros_of"}
    assert {"sgsdump.plugins", "sgsdump.dumps.format.Format"} <= names
    for name in names:
        pkgutil.resolve_name(name)
    (line,) = re.findall(r"^toy = .*$", page, re.MULTILINE)
    assert line in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    assert sum(len(file.read_text().splitlines()) for file in EXAMPLE.iterdir() if file.is_file()) <= 70


class Installed:
    """Modules and entry points on sys.path, as pip puts them there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, lines: str, **modules: str) -> None:
        info = self.folder / "toy-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[sgsdump.plugins]\n{lines}\n")
        for name, text in modules.items():
            (self.folder / f"{name}.py").write_text(text)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installed]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    caches = plugins.installed, plugins.further
    for cached in caches:
        cached.cache_clear()
    yield Installed(folder)
    for cached in caches:
        cached.cache_clear()
    for name in [name for name in sys.modules if name.startswith("toy_")]:
        del sys.modules[name]


HEAD = "from sgsdump.plugins import Command, Plugin\n"
BROKEN = {
    "a module that is not there": ("toy = toy_absent:PLUGIN", "", "No module named 'toy_absent'"),
    "a module that raises": ("toy = toy_plugin:PLUGIN", "raise RuntimeError('no\\nlicence')", "no\\nlicence"),
    "no such name": ("toy = toy_plugin:PLUGIN", "", "has no attribute 'PLUGIN'"),
    "a module that ends the process": ("toy = toy_plugin:PLUGIN", "raise SystemExit(3)", "left out: 3"),
    "no record": ("toy = toy_plugin:PLUGIN", "PLUGIN = {}", "is a dict, not an sgsdump.plugins.Plugin"),
    "a table of something else": (
        "toy = toy_plugin:PLUGIN",
        HEAD + "PLUGIN = Plugin(commands={'zeros': 'toy_plugin'})",
        "commands of toy_plugin:PLUGIN is not a dictionary that maps names to Command",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plug_in_is_one_line(case: str, install: Installed) -> None:
    lines, module, reason = BROKEN[case]
    install(lines, toy_plugin=module)
    plain, printed = (run(install.folder, Path(), "--help", SGSDUMP_NO_PLUGINS=value) for value in ("1", "0"))
    assert printed.stdout == plain.stdout and not printed.returncode and not plain.stderr
    (line,) = printed.stderr.splitlines()
    assert line.startswith("sgsdump: warning: the plug-in toy is left out: ") and reason in line


@pytest.mark.parametrize(
    ("format", "reason"),
    {
        "Format('mine', lambda path, head: 1 / 0, None)": "division by zero",
        "7": "toy_plugin:FORMAT is a int",
    }.items(),
)
def test_a_broken_reader_is_left_out(format: str, reason: str, install: Installed) -> None:
    Path("file").write_text("nothing that anyone knows")
    text = f"from sgsdump.dumps.format import Format\n{HEAD}FORMAT = {format}\n"
    install("toy = toy_plugin:PLUGIN", toy_plugin=text + "PLUGIN = Plugin(formats={'mine': 'toy_plugin:FORMAT'})")
    done = run(install.folder, Path(), "show", "file")
    warning, error, *_ = done.stderr.splitlines()
    assert done.returncode == 2
    assert f"plug-in's 'mine' of formats is left out: {reason}" in warning
    assert error.startswith("sgsdump: error: file is not a dump of a known format")


def test_a_reader_that_fails_is_one_line(install: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("mine")
    reader = "Format('mine', lambda path, head: True, lambda path: {}['x'])"
    text = f"from sgsdump.dumps.format import Format\n{HEAD}FORMAT = {reader}\n"
    install("toy = toy_plugin:PLUGIN", toy_plugin=text + "PLUGIN = Plugin(formats={'mine': 'toy_plugin:FORMAT'})")
    assert main(["show", "file"]) == 2
    assert capsys.readouterr().err == "sgsdump: error: file: reader 'mine' of a plug-in failed: 'x'\n"


@pytest.mark.parametrize(("module", "reason"), {"toy_absent": "No module", "toy_plugin": "'add_arguments'"}.items())
def test_a_broken_command_is_one_line(
    module: str, reason: str, install: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"'Count zeros.'\n{HEAD}PLUGIN = Plugin(commands={{'zeros': Command('{module}', 'count zeros')}})"
    install("toy = toy_plugin:PLUGIN", toy_plugin=text)
    assert main(["zeros"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sgsdump: error: the plug-in's command zeros cannot be loaded: ") and reason in line


def test_own_readers_and_commands_are_asked_first(install: Installed) -> None:
    """So a plug-in is not loaded for what they do."""
    sgsdump.save_dump({"x": np.ones(3, np.float32)}, "x.npz")
    install("toy = toy_plugin:PLUGIN", toy_plugin="import traceback; traceback.print_stack(file=open('loaded', 'w'))")
    assert main(["show", "x.npz"]) == 0
    assert main(["compare", "x.npz", "x.npz"]) == 0
    assert sgsdump.calibrate and sgsdump.open_dump("x.npz")._repr_html_()
    for words in (["show", "x.npz"], ["compare", "x.npz", "x.npz"], ["compare", "--help"]):
        assert run(Path("site").resolve(), Path.cwd(), *words).returncode == 0
    assert not Path("loaded").exists(), Path("loaded").read_text()


def test_charts_views_and_names(install: Installed) -> None:
    sgsdump.save_dump({"x": np.ones(3, np.float32)}, "x.npz")
    text = f"""{HEAD}
def save(report, folder):
    path = folder / "toy.txt"
    path.write_text(report.title)
    return [path]

def show(result):
    return f"<b>{{result}}</b>"

zeros_of = save
PLUGIN = Plugin(
    charts={{"toy": "toy_plugin:save"}}, views={{"toy": "toy_plugin:show"}}, names={{"zeros_of": "toy_plugin"}}
)
"""
    install("toy = toy_plugin:PLUGIN", toy_plugin=text)
    assert main(["compare", "x.npz", "x.npz", "--plots", "plots"]) == 0
    assert Path("plots/toy.txt").is_file()
    assert plugins.as_html("toy", 3) == "<b>3</b>"
    assert sgsdump.zeros_of.__module__ == "toy_plugin"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'ones_of'"):
        sgsdump.ones_of  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize(
    ("public", "where", "name"),
    [
        ("sgsdump.msit", "sgsdump.capture.msit", "DumpConfig"),
        ("sgsdump.torchair", "sgsdump.capture.torchair", "CompilerConfig"),
        ("sgsdump.programs.control", "sgsdump.capture.programs.control", "Steps"),
        ("sgsdump.tuning.advice", "sgsdump.fixedpoint.tuning.advice", "Advice"),
    ],
)
def test_packages_that_users_import_keep_their_names(public, where, name):
    """And their classes are one, under either name."""
    module, real = importlib.import_module(public), importlib.import_module(where)
    assert getattr(module, name) is getattr(real, name) and module.__doc__ == real.__doc__ and name in dir(module)
    with pytest.raises(ImportError):
        importlib.import_module(f"{public}.nothing")
    with pytest.raises(ImportError):
        importlib.import_module("sgsdump.nothing")
