"""The command line's parser: one subcommand for each member of ``COMMANDS``; one that is not called is a name only."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NoReturn

from sgsdump import __version__, plugins
from sgsdump.commands import COMMANDS, GROUPS, HELP, grouped
from sgsdump.errors import ConfigError, did_you_mean
from sgsdump.plugins import Command

DESCRIPTION = "Find the layer that loses accuracy when a network is quantised.\n\n"
EXAMPLES = """\
examples:
  sgsdump demo                                   the whole loop on an embedded sample
  sgsdump diagnose -m net.onnx -i pictures/      where your network loses accuracy, as one page
  sgsdump dump -m net.onnx -i cat.jpg -n pre.py  every layer of a model into one dump
  sgsdump compare fixed.bin float.bin            MSE, COS and RMSE of every layer, and a verdict

sgsdump help COMMAND shows every option, with examples.
"""
# What the vendors' scripts call an option that has one name here.
VENDORS_NAMES = {"--model-file": "--model", "-d": "--model"}


class Parser(argparse.ArgumentParser):
    """Options have hyphens and may stand anywhere; the SDK's spelling with underscores works beside ours.

    Anywhere: argparse of Python before 3.13 gives up on an optional positional argument once it met an option after
    the first, so ``show DUMP --stored NAME`` would not read as it looks.
    """

    _again = False

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
        """Of a command: a misspelt option is told before what is missing."""
        if any(action.nargs == argparse.PARSER for action in self._actions):
            return
        ours = args[: args.index("--")] if "--" in args else args
        options = (word.partition("=")[0] for word in ours if word.startswith("--"))
        unknown = [option for option in options if not self._knows(option)]
        if unknown:
            near = "".join(did_you_mean(option, self._long_options()) for option in unknown)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")

    def _called(self, parsed: Mapping[str, object]) -> Parser:
        """The parser of the command that was called, however deep it lies."""
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
        """One line, whatever stands in the arguments."""
        escaped = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in message)
        self.exit(2, f"{self.prog}: error: {escaped}; see {self.prog} --help\n")

    def format_help(self) -> str:
        """With a usage of what has to be given, instead of one of every option, which are listed below it."""
        if self.usage is None:
            self.usage = " ".join([self.prog, *self._needed(), "[options]"])
        return super().format_help()

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
        """``--input_config`` as ``--input-config``, and VENDORS_NAMES, where this parser knows that option."""
        words = iter(args)
        for word in words:
            if word == "--":
                yield word
                break
            name, equals, value = word.partition("=")
            ours = name.replace("_", "-")
            ours = VENDORS_NAMES.get(ours, ours)
            if word.startswith("-") and not self._knows(name) and self._knows(ours):
                word = ours + equals + value
            yield word
        yield from words

    def _knows(self, name: str) -> bool:
        """Whether ``name`` is an option or begins one."""
        return any(option.startswith(name) for option in self._option_string_actions)


def with_help(args: Sequence[str]) -> Sequence[str]:
    """``help COMMAND`` as ``COMMAND --help``."""
    return [*args[1:], "--help"] if args[:1] == ["help"] else args


def called(args: Sequence[str]) -> list[str]:
    """The command that these arguments call; none for ``--help``, ``--version``, or a command that is not known.

    The parser's own options take no value, so the first word that names a command is the command. A word before it
    that names none has installed plug-ins looked for.
    """
    return next(([word] for word in args if not word.startswith("-") and word in COMMANDS), [])


def _listed(groups: Mapping[str, Mapping[str, Command]]) -> str:
    """The commands by what they are for."""
    width = max(len(name) for group in groups.values() for name in group)
    return "\n".join(
        f"{title}:\n" + "".join(f"  {name:{width}}  {command.help}\n" for name, command in group.items())
        for title, group in groups.items()
    )


def _value(action: argparse.Action) -> str:
    """The placeholder of an argument's value."""
    if action.choices is not None and action.metavar is None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


class _Version(argparse.Action):
    """Looks for the compiled kernel, and so for numpy, only when it is asked. The version is told without numpy too."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        try:
            from sgsdump.comparison.sums.summation import description

            sums = description()
        except ModuleNotFoundError as error:
            sums = f"{error.name} is not installed"
        print(f"sgsdump {__version__}, {sums}")
        parser.exit()


def build_parser(commands: Collection[str] = HELP) -> argparse.ArgumentParser:
    """With the options of ``commands``, whose modules are imported; of the others it knows the names alone.

    The help of a command begins with the first paragraph of its module's docstring; the others follow the options.
    Commands of installed plug-ins are known where none is called, or one of theirs.
    """
    groups = GROUPS if commands and all(name in HELP for name in commands) else grouped(plugins.further_commands())
    parser = Parser(
        prog="sgsdump",
        usage="sgsdump [-h] [--version] COMMAND ...",
        description=DESCRIPTION + _listed(groups),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = "show the version, and whether sums are compiled, and exit"
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


def _define(parser: argparse.ArgumentParser, name: str) -> None:
    """Give a command's parser its help, its options and what runs it."""
    command = COMMANDS[name]
    parser.description, _, parser.epilog = command.__doc__.partition("\n\n")
    command.add_arguments(parser)
    _add_loudness(parser)
    parser.set_defaults(run=command.run)


def _add_loudness(parser: argparse.ArgumentParser) -> None:
    """``-q`` and ``-v`` of a command, or of each of its kinds; ``cli.main`` does what they say."""
    kinds = [action.choices for action in parser._actions if action.nargs == argparse.PARSER]
    for kind in (each for choices in kinds for each in choices.values()):  # type: ignore[union-attr]
        _add_loudness(kind)
    if not kinds:
        loudness = parser.add_mutually_exclusive_group()
        loudness.add_argument("-q", "--quiet", action="store_true", help="print only errors and the output of --json -")
        loudness.add_argument(
            "-v", "--verbose", action="store_true", help="also print timings, and where an error occurred"
        )
