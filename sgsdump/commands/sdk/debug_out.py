"""The folder in which the SDK's auto_dump_debug.sh leaves its report.

::

    Undefined_benchmark.bin_DumpDebug_out/benchmark.bin_doAnalyzeRmse_run.log
    Undefined_benchmark.bin_DumpDebug_out_backup_at_20240131-120000/           an older one, renamed

The log's first line names a folder, the others are the layers (``reports/comparison/sdk_lines.py``).
Source: docs/formats/sigmastar.md#split-dumps.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from sgsdump.comparison.comparison import Comparison
from sgsdump.comparison.thresholds import DOCUMENTED
from sgsdump.files.atomic_write import make_folder, replace_text, set_aside
from sgsdump.reports.comparison import REPORTS


def new_folder(name: str, category: str = "Undefined") -> Path:
    """Make the folder of a benchmark file or a model called ``name``, here; an older one is set aside as its backup."""
    folder = Path.cwd() / f"{category}_{name}_DumpDebug_out"
    set_aside(folder, mark="_backup_at_", date=datetime.now())
    return make_folder(folder)


def write_log(comparison: Comparison, name: str, folder: Path, lines: str = "sdk_lines") -> Path:
    """Write ``NAME_doAnalyzeRmse_run.log`` into ``folder``: the line of a folder's name, then one line per layer.

    lines  the report that gives these: ``sdk_lines`` as newer scripts print them, ``sdk_table`` as the manual shows.
    """
    log = folder / f"{name}_doAnalyzeRmse_run.log"
    replace_text(log, f"{folder / 'genCompareLayer'}\n" + REPORTS[lines](comparison, DOCUMENTED))
    return log
