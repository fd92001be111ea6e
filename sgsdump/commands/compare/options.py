"""The options of ``sgsdump compare``: how they are spelled, which of its modes honours them, and their records."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Literal

from sgsdump.commands.options import (
    Listing,
    Modes,
    Reading,
    add_allow_missing,
    add_csv,
    add_json,
    add_junit,
    add_limits,
    add_metric,
    add_parse_net,
    add_ranges,
    add_raw,
    add_readers,
    add_run,
    add_runs,
    add_scheduler,
    add_stages,
    names,
    record,
    whole_number,
)

if TYPE_CHECKING:
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.comparison.own_metric import OwnMetric
    from sgsdump.comparison.thresholds import Thresholds
    from sgsdump.comparison.verdict import Verdict

ALWAYS = ("mse", "cos", "rmse")  # the metrics that are shown whether asked for or not
NO_METRIC = "none"  # --metric: no agreement of answers
FILES = ("csv", "json", "html", "junit", "markdown")

TWO, TREES, RUNS, WATCHER = "two dumps", "trees of runs", "--runs", "a watcher's dump"
BOARD = "a board's buffers"
RANGES = "two calibrations"
MODELS = "two models"
_MEASURED = (TWO, TREES, RUNS)  # the modes that measure two dumps, or pairs of them
MODES = Modes(
    honoured={
        **dict.fromkeys(["step", "rank"], (*_MEASURED, WATCHER)),
        "sample": (*_MEASURED, WATCHER, BOARD, RANGES, MODELS),
        "benchmark": (*_MEASURED, BOARD, RANGES, MODELS),
        "further": (BOARD,),
        **dict.fromkeys("inputs ranges parse_net".split(), _MEASURED),
        **dict.fromkeys("top csv json".split(), (*_MEASURED, RANGES, MODELS)),
        **dict.fromkeys("sort only_bad junit markdown annotate format".split(), _MEASURED),
        **dict.fromkeys("stages scheduler html plots max_channel_rmse metrics metric".split(), _MEASURED),
        **dict.fromkeys("match_by_value name_map name_rule".split(), (*_MEASURED, MODELS)),
        **dict.fromkeys("min_cos max_rmse max_mse exclude".split(), (*_MEASURED, MODELS)),
        "limit": (*_MEASURED, RANGES, MODELS),
        **dict.fromkeys(["raw_dtype", "reader", "files"], (TWO, RUNS)),
        "allow_missing": (*_MEASURED, RANGES, MODELS),
        "fail_on": _MEASURED,
        "suite": _MEASURED,
        "compatible": (TWO, TREES),
        "write_name_map": (TWO,),
        "runs": (RUNS,),
    },
    refusals={
        TREES: "is for one run, but these are several; choose one with --step, --rank",
        RUNS: "is for one run; omit it or --runs",
        WATCHER: "is for two dumps; name the benchmark too, or omit the option for a watcher dump",
        BOARD: "is for dumps, but the first file is a raw buffer of a board; omit it",
        RANGES: "is for dumps, but these files hold calibration ranges; omit it",
        MODELS: "is for dumps, but these are models, whose weights are compared; omit it",
        "further": "is for raw buffers of a board followed by the fixed dump, but these are dumps",
        **dict.fromkeys(["reader", "files"], "reads one dump on each side, but these are several; omit it"),
        "raw_dtype": "is for files without a header, but these dumps are of other formats; omit it",
    },
    spelled={"further": "a third path", "compatible": "a tool's metrics (--metrics TOOL)"},
)


@dataclass(frozen=True)
class Pairing:
    """Which tensors belong together."""

    match_by_value: bool
    stages: Path | None
    name_map: Sequence[Path]
    name_rule: Sequence[str]


@dataclass(frozen=True)
class Measuring:
    """The metrics, and how far they may be off; ``limit``: layers ("" for all), metrics and numbers."""

    min_cos: float | None
    max_rmse: float | None
    max_mse: float | None
    max_channel_rmse: float | None
    allow_missing: bool
    fail_on: Literal["cause"] | None
    metrics: Sequence[str]
    metric: Sequence[str]
    limit: Sequence[tuple[str, str, float]]
    exclude: Sequence[str]
    compatible: str | None

    def thresholds(self, own: tuple[str, ...] = ()) -> Thresholds:
        """The limits that were given; ``own``: the names of the user's metrics."""
        from sgsdump.comparison.thresholds import Thresholds

        of_all = tuple((name, limit) for layer, name, limit in self.limit if not layer)
        of_layers = tuple(limit for limit in self.limit if limit[0])
        limits = self.min_cos, self.max_rmse, self.max_mse
        return Thresholds(*limits, of_all, of_layers, own, self.max_channel_rmse)

    @property
    def has_limits(self) -> bool:
        limits = (self.min_cos, self.max_rmse, self.max_mse, self.max_channel_rmse)
        return bool(self.limit) or any(limit is not None for limit in limits)

    def own_metrics(self) -> dict[str, OwnMetric]:
        """Load the user's own metrics. Raises InputError and ConfigError."""
        metrics = [metric for metric in self.metric if metric != NO_METRIC]
        if not metrics:
            return {}
        from sgsdump.comparison.own_metric import load_own_metrics

        return load_own_metrics(metrics)

    def limits(self) -> Thresholds:
        """Return the limits that the user gave, else the documented ones."""
        from sgsdump.comparison.thresholds import DOCUMENTED

        return self.thresholds(tuple(self.own_metrics())) or DOCUMENTED

    def verdict_on(self, comparison: Comparison, limits: Thresholds) -> Verdict:
        """Return the verdict by these limits, if the user gave any."""
        verdict = comparison.verdict(limits if self.has_limits else None, self.allow_missing)
        return replace(verdict, agreement=None) if NO_METRIC in self.metric else verdict


