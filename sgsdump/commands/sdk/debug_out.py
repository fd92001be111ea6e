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
from sgsdump.errors import OutputError
from sgsdump.files.atomic_write import make_folder, replacing
from sgsdump.reports.comparison import REPORTS


def new_folder(name: str, category: str = "Undefined", inside: Path = Path()) -> Path:
    """Make the folder of a benchmark file or a model called ``name``; an older one is renamed to its backup."""
    folder = inside.resolve() / f"{category}_{name}_DumpDebug_out"
    if folder.exists():
        stamp, number = datetime.now().strftime("%Y%m%d-%H%M%S"), 1
        backup = folder.with_name(f"{folder.name}_backup_at_{stamp}")
        while backup.exists():
            number += 1
            backup = folder.with_name(f"{folder.name}_backup_at_{stamp}_{number}")
        try:
            folder.rename(backup)
        except OSError as error:
            raise OutputError(f"cannot rename {folder} to {backup.name}: {error.strerror}") from error
    return make_folder(folder)


def write_log(comparison: Comparison, name: str, folder: Path, lines: str = "sdk_lines") -> Path:
    """Write ``NAME_doAnalyzeRmse_run.log`` into ``folder``: the line of a folder's name, then one line per layer.

    lines  the report that gives these: ``sdk_lines`` as newer scripts print them, ``sdk_table`` as the manual shows.
    """
    log = folder / f"{name}_doAnalyzeRmse_run.log"
    with replacing(log) as file:
        text = f"{folder / 'genCompareLayer'}\n" + REPORTS[lines](comparison, DOCUMENTED)
        file.write(text.encode("utf-8", "surrogateescape"))
    return log
