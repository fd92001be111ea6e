"""Which runs of two trees are compared with each other."""

from __future__ import annotations

from sgsdump.dumps.runs.run import Run
from sgsdump.dumps.runs.run_pairs import pair_runs


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
    result = pair_runs(runs((0, 0), (0, 0)), runs((0, 0)))
    assert not result.pairs and len(result.only_in_sample) == 2
