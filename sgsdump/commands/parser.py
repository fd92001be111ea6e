"""Parser of the command line, with one subcommand per member of ``COMMANDS``; only the called command is imported."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NoReturn

from sgsdump import __version__, plugins
from sgsdump.commands import COMMANDS, GROUPS, HELP, grouped
from sgsdump.errors import ConfigError, did_you_mean
from sgsdump.plugins import Command
from sgsdump.registry import imported

DESCRIPTION = "Find the layer that loses accuracy when a model is quantised.\n\n"
EXAMPLES = """\
examples:
  sgsdump demo                                   run the whole loop on a sample
  sgsdump diagnose -m net.onnx -i images/        find where your model loses accuracy
  sgsdump dump -m net.onnx -i cat.jpg -n pre.py  dump every layer of a model
  sgsdump compare fixed.bin float.bin            compare every layer, with a verdict

sgsdump COMMAND --help shows the common options, --help-all every option.
"""
_EXAMPLES = "examples:"
WIDTH = 78  # of a description
# Other spellings of options: of the vendors' scripts, and former names.
VENDORS_NAMES = {
    "--model-file": "--model",
    "-d": "--model",
    "--debug-image": "--evaluate",
    "--input-tag": "--times",
    "--pictures": "--max-images",
    "--tensor-min-max": "--ranges",
}


class Parser(argparse.ArgumentParser):
    """Parser that accepts options at any place, also in the SDK's spelling with underscores.

    Before Python 3.13, argparse does not accept an optional positional argument after an option, such as NAME in
    ``show DUMP --stored NAME``. Such arguments are parsed again with ``parse_known_intermixed_args``.

    ``--help`` shows the common options and the examples, ``--help-all`` also the ``rare`` options and ``notes``.
    ``moved`` has former options, and what replaces them.
    """

    _again = False
    rare: Collection[str] = ()
    notes = ""
    moved: Mapping[str, str] = {}

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        args = list(self._our_spelling(sys.argv[1:] if args is None else args))
        self._refuse_unknown(args)
        parsed, remaining = super().parse_known_args(args, namespace)
        if not remaining or self._again or any(action.nargs == argparse.PARSER for action in self._actions):
            return parsed, remaining
        self._again = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._again = False

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def, override]
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = self._called(vars(parsed))
            options = [word.partition("=")[0] for word in unknown if word.startswith("--")]
            near = "".join(did_you_mean(option, command._long_options()) for option in options)
            command.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return parsed

    def _refuse_unknown(self, args: Sequence[str]) -> None:
        """Report a misspelt option of a command before missing arguments."""
        if any(action.nargs == argparse.PARSER for action in self._actions):
            return
        ours = args[: args.index("--")] if "--" in args else args
        options = (word.partition("=")[0] for word in ours if word.startswith("--"))
        unknown = [option for option in options if not self._knows(option)]
        if unknown:
            near = "".join(self._near(option) for option in unknown)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")

    def _near(self, option: str) -> str:
        """Return what replaces a former option, or the options with a similar name."""
        moved = self.moved.get(option)
        return f"; {moved}" if moved else did_you_mean(option, self._long_options())

    def _called(self, parsed: Mapping[str, object]) -> Parser:
        """Return the parser of the called command, at any depth."""
        for action in self._actions:
            if action.nargs == argparse.PARSER and parsed.get(action.dest) in (action.choices or ()):
                return action.choices[parsed[action.dest]]._called(parsed)  # type: ignore[index, call-overload]
        return self

    def _long_options(self) -> list[str]:
        return [option for option in self._option_string_actions if option.startswith("--")]

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = did_you_mean(str(value), choices) or f"; choose one of: {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near}")

    def error(self, message: str) -> NoReturn:
        """Exit with an error in one line, with unprintable characters escaped."""
        escaped = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in message)
        self.exit(2, f"{self.prog}: error: {escaped}; see {self.prog} --help\n")

    def format_help(self) -> str:
        """Return the first screen: the arguments, the common options, and the examples."""
        rare = [action for action in self._actions if set(action.option_strings) & {*self.rare}]
        texts = [action.help for action in rare]
        for action in rare:
            action.help = argparse.SUPPRESS
        try:
            text = self.format_help_all(with_notes=False)
        finally:
            for action, help in zip(rare, texts):
                action.help = help
        count = sum("--help-all" not in action.option_strings for action in rare)
        more = [f"{count} more options"] * bool(count) + ["notes"] * bool(self.notes)
        return f"{text}\n{self.prog} --help-all shows {' and '.join(more)}.\n" if more else text

    def format_help_all(self, with_notes: bool = True) -> str:
        """Return the help with every option, and with the notes.

        The usage has the required arguments only; all options are listed below it.
        """
        if self.usage is None:
            self.usage = self._usage()
        text = super().format_help()
        return f"{text}\n{self.notes}\n" if with_notes and self.notes else text

    def _usage(self) -> str:
        """Return the program and its required arguments, in lines as wide as the terminal."""
        lines, width = [self.prog], shutil.get_terminal_size().columns - len("usage: ")
        for part in (*self._needed(), "[options]"):
            if len(lines[-1]) + 1 + len(part) > width:
                lines.append(" " * len(f"usage: {self.prog}"))
            lines[-1] += f" {part}"
        return "\n".join(lines)

    def _needed(self) -> Iterator[str]:
        groups = {id(action): group for group in self._mutually_exclusive_groups for action in group._group_actions}
        for action in self._actions:
            group = groups.get(id(action))
            if action.option_strings and (action.required or (group is not None and group.required)):
                if group is None:
                    yield f"{action.option_strings[0]} {_value(action)}"
                elif action is group._group_actions[0]:
                    yield "|".join(f"{option.option_strings[0]} {_value(option)}" for option in group._group_actions)
        for action in self._actions:
            if not action.option_strings:
                many = " ..." * (action.nargs in ("+", "*"))
                yield f"[{_value(action)}{many}]" if action.nargs in ("?", "*") else f"{_value(action)}{many}"

    def _our_spelling(self, args: Sequence[str]) -> Iterator[str]:
        """Yield the arguments with options spelled as here, including VENDORS_NAMES, if the parser knows the option."""
        words = iter(args)
        for word in words:
            if word == "--":
                yield word
                break
            name, equals, value = word.partition("=")
            ours = name.replace("_", "-")
            ours = ours if self._knows(ours) else VENDORS_NAMES.get(ours, ours)
            if word.startswith("-") and not self._knows(name) and self._knows(ours):
                word = ours + equals + value
            yield word
        yield from words

    def _knows(self, name: str) -> bool:
        """Return whether ``name`` is an option or the beginning of an option."""
        return any(option.startswith(name) for option in self._option_string_actions)


def with_help(args: Sequence[str]) -> Sequence[str]:
    """Return ``help COMMAND`` as ``COMMAND --help``."""
    return [*args[1:], "--help"] if args[:1] == ["help"] else args


def with_new_names(args: Sequence[str]) -> Sequence[str]:
    """Return the arguments with a renamed command (``Plugin.renamed``) and its options as of today; warn of it."""
    place = next((index for index, word in enumerate(args) if not word.startswith("-")), len(args))
    target = plugins.own_table("renamed").get(args[place]) if place < len(args) else None
    if target is None:
        return args
    words = [*args[:place], *imported(target)(args[place + 1 :])]
    if not {"-q", "--quiet"} & {*args}:
        print(f"sgsdump: warning: {args[place]} is now: {shlex.join(['sgsdump', *words])}", file=sys.stderr)
    return words


def called(args: Sequence[str]) -> list[str]:
    """Return the called command; [] for ``--help``, ``--version`` or an unknown command.

    The parser's own options take no value, so the first word that names a command is the command. An unknown word
    before the command triggers a search for installed plug-ins.
    """
    return next(([word] for word in args if not word.startswith("-") and word in COMMANDS), [])


def _listed(groups: Mapping[str, Mapping[str, Command]]) -> str:
    """Return the list of commands, grouped by purpose."""
    width = max(len(name) for group in groups.values() for name in group)
    return "\n".join(
        f"{title}:\n" + "".join(f"  {name:{width}}  {command.help}\n" for name, command in group.items())
        for title, group in groups.items()
    )


def _value(action: argparse.Action) -> str:
    """Return the placeholder of an argument's value."""
    if action.choices is not None and action.metavar is None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