@dataclass(frozen=True)
class Output:
    """The files to write, and which layers are listed; ``begun``: when, by ``time.monotonic``."""

    csv: Path | None
    json: Path | None
    html: Path | None
    junit: Path | None
    suite: str | None
    markdown: Path | None
    plots: Path | None
    annotate: tuple[Path, Path] | None
    write_name_map: Path | None
    format: Literal["table", "sdk"] | None
    sort: Literal["depth", "worst"] | None
    top: int | None
    only_bad: bool
    begun: float

    def labelled(self, label: str) -> Output:
        """The same for one run, every file with its label: ``report.step0-rank0.csv``."""
        paths = {name: getattr(self, name) for name in FILES}
        files = {name: path.with_stem(f"{path.stem}.{label}") for name, path in paths.items() if path}
        plots = self.plots and self.plots.with_name(f"{self.plots.name}.{label}")
        annotate = self.annotate
        if annotate:
            model, path = annotate
            annotate = model, path.with_stem(f"{path.stem}.{label}")
        return replace(self, **files, plots=plots, annotate=annotate, begun=monotonic())


@dataclass(frozen=True)
class Options:
    """The dumps to compare, and how; ``given`` names the options that the user gave, ``typed`` is how a page says what
    was typed."""

    sample: Path
    benchmark: Path
    runs: bool
    reading: Reading
    inputs: bool
    scheduler: str | None
    pairing: Pairing
    measuring: Measuring
    output: Output
    given: tuple[str, ...]
    typed: tuple[tuple[str, str], ...]

    @property
    def files(self) -> list[Path | None]:
        """What is read."""
        reading, pairing = self.reading, self.pairing
        beside = [reading.ranges, reading.parse_net, pairing.stages, *pairing.name_map]
        return [self.sample, self.benchmark, *beside]

    @property
    def title(self) -> str:
        return f"{self.sample.name} against {self.benchmark.name}"

    def of_pair(self, sample: Path, benchmark: Path) -> Options:
        """The options for one pair of runs, chosen already."""
        reading = replace(self.reading, step=None, rank=None)
        return replace(self, sample=sample, benchmark=benchmark, reading=reading)


