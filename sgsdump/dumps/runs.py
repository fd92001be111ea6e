"""Runs of a tree or folder with several dumps: listing, selecting and pairing them.

Tools that dump programs write one folder per step, rank and graph. In all trees, a run is one dump, and its tensor
names do not depend on the rest of the tree. Options or a path suffix select a run by step, rank and graph:
``TREE@step=3,rank=0``.

A comparison of two trees pairs their runs; a comparison of two folders pairs their dumps by name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from sgsdump.errors import ConfigError
from sgsdump.files.folder import in_order

SHOWN = 3
NO_GRAPH = "-"
_SUFFIX = re.compile(r"(?P<tree>.*?)/?@(?P<words>(?:step|rank|graph)=.*)", re.DOTALL)
_WORD = re.compile(r"(step|rank)=([0-9]{1,18})|(graph)=(.+)", re.DOTALL)
_PROCESS = re.compile(r"(?<![^/])[0-9]+_[0-9]+(?=/)")
_TIME = re.compile(r"[0-9]{12,17}")


@dataclass(frozen=True)
class Run:
    """One run of a tree.

    Attributes
    ----------
    place : str
        Folder of the run, relative to the tree, with ``/``; "" for the tree itself.
    rank : int or None
        Global rank of the process, or the device number if there is no rank; None if unknown.
    step : int or None
        Iteration, execution or token; None if unknown.
    graph : str
        Model and its number, ``model/1``; "" if there is none.
    own : int or None
        Number of the run among the runs of its model, from 0, if several models alternate; else None.
    fed : str
        Checksum of the run's inputs; "" if unknown.
    thread : int or None
        Number of the thread within its process; None if unknown.
    """

    place: str = ""
    rank: int | None = None
    step: int | None = None
    graph: str = ""
    own: int | None = None
    fed: str = ""
    thread: int | None = None

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: step, rank, graph, folder, in natural order (``part2`` before ``part10``)."""
        return (_known(self.step), _known(self.rank), in_order(self.graph), in_order(self.place))

    def __str__(self) -> str:
        """Return ``step 3, rank 0, graph model/1``; the folder if none of these is known."""
        return ", ".join(f"{name} {value}" for name, value in self._facts() if value not in (None, "")) or self.place

    def _facts(self) -> list[tuple[str, object]]:
        return [("step", self.step), ("rank", self.rank), ("graph", self.graph)]


@dataclass(frozen=True)
class Choice:
    """Conditions that select runs; None and "" match any run.

    ``graph`` may contain ``*``, ``?`` and ``[ab]`` and may omit the model's number; ``-`` matches runs without a graph.
    """

    step: int | None = None
    rank: int | None = None
    graph: str = ""

    def __bool__(self) -> bool:
        return self != Choice()

    def fits(self, run: Run) -> bool:
        if self.step not in (None, run.step) or self.rank not in (None, run.rank):
            return False
        if self.graph == NO_GRAPH:
            return not run.graph
        return not self.graph or any(fnmatchcase(run.graph, graph) for graph in (self.graph, f"{self.graph}/*"))

    def __str__(self) -> str:
        return str(Run("", self.rank, self.step, self.graph))


class RunPairs(NamedTuple):
    """Pairs of runs (sample, benchmark), sorted by step, and the unpaired runs of each tree.

    by_inputs  number of pairs found by equal inputs, for runs of several threads or processes.
    by_order   number of pairs without equal inputs, paired in order.
    moved      number of single-thread pairs with different inputs although both trees have the same inputs in total.
    """

    pairs: list[tuple[Run, Run]]
    only_in_sample: list[Run]
    only_in_benchmark: list[Run]
    by_inputs: int = 0
    by_order: int = 0
    moved: int = 0


@dataclass(frozen=True)
class PairedDumps:
    """Pairs of dumps with the same name in both folders, in order, and the names in only one folder."""

    pairs: dict[str, tuple[Path, Path]]
    only_in_sample: tuple[str, ...]
    only_in_benchmark: tuple[str, ...]


