"""Report of two diagnoses of a model: the layers of the newer diagnosis, with their figures in the older one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError, ValuesError, listed
from sgsdump.files.bounded_read import read_bytes
from sgsdump.files.json_yaml import json_of
from sgsdump.reports.comparison.data import FORMAT, VERSION
from sgsdump.reports.report import Bits, Facts, Figures, Layer, OtherRun, Report, View
from sgsdump.reports.text import counted, number

FILE = "layers.json"
MOST_BYTES = 1 << 30
LIKE = 1.05  # ratio from which two errors count as different
MOST_NAMED = 5


@dataclass(frozen=True)
class PastDiagnosis:
    """Content of the folder of a diagnosis: layers in depth order, and figures of the outputs by name."""

    folder: Path
    layers: tuple[Layer, ...]
    outputs: Mapping[str, tuple[float, float]]  # RMSE, COS
    limits: Mapping[str, float]
    by_flow: bool

    @property
    def by_name(self) -> dict[str, Layer]:
        return {layer.name: layer for layer in self.layers}


def read_diagnosis(folder: Path) -> PastDiagnosis:
    """Read the folder of ``sgsdump diagnose``. Raise FormatError if it is another folder, or damaged."""
    path = folder / FILE
    if not path.is_file():
        raise FormatError(f"{folder} is not a folder of sgsdump diagnose: it has no {FILE}")
    document = json_of(read_bytes(path, MOST_BYTES).decode("utf-8", "replace"), path)
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise FormatError(f"{path}: not written by this version of sgsdump diagnose. Run diagnose again")
    try:
        limits = {name: document["thresholds"][f"{end}_{name}"] for end, name in (("min", "cos"), ("max", "rmse"))}
        return PastDiagnosis(
            folder,
            tuple(_layer(row, set(document["verdict"]["rises_most"])) for row in document["rows"]),
            dict(_outputs(document["findings"])),
            {name: float(limit) for name, limit in limits.items() if limit is not None},
            bool(document["completeness"]["by_flow"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path}: damaged ({type(error).__name__}: {error}). Run diagnose again") from None


def report_of_two(newer: PastDiagnosis, older: PastDiagnosis) -> Report:
    """Return the report of two diagnoses. Raise ValuesError if they have no common layer."""
    before = older.by_name
    shared = [layer for layer in newer.layers if layer.name in before]
    if not shared:
        raise ValuesError(
            f"no layer of {newer.folder} is in {older.folder}. Check that both are diagnoses of the same model"
        )
    figures = {name: layer.figures for name, layer in before.items()}
    return Report(
        title=f"{newer.folder.name}, compared with {older.folder.name} before",
        verdict=tuple(_sentences(newer, older)),
        layers=newer.layers,
        limits=newer.limits,
        facts=(("diagnosis", str(newer.folder)), ("earlier diagnosis", str(older.folder))),
        good=all(newer.outputs[name][0] <= rmse for name, (rmse, _) in older.outputs.items() if name in newer.outputs),
        view=View(by_flow=newer.by_flow, other=OtherRun(f"before: {older.folder.name}", figures, is_earlier=True)),
    )


def _sentences(newer: PastDiagnosis, older: PastDiagnosis) -> Iterator[str]:
    both = [name for name in newer.outputs if name in older.outputs]
    told = [
        f"{name} RMSE {number(older.outputs[name][0])} → {number(newer.outputs[name][0])}, "
        f"COS {number(older.outputs[name][1])} → {number(newer.outputs[name][1])}"
        for name in both
    ]
    yield f"Outputs: {'; '.join(told)}." if told else "The two diagnoses have no common output."
    changes = [(layer.name, before.figures.rmse, layer.figures.rmse) for layer, before in _pairs(newer, older)]
    better = sorted((change for change in changes if _is_less(change[2], change[1])), key=_factor)
    worse = sorted((change for change in changes if _is_less(change[1], change[2])), key=_factor, reverse=True)
    equal = len(changes) - len(better) - len(worse)
    yield (
        f"{counted(len(changes), 'common layer')}: {len(better)} better, {len(worse)} worse, {equal} "
        f"unchanged; failing layers: {_failing(newer)} now, {_failing(older)} before."
    )
    for word, some in (("Worst regressions", worse), ("Largest improvements", better)):
        if some:
            yield f"{word}: {'; '.join(f'{n} RMSE {number(a)} → {number(b)}' for n, a, b in some[:MOST_NAMED])}."
    for one, other in ((newer, older), (older, newer)):
        alone = [layer.name for layer in one.layers if layer.name not in other.by_name]
        if alone:
            yield f"Only in {one.folder.name} ({len(alone)}): {listed(alone, MOST_NAMED)}."


def _pairs(newer: PastDiagnosis, older: PastDiagnosis) -> Iterator[tuple[Layer, Layer]]:
    before = older.by_name
    return ((layer, before[layer.name]) for layer in newer.layers if layer.name in before)


def _is_less(error: float, other: float) -> bool:
    """Return whether an error is clearly smaller; NaN is worse than any number."""
    if math.isnan(error) or math.isnan(other):
        return math.isnan(other) and not math.isnan(error)
    return other > error * LIKE


def _factor(change: tuple[str, float, float]) -> float:
    _, before, after = change
    return math.inf if math.isnan(after) or not before else after / before


def _failing(diagnosis: PastDiagnosis) -> int:
    return sum(layer.verdict == "fail" for layer in diagnosis.layers)


def _layer(row: Mapping[str, Any], rising: set[str]) -> Layer:
    mse, cos, rmse, rise = (float(row[name]) for name in ("mse", "cos", "rmse", "rise"))
    figures = Figures(mse, cos, rmse, None, rise)
    runs = row.get("runs") or {}
    return Layer(
        str(row["name"]),
        str(row["op_type"]),
        int(row["op_index"]),
        figures,
        verdict=str(row["verdict"]),
        rises=row["name"] in rising,
        note=str(row["note"]),
        sources=tuple(map(str, row["sources"])),
        worst_picture=str(runs.get("worst", "")),
        facts=Facts(bits=_bits(row)),
    )


def _bits(row: Mapping[str, Any]) -> Bits | None:
    """Return the bits of a convolution; None for another layer."""
    if row.get("bits") is None:
        return None
    now = int(row["bits"])
    return Bits("", now, str(row.get("raised_by", "")), advised=int(row.get("advised_bits") or now) > now)


def _outputs(findings: list[Mapping[str, Any]]) -> Iterator[tuple[str, tuple[float, float]]]:
    for finding in findings:
        if finding["kind"] == "output" and "rmse" in finding["figures"]:
            yield str(finding["layer"]), (float(finding["figures"]["rmse"]), float(finding["figures"]["cos"]))
