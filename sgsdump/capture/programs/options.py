"""Translation of the vendors' dump options to a ``DumpControl``: defaults, conflicts, configuration files.

``llm_dump`` reads the options as msit llm dump and ``sgsdump exec`` do, ``debug_dump`` as msit debug dump. Some options
differ in meaning: operator names are beginnings of types in llm dump, exact names in debug dump.

The configuration file of msit llm dump is a JSON object with five keys, all of whose values are strings::

    {"dump_enable": "true", "er": "0,0", "ids": "0,1,2", "child": "true", "device": ""}

dump_enable  only "true" dumps; missing or "" means "false".
er           as -er; "all" for every round; missing or "" means "0,0".
ids          as -ids; "" for every operator.
child        "true" or "false"; "" means "true".
device       as -device, separated by commas; "" for every device.

The file replaces -er, -ids, -child and -device. Source: msit's documentation of llm dump, "Dump configuration file".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from sgsdump.capture.programs import acl_json
from sgsdump.capture.programs.acl_json import AclDump
from sgsdump.capture.programs.control import (
    Content,
    DumpControl,
    Inside,
    Links,
    Mode,
    OperatorFilter,
    Storage,
    When,
    read_devices,
    read_ids,
    read_names,
    read_ranges,
    read_steps,
    read_truth,
    with_fields,
)
from sgsdump.errors import ConfigError, FormatError
from sgsdump.files.bounded_read import decode, read_bytes
from sgsdump.files.escaping import quoted
from sgsdump.files.json_yaml import json_of

TYPES = ("model", "layer", "op", "kernel", "tensor", "stats", "cpu_profiling", "onnx")
DEFAULT_TYPES = ("tensor", "model")
DEFAULT_RANGE = "0,0"
TIMES: tuple[When, ...] = ("before", "after", "both", "inputs-before-outputs-after")
PARTS: tuple[Mode, ...] = ("input", "output", "all")
MSIT_KEYS = ("dump_enable", "er", "ids", "child", "device")
_MOST_BYTES, _MOST_MSIT_BYTES = 16 << 20, 1 << 20
_GIVE_ONE, _LEAVE_OUT = "give one of them", "omit one of them"
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True)
class MsitOptions:
    """msit's options as the user wrote them; None or empty if not given."""

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


@dataclass(frozen=True)
class TorchAirOptions:
    """TorchAir's options that are equivalent to some of msit's."""

    mode: Mode | None = None
    step: str | None = None
    layer: str | None = None
    data: str | None = None


@dataclass(frozen=True)
class CaptureOptions:
    """All options of a dump.

    regex     regular expressions for operator names; ``ranks``: ranks to dump.
    links     storage of duplicate payloads; ``max_size``: size limit in bytes.
    inside    graphs or operators of a compiled program; ``tree``: the vendor's tree, one file per tensor.
    module    the only module (path) or network (class) to dump.
    with_source  whether the dump keeps the program's code around each line that calls an operator.
    """

    msit: MsitOptions = MsitOptions()
    torchair: TorchAirOptions = TorchAirOptions()
    regex: Sequence[str] = ()
    ranks: str | None = None
    links: Links | None = None
    max_size: int | None = None
    inside: Inside = "graph"
    tree: bool = False
    module: str = ""
    with_source: bool = False


def types_of(options: CaptureOptions) -> tuple[str, ...]:
    """Return the values of ``--type``, with layer added to model. Raises ConfigError for statistics without tensors."""
    types = tuple(dict.fromkeys(options.msit.types or DEFAULT_TYPES))
    for name in types:
        if name not in TYPES:
            raise ConfigError(f"--type {quoted(name)} is unknown; use any of {', '.join(TYPES)}")
    if "stats" in types and "tensor" not in types:
        raise ConfigError('--type stats also requires "tensor", as in --type model tensor stats')
    return tuple(dict.fromkeys([*types, *(["layer"] if "model" in types else [])]))


