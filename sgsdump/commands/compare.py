"""Hold a sample dump against a benchmark dump: MSE, COS and RMSE of every layer, and a verdict.

The sample is the run under test (the fixed model), the benchmark the reference (the float or original model).
RMSE is what the SDK calls so: sum |a-b| / sum |b|, a relative error. Exit status: 0 within the thresholds or none
given, 1 past a threshold you gave (NaN, Inf and layers that could not be compared count as past), 2 on trouble.

examples:
  sgsdump compare fixed.bin float.bin
  sgsdump compare fixed.bin float.bin --min-cos 0.99 --max-rmse 0.1 --csv report.csv
  sgsdump compare integers.bin float.bin --tensor_min_max log/tensor_min_max.txt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

HELP = "compare two dumps layer by layer"
BIG = 64 << 20  # bytes in both files from which a progress bar helps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sample", type=Path, help="the dump under test")
    parser.add_argument("benchmark", type=Path, help="the dump to hold it against")
    parser.add_argument("--min-cos", type=float, metavar="X", help="exit 1 when a layer's COS is below X")
    parser.add_argument("--max-rmse", type=float, metavar="X", help="exit 1 when a layer's RMSE is above X")
    parser.add_argument("--max-mse", type=float, metavar="X", help="exit 1 when a layer's MSE is above X")
    parser.add_argument("--inputs", action="store_true", help="compare the networks' inputs too")
    parser.add_argument(
        "--tensor_min_max", type=Path, metavar="FILE", help="calibrated ranges, to dequantise integer dumps"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the comparison as CSV, in full precision")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same as JSON; NaN and Inf are strings")


def run(args: argparse.Namespace) -> int:
    from sgsdump.comparison import compare
    from sgsdump.dump import open_dump
    from sgsdump.errors import ValuesError
    from sgsdump.report import reports
    from sgsdump.sidecars.tensor_min_max import read_ranges
    from sgsdump.thresholds import DOCUMENTED, Thresholds

    given = Thresholds(args.min_cos, args.max_rmse, args.max_mse)
    shown = given or DOCUMENTED
    ranges = read_ranges(args.tensor_min_max) if args.tensor_min_max else None
    sample, benchmark = open_dump(args.sample), open_dump(args.benchmark)
    big = sum(_size(path) for path in (args.sample, args.benchmark)) >= BIG
    found = compare(sample, benchmark, inputs=args.inputs, ranges=ranges, progress=_bar if big else None)
    if not found.rows and not found.failed:
        raise ValuesError(
            f"no layer in common: {args.sample} has {len(sample)} outputs, {args.benchmark} has {len(benchmark)}, "
            f"and no name agrees; are they dumps of one model?"
        )
    for name, path in (("csv", args.csv), ("json", args.json)):
        if path:
            _write(path, reports()[name](found, shown))
    table = reports()["sdk_table"](found, shown)
    verdict = reports()["verdict"](found, shown)
    print(_printable(f"{table}\n{verdict}" if table else verdict), end="")
    if not found.rows:
        raise ValuesError(f"none of {len(found.failed)} layers could be compared; the reasons are listed above")
    return 1 if given and not found.passes(given) else 0


def _write(path: Path, text: str) -> None:
    from sgsdump.output import replacing

    with replacing(path) as file:
        # names that are not UTF-8 come from the dump as surrogates, and go back as the bytes they were
        file.write(text.encode("utf-8", "surrogateescape"))


def _printable(text: str) -> str:
    """The text with what the terminal cannot show (names in another encoding) as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _bar(stream: Iterable, total: int) -> Iterable:
    from tqdm import tqdm

    return tqdm(stream, total=total, unit="layer", desc="compare", file=sys.stderr, leave=False)
