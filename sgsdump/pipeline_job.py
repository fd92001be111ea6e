"""What one call of ``sgsdump pipeline`` or ``tools/dump_tools.py`` is to do, whether it can be, and the doing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sgsdump.bisection import THRESHOLD, Bisection, Tried, bisect_executors
from sgsdump.dump_info import OUTPUTS
from sgsdump.errors import ConfigError, OutputError
from sgsdump.executor import Progress, executors, open_executor
from sgsdump.family import hint
from sgsdump.golden import GoldenComparison
from sgsdump.golden import Progress as Bar
from sgsdump.ir_text import executor_text, ir_text
from sgsdump.model import Model, graph_inputs, open_model
from sgsdump.output import check_folder
from sgsdump.passes.fix_shapes import fix_shapes
from sgsdump.pipeline import Pipeline
from sgsdump.pipelining.attempt import ExecutorConfigs
from sgsdump.pipelining.compared_files import compare_run, npy_files
from sgsdump.pipelining.given_inputs import array_of
from sgsdump.pipelining.option_values import input_files, place, ranges, shapes
from sgsdump.pipelining.random_inputs import InputDefaults
from sgsdump.pipelining.selection import Place
from sgsdump.test_case import save_test_case

MODEL_TYPES = ("float16", "float32")
INPUT_TAG, TH1, TH2 = 10.0, 1e-6, 1e-3


@dataclass(frozen=True)
class Job:
    """The options as typed; None and empty stand for what was not given.

    kind           full, once, range or list.
    names          tensors to dump: one for ``once``, any number for ``list``.
    begin, end     of ``range``: a topological index or a name; ``begin_string``, ``end_string`` are always names.
    output         the dump's folder, else ``./EXECUTOR_dump``.
    model_type     ``float16`` runs a float16 copy of the model.
    option         of the executor, KEY=VALUE each; passed_path is its option ``passes``.
    depth          of the printed graph and the test case: only the last so many nodes.
    log            where the comparison's log goes, .csv and .json beside it; else compare_result.log in the folder.
    judge          a threshold that was given and does not hold makes the exit status 1.
    """

    kind: str
    model: Path
    weight_file: Path | None = None
    executor: str = "ort"
    mode: str = "fast"
    model_type: str | None = None
    passed_path: Path | None = None
    option: Sequence[str] = ()
    output: Path | None = None
    names: Sequence[str] = ()
    begin: str | None = None
    end: str | None = None
    begin_string: str | None = None
    end_string: str | None = None
    step: int = 1
    name_pattern: str | None = None
    op_type: Sequence[str] = ()
    input_file: str | None = None
    input_dir: Path | None = None
    inputs_from: Path | None = None
    seed: int | None = None
    range: Sequence[Sequence[str]] = ()
    shape: Sequence[str] = ()
    compare_dir: Path | None = None
    golden_dir: Path | None = None
    input_tag: float | None = None
    th1: float | None = None
    th2: float | None = None
    print_ir: bool = False
    test_case: Path | None = None
    depth: int | None = None
    bisect: str | None = None
    threshold: float = THRESHOLD
    log: Path | None = None
    judge: bool = True

    @property
    def folder(self) -> Path:
        return self.output or Path(f"{self.executor}_dump")

    @property
    def ends(self) -> tuple[Place | None, Place | None]:
        """Where a range begins and ends. Raises ConfigError when one is given twice."""
        return place(self.begin, self.begin_string, "the start"), place(self.end, self.end_string, "the end")

    @property
    def init_configs(self) -> dict[str, str]:
        """The executor's options. Raises ConfigError."""
        found = {}
        for word in self.option:
            key, equals, value = word.partition("=")
            if not (key and equals):
                raise ConfigError(f"--option {word}: write KEY=VALUE")
            found[key] = value
        return found | ({"passes": str(self.passed_path)} if self.passed_path else {})