def llm_dump(options: CaptureOptions) -> DumpControl:
    """Return the control of msit llm dump: the first round, names match beginnings of types. Raises ConfigError."""
    _check_conflicts(options)
    msit, torchair = options.msit, options.torchair
    return DumpControl(
        mode=_mode(options),
        steps=read_steps(torchair.step) if torchair.step else read_ranges(msit.ranges or DEFAULT_RANGE),
        operators=OperatorFilter(
            names=tuple((torchair.layer or "").split()),
            prefixes=read_names(msit.names) if msit.names else (),
            patterns=_patterns(options.regex),
            ids=read_ids(",".join(msit.ids or ())),
            children=read_truth(msit.child or "true", "-child"),
            inside=options.inside,
            module=options.module,
        ),
        when=_among(TIMES, msit.time, "3", "-time"),
        content=_content(options),
        timing="cpu_profiling" in types_of(options),
        devices=read_devices(msit.device or "", "-device"),
        ranks=read_devices(options.ranks or "", "--rank"),
        seed=msit.seed,
        storage=Storage(
            links=options.links or ("symlink" if msit.symlink else "none"),
            max_bytes=options.max_size or 0,
            layout="files",
        ),
        with_source=options.with_source,
    )


def exec_dump(options: CaptureOptions) -> DumpControl:
    """Return the control of ``sgsdump exec``: as llm_dump, with two files per round unless tree or links is set."""
    is_tree = options.tree or options.msit.symlink or options.links is not None
    control = llm_dump(options)
    return control if is_tree else with_fields(control, layout="rounds")


def debug_dump(options: CaptureOptions) -> DumpControl:
    """Return the control of msit debug dump: every run, exact names; ``all`` or no names select every operator."""
    msit = options.msit
    names = read_names(msit.names) if msit.names else ()
    control = llm_dump(replace(options, msit=replace(msit, names=None, ranges=msit.ranges or "all")))
    return with_fields(control, names=() if names == ("all",) else names)


def with_config(control: DumpControl, options: CaptureOptions, path: Path) -> tuple[DumpControl, tuple[str, ...]]:
    """Return ``control`` merged with a configuration file, msit's or acl.json, and notes on settings without effect.

    msit's file replaces the options of the same names. Given options take precedence over acl.json, except for
    operators:
    those named by either are dumped. Raises ConfigError, also for the scenes overflow and watcher, which need a
    compiled graph.
    """
    msit, torchair = options.msit, options.torchair
    if is_msit_config(path):
        replaced = {
            "-ids": msit.ids,
            "-er": msit.ranges,
            "--dump-step": torchair.step,
            "-child": msit.child,
            "-device": msit.device,
        }
        idle = [name for name, value in replaced.items() if value]
        notes = [f"{path} overrides {', '.join(idle)}"] if idle else []
        return read_msit_config(path, control), tuple(notes)
    acl = acl_json.read(path)
    configured, idle_notes = acl_json.control_of(acl)
    if configured.scene:
        setting = "dump_scene watcher" if configured.scene == "watcher" else "dump_debug on"
        raise ConfigError(
            f"{path}: {setting} needs the graph of a compiled program; use the file with "
            "sgsdump.torchair, or remove this setting from the file"
        )
    chosen = {
        "mode": torchair.mode or msit.part,
        "steps": torchair.step or msit.ranges,
        "content": torchair.data or msit.types or msit.description,
    }
    from_file = ("mode", "steps", "content")
    merged = replace(
        control,
        enabled=configured.enabled,
        **{name: getattr(control if chosen[name] else configured, name) for name in from_file},
        operators=replace(control.operators, models=configured.operators.models),
    )
    wins = any(chosen.values()) or torchair.layer or msit.names
    notes = [f"options on the command line take precedence over {path}"] if wins else []
    return merged, (*idle_notes, *_only_for_graphs(acl), *notes)


def _only_for_graphs(acl: AclDump) -> Iterator[str]:
    """Yield a sentence for each setting that only ``sgsdump.torchair`` uses."""
    if any(entry.op_type_blacklist or entry.op_name_blacklist or entry.op_name_ranges for entry in acl.entries):
        yield "blacklists and opname_range have no effect here: they apply to compiled graphs (sgsdump.torchair)"
    if acl.statistics:
        yield "dump_stats has no effect here: the statistics are msit's max, min, mean and l2norm"


def folder_of(path: Path | None) -> Path | None:
    """Return the dump_path of acl.json, or None for a file without one. Raises ConfigError."""
    if path is None or is_msit_config(path):
        return None
    folder = acl_json.read(path).path
    if folder and not Path(folder).is_dir():
        raise ConfigError(f"{path}: dump_path {quoted(folder)} is on another machine; give a local folder with -o")
    return Path(folder) if folder else None


