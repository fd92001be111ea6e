"""Find the layer that loses accuracy when a model is quantised.

    import sgsdump

    found = sgsdump.diagnose("net.onnx", "images", preprocess="preprocess.py")
    print(found)                  # where accuracy is lost, and what to write into input_config.ini
    found.save("diagnosis")       # report.html, the fixed model, the errors of every layer

    fixed = sgsdump.calibrate("net.onnx", "images", preprocess="preprocess.py", input_config="input_config.ini")
    sample = sgsdump.simulate(fixed, "cat.jpg", preprocess="preprocess.py")
    benchmark = sgsdump.simulate("net.onnx", "cat.jpg", preprocess="preprocess.py")
    sgsdump.compare(sample, benchmark).to_pandas()

Each function does the same as the command of its name.

Map of the package. The core is listed top down: a folder imports only folders below it, and no plug-in
(``tests/test_house.py`` checks both rules).

    __main__ cli    start, dispatch, error line and exit status
    commands        one thin file or folder per subcommand; only commands print
    reports         results -> sentences, text, csv, json, png, html
    executors       run a model; base.py is the interface, workers/ runs tasks in other processes
    models          a model file -> ONNX in memory: caffe/, atb/, passes/, feeds/
    comparison      pair, measure and judge two dumps: alignment, naming/, sums/, metrics
    replay          recompute a program's operators and judge each against its error bound
    dumps           Dump, open_dump, save_dump, conversion; formats/VENDOR/ reads and writes
    sidecars        the small text files beside a model
    tensors         Tensor, dtypes, layouts, statistics: numpy only
    files           untrusted reading, atomic writing: standard library, numpy for mapped bytes
    progress plugins registry errors

The plug-ins, each with its folders, top down. A plug-in imports the core, never another plug-in.

    fixedpoint      calibrate, simulate, diagnose, cure and tune a model in fixed point
      commands      the subcommands
      verbs         public functions, which the commands call too
      reports       results of these commands -> sentences, text, csv, json, charts
      tuning        which convolutions need INT16: contributions, rounds, search
      curing        rewrite a float model so that INT8 loses less: one file per cure
      sim           model files of the SDK: float.sim, fixed.sim, .img
      quantisation  ranges -> fixed model -> simulation; levels, plans, fusion
      sdk           operators that the SDK's converter refuses or changes
    capture         dump a running program
      commands      exec, check and msit
      check_report  the report of check
      msit          msit's helpers under their own names
      torchair      TorchAir's names for dumps of a compiled torch program
      programs      control, hooks, result trees
    pipeline        dump a model by any executor; bisection; test cases

``samples`` holds the model and the digits of the demo.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgsdump.capture.programs.capture import capture
    from sgsdump.capture.programs.control import DumpControl
    from sgsdump.comparison.compare import compare
    from sgsdump.comparison.comparison import Comparison
    from sgsdump.dumps.dump import Dump, Record
    from sgsdump.dumps.io import open_dump, save_dump
    from sgsdump.dumps.trees import list_runs
    from sgsdump.errors import LossWarning, SgsdumpError
    from sgsdump.executors.dump import dump
    from sgsdump.fixedpoint.curing.cure import Cured
    from sgsdump.fixedpoint.quantisation.quant_file import quant_params
    from sgsdump.fixedpoint.verbs.calibrate import FixedModel, calibrate
    from sgsdump.fixedpoint.verbs.cure import cure
    from sgsdump.fixedpoint.verbs.diagnose import diagnose
    from sgsdump.fixedpoint.verbs.diagnosed import Diagnosed
    from sgsdump.fixedpoint.verbs.explained import Explained
    from sgsdump.fixedpoint.verbs.simulate import simulate
    from sgsdump.fixedpoint.verbs.tune import tune
    from sgsdump.fixedpoint.verbs.tuned import Tuned
    from sgsdump.reports.histogram import Histograms, histogram
    from sgsdump.tensors.statistics import Statistics
    from sgsdump.tensors.tensor import Quant, Tensor, TensorInfo

__version__ = "0.2.0"

# Public names of the core; plug-ins list theirs in their ``__init__.py``.
_NAMES = {
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
    "dump": "sgsdump.executors.dump",
    "histogram": "sgsdump.reports.histogram",
    "Histograms": "sgsdump.reports.histogram",
}
__all__ = [
    "Comparison",
    "Cured",
    "Diagnosed",
    "Dump",
    "DumpControl",
    "Explained",
    "FixedModel",
    "Histograms",
    "LossWarning",
    "Quant",
    "Record",
    "SgsdumpError",
    "Statistics",
    "Tensor",
    "TensorInfo",
    "Tuned",
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
    "save_dump",
    "simulate",
    "tune",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
    else:
        value = importlib.import_module("sgsdump.plugins").public_name(name)
    # setdefault: importing may have bound the callable package ``sgsdump.capture`` to this name already.
    return globals().setdefault(name, value)


class _PublicModules:
    """Import finder for plug-in packages that are imported as ``sgsdump.NAME``, such as ``sgsdump.torchair``.

    The finder is last in ``sys.meta_path``, so it sees only modules that no other finder knows.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> Any:
        if not name.startswith("sgsdump."):
            return None
        import importlib

        return importlib.import_module("sgsdump.plugins").public_module(name)


sys.meta_path.append(_PublicModules)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
