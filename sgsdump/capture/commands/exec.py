"""Run a program unchanged and dump the tensors that torch or onnxruntime computes in the program.

examples:
  sgsdump exec -o dumps -- python infer.py --prompt hello
  sgsdump exec --type model tensor stats -er 0,3 -- bash run.sh
  sgsdump exec --exec "python infer.py" --type model tensor -ids 3_1
  sgsdump exec --max-size 20G -er all -- python infer.py
  sgsdump exec --check-config acl.json

the program:
  Everything after -- is the command line of the program; exec runs the program
  without a shell. Its output, exit status and results do not change.

the dump:
  A folder msit_dump_{time} in the folder of -o; every other command can open
  this dump. By default, the first step (round) is dumped: inputs before,
  outputs after each operator. The option names and their default values are the
  same as in msit llm dump.

exit status:
  The status of the program. 2 if nothing could be dumped, or a requested
  operator never ran, and the status of the program is 0. Nothing can be dumped
  if PYTHONPATH does not reach the program (python -I, env -i), or if the
  program uses neither library.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sgsdump.commands.options import add_output, size_in_bytes
from sgsdump.files.escaping import for_terminal

if TYPE_CHECKING:
    from sgsdump.capture.programs.control import DumpControl
    from sgsdump.capture.programs.options import CaptureOptions
    from sgsdump.capture.programs.program import Captured
    from sgsdump.capture.programs.replay import Replayed

RARE = (
    *("--dump-mode", "--dump-step", "--dump-layer", "--dump-data"),
    *("-child", "-time", "-tiling", "-device", "-symlink", "-l", "-seed", "--rank", "--feed", "--tree", "--links"),
)
NOT_AS_ASKED = 2
LEVELS = ("debug", "info", "warning", "error", "fatal", "critical")
TYPES = "model, layer, op, kernel, tensor, stats, cpu_profiling, onnx"
DEFAULT_SEED = 2024
# argparse's name of each option -> field of the option record.
MSIT = {
    "type": "types",
    "only_save_desc": "description",
    "save_operation_ids": "ids",
    "execute_range": "ranges",
    "save_operation_child": "child",
    "save_time": "time",
    "operation_name": "names",
    "save_tiling": "tiling",
    "save_tensor_part": "part",
    "device_id": "device",
    "enable_symlink": "symlink",
    "seed": "seed",
}
TORCHAIR = {"dump_mode": "mode", "dump_step": "step", "dump_layer": "layer", "dump_data": "data"}
FURTHER = {
    **{"operation_regex": "regex", "rank": "ranks", "links": "links", "max_size": "max_size"},
    **{"inside": "inside", "tree": "tree", "module": "module", "with_source": "with_source"},
}


@dataclass(frozen=True)
class ExecOptions:
    """Options of ``sgsdump exec``.

    program       the command line as words.
    command_line  the command line as one string; None if not given.
    output        output folder; None for acl.json's dump_path or the current folder.
    config_path   the vendor's configuration file.
    feed          tree whose recorded inputs replace the program's inputs; None to keep the program's own.
    """

    program: Sequence[str]
    command_line: str | None
    output: Path | None
    config_path: Path | None
    log_level: str
    capture: CaptureOptions
    feed: Path | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [options] -- PROGRAM ARGS"
    program = parser.add_argument_group("program and output")
    add_program(program)
    program.add_argument(
        "--check-config",
        type=Path,
        metavar="JSON",
        help="report whether the vendor's tools accept this configuration; do not run the program",
    )
    add_msit_options(parser.add_argument_group("selection of tensors, with the options of msit llm dump"))
    _add_torchair_options(parser.add_argument_group("selection, as in TorchAir"))
    _add_own_options(parser.add_argument_group("more selection and storage"))


def _add_torchair_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--dump-mode",
        choices=["input", "output", "all"],
        help="tensors to dump; input: same as -stp 0, output: same as -stp 1, all: same as -stp 2",
    )
    parser.add_argument(
        "--dump-step",
        metavar="STEPS",
        help="steps to dump, in TorchAir's syntax, such as 0|3-5|10; -er selects steps in msit's syntax",
    )
    parser.add_argument(
        "--dump-layer", metavar="'A B'", help="exact names of the operators to dump, separated by spaces"
    )
    parser.add_argument(
        "--dump-data",
        choices=["tensor", "stats"],
        help="tensor: same as --type tensor; stats: same as --type tensor stats",
    )


def _add_own_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--operation-regex",
        action="append",
        default=[],
        metavar="RE",
        help="only operators whose name matches this regular expression; may be repeated",
    )
    parser.add_argument("--rank", metavar="N,N", help="only these ranks of a distributed program (default: all)")
    parser.add_argument(
        "--module",
        metavar="NAME",
        default="",
        help="only the module with this path, such as layers.1, or only the models of this class, such as Decoder",
    )
    parser.add_argument(
        "--inside",
        choices=["graph", "eager"],
        default="graph",
        help=(
            'for torch.compile: "graph" dumps the inputs and outputs of each compiled graph, and also '
            'runs the same graph eagerly and dumps this run; "eager" runs and dumps the program '
            'without compilation (default: "graph")'
        ),
    )
    parser.add_argument(
        "--feed",
        type=Path,
        metavar="TREE",
        help=(
            "in each step, replace the program's inputs by the inputs recorded in this dump (teacher "
            "forcing); with --module, replace only the inputs of the named module"
        ),
    )
    parser.add_argument(
        "--max-size",
        type=size_in_bytes,
        metavar="SIZE",
        help=(
            "maximum size of the dump, such as 500M or 20G; on Windows, the maximum applies to each "
            "process separately (default: no limit)"
        ),
    )
    parser.add_argument(
        "--tree",
        action="store_true",
        help=(
            "write a file per tensor, as msit does (default: two files per round; a round is one execution of the "
            "model)"
        ),
    )
    parser.add_argument(
        "--with-source",
        action="store_true",
        help="keep five lines of the program's code for each operator, to show them on the report page",
    )
    parser.add_argument(
        "--links",
        choices=["none", "symlink", "hardlink", "index"],
        help=(
            "write one file per tensor; store duplicate tensors as files too (none), as links (symlink, hardlink), "
            "or only as lines of index.jsonl (index)"
        ),
    )


def add_program(parser: argparse._ActionsContainer) -> None:
    """Add the program, the output folder and ``-opname``, which both commands of msit have."""
    parser.add_argument("program", nargs="*", metavar="-- PROGRAM ARGS", help="command line of the program")
    parser.add_argument(
        "--exec",
        dest="command_line",
        metavar="CMD",
        help="command line of the program as one string; shell syntax such as redirection is refused",
    )
    add_output(
        parser,
        "folder in which the folder msit_dump_{time} is created (default: dump_path of acl.json, else "
        "the current folder)",
        "DIR",
    )
    parser.add_argument(
        "-opname",
        "--operation-name",
        action="append",
        metavar="A,B",
        help=(
            "dump only operators whose type begins with one of these names, ignoring case (the command "
            "msit debug dump compares exact operator names instead)"
        ),
    )


def add_msit_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of msit llm dump, with msit's defaults."""
    parser.add_argument(
        "--type", nargs="+", metavar="TYPE", help=f"what to dump: any of {TYPES} (default: tensor model)"
    )
    parser.add_argument("-sd", "--only-save-desc", action="store_true", help="dump types and shapes without values")
    parser.add_argument(
        "-ids",
        "--save-operation-ids",
        nargs="+",
        metavar="ID",
        help="only operators with these ids, such as 2,3_1 (default: all)",
    )
    parser.add_argument(
        "-er",
        "--execute-range",
        metavar="A,B",
        help=(
            "steps to dump, as pairs of first and last step, such as 3,5,7,7 for steps 3 to 5 and step "
            "7, or the word all for every step (default: 0,0)"
        ),
    )
    parser.add_argument(
        "-child",
        "--save-operation-child",
        metavar="BOOL",
        help="False dumps only the outermost operators (default: True)",
    )
    parser.add_argument(
        "-time",
        "--save-time",
        metavar="N",
        help="when to dump; 0: before the operator, 1: after, 2: both, 3: inputs before and outputs after (default: 3)",
    )
    parser.add_argument("-tiling", "--save-tiling", action="store_true", help="accepted for compatibility; no effect")
    parser.add_argument(
        "-stp", "--save-tensor-part", metavar="N", help="tensors to dump; 0: inputs, 1: outputs, 2: both (default: 2)"
    )
    parser.add_argument("-device", "--device-id", metavar="N", help="dump only this device (default: all)")
    parser.add_argument(
        "-symlink", "--enable-symlink", action="store_true", help="store duplicate tensors as symbolic links"
    )
    parser.add_argument(
        "-config",
        "--config-path",
        type=Path,
        metavar="JSON",
        help="msit configuration or acl.json; reread when the file changes",
    )
    parser.add_argument(
        "-l",
        "--log-level",
        choices=LEVELS,
        default="info",
        metavar="LEVEL",
        help=f"lowest level of messages: {', '.join(LEVELS)} (default: %(default)s)",
    )
    parser.add_argument(
        "-seed",
        type=int,
        nargs="?",
        const=DEFAULT_SEED,
        metavar="N",
        help=f"set the random seed to N and use deterministic algorithms (default of N: {DEFAULT_SEED})",
    )


