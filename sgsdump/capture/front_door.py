"""What a user asked for in a vendor's words -> ``DumpControl``: the defaults of each front door, and what conflicts.

``llm_dump`` is msit llm dump's door and that of ``sgsdump exec``, ``debug_dump`` msit debug dump's. They share words of
different meaning: the operator names of the one are beginnings of types, those of the other exact names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sgsdump.capture.configs import acl_json, acl_use, msit_json
from sgsdump.capture.configs.acl_json import AclDump
from sgsdump.capture.control import Content, DumpControl, Links, Mode, When
from sgsdump.capture.names import read_devices, read_ids, read_names, read_truth
from sgsdump.capture.steps import read_ranges, read_steps
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of

TYPES = ("model", "layer", "op", "kernel", "tensor", "stats", "cpu_profiling", "onnx")
DEFAULT_TYPES = ("tensor", "model")
DEFAULT_RANGE = "0,0"
TIMES: tuple[When, ...] = ("before", "after", "both", "inputs-before-outputs-after")
PARTS: tuple[Mode, ...] = ("input", "output", "all")
_MOST_BYTES = 16 << 20
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True)
class Asked:
    """The options as they were typed; None (or nothing) for those that were not.

    The first ones are msit's, ``dump_…`` TorchAir's; ``regex`` are regular expressions on names, ``links`` and
    ``max_size`` (bytes) are this program's own.
    """

    types: Sequence[str] | None = None
    description: bool = False
    ids: Sequence[str] | None = None
    ranges: str | None = None
    child: str | None = None
    time: str | None = None
    names: Sequence[str] | None = None
    tiling: bool = False
    part: str | None = None
    device: str | None = None
    symlink: bool = False
    seed: int | None = None
    dump_mode: Mode | None = None
    dump_step: str | None = None
    dump_layer: str | None = None
    dump_data: str | None = None
    regex: Sequence[str] = ()
    ranks: str | None = None
    links: Links | None = None
    max_size: int | None = None


def types_of(asked: Asked) -> tuple[str, ...]:
    """``--type``, layer where model is. Raises ConfigError for statistics of no tensor."""
    types = tuple(dict.fromkeys(asked.types or DEFAULT_TYPES))
    for name in types:
        if name not in TYPES:
            raise ConfigError(f"--type {quoted(name)} is none of {', '.join(TYPES)}")
    if "stats" in types and "tensor" not in types:
        raise ConfigError("--type stats is of tensors: give both, --type model tensor stats")
    return tuple(dict.fromkeys([*types, *(["layer"] if "model" in types else [])]))


def llm_dump(asked: Asked) -> DumpControl:
    """msit llm dump: one round, the first, and names that begin the operator's type. Raises ConfigError."""
    _check_conflicts(asked)
    return DumpControl(
        mode=asked.dump_mode or _among(PARTS, asked.part, "2", "-stp"),
        steps=read_steps(asked.dump_step) if asked.dump_step else read_ranges(asked.ranges or DEFAULT_RANGE),
        names=tuple((asked.dump_layer or "").split()),
        prefixes=read_names(asked.names) if asked.names else (),
        patterns=_patterns(asked.regex),
        ids=read_ids(",".join(asked.ids or ())),
        children=read_truth(asked.child or "true", "-child"),
        when=_among(TIMES, asked.time, "3", "-time"),
        content=_content(asked),
        timing="cpu_profiling" in types_of(asked),
        devices=read_devices(asked.device or "", "-device"),
        ranks=read_devices(asked.ranks or "", "--rank"),
        seed=asked.seed,
        links=asked.links or ("symlink" if asked.symlink else "none"),
        max_bytes=asked.max_size or 0,
    )


def debug_dump(asked: Asked) -> DumpControl:
    """msit debug dump: every run, and exact names; ``all`` and no names stand for every operator."""
    names = read_names(asked.names) if asked.names else ()
    control = llm_dump(replace(asked, names=None, ranges=asked.ranges or "all"))
    return replace(control, names=() if names == ("all",) else names)


