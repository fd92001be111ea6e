"""Dump the tensors of an ONNX model as one executor computes them, and compare them with other runs.

examples:
  sgsdump pipeline full -m net.onnx -o golden
  sgsdump pipeline full -m net.onnx -f reference -cd half -g golden -t 10
  sgsdump pipeline range -m net.onnx -b conv1 -s 10
  sgsdump pipeline list -m net.onnx --name conv1 c2
  sgsdump pipeline once -m net.onnx --name conv1 --print-ir --save-test-case conv1_case

the dump:
  Each tensor becomes a .npy file in ./EXECUTOR_dump/outputs, in the type and
  layout of the model; dump_info.json describes the dump.

the inputs:
  By default, inputs are random values with a fixed seed. Give other inputs with
  -i, --input-dir, --data-loader-script or --inputs-from. With a data loader
  script, a folder of .npz files (-i) or a folder of input folders
  (--input-dir), pipeline writes one dump per input: DIR/0, DIR/1.
  -cd compares each dump with the dump whose folder has the same name.

the comparison:
  -cd DIR compares this run with another run, whose dump is in DIR; "pipeline
  full" also writes compare_result.html. -g DIR adds a golden (float32) run.
  With -g, each tensor has two errors relative to the golden run: the error of
  this run, and the error of the other run (for example in float16). A tensor
  passes if its error in this run is at most X times its error in the other run;
  -t X sets this factor.

exit status:
  0, or 1 in these cases: a tensor could not be dumped; a tensor fails, and its
  error is larger than rounding; a tensor exceeds your limit; you gave a limit
  and a tensor is missing; the outputs of the whole model differ from the dump;
  --bisect found a difference, or a tensor that an executor cannot compute.
  2 on errors.

more examples:
  sgsdump pipeline full -m net.onnx -mt float16 -o half
  sgsdump pipeline full -m net.onnx --op-type Conv --name-pattern 'c*'
  sgsdump pipeline full -m net.onnx --bisect reference
  sgsdump pipeline full -m net.onnx -f my_executor.py:MyExecutor --range x -1 1 mask 0 1
  sgsdump pipeline full -m net.onnx --data-loader-script feeds.py -o many
  sgsdump pipeline full -m net.onnx -f reference --input-dir many -cd many
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import (
    Listing,
    Modes,
    add_allow_missing,
    add_data_loader,
    add_model,
    add_output,
    add_provider,
    add_th1,
)
from sgsdump.commands.terminal import TERMINAL, Terminal, print_cut

if TYPE_CHECKING:
    from sgsdump.comparison.golden import GoldenComparison
    from sgsdump.pipeline.job import Job
    from sgsdump.pipeline.pipeline import Pipeline
    from sgsdump.pipeline.replay import OwnError
    from sgsdump.pipeline.whole_run import WholeRun
    from sgsdump.progress import Progress

DUMP, BISECT = "a dump", "--bisect"
_ONLY_DUMPED = (
    "names begin begin_string end end_string step name_pattern op_type print_ir test_case depth output "
    "compare_dir golden_dir input_tag th1 th2 allow_missing"
)
MODES = Modes(
    honoured={
        **dict.fromkeys("kind model weight_file model_inputs model_outputs executor mode".split(), (DUMP, BISECT)),
        **dict.fromkeys("model_type passed_path provider option".split(), (DUMP, BISECT)),
        **dict.fromkeys("input_file input_dir data_loader_script inputs_from seed range shape".split(), (DUMP, BISECT)),
        **dict.fromkeys(_ONLY_DUMPED.split(), (DUMP,)),
        **dict.fromkeys(["bisect", "threshold"], (BISECT,)),
    },
    refusals={
        DUMP: "belongs to --bisect; name an executor with it too",
        BISECT: "is for a dump, but --bisect makes none; omit one of them",
    },
    spelled={},
)
KINDS = {
    "full": "every tensor of a model",
    "once": "a single tensor of a model",
    "range": "the tensors between two tensors of a model",
    "list": "the named tensors of a model",
}
EXAMPLES = {
    "full": (
        "-m net.onnx -o golden",
        "-m net.onnx -mt float16 -o half",
        "-m net.onnx -f reference -cd half -g golden -t 10",
        "-m net.onnx --op-type Conv --name-pattern 'c*'",
        "-m net.onnx --bisect reference",
    ),
    "once": ("-m net.onnx --name conv1", "-m net.onnx --name conv1 --print-ir --save-test-case conv1_case"),
    "range": ("-m net.onnx -b conv1 -s 10", "-m net.onnx -b 3 -e 20 -cd golden"),
    "list": ("-m net.onnx --name conv1 c2", "-m net.onnx --name conv1 -i x:x.npy -o ours"),
}
RARE = (
    *("--weight-file", "--model-inputs", "--model-outputs", "--mode", "--passed-path", "--provider", "--option"),
    *("--begin-string", "--end-string", "--depth", "--threshold"),
    *("--inputs-from", "--seed", "--th1", "--th2", "--allow-missing"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="full|once|range|list", required=True, title="kinds of dumps")
    for kind, tensors in KINDS.items():
        examples = "".join(f"\n  sgsdump pipeline {kind} {words}" for words in EXAMPLES[kind])
        sub = kinds.add_parser(
            kind,
            help=f"dump {tensors}",
            description=f"Dump {tensors}, and compare the dump with other runs.",
            epilog=f"examples:{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_run(sub)
        _add_selection(sub, kind)
        _add_inputs(sub)
        _add_comparison(sub)


def _add_selection(sub: argparse.ArgumentParser, kind: str) -> None:
    group = sub.add_argument_group("selection of tensors")
    if kind == "once":
        group.add_argument("--name", dest="names", nargs=1, required=True, metavar="NAME", help="tensor to dump")
        group.add_argument("--print-ir", action="store_true", help="print the graph that computes the tensor")
        group.add_argument(
            "--save-test-case",
            dest="test_case",
            type=Path,
            metavar="DIR",
            help="write the sub-model, its inputs and expected output as a test case",
        )
        group.add_argument(
            "--depth", type=int, metavar="N", help="limit --print-ir and --save-test-case to the last N nodes"
        )
        return
    if kind == "list":
        group.add_argument("--name", dest="names", nargs="+", required=True, metavar="NAME", help="tensors to dump")
        return
    if kind == "range":
        for end, short, which in (("begin", "-b", "first"), ("end", "-e", "last")):
            group.add_argument(
                short, f"--{end}", metavar="I|NAME", help=f"topological index or name of the {which} tensor"
            )
            group.add_argument(f"{short}s", f"--{end}-string", metavar="NAME", help=f"name of the {which} tensor")
    group.add_argument("-s", "--step", type=int, metavar="N", help="dump every N-th tensor (default: 1)")
    group.add_argument("--name-pattern", metavar="PATTERN", help="only tensors whose names match (* ?)")
    group.add_argument("--op-type", nargs="+", default=(), metavar="OP", help="only outputs of these operator types")
    if kind == "full":
        group.add_argument(
            "--bisect", metavar="EXECUTOR", help="find the first tensor that differs in EXECUTOR; makes no dump"
        )
        group.add_argument(
            "--threshold",
            type=float,
            metavar="X",
            help="with --bisect: tensors are equal up to this max|difference| / max|value| (default: 0.001)",
        )


def _executors() -> str:
    from sgsdump.executors.table import executors

    names = ", ".join(executors())
    return f"{names}, or FILE.py:CLASS (default: ort; for TFLite and OpenVINO models, their own runtime)"


def _add_run(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("model and executor")
    add_model(run)
    run.add_argument("-f", "--executor", action=Listing, of=_executors)
    run.add_argument(
        "--mode",
        choices=["fast", "isolated"],
        help="fast: one pass in segments; isolated: a sub-model per tensor (default: fast; plug-ins: isolated)",
    )
    run.add_argument("-mt", "--model-type", metavar="TYPE", help="float16 (fp16) runs a float16 copy of the model")
    run.add_argument(
        "-p",
        "--passed-path",
        type=Path,
        metavar="FILE.py",
        help="tvm, sdaa: Python file with the compiler passes to run",
    )
    add_provider(run, default=None)
    run.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="option of the executor; may be repeated"
    )
    add_output(run, "folder to write (default: ./EXECUTOR_dump)", "DIR")


def _add_inputs(sub: argparse.ArgumentParser) -> None:
    inputs = sub.add_argument_group("inputs (default: random values of seed 42)")
    inputs.add_argument(
        "-i",
        "--input-file",
        metavar="NAME:FILE.npy",
        help="arrays, separated by commas; or FILE.npz with an array per input; or a folder of .npz files",
    )
    inputs.add_argument(
        "--input-dir",
        type=Path,
        metavar="DIR",
        help="folder with NAME.npy for every input, or a folder of such folders",
    )
    add_data_loader(inputs)
    inputs.add_argument(
        "--inputs-from", type=Path, metavar="JSON", help="repeat the random inputs of this dump_info.json"
    )
    inputs.add_argument("--seed", type=int, metavar="N", help="seed of the random inputs (default: 42)")
    inputs.add_argument(
        "--range",
        nargs="+",
        action="append",
        default=[],
        metavar="V",
        help="range of random inputs: LOW HIGH, or NAME LOW HIGH ... (default: 0 1; integers: 0 100; indices: all "
        "rows of their "
        "table)",
    )
    inputs.add_argument(
        "--shape", action="append", default=[], metavar="NAME=1x3x8x8", help="shape of an input with dynamic sizes"
    )


def _add_comparison(sub: argparse.ArgumentParser) -> None:
    comparison = sub.add_argument_group("comparison")
    comparison.add_argument("-cd", "--compare-dir", type=Path, metavar="DIR", help="dump to compare the outputs with")
    comparison.add_argument(
        "-g", "--golden-dir", type=Path, metavar="DIR", help="golden dump, for the three-way comparison"
    )
    comparison.add_argument(
        "-t",
        "--input-tag",
        type=float,
        metavar="X",
        help="highest allowed error as a multiple of the error of -cd, both against -g (default: 10)",
    )
    add_th1(comparison, "-t1", text="limit of diff3 and all_close (default: 1e-6)")
    comparison.add_argument(
        "-t2", "--th2", type=float, metavar="X", help="list tensors whose diff2 is above X (default: 1e-3)"
    )
    add_allow_missing(
        comparison,
        "with a limit: do not exit with status 1 because tensors are missing in the dump, -cd or -g",
        default=None,
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.pipeline.job import OPTIONS, job_of

    MODES.check(BISECT if getattr(args, "bisect", None) else DUMP, MODES.given(args))
    return dump(job_of({name: getattr(args, name, None) for name in OPTIONS}))


def dump(job: Job) -> int:
    """Do the job and print the results. Return the exit status: 0, or 1 as the module says.

    Raises the errors of ``pipeline.job.check`` and of the steps in ``pipeline.run_job``.
    """
    from sgsdump.pipeline.job import check
    from sgsdump.pipeline.run_job import pipeline

    check(job)
    progress = Terminal(bars=not sys.stdout.isatty())  # on a terminal the printed lines show the progress
    run = pipeline(job, progress)
    try:
        return _dump(job, run, progress)
    finally:  # a requested tensor that is missing may be in the part that was cut off
        print_cut(run.model)


def _dump(job: Job, run: Pipeline, progress: Progress) -> int:
    """Return the exit status as ``dump``."""
    from sgsdump.dumps.formats.sdaa import dump_info
    from sgsdump.pipeline.report_lines import random_lines, summary_lines
    from sgsdump.pipeline.run_job import at_dump, dump_chosen, ir, is_several, save_case

    if job.bisection.bisect:
        return _bisect_each(job, run) if is_several(job, run) else _bisect(job, run)
    if job.excerpt.print_ir:
        progress.say(ir(job, run).rstrip())
    if is_several(job, run):
        return _dump_each(job, run, progress)
    dump_chosen(job, run)
    job, written = at_dump(run, lambda folder: (replace(job, output=folder), dump_info.read(folder)))
    for line in (*random_lines(written.inputs), *summary_lines(written.outputs, job.folder)):
        TERMINAL.say(line)
    if job.excerpt.test_case:
        save_case(job, run)
        TERMINAL.say(f"{job.excerpt.test_case}: test case of {job.tensors.names[0]}")
    whole = _check_whole(job, run, progress)
    close = _compare_with_others(job, run, whole.fused) if job.comparison.compare_dir else True
    return 1 if run.failures or not close or not whole.agrees else 0


def _dump_each(job: Job, run: Pipeline, progress: Progress) -> int:
    """Dump and compare each of several inputs; return the exit status as ``dump``."""
    from sgsdump.dumps.formats.sdaa import dump_info
    from sgsdump.pipeline.job import check_compared
    from sgsdump.pipeline.report_lines import summary_lines
    from sgsdump.pipeline.run_job import dump_chosen, each_run, job_of_input, writing_all

    failed, fused = False, {}
    with writing_all(job.folder, progress) as folder:
        for name in each_run(job, run, folder):
            part = job_of_input(job, name)
            check_compared(part.comparison)
            dump_chosen(job, run)
            for line in summary_lines(dump_info.read(run.folder).outputs, part.folder):
                TERMINAL.say(line)
            whole = _check_whole(job, run, progress)
            fused[name] = whole.fused
            failed |= bool(run.failures) or not whole.agrees
    parts = fused.items() if job.comparison.compare_dir else ()
    close = [_compare_with_others(job_of_input(job, name), run, errors) for name, errors in parts]
    return 1 if failed or not all(close) else 0


def _check_whole(job: Job, run: Pipeline, progress: Progress) -> WholeRun:
    """Run the whole model once if the dump contains its outputs, and print differences."""
    from sgsdump.pipeline.report_lines import whole_run_lines
    from sgsdump.pipeline.run_job import whole_run
    from sgsdump.pipeline.whole_run import WholeRun

    whole = (whole_run(job, run, progress) if job.comparison.judge else None) or WholeRun({})
    for line in whole_run_lines(whole):
        TERMINAL.say(line)
    return whole


def _bisect_each(job: Job, run: Pipeline) -> int:
    """Bisect on each of several inputs until one shows a difference."""
    from sgsdump.pipeline.run_job import each_run

    for name in each_run(job, run, job.folder):
        TERMINAL.say(f"input {name}:")
        if status := _bisect(job, run):
            return status
    return 0


def _bisect(job: Job, run: Pipeline) -> int:
    from sgsdump.pipeline.report_lines import bisection_lines
    from sgsdump.pipeline.run_job import bisect

    bisection = bisect(job, run, TERMINAL)
    for line in bisection_lines(bisection, job.bisection.threshold):
        TERMINAL.say(line)
    return 1 if bisection.first or bisection.failed else 0


def _compare_with_others(job: Job, run: Pipeline, fused: Sequence[OwnError] = ()) -> bool:
    """Print and write the comparison; return False if a tensor cannot be compared or fails (see ``holds``)."""
    from sgsdump.files.atomic_write import replace_text, together
    from sgsdump.pipeline.compared_files import other_inputs
    from sgsdump.pipeline.run_job import at_dump, compare, holds, is_several, verdict_of_run, with_own_errors
    from sgsdump.reports.golden import (
        golden_closing,
        golden_csv,
        golden_json,
        golden_lines,
        golden_log,
        missing_lines,
    )
    from sgsdump.reports.three_lines import verdict_block

    options = job.comparison

    def compared(folder: Path) -> tuple[GoldenComparison, list[tuple[Path, str]]]:
        of_run = replace(job, output=folder)
        comparison = compare(of_run, TERMINAL)
        references = filter(None, (options.compare_dir, options.golden_dir))
        others = [(other, name) for other in references for name in other_inputs(of_run.folder, other)]
        return comparison if others else with_own_errors(of_run, run, comparison, fused, TERMINAL), others

    if is_several(job, run):
        comparison, others = compared(job.folder)
    else:
        comparison, others = at_dump(run, compared)
        job = replace(job, output=run.written)
    for line in (*verdict_block(verdict_of_run(job, comparison)), *missing_lines(comparison)):
        TERMINAL.say(line)
    for folder, name in others:
        TERMINAL.say(f"note: {folder} was run with other values of input {name}")
    TERMINAL.say(golden_lines(comparison).removesuffix("\n"))
    log = options.log or job.folder / "compare_result.log"
    texts = {
        log: golden_log(comparison),
        log.with_suffix(".csv"): golden_csv(comparison),
        log.with_suffix(".json"): golden_json(comparison),
    }
    page = log.with_suffix(".html")
    with together():
        for path, text in texts.items():
            replace_text(path, text)
        if job.kind == "full":
            replace_text(page, _page(job))
    failed = sum(not row.passes for row in comparison.rows)
    TERMINAL.say(f"{log}: {len(comparison.rows)} compared, {len(comparison.rows) - failed} pass, {failed} fail")
    for line in golden_closing(comparison):
        TERMINAL.say(line)
    if job.kind == "full":
        TERMINAL.say(f"{page}: the same comparison as an HTML page")
    return holds(job, comparison)


def _alike(folder: Path, other: Path) -> tuple[Path, Path]:
    """Return both runs as dumps, or both as folders of arrays if the other run is only such a folder."""
    from sgsdump.dumps.formats.sdaa.dump_info import JSON_NAME, OUTPUTS

    whole = next((folder for folder in (other, other.parent) if (folder / JSON_NAME).is_file()), None)
    return (folder / OUTPUTS, other) if whole is None else (folder, whole)


def _page(job: Job) -> str:
    """Return the comparison of the dump with the -cd dump as HTML."""
    from sgsdump.comparison.compare import compare
    from sgsdump.dumps.io import open_dump
    from sgsdump.reports.html.document import render
    from sgsdump.reports.report import Context, report_of
    from sgsdump.reports.tensors.views import BUDGET

    other = job.comparison.compare_dir
    assert other is not None
    sample, benchmark = map(open_dump, _alike(job.folder, other))
    comparison = compare(sample, benchmark, details=True, progress=TERMINAL)
    title = f"{job.folder.name} against {other.name}"
    facts = [("sample", str(job.folder)), ("benchmark", str(other))]
    return render(
        report_of(comparison, context=Context(title, facts, sample=sample, benchmark=benchmark, page_budget=BUDGET))
    )


__all__ = ["add_arguments", "dump", "run"]
