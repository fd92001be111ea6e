"""The result of ``tune``: the plans side by side, the one to take, and the folder that holds them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sgsdump.progress import SILENT, Progress

if TYPE_CHECKING:
    from sgsdump.models.feeds.feeds import Feeds
    from sgsdump.quantisation.fixed_model import FixedModel
    from sgsdump.quantisation.trials.plan_trial import PlanTrial
    from sgsdump.tuning.pareto import Pareto, Row

PROGRESS = "progress.json"
RESULTS = re.compile(
    r"optimized(_\d+_[\d.]+)?\.onnx|optimized_quant_info(_\d+_[\d.]+)?\.(json|pkl)|"
    r"input_config(_\d+_[\d.]+)?\.ini|pareto\.(csv|json|png)|report\.html|cured\.(onnx|quant\.json|quant\.pkl)"
)
# The layers of the plan to take are compared on this many pictures.
COMPARED = 4


def is_kept(name: str) -> bool:
    """Whether a file of an older folder stays: progress.json and the user's own, but no result of an earlier run."""
    return not RESULTS.fullmatch(name)


@dataclass(frozen=True)
class Written:
    """What is written beside the table: ``fixed_models``, and quant parameters as ``pickles`` too."""

    fixed_models: bool = False
    pickles: bool = False


@dataclass(frozen=True, eq=False)
class Tuned:
    """Which convolutions to give 16 bits.

    result  every plan of the table with what it costs and gives: ``result.rows``, ``result.taken`` the one to take.
    trial   the network whose plans they are; ``fixed`` the fixed model of the one to take.
    ini     the user's input_config.ini.
    judges  the pictures that plans were judged by.
    quant_level  to calibrate with, so that the fixed model is this one.
    """

    result: Pareto
    trial: PlanTrial
    fixed: FixedModel
    ini: bytes
    judges: Feeds
    quant_level: str

    @property
    def taken(self) -> Row:
        """The plan to take."""
        return self.result.taken

    @property
    def to_copy(self) -> str:
        """``[CONV_CONFIG]`` of input_config.ini for it; empty where nothing has to be raised."""
        from sgsdump.reports.cause_sentences import conv_config

        return conv_config(self.taken.tensors) if self.taken.tensors else ""

    def to_pandas(self) -> Any:
        """Every plan of the table as a DataFrame, the columns of ``pareto.csv``; needs the extra ``pandas``."""
        return self.result.to_pandas()

    def save(self, folder: str | Path, what: Written = Written()) -> Path:
        """Write the folder of ``sgsdump tune``; of an older one the user's own files stay. Raises OutputError."""
        from sgsdump.files.atomic_write import replacing_folder

        with replacing_folder(Path(folder), keep=is_kept) as newer:
            self.write(newer, what)
        return Path(folder)

    def write(self, folder: Path, what: Written = Written(), progress: Progress = SILENT) -> None:
        """Fill a folder. Raises OutputError."""
        from sgsdump.files.atomic_write import replacing
        from sgsdump.quantisation.float_model import serialise
        from sgsdump.reports.charts.pareto import pareto_png
        from sgsdump.reports.pareto_reports import pareto_csv, pareto_json
        from sgsdump.sidecars import quant_param
        from sgsdump.sidecars.input_config import with_tensor_arrays
        from sgsdump.tuning.integer_choice import fixed_of
        from sgsdump.tuning.pareto import optimized, stem

        def write(name: str, data: bytes) -> None:
            with replacing(folder / name) as file:
                file.write(data)

        asked = [row for row in self.result.rows if row.asked is not None]
        names = [f"_{stem(index, row.asked or row.rate)}" for index, row in enumerate(asked)]
        for name, row in [*zip(names, asked), ("", self.taken)]:
            fixed = fixed_of(self.trial, row.tensors)
            params = optimized(self.trial, fixed, self.trial.model.path)
            quant_param.write(params, folder / f"optimized_quant_info{name}.json")
            if what.pickles:
                quant_param.write(params, folder / f"optimized_quant_info{name}.pkl", "pickle")
            if what.fixed_models:
                write(f"optimized{name}.onnx", serialise(fixed.proto))
            write(f"input_config{name}.ini", with_tensor_arrays(self.ini, row.tensors))
        write("pareto.csv", pareto_csv(self.result).encode())
        write("pareto.json", pareto_json(self.result).encode())
        write("pareto.png", pareto_png(self.result))
        self._write_report(folder, progress)

    def _write_report(self, folder: Path, progress: Progress) -> None:
        """report.html of the plan to take, compared on a few of the pictures that judge plans."""
        from sgsdump.files.atomic_write import replace_text
        from sgsdump.quantisation.diagnosis.compared_pictures import (
            PictureComparer,
            PicturePairs,
            each_compared,
            over_all,
        )
        from sgsdump.reports.command_reports import report_of_tuning
        from sgsdump.reports.html.document import render
        from sgsdump.reports.report import Context

        model, pairs = self.trial.model, PicturePairs(self.judges, COMPARED)
        comparer = PictureComparer(model, replace(model, proto=self.fixed.proto), folder)
        compared = over_all(each_compared(comparer, pairs), pairs.labels, progress)
        facts = [
            ("float model", str(model.path)),
            ("judged on", f"{self.result.effort.pictures} pictures"),
            ("layers compared on", ", ".join(pairs.labels)),
        ]
        title = f"{model.path.name} with the tuned INT16 convolutions"
        context = Context(title, facts, ranges=self.trial.ranges)
        replace_text(folder / "report.html", render(report_of_tuning(self.result, compared, model, context)))

    def __str__(self) -> str:
        from sgsdump.reports.pareto_reports import ending_lines, pareto_table

        return pareto_table(self.result) + "\n".join(ending_lines(self.result))
