"""Steps of a ``Job``: pipeline, dump, comparison, bisection.

With several inputs, each has its own dump: FOLDER/NAME is an ordinary dump folder. The inputs are the feeds of a data
loader script, named 0, 1, 2 ..., or the sub-folders of ``--input-dir``; the dumps of one run of the command can be such
a folder for the next. FOLDER is put in place when all of its dumps are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sgsdump.dumps.formats.sdaa.dump_info import OUTPUTS
from sgsdump.errors import ConfigError, SgsdumpError
from sgsdump.executors.onnx_runtime.observed_branches import with_branches
from sgsdump.executors.table import maker_of, open_executor
from sgsdump.files.atomic_write import replacing_folder
from sgsdump.models.feeds.drawn import InputDefaults, array_of, folders_of_runs
from sgsdump.models.model import Model, graph_inputs, open_model
from sgsdump.models.passes.rewrites import fix_shapes
from sgsdump.pipeline.dump_folder import is_dump
from sgsdump.pipeline.ir_text import executor_text, ir_text
from sgsdump.pipeline.job import MODEL_TYPES, Job, RunOptions, check_compared, input_files, ranges, shapes
from sgsdump.pipeline.onnx_test_case import save_test_case
from sgsdump.pipeline.pipeline import Pipeline
from sgsdump.pipeline.steps import Engine
from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    import numpy as np

    from sgsdump.comparison.golden import GoldenComparison
    from sgsdump.comparison.verdict import Verdict
    from sgsdump.pipeline.bisection import Bisection
    from sgsdump.pipeline.replay import OwnError
    from sgsdump.pipeline.whole_run import WholeRun

Result = TypeVar("Result")


def pipeline(job: Job, progress: Progress = SILENT) -> Pipeline:
    """Return the job's pipeline with its inputs set and nothing written yet; ``each_run`` sets several inputs.

    Raises the errors of ``open_model``, of the executor's ``init`` and of setting the inputs.
    """
    options, seed = job.run, job.inputs.seed
    whole = _model(options, job.inputs.shape)
    if whole.native is None:
        with open_executor(options.executor, options.init_configs):
            pass  # check that the new dump can begin before an older dump is moved

    def of(model: Model) -> Pipeline:
        return Pipeline(
            model,
            options.executor,
            job.folder,
            options.init_configs,
            mode=options.mode_of(options.executor),
            defaults=InputDefaults() if seed is None else InputDefaults(seed=seed),
            model_dtype=options.model_type or "",
            progress=progress,
        )

    model = with_branches(whole, lambda: _feeds(job, of(whole)))
    run = of(_of_type(model, options.model_type))
    if is_several(job, run):
        return run
    check_compared(job.comparison)
    _set_inputs(job, run)
    _ = run.inputs
    return run


def _feeds(job: Job, run: Pipeline) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """Yield name and arrays of each of the job's inputs."""
    if is_several(job, run):
        yield from ((name, run.inputs) for name in each_run(job, run, job.folder))
    else:
        _set_inputs(job, run)
        yield "", run.inputs


def dump_chosen(job: Job, run: Pipeline) -> None:
    """Dump the tensors that the job requests."""
    chosen = job.tensors
    if job.kind == "once":
        run.mark_outputs(chosen.names)
        run.dump_once()
    elif job.kind == "list":
        run.dump_list(chosen.names)
    else:
        run.dump_range(*chosen.ends, chosen.step, name_pattern=chosen.name_pattern, op_types=chosen.op_type)


def ir(job: Job, run: Pipeline) -> str:
    """Return the graph that leads to the job's tensors, in the executor's own language or as ONNX text."""
    names, depth = job.tensors.names, job.excerpt.depth
    if not hasattr(maker_of(job.run.executor), "ir_text"):
        return ir_text(run.model.proto, names, depth)
    with open_executor(job.run.executor, job.run.init_configs) as executor:
        return executor_text(run.model, executor, names, depth)


def save_case(job: Job, run: Pipeline) -> None:
    """Save the job's tensors as a stand-alone test case; raises the errors of ``save_test_case``."""
    assert job.excerpt.test_case is not None
    save_test_case(run.model, run.engine, run.inputs, job.tensors.names, job.excerpt.test_case, job.excerpt.depth)


def bisect(job: Job, run: Pipeline, progress: Progress = SILENT) -> Bisection:
    """Find where the job's executor first differs from that of ``--bisect`` on the same inputs."""
    from sgsdump.pipeline.bisection import bisect_executors

    assert job.bisection.bisect is not None
    reference = Engine(job.bisection.bisect, job.run.mode_of(job.bisection.bisect))
    return bisect_executors(run.model, run.engine, reference, run.inputs, job.bisection.threshold, progress)


