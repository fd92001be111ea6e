"""Write docs/modules.md: every module of sgsdump on one line, what it is for and what it defines, room by room.

    python tools/module_index.py

The first sentence of a module's docstring says what it is for; the public functions and classes stand after it, in the
order of the file. tests/test_house.py fails where docs/modules.md does not say what the modules say.
"""

import ast
import re
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
INDEX = TREE / "docs" / "modules.md"
PLUGINS = ("fixedpoint", "capture", "pipeline")
_HEAD = """# The modules

Where to look for what: each file of `sgsdump`, the first sentence of its docstring, and what it defines. How the rooms
stand on one another is told in CONTRIBUTING.md. `python tools/module_index.py` writes this page.
"""


def page() -> str:
    """The page as it should be."""
    paths = sorted((TREE / "sgsdump").rglob("*.py"), key=lambda path: (_room(path), path.name != "__init__.py", path))
    lines, room = [_HEAD], None
    for path in paths:
        if _room(path) != room:
            room = _room(path)
            lines.append(f"\n## {room}\n" if room else "\n## sgsdump\n")
        lines.append(_line(path))
    return "\n".join(lines) + "\n"


def _room(path: Path) -> str:
    below = path.relative_to(TREE / "sgsdump").parts
    folders = below[:-1]
    return "/".join(folders[: 2 if folders and folders[0] in PLUGINS else 1])


def _line(path: Path) -> str:
    module = ast.parse(path.read_text(encoding="utf-8"))
    first = " ".join((ast.get_docstring(module) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=\w[.:)`])\s+(?=[A-Z`])", first)[0].rstrip(".:")
    defined = [
        f"`{node.name}`"
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    return f"- **{path.relative_to(TREE / 'sgsdump')}**: {sentence}." + (f" {', '.join(defined)}" if defined else "")


if __name__ == "__main__":
    INDEX.write_text(page(), encoding="utf-8")
