"""Plug-ins: tables in which a package names the commands, formats and other objects that it adds to sgsdump.

sgsdump imports an object when the object is first used.

A plug-in is a record ``PLUGIN = Plugin(...)``. sgsdump's own plug-ins, ``OWN``, define this record in their
``__init__.py``. An installed package names its record in the entry-point group ``sgsdump.plugins``::

    [project.entry-points."sgsdump.plugins"]
    toy = "sgsdump_toy:PLUGIN"

sgsdump looks up each command, format, public name or file reader first in its own tables. If its own tables have no
match, sgsdump uses the tables of the installed plug-ins. ``sgsdump --help`` always lists the commands of installed
plug-ins. If a plug-in cannot be loaded, sgsdump issues one warning. All other functions of sgsdump still work.
``SGSDUMP_NO_PLUGINS=1`` disables all installed plug-ins.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Mapping
from functools import cache, partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from sgsdump.errors import one_line
from sgsdump.registry import imported

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OWN = ("capture", "pipeline", "fixedpoint")
GROUP = "sgsdump.plugins"
SWITCH = "SGSDUMP_NO_PLUGINS"


class Command(NamedTuple):
    """Subcommand of ``sgsdump``.

    Attributes
    ----------
    module : str
        Module of the command. The docstring of the module is the help text of the command. The module defines
        ``add_arguments(parser)``, and ``run(args)``, which returns the exit status.
    help : str
        One-line description of the command in ``sgsdump --help``.
    group : str
        Heading in ``sgsdump --help`` under which the command is listed. A new heading is placed last.
    after : str or None
        Command that is listed before this command; "" for the first place in the group, None for the last place.
    """

    module: str
    help: str
    group: str = "plug-ins"
    after: str | None = None


class Plugin(NamedTuple):
    """Tables that a plug-in adds to sgsdump.

    All tables except ``commands`` map names to targets. A target is a string ``module:attribute``. In the tables
    ``names`` and ``modules``, a target is the name of a module.

    Attributes
    ----------
    commands : mapping of str to Command
        Subcommands by name.
    formats : mapping of str to str
        Dump formats by name; each target is an ``sgsdump.dumps.format.Format``.
    models : mapping of str to str
        Model readers by name; each target is an ``sgsdump.models.model.ModelReader``.
    charts : mapping of str to str
        Charts of ``compare --plots`` by name; each target is a function ``save(report, folder)`` that returns the
        written paths.
    views : mapping of str to str
        Functions that show, draw or write a result, by kind of result.
    renamed : mapping of str to str
        Commands of an older version, by name; each target converts their arguments to those of the current command.
    names : mapping of str to str
        Public names of the package ``sgsdump``, with the modules that define them.
    modules : mapping of str to str
        Packages that users import as ``sgsdump.NAME``, by this name; only for sgsdump's own plug-ins.
    """

    commands: Mapping[str, Command] = {}
    formats: Mapping[str, str] = {}
    models: Mapping[str, str] = {}
    charts: Mapping[str, str] = {}
    views: Mapping[str, str] = {}
    renamed: Mapping[str, str] = {}
    names: Mapping[str, str] = {}
    modules: Mapping[str, str] = {}


# Views of the core's results: the modules of results do not import reports.
_CORE = Plugin(
    views={
        "comparison": "sgsdump.reports.notebook:show_comparison",
        "table": "sgsdump.reports.notebook:show_table",
        "tensor": "sgsdump.reports.notebook:show_tensor",
        "distribution": "sgsdump.reports.notebook:show_distribution",
        "distributions": "sgsdump.reports.notebook:show_distributions",
        "plot of a comparison": "sgsdump.reports.charts.axes:plot_comparison",
        "plot of a distribution": "sgsdump.reports.charts.axes:plot_distribution",
        "file of a comparison": "sgsdump.reports.comparison.file:save",
        "page of a comparison": "sgsdump.reports.comparison.file:page",
        "page of a card": "sgsdump.reports.notebook:save_card",
        "text of a verdict": "sgsdump.reports.three_lines:verdict_block",
    },
    modules={"testing": "sgsdump.dumps.reader_checks"},
)


@cache
def own() -> tuple[Plugin, ...]:
    """Return sgsdump's own plug-ins, in the order of ``OWN``."""
    return tuple(importlib.import_module(f"sgsdump.{name}").PLUGIN for name in OWN)


def own_table(table: str) -> Mapping[str, str]:
    """Return the entries that sgsdump's own plug-ins add to a table."""
    return {name: target for plugin in own() for name, target in getattr(plugin, table).items()}


@cache
def installed() -> Mapping[str, Plugin]:
    """Return the plug-ins of installed packages by entry-point name; warn about each plug-in that cannot be loaded."""
    if are_left_out() or not _any_is_named():
        return {}
    from importlib.metadata import entry_points

    loaded = ((point.name, _loaded(point)) for point in entry_points(group=GROUP))
    return {name: plugin for name, plugin in loaded if plugin is not None}


