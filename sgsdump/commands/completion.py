"""Print the code that lets a shell complete the commands, options and values of sgsdump.

examples:
  eval "$(sgsdump completion bash)"      in ~/.bashrc
  eval "$(sgsdump completion zsh)"       in ~/.zshrc, after compinit
  sgsdump completion fish | source       in ~/.config/fish/config.fish

requirements:
  Put the line for your shell into the start-up file named beside the line.
  Completion needs argcomplete: pip install 'sgsdump[completion]'.
"""

from __future__ import annotations

import argparse
import os
from types import ModuleType

SHELLS = "bash", "zsh", "fish"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="name of the shell")


def run(args: argparse.Namespace) -> int:
    print(_argcomplete().shellcode(["sgsdump"], shell=args.shell), end="")
    return 0


def complete() -> None:
    """Answer the completion request of a shell; argcomplete ends the process."""
    from sgsdump.commands.parser import build_parser, called

    _argcomplete().autocomplete(build_parser(called(os.environ.get("COMP_LINE", "").split()[1:])))


def _argcomplete() -> ModuleType:
    from sgsdump.errors import MissingExtra

    try:
        import argcomplete
    except ModuleNotFoundError:
        raise MissingExtra("shell completion needs argcomplete: pip install 'sgsdump[completion]'") from None
    return argcomplete
