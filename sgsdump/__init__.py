"""sgsdump: find the layer that loses accuracy when a network is quantised.

The map, top down; imports point down only:

    commands, cli                                    read argv, print
    reports                                          results -> text, csv, json, png
    calibration simulation comparison                the work
    align stats inputs executors                     pairs, one-pass statistics, feeds, running models
    formats sidecars models passes metrics           the families, one file per member
    tensor layout dump, and the contracts            format sidecar model graph_pass executor metric report
    family errors output                             standard library only

Public names, kept stable: ``open_dump``, ``save_dump``, ``Dump``, ``Tensor``, ``compare``, ``quant_params``.
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
