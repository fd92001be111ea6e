"""The format that a dump is written in, by name or by the path's ending; and what is lost by writing it so, known
before anything is written and without reading a value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sgsdump.dumps.dump import Dump, Record, Variant
from sgsdump.dumps.formats import FORMATS
from sgsdump.dumps.formats.sigmastar import binary
from sgsdump.dumps.formats.sigmastar.text_dump import TextVariant
from sgsdump.errors import ConfigError, hint
from sgsdump.tensors.dtypes import is_integer

ENDINGS = {
    ".bin": "sigmastar_bin",
    ".txt": "sigmastar_text",
    ".npz": "npz",
    ".safetensors": "safetensors",
    "": "npy_dir",
}
# What the files of a format that can be written end in; folders have no ending.
OWN_ENDINGS = {format: ending for ending, format in ENDINGS.items()}
OWN_ENDINGS |= {"atb_bin": ".bin", "atb_tree": "", "dump_info_dir": "", "rounds": ""}
OLD = "_old"
WITH_OLD = ("sigmastar_bin", "sigmastar_text")
NAMES = 3


class Target(NamedTuple):
    """A format to write, and the variant of it."""

    format: str
    variant: Any = None


def target_names() -> list[str]:
    """The values of ``--to``: the formats that can be written, and ``_old`` for the headers of the older SDK."""
    names = [name for name, format in FORMATS.items() if format.write is not None]
    return [*names, *(name + OLD for name in WITH_OLD)]


def target_of(path: Path, to: str | None, dump: Dump) -> Target:
    """The target that a name means, or without one the ending of ``path``; then a dump of the same format keeps its
    variant, so that all its bytes come back.

    Raises ConfigError for an unknown name or ending, and for formats that are only read.
    """
    name = to or by_ending(path)
    if name not in target_names():
        reason = f"cannot write {name}: it is only read" if name in FORMATS else f"unknown format {name!r}"
        raise ConfigError(reason + hint(name, target_names()))
    format = name.removesuffix(OLD)
    if to is None and format == dump.format:
        return Target(format, dump.variant)
    if format not in WITH_OLD:
        return Target(format)
    infos = [record.tensor.info for record in dump.records]
    shaped, is_float = format == name, not all(info.quant is not None and is_integer(info.dtype) for info in infos)
    if format == "sigmastar_bin":
        return Target(format, binary.BinVariant(is_float, shaped))
    framework = shaped and is_float
    return Target(format, TextVariant("framework" if framework else "sim", is_float, shaped))


def common_form(dumps: Sequence[Dump]) -> tuple[str, Any]:
    """The format and variant that dumps share, but for what is odd in single records; nothing when they differ."""
    forms = [(dump.format, v.of_part() if isinstance(v := dump.variant, Variant) else None) for dump in dumps]
    return forms[0] if forms and all(form == forms[0] for form in forms) else ("", None)


def by_ending(path: Path) -> str:
    """The format that a path names: by its ending, ``npy_dir`` for a folder or a path without ending.

    Raises ConfigError for an ending that names none.
    """
    if path.is_dir():
        return ENDINGS[""]
    if path.suffix == ".npy":
        raise ConfigError(
            f"a .npy file holds one tensor; name a folder, or write {path} with: sgsdump show DUMP NAME -o"
        )
    if path.suffix not in ENDINGS:
        raise ConfigError(
            f"the ending of {path} names no format ({', '.join(filter(None, ENDINGS))}, or none for a folder, do); "
            f"say which with --to, in Python format=: {', '.join(OWN_ENDINGS)}"
        )
    return ENDINGS[path.suffix]


def fits_own(format: str, path: Path) -> bool:
    """Whether files (or folders) of a format may have such a path."""
    return OWN_ENDINGS.get(format) == ("" if path.is_dir() else path.suffix)


def losses(records: Sequence[Record], format: str, variant: Any = None) -> list[str]:
    """A line for each thing that the format would lose or refuse, with the number of tensors affected and the names of
    the first few: ``2 tensors are float16, kept as float32: 'conv1', 'conv2'``. Empty: everything comes back equal.

    Raises ConfigError for an unknown format.
    """
    affected: defaultdict[str, list[str]] = defaultdict(list)
    for lost in FORMATS[format].loses(records, variant):
        affected[str(lost)].append(lost.record.name)
    return [_line(what, names) for what, names in affected.items()]


def _line(what: str, names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES])) + (", …" if len(names) > NAMES else "")
    return f"{len(names)} {'tensor' if len(names) == 1 else 'tensors'} {_plural(what, len(names))}: {shown}"


def _plural(what: str, count: int) -> str:
    """``is float16`` as it follows a number of tensors."""
    verb, _, rest = what.partition(" ")
    many = {"is": "are", "has": "have", "loses": "lose"}.get(verb, verb)
    return what if count == 1 else f"{many} {rest}"
