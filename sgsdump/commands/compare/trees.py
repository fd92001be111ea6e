"""Trees of several runs compared run by run, and what is said of all of them; of many rounds of a program, one screen.
Apart: each pair of runs is compared by the function that the command gives (``two_dumps.compare_two``)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.compare.options import Options
from sgsdump.commands.compare.output import write_files
from sgsdump.commands.opening import has_no_runs
from sgsdump.commands.terminal import print_lines
from sgsdump.errors import ConfigError, FormatError, ValuesError
from sgsdump.files.escaping import for_terminal, shown

if TYPE_CHECKING:
    from sgsdump.comparison.between_rounds import Before
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.finding import Finding
    from sgsdump.comparison.verdict import State, Verdict
    from sgsdump.dumps.runs import PairedDumps, Run, RunPairs

    # The exit status and the comparison of two dumps; False: nothing is printed. The state of the rounds before.
    CompareTwo = Callable[[Options, bool, Before], tuple[int, Comparison]]

MOST_TABLES, MOST_ROWS = 4, 500


@dataclass(frozen=True)
class ComparedRun:
    """A pair of runs and its result.

    state          of the layers that were compared.
    where          where they differ, or why some or all could not be compared; "" for neither.
    unmatched      how many layers only one side has.
    compiled       how many layers are inside a compiled graph of one side.
    blamed         what explains a difference, a line each: arguments, weights, an operator.
    fed            the first input of whole numbers that differs, "" where both were fed the same.
    by_collective  the first difference came from another rank.
    proposals      what makes modules comparable that are not, a line each.
    is_outside     the cause is outside the modules, before this round.
    verdict        the verdict; None if the pair could not be compared.
    """

    run: Run
    status: int
    state: State
    where: str
    unmatched: int = 0
    blamed: tuple[str, ...] = ()
    fed: str = ""
    by_collective: bool = False
    proposals: tuple[str, ...] = ()
    is_outside: bool = False
    compiled: int = 0
    verdict: Verdict | None = None

    @property
    def differs(self) -> bool:
        return self.state in ("differs", "within rounding")


def pairs_of_trees(options: Options) -> RunPairs | None:
    """The runs to compare; None where neither side is left with several, and where a comparison of one says what is
    wrong. Raises ConfigError where none pair."""
    from sgsdump.dumps.runs import pair_runs
    from sgsdump.dumps.trees import list_runs

    reading, paths = options.reading, (options.sample, options.benchmark)
    if any(has_no_runs(reading, path) for path in paths):
        return None
    try:
        sides = [list_runs(path, reading.step, reading.rank) for path in paths]
    except FormatError:
        return None
    if not all(sides) or all(len(runs) == 1 for runs in sides):
        return None
    pairs = pair_runs(*sides)
    if not pairs.pairs:
        raise ConfigError(
            f"no run of {options.sample} ({sides[0][0]} …) has the same step and rank as a run of "
            f"{options.benchmark} ({sides[1][0]} …); select one run of each tree with TREE@step=N"
        )
    return pairs


def paired_trees(options: Options) -> PairedDumps | None:
    """The same pairs as ``--runs`` takes them, by what is known of the benchmark's run; None as above."""
    from sgsdump.dumps.runs import PairedDumps
    from sgsdump.dumps.trees import tree_of

    runs = pairs_of_trees(options)
    if runs is None:
        return None
    sample_tree, benchmark_tree = tree_of(options.sample), tree_of(options.benchmark)
    names = [str(run) for _, run in runs.pairs]
    return PairedDumps(
        {
            name if names.count(name) == 1 else benchmark.place: (
                sample_tree / sample.place,
                benchmark_tree / benchmark.place,
            )
            for name, (sample, benchmark) in zip(names, runs.pairs)
        },
        tuple(map(str, runs.only_in_sample)),
        tuple(map(str, runs.only_in_benchmark)),
    )


