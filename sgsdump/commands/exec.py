"""Exec: run a program unchanged and dump what its torch or onnxruntime computes, as msit llm dump does.

Everything behind -- is the program as it is started; no shell is between. What it prints, returns and computes stays
the same. The dump is a folder msit_dump_{time} in -o, which every other command opens. Without options the first step
(round) is dumped: inputs before, outputs after each operator.

examples:
  sgsdump exec -o dumps -- python infer.py --prompt hello
  sgsdump exec --type model tensor stats -er 0,3 -- bash run.sh
  sgsdump exec --exec "python infer.py" --type model tensor -ids 3_1
  sgsdump exec --check-config acl.json

Where PYTHONPATH does not reach the program (python -I, env -i), or it uses neither library, nothing can be dumped: that
is said, and the exit status is 2 where the program's own is 0; so it is where an operator that was asked for never ran.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.option_values import size_in_bytes

if TYPE_CHECKING:
    from sgsdump.capture.control import DumpControl
    from sgsdump.capture.front_door import Asked
    from sgsdump.capture.program import Captured
    from sgsdump.capture.replay.replay import Replayed

TYPES = "model, layer, op, kernel, tensor, stats, cpu_profiling, onnx"
LEVELS = ("debug", "info", "warning", "error", "fatal", "critical")
DEFAULT_SEED = 2024
NOT_AS_ASKED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser)
    add_msit_options(parser)
    parser.add_argument("--dump-mode", choices=["input", "output", "all"], help="TorchAir's word for -stp")
    parser.add_argument("--dump-step", metavar="STEPS", help="TorchAir's word for -er: 0|3-5|10")
    parser.add_argument(
        "--dump-layer", metavar="'A B'", help="exact operator names, spaces between, as TorchAir has it"
    )
    parser.add_argument("--dump-data", choices=["tensor", "stats"], help="TorchAir's word for --type tensor [stats]")
    parser.add_argument(
        "--operation-regex",
        action="append",
        default=[],
        metavar="RE",
        help="operators whose name it matches; repeat it",
    )
    parser.add_argument("--rank", metavar="N,N", help="only these ranks of a distributed program")
    parser.add_argument(
        "--links",
        choices=["none", "symlink", "hardlink", "index"],
        help="what stands for a payload equal to an earlier one (none; index: the earlier file's path in index.jsonl)",
    )
    parser.add_argument("--max-size", type=size_in_bytes, metavar="SIZE", help="dump at most this much: 500M, 20G")
    parser.add_argument(
        "--check-config",
        type=Path,
        metavar="JSON",
        help="run nothing: say whether the vendor takes this file, and why not",
    )


def add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", nargs="*", metavar="-- PROGRAM ARGS", help="the program as it is started")
    parser.add_argument("--exec", dest="command_line", metavar="CMD", help="the same in one text, without redirection")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="where msit_dump_{time} goes (acl.json's dump_path, or here)"
    )
    parser.add_argument(
        "-opname",
        "--operation-name",
        action="append",
        metavar="A,B",
        help="operators whose type begins so, in any case (msit debug dump: exact names)",
    )


def add_msit_options(parser: argparse.ArgumentParser) -> None:
    """The options of msit llm dump, with its defaults."""
    parser.add_argument("--type", nargs="+", metavar="TYPE", help=f"of {TYPES} (tensor model)")
    parser.add_argument("-sd", "--only-save-desc", action="store_true", help="types and shapes without values")
    parser.add_argument(
        "-ids", "--save-operation-ids", nargs="+", metavar="ID", help="operators by number: 2,3_1 (all)"
    )
    parser.add_argument(
        "-er", "--execute-range", metavar="A,B", help="steps in pairs of first and last: 3,5,7,7; all (0,0)"
    )
    parser.add_argument(
        "-child", "--save-operation-child", metavar="BOOL", help="False: only the outermost ones (True)"
    )
    parser.add_argument(
        "-time", "--save-time", metavar="N", help="0 before, 1 after, 2 both, 3 inputs before and outputs after (3)"
    )
    parser.add_argument("-tiling", "--save-tiling", action="store_true", help="taken, without effect off the card")
    parser.add_argument("-stp", "--save-tensor-part", metavar="N", help="0 inputs, 1 outputs, 2 both (2)")
    parser.add_argument("-device", "--device-id", metavar="N", help="only this device (all)")
    parser.add_argument("-symlink", "--enable-symlink", action="store_true", help="links in the place of equal data")
    parser.add_argument(
        "-config",
        "--config-path",
        type=Path,
        metavar="JSON",
        help="msit's configuration or acl.json; read again when it changes while the program runs",
    )
    parser.add_argument(
        "-l", "--log-level", choices=LEVELS, default="info", help="of what this program says on standard error"
    )
    parser.add_argument(
        "-seed",
        type=int,
        nargs="?",
        const=DEFAULT_SEED,
        metavar="N",
        help=f"seed and deterministic algorithms (without a number {DEFAULT_SEED})",
    )


def run(args: argparse.Namespace) -> int:
    from sgsdump.capture.front_door import llm_dump

    return check(args.check_config) if args.check_config else dump(args, llm_dump)


def check(path: Path) -> int:
    """Say what the vendor's own check says of a configuration. Raises Refused, ConfigError."""
    from sgsdump.capture.configs import acl_json, acl_use, msit_json
    from sgsdump.capture.control import DumpControl
    from sgsdump.capture.front_door import is_msit

    if is_msit(path):
        enabled = msit_json.read(path, DumpControl()).enabled
        print(
            f"{path}: valid for msit llm dump; "
            + ("it dumps" if enabled else 'nothing is dumped: dump_enable is not "true"')
        )
        return 0
    acl = acl_json.read(path)
    print(f"{path}: valid; " + (f"it dumps {acl.dump_type}" if acl.need_dump else "nothing is dumped"))
    for note in acl_use.control_of(acl)[1]:
        print(note)
    return 0


