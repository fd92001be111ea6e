"""The folder of ``sgsdump tune``: what it holds, and what of an earlier one stays."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from sgsdump.quantisation.fixed_model import FixedModel
    from sgsdump.quantisation.ranges.statistics import SideRanges
    from sgsdump.quantisation.trials.plan_trial import PlanTrial
    from sgsdump.tuning.pareto import Pareto

PROGRESS = "progress.json"
RESULTS = re.compile(
    r"optimized(_\d+_[\d.]+)?\.onnx|optimized_quant_info(_\d+_[\d.]+)?\.(json|pkl)|"
    r"input_config(_\d+_[\d.]+)?\.ini|pareto\.(csv|json|png)|report\.html"
)
# The layers of the plan to take are compared on this many pictures.
COMPARED = 4


def usable_folder(path: Path, ini: Path) -> Path:
    """The folder, made if need be. Raises OutputError when it cannot be written to, ConfigError when a result would
    take the place of the user's own input_config.ini."""
    from sgsdump.files.atomic_write import make_folder

    progress = path / PROGRESS
    if progress.exists() and not progress.is_file():
        raise OutputError(f"{progress} is no file; remove it, or name another folder with -o")
    if not os.access(make_folder(path), os.W_OK):
        raise OutputError(f"cannot write into the folder {path}: no permission; name another with -o")
    if ini.resolve().parent == path.resolve() and RESULTS.fullmatch(ini.name):
        raise ConfigError(f"the results would overwrite {ini}; name another folder with -o")
    return path


def is_kept(name: str) -> bool:
    """Whether a file of an older FOLDER stays: progress.json and the user's own, but no result of an earlier run."""
    return not RESULTS.fullmatch(name)


def write_results(
    args: argparse.Namespace, folder: Path, ini: bytes, result: Pareto, trial: PlanTrial, side: SideRanges
) -> None:
    """Every file of FOLDER but progress.json; ``ini`` is the user's input_config.ini."""
    from sgsdump.files.atomic_write import replacing
    from sgsdump.quantisation.float_model import serialise
    from sgsdump.reports.tuning import pareto_csv, pareto_json, pareto_png
    from sgsdump.sidecars import quant_param
    from sgsdump.sidecars.input_config import with_tensor_arrays
    from sgsdump.tuning.pareto import fixed_of, optimized, stem

    def write(name: str, data: bytes) -> None:
        with replacing(folder / name) as file:
            file.write(data)

    asked = [row for row in result.rows if row.asked is not None]
    names = [f"_{stem(index, row.asked or row.rate)}" for index, row in enumerate(asked)]
    for name, row in [*zip(names, asked), ("", result.taken)]:
        fixed = fixed_of(trial, row, side)
        params = optimized(trial, fixed, Path(args.model))
        quant_param.write(params, folder / f"optimized_quant_info{name}.json")
        if args.pickle:
            quant_param.write(params, folder / f"optimized_quant_info{name}.pkl", "pickle")
        if args.fixed_model:
            write(f"optimized{name}.onnx", serialise(fixed.proto))
        write(f"input_config{name}.ini", with_tensor_arrays(ini, row.tensors))
    write("pareto.csv", pareto_csv.render(result).encode())
    write("pareto.json", pareto_json.render(result).encode())
    write("pareto.png", pareto_png.render(result))


def write_report(args: argparse.Namespace, folder: Path, result: Pareto, trial: PlanTrial, taken: FixedModel) -> None:
    """report.html of the plan to take, compared on a few of the pictures that judge plans."""
    from sgsdump.commands.terminal import Terminal
    from sgsdump.files.atomic_write import replace_text
    from sgsdump.models.model import graph_inputs
    from sgsdump.quantisation.diagnosis.compared_pictures import PictureComparer, PicturePairs, each_compared, over_all
    from sgsdump.reports.html.document import render
    from sgsdump.reports.html.of_tuning import report_of_tuning

    specs = tuple(graph_inputs(trial.model.proto))
    pairs = PicturePairs(args.evaluate or args.image, args.preprocess, specs, trial.config, COMPARED)
    comparer = PictureComparer(trial.model, replace(trial.model, proto=taken.proto), folder)
    compared = over_all(each_compared(comparer, pairs), pairs.labels, Terminal("stderr"))
    facts = [("float model", str(args.model)), ("judged on", f"{result.effort.pictures} pictures"),
             ("layers compared on", ", ".join(pairs.labels))]  # fmt: skip
    title = f"{args.model.name} with the tuned INT16 convolutions"
    report = report_of_tuning(result, compared, trial.model, trial.ranges, title=title, facts=facts)
    replace_text(folder / "report.html", render(report))
