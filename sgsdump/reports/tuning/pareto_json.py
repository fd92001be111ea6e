"""The tuned plans as JSON: ``rows`` from INT8 to INT16, the ``cloud`` of all plans tried, how the search went."""

from __future__ import annotations

import json

from sgsdump.tuning.pareto import Pareto, as_document


def render(result: Pareto) -> str:
    return json.dumps(as_document(result), indent=2, allow_nan=False) + "\n"