def is_msit_config(path: Path) -> bool:
    """Return whether a configuration is msit's own, not acl.json. Raises ConfigError, FormatError if unreadable."""
    text = decode(read_bytes(path, _MOST_BYTES), path)
    try:
        document = json_of(text, path)
    except FormatError:
        return False  # the reader of acl.json reports the error with the vendor's code
    return isinstance(document, dict) and "dump" not in document and bool(set(document) & set(MSIT_KEYS))


def read_msit_config(path: Path, control: DumpControl) -> DumpControl:
    """Return ``control`` with steps, ids, children and devices of msit's file. Raises ConfigError, FormatError."""
    document = json_of(decode(read_bytes(path, _MOST_MSIT_BYTES), path), path, "msit's dump configuration")
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: msit's dump configuration must be a JSON object, {{ }}")
    for name, value in document.items():
        if name not in MSIT_KEYS:
            raise ConfigError(f"{path}: unknown key {quoted(name)}; the keys are {', '.join(MSIT_KEYS)}")
        if not isinstance(value, str):
            raise ConfigError(f"{path}: {name} is {quoted(str(value))}; write all values as text, in quotes")
    try:
        return with_fields(
            control,
            enabled=document.get("dump_enable") == "true",
            steps=read_ranges(document.get("er") or DEFAULT_RANGE),
            ids=read_ids(document.get("ids", "")),
            children=read_truth(document.get("child") or "true", "child"),
            devices=read_devices(document.get("device", "")),
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def idle_options(options: CaptureOptions) -> tuple[str, ...]:
    """Return a sentence for each accepted option that has no effect without the vendor's card."""
    notes = []
    if options.msit.tiling:
        notes.append("-tiling has no effect: only kernels of the card have tiling data")
    if "kernel" in types_of(options):
        notes.append("--type kernel has no effect: without the card, operators run no kernels")
    return tuple(notes)


def _check_conflicts(options: CaptureOptions) -> None:
    types, msit, torchair = types_of(options), options.msit, options.torchair
    conflicts = [
        (torchair.mode and msit.part, "--dump-mode and -stp both choose inputs or outputs", _GIVE_ONE),
        (torchair.step and msit.ranges, "--dump-step and -er both choose steps", _GIVE_ONE),
        (
            msit.symlink and options.links not in (None, "symlink"),
            f"-symlink and --links {options.links} contradict each other",
            _LEAVE_OUT,
        ),
        (msit.description and "stats" in types, "-sd and --type stats both choose the content of tensors", _GIVE_ONE),
        (msit.description and torchair.data, "-sd and --dump-data both choose the content of tensors", _GIVE_ONE),
        (
            torchair.data == "tensor" and "stats" in types,
            "--dump-data tensor and --type stats both choose the content of tensors",
            _GIVE_ONE,
        ),
        (msit.description and "tensor" not in types, "-sd needs --type tensor", _LEAVE_OUT),
        (torchair.data and "tensor" not in types, "--dump-data needs --type tensor", _LEAVE_OUT),
    ]
    for is_given, conflict, advice in conflicts:
        if is_given:
            raise ConfigError(f"{conflict}; {advice}")
    if _mode(options) == "output" and _among(TIMES, msit.time, "3", "-time") == "before":
        raise ConfigError(
            "-time 0 selects nothing if only outputs are dumped: outputs do not exist before the operator runs"
        )


def _mode(options: CaptureOptions) -> Mode:
    return options.torchair.mode or _among(PARTS, options.msit.part, "2", "-stp")


def _content(options: CaptureOptions) -> Content:
    types = types_of(options)
    if "tensor" not in types:
        return "structure"
    if options.msit.description:
        return "description"
    return "stats" if "stats" in types or options.torchair.data == "stats" else "tensor"


def _among(words: Sequence[Word], text: str | None, default: str, option: str) -> Word:
    number = default if text is None else text
    if number not in map(str, range(len(words))):
        raise ConfigError(f"{option} is {quoted(number)}; use a number from 0 to {len(words) - 1}")
    return words[int(number)]


def _patterns(texts: Sequence[str]) -> tuple[str, ...]:
    for text in texts:
        try:
            re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:  # noqa: PERF203 - the first that fails ends it
            raise ConfigError(f"--operation-regex {quoted(text)} is not a regular expression: {error}") from None
    return tuple(texts)
