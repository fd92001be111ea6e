#!/usr/bin/env python3
"""Print the lowest version of each package that pyproject.toml allows, as constraints for pip.

python tools/lowest_versions.py test > lowest.txt && pip install -c lowest.txt '.[test]'
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
BOUND = re.compile(r"([A-Za-z0-9_.-]+)\s*>=\s*([0-9][0-9a-z.]*)(?:\s*,.*)?")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", help="extras whose packages are also listed, such as test")
    args = parser.parse_args(argv)
    print("\n".join(constraints(PYPROJECT, args.extras)))
    return 0


def constraints(pyproject: Path, extras: Sequence[str] = ()) -> list[str]:
    """``name==version``, sorted, of the dependencies and of these extras and the extras they name.

    Raises ValueError for a requirement without a lowest version, or with another than elsewhere.
    """
    import tomllib

    project = tomllib.loads(pyproject.read_text())["project"]
    found: dict[str, str] = {}
    for requirement in (*project["dependencies"], *_of_extras(project, extras)):
        bound = BOUND.fullmatch(requirement)
        if bound is None:
            raise ValueError(f"{pyproject.name}: {requirement!r} must give its lowest version as NAME>=VERSION")
        name, version = bound.groups()
        if found.setdefault(name, version) != version:
            raise ValueError(f"{pyproject.name}: {name} has two lowest versions, {found[name]} and {version}")
    return sorted(f"{name}=={version}" for name, version in found.items())


def _of_extras(project: dict, extras: Sequence[str]) -> Iterator[str]:
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[(.*)\]", requirement)
            if own:
                yield from _of_extras(project, own[1].split(","))
            else:
                yield requirement


if __name__ == "__main__":
    sys.exit(main())
