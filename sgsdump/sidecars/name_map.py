"""A name map: which tensor of the benchmark is which of the sample, for dumps whose names do not tell.

JSON, one object, UTF-8: ``{"benchmark name": "sample name", …}``. Names stand exactly as in the dumps; a name that is
not UTF-8 is escaped. Each name stands once on its side. Tensors that are not in the map are paired by their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgsdump.errors import FormatError
from sgsdump.output import replacing
from sgsdump.sidecar import decode, printable, read_bytes

_FORM = '{"benchmark name": "sample name"}'


def read(path: Path | str) -> dict[str, str]:
    """Benchmark name -> sample name. Raises FormatError for anything else, ConfigError when it cannot be read."""
    path = Path(path)

    def pairs_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise FormatError(f"{path}: the benchmark's {printable(name)} stands in the name map twice")
            found[name] = value
        return found

    try:
        found = json.loads(decode(read_bytes(path), path).removeprefix("\ufeff"), object_pairs_hook=pairs_of)
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}:{error.lineno}: not valid JSON: {error.msg}; a name map is {_FORM}") from None
    except (RecursionError, ValueError) as error:
        raise FormatError(f"{path}: not valid JSON: {str(error)[:100]}; a name map is {_FORM}") from None
    if not isinstance(found, dict):
        raise FormatError(f"{path}: a name map is {_FORM}, not a {type(found).__name__}")
    owners: dict[str, str] = {}
    for benchmark, sample in found.items():
        if not isinstance(sample, str):
            raise FormatError(
                f"{path}: {printable(benchmark)} must map to one name of the sample; a name map is {_FORM}"
            )
        if sample in owners:
            raise FormatError(
                f"{path}: the sample's {printable(sample)} is given to {printable(owners[sample])} and to "
                f"{printable(benchmark)}"
            )
        owners[sample] = benchmark
    return found


def write(names: Mapping[str, str], path: Path | str) -> None:
    """Write benchmark name -> sample name, whole or not at all. Raises OutputError."""
    with replacing(Path(path)) as file:
        # escapes keep names that are not UTF-8, which are surrogates here
        file.write((json.dumps(dict(names), indent=1, ensure_ascii=True) + "\n").encode())
