"""Job of one call of ``sgsdump pipeline`` or ``tools/dump_tools.py``, and its validation.

Tensor names may contain colons, commas and equal signs (``input:0``), so names in options are matched with the model's
own names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from sgsdump.errors import ConfigError, OutputError, hint
from sgsdump.executors.table import check_executor, executors, is_plug_in, label_of
from sgsdump.files.atomic_write import check_folder, check_not_around, check_outputs
from sgsdump.models.model import NATIVE, Part, runtime_of
from sgsdump.pipeline.compared_files import npy_files
from sgsdump.pipeline.selection import Position
from sgsdump.pipeline.steps import FAST, ISOLATED

Options = TypeVar("Options")
MODEL_TYPES = {"float16": "float16", "fp16": "float16", "float32": "float32", "fp32": "float32"}
"""Values of -mt, including the SDAA tool's spellings, and their meaning."""


@dataclass(frozen=True)
class RunOptions:
    """Model, part of the model, and executor.

    executor       name in ``executors()``, or the runtime of a model that only its own framework runs.
    mode           ``fast`` or ``isolated``; None uses ``mode_of``.
    model_type     ``float16`` or ``fp16`` runs a float16 copy of the model.
    option         options of the executor, KEY=VALUE each; passed_path sets ``passes``, provider sets ``provider``.
    """

    model: Path
    weight_file: Path | None = None
    executor: str = "ort"
    mode: str | None = None
    model_type: str | None = None
    passed_path: Path | None = None
    option: Sequence[str] = ()
    provider: str | None = None
    model_inputs: Sequence[str] = ()
    model_outputs: Sequence[str] = ()

    @property
    def part(self) -> Part:
        return Part(self.model_inputs, self.model_outputs)

    def mode_of(self, executor: str) -> str:
        """Return the mode of an executor if none is given: ``isolated`` for a plug-in, which may fuse operators."""
        return self.mode or (ISOLATED if is_plug_in(executor) else FAST)

    @property
    def init_configs(self) -> dict[str, str]:
        """Options of the executor. Raises ConfigError."""
        options = {}
        for word in self.option:
            key, equals, value = word.partition("=")
            if not (key and equals):
                raise ConfigError(f"--option {word}: write KEY=VALUE")
            options[key] = value
        named = {"passes": self.passed_path, "provider": self.provider}
        return options | {key: str(value) for key, value in named.items() if value}


@dataclass(frozen=True)
class TensorOptions:
    """Tensors to dump.

    names          tensors by name: one for ``once``, any number for ``list``.
    begin, end     ends of ``range``: topological index or name; ``begin_string`` and ``end_string`` are always names.
    """

    names: Sequence[str] = ()
    begin: str | None = None
    end: str | None = None
    begin_string: str | None = None
    end_string: str | None = None
    step: int = 1
    name_pattern: str | None = None
    op_type: Sequence[str] = ()

    @property
    def ends(self) -> tuple[Position | None, Position | None]:
        """Begin and end of a range. Raises ConfigError if one is given twice."""
        return position(self.begin, self.begin_string, "the start"), position(self.end, self.end_string, "the end")


@dataclass(frozen=True)
class InputOptions:
    """Sources of the inputs, as typed."""

    input_file: str | None = None
    input_dir: Path | None = None
    inputs_from: Path | None = None
    data_loader_script: str | None = None
    seed: int | None = None
    range: Sequence[Sequence[str]] = ()
    shape: Sequence[str] = ()


@dataclass(frozen=True)
class ComparisonOptions:
    """Runs to compare with.

    log            log file of the comparison, with .csv and .json beside it; default compare_result.log in the folder.
    allow_missing  a tensor that -cd or -g lacks does not cause exit status 1 if a threshold is given.
    judge          a failing tensor causes exit status 1.
    """

    compare_dir: Path | None = None
    golden_dir: Path | None = None
    input_tag: float | None = None
    th1: float | None = None
    th2: float | None = None
    log: Path | None = None
    allow_missing: bool = False
    judge: bool = True


@dataclass(frozen=True)
class ExcerptOptions:
    """Excerpts of the graph that leads to one tensor; ``depth`` limits them to the last nodes."""

    print_ir: bool = False
    test_case: Path | None = None
    depth: int | None = None


@dataclass(frozen=True)
class BisectOptions:
    """Executor with which to find the first difference; None for no bisection."""

    bisect: str | None = None
    threshold: float = 1e-3


