"""Build the documentation as a site, its warnings as errors: mkdocs.yml, and the notebook made anew.

    python tools/build_site.py            into site/
    python tools/build_site.py FOLDER

Needs the extra ``docs``; where that is not installed, says so and ends with 0. Nothing is fetched.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDED = ("mkdocs", "material", "mkdocstrings_handlers")


def main(folder: str = "site") -> int:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"not built: {', '.join(missing)} not installed; pip install 'sgsdump[docs]'")
        return 0
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(Path(folder).resolve())]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