def check(job: Job) -> None:
    """Raises ConfigError or OutputError, before anything runs, for what is wrong with the options themselves."""
    for executor in filter(None, (job.executor, job.bisect)):
        if executor not in executors():
            raise ConfigError(f"unknown executor {executor!r}{hint(executor, executors())}")
    if job.model_type not in (None, *MODEL_TYPES):
        raise ConfigError(f"unknown model type {job.model_type!r}{hint(job.model_type, list(MODEL_TYPES))}")
    if sum(way is not None for way in (job.input_file, job.input_dir, job.inputs_from)) > 1:
        raise ConfigError("inputs come one of three ways: -i, --input-dir or --inputs-from")
    if (job.input_dir or job.inputs_from) and (job.seed is not None or job.range):
        raise ConfigError(
            "--seed and --range draw random inputs; --input-dir and --inputs-from already say what they are"
        )
    if job.depth is not None and job.depth < 1:
        raise ConfigError(f"--depth {job.depth}: the last node alone is 1; leave it out for all nodes")
    _ = job.ends, job.init_configs
    _check_comparison(job)
    check_folder(job.folder)
    if job.test_case:
        check_folder(job.test_case)
        if job.folder.resolve().is_relative_to(job.test_case.resolve()):
            raise OutputError(f"the dump {job.folder} and the test case cannot be in one folder; name another")
    read = (job.model, job.weight_file, job.passed_path, job.compare_dir, job.golden_dir)
    for path in filter(None, read):
        if path.resolve().is_relative_to(job.folder.resolve()):
            raise OutputError(f"cannot write the folder {job.folder}: {path} is in it; name another with -o")


def _check_comparison(job: Job) -> None:
    if job.bisect and job.compare_dir:
        raise ConfigError("--bisect dumps nothing that -cd could be compared with; leave one of them out")
    if job.golden_dir and not job.compare_dir:
        raise ConfigError("-g is for the three-way comparison; name the run to judge by with -cd too")
    for what, value in (("-t", job.input_tag), ("-t1", job.th1), ("-t2", job.th2), ("--threshold", job.threshold)):
        if value is not None and not value >= 0:
            raise ConfigError(f"{what} {value:g}: a threshold is 0 or more")
    for folder in filter(None, (job.compare_dir, job.golden_dir)):
        npy_files(folder)


def pipeline(job: Job, told: Callable[[str], None], progress: Progress | None = None) -> Pipeline:
    """The job's pipeline, its inputs set and nothing written yet; ``told`` gets its console lines.

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
        told=told,
        progress=progress,
    )
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


def bisect(job: Job, run: Pipeline, on_tried: Callable[[Tried], None]) -> Bisection:
    """Where the job's executor first differs from that of ``--bisect``, on the same inputs."""
    assert job.bisect is not None
    configs = ExecutorConfigs(init=job.init_configs)
    return bisect_executors(run.model, job.executor, job.bisect, run.inputs, job.threshold, job.mode, configs, on_tried)


def compare(job: Job, bar: Bar | None = None) -> GoldenComparison:
    """What the job dumped against its -cd and -g folders; errors of ``compare_run``."""
    assert job.compare_dir is not None
    return compare_run(
        job.folder / OUTPUTS,
        job.compare_dir,
        job.golden_dir,
        tag=INPUT_TAG if job.input_tag is None else job.input_tag,
        th1=TH1 if job.th1 is None else job.th1,
        th2=TH2 if job.th2 is None else job.th2,
        progress=bar,
    )


def holds(job: Job, found: GoldenComparison) -> bool:
    """True when every tensor could be compared and the thresholds that were given, if any, hold for all."""
    if any(row.reason for row in found.rows):
        return False
    if not job.judge:
        return True
    if (job.input_tag is not None or job.th1 is not None) and not found.passes:
        return False
    return job.th2 is None or not any(
        row.diff2 > job.th2 or (row.nan_inf and not row.diff2 <= job.th2) for row in found.rows
    )


def _model(job: Job) -> Model:
    model = open_model(job.model, job.weight_file)
    given = shapes(job.shape)
    if given:
        model = replace(model, proto=fix_shapes(model.proto, given))
    if job.model_type == "float16":
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