@dataclass(frozen=True)
class Job:
    """Options as typed; None and empty mean not given.

    kind           full, once, range or list.
    output         folder of the dump, else ``./EXECUTOR_dump``.
    """

    kind: str
    output: Path | None
    run: RunOptions
    tensors: TensorOptions
    inputs: InputOptions
    comparison: ComparisonOptions
    excerpt: ExcerptOptions
    bisection: BisectOptions

    @property
    def folder(self) -> Path:
        return self.output or Path(f"{label_of(self.run.executor)}_dump")


PARTS = (RunOptions, TensorOptions, InputOptions, ComparisonOptions, ExcerptOptions, BisectOptions)
OPTIONS = ("kind", "output", *(field.name for part in PARTS for field in fields(part)))
"""Names of all options of a job."""


def job_of(options: Mapping[str, Any]) -> Job:
    """Return the job for options named as in the records here; missing options and None have their defaults.

    The default executor is ort, or the runtime of a model that only its own framework runs. Raises ModelError.
    """

    def part(record: type[Options]) -> Options:
        names = [field.name for field in fields(record)]  # type: ignore[arg-type]
        return record(**{name: options[name] for name in names if options.get(name) is not None})

    if options.get("executor") is None:
        options = {**options, "executor": runtime_of(options["model"]) or "ort"}
    return Job(options["kind"], options.get("output"), *map(part, PARTS))  # type: ignore[arg-type]


def _check_native(job: Job, runtime: str) -> None:
    """Raise ConfigError for options that a model run by its own framework, as a whole, does not support."""
    run, why = job.run, f"only {runtime} can run {job.run.model}, and only as a whole"
    if run.executor != runtime:
        raise ConfigError(f"-f {run.executor}: {why}; leave -f out")
    given = {
        "--mode isolated": run.mode == ISOLATED,
        "-mt": run.model_type,
        "--passed-path": run.passed_path,
        "--option": run.option,
        "--provider": run.provider,
        "--bisect": job.bisection.bisect,
        "--save-test-case": job.excerpt.test_case,
    }
    for option, value in given.items():
        if value:
            raise ConfigError(f"{option}: {why}; leave this option out")


def check(job: Job) -> None:
    """Raise ConfigError or OutputError for invalid options, before anything runs."""
    run, inputs, test_case = job.run, job.inputs, job.excerpt.test_case
    runtime = runtime_of(run.model)
    if runtime:
        _check_native(job, runtime)
    for executor in filter(None, ("" if runtime else run.executor, job.bisection.bisect)):
        if executor in NATIVE and executor not in executors():
            raise ConfigError(f"the executor {executor} runs only models of its own format, not {run.model}")
        check_executor(executor)
    if run.model_type and run.model_type not in MODEL_TYPES:
        raise ConfigError(f"unknown model type {run.model_type!r}{hint(run.model_type, list(MODEL_TYPES))}")
    sources = (inputs.input_file, inputs.input_dir, inputs.inputs_from, inputs.data_loader_script)
    if sum(source is not None for source in sources) > 1:
        raise ConfigError("give the inputs in one way only: -i, --input-dir, --inputs-from or --data-loader-script")
    if any(sources[1:]) and (inputs.seed is not None or inputs.range):
        raise ConfigError(
            "--seed and --range are for random inputs; leave them out with --input-dir, --inputs-from and "
            "--data-loader-script"
        )
    if job.excerpt.depth is not None and job.excerpt.depth < 1:
        raise ConfigError(f"--depth {job.excerpt.depth}: must be 1 or more; omit --depth to include all nodes")
    _ = job.tensors.ends, run.init_configs
    _check_comparison(job)
    check_folder(job.folder)
    if test_case:
        check_folder(test_case)
        if job.folder.resolve().is_relative_to(test_case.resolve()):
            raise OutputError(f"the dump {job.folder} and the test case cannot be in one folder; choose another folder")
    check_outputs([job.folder], [inputs.input_file, inputs.input_dir])
    read = (run.model, run.weight_file, run.passed_path, job.comparison.compare_dir, job.comparison.golden_dir)
    check_not_around(job.folder, read)


def _check_comparison(job: Job) -> None:
    options, bisection = job.comparison, job.bisection
    if options.golden_dir and not options.compare_dir:
        raise ConfigError("-g adds a golden run to a comparison of two runs; also give the run to compare with (-cd)")
    thresholds = {"-t": options.input_tag, "-t1": options.th1, "-t2": options.th2, "--threshold": bisection.threshold}
    for option, value in thresholds.items():
        if value is not None and not value >= 0:
            raise ConfigError(f"{option} {value:g}: a threshold must be 0 or more")
    if not (job.inputs.data_loader_script or job.inputs.input_dir):  # with several inputs, each has its own sub-folder
        check_compared(options)


