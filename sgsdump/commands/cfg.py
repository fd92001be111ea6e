"""Write a copy of a configuration file into the current folder to start from; without a name, list them.

An existing file is never overwritten.

examples:
  sgsdump cfg
  sgsdump cfg DebugConfig.txt        what `sgsdump simulate` dumps
  sgsdump cfg input_config.ini       the model's inputs, their mean, std and colours, the outputs
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="which file; without it their names are listed")


def run(args: argparse.Namespace) -> int:
    from sgsdump.errors import ConfigError

    files = {file.name: file for file in sorted(templates().iterdir()) if file.suffix in (".txt", ".ini")}
    if args.name is None:
        print("\n".join(files))
        return 0
    if args.name not in files:
        raise ConfigError(f"there is no configuration file {args.name}; there are: {', '.join(files)}")
    write_new(Path(args.name), files[args.name].read_bytes())
    print(f"{args.name} written")
    return 0


def templates() -> Path:
    """The folder of the files: ``sgsdump/cfg`` where the package is installed, ``cfg`` beside it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "cfg"
    return installed if installed.is_dir() else package.parent / "cfg"


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet. Raises OutputError when it is, or cannot be written."""
    from sgsdump.errors import OutputError

    try:
        with open(path, "xb") as file:
            file.write(content)
    except FileExistsError:
        raise OutputError(f"{path} exists and is left as it is; move it away, or run this in another folder") from None
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
