"""One run held as several tools leave it: whatever two of them are compared, tensors find each other and lie right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from one_run import run_pipeline

from sgsdump import Dump, Record, Tensor, compare, open_dump, save_dump
from sgsdump.comparison.golden import compare_golden
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.formats.sigmastar.binary import SIM, SIM_SHAPED
from sgsdump.dumps.formats.sigmastar.text_dump import FRAMEWORK
from sgsdump.tensors.types import to_nchw

OUTPUTS = ["block/conv:0", "block/relu:0", "block/conv2:0", "block/add:0"]
FORMS = {
    "container": ("sigmastar_bin", SIM_SHAPED),
    "older container": ("sigmastar_bin", SIM),
    "text": ("sigmastar_text", FRAMEWORK),
    **{name: (name, None) for name in ("npz", "npy_dir", "safetensors", "atb_tree")},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dump]:
    """The run as the pipeline leaves it (NCHW), and converted; its outputs are cubes, whose shapes tell no layout."""
    folder = tmp_path_factory.mktemp("run")
    run_pipeline(folder / "pipeline")
    found = {"pipeline": open_dump(folder / "pipeline")}
    for form, (format, variant) in FORMS.items():
        FORMATS[format].write(found["pipeline"].records, folder / form, variant)
        found[form] = open_dump(folder / form)
        assert found[form].format == format
    return found


def with_noise(dump: Dump, amount: float) -> Dump:
    """The dump with every tensor turned into noise, the same in the same place of the logical tensor."""
    noise = np.random.default_rng(9).normal(size=(1, 5, 5, 5)).astype(np.float32)

    def noisy(record: Record) -> Record:
        info = record.tensor.info
        mine = noise if info.layout == "NCHW" else noise.transpose(0, 2, 3, 1)
        values = record.tensor.stored() + amount * mine.reshape(record.tensor.stored().shape)
        return replace(record, tensor=Tensor(info, lambda: values))

    return Dump(list(map(noisy, dump.records)), dump.format)


@pytest.mark.parametrize("benchmark", ["pipeline", *FORMS])
@pytest.mark.parametrize("sample", ["pipeline", *FORMS])
def test_any_two_forms_of_one_run_are_equal(runs: dict[str, Dump], sample: str, benchmark: str) -> None:
    found = compare(runs[sample], runs[benchmark])
    assert [row.name for row in found.rows if row.io == "out"] == OUTPUTS
    assert not found.failed and {row.paired for row in found.rows} == {"name"}
    for row in found.rows:
        assert row.cos > 1 - 1e-9 and row.rmse < 1e-5, row
        assert "COS" not in row.note, f"guessed: {row.note}"


@pytest.mark.parametrize("benchmark", ["container", "older container", "text"])
@pytest.mark.parametrize("sample", ["pipeline", "npz", "atb_tree"])
def test_known_layouts_decide_however_far_the_values_are_apart(
    runs: dict[str, Dump], sample: str, benchmark: str
) -> None:
    expected = compare(with_noise(runs["pipeline"], 3), runs["pipeline"]).rows
    for a, b in ((sample, benchmark), (benchmark, sample)):
        rows = [row for row in compare(with_noise(runs[a], 3), runs[b]).rows if row.io == "out"]
        for row, plain in zip(rows, expected, strict=True):
            assert row.cos < 0.98 and row.mse == pytest.approx(plain.mse, rel=1e-4)


def test_known_layouts_decide_between_three_dumps(runs: dict[str, Dump]) -> None:
    noisy = with_noise(runs["container"], 3)
    found = compare_golden(noisy, runs["container"], runs["pipeline"])
    plain = compare_golden(with_noise(runs["pipeline"], 3), runs["pipeline"], runs["pipeline"])
    assert len(found.rows) == len(OUTPUTS)
    for row, expected in zip(found.rows, plain.rows, strict=True):
        assert row.mean_sw == pytest.approx(expected.mean_sw) and row.max_g == 0


def test_names_as_the_sdk_writes_them_find_the_others(runs: dict[str, Dump], tmp_path: Path) -> None:
    for name in OUTPUTS:
        array = runs["pipeline"][name].stored()
        np.save(tmp_path / f"{name.replace('/', '_').replace(':', '')}.npy", array)
    for form in ("pipeline", *FORMS):
        found = compare(open_dump(tmp_path), runs[form])
        assert [row.paired for row in found.rows if row.io == "out"] == ["normalised name"] * len(OUTPUTS)
        assert all(row.cos > 1 - 1e-9 for row in found.rows)


def test_where_no_layout_is_known_the_better_way_is_kept_and_told(runs: dict[str, Dump], tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", **{name.replace("/", "_"): runs["pipeline"][name].stored() for name in OUTPUTS})
    for row in compare(open_dump(tmp_path / "plain.npz"), runs["container"]).rows:
        assert "benchmark transposed NHWC to NCHW (COS" in row.note
        np.testing.assert_allclose(row.cos, 1)
    container = runs["container"][OUTPUTS[0]].stored()
    np.testing.assert_array_equal(to_nchw(container), runs["pipeline"][OUTPUTS[0]].stored())


def test_operators_own_inputs_are_compared_after_a_conversion_too(shared: Path, tmp_path: Path) -> None:
    tree = open_dump(shared / "ascend/atb_dump_tree/all_f0", step=1)
    direct = compare(tree, tree)
    assert {row.io for row in direct.rows} == {"in", "out"}
    for format in ("npy_dir", "npz", "safetensors"):
        save_dump(tree, tmp_path / format, format)
        other = open_dump(tmp_path / format)
        for pair in ((tree, other), (other, tree), (other, other)):
            assert [row.name for row in compare(*pair).rows] == [row.name for row in direct.rows]


def test_networks_inputs_stay_out_of_a_comparison(runs: dict[str, Dump]) -> None:
    for form in ("pipeline", "container", "npz"):
        assert {row.io for row in compare(runs[form], runs[form]).rows} == {"out"}