def split_choice(path: Path) -> tuple[Path, Choice]:
    """Split ``TREE@step=3,rank=0`` into the tree and the selection; return any other path unchanged.

    Raises ConfigError for an invalid selection.
    """
    match = _SUFFIX.fullmatch(str(path))
    if match is None:
        return path, Choice()
    facts: dict[str, str] = {}
    for word in match["words"].split(","):
        pair = _WORD.fullmatch(word)
        name = (pair[1] or pair[3]) if pair else ""
        if pair is None or name in facts:
            raise ConfigError(
                f"{word!r} in {str(path)!r} does not select a run; use step=N, rank=N or graph=NAME, as in "
                "TREE@step=3,rank=0"
            )
        facts[name] = pair[2] or pair[4]
    numbers = {name: int(facts[name]) for name in ("step", "rank") if name in facts}
    return Path(match["tree"] or "."), Choice(**numbers, graph=facts.get("graph", ""))


def joined(path: Path, one: Choice, other: Choice) -> Choice:
    """Combine two selections for ``path``. Raises ConfigError if they contradict each other."""
    for name in ("step", "rank"):
        values = {getattr(one, name), getattr(other, name)} - {None}
        if len(values) > 1:
            raise ConfigError(
                f"{path}: two numbers are given for {name}: {' and '.join(map(str, sorted(values)))}. "
                "Give only one of these numbers"
            )
    step, rank = (getattr(one if getattr(other, name) is None else other, name) for name in ("step", "rank"))
    return Choice(step, rank, other.graph or one.graph)


def chosen(path: Path, runs: Sequence[Run], choice: Choice) -> list[Run]:
    """Return the matching runs of a tree, sorted. Raises ConfigError if the tree has runs but none matches."""
    fitting = sorted((run for run in runs if choice.fits(run)), key=lambda run: run.order)
    if runs and not fitting:
        raise ConfigError(f"{path} has no run with {choice}; it has {_listed(sorted(runs, key=lambda run: run.order))}")
    return fitting


def one_of(path: Path, runs: Sequence[Run], choice: Choice) -> Run:
    """Return the only run. If there are several, raise a ConfigError with advice on how to select one."""
    if len(runs) == 1:
        return runs[0]
    raise ConfigError(f"{path} holds {len(runs)} runs ({_listed(runs)}); {how_to_choose(path, choice, runs)}")


def how_to_choose(path: Path, choice: Choice, runs: Sequence[Run]) -> str:
    """Return advice on how to select one of several matching runs, by the facts in which they differ."""
    different = [name for name in ("step", "rank", "graph") if len({getattr(run, name) for run in runs}) > 1]
    if len({(run.step, run.rank, run.graph) for run in runs}) < len(runs):
        return "name the folder of one"
    asked = [(name, getattr(choice, name)) for name in ("step", "rank", "graph") if name not in different]
    chosen_facts = [f"{name}={value}" for name, value in asked if value not in (None, "")]
    how = f"write {path}@{','.join([*chosen_facts, *(f'{name}=…' for name in different)])}"
    if "graph" not in different and not choice:
        return f"choose one run with {' and '.join(f'--{name}' for name in different)}, or {how}"
    unnamed = "graph" in different and not all(run.graph for run in runs)
    return f"{how} (graph={NO_GRAPH} for the run without a graph)" if unnamed else how