def exec_options(args: argparse.Namespace) -> ExecOptions:
    """Return the options; an option that the command lacks counts as not given."""
    from sgsdump.capture.programs.options import CaptureOptions, MsitOptions, TorchAirOptions

    def values_of(fields: dict[str, str]) -> dict[str, object]:
        return {field: value for name, value in vars(args).items() if (field := fields.get(name))}

    msit, torchair = MsitOptions(**values_of(MSIT)), TorchAirOptions(**values_of(TORCHAIR))  # type: ignore[arg-type]
    capture = CaptureOptions(msit, torchair, **values_of(FURTHER))  # type: ignore[arg-type]
    feed = getattr(args, "feed", None)
    return ExecOptions(args.program, args.command_line, args.output, args.config_path, args.log_level, capture, feed)


def run(args: argparse.Namespace) -> int:
    from sgsdump.capture.programs.options import exec_dump

    return check(args.check_config) if args.check_config else dump(exec_options(args), exec_dump)


def check(path: Path) -> int:
    """Print the verdict of the vendor's own check of a configuration file. Raises Refused, ConfigError."""
    from sgsdump.capture.programs import acl_json
    from sgsdump.capture.programs.control import DumpControl
    from sgsdump.capture.programs.options import is_msit_config, read_msit_config

    if is_msit_config(path):
        enabled = read_msit_config(path, DumpControl()).enabled
        effect = "dumps are enabled" if enabled else 'nothing is dumped: dump_enable is not "true"'
        print(f"{path}: valid for msit llm dump; {effect}")
        return 0
    acl = acl_json.read(path)
    print(f"{path}: valid; " + (f"dump type {acl.dump_type}" if acl.need_dump else "nothing is dumped"))
    for note in acl_json.control_of(acl)[1]:
        print(note)
    return 0