def options_of(args: argparse.Namespace) -> Options:
    from sgsdump.reports.made_by import typed

    return record(
        Options,
        args,
        reading=record(Reading, args, raw_shape=()),
        pairing=record(Pairing, args),
        measuring=record(Measuring, args, compatible=getattr(args, "compatible", None)),
        output=record(Output, args, annotate=args.annotate and tuple(args.annotate), begun=monotonic()),
        given=MODES.given(args),
        typed=typed(args),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_dumps(parser)
    _add_pairing(parser.add_argument_group("pairing of tensors"))
    _add_metrics(parser.add_argument_group("metrics and limits (exit status 1 if a limit is exceeded)"))
    add_listing(parser.add_argument_group("table"), "outside the limits (default limits: COS 0.99, RMSE 0.1)")
    _add_files(parser.add_argument_group("output files"))


def _add_dumps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sample", type=Path, metavar="SAMPLE", help="dump under test, such as the dump of the fixed model"
    )
    parser.add_argument(
        "benchmark",
        type=Path,
        nargs="?",
        metavar="BENCHMARK",
        help="reference dump, such as the dump of the float model (omit BENCHMARK for a watcher dump)",
    )
    parser.add_argument(
        "further",
        type=Path,
        nargs="*",
        default=[],
        metavar="MORE",
        help=(
            "only to compare raw output buffers of a board: further buffers, then the dump of the fixed model "
            "for the same image"
        ),
    )
    dumps = parser.add_argument_group("input dumps")
    add_reading(dumps)
    add_runs(dumps)
    add_scheduler(dumps, "compute the metrics of the layers")


def add_reading(dumps: argparse._ActionsContainer) -> None:
    """Add the options that select and decode dumps."""
    add_run(dumps)
    add_raw(dumps, shapes=False)
    add_readers(dumps)
    dumps.add_argument("--inputs", action="store_true", help="also compare the inputs of the model")
    add_ranges(dumps, "calibration ranges (tensor_min_max.txt), used to dequantise integer dumps")
    add_parse_net(dumps)


def _add_pairing(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--match-by-value",
        action="store_true",
        help=("pair tensors with equal values, regardless of their names; suitable for dumps of two float runs"),
    )
    add_stages(parser)
    parser.add_argument(
        "--name-map",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="map of tensor names: JSON, YAML, CSV, a GE graph, or a MindIE-Torch or msprobe mapping; may be repeated",
    )
    parser.add_argument(
        "--name-rule",
        action="append",
        default=[],
        metavar="PATTERN=REPLACEMENT",
        help="regular expression that turns sample names into benchmark names; may be repeated",
    )
    parser.add_argument(
        "--write-name-map", type=Path, metavar="FILE", help="write a name map of the tensor pairs whose names differ"
    )


def _add_metrics(parser: argparse._ActionsContainer) -> None:
    add_limits(parser, "a layer", documented=False)
    parser.add_argument("--max-mse", type=float, metavar="X", help="highest MSE allowed for a layer")
    parser.add_argument(
        "--max-channel-rmse",
        type=float,
        metavar="X",
        help="highest RMSE allowed for a channel, not counting errors common to all channels",
    )
    parser.add_argument(
        "--limit",
        type=_limits,
        default=[],
        metavar="[LAYER:]NAME=X,...",
        help=(
            "limits of other metrics, such as diff2=0.001; with LAYER:, a limit applies only to layers that match the "
            "pattern LAYER (* ?)"
        ),
    )
    parser.add_argument("--metrics", action=_Metrics, of=_metrics, type=names, default=[], metavar="NAME,...")
    add_metric(
        parser,
        'your own metric f(sample, benchmark) -> number, where higher is better; or "none" to omit from the '
        "verdict how many images, detections or pixels agree; may be repeated",
        repeated=True,
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="LAYER",
        help="exclude layers whose names match this pattern (wildcards * and ?); may be repeated",
    )
    add_allow_missing(
        parser, "with limits or --fail-on: do not exit with status 1 because outputs, layers or runs are missing"
    )
    parser.add_argument(
        "--fail-on",
        choices=("cause",),
        help="exit with status 1 if a cause is named, or if a layer is missing or could not be compared",
    )


