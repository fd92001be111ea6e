"""The operators of each graph as ``ge_proto_*.txt``, where ``DUMP_GE_GRAPH`` asks for them: their names can be chosen
from before anything is dumped. ``sgsdump show --operators`` reads the file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sgsdump.errors import SgsdumpError
from sgsdump.files.atomic_write import replacing
from sgsdump.sidecars.ge_proto import GraphOperator, render
from sgsdump.torchair.log import logger
from sgsdump.torchair.operators import Operator

LEVEL, FOLDER = "DUMP_GE_GRAPH", "DUMP_GRAPH_PATH"


def wanted() -> bool:
    """Whether the environment asks for graphs: 1, 2 and 3 all give names, types, inputs and where they stand."""
    return os.environ.get(LEVEL, "") in ("1", "2", "3")


def write_listing(graph: str, number: int, operators: Sequence[Operator]) -> None:
    """``ge_proto_00000001_graph_1.txt`` in the folder of ``DUMP_GRAPH_PATH``, or the current one."""
    path = Path(os.environ.get(FOLDER) or ".") / f"ge_proto_{number:08d}_graph_{number}.txt"
    text = render(graph, [_listed(operator) for operator in operators])
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except SgsdumpError as error:
        logger.warning("%s", error)


def _listed(operator: Operator) -> GraphOperator:
    given = {"_module": operator.module, "_source": operator.source, "_also": " ".join(operator.aliases)}
    attributes = tuple((name, value) for name, value in given.items() if value)
    return GraphOperator(operator.name, operator.op_type, operator.inputs, attributes)
