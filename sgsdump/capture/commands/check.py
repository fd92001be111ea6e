"""Judge each operator of a recorded run alone, without a second run to compare with.

examples:
  sgsdump check dumps/msit_dump_20261127_101500
  sgsdump check msprobe_dump/step0/rank0
  sgsdump check TREE@step=1
  sgsdump check TREE --json check.json --junit check.xml

how operators are judged:
  Each operator is computed again in float64 from its recorded inputs and
  arguments. The recorded output must agree within the rounding error of its
  type, length of sums and order of sums (docs/check.md has the bounds). An
  operator outside its bound is itself wrong: the fault is in its kernel, the
  compiler or the accelerator. Therefore, check can judge a float16, bfloat16
  or int8 run without a float32 run.

what is named:
  The first operator outside its bound, the first NaN or Inf from finite
  inputs, and the first overflow. Operators that cannot be judged are listed:
  random, collective and custom operators, and operators without a bound.

requirements:
  To check a dump of a torch program, install torch:
  pip install 'sgsdump[torch]'. Models of onnxruntime are judged by the
  reference evaluator of onnx.

exit status:
  0 if every judged operator is within its bound; 1 if an operator is not within
  its bound, or if a compiled graph is wrong; 2 on errors, or if nothing can be
  judged, for example in a dump of statistics.

compiled programs:
  Each graph of torch.compile is judged as a whole. check runs the graph again
  operator by operator, and compares the outputs of both runs. If the outputs
  differ, the compiler is at fault, and check names the graph.

dumps of other tools:
  Dumps of msprobe, ATB or the SDK do not record how to compute an operator
  again. check finds the first operator that made NaN or Inf from finite
  inputs. The exit status is 1 if there is such an operator, 0 if there is none,
  and 2 if no inputs are known.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import Reading, add_json, add_junit, add_run, record
from sgsdump.commands.terminal import TERMINAL, print_lines
from sgsdump.errors import ValuesError

if TYPE_CHECKING:
    from sgsdump.capture.check_report import CheckedRun
    from sgsdump.dumps.dump import Dump
    from sgsdump.dumps.runs import Run
    from sgsdump.replay.check import Check


@dataclass(frozen=True)
class Options:
    tree: Path
    reading: Reading
    json: Path | None
    junit: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "tree",
        type=Path,
        metavar="TREE",
        help=(
            "dump that sgsdump exec wrote with tensor values, or any other dump that contains the inputs of operators"
        ),
    )
    add_run(parser)
    add_json(
        parser,
        "write the error of every operator and the bound (largest possible rounding error) of every operator as JSON",
    )
    add_junit(parser, "write a test case per operator as JUnit XML")


def run(args: argparse.Namespace) -> int:
    from sgsdump.capture.check_report import check_json, check_junit
    from sgsdump.dumps.trees import tree_of
    from sgsdump.files.atomic_write import check_outputs, replace_text, together

    options = record(Options, args, reading=Reading(args.step, args.rank))
    with together():
        check_outputs([options.json, options.junit], [tree_of(options.tree)])
        runs = list(_checked(options))
        for path, render in ((options.json, check_json), (options.junit, check_junit)):
            if path is not None:
                replace_text(path, render(runs))
    if not any(run.check.judged or (run.finiteness and run.finiteness.looked_at) for run in runs):
        raise ValuesError(_nothing(options.tree, runs))
    is_graph_wrong = _print_graphs(tree_of(options.tree))
    is_outside = any(run.check.outside or (run.finiteness and run.finiteness.made) for run in runs)
    return 1 if is_outside or is_graph_wrong else 0


def _print_graphs(tree: Path) -> bool:
    """Print how the program's compiled graphs differ from eager torch; return whether one is wrong."""
    from sgsdump.capture.programs.compiled_graphs import graph_notes
    from sgsdump.capture.programs.process_index import processes_of

    notes = list(graph_notes(processes_of(tree))) if (tree / "processes").is_dir() else []
    print_lines(f"{note}." for _, note in notes)
    return any(is_wrong for is_wrong, _ in notes)


def _checked(options: Options) -> Iterator[CheckedRun]:
    """Judge and print each run."""
    from sgsdump.capture.check_report import CheckedRun, check_lines
    from sgsdump.dumps.io import open_dump
    from sgsdump.dumps.runs import Run
    from sgsdump.dumps.trees import list_runs, tree_of
    from sgsdump.progress import each
    from sgsdump.replay.check import check, is_of_another_tool
    from sgsdump.replay.finiteness import finiteness

    chosen = list_runs(options.tree, options.reading.step, options.reading.rank)
    tree = tree_of(options.tree)
    for run in each(TERMINAL, chosen or [Run()], "check", "run", len(chosen) or 1):
        with open_dump(tree / run.place) as dump:
            of_model = _of_model(tree, run, dump)
            found = check(dump) if of_model is None else of_model
            finite = finiteness(dump) if is_of_another_tool(found) else None
            checked = CheckedRun(str(run) if len(chosen) > 1 else "", found, tuple(dump.notes), finite)
        print_lines([f"== {checked.name}"] if checked.name else [])
        print_lines(check_lines(checked))
        print_lines(checked.notes, "note: ")
        yield checked


def _of_model(tree: Path, run: Run, dump: Dump) -> Check | None:
    """Judge a run of an onnxruntime model from the captured model and feeds; return None for any other run."""
    from sgsdump.capture.programs.captured_models import captured_models, opened
    from sgsdump.capture.programs.process_index import processes_of
    from sgsdump.dumps.formats.replays.tree import FOLDER
    from sgsdump.replay.onnx_operators import check_nodes

    if not run.graph or FOLDER not in run.place.split("/"):
        return None
    for captured in captured_models(tree, processes_of(tree)):
        own = f"{captured.device}_{captured.pid}/{captured.name}/"
        if own in f"{run.place}/":
            for step in captured.runs:
                if step.step == run.step:
                    feeds = {value.name: value.array() for value in step.feeds}
                    return check_nodes(opened(captured).proto, feeds, dump.records)
    return None


def _nothing(tree: Path, runs: list[CheckedRun]) -> str:
    from sgsdump.capture.check_report import WHY

    why = next((WHY[unjudged.why] for run in runs for unjudged in run.check.unjudged), "the dump has no operators")
    if all(run.finiteness is not None for run in runs):
        why = "no operator has values or statistics of both inputs and outputs"
    return f"{tree}: no operator can be judged: {why}. Dump the program with sgsdump exec --type tensor."
