"""Find the smallest set of INT16 convolutions that repairs the model, and verify it by simulation.

Gives the best quant plan found for each compression rate (bytes of the convolutions' weights over their bytes at 16
bits: 0.5 is all INT8, 1 all INT16); or, with --target, the plan of the fewest bytes that reaches it. Every convolution
is measured alone, integer programs propose plans, each is verified, and neighbours of the best are tried while the
budget lasts; models of at most 12 convolutions are searched exhaustively. Ranges come from all calibration pictures
(-i), as `sgsdump calibrate` finds them; plans are judged on 10 of these, evenly chosen, or on all of --evaluate.

An output's error is sum((fixed - float)^2) / sum(float^2) over all pictures; where a Softmax makes an output, at its
input. The errors of several outputs are scaled to be equal at INT8, so that none hides another. Then their mean counts;
with --objective worst the output furthest from what INT16 gives it, with --objective NAME,NAME... these outputs alone.

Targets: output-cos>=X (the lowest COS of any output), output-rmse<=X, error<=X, metric>=X with --metric: your Python
function f(outputs, float_outputs) -> number, {name: array} each, called for every picture; its mean counts, higher is
better.

FOLDER gets, for the i-th rate, optimized_quant_info_i_RATE.json (for `sgsdump calibrate --quant-file`; --pickle: .pkl
for the SDK's sim_calibrator.py --quant-file) and input_config_i_RATE.ini (yours, with tensor_arrays); without i_RATE
they are those of the plan marked *: the smallest known that goes 95 % of the way from INT8's error to INT16's, or
reaches the target (with --fixed-model also optimized.onnx). pareto.csv, .json and .png show them all, report.html
besides every layer of the plan marked *, on a few of the pictures.
progress.json keeps every plan tried: Ctrl-C ends the search with the best so far, the same command goes on. The results
of an earlier run in FOLDER stay until the new ones take their place, all at once; files of yours in FOLDER stay.

With --scheduler a Dask cluster (pip install 'sgsdump[cluster]') calibrates and runs the plans. Pictures are read and
preprocessed here, and sent with the model, and the metric runs here, so its machines need none of your files, but the
same versions of sgsdump, onnx, onnxruntime and numpy (the scheduler's too). A worker that dies loses nothing.

examples:
  sgsdump tune -m net.onnx -i pictures/ -n preprocess.py --input-config input_config.ini -o tuned
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --target "output-cos>=0.999"
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --metric faces.py:matches --budget 60s
  sgsdump tune -m net.onnx -i pictures/ --input-config input_config.ini -o tuned --scheduler tcp://host:8786
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.cut_note import print_cut
from sgsdump.commands.option_values import whole_number
from sgsdump.commands.options import INPUTS, add_input_config, add_model, add_pictures
from sgsdump.commands.quantising_options import WITHOUT_BITS, add_quant_level, add_scheduler
from sgsdump.commands.tune.options import wanted

if TYPE_CHECKING:
    from sgsdump.commands.tune.options import Wanted
    from sgsdump.commands.tune.time_left import Left
    from sgsdump.tuning.search import SearchResult
    from sgsdump.tuning.setup import Setup


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_pictures(parser, f"calibration pictures: {INPUTS}")
    add_input_config(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder for the results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON here too")
    parser.add_argument("--rates", metavar="R,R…", help="compression rates (default: 0.65,0.7,…,0.95)")
    parser.add_argument("--target", metavar="NAME>=X", help="the smallest plan that reaches it, instead of rates")
    parser.add_argument("--metric", metavar="FILE.py:FUNCTION", help="your own accuracy, for the table and --target")
    parser.add_argument(
        "--objective",
        default="mean",
        metavar="mean|worst|NAME",
        help="which outputs' error is made small: all on average, the worst, or those named (default: %(default)s)",
    )
    parser.add_argument("--evaluate", metavar="IMAGES", help="pictures to judge plans by, instead of some of -i")
    parser.add_argument("--budget", default="10m", help="time for the search: 60s, 5m, 1h (default: %(default)s)")
    add_quant_level(parser, "how ranges are found, see calibrate; the bits it proposes are not taken")
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--num-process", type=whole_number, default=1, metavar="N", help="processes that calibrate")
    add_scheduler(many, "calibrate and run plans")
    parser.add_argument("--fixed-model", action="store_true", help="write optimized_i_RATE.onnx, the fixed models")
    parser.add_argument("--pickle", action="store_true", help="write quant parameters as pickle (protocol 3) too")


def run(args: argparse.Namespace) -> int:
    from sgsdump.commands.terminal import Terminal
    from sgsdump.commands.tune.pictures import calibrated
    from sgsdump.commands.tune.printed import print_beginning, print_ending
    from sgsdump.commands.tune.results import PROGRESS, is_kept, usable_folder, write_report, write_results
    from sgsdump.commands.tune.time_left import stopped_by_ctrl_c
    from sgsdump.executors.workers.task_pool import Workers
    from sgsdump.files.atomic_write import check_file, replace_text, replacing_folder, together
    from sgsdump.files.bounded_read import read_bytes
    from sgsdump.models.feeds.feeds import board_notes
    from sgsdump.quantisation.float_model import conversion_notes, deployed, open_float_model
    from sgsdump.quantisation.objective import watched_by_output
    from sgsdump.quantisation.quant_plan import with_raised_inputs
    from sgsdump.reports.tuning import pareto_json, pareto_table
    from sgsdump.sidecars import input_config
    from sgsdump.tuning.criteria import parse_objective
    from sgsdump.tuning.pareto import fixed_of, pareto, verify
    from sgsdump.tuning.proposals import check_solver
    from sgsdump.tuning.search import most_evaluations
    from sgsdump.tuning.setup import Judging, set_up

    search = wanted(args)
    check_solver()
    config = input_config.read(args.input_config)
    if args.json:
        check_file(args.json)
    folder = usable_folder(args.output, args.input_config)
    ini = read_bytes(args.input_config)
    model = open_float_model(args.model, args.weight_file, config)
    config, notes = with_raised_inputs(config, model.proto)
    objective = parse_objective(args.objective, watched_by_output(deployed(model)))
    for note in [*board_notes(config), *conversion_notes(model), *notes]:
        print(f"warning: {note}")
    progress, workers = Terminal("stderr"), Workers(args.num_process, args.scheduler)
    ranges, side, feeds = calibrated(args, model, config, workers)
    with stopped_by_ctrl_c(search.seconds) as left:
        judging = Judging(search.metric, search.metric_text, objective, folder / PROGRESS, workers)
        setup = set_up(model, ranges, config, feeds, judging, progress)
        most = most_evaluations(len(setup.sizes.domains), 0 if search.target else len(search.rates))
        print_beginning(setup, most, args.budget, folder / PROGRESS)
        found = searched(setup, search, most, left)
    pool, trial = setup.pool, setup.trial
    result = pareto(found, pool, setup.sizes, trial, search.metric is not None)
    taken = fixed_of(trial, result.taken, side)
    verified = verify(model, taken, pool.pictures, pool.combined, pool.outputs, progress)
    result = replace(result, verified=verified)
    with together():
        if args.json:
            replace_text(args.json, pareto_json.render(result))
        with replacing_folder(folder, keep=is_kept) as newer:
            write_results(args, newer, ini, result, trial, side)
            write_report(args, newer, result, trial, taken)
    print(pareto_table.render(result), end="")
    print_ending(result, folder, WITHOUT_BITS[args.quant_level])
    for each in taken.clipped:
        print(f"warning: {each}")
    print_cut(model, config)
    return 0


def searched(setup: Setup, wanted: Wanted, most: int, left: Left) -> SearchResult:
    """The plans for the rates, or for the target, of ``most`` that are run."""
    from sgsdump.tuning.search import search_rates, search_target

    setup.pool.expect(most * len(setup.pool.pictures))
    try:
        if wanted.target is not None:
            return search_target(setup.pool, setup.sizes, wanted.target, left)
        return search_rates(setup.pool, setup.sizes, wanted.rates, left)
    finally:
        setup.pool.close()