def compare_trees(options: Options, pairs: RunPairs, compare: CompareTwo) -> int:
    """Compare the pairs one after the other and print a summary. The status is the worst of theirs: trouble with one
    pair is reported in its place and does not keep the others from being compared."""
    from sgsdump.dumps.trees import tree_of
    from sgsdump.reports.text import counted

    trees = tree_of(options.sample), tree_of(options.benchmark)
    labels = [_label(run) for _, run in pairs.pairs]
    results: list[ComparedRun] = []
    if pairs.only_in_benchmark:
        missing = "; ".join(shown(str(run)) for run in pairs.only_in_benchmark)
        print(for_terminal(f"Missing in the sample: {counted(len(pairs.only_in_benchmark), 'run')}: {missing}"))
    for run in pairs.only_in_benchmark:
        _write_missing(options, run)
    of_pairs: list[tuple[Options, Run, Run]] = []
    for sample, run in pairs.pairs:
        label = _label(run) if labels.count(_label(run)) == 1 else _in_a_name(run.place)
        pair = options.of_pair(trees[0] / sample.place, trees[1] / run.place)
        of_pairs.append((replace(pair, output=options.output.labelled(label)), sample, run))
    is_by_token = _is_by_token(options, pairs)
    if is_by_token:
        results = compare_tokens(of_pairs, trees, compare)
    else:
        for pair, sample, run in of_pairs:
            print(for_terminal(_title(sample, run)))
            results.append(_compare_pair(pair, run, compare, state_before(results, run))[0])
            print()
    for side, runs in (("sample", pairs.only_in_sample), ("benchmark", pairs.only_in_benchmark)):
        if runs:
            print(for_terminal(f"Only in the {side}: {'; '.join(shown(str(run)) for run in runs)}"))
    print_lines(_order_lines(pairs))
    if not is_by_token:
        print_lines(map(shown, verdict_lines_of(results)))
    print_summary(results, is_by_token)
    measuring = options.measuring
    lacks = bool(pairs.only_in_benchmark and measuring.has_limits and not measuring.allow_missing)
    return max(lacks, *(result.status for result in results))


def whole_round(options: Options) -> Run | None:
    """The one round that each side is left with, where its table is more than anyone reads, and neither the round nor a
    list was asked for."""
    from sgsdump.dumps.trees import list_runs, tree_of

    paths = options.sample, options.benchmark
    reading = options.reading
    is_chosen = reading.step is not None or any(tree_of(path) != path for path in paths)
    if is_chosen or _asks_for_list(options) or any(has_no_runs(reading, path) for path in paths):
        return None
    try:
        (sample,), (benchmark,) = (list_runs(path, None, reading.rank) for path in paths)
    except (FormatError, ValueError):
        return None
    is_large = _is_round(sample) and _is_round(benchmark) and _is_large(options.sample, sample)
    return benchmark if is_large else None


def compare_tokens(
    pairs: list[tuple[Options, Run, Run]], trees: tuple[Path, Path], compare: CompareTwo
) -> list[ComparedRun]:
    """Compare the rounds and print, on one screen, which differ, which layers of the first that does, and which
    operators of the first of these. Where the programs went on with other inputs, later rounds are not compared."""
    from sgsdump.dumps.dump import note_lines
    from sgsdump.reports.comparison import tokens
    from sgsdump.reports.three_lines import environment_lines

    results: list[ComparedRun] = []
    rounds: list[tokens.ComparedRound] = []
    detailed: tuple[tokens.ComparedRound, Comparison] | None = None
    environment: Sequence[Finding] = ()
    notes: tuple[dict[str, None], dict[str, None]] = {}, {}
    remaining = list(pairs)
    while remaining:
        pair, _, run = remaining.pop(0)
        result, comparison = _compare_pair(pair, run, compare, state_before(results, run), in_full=False)
        results.append(result)
        if comparison is None:
            continue
        environment = environment or comparison.environment
        for of_side, told in zip(notes, (comparison.sample_notes, comparison.benchmark_notes)):
            of_side.update(dict.fromkeys(told))
        rounds.append(tokens.compared_round(run, comparison))
        first = tokens.first_of(rounds)
        if first is rounds[-1]:
            detailed = first, comparison
        if tokens.diverged_line(rounds, []):
            break
    lines = [
        *verdict_lines_of(results),
        *environment_lines(environment),
        *tokens.all_lines(rounds, detailed, [run for _, _, run in remaining]),
    ]
    print(for_terminal("".join(f"{line}\n" for line in lines)), end="")
    for tree, of_tree in zip(trees, notes):
        print_lines(note_lines(tree, [*of_tree]))
    print("TREE@step=N on both sides shows all layers of a round; --top N, --sort or --only-bad show a table for each.")
    return results


