"""Draw the values of every layer against its calibration range, one PNG per layer and an overview.

examples:
  sgsdump histogram float.bin log/tensor_min_max.txt
  sgsdump histogram float.bin quant_param.json -o Histograms_cat
  sgsdump histogram atb_dump_data/data/0_4711
  sgsdump histogram padded_integers.bin log/tensor_min_max.txt --parse-net parse_net.txt
  sgsdump histogram float.bin net.encodings

the charts:
  The blue histogram shows how often each value occurs. Red dashed lines:
  minimum and maximum of the range. Constants are not drawn. An existing folder
  is renamed.

the inputs:
  Use a dump of the float model, and the ranges of the same model:
  log/tensor_min_max.txt, the SDK's quant_param as JSON or pickle, AIMET's
  .encodings, Quark's tensors_range, or a folder of NNCF's statistics
  (docs/formats/vendors.md). Without ranges, the red lines are left out.

a cluster (--scheduler):
  The workers of a Dask cluster (pip install 'sgsdump[cluster]') read the dump
  from a shared file system and count the values.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.opening import opened
from sgsdump.commands.options import (
    Reading,
    add_json,
    add_output,
    add_parse_net,
    add_readers,
    add_run,
    add_scheduler,
    record,
)
from sgsdump.commands.shared_files import absolute, in_tasks, on_this_worker, record_at, shared, size_of

if TYPE_CHECKING:
    from sgsdump.comparison.distribution import Distribution, Undrawn
    from sgsdump.dumps.dump import Dump
    from sgsdump.reports.histogram import Matched
    from sgsdump.tensors.types import Range

RARE = ("--rank", "--files", "--scheduler")
# A task ends at this number of values (a tenth of a second of counting) or of layers.
TASK_VALUES = 16_000_000
TASK_LAYERS = 100


@dataclass(frozen=True)
class Options:
    dump: Path
    ranges: Path | None
    reading: Reading
    scheduler: str | None
    output: Path
    json: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", type=Path, metavar="DUMP", help="dump of the float model, in any format")
    parser.add_argument(
        "ranges",
        type=Path,
        metavar="TENSOR_MIN_MAX",
        nargs="?",
        help="calibration ranges, in any of the forms above",
    )
    source = parser.add_argument_group("input dump")
    add_parse_net(source)
    add_run(source)
    add_readers(source)
    add_scheduler(source, "count the values for the histograms")
    output = parser.add_argument_group("output")
    add_output(output, "folder for the charts (default: %(default)s)", "FOLDER", Path("Histograms"))
    add_json(output, "write as JSON how the values of every layer are distributed within the layer's calibration range")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import TERMINAL, print_lines
    from sgsdump.comparison.distribution import distributions, layers
    from sgsdump.dumps.dump import note_lines
    from sgsdump.dumps.trees import tree_of
    from sgsdump.files.atomic_write import (
        check_file,
        check_folder,
        check_not_around,
        check_outputs,
        replace_text,
        replacing_folder,
    )
    from sgsdump.progress import each
    from sgsdump.reports.histogram import drawn_into
    from sgsdump.reports.histogram_lines import histogram_lines, histograms_json

    options = record(
        Options,
        args,
        reading=Reading(args.step, args.rank, parse_net=args.parse_net, reader=args.reader, files=args.files),
    )
    output = options.output
    check_outputs([options.json], [options.dump, options.ranges, options.reading.parse_net])
    if options.json:
        check_file(options.json)
    check_folder(output)
    check_not_around(output, [tree_of(options.dump), options.ranges])
    dump, matched = _opened_with_ranges(options)
    ranges = matched.by_layer
    older = output.exists()
    counted = _distributions_on_cluster(options, dump, ranges) if options.scheduler else distributions(dump, ranges)
    with replacing_folder(output) as folder:
        drawn = drawn_into(folder, each(TERMINAL, counted, "histogram", "layer", len(layers(dump))))
        drawn.check(options.dump)
    unused = sorted(matched.unused - dump.constants.keys())
    if options.json:
        replace_text(options.json, histograms_json(drawn.layers, drawn.undrawn, unused, dump.notes))
    begin = ", ".join(str(output / sheet.name) for sheet in drawn.sheets)
    print(f"{len(drawn.layers) - len(drawn.copies)} charts in {output}; begin with {begin}")
    if older:
        print(f"The older {output} was renamed: its date is now part of the name.")
    print_lines(histogram_lines(drawn.layers, drawn.undrawn, list(dump.constants), len(unused), drawn.copies))
    print_lines(note_lines(options.dump, dump.notes))
    return 0


def _opened_with_ranges(options: Options) -> tuple[Dump, Matched]:
    """Open the dump and match ranges to its layers. Raises ConfigError for empty or foreign ranges."""
    from sgsdump.reports.histogram import matched_ranges, with_side_files

    ranges = _ranges(options)
    (dump,) = opened(options.reading, options.dump)
    matched = matched_ranges(dump, ranges, str(options.dump), str(options.ranges))
    return with_side_files(dump, matched.by_layer, options.reading.parse_net), matched


def _ranges(options: Options) -> Mapping[str, Range] | None:
    """Return the ranges of the given file, else of the fixed model given with --parse-net."""
    from sgsdump.models.model import has_net, ranges_of

    if options.ranges:
        return ranges_of(options.ranges)
    net = options.reading.parse_net
    return ranges_of(net) if net is not None and has_net(net) else None


def _distributions_on_cluster(
    options: Options, dump: Dump, ranges: Mapping[str, Range]
) -> Iterator[Distribution | Undrawn]:
    """Return the result of ``distributions(dump, ranges)``, counted by workers that open the dump themselves."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.comparison.distribution import layers
    from sgsdump.executors.workers.task_pool import Workers, run_tasks

    records = layers(dump)
    items = ((index, record.name) for index, record in enumerate(records))
    tasks = in_tasks(items, map(size_of, records), TASK_VALUES, TASK_LAYERS)
    setting = absolute(options.dump), shared(options.reading), dict(ranges)
    workers = Workers(scheduler=options.scheduler)
    return chain.from_iterable(run_tasks(_count_on_worker, setting, tasks, workers, Terminal("stderr")))


def _count_on_worker(
    path: Path, reading: Reading, ranges: Mapping[str, Range]
) -> Callable[[list[tuple[int, str]]], list[Distribution | Undrawn]]:
    """Return a function from layer indexes and names to distributions; called once per worker thread."""
    from sgsdump.comparison.distribution import distribution_of, layers
    from sgsdump.reports.histogram import with_side_files

    records = layers(on_this_worker(lambda: with_side_files(opened(reading, path)[0], ranges, reading.parse_net)))
    return lambda items: [distribution_of(record_at(records, *item, path), ranges) for item in items]
