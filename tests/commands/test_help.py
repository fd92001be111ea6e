"""``--help`` of every command: a sentence, options in groups, examples; ``--help-all``: every option and notes."""

from __future__ import annotations

import argparse
import importlib
import re
import sys

import pytest

from sgsdump import __version__
from sgsdump.cli import main
from sgsdump.commands import COMMANDS
from sgsdump.commands.compare.options import ALWAYS
from sgsdump.commands.parser import build_parser
from sgsdump.dumps.targets import ENDINGS
from sgsdump.tensors.tensor import DEVICE_LAYOUTS

PARSERS = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
EVERYWHERE = "help", "help_all", "quiet", "verbose"
FEW_OPTIONS = 6


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_paragraph_is_one_sentence(command):
    sentence = " ".join(PARSERS[command].description.split())
    assert sentence.endswith(".") and ". " not in sentence, sentence


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings and action.dest not in EVERYWHERE]


def _dest(action: argparse.Action) -> str:
    return action.dest


@pytest.mark.parametrize("command", COMMANDS)
def test_many_options_stand_in_groups(command):
    kinds = [action.choices.values() for action in PARSERS[command]._actions if action.nargs == argparse.PARSER]
    for parser in [PARSERS[command], *(kind for group in kinds for kind in group)]:
        ungrouped = set(map(_dest, options(parser))) & set(map(_dest, parser._optionals._group_actions))
        assert not ungrouped or len(options(parser)) <= FEW_OPTIONS, ungrouped


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command):
    assert all(action.help for action in options(PARSERS[command]))
    assert not any(action.help is argparse.SUPPRESS for action in options(PARSERS[command]))


def text_of(option: str, command: str) -> str:
    kinds = [action.choices for action in PARSERS[command]._actions if action.nargs == argparse.PARSER]
    parsers = [PARSERS[command], *(parser for kind in kinds for parser in kind.values())]
    return next(action.help for parser in parsers for action in options(parser) if option in action.option_strings)


@pytest.mark.parametrize(
    ("option", "command", "table", "named"),
    [
        ("--executor", "pipeline", "sgsdump.executors.table:EXECUTORS", "sgsdump.executors.ort:OrtExecutor"),
        ("--metrics", "compare", "sgsdump.comparison.metrics:METRICS", None),
        ("--metrics", "compare", "sgsdump.comparison.vendor_metrics:VENDOR_METRICS", "x:y"),
    ],
)
def test_a_list_of_members_is_its_table(option, command, table, named, monkeypatch):
    module, _, name = table.partition(":")
    members = getattr(importlib.import_module(module), name)
    said = text_of(option, command)
    always = ALWAYS if name == "METRICS" else ()
    for member in members:
        assert member in always or re.search(rf"(^|[ ,]){member}([ ,;:]|$)", said), member
    monkeypatch.setattr(f"{module}.{name}", {**dict.fromkeys(members, named), "newcomer": named})
    assert "newcomer" in text_of(option, command)


def test_endings_and_layouts_of_convert_are_its_tables():
    assert all(ending in COMMANDS["convert"].__doc__ for ending in ENDINGS)
    (layout,) = (action for action in PARSERS["convert"]._actions if action.dest == "layout")
    assert set(DEVICE_LAYOUTS) < set(layout.choices)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("compar a b", "sgsdump: error: argument COMMAND: invalid choice: 'compar'; did you mean 'compare'?"),
        ("compare a b --csw x", "unrecognized arguments: --csw; did you mean '--csv'?; see sgsdump compare --help"),
        ("pipeline full -m a -o b --shpae x", "did you mean '--shape' or '--step'"),
        ("calibrate -m x -i y --quant-level L7", "invalid choice: 'L7'; choose one of: L1, L2, L3, L4, L5"),
    ],
)
def test_what_is_mistyped_is_told_with_the_nearest_and_its_own_help(words, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    error = capsys.readouterr().err
    assert ended.value.code == 2 and expected in error and error.count("\n") == 1


def test_help_shows_the_common_options_and_help_all_every_one(capsys):
    texts = []
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as ended:
            main(["compare", option])
        assert ended.value.code == 0
        texts.append(capsys.readouterr().out)
    first, whole = texts
    assert "--scheduler" in whole and "--scheduler" not in first and "\nexit status:\n" in whole
    assert first.endswith("sgsdump compare --help-all shows 15 more options and notes.\n")
    assert all(line in whole for line in first.splitlines()[:-1])


@pytest.mark.parametrize(("asked", "same"), [("help compare", "compare --help"), ("help", "--help")])
def test_help_takes_a_command(asked, same, capsys):
    texts = []
    for words in (asked, same):
        with pytest.raises(SystemExit):
            main(words.split())
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and "usage: sgsdump" in texts[0]


def test_the_version_is_told_without_numpy(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "sgsdump.comparison.sums.summation", raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"sgsdump {__version__}, numpy is not installed\n"
