"""Subcommands: one thin module or package each, with a docstring (shown by ``--help``), add_arguments and run.

``sgsdump --help`` imports no command: the help line of each command is here, or in the ``__init__.py`` of a plug-in. A
command module imports only light modules at the top, so that its own ``--help`` is fast too.
"""

from collections.abc import Mapping

from sgsdump import plugins
from sgsdump.plugins import Command
from sgsdump.registry import Registry

BEGIN, LOOK, ANY = "start here", "compare and inspect", "any dump"
_TITLES = (BEGIN, "quantise", "dump", LOOK, ANY)
_CORE = {
    "completion": Command("sgsdump.commands.completion", "print the code for shell completion", BEGIN),
    "dump": Command("sgsdump.commands.dump", "dump every layer of a float model", "dump"),
    "compare": Command("sgsdump.commands.compare", "compare two dumps layer by layer", LOOK),
    "judge": Command("sgsdump.commands.compare.judge", "judge a run against an accepted run and a golden run", LOOK),
    "report": Command("sgsdump.commands.report", "write the comparison of two dumps as an HTML file", LOOK),
    "histogram": Command("sgsdump.commands.histogram", "draw the values of every layer against its range", LOOK),
    "show": Command("sgsdump.commands.show", "list the tensors of a dump, or print one", ANY),
    "convert": Command("sgsdump.commands.convert", "write a dump in another format", ANY),
    "split": Command("sgsdump.commands.split", "split a dump into one file per tensor or pattern", ANY),
    "merge": Command("sgsdump.commands.merge", "merge several dumps into one", ANY),
}


def grouped(further: Mapping[str, Command]) -> dict[str, dict[str, Command]]:
    """Return all commands by title and name, in the order of ``sgsdump --help``; ``further`` is from plug-ins."""
    groups: dict[str, dict[str, Command]] = {title: {} for title in _TITLES}
    for commands in (_CORE, *(plugin.commands for plugin in plugins.own()), further):
        for name, command in commands.items():
            group = groups.setdefault(command.group, {})
            if not any(name in members for members in groups.values()):
                groups[command.group] = _with(group, name, command)
    return {title: group for title, group in groups.items() if group}


def _with(group: dict[str, Command], name: str, command: Command) -> dict[str, Command]:
    """Return a group with a further command in its place."""
    members = list(group.items())
    places: dict[str | None, int] = {"": 0, **{member: place for place, member in enumerate(group, 1)}}
    members.insert(places.get(command.after, len(members)), (name, command))
    return dict(members)


# Commands of the core and of sgsdump's own plug-ins.
GROUPS = grouped({})
HELP = {name: command.help for group in GROUPS.values() for name, command in group.items()}
COMMANDS = Registry(
    "command",
    {name: command.module for group in GROUPS.values() for name, command in group.items()},
    lambda: {name: command.module for name, command in plugins.further_commands().items()},
)
