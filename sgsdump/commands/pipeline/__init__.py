"""Dump the tensors of an ONNX model as one executor computes them, and hold them against other runs.

`full` dumps every tensor, `range` those between two (both included), `list` the named ones, `once` one alone.
Each becomes a .npy file of the model's own dtype and layout in ./EXECUTOR_dump/outputs, with dump_info.json beside.
Inputs are random (one seed, the same values each time) unless -i, --input-dir or --inputs-from gives them.
--data-loader-script (Python with load_data(), which yields a dictionary of arrays by input name for each run) and an
--input-dir of several folders make a dump of each input: DIR/0, DIR/1 ..., compared with -cd's 0, 1 ...

-cd compares with the files of another run: difference and a verdict per tensor; of `full` also as
compare_result.html to look at. With -g too, the three-way comparison:
pass where the error against the golden (float32) run is within input-tag times that of the run of -cd (float16).

examples:
  sgsdump pipeline full -m net.onnx -o golden
  sgsdump pipeline full -m net.onnx -mt float16 -o half
  sgsdump pipeline full -m net.onnx -f reference -cd half -g golden -t 10
  sgsdump pipeline range -m net.onnx -b conv1 -s 10
  sgsdump pipeline full -m net.onnx --op-type Conv --name-pattern 'c*'
  sgsdump pipeline list -m net.onnx --name conv1 c2
  sgsdump pipeline once -m net.onnx --name conv1 --print-ir --save-test-case conv1_case
  sgsdump pipeline full -m net.onnx --bisect reference
  sgsdump pipeline full -m net.onnx --data-loader-script feeds.py -o many
  sgsdump pipeline full -m net.onnx -f reference --input-dir many -cd many

Exit status: 0 done, 1 a tensor failed or a threshold you gave (-t, -t1, -t2) does not hold or
--bisect found a difference, or a tensor that an executor cannot compute, 2 on trouble.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from sgsdump.commands.cut_note import print_cut
from sgsdump.commands.pipeline.comparison import compare_with_others
from sgsdump.commands.pipeline.options import add_arguments
from sgsdump.commands.terminal import TERMINAL, Terminal

if TYPE_CHECKING:
    from sgsdump.pipeline.job import Job
    from sgsdump.pipeline.pipeline import Pipeline
    from sgsdump.progress import Progress

__all__ = ["add_arguments", "dump", "run"]


def run(args: argparse.Namespace) -> int:
    from dataclasses import fields

    from sgsdump.pipeline.job import Job

    given = {field.name: getattr(args, field.name) for field in fields(Job) if hasattr(args, field.name)}
    return dump(Job(**given))


def dump(job: Job) -> int:
    """Do the job and print what came of it. Returns the exit status: 0, or 1 as the module says.

    Raises what ``pipeline.job.check`` and the steps of ``pipeline.run_job`` raise.
    """
    from sgsdump.pipeline.job import check
    from sgsdump.pipeline.run_job import pipeline

    check(job)
    progress = Terminal(bars=not sys.stdout.isatty())  # on a terminal the lines themselves show how far it is
    run = pipeline(job, progress)
    try:
        return _dump(job, run, progress)
    finally:  # a tensor that was asked for in vain may be one of what was cut off
        print_cut(run.model)


def _dump(job: Job, run: Pipeline, progress: Progress) -> int:
    """The exit status as of ``dump``."""
    from sgsdump.dumps.formats.sdaa import dump_info
    from sgsdump.models.model import graph_inputs
    from sgsdump.pipeline.run_job import dump_chosen, ir, save_case
    from sgsdump.pipeline.several import is_several
    from sgsdump.reports.pipeline_lines import random_lines, summary_lines

    if job.bisect:
        return _bisect(job, run)
    if job.print_ir:
        progress.say(ir(job, run).rstrip())
    if is_several(job, [spec.name for spec in graph_inputs(run.model.proto)]):
        return _dump_each(job, run, progress)
    dump_chosen(job, run)
    written = dump_info.read(job.folder)
    for line in (*random_lines(written.inputs), *summary_lines(written.outputs, job.folder)):
        TERMINAL.say(line)
    if job.test_case:
        save_case(job, run)
        TERMINAL.say(f"{job.test_case}: the test case of {job.names[0]}")
    close = compare_with_others(job) if job.compare_dir else True
    return 1 if run.failures or not close else 0


def _dump_each(job: Job, run: Pipeline, progress: Progress) -> int:
    """Dump, and then compare, each of several inputs; the exit status as of ``dump``."""
    from sgsdump.dumps.formats.sdaa import dump_info
    from sgsdump.pipeline.job import check_compared
    from sgsdump.pipeline.run_job import dump_chosen
    from sgsdump.pipeline.several import each_run, job_of, writing_all
    from sgsdump.reports.pipeline_lines import summary_lines

    names, failed = [], False
    with writing_all(job.folder, progress) as place:
        for name in each_run(job, run, place):
            own = job_of(job, name)
            check_compared(own)
            dump_chosen(job, run)
            for line in summary_lines(dump_info.read(run.folder).outputs, own.folder):
                TERMINAL.say(line)
            names.append(name)
            failed |= bool(run.failures)
    close = [compare_with_others(job_of(job, name)) for name in names] if job.compare_dir else []
    return 1 if failed or not all(close) else 0


def _bisect(job: Job, run: Pipeline) -> int:
    from sgsdump.pipeline.run_job import bisect
    from sgsdump.reports.pipeline_lines import bisection_lines

    bisection = bisect(job, run, TERMINAL)
    for line in bisection_lines(bisection, job.threshold):
        TERMINAL.say(line)
    return 1 if bisection.first or bisection.failed else 0
