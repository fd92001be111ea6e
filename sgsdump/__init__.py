"""sgsdump: find the layer that loses accuracy when a network is quantised.

The map, top down; imports point down only. A singular file is a contract, the plural folder beside it the family that
keeps it, one file a member; a folder in -ing holds the parts of one job.

    commands, cli, progress                           read argv, print
    reports                                           results -> text, csv, json, png
    tuning advice repair (parts: planning)            which convolutions deserve INT16
    pipeline pipeline_job bisection (parts: pipelining)
                                                      dump a model by any executor; where two executors part
    partial_save conversion parts inventory           a dump into another format, in parts, as a list
    calibration quant_level (parts: calibrating)      ranges -> fixed model; the levels L1 to L5
    simulation comparison golden (parts: comparing) distribution
                                                      run and dump; hold dumps together; values in a range
    inputs (parts: feeding) stats dequantise net_facts executors task_pool ir_text test_case
                                                      feeds, one-pass figures, true scales, running models, workers
    formats sidecars models passes metrics vendor_metrics
                                                      the families; caffe: the importer behind models/caffe;
                                                      ascend: what the readers of Ascend's dumps share
    fusion quant_plan padding device_layout tensor_view
                                                      what the fixed model is; how values lie, and views of them
    losses dump_info document (parts: storing)        what formats keep and share; files that are not believed
    tensor element tensor_range layout dump graph feed external_data
                                                      the core types, and the contracts:
                                                      format sidecar model graph_pass executor metric tally
                                                      vendor_metric report input_spec
    family errors output file_name terminal csv_cells name_link
                                                      standard library only

``sdk`` is what only the SDK's own commands (``tools/``) need; ``samples`` the demo's net and digits; ``msit`` msit's
helpers under their own names; ``executor_conformance`` what authors of plug-in executors test theirs with.

Public names, kept stable: ``open_dump``, ``save_dump``, ``Dump``, ``Tensor``, ``compare``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgsdump.calibrating.quant_export import quant_params
    from sgsdump.comparison import Comparison, compare
    from sgsdump.dump import Dump, Record, open_dump, save_dump
    from sgsdump.errors import SgsdumpError
    from sgsdump.tensor import Quant, Tensor, TensorInfo

__version__ = "0.1.0"

_PUBLIC = {
    "open_dump": "sgsdump.dump",
    "save_dump": "sgsdump.dump",
    "Dump": "sgsdump.dump",
    "Record": "sgsdump.dump",
    "Tensor": "sgsdump.tensor",
    "TensorInfo": "sgsdump.tensor",
    "Quant": "sgsdump.tensor",
    "compare": "sgsdump.comparison",
    "Comparison": "sgsdump.comparison",
    "SgsdumpError": "sgsdump.errors",
    "quant_params": "sgsdump.calibrating.quant_export",
}
__all__ = [
    "Comparison",
    "Dump",
    "Quant",
    "Record",
    "SgsdumpError",
    "Tensor",
    "TensorInfo",
    "compare",
    "open_dump",
    "quant_params",
    "save_dump",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'sgsdump' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PUBLIC[name]), name)
