"""What each mode of a command takes: every option of the parser is honoured or refused, none silently ignored."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_nets import residual_net

from sgsdump import save_dump
from sgsdump.cli import main
from sgsdump.commands import COMMANDS, convert, show
from sgsdump.commands.compare import options as compare_options
from sgsdump.commands.options import Modes, Reading
from sgsdump.commands.parser import build_parser
from sgsdump.errors import SgsdumpError
from sgsdump.fixedpoint.commands.tune import options as tune_options
from sgsdump.fixedpoint.verbs.judges import Judges
from sgsdump.models.model import Part
from sgsdump.models.network import Network
from sgsdump.pipeline import job

PARSERS = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
WITH_MODES = [name for name in COMMANDS if hasattr(COMMANDS[name], "MODES")]
# Not an option: a tool among the names of --metrics.
SET_BY_OTHERS = {"compatible"}
# What is typed for an option that takes a value; a path for every other.
VALUES = {
    "raw_dtype": "float32",
    "raw_shape": "*=1",
    **dict.fromkeys(["step", "rank", "level", "top", "worst", "depth", "rounds", "num_process"], "1"),
    **dict.fromkeys(
        ["min_cos", "max_rmse", "max_mse", "max_channel_rmse", "th1", "th2", "input_tag", "threshold"], "0.5"
    ),
    **{"metrics": "sqnr", "limit": "sqnr=20", "exclude": "none*", "name_rule": "q=a"},
    **{
        "sort": "worst",
        "fail_on": "cause",
        "format": "sdk",
        "scheduler": "tcp://127.0.0.1:1",
        "layout": "NHWC",
        "dtype": "float32",
        "cost": "macs",
        "bisect": "reference",
    },
    **{"original_shape": "q=1,2", "select": "*", "operations": "[0]", "name": "a", "part": "[0]", "op_type": "Conv"},
    **{"csv": "o.csv", "json": "o.json", "output": "o.npy", "metric": "metric.py:largest", "to": "npz"},
}


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Those of a parser and of the parsers below it, without those of every command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield action
            for inner in action.choices.values():
                yield from actions(inner)
        elif action.dest not in ("help", "help_all", "quiet", "verbose"):  # the command line itself does what these say
            yield action


def typed(action: argparse.Action) -> list[str]:
    """An option as a user types it, with a value."""
    value = VALUES.get(action.dest, "x.npz")
    if not action.option_strings:
        return [value]
    if action.nargs == 0:
        return [action.option_strings[-1]]
    return [action.option_strings[-1], *([value] * (action.nargs if isinstance(action.nargs, int) else 1))]


@pytest.mark.parametrize("command", WITH_MODES)
def test_the_table_has_every_option_of_the_parser(command):
    modes: Modes = COMMANDS[command].MODES
    assert set(modes.honoured) - SET_BY_OTHERS == {action.dest for action in actions(PARSERS[command])}
    every = {mode for honouring in modes.honoured.values() for mode in honouring}
    for action in actions(PARSERS[command]):
        refusing = every - set(modes.honoured[action.dest])
        refusing -= {mode for of_command, mode, option in CHOOSES if (of_command, option) == (command, action.dest)}
        # Otherwise it would not show whether it was given.
        assert not refusing or action.default in (None, False, [], ()), action.dest
        assert action.required or action.dest in modes.refusals or all(mode in modes.refusals for mode in refusing)


# exec starts a program; completion prints without reading a file.
@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("exec", "completion")])
def test_every_option_reaches_the_records(command, tmp_path, monkeypatch):
    """An option that ``run`` never reads is one that a command lacks."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(Modes, "given", lambda self, args: ())  # which looks at all of them
    read: set[str] = set()

    class Watched(argparse.Namespace):
        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

    parsers = [PARSERS[command]]
    for action in PARSERS[command]._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers = list(action.choices.values())
    for parser in parsers:
        options = [action for action in actions(parser) if not isinstance(action, argparse._SubParsersAction)]
        facts = {action.dest: action.default for action in options}
        facts |= {action.dest: Path("file/below") for action in options if action.required}
        facts |= dict.fromkeys(facts.keys() & {"output", "dump", "sample", "benchmark"}, Path("file/below"))
        facts |= {"kind": parser.prog.split()[-1], "names": ["x"], "dumps": [Path("file/below")]}
        facts |= {"name": "x"} if "name" in facts and command == "cfg" else {}
        args = Watched(**facts)
        read.clear()
        with pytest.raises((SgsdumpError, OSError)):
            COMMANDS[command].run(args)
        missing = {action.dest for action in options} - read
        assert "__dict__" not in read and not missing, missing