class _HelpAll(argparse.Action):
    """Print the help with every option, and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser), "subparsers have the class of their parser"
        print(parser.format_help_all(), end="")
        parser.exit()


class _Version(argparse.Action):
    """Print the version and exit. Only this action loads the compiled kernel and numpy; it works without numpy too."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        try:
            from sgsdump.comparison.sums.summation import description

            sums = description()
        except ModuleNotFoundError as error:
            sums = f"{error.name} is not installed"
        print(f"sgsdump {__version__}, {sums}")
        parser.exit()


def build_parser(commands: Collection[str] = HELP) -> argparse.ArgumentParser:
    """Return the parser; only the modules of ``commands`` are imported, of other commands it has the names.

    The docstring of a command's module is its help: the first paragraph is the description, ``examples:`` follow the
    options, and the other paragraphs are notes of ``--help-all``. ``RARE`` of the module names the options that only
    ``--help-all`` shows; ``MOVED`` has former options and what replaces them. Commands of installed plug-ins are known
    if none of sgsdump's own is called.
    """
    groups = GROUPS if commands and all(name in HELP for name in commands) else grouped(plugins.further_commands())
    parser = Parser(
        prog="sgsdump",
        usage="sgsdump [-h] [--version] COMMAND ...",
        description=DESCRIPTION + _listed(groups),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = "show the version and whether compiled code computes the metrics, and exit"
    parser.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help=version)
    subparsers = parser.add_subparsers(
        prog="sgsdump", dest="command", metavar="COMMAND", required=True, help=argparse.SUPPRESS
    )
    for name, listed in (pair for group in groups.values() for pair in group.items()):
        formatter = argparse.RawDescriptionHelpFormatter
        sub = subparsers.add_parser(name, help=listed.help, formatter_class=formatter)  # shells show it
        if name in HELP and name in commands:
            _define(sub, name)
        elif name in commands:
            try:
                _define(sub, name)
            except Exception as error:
                raise ConfigError(f"the plug-in's command {name} cannot be loaded: {error}") from error
    return parser