def dump(options: ExecOptions, control_of: Callable[[CaptureOptions], DumpControl]) -> int:
    """Run the program and dump it; ``control_of`` interprets the options as the vendor's command does.

    Raises ConfigError or OutputError before the program starts. If the disk is too full, the program runs undumped.
    """
    from sgsdump.capture.programs.feed import feed_of
    from sgsdump.capture.programs.msit_tree import new_tree, write_beside
    from sgsdump.capture.programs.operator_names import check_names, told_types
    from sgsdump.capture.programs.options import folder_of, idle_options, types_of, with_config
    from sgsdump.capture.programs.program import LiveConfig, disk_full, run_program, run_undumped
    from sgsdump.capture.programs.replay import replay
    from sgsdump.commands.terminal import Terminal
    from sgsdump.errors import SgsdumpError

    argv = _command(options)
    say, config, capture = Say(options.log_level), options.config_path, options.capture

    def control() -> DumpControl:
        control = control_of(capture)
        return control if config is None else with_config(control, capture, config)[0]

    for note in idle_options(capture):
        say("warning", note)
    for note in with_config(control_of(capture), capture, config)[1] if config else ():
        say("warning", note)
    first = control()
    output = options.output or folder_of(config) or Path()
    check_names(first, output, argv)
    for note in told_types(first.operators.prefixes, argv[0]):
        say("warning", note)
    live = None if config is None else LiveConfig(config, control, lambda text: say("warning", text))
    feed = None if options.feed is None else feed_of(options.feed, capture.module)
    root = new_tree(output)
    full = disk_full(root, first)
    if full:
        say("error", full)
        shutil.rmtree(root, ignore_errors=True)
        return run_undumped(argv) or NOT_AS_ASKED
    try:
        captured = run_program(argv, first, root, live=live, feed=feed)
    except SgsdumpError:
        shutil.rmtree(root, ignore_errors=True)
        raise
    with Terminal(lines="stderr").bar("replay", "run") as advance:
        if live is not None:
            live()
        in_force = (live and live.latest) or first
        replayed = replay(root, captured.processes, in_force, advance=advance)
    write_beside(root, captured.processes, types_of(capture), argv)
    status = _report(captured, replayed, root, first, say, live is not None)
    unfed = [] if feed is None else list(feed.unfed(captured.processes, first))
    for note in unfed:
        say("error", note)
    return status or (NOT_AS_ASKED if unfed else 0)


