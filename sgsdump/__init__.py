"""Find the layer that loses accuracy when a network is quantised.

    import sgsdump

    found = sgsdump.diagnose("net.onnx", "pictures", preprocess="preprocess.py")
    print(found)                  # where accuracy is lost, and what to write into input_config.ini
    found.save("diagnosis")       # report.html, the fixed model, every layer's figures

    fixed = sgsdump.calibrate("net.onnx", "pictures", preprocess="preprocess.py", input_config="input_config.ini")
    sample = sgsdump.simulate(fixed, "cat.jpg", preprocess="preprocess.py")
    benchmark = sgsdump.simulate("net.onnx", "cat.jpg", preprocess="preprocess.py")
    sgsdump.compare(sample, benchmark).to_pandas()

Each function does what the command of its name does.

The map of the package, top down: a room imports rooms below it in this list, never above (``tests/test_house.py``).

    __main__ cli    start, dispatch, one line and an exit status for an error
    commands        a thin file or folder per subcommand; the only room that prints
    verbs           what users call from Python, a function per command, and what the command calls
    msit            msit's helpers under their own names
    torchair        TorchAir's names for dumping a compiled torch program
    reports         results -> sentences, text, csv, json, png, html
    tuning          which convolutions deserve INT16: advice, repair, search
    curing          a float model rewritten so that 8 bits lose less: one file per cure
    quantisation    ranges -> fixed model -> simulation; levels, plans, fusion
    pipeline        dump a model by any executor; bisection; test cases
    programs        dump a program that runs: control, hooks, result trees
    executors       run a model: base.py is the contract; workers/ is where work runs
    models          a model file -> ONNX in memory: caffe/, atb/, passes/, feeds/
    comparison      pair, measure and judge two dumps: alignment, naming/, sums/, metrics
    replay          a program's operators computed again, each judged alone against its bound
    dumps           Dump, open_dump, save_dump, conversion; formats/VENDOR/ reads and writes
    sidecars        the small text files beside a model
    tensors         Tensor, dtypes, layouts, statistics: numpy only
    files           untrusted reading, atomic writing: standard library, numpy for mapped bytes
    notebook progress registry errors

``samples`` holds the demo's network and digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sgsdump import notebook

if TYPE_CHECKING:
    from sgsdump.comparison.compare import compare
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.curing.cure import Cured
    from sgsdump.dumps.dump import Dump, Record
    from sgsdump.dumps.io import open_dump, save_dump
    from sgsdump.dumps.trees import list_runs
    from sgsdump.errors import LossWarning, SgsdumpError
    from sgsdump.programs.capture import capture
    from sgsdump.programs.control import DumpControl
    from sgsdump.quantisation.quant_file import quant_params
    from sgsdump.tensors.statistics import Statistics
    from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo
    from sgsdump.verbs.advise import Advised, advise
    from sgsdump.verbs.calibrate import FixedModel, calibrate
    from sgsdump.verbs.cure import cure
    from sgsdump.verbs.diagnose import diagnose
    from sgsdump.verbs.diagnosed import Diagnosed
    from sgsdump.verbs.dump import dump
    from sgsdump.verbs.histogram import Histograms, histogram
    from sgsdump.verbs.repair import Repaired, repair
    from sgsdump.verbs.simulate import simulate
    from sgsdump.verbs.tune import Tuned, tune

__version__ = "0.2.0"

_PUBLIC = {
    "open_dump": "sgsdump.dumps.io",
    "list_runs": "sgsdump.dumps.trees",
    "save_dump": "sgsdump.dumps.io",
    "Dump": "sgsdump.dumps.dump",
    "Record": "sgsdump.dumps.dump",
    "Tensor": "sgsdump.tensors.tensor",
    "TensorInfo": "sgsdump.tensors.tensor",
    "Statistics": "sgsdump.tensors.statistics",
    "Quant": "sgsdump.tensors.tensor",
    "compare": "sgsdump.comparison.compare",
    "Comparison": "sgsdump.comparison.comparison",
    "SgsdumpError": "sgsdump.errors",
    "LossWarning": "sgsdump.errors",
    "capture": "sgsdump.programs.capture",
    "DumpControl": "sgsdump.programs.control",
    "Cured": "sgsdump.curing.cure",
    "cure": "sgsdump.verbs.cure",
    "quant_params": "sgsdump.quantisation.quant_file",
    "dump": "sgsdump.verbs.dump",
    "calibrate": "sgsdump.verbs.calibrate",
    "FixedModel": "sgsdump.verbs.calibrate",
    "simulate": "sgsdump.verbs.simulate",
    "advise": "sgsdump.verbs.advise",
    "Advised": "sgsdump.verbs.advise",
    "repair": "sgsdump.verbs.repair",
    "Repaired": "sgsdump.verbs.repair",
    "tune": "sgsdump.verbs.tune",
    "Tuned": "sgsdump.verbs.tune",
    "histogram": "sgsdump.verbs.histogram",
    "Histograms": "sgsdump.verbs.histogram",
    "diagnose": "sgsdump.verbs.diagnose",
    "Diagnosed": "sgsdump.verbs.diagnosed",
}
__all__ = [
    "Advised",
    "Comparison",
    "Cured",
    "Diagnosed",
    "Dump",
    "DumpControl",
    "FixedModel",
    "Histograms",
    "LossWarning",
    "Quant",
    "Record",
    "Repaired",
    "SgsdumpError",
    "Statistics",
    "Tensor",
    "TensorInfo",
    "Tuned",
    "advise",
    "calibrate",
    "capture",
    "compare",
    "cure",
    "diagnose",
    "dump",
    "histogram",
    "list_runs",
    "open_dump",
    "quant_params",
    "repair",
    "save_dump",
    "simulate",
    "tune",
]

# What shows, draws and writes results; their own rooms do not know reports.
notebook.show_by(
    {
        "diagnosed": "sgsdump.reports.notebook:show_diagnosed",
        "advised": "sgsdump.reports.notebook:show_advised",
        "plans": "sgsdump.reports.notebook:show_plans",
        "page of a card": "sgsdump.reports.notebook:save_card",
        "plot of an advice": "sgsdump.reports.charts.axes:plot_advice",
        "plot of plans": "sgsdump.reports.charts.axes:plot_plans",
        "comparison": "sgsdump.reports.notebook:show_comparison",
        "table": "sgsdump.reports.notebook:show_table",
        "tensor": "sgsdump.reports.notebook:show_tensor",
        "distribution": "sgsdump.reports.notebook:show_distribution",
        "distributions": "sgsdump.reports.notebook:show_distributions",
        "plot of a comparison": "sgsdump.reports.charts.axes:plot_comparison",
        "plot of a distribution": "sgsdump.reports.charts.axes:plot_distribution",
        "text of a cure": "sgsdump.reports.cured:text",
        "file of a comparison": "sgsdump.reports.comparison.file:save",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sgsdump' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