def state_before(results: Sequence[ComparedRun], run: Run) -> Before:
    """Return the state of the rounds of this rank before a run, if they were compared one after the other from 0 on."""
    before = [result for result in results if result.run.rank == run.rank]
    steps = [*(result.run.step for result in before), run.step]
    if not before or steps != [*range(len(steps))]:
        return None
    states = {result.state for result in before}
    if states == {"equal"} and not any(result.where or result.fed for result in before):
        return "equal"
    return "within rounding" if states <= {"equal", "within rounding"} else None


def _compare_pair(
    options: Options, run: Run, compare: CompareTwo, before: Before, in_full: bool = True
) -> tuple[ComparedRun, Comparison | None]:
    try:
        status, comparison = compare(options, in_full, before)
    except (FormatError, ValuesError) as error:
        print(for_terminal(f"not compared: {error}"))
        where = f"{run}, {options.sample} against {options.benchmark}"
        print(for_terminal(f"sgsdump: not compared: {where}: {error}"), file=sys.stderr)
        return ComparedRun(run, 2, "not comparable", str(error)), None
    from sgsdump.reports.comparison.tokens import other_input
    from sgsdump.reports.further_findings import proposal_line
    from sgsdump.reports.verdict import blamed_lines

    compiled = sum(one.compiled for one in comparison.account.left_out)
    unmatched = len(comparison.only_in_sample) + len(comparison.only_in_benchmark) - compiled
    fed, blamed = other_input(comparison), tuple(blamed_lines(comparison))
    by_collective = any("collective" in finding.facts for finding in comparison.causes)
    verdict = options.measuring.verdict_on(comparison, options.measuring.limits())
    state = verdict.state
    proposals = tuple(proposal_line(f) for f in comparison.causes if f.kind == "not comparable")
    outside = any(finding.kind == "between rounds" for finding in comparison.causes)
    where = _where(comparison, state)
    if outside and not where:
        where = f"all {len(comparison)} layers are equal, but an operator outside the modules is not"
    result = ComparedRun(
        run, status, state, where, unmatched, blamed, fed, by_collective, proposals, outside, compiled, verdict
    )
    return result, comparison


def verdict_lines_of(results: Sequence[ComparedRun]) -> list[str]:
    """Return the three lines on all runs, decided by the first run with the worst outcome.

    Runs after the one in which the programs got different inputs do not decide.
    """
    from sgsdump.reports.three_lines import lines_of_runs

    after = _fed_others(list(results))
    counted = [result for result in results if result not in after]
    ranked = sorted(counted, key=lambda result: result.by_collective)  # stable: first in time, collectives last
    return lines_of_runs({str(result.run): result.verdict for result in ranked})


