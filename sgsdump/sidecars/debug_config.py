"""DebugConfig.txt: selects the tensors that simulators dump, and the folder to write to.

The file is read from the current folder; without it nothing is dumped. The SDK's grammar has one option per line. A
line is an option if it *begins* with the word (case-sensitive, no leading blanks), so ``dumpTensor #note`` counts.
Every other line is silently ignored. ``path=`` takes the rest of the line verbatim, at most 121 characters, and the
folder must exist. An empty or missing path means ``$HOME``. The last path wins.

Errors that the SDK silently accepts are reported here: a word in the wrong case, after blanks, unknown or misspelt; two
options on a line; blanks or a carriage return in the path; ``path = x``. Blank lines and comments (``#``, ``//``,
``;``) are allowed.

As in the SDK, any text may follow a word (``dumpTensorXYZ``, ``dumpTensor=1``). Text that says the opposite of the
SDK's behaviour (``dumpTensor=0``, ``dumpTensor off``) is an error.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sgsdump.errors import ConfigError, hint
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted

FILE_NAME = "DebugConfig.txt"
DUMP_NAME = "sigma_outtensor_dump.bin"
PATH_LIMIT = 121

FLAGS = {
    "dumpTensor": "dump_tensor",
    "eliminateGarbage": "eliminate_garbage",
    "dequantFixed": "dequant_fixed",
    "dumpasstring": "dump_as_string",
    "disableDomainFuseOps": "disable_domain_fuse_ops",
    "dumpdonotrecovery": "do_not_recover",
}
NEWER = ("passexport", "processexport", "processoverlap", "dumpTileBasedGolden", "splitTensorByTile")
WORDS = (*FLAGS, *NEWER, "path=")

_COMMENT = re.compile(r"\s*(#|//|;|$)")
_TRAILING_COMMENT = re.compile(r"\s(?:#|//|;).*|;\s*$")
_OPPOSITE = re.compile(r"[\s=:]+(0|off|false|no|none|disable)\W*$", re.IGNORECASE)
_PATH_LIKE = re.compile(r"path\s*([=:]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class DebugConfig:
    """Options that are on, the existing output folder ``path``, and ``ignored``: words without effect in sgsdump."""

    dump_tensor: bool = False
    eliminate_garbage: bool = False
    dequant_fixed: bool = False
    dump_as_string: bool = False
    disable_domain_fuse_ops: bool = False
    do_not_recover: bool = False
    path: Path = Path()
    ignored: tuple[str, ...] = ()


def read(folder: Path | str = ".", dumps_fixed: bool = True) -> DebugConfig | None:
    """Read the DebugConfig.txt of ``folder``; return None if there is none.

    A relative ``path=`` is relative to ``folder``, and has to exist only if ``dumpTensor`` is on. Raises ConfigError,
    with file and line, for every error that the SDK silently accepts. If a fixed model is dumped, ``dequantFixed``
    without ``eliminateGarbage`` is an error too; neither affects a float model.
    """
    file = Path(folder) / FILE_NAME
    if not file.exists():
        return None
    data = read_bytes(file, 1 << 20)
    if data.startswith(b"\xef\xbb\xbf"):
        raise ConfigError(
            f"{file}:1: the file begins with a byte-order mark, which hides the first word; save the file as "
            f"UTF-8 without BOM"
        )
    words: list[str] = []
    path, path_line = "", 0
    for number, line in enumerate(decode(data, file).split("\n"), 1):
        if line.startswith("path="):
            path, path_line = line[len("path=") :], number
        elif not _COMMENT.match(line):
            words.append(_word(line.removesuffix("\r"), f"{file}:{number}"))
    flags = {field: word in words for word, field in FLAGS.items()}
    where = f"{file}:{path_line}"
    _check_path(path, where)
    if dumps_fixed and flags["dump_tensor"] and flags["dequant_fixed"] and not flags["eliminate_garbage"]:
        raise ConfigError(
            f"{file}: dequantFixed without eliminateGarbage: the SDK would dequantise the padded buffer and lose the "
            f"end of every tensor; add the line eliminateGarbage, or remove dequantFixed"
        )
    target = _folder(path, Path(folder), where, flags["dump_tensor"])
    return DebugConfig(**flags, path=target, ignored=tuple(word for word in NEWER if word in words))


def dump_path(config: DebugConfig, name: str = DUMP_NAME) -> Path:
    """Return the file to write; with ``dumpdonotrecovery`` the first free one of ``x.bin``, ``x_1.bin`` and so on."""
    path = config.path / name
    number = 0
    while config.do_not_recover and path.exists():
        number += 1
        path = config.path / f"{Path(name).stem}_{number}{Path(name).suffix}"
    return path


def _word(line: str, where: str) -> str:
    """Return the option that a line begins with; raise ConfigError for a line without or with several options."""
    for word in (*FLAGS, *NEWER):
        if line.startswith(word):
            _check_rest(word, line[len(word) :], where)
            return word
    bare = line.strip()
    if any(bare.startswith(word) for word in WORDS):
        raise ConfigError(
            f"{where}: {quoted(line)}: the SDK ignores an option after leading blanks; start the option "
            "in the first column"
        )
    if _PATH_LIKE.match(bare):
        raise ConfigError(
            f"{where}: {quoted(line)}: the SDK ignores this line; write path=FOLDER without blanks around ="
        )
    right = [word for word in WORDS if bare.lower().startswith(word.lower())]
    if right:
        raise ConfigError(f"{where}: {quoted(line)}: options are case-sensitive; write {right[0]}")
    first = re.split(r"[\s=:,;#]", bare, maxsplit=1)[0] or bare
    raise ConfigError(f"{where}: unknown option {quoted(first)}{hint(first, list(WORDS))} (begin a comment with #)")


def _check_rest(word: str, rest: str, where: str) -> None:
    value = _TRAILING_COMMENT.sub("", rest)
    if word in FLAGS and _OPPOSITE.match(value):
        raise ConfigError(
            f"{where}: {quoted(word + value)}: this line turns {word} on in the SDK; to turn the "
            f"option off, write #{word}"
        )
    second = [other for other in WORDS if other in value]
    if second and word in FLAGS:
        raise ConfigError(
            f"{where}: {word} and {second[0]} on one line: the SDK reads only the first option; write "
            "one option per line"
        )


def _check_path(path: str, where: str) -> None:
    if path.endswith("\r"):
        raise ConfigError(
            f"{where}: the path= line ends with a carriage return (Windows line ends), which the SDK reads "
            f"as part of the path; save the file with Unix line ends"
        )
    if path != path.strip():
        raise ConfigError(
            f"{where}: blanks around the path {quoted(path)}: the SDK reads these blanks as part of the path; "
            "remove the blanks"
        )
    length = len(os.fsencode(path))
    if length > PATH_LIMIT:
        raise ConfigError(
            f"{where}: the path has {length} characters, but the SDK reads only {PATH_LIMIT}; use a shorter path"
        )


def _folder(path: str, folder: Path, where: str, needed: bool) -> Path:
    home = os.environ.get("HOME", "")
    if not path and not home and needed:
        raise ConfigError(f"{where}: path= is empty and $HOME is not set; write path=FOLDER")
    target = folder / (path or home)
    if not needed or target.is_dir():
        return target
    if not path:
        raise ConfigError(f"{where}: path= is empty and means $HOME, but there is no folder {quoted(home)}")
    note = " (~, $ and quotes are taken literally)" if re.search(r"[~$'\"]", path) else ""
    raise ConfigError(f"{where}: there is no folder {quoted(path)}{note}; create this folder first, or correct path=")
