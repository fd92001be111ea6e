"""A Comparison as what a notebook holds: made of paths, asked by name, iterated, shown, turned into a DataFrame."""

import doctest
import sys
from pathlib import Path

import numpy as np
import pytest

import sgsdump
import sgsdump.comparison.compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.errors import ConfigError, FormatError, MissingExtra
from sgsdump.tensors.tensor import Tensor

VALUES = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 2, 3, 4)


def dump(*names: str, factor: float = 1.0) -> Dump:
    arrays = {name: VALUES * np.float32(factor) for name in names}
    return Dump(
        [Record("out", 0, i, "Conv", Tensor.of(n, a, op_type="Conv")) for i, (n, a) in enumerate(arrays.items())]
    )


@pytest.fixture
def comparison():
    return sgsdump.compare(dump("conv1", "relu1", "mine", factor=1.5), dump("conv1", "relu1", "yours"))


def test_paths_and_dumps_are_the_same(tmp_path):
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for path, factor in zip(paths, (1.5, 1.0)):
        sgsdump.save_dump(dump("conv1", factor=factor), path, format="npz")
    expected = sgsdump.compare(*map(sgsdump.open_dump, paths))
    assert expected.rows[0].rmse == pytest.approx(0.5)
    for sample, benchmark in (paths, map(str, paths), (paths[0], sgsdump.open_dump(paths[1]))):
        assert sgsdump.compare(sample, benchmark) == expected


def test_a_path_that_is_no_dump_and_what_is_no_path(tmp_path):
    with pytest.raises(FormatError, match="no such file"):
        sgsdump.compare(tmp_path / "no.bin", dump("a"))
    with pytest.raises(ConfigError, match="takes Dump objects or paths, not ndarray"):
        sgsdump.compare(VALUES, dump("a"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metrics": "mae"}, r"metrics must be a list of names, not a string; write metrics=\['mae'\]"),
        ({"metrics": "mae,diff2"}, r"write metrics=\['mae', 'diff2'\]"),
        ({"name_map": "names.json"}, "name_map must be a mapping .*read_name_sources"),
        ({"name_map": Path("names.json")}, "name_map must be a mapping"),
        ({"metrics": ["maee"]}, "unknown metric 'maee'; did you mean 'mae'"),
        ({"compatible": "msaccucm"}, "did you mean 'msaccucmp'"),
    ],
)
def test_a_string_where_a_list_is_meant_is_said(wrong, message):
    with pytest.raises(ConfigError, match=message):
        sgsdump.compare(dump("a"), dump("a"), **wrong)


def test_rows_by_name_and_as_a_collection(comparison):
    assert comparison["relu1"] is comparison.rows[1]
    assert len(comparison) == 2 and [row.name for row in comparison] == ["conv1", "relu1"] and list(comparison)
    assert "conv1" in comparison and comparison.rows[0] in comparison and "mine" not in comparison


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("conv2", "no compared layer 'conv2'; did you mean 'conv1'?"),
        ("mine", "'mine' was not compared: no output of this name in the benchmark"),
        ("yours", "'yours' was not compared: no output of this name in the sample"),
    ],
)
def test_an_unknown_name_says_which_are_near_or_why_it_was_not_compared(comparison, name, message):
    with pytest.raises(KeyError) as caught:
        comparison[name]
    assert message in caught.value.args[0]


def test_a_name_that_failed_says_why():
    other = Dump([Record("out", 0, 0, "Conv", Tensor.of("conv1", VALUES[:, 1:]))])
    with pytest.raises(KeyError, match="'conv1' was not compared: sizes differ"):
        sgsdump.compare(dump("conv1"), other)["conv1"]


def test_the_first_of_several_rows_of_one_name():
    twice = Dump([*dump("a").records, *dump("a", factor=2).records])
    found = sgsdump.compare(twice, twice)
    assert len(found) == 2 and found["a"] is found.rows[0]


def test_repr_is_the_verdict(comparison):
    first, cause, following, completeness = repr(comparison).splitlines()
    assert first == "DIFFERS: layer conv1 RMSE 0.5; 2 of 2 layers differ; the sample lacks 1 layer (yours)."
    assert cause.startswith(
        "Cause: layer conv1 (Conv), inferred from error metrics only, with the layers in file order: "
    )
    assert following.startswith("Next: ") and completeness.startswith("Compared: 2 of 3 layers; ")
    assert repr(sgsdump.compare(dump("a"), dump("b"))).startswith("INCOMPLETE: ")


def test_to_pandas():
    pandas = pytest.importorskip("pandas")
    found = sgsdump.compare(dump("a", "b", factor=1.5), dump("a", "b"), metrics=["mae"], compatible="msprobe")
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["name"]) == ["a", "b"]
    assert frame["rmse"][0] == found["a"].rmse and frame["mae"][1] == found["b"].extra["mae"]
    assert frame["vendor MaxAbsErr"][0] == found["a"].vendor["MaxAbsErr"]
    empty = sgsdump.compare(dump("a"), dump("b")).to_pandas()
    assert len(empty) == 0 and {"name", "mse", "cos", "rmse", "note"} <= set(empty.columns)


def test_to_pandas_without_pandas_says_what_to_install(comparison, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'sgsdump\[pandas\]'"):
        comparison.to_pandas()


def test_the_documented_examples_run():
    result = doctest.testmod(sgsdump.comparison.compare)
    assert result.attempted and not result.failed