def with_config(control: DumpControl, asked: Asked, path: Path) -> tuple[DumpControl, tuple[str, ...]]:
    """``control`` and what a configuration file says, msit's or acl.json, and a sentence for all that has no effect.

    msit's file replaces the options of its own names; of acl.json the options that were given win. Raises ConfigError,
    for the scenes overflow and watcher too, which are those of a compiled graph.
    """
    if is_msit(path):
        given = {
            "-ids": asked.ids,
            "-er": asked.ranges,
            "--dump-step": asked.dump_step,
            "-child": asked.child,
            "-device": asked.device,
        }
        idle = [name for name, value in given.items() if value]
        notes = [f"{path} takes the place of {', '.join(idle)}"] if idle else []
        return msit_json.read(path, control), tuple(notes)
    acl = acl_json.read(path)
    configured, idle_notes = acl_use.control_of(acl)
    if configured.scene:
        what = "dump_scene watcher" if configured.scene == "watcher" else "dump_debug on"
        raise ConfigError(
            f"{path}: {what} looks at the graph of a compiled program; give it to sgsdump.torchair, or leave it out"
        )
    overrides = {
        "mode": asked.dump_mode or asked.part,
        "steps": asked.dump_step or asked.ranges,
        "names": asked.dump_layer,
        "prefixes": asked.names,
        "content": asked.dump_data or asked.types or asked.description,
    }
    kept = {name: getattr(control, name) for name, given in overrides.items() if given}
    notes = [f"the options given here win over {path}"] if kept else []
    fixed = ("enabled", "mode", "steps", "names", "models", "content")
    merged = replace(control, **{name: getattr(configured, name) for name in fixed})
    return replace(merged, **kept), (*idle_notes, *_of_graphs_alone(acl), *notes)


def _of_graphs_alone(acl: AclDump) -> Iterator[str]:
    """A sentence for each setting that only ``sgsdump.torchair`` goes by."""
    if any(entry.op_type_blacklist or entry.op_name_blacklist or entry.op_name_ranges for entry in acl.entries):
        yield "blacklists and opname_range are of compiled graphs (sgsdump.torchair) and have no effect here"
    if acl.statistics:
        yield "dump_stats has no effect here: the statistics are msit's, max, min, mean and l2norm"


def folder_of(path: Path | None) -> Path | None:
    """Where the dump_path of acl.json says that the dump goes; None for a file without one. Raises ConfigError."""
    if path is None or is_msit(path):
        return None
    folder = acl_json.read(path).path
    if folder and not Path(folder).is_dir():
        raise ConfigError(
            f"{path}: dump_path {quoted(folder)} is on another machine; say with -o where the dump goes here"
        )
    return Path(folder) if folder else None


def is_msit(path: Path) -> bool:
    """Whether a configuration is msit's own, not acl.json. Raises ConfigError, FormatError when it cannot be read."""
    text = decode(read_bytes(path, _MOST_BYTES), path)
    try:
        document = json_of(text, path)
    except FormatError:
        return False  # acl.json's reader has the vendor's words for it
    return isinstance(document, dict) and "dump" not in document and bool(set(document) & set(msit_json.KEYS))


def idle_options(asked: Asked) -> tuple[str, ...]:
    """A sentence for each option that is taken, but means nothing without the vendor's card."""
    notes = []
    if asked.tiling:
        notes.append("-tiling has no effect: tiling data are made for the card's kernels, and there is no card")
    if "kernel" in types_of(asked):
        notes.append("--type kernel has no effect: below an operator there is no kernel of the card's to look into")
    return tuple(notes)


def _check_conflicts(asked: Asked) -> None:
    types = types_of(asked)
    pairs = [
        (asked.dump_mode and asked.part, "--dump-mode and -stp both choose inputs or outputs"),
        (asked.dump_step and asked.ranges, "--dump-step and -er both choose steps"),
        (asked.symlink and asked.links not in (None, "symlink"), f"-symlink and --links {asked.links} contradict"),
        (asked.description and "stats" in types, "-sd and --type stats both say what is kept of a tensor"),
        (asked.description and asked.dump_data, "-sd and --dump-data both say what is kept of a tensor"),
        (
            asked.dump_data == "tensor" and "stats" in types,
            "--dump-data tensor and --type stats both say what is kept of a tensor",
        ),
        (asked.description and "tensor" not in types, "-sd is of tensors, and --type has none"),
        (asked.dump_data and "tensor" not in types, "--dump-data is of tensors, and --type has none"),
    ]
    for given, what in pairs:
        if given:
            raise ConfigError(f"{what}; give one of them" if "both" in what else f"{what}; leave one out")
    mode = asked.dump_mode or _among(PARTS, asked.part, "2", "-stp")
    if mode == "output" and _among(TIMES, asked.time, "3", "-time") == "before":
        raise ConfigError("-time 0 with outputs alone leaves nothing: there are none before their operator ran")


def _content(asked: Asked) -> Content:
    types = types_of(asked)
    if "tensor" not in types:
        return "structure"
    if asked.description:
        return "description"
    return "stats" if "stats" in types or asked.dump_data == "stats" else "tensor"


def _among(words: Sequence[Word], given: str | None, default: str, option: str) -> Word:
    number = default if given is None else given
    if number not in map(str, range(len(words))):
        raise ConfigError(f"{option} is {quoted(number)}; it must be a number from 0 to {len(words) - 1}")
    return words[int(number)]


def _patterns(texts: Sequence[str]) -> tuple[str, ...]:
    for text in texts:
        _check_pattern(text)
    return tuple(texts)


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"--operation-regex {quoted(text)} is no regular expression: {error}") from None
