"""Every chart of the table is written, a new one by its line alone."""

import sys
import types

import numpy as np
import pytest

from sgsdump.comparison.compare import compare
from sgsdump.dumps.dump import Dump, Record
from sgsdump.registry import Registry
from sgsdump.reports.charts import plots
from sgsdump.reports.report import Context, report_of
from sgsdump.tensors.tensor import Tensor


def comparison(details=True):
    values = np.linspace(1, 2, 8, dtype=np.float32)
    sides = [Dump([Record("out", 0, 0, "Conv", Tensor.of("a", values * factor))]) for factor in (1.1, 1.0)]
    return compare(*sides, details=details)


@pytest.mark.parametrize(("details", "names"), [(True, ["error.png", "histograms.png"]), (False, ["error.png"])])
def test_every_chart_is_written(details, names, tmp_path):
    paths = plots.save_plots(report_of(comparison(details)), tmp_path)
    assert [path.name for path in paths] == names == sorted(path.name for path in tmp_path.iterdir())


def test_a_new_chart_is_a_line_of_the_table(monkeypatch, tmp_path):
    def save(report, folder):
        path = folder / "own.txt"
        path.write_text(f"{report.title}: {len(report.layers)} layer, RMSE {report.layers[0].figures.rmse:.1f}")
        return [path]

    monkeypatch.setitem(sys.modules, "own_chart", types.SimpleNamespace(save=save))
    monkeypatch.setattr(plots, "CHARTS", Registry("chart", {"own": "own_chart:save"}))
    (path,) = plots.save_plots(report_of(comparison(), context=Context("a against b")), tmp_path)
    assert path.read_text() == "a against b: 1 layer, RMSE 0.1"


def test_nothing_compared_draws_nothing(tmp_path):
    assert plots.save_plots(report_of(compare(Dump([]), Dump([]))), tmp_path) == [] and not list(tmp_path.iterdir())