@pytest.fixture
def dumps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_dump({"a": np.float32([[1, 2, 3], [4, 5, 7]]), "b": np.float32([1, 2])}, "one.npz")
    save_dump({"a": np.float32([[1, 2, 3], [4, 5, 6]]), "b": np.float32([1, 2])}, "two.npz")
    np.float32([1, 2]).tofile("b.raw")
    for name in ("one.onnx", "two.onnx"):
        onnx.save(residual_net().proto, name)
    for number, name in enumerate(("one.txt", "two.txt"), 1):
        Path(name).write_text(f"Name:a, min: 0.0, max: {number}.0;\n")
    for folder, name in (("runs1", "one"), ("runs2", "two")):
        (tmp_path / folder).mkdir()
        for run in ("x", "y"):
            (tmp_path / folder / f"{run}.npz").write_bytes(Path(f"{name}.npz").read_bytes())
    for tree, add in (("tree1", 0), ("tree2", 1)):
        for step in (0, 2):
            save_dump({"0_Add/output.0": np.float32([1 + step, 2 + add])}, tmp_path / "part", "atb_tree")
            (tmp_path / "part/sgsdump.json").unlink()
            target = tmp_path / f"{tree}/tensors/0_4711/{step}"
            target.parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "part/0_0/0").rename(target)
            shutil.rmtree(tmp_path / "part")
    (tmp_path / "feeds.py").write_text(FEEDS)
    (tmp_path / "ranges.txt").write_text("Name:r1, min: 0.0, max: 1.0;\n")
    (tmp_path / "metric.py").write_text("def largest(a, b):\n    return float(abs(a - b).max())\n")
    return tmp_path


TUNED = "-m net.onnx --data-loader-script feeds.py --quant-level L1 -o tuned"
FEEDS = """
import numpy as np

def load_data():
    for seed in range(2):
        yield {"data": np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)}
"""
LEAST = {
    ("compare", compare_options.TWO): "one.npz two.npz",
    ("compare", compare_options.TREES): "tree1 tree2",
    ("compare", compare_options.RUNS): "runs1 runs2 --runs",
    ("compare", compare_options.WATCHER): "one.npz",
    ("compare", compare_options.RANGES): "one.txt two.txt",
    ("compare", compare_options.MODELS): "one.onnx two.onnx",
    ("show", "operators"): "one.npz --operators",
    ("show", "tensors"): "one.npz",
    ("show", "values"): "one.npz a",
    ("show", "worst values"): "one.npz a --against two.npz",
    ("convert", "a dump"): "one.npz out.npz",
    ("pipeline", "a dump"): "full -m net.onnx",
    ("pipeline", "--bisect"): "full -m net.onnx --bisect reference",
    ("tune", tune_options.EXPLAIN): "--explain -m net.onnx --ranges ranges.txt --data-loader-script feeds.py",
    ("tune", tune_options.FIRST): f"--first {TUNED}",
    ("tune", tune_options.SEARCH): f"{TUNED} --rates 0.7",
}


def refusals() -> Iterator[tuple[str, str, str]]:
    for command in WITH_MODES:
        modes = COMMANDS[command].MODES
        for option, honouring in modes.honoured.items():
            for of_command, mode in LEAST:
                if of_command == command and mode not in honouring:
                    yield command, mode, option


def test_every_mode_is_tried():
    """But a topology, a board's buffers, a fixed model's plan and an SDK model file: what a file must hold to be one is
    not of interest here (test_convert.py, test_board.py, test_calibrate_simulate.py, test_only_the_sim.py)."""
    every = {(c, m) for c in WITH_MODES for honouring in COMMANDS[c].MODES.honoured.values() for m in honouring}
    assert every - set(LEAST) == {
        ("convert", "a topology"),
        ("convert", "a model file"),
        ("show", "model file"),
        ("compare", compare_options.BOARD),
        ("show", "plan"),
    }


# What makes another mode of it: naming the option is choosing that mode.
CHOOSES = {
    *(("compare", mode, "runs") for mode in ("two dumps", "trees of runs")),
    *(("compare", mode, option) for mode in ("two calibrations", "two models") for option in ("further",)),
    *(("compare", "a watcher's dump", option) for option in ("benchmark", "further")),
    *(("show", mode, "operators") for mode in ("tensors", "values", "worst values")),
    *(("show", mode, option) for mode in ("tensors", "values") for option in ("against", "worst")),
    *(("show", "tensors", option) for option in ("name", "part")),
    ("show", "operators", "part"),  # comes after a name, which is refused
    ("pipeline", "a dump", "bisect"),
    *(
        ("tune", mode, option)
        for mode in (tune_options.EXPLAIN, tune_options.FIRST, tune_options.SEARCH)
        for option in ("explain", "first")
    ),
}