def dump(args: argparse.Namespace, door: Callable[[Asked], DumpControl]) -> int:
    """Run the program and dump it; ``door`` turns what was asked for into a control.

    Raises ConfigError, OutputError before the program is started.
    """
    from sgsdump.capture import front_door
    from sgsdump.capture.configs.live import LiveConfig
    from sgsdump.capture.known_names import check_names, told_types
    from sgsdump.capture.program import check_command, check_disk, run_program, split_command
    from sgsdump.capture.replay.replay import replay
    from sgsdump.capture.trees.msit_tree import new_tree, write_beside
    from sgsdump.commands.terminal import Terminal
    from sgsdump.errors import ConfigError, SgsdumpError

    if args.command_line is not None and args.program:
        raise ConfigError("the program is given twice, by --exec and behind --; give it once")
    argv: Sequence[str] = args.program if args.command_line is None else split_command(args.command_line)
    check_command(argv)
    asked = _asked(args)
    say = _Say(args.log_level)
    config: Path | None = args.config_path

    def control() -> DumpControl:
        control = door(asked)
        return control if config is None else front_door.with_config(control, asked, config)[0]

    for note in front_door.idle_options(asked):
        say("warning", note)
    for note in front_door.with_config(door(asked), asked, config)[1] if config else ():
        say("warning", note)
    first = control()
    output = args.output or front_door.folder_of(config) or Path()
    check_names(first, output, argv)
    for note in told_types(first.prefixes, argv[0]):
        say("warning", note)
    live = None if config is None else LiveConfig(config, control, lambda text: say("warning", text))
    root = new_tree(output)
    try:
        check_disk(root, first)
        captured = run_program(argv, first, root, live=live)
    except SgsdumpError:
        shutil.rmtree(root, ignore_errors=True)
        raise
    with Terminal(lines="stderr").bar("replay", "run") as advance:
        replayed = replay(root, captured.processes, control(), advance=advance)
    write_beside(root, captured.processes, front_door.types_of(asked), argv)
    return _report(captured, replayed, root, first, say)


def _report(captured: Captured, replayed: Replayed, root: Path, control: DumpControl, say: _Say) -> int:
    from sgsdump.capture.known_names import known_of, unmatched

    for note in (*captured.notes, *replayed.notes):
        say("warning", note)
    for note in replayed.differences:
        say("info" if replayed.agrees else "warning", note)
    lacking = list(unmatched(control, known_of(replayed.processes)))
    for note in lacking:
        say("error", note)
    if not captured.caught:
        say("error", f"nothing was dumped{_chosen(control)}")
        shutil.rmtree(root, ignore_errors=True)
        return captured.status or NOT_AS_ASKED
    steps = sorted({step for process in captured.processes for step in process.steps} | replayed.steps)
    tensors = sum(process.tensors for process in captured.processes) + replayed.tensors
    processes = len([process for process in captured.processes if process.caught])
    state = "" if captured.complete and replayed.complete else "; it is not complete"
    say(
        "info",
        f"{root}: {tensors} tensors of {processes} process{'' if processes == 1 else 'es'}, {_steps(steps)}{state}",
    )
    return captured.status or (NOT_AS_ASKED if lacking else 0)


def _chosen(control: DumpControl) -> str:
    """What may be why: the steps and operators that were chosen, and when nothing was to be dumped at all."""
    if not control.enabled:
        return ": the configuration switches the dump off"
    steps = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in control.steps.ranges)
    words = [f"steps {steps} (counted from 0; -er)"] if steps and steps != "0" else []
    words += [f"operators {', '.join(control.ids)} (-ids)"] if control.ids else []
    words += [f"devices {', '.join(map(str, control.devices))} (-device)"] if control.devices else []
    words += [f"ranks {', '.join(map(str, control.ranks))} (--rank)"] if control.ranks else []
    return f"; chosen were {', '.join(words)}" if words else ""


def _steps(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]}"
    return f"{len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "no step"


class _Say:
    """Messages on standard error, where standard output is the program's; those below the level are left out."""

    def __init__(self, level: str) -> None:
        self._least = LEVELS.index(level)

    def __call__(self, level: str, text: str) -> None:
        from sgsdump.files.terminal_text import for_terminal

        if LEVELS.index(level) >= self._least:
            sys.stdout.flush()
            prefix = "" if level == "info" else f"{level}: "
            print(for_terminal(f"sgsdump: {prefix}{text}"), file=sys.stderr)


def _asked(args: argparse.Namespace) -> Asked:
    from sgsdump.capture.front_door import Asked

    own = vars(args)
    return Asked(
        types=own.get("type"),
        description=own.get("only_save_desc", False),
        ids=own.get("save_operation_ids"),
        ranges=own.get("execute_range"),
        child=own.get("save_operation_child"),
        time=own.get("save_time"),
        names=own.get("operation_name"),
        tiling=own.get("save_tiling", False),
        part=own.get("save_tensor_part"),
        device=own.get("device_id"),
        symlink=own.get("enable_symlink", False),
        seed=own.get("seed"),
        dump_mode=own.get("dump_mode"),
        dump_step=own.get("dump_step"),
        dump_layer=own.get("dump_layer"),
        dump_data=own.get("dump_data"),
        regex=own.get("operation_regex") or (),
        ranks=own.get("rank"),
        links=own.get("links"),
        max_size=own.get("max_size"),
    )
