"""Draw the values of every layer against its calibrated range: one PNG per layer, and an overview to scan.

Blue: how often a value occurs. Red dashed lines: min and max of the range. Use the dump of the *float* model and the
tensor_min_max of the same network (log/tensor_min_max.txt, or the JSON or pickle quant_param of the newer SDK).
An existing folder is moved aside under its date. Constants are not drawn. Without ranges, of dumps of other devices
say, there are no lines to draw. With --scheduler the values are counted on a Dask cluster (pip install
'sgsdump[cluster]') whose workers read the dump themselves from a shared file system.

examples:
  sgsdump histogram sigma_outtensor_dump.bin log/tensor_min_max.txt
  sgsdump histogram sigma_outtensor_dump.bin quant_param.json -o Histograms_cat
  sgsdump histogram atb_dump_data/data/0_4711
  sgsdump histogram padded_integers.bin log/tensor_min_max.txt --parse-net parse_net.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sgsdump.commands.options import add_parse_net, add_run
from sgsdump.commands.shared_files import add_scheduler
from sgsdump.errors import ConfigError, ValuesError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", type=Path, metavar="DUMP", help="dump of the float model, of any format")
    parser.add_argument(
        "ranges",
        type=Path,
        metavar="TENSOR_MIN_MAX",
        nargs="?",
        help="the ranges: text, JSON or pickle; may be left out",
    )
    add_parse_net(parser)
    add_run(parser)
    add_scheduler(parser, "count the values")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("Histograms"), metavar="FOLDER", help="for the pictures (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.histogram.on_cluster import distributions_on_cluster
    from sgsdump.commands.histogram.ranges import opened_with_ranges
    from sgsdump.commands.terminal import TERMINAL
    from sgsdump.comparison.distribution import Distribution, Undrawn, distributions, layers
    from sgsdump.dumps.dump import note_lines
    from sgsdump.dumps.trees import tree_of
    from sgsdump.files.atomic_write import replacing_folder
    from sgsdump.files.escaping import for_terminal
    from sgsdump.progress import each
    from sgsdump.reports.copies import Copies, drawn_values
    from sgsdump.reports.histogram.contact_sheet import save_contact_sheets
    from sgsdump.reports.histogram.drawing import drawing
    from sgsdump.reports.histogram.histogram_png import save_histogram
    from sgsdump.reports.histogram.histogram_summary import summary_lines

    _refuse_folder_in_use(args.output, tuple(filter(None, (tree_of(args.dump), args.ranges, Path.cwd()))))
    dump, by_layer, left_over = opened_with_ranges(args)
    older = args.output.exists()
    drawn: list[Distribution] = []
    undrawn: list[Undrawn] = []
    copies = Copies()
    with replacing_folder(args.output) as folder:
        with drawing(save_histogram) as draw:
            counted = distributions_on_cluster(args, dump, by_layer) if args.scheduler else None
            results = counted or distributions(dump, by_layer)
            for result in each(TERMINAL, results, "histogram", "layer", len(layers(dump))):
                if isinstance(result, Undrawn):
                    undrawn.append(result)
                    continue
                if not copies.add(len(drawn), result.op_type, drawn_values(result)):
                    draw(result, folder)
                drawn.append(result)
        if not drawn:
            raise ValuesError(f"nothing to draw in {args.dump}: {undrawn[0].reason}")
        sheets = save_contact_sheets(drawn, folder, copies.of)
    begin = ", ".join(str(args.output / sheet.name) for sheet in sheets)
    print(f"{len(drawn) - len(copies.of)} pictures in {args.output}; begin with {begin}")
    if older:
        print(f"The older {args.output} is kept beside it, its date added to its name.")
    for line in summary_lines(drawn, undrawn, list(dump.constants), len(left_over - dump.constants.keys()), copies.of):
        print(for_terminal(line))
    for line in note_lines(args.dump, dump.notes):
        print(for_terminal(line))
    return 0


def _refuse_folder_in_use(folder: Path, inside: tuple[Path, ...]) -> None:
    """Moving a folder aside must not take the user's files along."""
    for path in inside:
        if path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"-o {folder}: that folder holds {path} and would be moved aside; name one of its own")