def _where(comparison: Comparison, state: State) -> str:
    """Where two runs differ, the first layer that does; else which layers cannot be compared, "" for none."""
    from sgsdump.comparison.dataflow import first_difference
    from sgsdump.comparison.row import differs, is_rounding
    from sgsdump.comparison.verdict import named_elsewhere

    first = first_difference(comparison)
    if first is None:
        return _of_other_tensors(comparison) or _not_comparable(comparison)
    text = f"{sum(map(differs, comparison))} of {len(comparison)} layers"
    if state == "within rounding":
        return f"{text}, by rounding alone, first {shown(first.where)}"
    more = first_difference(comparison, beyond_rounding=True)
    if more is None:
        return f"{text}, first {shown(first.where)}"
    named = named_elsewhere(comparison.causes, more.output.name)
    if named is not None and (named.kind == "cause" or named.layer != more.output.name):
        return text  # what differs first by more than rounding is made by it
    by = " beyond rounding" if is_rounding(first.output) else ""
    return f"{text}, first{by} {f'{shown(more.where)}, {more}' if more.is_placed else shown(more.output.name)}"


def _of_other_tensors(comparison: Comparison) -> str:
    if not comparison.suspects:
        return ""
    first = shown(comparison.suspects[0].name)
    return (
        f"{len(comparison.suspects)} of {len(comparison)} layers have the same name in both dumps, "
        f"but probably hold different tensors; the first is {first}"
    )


def _not_comparable(comparison: Comparison) -> str:
    failed = comparison.account.not_comparable
    if not failed:
        return ""
    of = f"{len(failed)} of {len(failed) + len(comparison)}"
    return f"{of} layers cannot be compared; the first is {shown(failed[0].name)}: {shown(failed[0].reason)}"


def _write_missing(options: Options, run: Run) -> None:
    """The files of a run that the sample lacks, which say so."""
    from sgsdump.comparison.account import Completeness
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.reports.layers.table import table_of

    output = replace(options.output, html=None, plots=None, annotate=None, write_name_map=None)
    missing = replace(options, output=output.labelled(_label(run)))
    comparison = Comparison((), (), (), (), completeness=Completeness(runs=(str(run),)))
    limits = options.measuring.limits()
    write_files(missing, comparison, limits, table_of(comparison, limits, str(run)), None)


def print_summary(results: list[ComparedRun], by_token: bool) -> None:
    """``by_token``: it stands above from where on the programs were fed other inputs, and no layer is listed."""
    after = _fed_others(results)
    different = [result for result in results if result.differs and result not in after]
    real = [result for result in different if result.state == "differs"]
    unclear = [result for result in results if result.where and not result.differs]
    rounded = f", by rounding alone: {len(different) - len(real)}" if len(real) < len(different) else ""
    not_comparable = f"; with layers that cannot be compared: {len(unclear)}" if unclear else ""
    others = f"; not judged because their inputs differ: {len(after)}" if after else ""
    print(f"Runs compared: {len(results)}; different: {len(different)}{rounded}{not_comparable}{others}.")
    if after and not by_token:
        first = after[0]
        print(
            for_terminal(
                f"From {shown(str(first.run))} on, the programs had different integer inputs ({shown(first.fed)}), for "
                f"example because an earlier token differs. Later differences are not errors."
            )
        )
    if different:
        first = _first_of(real or different)
        more = " beyond rounding" if real and rounded else ""
        print(for_terminal(f"The first run that differs{more} is {shown(str(first.run))}: {first.where}"))
        print_lines(map(shown, first.blamed), "  ")
    if unclear:
        print(for_terminal(f"The first run that cannot be compared: {shown(str(unclear[0].run))}: {unclear[0].where}"))
    print_lines(map(shown, next((result.proposals for result in results if result.proposals), ())), "")
    in_graphs = [result for result in results if result.compiled]
    if in_graphs:
        where = f"{in_graphs[0].compiled} in {shown(str(in_graphs[0].run))}"
        print(
            for_terminal(
                f"Runs with layers that were not compared because one side has them inside a compiled graph: "
                f"{len(in_graphs)}, {where}. To compare these layers, capture the compiled program again with "
                f"sgsdump exec --inside eager."
            )
        )
    one_sided = [result for result in results if result.unmatched]
    if one_sided:
        where = f"the first is {shown(str(one_sided[0].run))} ({one_sided[0].unmatched} layers)"
        listed = "TREE@step=N on both sides lists the layers" if by_token else "its layers are listed above"
        print(for_terminal(f"Runs with layers that only one side has: {len(one_sided)}, {where}; {listed}."))