def compare(job: Job, progress: Progress = SILENT) -> GoldenComparison:
    """Compare the job's dump with its -cd and -g folders; raises the errors of ``compare_run``."""
    from sgsdump.comparison.golden import GoldenSettings
    from sgsdump.pipeline.compared_files import compare_run

    options = job.comparison
    assert options.compare_dir is not None
    thresholds: dict[str, Any] = {"tag": options.input_tag, "th1": options.th1, "th2": options.th2}
    settings = GoldenSettings(**{name: value for name, value in thresholds.items() if value is not None})
    return compare_run(job.folder / OUTPUTS, options.compare_dir, options.golden_dir, settings, progress)


def at_dump(run: Pipeline, action: Callable[[Path], Result]) -> Result:
    """Return the result of ``action`` on the dump's folder; repeat it if another process moved the dump meanwhile."""
    while True:
        folder = run.written
        try:
            result = action(folder)
        except (SgsdumpError, OSError):
            if run.written == folder:
                raise
            continue
        if run.written == folder:
            return result


def whole_run(job: Job, run: Pipeline, progress: Progress = SILENT) -> WholeRun | None:
    """Compare the outputs of one run of the whole model with the dump.

    None if the dump does not contain all outputs, or lacks tensors that failed.
    """
    from sgsdump.pipeline.compared_files import recorded
    from sgsdump.pipeline.replay import Recorded
    from sgsdump.pipeline.whole_run import check_whole

    outputs = {info.name for info in run.model.proto.graph.output} & set(run.get_node_output_names())
    if run.model.native or run.failures or not run.written.is_dir() or not outputs or job.kind in ("once", "list"):
        return None

    def checked(folder: Path) -> WholeRun | None:
        dumped = recorded(folder)
        if not outputs <= dumped.keys():
            return None
        return check_whole(run.model, run.engine, run.inputs, Recorded(dumped), progress)

    return at_dump(run, checked)


def with_own_errors(
    job: Job,
    run: Pipeline,
    comparison: GoldenComparison,
    fused: Sequence[OwnError] = (),
    progress: Progress = SILENT,
) -> GoldenComparison:
    """If a tensor fails, return the comparison with the operators at fault, recomputed from their recorded inputs.

    The run is checked first, then the reference (-g, else -cd). ``fused`` errors come first.
    """
    from sgsdump.comparison.finding import Finding
    from sgsdump.pipeline.compared_files import recorded
    from sgsdump.pipeline.replay import SAMPLE, Recorded, judge

    options = job.comparison
    reference = options.golden_dir or options.compare_dir
    assert reference is not None
    compared = [row for row in comparison.rows if not row.reason]
    if run.model.native or not options.judge or not (fused or any(not row.passes for row in compared)):
        return comparison
    names = {row.name for row in compared}
    ours = recorded(job.folder)
    sides = Recorded(ours), Recorded({n: ours[n] for n in run.inputs if n in ours} | recorded(reference))
    with progress.bar("judge", "tensor") as advance:
        judgement = judge(run.model, *sides, names, advance)
    if not fused and judgement.unknown.keys() >= set(judgement.differing):
        return comparison
    findings = tuple(
        Finding(
            "cause" if error.finite else "not finite",
            error.name,
            error.op_type,
            {"own_error": error.error, "rounding_bounds": error.bound},
            "measured",
            facts={"side": str(job.folder if error.side == SAMPLE else reference), "node": error.node},
        )
        for error in (*fused, *judgement.errors)
    )
    return replace(comparison, own_errors=findings)


def verdict_of_run(job: Job, comparison: GoldenComparison) -> Verdict:
    """Return the verdict. It neither passes nor fails if nothing is judged, or if all differences are rounding and no
    threshold was given."""
    options = job.comparison
    verdict = comparison.verdict(options.allow_missing)
    by_default = all(threshold is None for threshold in (options.input_tag, options.th1, options.th2))
    if not options.judge or (by_default and verdict.state == "within rounding"):
        return replace(verdict, passes=None)
    return verdict


def holds(job: Job, comparison: GoldenComparison) -> bool:
    """Return whether the comparison passes.

    Every tensor must be comparable and pass; without a threshold, differences by rounding are accepted. With a
    threshold, nothing may be missing.
    """
    options = job.comparison
    verdict = comparison.verdict(options.allow_missing)
    if verdict.account.not_comparable:
        return False
    if not options.judge:
        return True
    given = (options.input_tag, options.th1, options.th2)
    if all(threshold is None for threshold in given):
        return comparison.passes or verdict.state == "within rounding"
    if verdict.account.lacks(options.allow_missing) or any(row.zeros for row in comparison.rows):
        return False
    if (options.input_tag is not None or options.th1 is not None) and not comparison.passes:
        return False
    return options.th2 is None or not any(
        row.diff2 > options.th2 or (row.nan_inf and not row.diff2 <= options.th2) for row in comparison.rows
    )


