"""What pyproject.toml, the hooks, the changelog and the tree say of each other is true."""

import ast
import re
import sys
from pathlib import Path

import sgsdump

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
# Where the name to import is not the name to install.
INSTALLED_AS = {
    "PIL": "Pillow",
    "ai_edge_litert": "ai-edge-litert",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "tvm": "apache-tvm",
    "yaml": "PyYAML",
}


def requirements():
    """The names of all packages that the dependencies and the extras name."""
    section = PROJECT[PROJECT.index("\ndependencies = [") : PROJECT.index("[project.scripts]")]
    return set(re.findall(r'"([A-Za-z][\w.-]*?)(?:\[[^\]]*\])?(?:[<>=][^"]*)?"', section)) - {"sgsdump"}


def imported():
    """The roots of everything the package imports, lazily too."""
    roots = set()
    for path in (ROOT / "sgsdump").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                roots |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                roots.add(node.module.split(".")[0])
    # The hooks import one another by their file's name: their folder is on the path.
    hooks = {path.stem for path in (ROOT / "sgsdump" / "capture" / "programs" / "hook").rglob("*.py*")}
    return roots - set(sys.stdlib_module_names) - hooks - {"sgsdump", "pytest"}


def test_everything_imported_is_declared():
    assert {INSTALLED_AS.get(name, name) for name in imported()} <= requirements()


def test_every_dependency_has_its_reason():
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = contributing[contributing.index("## Dependencies, and why") :]
    assert not {name for name in requirements() if name not in re.split(r"[^\w.-]+", table)}


def test_hooks_and_the_lint_extra_name_the_same_versions():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    for tool in ("ruff", "mypy"):
        (version,) = set(re.findall(rf"{tool}==([\d.]+)", PROJECT))
        assert set(re.findall(rf"{tool}==([\d.]+)", hooks)) == {version}


def test_dependencies_stand_in_one_place():
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    assert "install_requires" not in setup and "extras_require" not in setup and "version=" not in setup


def test_the_changelog_has_this_version_dated_and_what_is_not_released():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changelog
    assert re.search(rf"## \[{re.escape(sgsdump.__version__)}\] - \d{{4}}-\d\d-\d\d\n", changelog)


def test_the_files_that_are_packed_are_there():
    assert {path.suffix for path in (ROOT / "cfg").iterdir()} == {".txt", ".ini"}
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")


def test_what_is_compiled_is_in_setup_and_has_a_stub():
    setup, package = (ROOT / "setup.py").read_text(encoding="utf-8"), ROOT / "sgsdump"
    sources = {path.relative_to(package).as_posix() for path in package.rglob("*.c")}
    assert sources and all(f'"sgsdump/{source}"' in setup for source in sources)
    # Of the sources of one module the first has its name.
    sources = {
        first.removeprefix("sgsdump/") for first in re.findall(r'^    \("(sgsdump/[^"]+\.c)"', setup, re.MULTILINE)
    }
    stubs = {path.relative_to(package).as_posix() for path in package.rglob("*.pyi")}
    assert stubs == {source.replace(".c", ".pyi") for source in sources}
    assert all(f'"{stub}"' in setup for stub in stubs), "a stub is packed"
