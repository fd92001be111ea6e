"""The house rules that a machine can check: imports point down, families keep to themselves, only commands print."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sgsdump"
FAMILIES = ("formats", "sidecars", "models", "passes", "executors", "metrics", "vendor_metrics", "reports", "commands")
TOP = ("commands", "cli")
LIBRARIES_AT_HOME = {
    "matplotlib": ("reports", "chart"),
    "tqdm": ("commands", "progress"),
    "onnxruntime": ("executors",),
    "distributed": ("cluster",),
    "openvino": ("executors",),
    "tvm": ("executors",),
    "yaml": ("document",),
    "torch": ("msit",),
}


def modules():
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def imports(module, lazily=True):
    """Dotted names a module imports; with ``lazily`` those inside functions too, never those for type checkers only."""
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    checked_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    nodes = ast.walk(tree) if lazily else tree.body
    for node in nodes:
        if id(node) in checked_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(module):
    """The parts of sgsdump a module imports, as paths of names: ('formats', 'sigmastar_bin')."""
    return {tuple(name.split(".")[1:]) for name in imports(module) if name.startswith("sgsdump.")}


@pytest.mark.parametrize("module", modules(), ids=str)
def test_members_of_a_family_do_not_import_each_other(module):
    family = module.parts[0]
    if family not in FAMILIES or module.name == "__init__.py":
        return
    siblings = {path.stem for path in (PACKAGE / family).glob("*.py")} - {"__init__", module.stem}
    assert not {parts for parts in own(module) if parts[0] == family and len(parts) > 1 and parts[1] in siblings}


@pytest.mark.parametrize("module", modules(), ids=str)
def test_nothing_below_imports_commands_or_reports(module):
    top = module.parts[0].removesuffix(".py") in (*TOP, "__main__")
    if not top:
        assert not {parts for parts in own(module) if parts[0] in TOP}
    if not top and module.parts[0] not in ("reports", "report.py"):
        assert not {parts for parts in own(module) if parts[0] == "reports"}


@pytest.mark.parametrize("module", modules(), ids=str)
def test_a_library_stays_in_its_room(module):
    room = module.parts[0].removesuffix(".py")
    for name in imports(module):
        allowed = LIBRARIES_AT_HOME.get(name.split(".")[0])
        assert allowed is None or room in allowed, name


@pytest.mark.parametrize("module", modules(), ids=str)
def test_only_commands_print(module):
    if module.parts[0].removesuffix(".py") in TOP:
        return
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert not [node.lineno for node in calls if node.func.id in ("print", "input", "eval", "exec")]


def test_imports_make_no_circle():
    """Among modules that import each other at load time; a contract reaches its family lazily."""
    names = {tuple(module.with_suffix("").parts): module for module in modules()}
    edges = {
        name: {
            target
            for imported in imports(module, lazily=False)
            if imported.startswith("sgsdump.")
            for target in [tuple(imported.split(".")[1:])]
            if target in names and target != name
        }
        for name, module in names.items()
    }
    done: set = set()
    while len(done) < len(edges):
        ready = {name for name, targets in edges.items() if name not in done and targets <= done}
        assert ready, f"a circle among {sorted(set(edges) - done)}"
        done |= ready