class _Metrics(Listing):
    """``--metrics``: the names of tools go to ``compatible``; their metrics are printed in the form of the tool."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        from sgsdump.comparison.vendor_metrics import VENDOR_METRICS

        tools = [name for name in values if name in VENDOR_METRICS]
        if len(tools) > 1:
            raise argparse.ArgumentError(self, f"{' and '.join(tools)} at once; name one tool")
        if tools:
            namespace.compatible = tools[0]
        super().__call__(parser, namespace, [name for name in values if name not in VENDOR_METRICS], option_string)


def add_listing(parser: argparse._ActionsContainer, bad: str) -> None:
    """Add the options of the table; ``bad``: the layers of ``--only-bad``."""
    parser.add_argument(
        "--format",
        choices=("table", "sdk"),
        help="table: aligned columns; sdk: lines as the SDK's tools print them (default: table)",
    )
    parser.add_argument(
        "--sort",
        choices=("depth", "worst"),
        help="depth: order of the model; worst: largest error first (default: depth; with --top: worst)",
    )
    parser.add_argument("--top", type=whole_number, metavar="N", help="list only the N layers with the largest error")
    parser.add_argument("--only-bad", action="store_true", help=f"list only layers {bad}")


def add_tables(parser: argparse._ActionsContainer) -> None:
    """Add the files that any comparison can write."""
    add_csv(parser, "write the metrics of every layer as CSV, in full precision")
    add_json(parser, "write the comparison as JSON (NaN and Inf as strings)")
    add_junit(parser, "write a test case per layer as JUnit XML")
    parser.add_argument(
        "--suite", metavar="NAME", help="name of suite and class in the JUnit XML (default: the paths of the dumps)"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a summary as GitHub-flavoured Markdown")
    parser.add_argument(
        "--annotate",
        type=Path,
        nargs=2,
        metavar=("MODEL.onnx", "OUT.onnx"),
        help=(
            "write a copy of the model in which each node carries its metrics as metadata; viewers such "
            "as Netron show this metadata"
        ),
    )


def _add_files(parser: argparse._ActionsContainer) -> None:
    add_tables(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write an HTML page, as sgsdump report does")
    parser.add_argument(
        "--plots",
        type=Path,
        metavar="DIR",
        help=(
            "write charts: the error against the depth of the layer, and the values of every layer; an "
            "existing DIR is renamed"
        ),
    )


def _metrics() -> str:
    from sgsdump.comparison.metrics import METRICS
    from sgsdump.comparison.vendor_metrics import VENDOR_METRICS

    further = " ".join(name for name in METRICS if name not in ALWAYS)
    tools = " or ".join(VENDOR_METRICS)
    return (
        f'further metrics to print: {further}; "all" prints every metric of this list; {tools} prints the metrics of '
        "the tool with this name"
    )


def _limits(text: str) -> list[tuple[str, str, float]]:
    """Layers ("" for all), names and numbers of ``NAME=X,LAYER:NAME=X``."""
    limits = []
    for part in names(text):
        key, sign, limit = part.rpartition("=")
        layer, _, name = key.rpartition(":")
        if not sign:
            raise argparse.ArgumentTypeError(f"{part!r} is not NAME=X")
        if name in ALWAYS and not layer:
            raise argparse.ArgumentTypeError(f"set the limit of {name} with --min-cos, --max-rmse or --max-mse")
        try:
            limits.append((layer, name, float(limit)))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{limit!r} in {part!r} is not a number") from None
    return limits
