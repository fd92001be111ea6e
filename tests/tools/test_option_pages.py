"""docs/options.md is what its tool writes, and the help of every command keeps to its limits."""

from __future__ import annotations

import argparse
import ast
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import option_pages  # noqa: E402

from sgsdump.commands.parser import Parser, build_parser  # noqa: E402

MOST_OPTIONS, MOST_EXAMPLES, COLUMNS = 25, 5, 80
PARSERS = option_pages.commands()
# Options with another meaning in each of the commands that declare them.
UNLIKE = {
    "--step": "pipeline: every STEP-th tensor, as the SDAA dump tool",
    "--rank": "exec: several ranks",
    "--type": "exec: msit's types of dumps; simulate: type of the model",
    "--quiet": "renamed.py reads the command line of a former command",
    "--verbose": "the same",
}


def first_screen(parser: Parser) -> list[argparse.Action]:
    return [
        action for action in parser._actions if action.option_strings and not {*action.option_strings} & {*parser.rare}
    ]


def split(text: str) -> tuple[list[str], list[str]]:
    """The lines of a help text without examples, and the examples."""
    lines: list[str] = []
    examples: list[str] = []
    in_examples = False
    for line in text.splitlines():
        in_examples = line.endswith("examples:") or (in_examples and line.startswith("  "))
        (examples if in_examples else lines).append(line)
    return lines, [line.strip() for line in examples if line.startswith("  ")]


def test_the_page_is_what_the_tool_writes():
    assert option_pages.PAGE.read_text(encoding="utf-8") == option_pages.page(), "python tools/option_pages.py"


@pytest.mark.parametrize("name", PARSERS)
def test_the_page_has_every_option_of_a_command(name):
    page = option_pages.page()
    section = page[page.index(f"\n## {name}\n") :].split("\n## ")[1]
    for action in PARSERS[name]._actions:
        for option in action.option_strings:
            common = {*action.option_strings} & option_pages.EVERYWHERE
            assert option in (page if common else section), option


@pytest.mark.parametrize("name", PARSERS)
def test_a_first_screen_is_short(name):
    parser = PARSERS[name]
    assert len(first_screen(parser)) <= MOST_OPTIONS
    _, _, examples = parser.epilog.partition("examples:\n")
    assert 1 <= len(examples.splitlines()) <= MOST_EXAMPLES


@pytest.mark.parametrize("name", PARSERS)
def test_a_description_is_one_sentence(name):
    sentence = " ".join(PARSERS[name].description.split())
    assert sentence.endswith(".") and ". " not in sentence, sentence


@pytest.mark.parametrize("name", PARSERS)
def test_no_line_is_wider_than_a_terminal(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    parser = PARSERS[name]
    parser.usage = parser.usage if name == "exec" else None  # made for the width
    for text in (parser.format_help(), parser.format_help_all()):
        assert not [line for line in split(text)[0] if len(line) > COLUMNS]


@pytest.mark.parametrize("name", PARSERS)
def test_rare_options_are_options(name):
    """``RARE`` names no option that no kind of the command has."""
    command = name.split()[0]
    known = {
        option for each in PARSERS if each.split()[0] == command for option in PARSERS[each]._option_string_actions
    }
    assert set(PARSERS[name].rare) <= known


@pytest.mark.parametrize("name", PARSERS)
def test_the_examples_of_a_command_are_read(name):
    """Every line of examples, of ``more examples`` too, gives options that the command has."""
    _, lines = split(f"{PARSERS[name].epilog}\n\n{PARSERS[name].notes}")
    lines = [line for line in lines if line.startswith("sgsdump ")]
    assert lines or name == "completion"
    for line in lines:
        words = shlex.split(line)[1:]
        words = words[: words.index("|")] if "|" in words else words
        assert build_parser([words[0]]).parse_args(words).command == words[0], line


def test_an_option_is_declared_once():
    """One declaration per option: what several commands share is in commands/options.py."""
    declared: Counter[str] = Counter()
    for path in sorted((ROOT / "sgsdump").rglob("*.py")):
        if path.parent.name == "sdk":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                words = [word.value for word in node.args if isinstance(word, ast.Constant)]
                declared.update(word for word in words if word.startswith("--"))
    assert {option for option, count in declared.items() if count > 1} <= {*UNLIKE, "--name"}