def pair_runs(sample: Sequence[Run], benchmark: Sequence[Run]) -> RunPairs:
    """Pair the runs of two trees with the same step and rank and, among these, with the same graph.

    - Step and rank are ignored if each side has only one value. Times in graph names are ignored.
    - Runs whose graph names differ or repeat are paired in order if both sides have the same number of them.
    - If the same models alternate in both trees, the n-th runs of a model are paired.
    - Runs of several threads or processes have no defined order; they are paired by equal inputs.
    """
    sides = [sorted(side, key=lambda run: run.order) for side in (sample, benchmark)]
    if all(run.fed for side in sides for run in side) and any(map(_is_of_several_threads, sides)):
        return _pairs_by_inputs(sides)
    result = _pairs_by_step(sample, benchmark)
    return result._replace(moved=_moved(result.pairs))


def _pairs_by_inputs(sides: list[list[Run]]) -> RunPairs:
    """Pair runs with equal inputs.

    Among several candidates, prefer the run whose predecessor in its thread is already paired with this run's
    predecessor. Runs without equal inputs come last, in order.
    """
    graphs = [{run.graph for run in side} for side in sides]
    facts = ["rank"] if any(_varies(side, "rank") for side in sides) else []
    if graphs[0] == graphs[1]:
        facts.append("graph")

    def key(run: Run) -> tuple[object, ...]:
        return (run.fed, *(getattr(run, name) for name in facts))

    waiting: defaultdict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in sides[1]:
        waiting[key(run)].append(run)
    before = [_runs_before(side) for side in sides]
    partner: dict[str, Run] = {}
    pairs = []
    for run in sides[0]:
        candidates = waiting[key(run)]
        if not candidates:
            continue
        earlier = partner.get(before[0].get(run.place, ""))
        expected = "" if earlier is None else earlier.place
        chosen = next((each for each in candidates if before[1].get(each.place, "") == expected), candidates[0])
        candidates.remove(chosen)
        partner[run.place] = chosen
        pairs.append((run, chosen))
    pairs.sort(key=lambda pair: pair[1].order)
    taken = {run.place for run in partner.values()}
    lone: defaultdict[tuple[object, ...], tuple[list[Run], list[Run]]] = defaultdict(lambda: ([], []))
    for side, names in enumerate((partner.keys(), taken)):
        for run in sides[side]:
            if run.place not in names:
                lone[key(run)[1:]][side].append(run)
    in_order = [pair for samples, benchmarks in lone.values() for pair in zip(samples, benchmarks)]
    in_order.sort(key=lambda pair: pair[1].order)
    only = [
        [run for of_key in lone.values() for run in of_key[side][min(map(len, of_key)) :]] for side in range(len(sides))
    ]
    return RunPairs([*pairs, *in_order], only[0], only[1], len(pairs), len(in_order))


def _is_of_several_threads(runs: Sequence[Run]) -> bool:
    """Return whether several threads or processes ran the runs of a rank."""
    of_ranks: defaultdict[int | None, set[tuple[str, int | None]]] = defaultdict(set)
    for run in runs:
        of_ranks[run.rank].add(_thread(run))
    return any(len(threads) > 1 for threads in of_ranks.values())


def _thread(run: Run) -> tuple[str, int | None]:
    """Return the process (folder ``rank_pid``) and the thread of a run."""
    process = _PROCESS.search(run.place)
    return process[0] if process else "", run.thread


def _runs_before(runs: Sequence[Run]) -> dict[str, str]:
    """Return the place of the previous run in the same thread, by the place of a run."""
    last: dict[tuple[str, int | None], str] = {}
    before = {}
    for run in runs:
        thread = _thread(run)
        before[run.place] = last.get(thread, "")
        last[thread] = run.place
    return before


def _moved(pairs: Sequence[tuple[Run, Run]]) -> int:
    """Return the number of pairs with different inputs if both sides had the same inputs in another order; else 0."""
    fed = [[run.fed for run in side] for side in zip(*pairs)]
    if not fed or not all(fed[0]) or Counter(fed[0]) != Counter(fed[1]):
        return 0
    return sum(one != other for one, other in zip(*fed))