def _command(options: ExecOptions) -> Sequence[str]:
    from sgsdump.capture.programs.program import check_command, split_command
    from sgsdump.errors import ConfigError

    if options.command_line is not None and options.program:
        raise ConfigError("the program is given twice, by --exec and after --. Give it once.")
    argv = options.program if options.command_line is None else split_command(options.command_line)
    check_command(argv)
    return argv


def _report(captured: Captured, replayed: Replayed, root: Path, control: DumpControl, say: Say, live: bool) -> int:
    from sgsdump.capture.programs.compiled_graphs import graph_notes
    from sgsdump.capture.programs.operator_names import names_in, unmatched

    for note in (*captured.notes, *replayed.notes):
        say("warning", note)
    for is_wrong, note in graph_notes(captured.processes):
        say("warning" if is_wrong else "info", note)
    for note in replayed.differences:
        say("info" if replayed.agrees else "warning", note)
    lacking = list(unmatched(control, names_in(replayed.processes)))
    for note in lacking:
        say("error", note)
    if not captured.caught:
        say("error", f"nothing was dumped{_chosen(control)}{_ran(captured)}")
        shutil.rmtree(root, ignore_errors=True)
        return captured.status or NOT_AS_ASKED
    for note in () if live else _never_reached(control, captured):
        say("warning", note)
    for note in () if live else _more_ran(captured):
        say("info", note)
    steps = sorted({step for process in captured.processes for step in process.steps} | replayed.steps)
    tensors = sum(process.counts.tensors for process in captured.processes) + replayed.tensors
    processes = len([process for process in captured.processes if process.caught])
    of = f"{processes} process{'' if processes == 1 else 'es'}"
    state = "" if captured.complete and replayed.complete else "; the dump is incomplete"
    say("info", f"{root}: {tensors} tensors of {of}, {_steps_in_words(steps)}{state}")
    return captured.status or (NOT_AS_ASKED if lacking else 0)


class Say:
    """Printer of messages of at least a given level, to standard error: standard output belongs to the program."""

    def __init__(self, level: str) -> None:
        self._least = LEVELS.index(level)

    def __call__(self, level: str, text: str) -> None:
        if LEVELS.index(level) >= self._least:
            sys.stdout.flush()
            prefix = "" if level == "info" else f"{level}: "
            print(for_terminal(f"sgsdump: {prefix}{text}"), file=sys.stderr)


def _chosen(control: DumpControl) -> str:
    """Return the likely reason for an empty dump: the chosen steps and operators, or a disabled configuration."""
    if not control.enabled:
        return ": the configuration disables the dump"
    steps = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in control.steps.ranges)
    words = [f"steps {steps} (counted from 0; -er)"] if steps and steps != "0" else []
    words += [f"operators {', '.join(control.operators.ids)} (-ids)"] if control.operators.ids else []
    words += [f"devices {', '.join(map(str, control.devices))} (-device)"] if control.devices else []
    words += [f"ranks {', '.join(map(str, control.ranks))} (--rank)"] if control.ranks else []
    return f"; the selection was {', '.join(words)}" if words else ""


def _ran(captured: Captured) -> str:
    """Return how many steps the program ran."""
    return f"; the program ran {_steps_in_words(range(captured.steps))}" if captured.steps else ""


def _never_reached(control: DumpControl, captured: Captured) -> Iterator[str]:
    """Yield a sentence for each requested range of steps after the last step that ran."""
    for first, last in control.steps.ranges if captured.steps is not None else ():
        if first >= (captured.steps or 0):
            which = f"step {first}" if first == last else f"steps {first} to {last}"
            yield f"{which} never ran (-er){_ran(captured)}"


def _more_ran(captured: Captured) -> Iterator[str]:
    """Yield a note if more steps ran than were dumped."""
    more = [process for process in captured.processes if process.steps and (process.begun or 0) > len(process.steps)]
    if more:
        most = max(more, key=lambda process: process.begun or 0)
        dumped = f"{len(most.steps)} {'was' if len(most.steps) == 1 else 'were'} dumped"
        hint = "-er all dumps every step, -er A,B the steps from A to B"
        yield f"the program ran {most.begun} steps; {dumped}. {hint}"


def _steps_in_words(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]}"
    return f"{len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else "no step"
