"""Write docs/options.md: every option of every command, a table per command, a line per option.

    python tools/option_pages.py

The parsers give the texts, as for --help-all. tests/tools/test_option_pages.py fails if docs/options.md differs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
PAGE = TREE / "docs" / "options.md"
EVERYWHERE = {"-h", "--help-all", "-q", "-v"}
_DEFAULT = re.compile(r" \(default: ([^()]*(?:\([^()]*\)[^()]*)*)\)")
_HEAD = """\
# The options of all commands

`sgsdump COMMAND --help` shows the common options of a command. `--help-all` also shows the notes, and the options
marked \\* on this page. `python tools/option_pages.py` writes this page from the same texts.

Every command also has these options:

| option | meaning |
|---|---|
"""
_TABLE = """
| option | meaning | default |
|---|---|---|
"""
_INDEX = """
## Which commands have an option

| option | commands |
|---|---|
"""


def commands() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command of sgsdump, and of each kind of ``pipeline``."""
    from sgsdump.commands.parser import build_parser

    return {parser.prog.partition(" ")[2]: parser for parser in _leaves(build_parser())}


def page() -> str:
    """Return the page as the parsers define it."""
    parsers = commands()
    first = next(iter(parsers.values()))
    everywhere = (f"| {_spelled(action)} | {_text(action)} |\n" for action in first._actions if _is_common(action))
    sections = (_section(name, parser) for name, parser in parsers.items())
    return f"{_HEAD}{''.join(everywhere)}{''.join(sections)}{_index(parsers)}"


def _index(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the table of all options with their commands; the kinds of a command are one command."""
    users: dict[str, dict[str, None]] = {}
    for name, parser in parsers.items():
        for action in options(parser):
            users.setdefault(_name(action), {})[name.split()[0]] = None
    return _INDEX + "".join(f"| `{option}` | {', '.join(users[option])} |\n" for option in sorted(users))


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options of a command, without those of every command, in the order of its help."""
    return [
        action
        for group in parser._action_groups
        for action in group._group_actions
        if action.option_strings and not _is_common(action)
    ]


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    lines = [f"\n## {name}\n\n{' '.join((parser.description or '').split())}\n"]
    if arguments := [action for action in parser._actions if not action.option_strings]:
        lines.append("\n| argument | meaning |\n|---|---|\n")
        lines += [f"| `{_placeholder(action)}` | {_text(action)} |\n" for action in arguments]
    if own := options(parser):
        lines.append(_TABLE)
    for action in own:
        rare = r" \*" * bool({*action.option_strings} & {*parser.rare})  # type: ignore[attr-defined]
        text = _DEFAULT.sub("", _help(action))
        default = _DEFAULT.search(_help(action))
        lines.append(f"| {_spelled(action)}{rare} | {_cell(text)} | {_cell(default[1]) if default else ''} |\n")
    return "".join(lines)


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    kinds = [action.choices for action in parser._actions if action.nargs == argparse.PARSER]
    if not kinds:
        yield parser
    for kind in (each for choices in kinds for each in choices.values()):  # type: ignore[union-attr]
        yield from _leaves(kind)


def _is_common(action: argparse.Action) -> bool:
    return bool(EVERYWHERE & {*action.option_strings})


def _name(action: argparse.Action) -> str:
    """Return the long spelling of an option."""
    return max(action.option_strings, key=lambda option: (option.startswith("--"), len(option)))


def _spelled(action: argparse.Action) -> str:
    """Return the spellings of an option and its value."""
    value = "" if action.nargs == 0 else f" {_placeholder(action)}"
    return _cell(f"`{', '.join(action.option_strings)}{value}`")


def _placeholder(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    value = str(action.metavar or action.dest.upper())
    return f"{value} ..." if action.nargs == "+" else value


def _help(action: argparse.Action) -> str:
    """Return the text of an option as --help shows it, on one line."""
    return argparse.HelpFormatter("")._expand_help(action)


def _text(action: argparse.Action) -> str:
    return _cell(_help(action))


def _cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    if text.startswith("`"):
        return text.replace("|", r"\|")
    return re.sub(r"([|*<>\[\]_])", r"\\\1", text)


if __name__ == "__main__":
    sys.path.insert(0, str(TREE))
    PAGE.write_text(page(), encoding="utf-8")
