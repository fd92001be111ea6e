"""quant_param files, which ``--quant-file`` reads and ``save_quant_param`` writes; see ``quant_param_entries.py``.

json    a list with an indent of 4
pickle  protocol 3: a list of collections.OrderedDict
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from pathlib import Path

from sgsdump.errors import FormatError
from sgsdump.files.atomic_write import replacing
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.sidecars.quant_param_entries import (
    PICKLE_LIMIT,
    QuantParam,
    as_entries,
    is_pickle,
    parse_json,
    parse_pickle,
)

PROTOCOL = 3


def read(path: Path | str) -> list[QuantParam]:
    """Return the entries in file order, from JSON or pickle by content.

    Raises FormatError, with the entry, for another file type, NaN or infinity, a min above its max, or a pickle with
    more than plain data. Raises ConfigError if the file cannot be read.
    """
    path = Path(path)
    data = read_bytes(path, PICKLE_LIMIT)
    if is_pickle(data):
        return parse_pickle(data, path)
    if data.startswith(b"Name:"):
        raise FormatError(f"{path} is a tensor_min_max.txt file. A quant_param file is a JSON or pickle list")
    return parse_json(decode(data.removeprefix(b"\xef\xbb\xbf"), path), path)


def write(params: Iterable[QuantParam], path: Path | str, form: str = "json") -> None:
    """Write ``json`` or ``pickle`` atomically. Raises OutputError."""
    entries = as_entries(params)
    with replacing(Path(path)) as file:
        if form == "pickle":
            pickle.dump(entries, file, protocol=PROTOCOL)
        else:
            file.write(json.dumps(entries, indent=4).encode())
