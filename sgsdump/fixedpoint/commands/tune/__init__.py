"""Find the smallest set of INT16 convolutions that brings the outputs within the limits.

By default, tune searches for the smallest plan in a time budget. --first stops
at the first plan within the limits. --explain shows how much each convolution
contributes to the output error, without a search.

Limits: COS >= 0.99 and RMSE <= 0.1 for every output; --min-cos and --max-rmse
set other limits. Exit status: 0 if no limit is given or a plan meets your
limits; 1 if no plan meets your limits; 2 on errors. Ctrl-C ends the search with
the best plans so far; rerun the command to resume.

examples:
  sgsdump tune -m net.onnx -i images/ -n preprocess.py --input-config input_config.ini -o tuned
  sgsdump tune -m net.onnx -i images/ --input-config input_config.ini -o tuned --target "output-cos>=0.999"
  sgsdump tune -m net.onnx -i images/ --input-config input_config.ini -o tuned --metric faces.py:matches --budget 60s
  sgsdump tune --first -m net.onnx -i images/ -n preprocess.py --input-config input_config.ini -o tuned
  sgsdump tune --explain -m net.onnx --input-config input_config.ini --ranges log/tensor_min_max.txt

--explain:
  Needs --ranges or -i. Without --ranges, the images of -i are also the
  calibration images. Each option adds evidence:
  --ranges  lists convolution inputs whose calibration range (maximum - minimum)
            is wider than 30
  --dump    lists convolution inputs whose values in the float dump use only a
            small part of their calibration range
  --fixed   lists layers whose RMSE exceeds 0.5, and the nearest convolutions
            before these layers
  -i        shows the own and the inherited error of each convolution (see
            docs/glossary.md), and the output error when only this convolution
            is at INT8

targets (--target):
  output-cos>=X (lowest COS of any output), output-rmse<=X, error<=X, or
  metric>=X with --metric. The metric is a Python function
  f(outputs, float_outputs) -> number, called for every image. The mean counts;
  higher is better.

the folder -o:
  input_config.ini           your configuration file or the inferred
                             configuration file; its tensor_arrays lists the
                             tensors that the plan raises to INT16
  optimized_quant_info.json  the plan as a quant file, for calibrate
                             --quant-file
  optimized_quant_info.pkl   the same plan as a pickle for the SDK (with
                             --first: written only if you also give --pickle)
  optimized.onnx             the fixed model that uses the plan (needs --first
                             or --fixed-model)
  report.html                the errors of every layer if the fixed model uses
                             the plan
  cured.onnx                 with --cure: the rewritten float model; all other
                             results in the folder apply to this model, not to
                             your model
  search                     the files for each plan size in --rates, named
                             NAME_i_RATE; the table of all plans: pareto.csv,
                             .json, .png; the scores from which the search
                             resumes: progress.json
  --first                    rounds.txt and .json: the result of each round;
                             log/: calibration ranges; float.bin, fixed.bin:
                             dumps of the float and the fixed model
  --explain                  contributions.json and .csv; also log/ with the
                             calibration ranges, if tune calibrated the model
  Results of an earlier run are replaced; your own files stay.

More: docs/tune_int16.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sgsdump.commands.options import (
    INPUTS,
    add_cure,
    add_feeds,
    add_fixed,
    add_input_config,
    add_json,
    add_judges,
    add_limits,
    add_model,
    add_num_process,
    add_output,
    add_quant_level,
    add_ranges,
    add_scheduler,
    add_strict_sdk,
    network_of,
    record,
    whole_number,
)
from sgsdump.errors import ConfigError
from sgsdump.fixedpoint.commands.tune import explain, first, search
from sgsdump.fixedpoint.commands.tune.options import EXPLAIN, FIRST, MODES, SEARCH, Options
from sgsdump.fixedpoint.verbs.first_plan import MOST_ROUNDS
from sgsdump.fixedpoint.verbs.judges import JUDGING, Judges
from sgsdump.fixedpoint.verbs.plan_search import BUDGET, COST, COSTS, OBJECTIVE

USAGE = """\
sgsdump tune -m MODEL -i IMAGES -o FOLDER [--first] [options]
       sgsdump tune --explain -m MODEL [-i IMAGES] [--ranges TENSOR_MIN_MAX] [-o FOLDER] [options]"""
RARE = (
    *("--weight-file", "--model-inputs", "--model-outputs", "--data-loader-script", "--strict-sdk", "--rates"),
    *("--cost", "--objective", "--num-process", "--scheduler", "--fixed-model", "--pickle", "--dump", "--fixed"),
)
_RUN = {EXPLAIN: explain.run, FIRST: first.run, SEARCH: search.run}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = USAGE
    modes = parser.add_argument_group("mode").add_mutually_exclusive_group()
    modes.add_argument(
        "--first",
        action="store_true",
        help="stop at the first plan (set of INT16 convolutions) whose output errors are within the limits",
    )
    modes.add_argument(
        "--explain",
        action="store_true",
        help="show the contribution of each convolution to the output error, without a search",
    )
    network = parser.add_argument_group("model and images")
    add_model(network)
    add_feeds(
        network, f"calibration images: {INPUTS}; with --ranges, images on which the errors are measured", required=False
    )
    add_input_config(network)
    add_strict_sdk(network)
    add_quant_level(
        network,
        "calibration level, which selects how calibration ranges are computed (see calibrate --help-all); "
        "tune ignores the INT16 convolutions that the level proposes",
    )
    judging = parser.add_argument_group("judging")
    add_limits(judging, "an output of the recommended plan")
    some = f"10 images of -i; {JUDGING} images with --first or --explain"
    add_judges(judging, "output errors of plans", "used in the verdict and by --target", some)
    plans = parser.add_argument_group("the search")
    plans.add_argument(
        "--rates",
        metavar="R,R…",
        help=(
            "sizes of the plans to find; size: bytes of all weights, divided by the bytes of all "
            "weights with all convolutions at INT16 (default: 0.65,0.7,…,0.95)"
        ),
    )
    plans.add_argument(
        "--target",
        metavar="NAME>=X",
        help=("find the smallest plan that reaches this target, instead of one plan for each size of --rates"),
    )
    plans.add_argument(
        "--objective",
        metavar="mean|worst|NAME",
        help=(
            "output error to minimise: mean error of all outputs, error of the worst output, or error of the "
            f"named outputs (default: {OBJECTIVE})"
        ),
    )
    plans.add_argument(
        "--cost",
        choices=COSTS,
        help=f"cost to minimise. bytes: bytes of the weights; macs: multiplications at INT16 (default: {COST})",
    )
    plans.add_argument(
        "--budget", metavar="TIME", help=f"time limit for the whole command, such as 60s, 5m or 1h (default: {BUDGET})"
    )
    plans.add_argument(
        "--rounds",
        type=whole_number,
        metavar="N",
        help=(
            "with --first: maximum number of rounds, each of which raises convolutions to INT16 "
            f"(default: {MOST_ROUNDS})"
        ),
    )
    add_cure(
        plans,
        "first rewrite the float model as sgsdump cure does, then tune the rewritten model; "
        "afterwards, convert the rewritten model instead of your model",
    )
    known = parser.add_argument_group("with --explain")
    add_ranges(known, "calibration ranges: text, JSON or pickle")
    known.add_argument("--dump", type=Path, metavar="FLOAT_DUMP", help="existing dump of the float model")
    add_fixed(known, "dump of the fixed model for the same image as in --dump", "FIXED_DUMP")
    many = parser.add_argument_group("processes").add_mutually_exclusive_group()
    add_num_process(many, "number of processes that run calibration images", None)
    add_scheduler(many, "calibrate and run plans")
    results = parser.add_argument_group("results")
    add_output(results, "folder for the results", "FOLDER")
    add_json(
        results,
        "also write the result as JSON to this file: the table of plans; with --first, the plan and the errors of "
        "each round; with --explain, the contribution of each convolution",
    )
    results.add_argument(
        "--fixed-model",
        action="store_true",
        help="also write the fixed model of each plan as optimized_i_RATE.onnx; i: number of the plan, from 0",
    )
    results.add_argument("--pickle", action="store_true", help="also write quant parameters as pickle (protocol 3)")


def run(args: argparse.Namespace) -> int:
    from sgsdump.reports.made_by import typed

    mode = EXPLAIN if args.explain else FIRST if args.first else SEARCH
    MODES.check(mode, MODES.given(args))
    network, judges = network_of(args), record(Judges, args)
    options = record(Options, args, network=network, judges=judges, facts=typed(args))
    if mode != EXPLAIN and not network.data:
        raise ConfigError("no images to calibrate on; give them with -i (or --data-loader-script)")
    if mode != EXPLAIN and options.output is None:
        raise ConfigError("no folder for the results; give one with -o")
    return _RUN[mode](options)