def are_left_out() -> bool:
    """Return whether the user has disabled installed plug-ins."""
    return os.environ.get(SWITCH, "0") not in ("", "0")


def _loaded(point: "EntryPoint") -> Plugin | None:
    try:
        plugin = point.load()
        if not isinstance(plugin, Plugin):
            raise TypeError(f"{point.value} is a {type(plugin).__name__}, not an sgsdump.plugins.Plugin")
        for table, entries in zip(plugin._fields, plugin):
            kind = Command if table == "commands" else str
            if not isinstance(entries, Mapping) or not all(isinstance(entry, kind) for entry in entries.values()):
                raise TypeError(f"{table} of {point.value} is not a dictionary that maps names to {kind.__name__}")
    except (Exception, SystemExit) as error:
        leave_out(f"plug-in {point.name}", error)
        return None
    return plugin


def leave_out(what: str, error: BaseException) -> None:
    """Warn in one line that a part of an installed plug-in is ignored."""
    reason = str(error) or type(error).__name__
    warnings.warn(one_line(f"the {what} is left out: {reason}; {SWITCH}=1 disables all plug-ins"), stacklevel=3)


@cache
def further(table: str, attribute: str = "__call__") -> Mapping[str, str]:
    """Return the entries that installed plug-ins add to a table; warn about targets that cannot be imported.

    attribute  an attribute that each target must have.
    """
    found = [pair for plugin in installed().values() for pair in getattr(plugin, table).items()]
    return {name: target for name, target in found if _loads(target, attribute, f"plug-in's {name!r} of {table}")}


def _loads(target: str, attribute: str, what: str) -> bool:
    try:
        value = imported(target)
        if not hasattr(value, attribute):
            raise TypeError(f"{target} is a {type(value).__name__}")
    except (Exception, SystemExit) as error:
        leave_out(what, error)
        return False
    return True


def further_commands() -> Mapping[str, Command]:
    """Return the commands of installed plug-ins without importing their modules."""
    return {name: command for plugin in installed().values() for name, command in plugin.commands.items()}


def public_name(name: str) -> Any:
    """Import the object that a plug-in publishes as ``name``. Raises AttributeError if no plug-in has this name."""
    module = next((plugin.names[name] for plugin in own() if name in plugin.names), None)
    if module is None and not name.startswith("_") and not _is_module(name):
        module = next((plugin.names[name] for plugin in installed().values() if name in plugin.names), None)
    if module is None:
        raise AttributeError(f"module 'sgsdump' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def _is_module(name: str) -> bool:
    """Return whether sgsdump has a submodule of this name, for ``from sgsdump import NAME``."""
    from pathlib import Path

    place = Path(__file__).with_name(name)
    return place.is_dir() or place.with_suffix(".py").is_file()


def public_module(name: str) -> ModuleSpec | None:
    """Return the import spec of a package or module that one of sgsdump's plug-ins publishes; None for other names."""
    root, _, inside = name.removeprefix("sgsdump.").partition(".")
    target = next((plugin.modules[root] for plugin in (_CORE, *own()) if root in plugin.modules), None)
    if target is None:
        return None
    loader: Any = _Alias(f"{target}.{inside}" if inside else target)
    return ModuleSpec(name, loader, is_package=True)


class _Alias:
    """Loader of a module that is an alias of a target module. The target is imported once, under the target's name."""

    def __init__(self, target: str):
        self._target = target

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the import system create the module. Importing the base class in importlib.abc would be slow."""

    def exec_module(self, module: ModuleType) -> None:
        real = importlib.import_module(self._target)
        vars(module).update(__doc__=real.__doc__, __getattr__=partial(getattr, real), __dir__=partial(dir, real))


def as_html(kind: str, result: object) -> str | None:
    """Return HTML for ``_repr_html_``. If this kind of result has no view, return None, and notebooks show ``repr``."""
    target = _view(kind)
    return imported(target)(result) if target else None


def ask(kind: str, result: object, *further: object) -> Any:
    """Call the ``views`` function for this kind of result and return its output. Raises KeyError if there is none."""
    target = _view(kind)
    if target is None:
        raise KeyError(kind)
    return imported(target)(result, *further)


def _view(kind: str) -> str | None:
    """Return the import target of the view function for a kind of result; installed plug-ins are searched last."""
    for plugin in (_CORE, *own()):
        if kind in plugin.views:
            return plugin.views[kind]
    return further("views").get(kind)


def _any_is_named() -> bool:
    """Return whether an installed package has entry points in ``GROUP``, without the slow importlib.metadata."""
    return any(_names_group(place) for folder in sys.path for place in _metadata_in(folder or "."))


def _metadata_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return []


def _names_group(place: str) -> bool:
    try:
        with open(f"{place}/entry_points.txt", "rb") as file:
            return f"[{GROUP}]".encode() in file.read()
    except OSError:
        return False
