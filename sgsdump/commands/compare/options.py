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
    add_dump_scheduler,
    add_json,
    add_parse_net,
    add_raw,
    add_run,
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
INPUT_TAG, TH1 = 10.0, 1e-6
NO_METRIC = "none"  # --metric: no agreement of answers
FILES = ("csv", "json", "html", "junit", "markdown")

TWO, TREES, RUNS, GOLDEN, WATCHER = "two dumps", "trees of runs", "--runs", "--golden", "a watcher's dump"
BOARD = "a board's buffers"
RANGES = "two calibrations"
MODELS = "two models"
_MEASURED = (TWO, TREES, RUNS)  # the modes that measure two dumps, or pairs of them
_COMPARED = (*_MEASURED, GOLDEN)
MODES = Modes(
    honoured={
        **dict.fromkeys(["step", "rank"], (*_COMPARED, WATCHER)),
        "sample": (*_COMPARED, WATCHER, BOARD, RANGES, MODELS),
        "benchmark": (*_COMPARED, BOARD, RANGES, MODELS),
        "further": (BOARD,),
        **dict.fromkeys("inputs tensor_min_max parse_net th1".split(), _COMPARED),
        **dict.fromkeys("top csv json".split(), (*_COMPARED, RANGES, MODELS)),
        **dict.fromkeys("sort only_bad junit markdown annotate format".split(), _COMPARED),
        **dict.fromkeys("stages scheduler html plots max_channel_rmse metrics metric".split(), _MEASURED),
        **dict.fromkeys("match_by_value name_map name_rule".split(), (*_MEASURED, MODELS)),
        **dict.fromkeys("min_cos max_rmse max_mse exclude".split(), (*_MEASURED, MODELS)),
        "limit": (*_MEASURED, RANGES, MODELS),
        "raw_dtype": (TWO, RUNS, GOLDEN),
        "allow_missing": (*_COMPARED, RANGES, MODELS),
        "fail_on": _MEASURED,
        "suite": _COMPARED,
        "compatible": (TWO, TREES),
        "write_name_map": (TWO,),
        "runs": (RUNS,),
        **dict.fromkeys(["golden", "input_tag"], (GOLDEN,)),
    },
    refusals={
        TREES: "is for one run, and these are several: choose with --step, --rank",
        RUNS: "is for one run; leave it out, or --runs",
        GOLDEN: "cannot be combined with --golden; leave one of them out",
        WATCHER: "is for two dumps; name the benchmark too, or leave it out for a watcher's dump",
        BOARD: "is for dumps, and the first file is a board's raw buffer; leave it out",
        RANGES: "is for dumps, and these are the ranges of calibrations; leave it out",
        MODELS: "is for dumps, and these are models, whose weights are compared; leave it out",
        "further": "is for a board's raw buffers, the fixed dump last; these are dumps",
        "raw_dtype": "is for files without a header, and these are dumps of other kinds; leave it out",
        "input_tag": "belongs to --golden; name the golden dump too",
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
    th1: float
    input_tag: float

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
    golden: Path | None
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
        beside = [reading.tensor_min_max, reading.parse_net, pairing.stages, *pairing.name_map]
        return [self.sample, self.benchmark, self.golden, *beside]

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
        measuring=record(
            Measuring,
            args,
            th1=TH1 if args.th1 is None else args.th1,
            input_tag=INPUT_TAG if args.input_tag is None else args.input_tag,
        ),
        output=record(Output, args, annotate=args.annotate and tuple(args.annotate), begun=monotonic()),
        given=MODES.given(args),
        typed=typed(args),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_dumps(parser)
    _add_old_spellings(parser)
    _add_pairing(parser.add_argument_group("which tensors belong together"))
    _add_metrics(parser.add_argument_group("what is measured, and how far it may be off"))
    add_listing(parser.add_argument_group("which layers are listed, and how"))
    _add_files(parser.add_argument_group("files"))


def _add_dumps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sample", type=Path, metavar="SAMPLE", help="the dump under test")
    parser.add_argument(
        "benchmark", type=Path, nargs="?", metavar="BENCHMARK", help="reference dump (omit for a watcher dump)"
    )
    parser.add_argument(
        "further",
        type=Path,
        nargs="*",
        default=[],
        metavar="MORE",
        help="of a board's raw output buffers: any number, then the fixed dump of the same picture",
    )
    dumps = parser.add_argument_group("the dumps")
    add_reading(dumps)
    dumps.add_argument(
        "--runs",
        action="store_true",
        help="both are folders of dumps, one for each run (picture, step), or trees of runs: compare those of one name "
        "and merge their sums, so that every number is over the values of all runs; each layer names its worst run",
    )
    add_dump_scheduler(dumps, "measure the layers")


def add_reading(dumps: argparse._ActionsContainer) -> None:
    """How the dumps are read."""
    add_run(dumps)
    add_raw(dumps, shapes=False)
    dumps.add_argument("--inputs", action="store_true", help="compare the networks' inputs too")
    dumps.add_argument(
        "--tensor-min-max", type=Path, metavar="FILE", help="calibrated ranges, to dequantise integer dumps"
    )
    add_parse_net(dumps)


def _add_pairing(parser: argparse._ActionsContainer) -> None:
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
        help="regular expression that turns sample names into benchmark names; may be repeated, applied in turn",
    )
    parser.add_argument(
        "--write-name-map", type=Path, metavar="FILE", help="write the pairs whose names differ as a name map"
    )


def _add_metrics(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--min-cos", type=float, metavar="X", help="exit 1 when a layer's COS is below X")
    parser.add_argument("--max-rmse", type=float, metavar="X", help="exit 1 when a layer's RMSE is above X")
    parser.add_argument("--max-mse", type=float, metavar="X", help="exit 1 when a layer's MSE is above X")
    parser.add_argument("--metrics", action=_Metrics, of=_metrics, type=names, default=[], metavar="NAMES")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="FILE.py:FUNCTION",
        help="add your own metric, f(sample, benchmark) -> number, higher is better; may be repeated. --limit "
        "FUNCTION=X sets its lowest allowed value. none: no agreement of answers in the verdict",
    )
    parser.add_argument(
        "--limit",
        type=_limits,
        default=[],
        metavar="NAME=X",
        help="exit 1 when such a metric of a layer is past X, separated by commas: diff2=0.001,CosineSimilarity=0.99; "
        "LAYER:NAME=X is for these layers only (* and ? are wildcards) and overrides the others",
    )
    parser.add_argument(
        "--max-channel-rmse",
        type=float,
        metavar="X",
        help="exit 1 when the RMSE of one channel of a layer is above X (errors that all channels share apart)",
    )
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="with limits or --golden, do not exit 1 as outputs, other layers or runs are missing",
    )
    parser.add_argument(
        "--fail-on",
        choices=("cause",),
        help="exit 1 where a cause is named: where an error arises, an argument or weight that differs, a NaN",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="LAYER",
        help="exclude layers matching this pattern (* and ? are wildcards); may be repeated",
    )


