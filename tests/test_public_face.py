"""What a user of the package meets first: its names, their help, their examples and their types."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import sgsdump

PACKAGE = Path(sgsdump.__file__).parent
# Types are checked in the checkout: among installed packages mypy takes every other one for the user's too.
CHECKOUT = Path(__file__).parents[1]
MODULES = ("sgsdump.dumps.dump", "sgsdump.dumps.io", "sgsdump.tensors.tensor")
STRICT = (
    *"__init__ dumps/dump dumps/io dumps/runs dumps/trees".split(),
    *"tensors/tensor tensors/types tensors/statistics errors".split(),
)
USER = """
from pathlib import Path

import numpy as np

import sgsdump
from sgsdump import Comparison, Dump, LossWarning, Quant, Record, SgsdumpError, Statistics, Tensor, TensorInfo


def layers(path: Path) -> dict[str, tuple[int, ...] | None]:
    with sgsdump.open_dump(path) as dump:
        part: Dump = dump.select("conv*", "fc?")
        first: Record = part.records[0]
        steps: list[int | None] = [run.step for run in sgsdump.list_runs(path, rank=0)]
        tensor: Tensor = part[first.name]
        info: TensorInfo = tensor.info
        quant: Quant | None = info.quant
        known: Statistics | None = tensor.statistics
        values: np.ndarray = tensor.real(layout="logical")
        print(steps, tensor.name, tensor.shape, tensor.dtype, tensor.layout, tensor.ndim, tensor[0], quant, known)
        sgsdump.save_dump(dump, "copy.npz", on_loss="raise")
        sgsdump.save_dump({"x": np.asarray(tensor) + values}, "x.npz")
        return {name: one.shape for name, one in [*dump.outputs.items(), *dump.inputs.items()]}


def worst(a: Dump, b: Dump) -> str | None:
    comparison: Comparison = sgsdump.compare(a, b)
    return comparison.worst.name if comparison.worst else None


try:
    layers(Path("x.bin"))
except (SgsdumpError, LossWarning) as error:
    print(error, sgsdump.__version__, sgsdump.quant_params)
"""


def test_dir_lists_the_public_names() -> None:
    assert dir(sgsdump) == sorted([*sgsdump.__all__, "__version__"])
    assert all(getattr(sgsdump, name) is not None for name in dir(sgsdump))
    with pytest.raises(AttributeError, match="no attribute 'open_dumps'"):
        sgsdump.open_dumps  # noqa: B018


def test_help_lists_the_public_names() -> None:
    text = pydoc.plain(pydoc.render_doc(sgsdump))
    assert all(name in text for name in sgsdump.__all__)


def test_every_public_name_explains_itself() -> None:
    assert all(inspect.getdoc(getattr(sgsdump, name)) for name in sgsdump.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_are_true(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


def strict(*files: Path) -> None:
    pytest.importorskip("mypy", reason="mypy (the extra lint) is not installed")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_public_modules_and_a_users_file_are_strictly_typed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USER)
    assert (PACKAGE / "py.typed").exists()
    strict(*(CHECKOUT / f"sgsdump/{name}.py" for name in STRICT), tmp_path / "mine.py")


# What README and docs have named to import from, by page or in an example.
DOCUMENTED = {
    "sgsdump.cli": "main",
    "sgsdump.comparison.distribution": "distributions to_pandas",
    "sgsdump.comparison.merge": "merge",
    "sgsdump.errors": "ConfigError MissingExtra SgsdumpError",
    "sgsdump.executors.base": "Configs Executor",
    "sgsdump.executors.conformance": "ExecutorConformance small_feed small_model",
    "sgsdump.executors.table": "open_executor",
    "sgsdump.models.external_data": "in_one_piece",
    "sgsdump.models.model": "graph_inputs",
    "sgsdump.msit": "DumpConfig atb_json_to_onnx register_hook",
    "sgsdump.progress": "Progress",
    "sgsdump.reports.comparison": "REPORTS",
    "sgsdump.reports.html.document": "render",
    "sgsdump.torchair": "CompilerConfig get_npu_backend",
    "sgsdump.fixedpoint.tuning.advice": "to_pandas",
}


@pytest.mark.parametrize("module", DOCUMENTED)
def test_documented_import_paths_go_on(module: str) -> None:
    assert [name for name in DOCUMENTED[module].split() if not hasattr(importlib.import_module(module), name)] == []


def test_the_schema_stays_where_programs_look_for_it() -> None:
    assert (PACKAGE / "reports" / "schemas" / "comparison.json").is_file()


def test_verbs_are_no_rooms() -> None:
    """A room or module of such a name would hide the public function."""
    verbs = "dump calibrate simulate diagnose tune histogram compare report convert show split merge cure"
    for verb in [*verbs.split(), "check"]:
        assert not (PACKAGE / verb).exists() and not (PACKAGE / f"{verb}.py").exists(), verb


def test_capture_is_a_function_and_a_plug_in(tmp_path: Path) -> None:
    """Importing the plug-in binds its name where the function's was."""
    program = """
import sgsdump
from sgsdump import capture
import sgsdump.capture.msit as msit
assert msit.DumpConfig
for function in (capture, sgsdump.capture):
    try:
        with function("folder", statistics=True):
            pass
    except sgsdump.SgsdumpError as error:
        print(type(error).__name__)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True)
    first, second = ran.stdout.split()
    assert first == second
