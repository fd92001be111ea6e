"""What one call of ``sgsdump pipeline`` or ``tools/dump_tools.py`` is to do, and whether it can be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sgsdump.errors import ConfigError, OutputError
from sgsdump.executors.table import executors
from sgsdump.files.atomic_write import check_folder
from sgsdump.pipeline.compared_files import npy_files
from sgsdump.pipeline.inputs.options import place
from sgsdump.pipeline.selection import Place
from sgsdump.registry import hint

MODEL_TYPES = {"float16": "float16", "fp16": "float16", "float32": "float32", "fp32": "float32"}
"""What -mt takes, the SDAA tool's spellings too, and what it means."""


@dataclass(frozen=True)
class Job:
    """The options as typed; None and empty mean not given.

    kind           full, once, range or list.
    names          tensors to dump: one for ``once``, any number for ``list``.
    begin, end     of ``range``: a topological index or a name; ``begin_string``, ``end_string`` are always names.
    output         the dump's folder, else ``./EXECUTOR_dump``.
    model_type     ``float16`` or ``fp16`` runs a float16 copy of the model.
    option         of the executor, KEY=VALUE each; passed_path is its option ``passes``, provider its ``provider``.
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
    provider: str | None = None
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
    data_loader_script: str | None = None
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
    threshold: float = 1e-3
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
        options = {}
        for word in self.option:
            key, equals, value = word.partition("=")
            if not (key and equals):
                raise ConfigError(f"--option {word}: write KEY=VALUE")
            options[key] = value
        named = {"passes": self.passed_path, "provider": self.provider}
        return options | {key: str(value) for key, value in named.items() if value}


def check(job: Job) -> None:
    """Raises ConfigError or OutputError, before anything runs, for what is wrong with the options themselves."""
    for executor in filter(None, (job.executor, job.bisect)):
        if executor not in executors():
            raise ConfigError(f"unknown executor {executor!r}{hint(executor, executors())}")
    if job.model_type and job.model_type not in MODEL_TYPES:
        raise ConfigError(f"unknown model type {job.model_type!r}{hint(job.model_type, list(MODEL_TYPES))}")
    if sum(way is not None for way in (job.input_file, job.input_dir, job.inputs_from, job.data_loader_script)) > 1:
        raise ConfigError("inputs come one of four ways: -i, --input-dir, --inputs-from or --data-loader-script")
    if (job.input_dir or job.inputs_from or job.data_loader_script) and (job.seed is not None or job.range):
        raise ConfigError(
            "--seed and --range draw random inputs; --input-dir, --inputs-from and --data-loader-script already say "
            "what they are"
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
    if not (job.data_loader_script or job.input_dir):  # of several inputs each has a folder in it
        check_compared(job)


def check_compared(job: Job) -> None:
    """Raises ConfigError for a folder to compare with that is missing or holds no .npy file."""
    for folder in filter(None, (job.compare_dir, job.golden_dir)):
        npy_files(folder)