def _pairs_by_step(sample: Sequence[Run], benchmark: Sequence[Run]) -> RunPairs:
    step = "own" if _take_turns(sample, benchmark) else "step"
    facts = [name for name in (step, "rank") if any(_varies(side, name) for side in (sample, benchmark))]
    facts += ["graph"] if step == "own" else []
    groups: defaultdict[tuple[object, ...], tuple[list[Run], list[Run]]] = defaultdict(lambda: ([], []))
    for side, runs in enumerate((sample, benchmark)):
        for run in sorted(runs, key=lambda run: run.order):
            groups[tuple(getattr(run, name) for name in facts)][side].append(run)
    result = RunPairs([], [], [])
    for samples, benchmarks in groups.values():
        pairs = _by_graph(samples, benchmarks)
        only = [[run for run in side if run not in paired] for side, paired in zip((samples, benchmarks), zip(*pairs))]
        only = only or [samples, benchmarks]
        if len(only[0]) == len(only[1]):
            pairs += zip(*only)
            only = [[], []]
        result.pairs.extend(pairs)
        result.only_in_sample.extend(only[0])
        result.only_in_benchmark.extend(only[1])
    result.pairs.sort(key=lambda pair: pair[1].order)
    return result


def _take_turns(sample: Sequence[Run], benchmark: Sequence[Run]) -> bool:
    """Return whether the same models alternate in both trees."""
    graphs = [{run.graph for run in side} for side in (sample, benchmark)]
    return graphs[0] == graphs[1] and len(graphs[0]) > 1 and all(run.own is not None for run in (*sample, *benchmark))


def paired_dumps(sample: Path, benchmark: Path) -> PairedDumps:
    """Pair the dumps (files or folders) of two folders by name without ending: ``1.bin`` with ``1.npz``.

    Hidden files are skipped. If names without ending are not unique in a folder, full names are compared. Raises
    ConfigError if a path is not a folder, or if no name is in both folders.
    """
    sides = [_entries(folder) for folder in (sample, benchmark)]
    unique = all(max(Counter(path.stem for path in side).values(), default=0) == 1 for side in sides)
    name_of: Callable[[Path], str] = (lambda path: path.stem) if unique else (lambda path: path.name)
    samples, benchmarks = ({name_of(path): path for path in side} for side in sides)
    pairs = {name: (path, benchmarks[name]) for name, path in samples.items() if name in benchmarks}
    if not pairs:
        raise ConfigError(
            f"no dump has the same name in both folders ({len(samples)} dumps in {sample}, {len(benchmarks)} in "
            f"{benchmark}). Give the two dumps of a run the same name"
        )
    return PairedDumps(
        pairs,
        tuple(name for name in samples if name not in benchmarks),
        tuple(name for name in benchmarks if name not in samples),
    )


def _listed(runs: Sequence[Run]) -> str:
    alike = len({str(run) for run in runs}) < len(runs)
    shown = [run.place if alike else str(run) for run in runs[:SHOWN]]
    return "; ".join(shown) + (" …" if len(runs) > SHOWN else "")


def _known(number: int | None) -> int:
    return -1 if number is None else number


def _by_graph(samples: Sequence[Run], benchmarks: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return pairs of runs with equal graph names, if the graph names are unique on each side."""
    sides = [{_graph(run): run for run in side} for side in (samples, benchmarks)]
    if any(len(names) < len(side) for names, side in zip(sides, (samples, benchmarks))):
        return []
    return [(run, sides[1][name]) for name, run in sides[0].items() if name in sides[1]]


def _graph(run: Run) -> str:
    return _TIME.sub("", run.graph)


def _varies(runs: Sequence[Run], name: str) -> bool:
    return len({getattr(run, name) for run in runs}) > 1


def _entries(folder: Path) -> list[Path]:
    if not folder.is_dir():
        state = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(f"{folder} {state}. Give a folder with one dump per run")
    return sorted((path for path in folder.iterdir() if path.name[0] != "."), key=lambda path: in_order(path.name))
