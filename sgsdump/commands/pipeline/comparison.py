"""The dump of ``sgsdump pipeline`` against other runs: printed, and written beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.terminal import TERMINAL

if TYPE_CHECKING:
    from sgsdump.pipeline.job import Job


def compare_with_others(job: Job) -> bool:
    """Print and write the comparison; False for a tensor that cannot be compared, or past a threshold given."""
    from sgsdump.files.atomic_write import replace_text, together
    from sgsdump.pipeline.compared_files import other_inputs
    from sgsdump.pipeline.run_job import compare, holds
    from sgsdump.reports.golden import csv, json
    from sgsdump.reports.golden import log as golden_log

    comparison = compare(job, TERMINAL)
    for folder in filter(None, (job.compare_dir, job.golden_dir)):
        for name in other_inputs(job.folder, folder):
            TERMINAL.say(f"note: {folder} was run on another input {name}")
    TERMINAL.say(golden_log.golden_lines(comparison).removesuffix("\n"))
    log = job.log or job.folder / "compare_result.log"
    texts = {
        log: golden_log.render(comparison),
        log.with_suffix(".csv"): csv.render(comparison),
        log.with_suffix(".json"): json.render(comparison),
    }
    page = log.with_suffix(".html")
    with together():
        for path, text in texts.items():
            replace_text(path, text)
        if job.kind == "full":
            replace_text(page, _page(job))
    failed = sum(not row.passes for row in comparison.rows)
    TERMINAL.say(f"{log}: {len(comparison.rows)} compared, {len(comparison.rows) - failed} pass, {failed} do not")
    if job.kind == "full":
        TERMINAL.say(f"{page}: the same as a page to look at")
    return holds(job, comparison)


def _alike(folder: Path, other: Path) -> tuple[Path, Path]:
    """The two runs as dumps, or both as folders of arrays where the other is no more than that."""
    from sgsdump.dumps.formats.sdaa.dump_info import JSON_NAME, OUTPUTS

    whole = next((each for each in (other, other.parent) if (each / JSON_NAME).is_file()), None)
    return (folder / OUTPUTS, other) if whole is None else (folder, whole)


def _page(job: Job) -> str:
    """The dump against that of -cd as HTML."""
    from sgsdump.comparison.compare import compare
    from sgsdump.dumps.io import open_dump
    from sgsdump.reports.html.document import render
    from sgsdump.reports.html.of_comparison import report_of

    assert job.compare_dir is not None
    sample, benchmark = map(open_dump, _alike(job.folder, job.compare_dir))
    comparison = compare(sample, benchmark, details=True, progress=TERMINAL)
    title = f"{job.folder.name} against {job.compare_dir.name}"
    facts = [("sample", str(job.folder)), ("benchmark", str(job.compare_dir))]
    return render(report_of(comparison, title=title, sample=sample, benchmark=benchmark, facts=facts))
