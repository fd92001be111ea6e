"""msprobe's dumps of all its levels and tasks, made by msprobe itself: they open, and ``compare`` gives its figures.

Skips where msprobe is not installed (``pip install mindstudio-probe tensorboard``, with torch); a minute where it is.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from sgsdump import compare, open_dump, save_dump
from sgsdump.dumps.trees import list_runs
from sgsdump.errors import FormatError
from sgsdump.models.operator_list import list_operators
from sgsdump.replay.finiteness import finiteness

if find_spec("msprobe") is None or find_spec("torch") is None:
    pytest.skip("msprobe is not installed", allow_module_level=True)

SCRIPT = Path(__file__).parents[3] / "probe_dumps.py"
STATISTICS = ("Max", "Min", "Mean", "L2norm")
COLUMNS = {
    "statistics": [f"{name} diff" for name in STATISTICS]
    + [f"{name}RelativeErr" for name in ("Max", "Min", "Mean", "Norm")],
    "tensor": [
        *("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"),
        *("One Thousandth Err Ratio", "Five Thousandths Err Ratio"),
    ],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("msprobe")
    subprocess.run([sys.executable, SCRIPT, folder], check=True, capture_output=True)
    return folder


def rows_of(made: Path, name: str) -> list[dict[str, str]]:
    """The rows of msprobe's own table that are of tensors."""
    [table] = (made / f"compared_{name}").glob("*.csv")
    with table.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["NPU Dtype"].startswith("torch.")]


@pytest.mark.parametrize("name", ["statistics_mix", "tensor_mix", "debug"])
def test_every_cell_is_msprobes(made: Path, name: str) -> None:
    rows = rows_of(made, name)
    columns = COLUMNS["tensor" if name == "tensor_mix" else "statistics"]
    ours = {row.name: row.vendor for row in compare(made / f"{name}_large", made / name, compatible="msprobe").rows}
    theirs = {row["NPU Name"]: {column: row[column] for column in columns} for row in rows}
    assert ours == theirs
    assert len(theirs) > (4 if name == "debug" else 100)


@pytest.mark.parametrize("name", ["md5", "xor"])
def test_what_checksums_tell_is_msprobes(made: Path, name: str) -> None:
    rows = rows_of(made, name)
    ours = {row.name: row.errors.checksums for row in compare(made / f"{name}_large", made / name).rows}
    assert ours == {row["NPU Name"]: "equal" if row["Result"] == "pass" else "differ" for row in rows}
    assert set(ours.values()) == {"equal", "differ"}


def test_every_level_and_task_opens_and_converts(made: Path, tmp_path: Path) -> None:
    counts = {}
    for folder in [*made.glob("*_*"), made / "debug"]:
        if (folder / "config.json").exists():
            dump = open_dump(folder)
            assert dump.format == "msprobe_dir" and not dump.notes, folder
            counts[folder.name] = len(dump.records)
    assert counts["tensor_L0"] == counts["statistics_L0"] < counts["tensor_L1"] == counts["statistics_L1"]
    assert counts["tensor_mix"] == counts["statistics_mix"] > counts["tensor_L1"]
    dump = open_dump(made / "tensor_mix")
    save_dump(dump, tmp_path / "mix.npz")
    again = open_dump(tmp_path / "mix.npz")
    assert {name: tensor.dtype for name, tensor in again.items()} == {name: dump[name].dtype for name in dump}
    np.testing.assert_array_equal(
        again["Functional.linear.0.forward.output.0"].stored(), dump["Functional.linear.0.forward.output.0"].stored()
    )


def test_statistics_are_those_of_the_values(made: Path) -> None:
    of_values, of_statistics = open_dump(made / "tensor_mix"), open_dump(made / "statistics_mix")
    assert list(of_values) == list(of_statistics)
    for name, tensor in of_values.items():
        figures, values = of_statistics[name].statistics, tensor.stored()
        assert figures is not None and of_statistics[name].shape == tensor.shape
        if values.dtype.kind == "f" and values.size:
            assert (figures.min, figures.max) == (values.min(), values.max()), name


def test_the_operators_of_a_structure_are_listed(made: Path) -> None:
    with pytest.raises(FormatError, match="show --operators"):
        open_dump(made / "structure")
    [graph] = list_operators(made / "structure")
    operators = {operator.name: dict(operator.attributes) for operator in graph.operators}
    assert operators["Functional.linear.0.forward"]["module"] == "Module.fc.Linear.forward.0"
    assert operators["Torch.exp.0.forward"]["source"].startswith("probe_dumps.py:")


def test_the_operator_that_overflows_is_msprobes(made: Path) -> None:
    [report] = (made / "overflow").glob("*.json")
    [theirs] = json.loads(report.read_text()).values()
    first = finiteness(open_dump(made / "statistics_mix_large")).made[0]
    assert first.output.startswith(f"{theirs[0]['op_name']}.output") and first.place.kind == "exp"


def test_saves_are_runs(made: Path) -> None:
    runs = list_runs(made / "single_save_0")
    assert [(run.step, run.graph) for run in runs] == [
        (step, graph) for step in (0, 1) for graph in ("", "micro_step0", "micro_step1")
    ]
    first = open_dump(f"{made / 'single_save_0'}@step=1,graph=micro_step1")
    assert list(first.outputs) == ["logits", "states.0", "states.1"]
    other = open_dump(f"{made / 'single_save_1'}@step=1,graph=micro_step1")
    assert compare(first, other)["logits"].rmse > 0
    assert list(open_dump(f"{made / 'single_save_0'}@step=0,graph=-").outputs) == ["by_name.k", "loss"]
