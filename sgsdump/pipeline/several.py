"""One dump for each of several inputs: FOLDER/NAME is a dump folder like any other.

The inputs are the feeds of a data loader script, called 0, 1, 2 ..., or the sub-folders of ``--input-dir``; the dumps
of one run of the command are such a folder for the next. FOLDER takes its place when all of its dumps are whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sgsdump.errors import ConfigError
from sgsdump.files.atomic_write import replacing_folder
from sgsdump.models.model import graph_inputs
from sgsdump.pipeline.dump_folder import is_dump
from sgsdump.pipeline.inputs.given import folders_of_runs
from sgsdump.pipeline.job import Job
from sgsdump.pipeline.pipeline import Pipeline
from sgsdump.progress import SILENT, Progress


def is_several(job: Job, inputs: Sequence[str]) -> bool:
    """Whether the job has several inputs for a model of these ``inputs``.

    Raises ConfigError for what is done with one input only.
    """
    several = bool(job.data_loader_script or (job.input_dir and folders_of_runs(job.input_dir, inputs)))
    for option, given in (("--bisect", job.bisect), ("--save-test-case", job.test_case)):
        if several and given:
            raise ConfigError(
                f"{option} is for one input; give that one alone (-i, or a folder with it as --input-dir)"
            )
    return several


def each_run(job: Job, run: Pipeline, place: Path) -> Iterator[str]:
    """The name of each input in turn, the pipeline then set to it and to the folder of its dump in ``place``.

    Raises InputError for a script or folder that does not give what the model takes.
    """
    names = [spec.name for spec in graph_inputs(run.model.proto)]
    if job.data_loader_script:
        from sgsdump.models.feeds.data_loader import raw_feeds

        for number, arrays in raw_feeds(job.data_loader_script, names):
            run.folder = place / number
            run.set_input_data(None, arrays)
            yield number
        return
    assert job.input_dir is not None
    for folder in folders_of_runs(job.input_dir, names):
        run.folder = place / folder.name
        run.set_input_data_from_file(folder)
        yield folder.name


@contextmanager
def writing_all(root: Path, progress: Progress = SILENT) -> Iterator[Path]:
    """The folder that becomes ``root`` when the block ends well; earlier dumps there are set aside as a whole."""

    def set_aside(aside: Path) -> None:
        progress.say(f"the earlier dumps in {root} are now {aside}")

    earlier = is_dump(root) or (root.is_dir() and any(is_dump(each) for each in root.iterdir() if each.is_dir()))
    with replacing_folder(root, set_aside, None if earlier else lambda _: True) as place:
        yield place


def job_of(job: Job, name: str) -> Job:
    """The job of one input: its dump, and its share of the folders to compare with."""

    def part(folder: Path | None) -> Path | None:
        return None if folder is None else folder / name

    log = job.log and job.log.with_name(f"{job.log.stem}_{name}{job.log.suffix}")
    return replace(
        job, output=job.folder / name, compare_dir=part(job.compare_dir), golden_dir=part(job.golden_dir), log=log
    )
