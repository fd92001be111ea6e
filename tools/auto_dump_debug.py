#!/usr/bin/env python3
"""Compare two dumps, or simulate a float and a fixed model and compare their dumps; auto_dump_debug.sh runs this.

auto_dump_debug.sh SDK_DIR sample.bin benchmark.bin
auto_dump_debug.sh SDK_DIR FLOAT_MODEL FIXED_MODEL IMAGE LABEL Classification|Detection|Unknown PREPROCESS.py

examples:
  auto_dump_debug.sh ~/SGS_IPU_SDK ~/sample.bin ~/benchmark.bin
  auto_dump_debug.sh ~/SGS_IPU_SDK net_float.sim net_fixed.sim img.bmp label.txt Unknown net.py

The sample is the dump under test, such as the fixed model's. The benchmark is the reference, such as the float model's.
The report goes into Undefined_BENCHMARK_DumpDebug_out; an older folder is renamed. SDK_DIR and LABEL are ignored.
With $SGS_OP_TYPE, the lines have the form of older SDKs and of the manual: "OP_TYPE:CONV_2D MSE:... COS:... RMSE:...".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgsdump import Comparison
    from sgsdump.models.model import Model

CATEGORIES = ("Classification", "Detection", "Unknown")
FLOAT_CONFIG = "dumpTensor\neliminateGarbage\npath=.\n"
FIXED_CONFIG = "dumpTensor\neliminateGarbage\ndequantFixed\npath=.\n"


def main(argv: Sequence[str] | None = None) -> int:
    from sgsdump.cli import exit_status

    given = sys.argv[1:] if argv is None else list(argv)
    if {"-h", "--help"} & set(given):
        print(__doc__, end="")
        return 0
    return exit_status("auto_dump_debug.sh", lambda: run(given))


def run(given: Sequence[str]) -> int:
    from sgsdump.errors import ConfigError

    if len(given) == 3:
        return compare_dumps(*map(Path, given[1:]))
    if len(given) == 7:
        return compare_models(*given[1:4], *given[5:])
    raise ConfigError(f"{len(given)} arguments given, but 3 or 7 are needed; see --help")


def compare_dumps(sample: Path, benchmark: Path) -> int:
    from sgsdump import compare, open_dump
    from sgsdump.commands.sdk.files import new_folder
    from sgsdump.errors import ConfigError

    for path in (sample, benchmark):
        if path.suffix != ".bin":
            raise ConfigError(f"{path}: the name of a dump must end in .bin; rename it")
    comparison = compare(open_dump(sample), open_dump(benchmark))
    return report(comparison, benchmark.name, new_folder(benchmark.name))


def compare_models(float_model: str, fixed_model: str, image: str, category: str, preprocess: str) -> int:
    from sgsdump import compare, open_dump
    from sgsdump.commands.sdk.files import new_folder
    from sgsdump.commands.sdk.options import ours_beside, with_presets
    from sgsdump.errors import ConfigError
    from sgsdump.models.model import open_model

    if category not in CATEGORIES:
        raise ConfigError(f"category {category!r}: it is one of {', '.join(CATEGORIES)}")
    method = with_presets(preprocess) or preprocess
    fixed_model = ours_beside("auto_dump_debug.sh", fixed_model)
    models = [(open_model(float_model), "Float", FLOAT_CONFIG), (open_model(fixed_model), "Fixed", FIXED_CONFIG)]
    name = Path(float_model).name
    folder = new_folder(name, category)
    try:
        benchmark, sample = [simulate(*model, image, method, folder) for model in models]
        comparison = compare(open_dump(sample), open_dump(benchmark))
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    return report(comparison, name, folder)


def simulate(model: Model, kind: str, config: str, image: str, preprocess: str, folder: Path) -> Path:
    """The dump that the simulator leaves in a folder of its own, as the DebugConfig.txt there says."""
    from sgsdump.fixedpoint.commands.simulate import simulate_all
    from sgsdump.models.network import Source

    work = folder / kind.lower()
    work.mkdir()
    (work / "DebugConfig.txt").write_text(config)
    for _ in simulate_all(model, kind, Source(image, preprocess), work):
        pass
    return work / "sigma_outtensor_dump.bin"


def report(comparison: Comparison, name: str, folder: Path) -> int:
    """Print the layers and what was not compared; write the log."""
    from sgsdump.commands.sdk.files import write_log
    from sgsdump.comparison.thresholds import DOCUMENTED
    from sgsdump.errors import ValuesError
    from sgsdump.reports.comparison import REPORTS

    log = write_log(comparison, name, folder, "sdk_table" if os.environ.get("SGS_OP_TYPE") else "sdk_lines")
    print(log.read_text(encoding="utf-8", errors="replace"), REPORTS["verdict"](comparison, DOCUMENTED), sep="", end="")
    print(f"Report: {log}")
    if not comparison.rows:
        raise ValuesError("no layer could be compared; the reasons are listed above")
    return 0


if __name__ == "__main__":
    from door import enter

    enter(main)
