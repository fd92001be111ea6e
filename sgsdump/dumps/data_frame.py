"""Tables for pandas, which is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sgsdump.errors import MissingExtra


def data_frame(rows: Sequence[Any], columns: Sequence[str]) -> Any:
    """A pandas DataFrame of rows, each a sequence in the columns' order or a mapping. Raises MissingExtra without
    pandas."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("to_pandas needs pandas, which is not installed; pip install 'sgsdump[pandas]'") from None
    return pandas.DataFrame(rows, columns=list(columns))