@pytest.mark.parametrize(
    ("command", "mode", "option"), sorted(one for one in set(refusals()) - CHOOSES if one[2] not in SET_BY_OTHERS)
)
def test_a_mode_refuses_what_it_does_not_honour(dumps, capsys, command, mode, option):
    modes = COMMANDS[command].MODES
    found = [action for action in actions(PARSERS[command]) if action.dest == option]
    words = LEAST[command, mode].split()
    if command == "pipeline":
        full = PARSERS[command]._subparsers._group_actions[0].choices["full"]
        found = [action for action in actions(full) if action.dest == option]
        if not found:
            return  # argparse refuses it: another kind's
    words = POSITIONAL[command, mode, option].split() if option in ("name", "part") else [*words, *typed(found[0])]
    assert main([command, *words]) == 2
    error = capsys.readouterr().err
    name = modes.spelled.get(option) or f"--{option.replace('_', '-')}"
    assert error.count("\n") == 1 and f"{name} {modes.refusals.get(option) or modes.refusals[mode]}" in error


POSITIONAL = {
    ("show", "operators", "name"): "one.npz a --operators",
    ("show", "worst values", "part"): "one.npz a [0] --against two.npz",
}
RECORDS = {
    "compare": (Reading, *(getattr(compare_options, name) for name in ("Pairing", "Measuring", "Output", "Options"))),
    "show": (Reading, show.Options),
    "convert": (Reading, convert.Conversion, convert.Options),
    "pipeline": (job.Job, *job.PARTS),
    "tune": (Network, Part, Judges, tune_options.Options),
}
# Options that ``run`` itself reads: --operators, --explain and --first choose the mode, --operations is another
# spelling of OPERATIONS, and only one kind of pipeline has --bisect.
READ_BY_RUN = {"operators", "operations", "kind", "explain", "first"}
# Calls that together read all that a mode honours, where the least call does not.
READ_ALL = {
    ("show", "tensors"): ["one.npz", "b.raw --raw-dtype float32"],
    ("show", "values"): ["one.npz a", "b.raw b --raw-dtype float32"],
    ("show", "worst values"): ["one.npz a --against two.npz", "b.raw b --raw-dtype float32 --against two.npz"],
    ("convert", "a dump"): ["one.npz out.npz", "b.raw raw.npz --raw-dtype float32"],
    ("show", "operators"): ["net.onnx --operators"],
    ("pipeline", "a dump"): ["full -m net.onnx", "once -m net.onnx --name c1", "full -m net.onnx -o two -cd ort_dump"],
}


@pytest.mark.parametrize(("command", "mode"), LEAST)
def test_a_mode_reads_what_it_honours(dumps, monkeypatch, capsys, command, mode):
    """Honoured is more than not refused: after the check the mode asks for the option."""
    read: set[str] = set()
    for record in RECORDS[command]:

        def watched(self, name, original=record.__getattribute__):
            read.add(name)
            return original(self, name)

        monkeypatch.setattr(record, "__getattribute__", watched)
    onnx.save(residual_net().proto, "net.onnx")
    for line in READ_ALL.get((command, mode), [LEAST[command, mode]]):
        status = main([command, *line.split()])
        error = capsys.readouterr().err
        assert status in (0, 1) or "not a watcher dump:" in error, error
    honoured = {option for option, modes in COMMANDS[command].MODES.honoured.items() if mode in modes}
    honoured -= READ_BY_RUN | ({"sample", "step", "rank"} if mode == compare_options.WATCHER else set())
    assert honoured <= read, honoured - read


def test_a_limit_of_zero_was_given(dumps, capsys):
    assert main("compare one.txt two.txt --max-rmse 0".split()) == 2
    assert "--max-rmse is for dumps, but these files hold calibration ranges" in capsys.readouterr().err


def test_every_file_that_compare_writes_is_checked_before_it_is_written():
    """``FILES`` keeps an output from replacing an input, and labels it with the run's step and rank."""
    from sgsdump.reports.layers import WRITERS

    paths = {field.name for field in fields(compare_options.Output) if field.type == "Path | None"}
    # A folder and the name map are checked by name; a run of its own has no name map.
    assert paths - {"plots", "write_name_map"} == set(compare_options.FILES) >= set(WRITERS)