def _define(parser: Parser, name: str) -> None:
    """Give a command's parser its help, its options and the function that runs it."""
    command = COMMANDS[name]
    description, *paragraphs = command.__doc__.strip("\n").split("\n\n")
    parser.description = description
    parser.epilog = "\n\n".join(each for each in paragraphs if each.startswith(_EXAMPLES))
    parser.notes = "\n\n".join(each for each in paragraphs if not each.startswith(_EXAMPLES))
    command.add_arguments(parser)
    leaves = list(_leaves(parser))
    for each in dict.fromkeys([parser, *leaves]):
        each.rare = (*getattr(command, "RARE", ()), "--help-all", "-v", "-q")
        each.moved = getattr(command, "MOVED", {})
        each.description = textwrap.fill(" ".join((each.description or "").split()), WIDTH)
        each.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every option and the notes, and exit")
    for each in leaves:
        each.notes = parser.notes
        _add_loudness(each)
    parser.set_defaults(run=command.run)


def _leaves(parser: Parser) -> Iterator[Parser]:
    """Yield the parser of a command, or those of its kinds."""
    kinds = [action.choices for action in parser._actions if action.nargs == argparse.PARSER]
    if not kinds:
        yield parser
    for kind in (each for choices in kinds for each in choices.values()):  # type: ignore[union-attr]
        yield from _leaves(kind)


def _add_loudness(parser: argparse.ArgumentParser) -> None:
    """Add ``-q`` and ``-v``, which ``cli.main`` handles."""
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument(
        "-q", "--quiet", action="store_true", help='print only errors; --json "-" still prints the JSON'
    )
    loudness.add_argument(
        "-v", "--verbose", action="store_true", help="also print timings, and the traceback of an error"
    )
