"""Doing a ``Job`` step by step, for the command that prints: its pipeline, its dump, its comparison, its bisection."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sgsdump.dumps.formats.sdaa.dump_info import OUTPUTS
from sgsdump.executors.table import executors, open_executor
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.models.passes.rewrites import fix_shapes
from sgsdump.pipeline.inputs.given import array_of
from sgsdump.pipeline.inputs.options import input_files, ranges, shapes
from sgsdump.pipeline.inputs.random import InputDefaults
from sgsdump.pipeline.ir_text import executor_text, ir_text
from sgsdump.pipeline.job import MODEL_TYPES, Job, check_compared
from sgsdump.pipeline.onnx_test_case import save_test_case
from sgsdump.pipeline.pipeline import Pipeline
from sgsdump.pipeline.running.attempt import ExecutorConfigs
from sgsdump.pipeline.several import is_several
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from sgsdump.comparison.golden import GoldenComparison
    from sgsdump.pipeline.bisection.result import Bisection

INPUT_TAG, TH1, TH2 = 10.0, 1e-6, 1e-3


def pipeline(job: Job, progress: Progress = SILENT) -> Pipeline:
    """The job's pipeline, its inputs set (but of several, see ``pipeline/several.py``) and nothing written yet.

    Raises what ``open_model``, the executor's ``init`` and the setting of inputs raise.
    """
    with open_executor(job.executor, job.init_configs):
        pass  # before an older dump is moved aside, it should be known that the new one can begin
    run = Pipeline(
        _model(job),
        job.executor,
        job.folder,
        job.init_configs,
        mode=job.mode,
        defaults=InputDefaults() if job.seed is None else InputDefaults(seed=job.seed),
        model_dtype=job.model_type or "",
        progress=progress,
    )
    if is_several(job, [spec.name for spec in graph_inputs(run.model.proto)]):
        return run
    check_compared(job)
    _set_inputs(job, run)
    _ = run.inputs
    return run


def dump_chosen(job: Job, run: Pipeline) -> None:
    """Dump what the job asks for."""
    if job.kind == "once":
        run.mark_outputs(job.names)
        run.dump_once()
    elif job.kind == "list":
        run.dump_list(job.names)
    else:
        run.dump_range(*job.ends, job.step, name_pattern=job.name_pattern, op_types=job.op_type)


def ir(job: Job, run: Pipeline) -> str:
    """The graph that leads to the job's tensors: in the executor's own language where it has one, else as ONNX text."""
    if not hasattr(executors()[job.executor], "ir_text"):
        return ir_text(run.model.proto, job.names, job.depth)
    with open_executor(job.executor, job.init_configs) as executor:
        return executor_text(run.model, executor, job.names, job.depth)


def save_case(job: Job, run: Pipeline) -> None:
    """The job's tensors as a test case that stands alone; errors of ``save_test_case``."""
    assert job.test_case is not None
    configs = ExecutorConfigs(init=job.init_configs)
    save_test_case(run.model, job.executor, run.inputs, job.names, job.test_case, job.depth, configs)


def bisect(job: Job, run: Pipeline, progress: Progress = SILENT) -> Bisection:
    """Where the job's executor first differs from that of ``--bisect``, on the same inputs."""
    from sgsdump.pipeline.bisection.two_executors import bisect_executors

    assert job.bisect is not None
    configs = ExecutorConfigs(init=job.init_configs)
    return bisect_executors(run.model, job.executor, job.bisect, run.inputs, job.threshold, job.mode, configs, progress)


def compare(job: Job, progress: Progress = SILENT) -> GoldenComparison:
    """What the job dumped against its -cd and -g folders; errors of ``compare_run``."""
    from sgsdump.pipeline.compared_files import compare_run

    assert job.compare_dir is not None
    return compare_run(
        job.folder / OUTPUTS,
        job.compare_dir,
        job.golden_dir,
        tag=INPUT_TAG if job.input_tag is None else job.input_tag,
        th1=TH1 if job.th1 is None else job.th1,
        th2=TH2 if job.th2 is None else job.th2,
        progress=progress,
    )


def holds(job: Job, comparison: GoldenComparison) -> bool:
    """True when every tensor could be compared and the thresholds that were given, if any, hold for all."""
    if any(row.reason for row in comparison.rows):
        return False
    if not job.judge:
        return True
    if (job.input_tag is not None or job.th1 is not None) and not comparison.passes:
        return False
    return job.th2 is None or not any(
        row.diff2 > job.th2 or (row.nan_inf and not row.diff2 <= job.th2) for row in comparison.rows
    )


def _model(job: Job) -> Model:
    model = open_model(job.model, job.weight_file)
    given = shapes(job.shape)
    if given:
        model = replace(model, proto=fix_shapes(model.proto, given))
    if job.model_type and MODEL_TYPES[job.model_type] == "float16":
        from sgsdump.executors.onnx_runtime.float16 import to_float16

        model = replace(model, proto=to_float16(model.proto, str(model.folder) if model.folder else None))
    return model


def _set_inputs(job: Job, run: Pipeline) -> None:
    if job.inputs_from:
        run.set_input_data_from_json(job.inputs_from)
        return
    if job.input_dir:
        run.set_input_data_from_file(job.input_dir)
        return
    names = [spec.name for spec in graph_inputs(run.model.proto)]
    files = input_files(job.input_file, names) if job.input_file else {}
    run.set_input_data(ranges(job.range, names), {name: array_of(file) for name, file in files.items()})
