"""Run a program unchanged and dump what its torch or onnxruntime computes, as msit llm dump does.

Everything behind -- is the program as it is started; no shell is between. What it prints, returns and computes stays
the same. The dump is a folder msit_dump_{time} in -o, which every other command opens. Without options the first step
(round) is dumped: inputs before, outputs after each operator.

examples:
  sgsdump exec -o dumps -- python infer.py --prompt hello
  sgsdump exec --type model tensor stats -er 0,3 -- bash run.sh
  sgsdump exec --exec "python infer.py" --type model tensor -ids 3_1
  sgsdump exec --check-config acl.json

Where PYTHONPATH does not reach the program (python -I, env -i), or it uses neither library, nothing can be dumped: that
is reported, and the exit status is 2 where the program's own is 0; so it is where an operator asked for never ran.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.exec import options
from sgsdump.commands.exec.messages import Say, chosen, more_ran, never_reached, ran, steps_in_words
from sgsdump.commands.exec.options import add_arguments, add_msit_options, add_program

if TYPE_CHECKING:
    from sgsdump.capture.control import DumpControl
    from sgsdump.capture.front_door import Asked
    from sgsdump.capture.program import Captured
    from sgsdump.capture.replay.replay import Replayed

NOT_AS_ASKED = 2

__all__ = ["add_arguments", "add_msit_options", "add_program", "check", "dump", "run"]


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
    asked = options.asked(args)
    say = Say(args.log_level)
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
        if live is not None:
            live()
        in_force = (live and live.latest) or first
        replayed = replay(root, captured.processes, in_force, advance=advance)
    write_beside(root, captured.processes, front_door.types_of(asked), argv)
    return _report(captured, replayed, root, first, say, live is not None)


def _report(captured: Captured, replayed: Replayed, root: Path, control: DumpControl, say: Say, live: bool) -> int:
    from sgsdump.capture.known_names import known_of, unmatched

    for note in (*captured.notes, *replayed.notes):
        say("warning", note)
    for note in replayed.differences:
        say("info" if replayed.agrees else "warning", note)
    lacking = list(unmatched(control, known_of(replayed.processes)))
    for note in lacking:
        say("error", note)
    if not captured.caught:
        say("error", f"nothing was dumped{chosen(control)}{ran(captured)}")
        shutil.rmtree(root, ignore_errors=True)
        return captured.status or NOT_AS_ASKED
    for note in () if live else never_reached(control, captured):
        say("warning", note)
    for note in () if live else more_ran(captured):
        say("info", note)
    steps = sorted({step for process in captured.processes for step in process.steps} | replayed.steps)
    tensors = sum(process.tensors for process in captured.processes) + replayed.tensors
    processes = len([process for process in captured.processes if process.caught])
    of = f"{processes} process{'' if processes == 1 else 'es'}"
    state = "" if captured.complete and replayed.complete else "; it is not complete"
    say("info", f"{root}: {tensors} tensors of {of}, {steps_in_words(steps)}{state}")
    return captured.status or (NOT_AS_ASKED if lacking else 0)
