"""``sgsdump compare`` of two trees of several runs: a table for each pair of runs, then the first that differs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from sgsdump.commands.compare.files import of_run
from sgsdump.errors import ConfigError, FormatError, ValuesError
from sgsdump.files.escaping import for_terminal, shown

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.dumps.runs import PairedDumps, Run, RunPairs

Compare = Callable[[argparse.Namespace, "list[Comparison]"], int]


class _Compared(NamedTuple):
    """A pair of runs and how it went: ``differs`` says where and is "" where every value that was compared is equal,
    ``apart`` how many layers only one side has."""

    run: Run
    status: int
    differs: str
    by_rounding: bool = False
    apart: int = 0


def pairs_of_trees(args: argparse.Namespace) -> RunPairs | None:
    """The runs to compare; None where neither side is left with several, and where a comparison of one says what is
    wrong. Raises ConfigError where none pair."""
    from sgsdump.dumps.runs import pair_runs
    from sgsdump.dumps.trees import list_runs

    try:
        sides = [list_runs(path, args.step, args.rank) for path in (args.sample, args.benchmark)]
    except FormatError:
        return None
    if args.golden is not None or not all(sides) or all(len(runs) == 1 for runs in sides):
        return None
    if args.write_name_map is not None:
        raise ConfigError(
            f"--write-name-map is for one run, here are {max(map(len, sides))}: choose with --step, --rank"
        )
    pairs = pair_runs(*sides)
    if not pairs.pairs:
        raise ConfigError(
            f"no run of {args.sample} ({sides[0][0]} …) is of the step and rank of one of {args.benchmark} "
            f"({sides[1][0]} …); choose one of each: TREE@step=N"
        )
    return pairs


def paired_trees(args: argparse.Namespace) -> PairedDumps | None:
    """The same pairs as ``--runs`` takes them, by what is known of the benchmark's run; None as above."""
    from sgsdump.dumps.runs import PairedDumps
    from sgsdump.dumps.trees import tree_of

    found = pairs_of_trees(args)
    if found is None:
        return None
    mine, theirs = tree_of(args.sample), tree_of(args.benchmark)
    names = [str(run) for _, run in found.pairs]
    return PairedDumps(
        {
            name if names.count(name) == 1 else run.place: (mine / one.place, theirs / run.place)
            for name, (one, run) in zip(names, found.pairs)
        },
        tuple(map(str, found.only_in_sample)),
        tuple(map(str, found.only_in_benchmark)),
    )


def of_one_run(args: argparse.Namespace) -> argparse.Namespace:
    """The options for a pair of runs that are chosen already."""
    own = copy(args)
    own.step = own.rank = None
    return own


def compare_runs(args: argparse.Namespace, pairs: RunPairs, compare: Compare) -> int:
    """Compare the pairs one after the other and print a summary. The status is the worst of theirs: trouble with one
    pair is reported in its place and does not keep the others from being compared."""
    from sgsdump.dumps.trees import tree_of

    trees = tree_of(args.sample), tree_of(args.benchmark)
    labels = [_label(run) for _, run in pairs.pairs]
    results: list[_Compared] = []
    for mine, run in pairs.pairs:
        print(for_terminal(_title(mine, run)))
        own = of_one_run(args)
        own.sample, own.benchmark = (tree / one.place for tree, one in zip(trees, (mine, run)))
        label = _label(run) if labels.count(_label(run)) == 1 else _in_a_name(run.place)
        of_run(own, label)
        results.append(_compared(own, run, compare))
        print()
    for side, runs in (("sample", pairs.only_in_sample), ("benchmark", pairs.only_in_benchmark)):
        if runs:
            print(for_terminal(f"Only in the {side}: {'; '.join(shown(str(run)) for run in runs)}"))
    apart = [result for result in results if result.differs]
    real = [result for result in apart if not result.by_rounding]
    alone = f", by rounding alone: {len(apart) - len(real)}" if len(real) < len(apart) else ""
    print(f"Runs compared: {len(results)}, of which differ: {len(apart)}{alone}.")
    if apart:
        first = (real or apart)[0]
        more = " by more" if real and alone else ""
        print(for_terminal(f"The first that differs{more} is {shown(str(first.run))}: {first.differs}"))
    one_sided = [result for result in results if result.apart]
    if one_sided:
        first = one_sided[0]
        told = f"first in {shown(str(first.run))}, {first.apart}"
        print(
            for_terminal(f"Runs with layers that only one side has: {len(one_sided)}, {told}; they are listed there.")
        )
    return max(result.status for result in results)


def _compared(args: argparse.Namespace, run: Run, compare: Compare) -> _Compared:
    done: list[Comparison] = []
    try:
        status = compare(args, done)
    except (FormatError, ValuesError) as error:
        print(for_terminal(f"not compared: {error}"))
        return _Compared(run, 2, f"not compared: {error}")
    apart = len(done[0].only_in_sample) + len(done[0].only_in_benchmark)
    return _Compared(run, status, *_difference(done[0]), apart)


def _difference(comparison: Comparison) -> tuple[str, bool]:
    """Where two runs are not equal, the first layer that is not, and whether it is all by rounding; else "". NaN and
    Inf in the same places are equal."""
    from sgsdump.comparison.dataflow import differs, first_difference, is_rounding

    first = first_difference(comparison)
    if first is not None:
        count = sum(map(differs, comparison))
        more = first_difference(comparison, beyond_rounding=True)
        if more is None:
            return f"{count} of {len(comparison)} layers, by rounding alone, first {shown(first.where)}", True
        by = " beyond rounding" if is_rounding(first.output) else ""
        of = f"{shown(more.where)}, {more}" if more.is_placed else shown(more.output.name)
        return f"{count} of {len(comparison)} layers, first{by} {of}", False
    if not comparison.failed:
        return "", False
    failed = comparison.failed[0]
    of = f"{len(comparison.failed)} of {len(comparison.failed) + len(comparison)}"
    where = f"{shown(failed.pair.benchmark.name)}: {shown(failed.reason)}"
    return f"{of} layers cannot be compared, first {where}", False


def _title(mine: Run, run: Run) -> str:
    return shown(f"== {run}" if str(mine) == str(run) else f"== {mine} against {run}")


def _label(run: Run) -> str:
    """What tells a run's files from those of others, ``step3-rank0``; its folder where nothing of it is known."""
    facts = [("step", run.step), ("rank", run.rank), ("", run.graph)]
    return _in_a_name("-".join(f"{name}{value}" for name, value in facts if value not in (None, "")) or run.place)


def _in_a_name(text: str) -> str:
    return text.replace("/", "_")
