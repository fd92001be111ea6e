"""The house rules that a machine can check: imports point down, families keep to themselves, only commands print."""

import ast
import functools
import re
import sys
from pathlib import Path

import sgsdump

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sgsdump"
ELSEWHERE = ("tests", "tools", "benchmarks", "docs")
ROOMS = (  # top down, as the map in sgsdump/__init__.py has them
    *("__main__", "cli", "commands", "msit", "torchair", "reports", "tuning", "quantisation", "pipeline", "programs"),
    *("executors", "models"),
    *("comparison", "dumps", "sidecars", "tensors", "files", "notebook", "progress", "registry", "errors"),
)
# A folder of equal members behind a table, none of which knows another.
FAMILIES = (
    *("commands", "comparison/metrics", "comparison/vendor_metrics", "executors", "sidecars"),
    *("reports/comparison", "reports/golden", "reports/tuning", "dumps/formats/arrays"),
)
# What the members of a family share stands in its folder beside them.
SHARED = {
    *(
        "commands/cut_note",
        "commands/parser",
        "commands/option_values",
        "commands/options",
        "commands/quantising_options",
        "commands/terminal",
        "commands/shared_files",
        "executors/runner",
        "executors/base",
        "executors/output_check",
        "executors/table",
    ),
    *(
        "sidecars/ini",
        "sidecars/ini_lists",
        "sidecars/quant_param_entries",
        "sidecars/number_lists",
        "reports/comparison/base",
        "comparison/metrics/base",
    ),
    *("comparison/metrics/accumulators", "comparison/vendor_metrics/base"),
    *(
        "dumps/formats/arrays/manifest",
        "dumps/formats/arrays/npy_file",
        "dumps/formats/arrays/npy",
        "dumps/formats/arrays/zip_member",
    ),
}
LIBRARIES_AT_HOME = {
    "matplotlib": ("reports",),
    "tqdm": ("commands",),
    "onnxruntime": ("executors",),
    "distributed": ("executors",),
    "openvino": ("executors",),
    "tvm": ("executors",),
    "yaml": ("files",),
    "torch": ("msit", "torchair", "programs"),
    "jinja2": ("reports",),
}
# What a room may import besides the standard library and sgsdump: in files numpy stands for mapped bytes and for the
# arrays of a restricted pickle; yaml is an extra, imported when a YAML file is read.
LIBRARIES_OF_ROOM = {"files": {"yaml", "numpy"}, "registry": set(), "errors": set(), "tensors": {"numpy", "ml_dtypes"}}


def modules():
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def name_of(module):
    """``dumps.formats.arrays.npz``, or ``dumps`` for a room's __init__."""
    return ".".join(module.with_suffix("").parts).removesuffix(".__init__")


NAMES = {name_of(module) for module in modules()}


@functools.cache
def parsed(module):
    return ast.parse((PACKAGE / module).read_text(encoding="utf-8"))


@functools.cache
def nodes(module):
    return list(ast.walk(parsed(module)))


def of_every_module(rule):
    """The test that ``rule(module)`` finds nothing wrong, in any module."""

    def test():
        wrong = {str(module): found for module in modules() if (found := rule(module))}
        assert not wrong

    test.__doc__ = rule.__doc__
    return test


@functools.cache
def imports(module, typing=False):
    """Dotted names a module imports, also inside functions; ``typing`` those for type checkers too."""
    return list(_imports(nodes(module), typing))


def _imports(nodes, typing):
    checked_only = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    for node in nodes:
        if id(node) in checked_only and not typing:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(module, **which):
    """The modules of sgsdump that a module imports, without the package itself."""
    dotted = (name.removeprefix("sgsdump.") for name in imports(module, **which) if name.startswith("sgsdump."))
    return {name for name in dotted if name in NAMES}


def room_of(name):
    return name.split(".")[0]


@of_every_module
def test_imports_point_down(module):
    room = room_of(name_of(module))
    if module.name == "__init__.py" and len(module.parts) == 1:
        return None
    return {name for name in own(module, typing=True) if ROOMS.index(room_of(name)) < ROOMS.index(room)}


def test_the_map_is_the_tree():
    rooms = {module.parts[0].removesuffix(".py") for module in modules()} - {"__init__"}
    assert rooms == set(ROOMS)
    drawn = re.findall(r"^    (\w[\w ]*?)(?:  |$)", sgsdump.__doc__, re.MULTILINE)
    assert " ".join(drawn).split() == list(ROOMS)


@of_every_module
def test_members_of_a_family_do_not_import_each_other(module):
    family = module.parent.as_posix()
    if family not in FAMILIES or module.name == "__init__.py" or f"{family}/{module.stem}" in SHARED:
        return None
    siblings = {path.stem for path in (PACKAGE / family).glob("*.py")} - {"__init__", module.stem}
    siblings -= {name.rpartition("/")[2] for name in SHARED if name.rpartition("/")[0] == family}
    dotted = family.replace("/", ".")
    return {name for name in own(module) if name.rpartition(".")[0] == dotted and name.rpartition(".")[2] in siblings}


@of_every_module
def test_a_library_stays_in_its_room(module):
    room = room_of(name_of(module))
    return [name for name in imports(module) if room not in LIBRARIES_AT_HOME.get(name.split(".")[0], (room,))]


@of_every_module
def test_the_lowest_rooms_need_no_library(module):
    allowed = LIBRARIES_OF_ROOM.get(room_of(name_of(module)))
    if allowed is None:
        return None
    return {name.split(".")[0] for name in imports(module)} - {*sys.stdlib_module_names, "sgsdump"} - allowed


@of_every_module
def test_only_commands_print(module):
    """Or ask; what the user's words mean is never left to Python."""
    if room_of(name_of(module)) in ("commands", "cli", "__main__"):
        return None
    calls = [node for node in nodes(module) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [node.lineno for node in calls if node.func.id in ("print", "input", "eval", "exec")]


def test_what_is_imported_from_elsewhere_is_there():
    """By tests, tools, benchmarks and documented programs: a module that moves takes them along."""
    there = {name_of(module): defined(module) for module in modules()}
    missing = []
    for file in [path for folder in ELSEWHERE for path in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sgsdump."):
                module = node.module.removeprefix("sgsdump.")
                names = {alias.name for alias in node.names if f"{module}.{alias.name}" not in NAMES}
                missing += [f"{file.name}:{node.lineno} {module} {name}" for name in names - there.get(module, set())]
    assert not missing


def defined(module):
    """The names that a module gives to something, at its top or within."""
    names = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_imports_make_no_circle():
    """Lazy imports and those for type checkers included."""
    edges = {
        name_of(module): own(module, typing=True) - {name_of(module)}
        for module in modules()
        if len(module.parts) > 1 or module.stem != "__init__"
    }
    done: set = set()
    while len(done) < len(edges):
        ready = {name for name, targets in edges.items() if name not in done and targets & edges.keys() <= done}
        assert ready, f"a circle among {sorted(set(edges) - done)}"
        done |= ready