def check_compared(options: ComparisonOptions) -> None:
    """Raise ConfigError for a folder to compare with that is missing or contains no .npy file."""
    for folder in filter(None, (options.compare_dir, options.golden_dir)):
        npy_files(folder)


def shapes(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return ``{"x": (1, 3, 8, 8)}`` for ``["x=1x3x8x8"]``; commas may replace the ``x``. Raises ConfigError."""
    by_name: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, sizes = word.rpartition("=")
        numbers = sizes.strip().lower().replace(",", "x").split("x")
        if not (equals and name and all(map(str.isdecimal, numbers))):
            raise ConfigError(f"--shape {word}: write NAME=SIZExSIZE, such as input=1x3x224x224")
        if name in by_name:
            raise ConfigError(f"--shape gives the input {name!r} twice")
        by_name[name] = tuple(map(int, numbers))
    return by_name


def input_files(text: str, names: Collection[str]) -> dict[str, Path]:
    """Return input name -> file for ``"x:a.npy,y:b.npy"``; ``names`` are the model's inputs.

    A part that does not begin with an input's name continues the previous file name. Raises ConfigError.
    """
    by_name: dict[str, str] = {}
    name = ""
    for part in text.split(","):
        prefix = max((name for name in names if part.startswith(f"{name}:")), key=len, default="")
        if prefix:
            if prefix in by_name:
                raise ConfigError(f"-i gives the input {prefix!r} twice")
            name, by_name[prefix] = prefix, part[len(prefix) + 1 :]
        elif name and ":" not in part:
            by_name[name] += f",{part}"
        else:
            unknown = part.rpartition(":")[0]
            if not unknown:
                raise ConfigError(f"-i {text}: write NAME:FILE.npy, with NAME one of: {', '.join(names)}")
            raise ConfigError(f"-i {part}: the model has no input {unknown!r}{hint(unknown, list(names))}")
    empty = [name for name, file in by_name.items() if not file]
    if empty:
        raise ConfigError(f"-i {text}: write a file name after {empty[0]}:")
    return {name: Path(file) for name, file in by_name.items()}


def ranges(groups: Sequence[Sequence[str]], names: Collection[str]) -> dict[str, dict[str, float]]:
    """Return low and high per input for ``[["0", "1"], ["x", "0", "255"]]``.

    A range without a name applies to all ``names``.

    Several ranges may follow each other, ``["x", "0", "1", "y", "0", "255"]``. If this is ambiguous, a word that equals
    an input's name is a name. A range with a name overrides one without. Raises ConfigError.
    """
    by_name: dict[str, dict[str, float]] = {}
    for group in sorted((single for words in groups for single in _single_ranges(words, names)), key=len):
        *named, low, high = group if len(group) in (2, 3) else ("", "")
        limits = _number(low), _number(high)
        if not all(map(math.isfinite, limits)) or limits[0] > limits[1]:
            raise ConfigError(
                f"--range {' '.join(group)}: write LOW HIGH or NAME LOW HIGH, once or several times; "
                "LOW must not exceed HIGH"
            )
        if named and named[0] not in names:
            raise ConfigError(f"--range: the model has no input {named[0]!r}{hint(named[0], list(names))}")
        by_name |= {name: dict(zip(("low", "high"), limits)) for name in named or names}
    return by_name


def _single_ranges(words: Sequence[str], names: Collection[str]) -> Iterator[Sequence[str]]:
    """Yield the ranges of a sequence, each of two words or, with a name, of three; the rest may be anything."""
    while len(words) > 3:
        size = 3 if words[0] in names or not math.isfinite(_number(words[0])) else 2
        yield words[:size]
        words = words[size:]
    if words:
        yield words


def position(position: str | None, name: str | None, what: str) -> Position | None:
    """Return begin or end of a range: an index if ``position`` is an integer, else a tensor's name.

    ``name`` is always a name, even if it consists of digits. Raises ConfigError if both are given.
    """
    if position is not None and name is not None:
        raise ConfigError(f"{what} is given both as index and as name; give only one of the two")
    if name is not None:
        return name
    return int(position) if position is not None and re.fullmatch(r"-?\d+", position) else position


def _number(text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        return math.nan
