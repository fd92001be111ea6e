"""The options of ``sgsdump compare``."""

from __future__ import annotations

import argparse
from pathlib import Path

from sgsdump.commands.option_values import names, whole_number
from sgsdump.commands.options import add_parse_net, add_run, add_stages
from sgsdump.commands.shared_files import add_scheduler

ALWAYS = ("mse", "cos", "rmse")  # the metrics that are shown whether asked for or not


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_dumps(parser)
    _add_pairing(parser.add_argument_group("which tensors belong together"))
    _add_metrics(parser.add_argument_group("what is measured, and how far it may be off"))
    _add_golden(parser.add_argument_group("three runs"))
    _add_listing(parser.add_argument_group("what is listed"))
    _add_files(parser.add_argument_group("files"))


def _add_dumps(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("sample", type=Path, help="the dump under test")
    parser.add_argument(
        "benchmark", type=Path, nargs="?", help="the dump to hold it against; none for the dump of a watcher"
    )
    add_run(parser)
    parser.add_argument("--inputs", action="store_true", help="compare the networks' inputs too")
    parser.add_argument(
        "--tensor-min-max", type=Path, metavar="FILE", help="calibrated ranges, to dequantise integer dumps"
    )
    add_parse_net(parser)
    parser.add_argument(
        "--runs",
        action="store_true",
        help="both are folders of dumps, one for each run (picture, step), or trees of runs: compare those of one name "
        "and merge their sums, so that every number is over the values of all runs; each layer names its worst run",
    )
    add_scheduler(parser, "measure the layers")


def _add_pairing(parser: argparse._ActionsContainer) -> None:
    """Which tensor is held against which."""
    parser.add_argument(
        "--match-by-value", action="store_true", help="pair tensors of equal values, whatever their names (float runs)"
    )
    add_stages(parser)
    parser.add_argument(
        "--name-map",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="how to pair, recognised by content; may be repeated: names as JSON, YAML or CSV "
        '({"benchmark name": "sample name"}), both mapping files of MindIE-Torch, a GE graph as JSON, msprobe\'s '
        "layer mapping, or lines PATTERN -> REPLACEMENT",
    )
    parser.add_argument(
        "--name-rule",
        action="append",
        default=[],
        metavar="PATTERN=REPLACEMENT",
        help="a regular expression that makes benchmark names of sample names; may be repeated, applied in turn",
    )
    parser.add_argument(
        "--write-name-map", type=Path, metavar="FILE", help="write the pairs whose names differ as a name map"
    )


def _add_metrics(parser: argparse._ActionsContainer) -> None:
    """What is measured, and how far it may be off."""
    parser.add_argument("--min-cos", type=float, metavar="X", help="exit 1 when a layer's COS is below X")
    parser.add_argument("--max-rmse", type=float, metavar="X", help="exit 1 when a layer's RMSE is above X")
    parser.add_argument("--max-mse", type=float, metavar="X", help="exit 1 when a layer's MSE is above X")
    parser.add_argument(
        "--metrics",
        type=names,
        default=[],
        metavar="NAMES",
        help="show these further metrics, separated by commas, or all of them: diff1 diff2 diff3_max diff3_mean "
        "all_close nan_inf mae mape CosineSimilarity MaxAbsoluteError AccumulatedRelativeError "
        "RelativeEuclideanDistance KullbackLeiblerDivergence StandardDeviation MeanAbsoluteError "
        "RootMeanSquareError MaxRelativeError MeanRelativeError sqnr psnr median_error error_p99 top1 top5",
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="FILE.py:FUNCTION",
        help="show your own metric too, f(sample, benchmark) -> number, both arrays of real values; may be "
        "repeated. --limit FUNCTION=X is the least it may be: higher is better",
    )
    parser.add_argument(
        "--limit",
        type=_limits,
        default=[],
        metavar="NAME=X",
        help="exit 1 when such a metric of a layer is past X, separated by commas: diff2=0.001,CosineSimilarity=0.99; "
        "LAYER:NAME=X is for these layers only (* and ? stand for any) and overrides the others",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="LAYER",
        help="leave out the layers of this name (* and ? stand for any); may be repeated",
    )
    parser.add_argument(
        "--compatible", metavar="TOOL", help="show the metrics as msaccucmp or msprobe prints them, digit by digit"
    )


def _add_golden(parser: argparse._ActionsContainer) -> None:
    """The run that judges two others."""
    parser.add_argument(
        "--golden", type=Path, metavar="DUMP", help="the run that judges both, such as the float32 model's"
    )
    parser.add_argument(
        "--input-tag", type=float, metavar="X", help="how many times the benchmark's error may be (default 10)"
    )
    parser.add_argument(
        "--th1",
        type=float,
        default=1e-6,
        metavar="X",
        help="diff3 is relative where |golden| is above X; all_close's tolerances (default 1e-6)",
    )


def _add_listing(parser: argparse._ActionsContainer) -> None:
    """What is listed of all layers, on the terminal, in a pipe and in Markdown."""
    parser.add_argument(
        "--sort",
        choices=("depth", "worst"),
        help="in the network's order, or the largest error first (default: depth, with --top worst)",
    )
    parser.add_argument("--top", type=whole_number, metavar="N", help="list only the N layers with the largest error")
    parser.add_argument(
        "--only-bad", action="store_true", help="list only layers past the thresholds (given or documented)"
    )


def _add_files(parser: argparse._ActionsContainer) -> None:
    """What the comparison is written to."""
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the comparison as CSV, in full precision")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same as JSON; NaN and Inf are strings")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the same as a page to look at, as sgsdump report")
    parser.add_argument(
        "--plots",
        type=Path,
        metavar="DIR",
        help="the same as pictures: error over depth, and every layer's values on both sides; an existing folder is "
        "moved aside under its date",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="the same as JUnit XML, a test case per layer")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="a summary as GitHub-flavoured Markdown")
    parser.add_argument(
        "--annotate",
        type=Path,
        nargs=2,
        metavar=("MODEL.onnx", "OUT.onnx"),
        help="write the model with each node's figures in its metadata, which viewers (Netron) show beside the node",
    )


def _limits(text: str) -> list[tuple[str, str, float]]:
    """Layers ("" for all), names and numbers of ``NAME=X,LAYER:NAME=X``."""
    limits = []
    for part in names(text):
        what, sign, limit = part.rpartition("=")
        layer, _, name = what.rpartition(":")
        if not sign:
            raise argparse.ArgumentTypeError(f"{part!r} is not NAME=X")
        if name in ALWAYS and not layer:
            raise argparse.ArgumentTypeError(f"{name} has an option of its own: --min-cos, --max-rmse or --max-mse")
        try:
            limits.append((layer, name, float(limit)))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{limit!r} in {part!r} is not a number") from None
    return limits
