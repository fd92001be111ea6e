"""Make docs/tutorial.ipynb of docs/tutorial.md: its text as cells of Markdown, its Python as cells of code.

    python tools/make_notebook.py             write it
    python tools/make_notebook.py --run       write it, and run a copy by nbconvert in a new folder, as a reader does

tests/test_tutorial.py checks that the two agree. ``--run`` needs nbconvert and ipykernel and takes half a minute.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGE, NOTEBOOK, TRAINING = DOCS / "tutorial.md", DOCS / "tutorial.ipynb", DOCS / "train_shapes.py"
CELL = re.compile(r"```python\n(.*?)\n?```\n", re.DOTALL)


def notebook_of(text: str) -> str:
    """The notebook, as text, of a page."""
    parts = CELL.split(text)  # text and code in turn
    cells = [_cell(number, part.strip("\n"), number % 2 == 1) for number, part in enumerate(parts) if part.strip()]
    language = {"name": "python"}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": language}}
    return json.dumps(document | {"nbformat": 4, "nbformat_minor": 5}, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, text: str, is_code: bool) -> dict[str, object]:
    lines = text.splitlines(keepends=True)
    cell: dict[str, object] = {"cell_type": "code" if is_code else "markdown", "id": f"cell-{number}", "metadata": {}}
    return cell | ({"execution_count": None, "outputs": []} if is_code else {}) | {"source": lines}


def run(folder: Path) -> int:
    """The exit status of nbconvert, which runs the notebook beside the file that it trains with."""
    for path in (NOTEBOOK, TRAINING):
        shutil.copy(path, folder)
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "done", NOTEBOOK.name]
    status = subprocess.run(command, cwd=folder).returncode
    if status == 0:
        print(*printed(json.loads((folder / "done.ipynb").read_text(encoding="utf-8"))), sep="\n")
    return status


def printed(document: dict) -> list[str]:
    """What the cells printed, and which kinds of pictures and tables they show."""
    lines = []
    for cell in document["cells"]:
        for output in cell.get("outputs", ()):
            lines += ["".join(output["text"])] if "text" in output else [f"[{', '.join(output.get('data', {}))}]"]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="also run a copy with nbconvert")
    wants_run = parser.parse_args().run
    NOTEBOOK.write_text(notebook_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    if not wants_run:
        return 0
    if not all(map(find_spec, ("nbconvert", "ipykernel"))):
        print("nbconvert or ipykernel is not installed: not run")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder))


if __name__ == "__main__":
    raise SystemExit(main())
