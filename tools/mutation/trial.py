"""Try a mutant: write it into the scratch tree, run tests on it in a forked process, put the file back.

Forking spares every trial the import of numpy, onnx and onnxruntime, which the parent has loaded; the package itself
is imported afresh by every child.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest
from _pytest.config import default_plugins

MOST_MEMORY = 12 * 2**30
# Plain assertions: rewriting them would cost each trial more than most tests do.
PYTEST = ["-q", "--import-mode=importlib", "-o", "addopts=", "--assert=plain", "--tb=line"]
PYTEST += [word for plugin in ("cacheprovider", "xdist", "doctest", "junitxml") for word in ("-p", f"no:{plugin}")]
KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"
NOT_COLLECTED = 90
# What a copy of the checkout holds: what the tests read.
COPIED = ("sgsdump", "tests", "tools", "cfg", "docs", "benchmarks", ".ci")
COPIED += ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml", "setup.py", "MANIFEST.in")


class Chosen:
    """The pytest plugin that keeps the tests asked for, in their order."""

    def __init__(self, tests: Sequence[str]):
        self.order = {test: place for place, test in enumerate(tests)}
        self.ran = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order), key=lambda item: self.order[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"


def prepare() -> None:
    """Loads what every trial needs; one thread for every library, examples that are the same in every run."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["CI"] = "1"  # the tests' profile of hypothesis without chance and deadlines
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    for name in (
        "numpy",
        "onnx",
        "onnxruntime",
        "ml_dtypes",
        "PIL.Image",
        "hypothesis.extra.numpy",
        "hypothesis.strategies",
    ):
        importlib.import_module(name)
    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    with contextlib.suppress(ImportError):
        importlib.import_module("coverage")
        importlib.import_module("_hypothesis_pytestplugin")
    assert "sgsdump" not in sys.modules


def in_child(tree: Path, work: Callable[[], int], seconds: float, log: Path) -> int | None:
    """The status of ``work`` in a forked process within the tree; None after ``seconds``. ``log`` gets its output."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            os.setsid()
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            os.chdir(tree)
            os.environ["PYTHONPATH"] = str(tree)
            sys.path[:] = [str(tree), *(path for path in sys.path if "tools" not in Path(path).parts)]
            status = int(work())
        finally:
            os._exit(status)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def outcome(tree: Path, path: str, text: str, tests: Sequence[str], seconds: float, scratch: Path) -> str:
    """Whether ``tests`` notice the file ``path`` being ``text``."""
    file = tree / path
    original = file.read_bytes()
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))

    def work() -> int:
        chosen = Chosen(tests)
        temporary = scratch / "tmp"
        code = pytest.main([*PYTEST, "-x", f"--basetemp={temporary}", *files], plugins=[chosen])
        return NOT_COLLECTED if code == 0 and not chosen.ran else int(code)

    try:
        file.write_text(text, encoding="utf-8")
        status = in_child(tree, work, seconds, scratch / "trial.log")
    finally:
        file.write_bytes(original)
        shutil.rmtree(scratch / "tmp", ignore_errors=True)
    if status is None:
        return TIMED_OUT
    if status in (NOT_COLLECTED, 5):
        raise RuntimeError(f"no test ran for {path}; see {scratch / 'trial.log'}")
    return SURVIVED if status == 0 else KILLED


def copied(root: Path, scratch: Path) -> Path:
    """A copy of the checkout in ``scratch``, the genuine files beside it as they are beside the checkout."""
    tree = scratch / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (root / name).is_file():
            shutil.copy2(root / name, tree / name)
    genuine = scratch / "shared"
    if not genuine.exists() and (root.parent / "shared").is_dir():
        genuine.symlink_to((root.parent / "shared").resolve())
    # Checked by content: a mutant may have the size and the second of what it replaces.
    for name in ("sgsdump", "tests"):
        compileall.compile_dir(tree / name, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return tree
