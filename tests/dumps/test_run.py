"""Runs of a tree: choosing one by option or behind the path, and what is said where that cannot be.

Which runs of two trees are compared with each other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sgsdump import open_dump, save_dump
from sgsdump.dumps.runs import Choice, Run, chosen, joined, one_of, pair_runs, split_choice
from sgsdump.dumps.trees import list_runs, tree_of
from sgsdump.errors import ConfigError, FormatError

TREE = Path("tree")
RUNS = [Run(f"{step}/{rank}", rank, step, "net/1") for step in (10, 2) for rank in (1, 0)]


@pytest.mark.parametrize(
    ("path", "tree", "choice"),
    [
        ("tree@step=3", "tree", Choice(3)),
        ("a/tree/@rank=0", "a/tree", Choice(None, 0)),
        ("tree@graph=net*,step=2,rank=1", "tree", Choice(2, 1, "net*")),
        ("tree@graph=net/1", "tree", Choice(graph="net/1")),
        ("@step=0", ".", Choice(0)),
        ("mail@step", "mail@step", Choice()),
        ("a@b", "a@b", Choice()),
    ],
)
def test_a_choice_stands_behind_the_path(path: str, tree: str, choice: Choice) -> None:
    assert split_choice(Path(path)) == (Path(tree), choice)


@pytest.mark.parametrize(
    "words", ["step=", "step=x", "step=-1", "step=1,", "step=1,step=1", "rank=1,place=x", "step=１"]
)
def test_a_choice_that_cannot_be_read_is_told(words: str) -> None:
    with pytest.raises(ConfigError, match=r"does not select a run; use step=N, .* as in TREE@step=3,rank=0"):
        split_choice(Path(f"tree@{words}"))


def test_runs_come_step_by_step() -> None:
    assert [run.place for run in chosen(TREE, RUNS, Choice())] == ["2/0", "2/1", "10/0", "10/1"]
    assert [run.place for run in chosen(TREE, RUNS, Choice(rank=1))] == ["2/1", "10/1"]
    assert chosen(TREE, RUNS, Choice(0 + 2, 0, "net")) == [RUNS[3]]
    assert chosen(TREE, RUNS, Choice(2, 0, "n[de]t/?")) == [RUNS[3]]
    assert chosen(TREE, [], Choice(1)) == []


def test_what_cannot_be_chosen_is_told_with_what_there_is() -> None:
    listed = "step 2, rank 0, graph net/1; step 2, rank 1, graph net/1; step 10, rank 0, graph net/1 …"
    with pytest.raises(ConfigError) as none:
        chosen(TREE, RUNS, Choice(3, 1))
    assert str(none.value) == f"tree has no run with step 3, rank 1; it has {listed}"
    with pytest.raises(ConfigError) as several:
        one_of(TREE, chosen(TREE, RUNS, Choice()), Choice())
    assert str(several.value) == (
        f"tree holds 4 runs ({listed}); choose one run with --step and --rank, or write tree@step=…,rank=…"
    )
    with pytest.raises(ConfigError, match=r"; write tree@step=2,rank=…$"):
        one_of(TREE, chosen(TREE, RUNS, Choice(2)), Choice(2))
    with pytest.raises(ConfigError, match=r"\(a; b\); name the folder of one$"):
        one_of(TREE, [Run("a", 0, 0), Run("b", 0, 0)], Choice())
    with pytest.raises(ConfigError, match=r"two numbers are given for step: 1 and 2\. Give only one"):
        joined(TREE, Choice(1), Choice(2))
    assert joined(TREE, Choice(1, None, "x"), Choice(None, 0)) == Choice(1, 0, "x")


def test_a_dump_that_is_no_tree_has_no_runs(tmp_path: Path) -> None:
    save_dump({"x": np.float32([1])}, tmp_path / "x.npz")
    assert list_runs(tmp_path / "x.npz") == []
    with pytest.raises(
        ConfigError, match="is a single dump, not a tree of runs; step 0, rank 1 cannot be selected in it"
    ):
        open_dump(tmp_path / "x.npz", 0, 1)
    with pytest.raises(ConfigError, match="is a single dump"):
        open_dump(f"{tmp_path}/x.npz@step=0")
    with pytest.raises(FormatError, match=r"no such file: .*y.npz$"):
        open_dump(f"{tmp_path}/y.npz@step=0")


def test_a_file_whose_name_looks_like_a_choice_is_opened(tmp_path: Path) -> None:
    save_dump({"x": np.float32([1])}, tmp_path / "x@step=1.npz")
    assert list(open_dump(tmp_path / "x@step=1.npz")) == ["x"]
    assert tree_of(tmp_path / "x@step=1.npz") == tmp_path / "x@step=1.npz"
    assert tree_of(tmp_path / "x@step=1") == tmp_path / "x"


def runs(*facts: tuple) -> list[Run]:
    return [Run(f"{number}", *each) for number, each in enumerate(facts)]


def places(pairs: list[tuple[Run, Run]]) -> list[tuple[str, str]]:
    return [(mine.place, theirs.place) for mine, theirs in pairs]


def test_steps_and_ranks_pair_with_their_like_in_the_benchmarks_order() -> None:
    result = pair_runs(runs((1, 10), (0, 10), (0, 2)), runs((0, 2), (1, 10), (1, 3)))
    assert places(result.pairs) == [("2", "0"), ("0", "1")]
    assert [run.place for run in result.only_in_sample] == ["1"]
    assert [run.place for run in result.only_in_benchmark] == ["2"]


def test_the_only_step_or_rank_of_each_side_pairs_whatever_its_number() -> None:
    assert places(pair_runs(runs((0, 7)), runs((3, 1))).pairs) == [("0", "0")]
    result = pair_runs(runs((0, 1), (0, 2)), runs((5, 2), (5, 1)))
    assert places(result.pairs) == [("0", "1"), ("1", "0")]


def test_graphs_pair_by_name_without_its_time_and_else_in_their_order() -> None:
    mine = runs((0, 0, "ge_20200808163719_2/1"), (0, 0, "ge_20200808163719_11/1"))
    theirs = runs((0, 0, "ge_20260101000000_11/1"), (0, 0, "ge_20260101000000_2/1"))
    assert places(pair_runs(mine, theirs).pairs) == [("0", "1"), ("1", "0")]
    other = runs((0, 0, "net_3/1"), (0, 0, "net_4/1"))
    assert places(pair_runs(mine, other).pairs) == [("0", "0"), ("1", "1")]
    result = pair_runs(mine, other[:1])
    assert not result.pairs and len(result.only_in_sample) == 2 and len(result.only_in_benchmark) == 1


def test_runs_that_a_tree_holds_twice_pair_in_their_order_or_not_at_all() -> None:
    assert places(pair_runs(runs((0, 0), (0, 0)), runs((0, 0), (0, 0))).pairs) == [("0", "0"), ("1", "1")]
    result = pair_runs(runs((0, 0), (0, 0))[::-1], runs((0, 0), (0, 0)))
    assert places(result.pairs) == [("0", "0"), ("1", "1")]
    result = pair_runs(runs((0, 0), (0, 0)), runs((0, 0)))
    assert not result.pairs and len(result.only_in_sample) == 2
