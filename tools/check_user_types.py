"""Check the Python of README.md and docs/*.md as a user's type checker does, with mypy and pyright.

    python tools/check_user_types.py            both, what is not installed is left out and said
    python tools/check_user_types.py mypy

Each block that imports sgsdump becomes a file of its own, in a new folder. The exit status is 1 where one complains.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKERS = {
    "mypy": ["--cache-dir", str(ROOT / ".mypy_cache"), "--ignore-missing-imports"],
    "pyright": ["--level", "error", "--pythonpath", sys.executable],
}


def blocks_of(page: Path) -> list[str]:
    """The Python blocks of a page that import sgsdump."""
    found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in found if re.search(r"^(import|from) sgsdump", block, re.MULTILINE)]


def files_in(folder: Path) -> list[Path]:
    """A file for each block, named after its page."""
    paths = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, block in enumerate(blocks_of(page), 1):
            paths.append(folder / f"{page.stem}_{number}.py")
            paths[-1].write_text(block, encoding="utf-8")
    return paths


def main(checkers: list[str]) -> int:
    status = 0
    with tempfile.TemporaryDirectory() as name:
        paths = files_in(Path(name))
        # an editable installation is found by a hook that pyright does not follow; torch and others may be absent
        setting = {"extraPaths": [str(ROOT)], "reportMissingImports": "warning", "include": ["."]}
        Path(name, "pyrightconfig.json").write_text(json.dumps(setting), encoding="utf-8")
        for checker in checkers:
            if find_spec(checker) is None:
                print(f"{checker} is not installed: not checked")
                continue
            # pyright reads its setting only where no file is named
            files = map(str, paths) if checker == "mypy" else ()
            command = [sys.executable, "-m", checker, *CHECKERS[checker], *files]
            done = subprocess.run(command, cwd=name, capture_output=True, text=True)
            print(f"{checker}, {len(paths)} files of a user:\n{done.stdout}{done.stderr}", end="")
            status |= done.returncode != 0
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or list(CHECKERS)))