def is_several(job: Job, run: Pipeline) -> bool:
    """Return whether the job has several inputs for its model.

    Raises ConfigError for options that support only one input.
    """
    folder = job.inputs.input_dir
    several = bool(
        job.inputs.data_loader_script
        or len(_named_files(job)) > 1
        or (folder and folders_of_runs(folder, _input_names(run)))
    )
    if several and job.excerpt.test_case:
        raise ConfigError(
            "--save-test-case supports only one set of inputs; give one set (with -i, or as a folder with --input-dir)"
        )
    return several


def each_run(job: Job, run: Pipeline, folder: Path) -> Iterator[str]:
    """Yield the name of each input, with the pipeline set to it and to its dump folder in ``folder``.

    Raises InputError for a script or folder that does not provide the model's inputs.
    """
    if job.inputs.data_loader_script:
        from sgsdump.models.feeds.data_loader import loaded_feeds

        for number, arrays in loaded_feeds(job.inputs.data_loader_script, graph_inputs(run.model.proto)):
            run.folder = folder / number
            run.set_input_data(None, arrays)
            yield number
        return
    if files := _named_files(job):
        for file in files:
            run.folder = folder / file.stem
            run.set_input_data(None, _named_feed(file, run))
            yield file.stem
        return
    assert job.inputs.input_dir is not None
    for inputs in folders_of_runs(job.inputs.input_dir, _input_names(run)):
        run.folder = folder / inputs.name
        run.set_input_data_from_file(inputs)
        yield inputs.name


@contextmanager
def writing_all(root: Path, progress: Progress = SILENT) -> Iterator[Path]:
    """Yield the folder that becomes ``root`` if the block succeeds; earlier dumps there are moved as a whole."""

    def set_aside(aside: Path) -> None:
        progress.say(f"the earlier dumps in {root} were moved to {aside}")

    earlier = is_dump(root) or (root.is_dir() and any(is_dump(part) for part in root.iterdir() if part.is_dir()))
    with replacing_folder(root, set_aside, None if earlier else lambda _: True) as folder:
        yield folder


def job_of_input(job: Job, name: str) -> Job:
    """Return the job of one of several inputs: its dump, and its sub-folders of the folders to compare with."""
    options = job.comparison
    compare_dir, golden_dir = (folder and folder / name for folder in (options.compare_dir, options.golden_dir))
    log = options.log and options.log.with_name(f"{options.log.stem}_{name}{options.log.suffix}")
    comparison = replace(options, compare_dir=compare_dir, golden_dir=golden_dir, log=log)
    return replace(job, output=job.folder / name, comparison=comparison)


def _input_names(run: Pipeline) -> list[str]:
    return [spec.name for spec in graph_inputs(run.model.proto)]


def _model(options: RunOptions, shape_words: Sequence[str]) -> Model:
    model = open_model(options.model, options.weight_file, native=True, part=options.part)
    fixed = shapes(shape_words)
    if fixed:
        model = replace(model, proto=fix_shapes(model.proto, fixed))
    return model


def _of_type(model: Model, model_type: str | None) -> Model:
    if not model_type or MODEL_TYPES[model_type] != "float16":
        return model
    from sgsdump.executors.onnx_runtime.float16 import to_float16

    return replace(model, proto=to_float16(model.proto, str(model.folder) if model.folder else None))


def _named_files(job: Job) -> list[Path]:
    """Return the .npz file of -i, or those of its folder (one per run, with inputs by name); else none."""
    from sgsdump.models.feeds.image_list import NAMED

    path = Path(job.inputs.input_file or "")
    if job.inputs.input_file and path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix.lower() == NAMED)
    return [path] if path.suffix.lower() == NAMED and ":" not in path.name else []


def _named_feed(file: Path, run: Pipeline) -> dict[str, np.ndarray]:
    from sgsdump.models.feeds.feeds import fitted_feed, named_arrays

    specs = graph_inputs(run.model.proto)
    return fitted_feed(named_arrays(file), specs, [None] * len(specs), True, str(file))


def _set_inputs(job: Job, run: Pipeline) -> None:
    options = job.inputs
    if len(named := _named_files(job)) == 1:
        run.set_input_data(None, _named_feed(named[0], run))
        return
    if named:  # set one by one in each_run
        return
    if options.inputs_from:
        run.set_input_data_from_json(options.inputs_from)
    elif options.input_dir:
        run.set_input_data_from_file(options.input_dir)
    else:
        names = _input_names(run)
        files = input_files(options.input_file, names) if options.input_file else {}
        run.set_input_data(ranges(options.range, names), {name: array_of(file) for name, file in files.items()})