def _first_of(different: list[ComparedRun]) -> ComparedRun:
    """The first run that differs; of one step a rank that has the error of itself, not by a collective."""
    of_step = [result for result in different if result.run.step == different[0].run.step]
    return next((result for result in of_step if not result.by_collective), different[0])


def _fed_others(results: list[ComparedRun]) -> list[ComparedRun]:
    """The runs from the first on in which the programs were fed other whole numbers, where they began with the same;
    those of one rank follow one another."""
    diverged: list[ComparedRun] = []
    began: dict[int | None, bool] = {}
    for result in results:
        same_so_far = began.setdefault(result.run.rank, not result.fed)
        if same_so_far and (result.fed or any(other.run.rank == result.run.rank for other in diverged)):
            diverged.append(result)
    return [result for result in diverged if not result.is_outside]


def _order_lines(pairs: RunPairs) -> Iterator[str]:
    """Yield how runs were paired, if their order differs or may differ between the sides."""
    others = [pair for pair in pairs.pairs if pair[0].step != pair[1].step]
    if pairs.by_inputs and others:
        first = f"{shown(str(others[0][0]))} of the sample with {shown(str(others[0][1]))}"
        yield (
            f"Pairs of runs of several threads or processes, found by equal inputs: {pairs.by_inputs}. "
            f"Pairs whose two runs have different steps: {len(others)}; the first is {first}."
        )
    if pairs.by_order:
        yield (
            f"The order of the runs may differ: {pairs.by_order} runs of several threads or processes "
            "were paired by position, because the other dump has no unpaired run with the same inputs."
        )
    if pairs.moved:
        yield (
            f"The order of the runs differs: for {pairs.moved} runs, the run with the same inputs is at "
            "another position in the other dump. Select the runs to compare with TREE@step=N on each "
            "side."
        )


def _is_by_token(options: Options, pairs: RunPairs) -> bool:
    """Whether a table for each run is more than anyone reads: of many rounds of a program, or of large ones, where no
    list was asked for."""
    are_rounds = all(map(_is_round, (run for pair in pairs.pairs for run in pair)))
    if not are_rounds or _asks_for_list(options):
        return False
    return len(pairs.pairs) > MOST_TABLES or _is_large(options.sample, pairs.pairs[0][0])


def _asks_for_list(options: Options) -> bool:
    return bool(set(options.given) & {"sort", "top", "only_bad"})


def _is_round(run: Run) -> bool:
    from sgsdump.dumps.formats.rounds.round_file import INDEX_ENDING

    return run.place.endswith(INDEX_ENDING)


def _is_large(path: Path, run: Run) -> bool:
    """Whether a round of a tree has more tensors than a table that is read."""
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.trees import tree_of

    try:
        with open_dump(tree_of(path) / run.place) as dump:
            return len(dump.records) > MOST_ROWS
    except (FormatError, ValuesError):
        return False


def _title(sample: Run, benchmark: Run) -> str:
    return shown(f"== {benchmark}" if str(sample) == str(benchmark) else f"== {sample} against {benchmark}")


def _label(run: Run) -> str:
    """The label of a run's files, ``step3-rank0``; its folder where nothing else is known of it."""
    facts = [("step", run.step), ("rank", run.rank), ("", run.graph)]
    return _in_a_name("-".join(f"{name}{value}" for name, value in facts if value not in (None, "")) or run.place)


def _in_a_name(text: str) -> str:
    return text.replace("/", "_")
