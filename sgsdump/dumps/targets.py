"""Selection of the output format by name or path ending, and the losses it causes, computed from facts alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sgsdump.dumps.dump import Dump, Record, Variant
from sgsdump.dumps.formats import FORMATS
from sgsdump.errors import ConfigError, hint
from sgsdump.tensors.dtypes import is_integer

ENDINGS = {
    ".bin": "sigmastar_bin",
    ".txt": "sigmastar_text",
    ".npz": "npz",
    ".safetensors": "safetensors",
    "": "npy_dir",
}
# File endings of the writable formats; folders have none.
OWN_ENDINGS = {format: ending for ending, format in ENDINGS.items()}
OWN_ENDINGS |= {"atb_bin": ".bin", "atb_tree": "", "dump_info_dir": "", "rounds": ""}
OLD = "_old"
WITH_OLD = ("sigmastar_bin", "sigmastar_text")
NAMES = 3


class Target(NamedTuple):
    """Format and variant to write."""

    format: str
    variant: Any = None


def target_names() -> list[str]:
    """Return the values of ``--to``: the writable formats, and ``_old`` names for the headers of the older SDK."""
    names = [name for name, format in FORMATS.items() if format.write is not None]
    return [*names, *(name + OLD for name in WITH_OLD)]


def target_of(path: Path, to: str | None, dump: Dump) -> Target:
    """Return the target for a format name or, without a name, for the ending of ``path``.

    Without a name, a dump of the same format keeps its variant, which reproduces the file byte for byte.
    Raises ConfigError for an unknown name or ending, and for read-only formats.
    """
    name = to or by_ending(path)
    if name not in target_names():
        reason = f"cannot write {name}: the format is read-only" if name in FORMATS else f"unknown format {name!r}"
        raise ConfigError(reason + hint(name, target_names()))
    format = name.removesuffix(OLD)
    if to is None and format == dump.format:
        return Target(format, dump.variant)
    if format not in WITH_OLD:
        return Target(format)
    infos = [record.tensor.info for record in dump.records]
    shaped, is_float = format == name, not all(info.quant is not None and is_integer(info.dtype) for info in infos)
    if format == "sigmastar_bin":
        from sgsdump.dumps.formats.sigmastar.binary import BinVariant

        return Target(format, BinVariant(is_float, shaped))
    from sgsdump.dumps.formats.sigmastar.text_dump import TextVariant

    framework = shaped and is_float
    return Target(format, TextVariant("framework" if framework else "sim", is_float, shaped))


def common_form(dumps: Sequence[Dump]) -> tuple[str, Any]:
    """Return the format and variant that all dumps share, less facts of single records; ("", None) if they differ."""
    forms = [(dump.format, v.of_part() if isinstance(v := dump.variant, Variant) else None) for dump in dumps]
    return forms[0] if forms and all(form == forms[0] for form in forms) else ("", None)


def by_ending(path: Path) -> str:
    """Return the format for a path's ending; ``npy_dir`` for a folder or a path without ending.

    Raises ConfigError for an unknown ending.
    """
    if path.is_dir():
        return ENDINGS[""]
    if path.suffix == ".npy":
        raise ConfigError(
            f"{path}: a .npy file holds one tensor. Name a folder, or write one tensor with: sgsdump show DUMP NAME -o"
        )
    if path.suffix not in ENDINGS:
        raise ConfigError(
            f"the extension of {path} is not the extension of a dump format. Use "
            f"{', '.join(filter(None, ENDINGS))}, or no extension for a folder. Or select the format "
            f"with --to (in Python, format=): {', '.join(OWN_ENDINGS)}"
        )
    return ENDINGS[path.suffix]


def fits_own(format: str, path: Path) -> bool:
    """Return whether a file or folder of the format may have this path."""
    return OWN_ENDINGS.get(format) == ("" if path.is_dir() else path.suffix)


def losses(records: Sequence[Record], format: str, variant: Any = None) -> list[str]:
    """Return a line per loss or refusal of the format; an empty list if all records read back equal.

    Each line has the number of affected tensors and the first names: ``2 tensors are float16, kept as float32: 'conv1',
    'conv2'``. Raises ConfigError for an unknown format.
    """
    affected: defaultdict[str, list[str]] = defaultdict(list)
    for lost in FORMATS[format].loses(records, variant):
        affected[str(lost)].append(lost.record.name)
    return [_line(what, names) for what, names in affected.items()]


def _line(what: str, names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES])) + (", …" if len(names) > NAMES else "")
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'} {_plural(what, len(names))}: {shown}"


def _plural(what: str, count: int) -> str:
    """Return ``is float16`` in the plural form if ``count`` is not 1."""
    verb, _, rest = what.partition(" ")
    many = {"is": "are", "has": "have", "loses": "lose"}.get(verb, verb)
    return what if count == 1 else f"{many} {rest}"