def _add_old_spellings(parser: argparse.ArgumentParser) -> None:
    """What ``sgsdump judge`` and ``--metrics`` are asked for now; still taken, no longer listed."""
    unlisted = argparse.SUPPRESS
    parser.add_argument("--golden", type=Path, help=unlisted)
    parser.add_argument("--input-tag", type=float, help=unlisted)
    parser.add_argument("--th1", type=float, help=unlisted)
    parser.add_argument("--compatible", help=unlisted)


class _Metrics(Listing):
    """Tools among the names go to ``compatible``: their metrics are printed as they print them."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        from sgsdump.comparison.vendor_metrics import VENDOR_METRICS

        tools = [name for name in values if name in VENDOR_METRICS]
        if len(tools) > 1:
            raise argparse.ArgumentError(self, f"{' and '.join(tools)} at once; name one tool")
        if tools:
            namespace.compatible = tools[0]
        super().__call__(parser, namespace, [name for name in values if name not in VENDOR_METRICS], option_string)


def add_listing(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--format",
        choices=("table", "sdk"),
        help="a table for people, as wide as the window (default), or the lines that the SDK's tools print",
    )
    parser.add_argument(
        "--sort",
        choices=("depth", "worst"),
        help="in the network's order, or the largest error first (default: depth, with --top worst)",
    )
    parser.add_argument("--top", type=whole_number, metavar="N", help="list only the N layers with the largest error")
    parser.add_argument(
        "--only-bad", action="store_true", help="list only layers past the thresholds (given or documented)"
    )


def add_tables(parser: argparse._ActionsContainer) -> None:
    """The files that any comparison is written as."""
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the comparison as CSV, in full precision")
    add_json(parser, "the same as JSON; NaN and Inf are strings")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="the same as JUnit XML, a test case per layer")
    parser.add_argument("--suite", metavar="NAME", help="its suite and class (default: the two paths)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="a summary as GitHub-flavoured Markdown")
    parser.add_argument(
        "--annotate",
        type=Path,
        nargs=2,
        metavar=("MODEL.onnx", "OUT.onnx"),
        help="write the model with each node's figures in its metadata, which viewers (Netron) show beside the node",
    )


def _add_files(parser: argparse._ActionsContainer) -> None:
    add_tables(parser)
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="the same as an HTML page, as sgsdump report writes it"
    )
    parser.add_argument(
        "--plots",
        type=Path,
        metavar="DIR",
        help="the same as pictures: error over depth, and every layer's values on both sides; an existing folder is "
        "moved aside under its date",
    )


def _metrics() -> str:
    from sgsdump.comparison.metrics import METRICS
    from sgsdump.comparison.vendor_metrics import VENDOR_METRICS

    further = " ".join(name for name in METRICS if name not in ALWAYS)
    tools = " or ".join(VENDOR_METRICS)
    return f"show these further metrics, separated by commas, or all: {further}; {tools}: as that tool prints them"


def _limits(text: str) -> list[tuple[str, str, float]]:
    """Layers ("" for all), names and numbers of ``NAME=X,LAYER:NAME=X``."""
    limits = []
    for part in names(text):
        key, sign, limit = part.rpartition("=")
        layer, _, name = key.rpartition(":")
        if not sign:
            raise argparse.ArgumentTypeError(f"{part!r} is not NAME=X")
        if name in ALWAYS and not layer:
            raise argparse.ArgumentTypeError(f"{name} has an option of its own: --min-cos, --max-rmse or --max-mse")
        try:
            limits.append((layer, name, float(limit)))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{limit!r} in {part!r} is not a number") from None
    return limits
