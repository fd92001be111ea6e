"""Run every benchmark and print one table of their rows: figure, floor, ratio, aim.

    python benchmarks/table.py                    all of them, in full, on an idle machine
    python benchmarks/table.py --short compare text    these two, in their short settings
    python benchmarks/table.py --markdown rows.md      the table as README.md has it, too

What a row measures stands in its benchmark's own text. A benchmark that fails is named at the end; exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import COLLECT, Row, show

HERE = Path(__file__).parent


BENCHMARKS = (
    "calibrate capture_decoder capture_in_program capture_onnxruntime capture_torch cluster_on_paper "
    "commands_on_paper compare convert convolutions diagnose dump executors fixed histogram large layers "
    "model_layers pipeline report second_look startup text tune"
).split()
# What benchmarks share, what takes files of the user's, and what prints a table of its own.
OTHERS = (
    "cure cure_peers cured_nets external_weights named_cause paper_tasks peers peers_work report_views resnet_like "
    "resnet_torch rows table trained_nets tune_labelled tune_ways tuned_net ultraface_boxes unseen unseen_peers"
).split()


def collected(name: str, short: bool) -> tuple[list[Row], bool]:
    """The rows of one benchmark, and whether it ended well."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        command = [sys.executable, str(HERE / f"{name}.py"), *(["--short"] if short else [])]
        done = subprocess.run(command, env={**os.environ, COLLECT: str(file)}, check=False)
        rows = [Row(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        return rows, done.returncode == 0


def markdown(rows: list[tuple[str, Row]]) -> str:
    """A line for each row, by its benchmark."""
    lines = ["| benchmark | what | figure | floor | ratio | aim |", "|---|---|---:|---:|---:|---:|"]
    for name, row in rows:
        aim = "" if row.aim is None else f"{row.aim:g}"
        figures = f"{row.figure:.4g} {row.unit} | {row.floor:.4g} {row.unit} | {row.ratio:.2f} | {aim}"
        lines.append(f"| {name} | {row.name} | {figures} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(BENCHMARKS)}")
    args = parser.parse_args()
    rows: list[tuple[str, Row]] = []
    failed: list[str] = []
    for name in args.names or BENCHMARKS:
        print(f"\n{name}", flush=True)
        some, well = collected(name, args.short)
        rows += [(name, row) for row in some]
        if args.markdown:
            args.markdown.write_text(markdown(rows))
        failed += [] if well else [name]
    print("\nAll rows")
    if rows:
        show(row for _, row in rows)
    for name in failed:
        print(f"failed: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
