"""``--help`` of every command: one sentence, options in groups, the essential in few lines, examples, then details."""

from __future__ import annotations

import argparse

import pytest

from sgsdump.commands import COMMANDS
from sgsdump.commands.parser import build_parser

PARSERS = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
MOST_LINES = 12
FEW_OPTIONS = 6


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_paragraph_is_one_sentence(command):
    sentence = " ".join(PARSERS[command].description.split())
    assert sentence.endswith(".") and ". " not in sentence, sentence


@pytest.mark.parametrize("command", COMMANDS)
def test_the_description_is_short(command):
    """Without blank lines, up to the examples; what goes further follows them."""
    before, _, after = COMMANDS[command].__doc__.partition("\nexample")
    lines = [line for line in before.splitlines() if line.strip()]
    assert after and len(lines) <= MOST_LINES, len(lines)


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings and action.dest != "help"]


@pytest.mark.parametrize("command", COMMANDS)
def test_many_options_stand_in_groups(command):
    kinds = [action.choices.values() for action in PARSERS[command]._actions if action.nargs == argparse.PARSER]
    for parser in [PARSERS[command], *(kind for group in kinds for kind in group)]:
        ungrouped = {action.dest for action in parser._optionals._group_actions} - {"help"}
        assert not ungrouped or len(options(parser)) <= FEW_OPTIONS, ungrouped


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command):
    for action in options(PARSERS[command]):
        assert action.help and action.help is not argparse.SUPPRESS, action.dest
